"""f32 and f64, too many to try all: random patterns, ties and their neighbours, the ends of the range."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import skuda
from oracles import affine_array, patterns
from oracles.floats import FORMATS

from .support import (
    I32_MAX,
    I32_MIN,
    RANGE,
    ZERO_POINTS,
    assert_codes,
    assert_floats,
    floats,
    options,
    parameter_shape,
    pattern,
)

ROWS, COLUMNS = 96, 64
WIDE = [("f32", "f32"), ("f64", "f64"), ("f64", "f32")]


def random_problem(seed, element, scale_element):
    """input and d_output [ROWS, COLUMNS], scale and zero_point [ROWS]; floats as patterns."""
    rng = np.random.default_rng(seed)
    x, d_output = patterns.sample(rng, FORMATS[element], 2 * ROWS * COLUMNS).reshape(2, ROWS, COLUMNS)
    near, far = rng.integers(-300, 300, ROWS), rng.choice(ZERO_POINTS, ROWS)
    zero_point = np.where(rng.random(ROWS) < 0.5, near, far)
    return x, patterns.sample(rng, FORMATS[scale_element], ROWS), zero_point, d_output


def tie_problem(seed, element, scale_element):
    """The same with input = (k + 1/2) * scale, or one pattern off, for a k near an end of a range."""
    rng = np.random.default_rng(seed)
    x, scale, zero_point, d_output = random_problem(seed, element, scale_element)
    forms = FORMATS[scale_element], FORMATS[element]
    for row, column in np.ndindex(ROWS, COLUMNS):
        end = int(rng.choice([-128, 127, 0, 255, -8, 7, 15])) - int(zero_point[row])
        multiple = end + int(rng.integers(-3, 4)) + Fraction(1, 2)
        beside = int(rng.integers(-1, 2))
        x[row, column] = patterns.near_multiple(int(scale[row]), multiple, beside, *forms)
    return x, scale, zero_point, d_output


def edge_problem(seed, element, scale_element):
    """The same with scales so large or small that x / scale overflows, underflows or is subnormal."""
    rng = np.random.default_rng(seed)
    x, scale, zero_point, d_output = random_problem(seed, element, scale_element)
    form = FORMATS[scale_element]
    near = rng.integers(0, 1 << 10, ROWS).astype(np.uint64)
    ends = [near, form.smallest_normal + near, form.largest - near]
    scale = np.choose(rng.integers(0, 3, ROWS), ends)
    return x, scale.astype(np.uint64), zero_point, d_output


@pytest.mark.turns(2)
@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize("make", [random_problem, tie_problem, edge_problem])
@pytest.mark.parametrize(("element", "scale_element"), WIDE)
def test_random(backend, element, scale_element, make, word):
    seed = 100 * WIDE.index((element, scale_element)) + list(RANGE).index(word)
    x, scale, zero_point, d_output = make(seed, element, scale_element)
    arrays = [floats(x, element), floats(scale, scale_element), zero_point.astype(np.int32)]
    shown = {"input": arrays[0], "scale": arrays[1][:, None], "zero_point": zero_point[:, None]}
    arrays = [backend.array(each) for each in arrays]
    gradient = backend.array(floats(d_output, element))
    problem = (x, scale[:, None], zero_point[:, None], *RANGE[word])
    kinds = {"element": element, "scale_element": scale_element}

    code = skuda.quantize_per_token(*arrays, dtype=word)
    assert_codes(backend.numpy(code), affine_array.quantize(*problem, **kinds), word, **shown)
    fake = skuda.fake_quantize_per_token(*arrays, dtype=word)
    assert_floats(backend.numpy(fake), affine_array.fake_quantize(*problem, **kinds), element, **shown)
    for name in ("quantize", "fake_quantize"):
        actual = getattr(skuda, f"{name}_per_token_backward")(gradient, *arrays, dtype=word)
        expected = getattr(affine_array, f"{name}_backward")(d_output, *problem, **kinds)
        assert_floats(backend.numpy(actual), expected, element, d_output=floats(d_output, element), **shown)


@pytest.mark.parametrize("granularity", ["per_tensor", "per_channel", "per_token", "per_group"])
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("zero_point", [I32_MIN, I32_MAX, 2**24 + 3, 0])
def test_nothing_wraps_or_rounds_at_the_ends_of_i32(backend, granularity, element, zero_point):
    """x / scale near +-2^24 .. +-2^33 and the zero point: exact sums, which no i32 and no f32 could hold."""
    near = [2**power + offset for power in (24, 31, 32, 33) for offset in range(-300, 301, 50)]
    x = np.array([[pattern(sign * number, element) for number in near for sign in (1, -1)]], dtype=np.uint64)
    size = pattern("1", element)
    kinds = {"element": element, "scale_element": element}
    axis = 0 if granularity == "per_channel" else -1
    position, of_parameters = (
        options(granularity, axis, x.size),
        parameter_shape(granularity, x.shape, axis, x.size),
    )
    parameters = [
        backend.array(floats(np.full(of_parameters, size), element)),
        backend.array(np.full(of_parameters, zero_point, dtype=np.int32)),
    ]
    given = backend.array(floats(x, element))
    problem = (x, size, zero_point, 0, 255)

    actual = getattr(skuda, f"quantize_{granularity}")(given, *parameters, dtype="u8", **position)
    expected = affine_array.quantize(*problem, **kinds)
    assert_codes(backend.numpy(actual), expected, "u8", input=floats(x, element))
    actual = getattr(skuda, f"fake_quantize_{granularity}")(given, *parameters, dtype="u8", **position)
    expected = affine_array.fake_quantize(*problem, **kinds)
    assert_floats(backend.numpy(actual), expected, element, input=floats(x, element))

    codes = np.arange(x.size, dtype=np.uint8)[np.newaxis]
    actual = getattr(skuda, f"dequantize_{granularity}")(
        backend.array(codes), *parameters, dtype=element, **position
    )
    expected = affine_array.dequantize(codes, size, zero_point, **kinds)
    assert_floats(backend.numpy(actual), expected, element, code=codes)
