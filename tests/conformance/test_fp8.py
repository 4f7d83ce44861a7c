"""Codes that are floats of 8 bits: every f16 and bf16, what lies around every tie, every code back, both gradients."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import skuda
from oracles import affine_array, floats_array, fp8, fp8_array, patterns
from oracles.floats import FORMATS, FP8, compute_format, decode, encode_fraction
from skuda.errors import ElementMismatch, InvalidProblem, Unsupported

from .support import ELEMENTS, STORAGE, assert_floats, bits_of, expanded, floats, options, parameter_shape, pattern
from .test_granularities import PLACEMENTS, name
from .test_rows import all_rows, random_row

WORDS = list(FP8)
# Ordinary scales, ones with many ties, a negative one, and what is the caller's error.
SCALES = ["0.1", "1/3", "1", "0.5", "1/1024", "3", "-0.75", "200"]


def codes_of(backend, array, word: str) -> np.ndarray:
    """Codes as a NumPy array of their type; CuPy's are of uint8."""
    found = backend.numpy(array)
    assert found.dtype == (STORAGE[word] if backend.name == "reference" else np.uint8)
    return found.view(STORAGE[word])


def around_ties(element: str, word: str) -> np.ndarray:
    """Patterns of `element`: all codes, what lies halfway between two, and at either side of these."""
    form, codes = FORMATS[element], FP8[word]
    values = [decode(code, codes).magnitude for code in range(codes.largest + 1)]
    values.append(2 * values[-1] - values[-2])  # the next one, if there were one
    numbers = []
    for one, other in zip(values, values[1:]):
        tie = (one + other) / 2
        # 2^-30 of a step is lost in f32, but decides in f64; 2^-22 is a unit or two of f32.
        numbers += [one, tie, *(tie + side * (other - one) / 2**k for side in (1, -1) for k in (22, 30, 45))]
    bits = np.array([encode_fraction(number, form) for number in numbers], np.uint64)
    near = np.concatenate([bits, bits + np.uint64(1), np.maximum(bits, 1) - np.uint64(1), patterns.special(form)])
    return np.concatenate([near, near ^ np.uint64(form.sign)])


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("element", FORMATS)
def test_every_value_and_tie(backend, element, word):
    """With scale 1 the code is the value itself, rounded once and saturated."""
    x = around_ties(element, word)
    if FORMATS[element].bits == 16:
        x = np.concatenate([x, np.arange(1 << 16, dtype=np.uint64)])
    given = backend.array(floats(x, element))
    actual = codes_of(backend, skuda.quantize_fp8_per_tensor(given, 1.0, dtype=word), word)
    expected = floats_array.encode(floats_array.decode(x, FORMATS[element]), FP8[word])
    assert_floats(actual, expected, word, input=floats(x, element))


@pytest.fixture(scope="module", params=ELEMENTS, ids=lambda pair: f"{pair[0]}_scale_{pair[1]}")
def grid(request):
    """(element, scale element, inputs, scales, quotients): all inputs of 16 bits, a sample of the others."""
    element, scale_element = request.param
    form, of_scale = FORMATS[element], FORMATS[scale_element]
    if form.bits == 16:
        x = np.arange(1 << 16, dtype=np.uint64)
    else:
        x = np.concatenate([around_ties(element, word) for word in WORDS])
        x = np.concatenate([x, patterns.sample(np.random.default_rng(5), form, 9000)])
    numbers = [pattern(number, scale_element) for number in SCALES]
    odd = [1, of_scale.largest, 0, of_scale.sign, of_scale.infinity, of_scale.nan]
    scale = np.array(numbers + odd, np.uint64)
    kinds = {"element": element, "scale_element": scale_element}
    return element, scale_element, x, scale, [affine_array.quotient(x, each, **kinds) for each in scale]


