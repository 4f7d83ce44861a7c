"""Every code of every integer type, for many scales and zero points, bit for bit; and the gradient."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import affine_array, patterns
from oracles.floats import FORMATS

from .support import ELEMENTS, RANGE, ZERO_POINTS, assert_floats, bits_of, floats, pattern, stored_codes

NUMBERS = ["0.1", "1/3", "1", "0.25", "7", "-0.3", "1000", "1/100000"]


def scales(scale_element: str, seed: int) -> np.ndarray:
    form = FORMATS[scale_element]
    numbers = [pattern(number, scale_element) for number in NUMBERS]
    sample = patterns.sample(np.random.default_rng(seed), form, 40)
    return np.concatenate([np.array(numbers, dtype=np.uint64), patterns.special(form), sample])


@pytest.mark.turns(2)
@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_every_code(backend, element, scale_element, word):
    codes = np.arange(RANGE[word][0], RANGE[word][1] + 1)
    scale, zero_point = np.meshgrid(scales(scale_element, 1), ZERO_POINTS, indexing="ij")
    scale, zero_point = scale.ravel(), zero_point.ravel().astype(np.int32)
    rows = np.tile(codes, (len(scale), 1))
    arrays = [stored_codes(rows, word), floats(scale, scale_element), zero_point]
    packed = {"input_dtype": word} if word in ("s4", "u4") else {}
    actual = skuda.dequantize_per_token(*[backend.array(each) for each in arrays], dtype=element, **packed)
    kinds = {"element": element, "scale_element": scale_element}
    expected = affine_array.dequantize(rows, scale[:, None], zero_point[:, None], **kinds)
    shown = {"code": rows, "scale": arrays[1][:, None], "zero_point": zero_point[:, None]}
    assert_floats(backend.numpy(actual), expected, element, **shown)


@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_backward(backend, element, scale_element):
    scale = scales(scale_element, 2)
    form = FORMATS[element]
    d_output = np.concatenate([patterns.special(form), patterns.sample(np.random.default_rng(3), form, 100)])
    d_output = np.tile(d_output, (len(scale), 1))
    arrays = [floats(d_output, element), floats(scale, scale_element)]
    actual = skuda.dequantize_per_channel_backward(*[backend.array(each) for each in arrays], axis=0)
    kinds = {"element": element, "scale_element": scale_element}
    expected = affine_array.dequantize_backward(d_output, scale[:, None], **kinds)
    assert_floats(backend.numpy(actual), expected, element, d_output=arrays[0], scale=arrays[1][:, None])


@pytest.mark.parametrize(
    ("scale_element", "dtype", "element"),
    [
        ("f16", None, "f16"),
        ("bf16", None, "bf16"),
        ("f64", None, "f64"),
        ("f32", None, "f32"),
        ("f32", "f16", "f16"),
        ("f32", "bf16", "bf16"),
        ("f32", "f64", "f64"),
    ],
)
def test_type_of_the_output(backend, scale_element, dtype, element):
    """The scale's type, unless `dtype` says another; the scale is one that each type rounds otherwise."""
    codes = np.arange(-128, 128, dtype=np.int8)[np.newaxis]
    scale = np.array([pattern("0.1", scale_element)], dtype=np.uint64)
    zero_point = np.array([3], dtype=np.int32)
    arrays = [backend.array(each) for each in (codes, floats(scale, scale_element), zero_point)]
    actual = skuda.dequantize_per_token(*arrays, dtype=dtype)
    kinds = {"element": element, "scale_element": scale_element}
    expected = affine_array.dequantize(codes, scale, 3, **kinds)
    assert_floats(backend.numpy(actual), expected, element, code=codes)


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_round_trip_of_codes_is_fake_quantize(backend, element, scale_element, word):
    """dequantize(quantize(x)) == fake_quantize(x), as the library computes them, for random everything."""
    rng = np.random.default_rng(4)
    x = floats(patterns.sample(rng, FORMATS[element], 64 * 32).reshape(64, 32), element)
    scale = floats(patterns.sample(rng, FORMATS[scale_element], 64), scale_element)
    zero_point = rng.choice(ZERO_POINTS, 64).astype(np.int32)
    x, scale, zero_point = (backend.array(each) for each in (x, scale, zero_point))
    code = skuda.quantize_per_token(x, scale, zero_point, dtype=word)
    packed = {"input_dtype": word} if word in ("s4", "u4") else {}
    there_and_back = skuda.dequantize_per_token(code, scale, zero_point, dtype=element, **packed)
    fake = skuda.fake_quantize_per_token(x, scale, zero_point, dtype=word)
    expected = bits_of(backend.numpy(there_and_back), element)
    assert_floats(backend.numpy(fake), expected, element, input=backend.numpy(x))