@pytest.mark.turns(4)
@pytest.mark.parametrize("word", WORDS)
def test_quantize_and_its_gradient(backend, grid, word):
    element, scale_element, x, scale, quotients = grid
    inputs, scales = np.tile(floats(x, element), (len(scale), 1)), floats(scale, scale_element)
    turned = np.random.default_rng(6).permutation(len(x))
    given = [backend.array(each) for each in (inputs, scales)]
    d_output = backend.array(inputs[:, turned])
    gradients = np.stack([floats_array.encode(each, FORMATS[element]) for each in quotients])[:, turned]
    shown = {"input": inputs, "scale": scales[:, None]}
    for q_max in (None, 24.0):
        most = fp8.highest(word) if q_max is None else Fraction(q_max)
        codes = np.stack([fp8_array.code_of(each, most, word) for each in quotients])
        actual = skuda.quantize_fp8_per_token(*given, dtype=word, q_max=q_max)
        assert_floats(codes_of(backend, actual, word), codes, word, **shown)
        inside = np.stack([fp8_array.in_range_of(each, most) for each in quotients])
        actual = skuda.quantize_fp8_per_channel_backward(d_output, *given, axis=0, dtype=word, q_max=q_max)
        assert_floats(backend.numpy(actual), np.where(inside, gradients, np.uint64(0)), element, **shown)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_every_code_back(backend, element, scale_element, word):
    form = FORMATS[scale_element]
    scale = [pattern(number, scale_element) for number in SCALES]
    scale = np.concatenate([np.array(scale, np.uint64), patterns.special(form)])
    rows = np.tile(np.arange(256, dtype=np.uint64), (len(scale), 1))
    kinds = {"element": element, "scale_element": scale_element}
    given = [backend.array(floats(rows, word)), backend.array(floats(scale, scale_element))]
    actual = skuda.dequantize_fp8_per_token(*given, dtype=element)
    expected = fp8_array.dequantize(rows, scale[:, None], **kinds, word=word)
    assert_floats(backend.numpy(actual), expected, element, code=rows)
    d_output = patterns.sample(np.random.default_rng(7), FORMATS[element], rows.size).reshape(rows.shape)
    actual = skuda.dequantize_fp8_per_channel_backward(backend.array(floats(d_output, element)), given[1], axis=0)
    expected = affine_array.dequantize_backward(d_output, scale[:, None], **kinds)
    assert_floats(backend.numpy(actual), expected, element, d_output=d_output)


@pytest.mark.parametrize("placement", PLACEMENTS[::2], ids=name)
def test_granularity(backend, placement):
    granularity, shape, axis, group_size = placement
    turn = PLACEMENTS.index(placement) // 2
    element, scale_element = ELEMENTS[turn % len(ELEMENTS)]
    word = WORDS[turn // 3 % 2]
    rng = np.random.default_rng(turn)
    kinds = {"element": element, "scale_element": scale_element}
    x = patterns.sample(rng, FORMATS[element], int(np.prod(shape))).reshape(shape)
    of_parameters = parameter_shape(granularity, shape, axis, group_size)
    scale = patterns.sample(rng, FORMATS[scale_element], int(np.prod(of_parameters))).reshape(of_parameters)
    each_scale = expanded(scale, granularity, shape, axis, group_size)
    position = options(granularity, axis, group_size)
    given = [backend.array(floats(x, element)), backend.array(floats(scale, scale_element))]
    shown = {"input": floats(x, element), "scale": floats(each_scale, scale_element)}

    def call(op, *arguments, **more):
        return getattr(skuda, op.format(granularity))(*arguments, **position, **more)

    most = fp8.highest(word)
    codes = fp8_array.quantize(x, each_scale, most, **kinds, word=word)
    assert_floats(codes_of(backend, call("quantize_fp8_{}", *given, dtype=word), word), codes, word, **shown)
    gradient = fp8_array.quantize_backward(x, x, each_scale, most, **kinds)
    actual = call("quantize_fp8_{}_backward", given[0], *given, dtype=word)
    assert_floats(backend.numpy(actual), gradient, element, **shown)
    values = fp8_array.dequantize(codes, each_scale, **kinds, word=word)
    actual = call("dequantize_fp8_{}", backend.array(floats(codes, word)), given[1], dtype=element)
    assert_floats(backend.numpy(actual), values, element, **shown)
    product = affine_array.dequantize_backward(x, each_scale, **kinds)
    assert_floats(backend.numpy(call("dequantize_fp8_{}_backward", *given)), product, element, **shown)


# ---- dynamic ----


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("element", FORMATS)
def test_dynamic_quantize(backend, element, word):
    for what, row in all_rows(element).items():
        for q_max, scale_element in ((None, None), (None, element), (24.0, None)):
            most = fp8.highest(word) if q_max is None else Fraction(q_max)
            scale, codes = fp8.dynamic_quantize(row, most, element=element, word=word, scale_element=scale_element)
            x = backend.array(floats(row, element))
            got = skuda.dynamic_quantize_fp8_per_token(x, dtype=word, q_max=q_max, scale_dtype=scale_element)
            assert_floats(backend.numpy(got[0]), scale, scale_element or compute_format(element).word, what=what)
            assert_floats(codes_of(backend, got[1], word), np.array(codes), word, input=floats(row, element))


@pytest.mark.parametrize(("shape", "axis", "group_size"), [((37,), -1, 8), ((3, 20), 0, 2), ((2, 9, 4), 1, 4)])
def test_dynamic_groups(backend, shape, axis, group_size):
    bits = np.array(random_row("bf16", int(np.prod(shape)), 15)).reshape(shape)
    x = backend.array(floats(bits, "bf16"))
    scale, codes = skuda.dynamic_quantize_fp8_per_group(x, group_size=group_size, axis=axis)
    scale, codes = backend.numpy(scale), codes_of(backend, codes, "e4m3")
    lines = np.moveaxis(bits, axis, -1).reshape(-1, shape[axis]).tolist()
    scales = np.moveaxis(bits_of(scale, "f32"), axis, -1).reshape(len(lines), -1)
    stored = np.moveaxis(bits_of(codes, "e4m3"), axis, -1).reshape(len(lines), -1)
    for line, of_line, stored_line in zip(lines, scales.tolist(), stored.tolist(), strict=True):
        groups = [line[start : start + group_size] for start in range(0, len(line), group_size)]
        expected = [fp8.dynamic_quantize(group, 448, element="bf16", word="e4m3") for group in groups]
        assert of_line == [each for each, _ in expected]
        assert stored_line == [code for _, group in expected for code in group]


# ---- arrays ----


@pytest.mark.parametrize("word", WORDS)
def test_arrays_of_bytes(backend, word):
    """A library without the type hands it around as uint8: as an input by `input_dtype=`, as an output as it is."""
    x = np.linspace(-600, 600, 60, dtype=np.float32).reshape(4, 15)
    scale = np.array([1, 0.5, 2, 3], np.float32)
    given = [backend.array(each) for each in (x, scale)]
    codes = codes_of(backend, skuda.quantize_fp8_per_token(*given, dtype=word), word)
    out = backend.array(np.zeros((4, 15), np.uint8))
    assert skuda.quantize_fp8_per_token(*given, dtype=word, out=out) is out
    np.testing.assert_array_equal(backend.numpy(out), codes.view(np.uint8))
    values = backend.numpy(skuda.dequantize_fp8_per_token(backend.array(codes), given[1]))
    again = skuda.dequantize_fp8_per_token(out, given[1], input_dtype=word)
    np.testing.assert_array_equal(backend.numpy(again), values)
    apart = backend.array(np.repeat(codes.view(np.uint8), 2, axis=-1))[:, ::2]
    again = skuda.dequantize_fp8_per_token(apart, given[1], input_dtype=word)
    np.testing.assert_array_equal(backend.numpy(again), values)


def test_what_does_not_fit_is_refused(backend):
    x, scale = backend.array(np.ones((2, 3), np.float32)), backend.array(np.ones(2, np.float32))
    with pytest.raises(InvalidProblem, match=r"q_max is 100.3, expected a value of e4m3 \(-448 to 448\)"):
        skuda.quantize_fp8_per_token(x, scale, q_max=100.3)
    with pytest.raises(InvalidProblem, match="q_max is 512.0, expected a value of e4m3"):
        skuda.quantize_fp8_per_token(x, scale, q_max=512.0)
    with pytest.raises(InvalidProblem, match="requires 0 < q_max, got q_max=-1.0"):
        skuda.quantize_fp8_per_token(x, scale, q_max=-1.0)
    with pytest.raises(InvalidProblem, match="q_max is nan, expected a value of e5m2"):
        skuda.dynamic_quantize_fp8_per_token(x, dtype="e5m2", q_max=float("nan"))
    with pytest.raises(Unsupported, match="output is s8, expected e4m3 or e5m2"):
        skuda.quantize_fp8_per_token(x, scale, dtype="s8")
    codes = backend.array(np.zeros((2, 3), np.uint8))
    with pytest.raises(Unsupported, match="input has elements uint8 .* may be e4m3 or e5m2; say which by input_dtype="):
        skuda.dequantize_fp8_per_token(codes, scale)
    with pytest.raises(ElementMismatch, match="input is e4m3, which travels as float8_e4m3fn, but has elements int8"):
        skuda.dequantize_fp8_per_token(codes.view(np.int8), scale, input_dtype="e4m3")
    with pytest.raises(ElementMismatch, match="output has elements s8, expected e4m3"):
        skuda.quantize_fp8_per_token(x, scale, out=codes.view(np.int8))
