"""One test or more for each of the library's numbered rules, on cases that other libraries answer otherwise.

9 (`remainder` has the divisor's sign, `fmod` the dividend's) and most of 8 speak of intrinsics that no
operation here uses: the tests of the intrinsics' table pin them.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import skuda
from oracles import affine, affine_array, patterns
from oracles import floats as exact
from oracles import floats_array as arrays
from oracles.floats import BF16, F16, F32, F64, FORMATS
from skuda.errors import InvalidProblem

from .support import ELEMENTS, I32_MAX, I32_MIN, RANGE, assert_floats, bits_of, floats, pattern


def quantize(backend, x, element, scale, zero_point, word, **kwargs):
    """Codes of some numbers or bit patterns, one scale (a number) and zero point for all."""
    scale = np.array(pattern(scale, element), dtype=np.uint64)
    parameters = [backend.array(floats(scale, element)), backend.array(np.array(zero_point, dtype=np.int32))]
    x = backend.array(floats(np.array(x, dtype=np.uint64), element))
    return backend.numpy(skuda.quantize_per_tensor(x, *parameters, dtype=word, **kwargs)).tolist()


@pytest.mark.parametrize("element", FORMATS)
def test_semantics_01_zero_point_is_added_after_rounding_ties_to_even(backend, element):
    halves = [pattern(f"{k}/2", element) for k in (-5, -3, -1, 1, 3, 5)]
    assert quantize(backend, halves, element, 1, 0, "s8") == [-2, -2, 0, 0, 2, 2]
    # Added before rounding, 1 would give -2 0 0 2 2 4.
    assert quantize(backend, halves, element, 1, 1, "s8") == [-1, -1, 1, 1, 3, 3]


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("zero_point", [0, 128, -1, I32_MIN, I32_MAX])
@pytest.mark.parametrize("word", ["s8", "u8"])
def test_semantics_01_infinities_saturate_whatever_the_zero_point(backend, element, zero_point, word):
    form = FORMATS[element]
    x = [form.infinity, form.infinity | form.sign]
    assert quantize(backend, x, element, 1, zero_point, word) == [RANGE[word][1], RANGE[word][0]]


@pytest.mark.parametrize("element", ["f32", "f64", "bf16"])
def test_semantics_01_the_sum_with_the_zero_point_does_not_wrap(backend, element):
    x = [pattern(2**31, element), pattern(2**32, element), pattern(-(2**31), element)]
    assert quantize(backend, x, element, 1, I32_MIN, "u8") == [0, 255, 0]
    assert quantize(backend, x, element, 1, I32_MAX, "s8") == [127, 127, -1]


def test_semantics_01_sixteen_bit_inputs_are_divided_in_f32(backend):
    """bf16 over f32(0.1): of these quotients f64 puts some on the other side of a tie, bf16 dozens."""
    x, scale = np.arange(pattern(1, "bf16"), pattern(128, "bf16")), pattern("0.1", "f32")
    codes = affine_array.quantize(x, scale, 0, -128, 127, element="bf16", scale_element="f32")
    operands = arrays.decode(x, BF16), arrays.decode(np.uint64(scale), F32)
    for form, at_least in ((F64, 10), (BF16, 40)):
        other = np.clip(arrays.to_integers(arrays.divide(*operands, form)), -128, 127)
        assert (codes != other).sum() >= at_least
    numbers = backend.array(floats(x, "bf16")), backend.array(floats([scale], "f32"))
    actual = skuda.quantize_per_tensor(*numbers, backend.array(np.zeros(1, np.int32)))
    assert backend.numpy(actual).tolist() == codes.tolist()


def test_semantics_01_an_f32_scale_of_16_bit_inputs_keeps_its_bits(backend):
    """0.1 as f32 and 0.1 as f16 give dozens of f16 inputs different codes."""
    x = np.arange(pattern("1/16", "f16"), pattern(16, "f16"))
    codes = {
        kind: affine_array.quantize(x, pattern("0.1", kind), 0, -128, 127, element="f16", scale_element=kind)
        for kind in ("f32", "f16")
    }
    assert (codes["f32"] != codes["f16"]).sum() >= 40
    for kind, expected in codes.items():
        scale, zero_point = floats([pattern("0.1", kind)], kind), np.zeros(1, np.int32)
        given = [backend.array(each) for each in (floats(x, "f16"), scale, zero_point)]
        assert backend.numpy(skuda.quantize_per_tensor(*given)).tolist() == expected.tolist()


@pytest.mark.parametrize("element", FORMATS)
def test_semantics_02_nan_has_the_code_of_zero(backend, element):
    form = FORMATS[element]
    x = [form.nan, form.nan | form.sign, form.infinity + 1, 0, form.sign]
    for zero_point, code in [(0, 0), (5, 5), (-7, -7), (127, 127), (300, 127), (I32_MIN, -128)]:
        assert quantize(backend, x, element, "1/10", zero_point, "s8") == [code] * 5
    assert quantize(backend, x, element, 0, 3, "u8") == [3] * 5  # 0 / 0


@pytest.mark.parametrize("element", FORMATS)
def test_semantics_03_the_mask_is_inclusive_and_ties_are_the_forward_s(backend, element):
    """The codes of both ends pass, ties go where the forward pass puts them, gradients keep their factor."""
    quarters = range(-24, 25)
    x = backend.array(floats([pattern(f"{k}/4", element) for k in quarters], element))
    d_output = backend.array(floats([pattern(f"{k + 100}/4", element) for k in quarters], element))
    scale = backend.array(floats([pattern(2, element)], element))
    zero_point = backend.array(np.array([1], np.int32))
    kwargs = {"q_min": -1, "q_max": 2}
    # -2 <= round(x / 2) <= 1 is -5 <= x < 3, for x / 2 = -2.5 is a tie to -2, and 1.5 one to 2.
    inside = [-20 <= k < 12 for k in quarters]
    fake = skuda.fake_quantize_per_tensor_backward(d_output, x, scale, zero_point, **kwargs)
    expected = [pattern(f"{k + 100}/4", element) if passes else 0 for k, passes in zip(quarters, inside)]
    assert_floats(backend.numpy(fake), expected, element, input=backend.numpy(x))
    real = skuda.quantize_per_tensor_backward(d_output, x, scale, zero_point, **kwargs)
    expected = [pattern(f"{k + 100}/8", element) if passes else 0 for k, passes in zip(quarters, inside)]
    assert_floats(backend.numpy(real), expected, element, input=backend.numpy(x))


@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_semantics_03_fake_quantize_is_the_round_trip(backend, element, scale_element):
    rng = np.random.default_rng(3)
    x = floats(patterns.sample(rng, FORMATS[element], 2000), element)
    scale = floats(np.array(pattern("3/7", scale_element), dtype=np.uint64), scale_element)
    x, scale, zero_point = backend.array(x), backend.array(scale), backend.array(np.array(-2, np.int32))
    code = skuda.quantize_per_tensor(x, scale, zero_point)
    there_and_back = backend.numpy(skuda.dequantize_per_tensor(code, scale, zero_point, dtype=element))
    fake = skuda.fake_quantize_per_tensor(x, scale, zero_point)
    assert_floats(backend.numpy(fake), bits_of(there_and_back, element), element, input=backend.numpy(x))


def test_semantics_04_f64_stays_f64_through_parameters_and_steps(backend):
    """Inputs, and scales, one f64 unit apart on both sides of a tie: f32 would merge them."""
    x = np.array([2.5, np.nextafter(2.5, 3), 2.5])
    scale = np.array([1.0, 1.0, np.nextafter(1.0, 0)])
    zero_point = backend.array(np.zeros(3, np.int32))
    actual = skuda.quantize_per_channel(backend.array(x), backend.array(scale), zero_point, axis=0)
    assert backend.numpy(actual).tolist() == [2, 3, 3]
    number = skuda.quantize_per_tensor(backend.array(x[:1]), float(scale[2]), 0)
    assert backend.numpy(number).tolist() == [3]
    code = backend.array(np.array([3], np.int8))
    back = backend.numpy(skuda.dequantize_per_tensor(code, backend.array(np.array(0.1)), zero_point[:1]))
    expected = affine.dequantize(3, pattern("0.1", "f64"), 0, element="f64", scale_element="f64")
    assert bits_of(back, "f64").tolist() == [expected]


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize("op", ["quantize", "fake_quantize"])
def test_semantics_05_the_range_must_fit_the_type(backend, op, word):
    x = backend.array(np.ones(4, np.float32))
    low, high = RANGE[word]
    for q_min, q_max in [(low - 1, high), (low, high + 1), (high, low), (low + 1, low)]:
        with pytest.raises(InvalidProblem, match="q_m"):
            getattr(skuda, f"{op}_per_tensor")(x, 1.0, 0, q_min=q_min, q_max=q_max, dtype=word)


@pytest.mark.parametrize("word", RANGE)
def test_semantics_05_the_range_defaults_to_the_type_s_and_may_be_one_code(backend, word):
    low, high = RANGE[word]
    x = [pattern(-1000, "f32"), pattern(1000, "f32"), pattern(3, "f32"), pattern(0, "f32")]
    scale, zero_point = 1, 0
    ends = floats(x, "f32")
    whole = skuda.fake_quantize_per_tensor(backend.array(ends), 1.0, 0, dtype=word)
    assert backend.numpy(whole).tolist() == [low, high, 3, 0]
    if word in ("s8", "u8"):
        assert quantize(backend, x, "f32", scale, zero_point, word) == [low, high, 3, 0]
        assert quantize(backend, x, "f32", scale, zero_point, word, q_min=2, q_max=2) == [2] * 4


@pytest.mark.parametrize(("element", "scale_element"), ELEMENTS)
def test_semantics_06_a_bad_scale_gives_the_ieee_result(backend, element, scale_element):
    """Codes, values and gradients for scales that are zero, negative, infinite or NaN."""
    form, scale_form = FORMATS[element], FORMATS[scale_element]
    infinity, sign = scale_form.infinity, scale_form.sign
    scale = [0, sign, pattern(-1, scale_element), infinity, infinity | sign, scale_form.nan]
    x = patterns.special(form)
    shape = (len(scale), len(x))
    rows = np.broadcast_to(floats(x, element), shape)
    sizes = floats(scale, scale_element)
    shown = {"input": rows, "scale": sizes[:, None]}
    given = [backend.array(each) for each in (rows, sizes, np.full(len(scale), 3, np.int32))]
    kinds = {"element": element, "scale_element": scale_element}

    def expected(name, *gradient):
        oracle = getattr(affine, name)
        return [[oracle(*gradient, v, s, 3, -128, 127, **kinds) for v in x.tolist()] for s in scale]

    assert backend.numpy(skuda.quantize_per_token(*given)).tolist() == expected("quantize")
    fake = skuda.fake_quantize_per_token(*given)
    assert_floats(backend.numpy(fake), expected("fake_quantize"), element, **shown)
    one = pattern(1, element)
    d_output = backend.array(floats(np.full(shape, one), element))
    gradient = skuda.quantize_per_token_backward(d_output, *given)
    assert_floats(backend.numpy(gradient), expected("quantize_backward", one), element, **shown)


def test_semantics_07_strides_and_odd_addresses_are_honoured(backend):
    """The same rows with an odd row length, transposed, reversed, and one element off an aligned address."""
    rng = np.random.default_rng(7)
    bits = patterns.sample(rng, F16, 33 * 65).reshape(33, 65)
    scale, zero_point = np.full(33, 0.05, np.float32), np.arange(33, dtype=np.int32)
    expected = affine_array.quantize(
        bits, pattern("0.05", "f32"), zero_point[:, None], -128, 127, element="f16", scale_element="f32"
    ).tolist()
    scale, zero_point = backend.array(scale), backend.array(zero_point)
    rows = floats(bits, "f16")
    wide = backend.array(np.pad(rows, ((0, 0), (1, 2))))
    layouts = {
        "odd rows": wide[:, 1:66],
        "transposed": backend.array(rows.T).T,
        "reversed": backend.array(rows[::-1, ::-1])[::-1, ::-1],
        "one element off": backend.array(np.pad(rows.ravel(), (1, 0)))[1:].reshape(33, 65),
    }
    for layout, x in layouts.items():
        assert backend.numpy(skuda.quantize_per_token(x, scale, zero_point)).tolist() == expected, layout


@pytest.mark.parametrize("element", FORMATS)
def test_semantics_08_a_nan_scale_reaches_the_value_and_a_mask_selects(backend, element):
    """The clamp turns no NaN into a number; outside the mask the gradient is 0 even of a NaN or an inf."""
    form = FORMATS[element]
    x = backend.array(floats([pattern(1, element), pattern(200, element), pattern(-200, element)], element))
    nan = backend.array(floats([form.nan], element))
    zero = backend.array(np.zeros(1, np.int32))
    fake = skuda.fake_quantize_per_tensor(x, nan, zero)
    assert bits_of(backend.numpy(fake), element).tolist() == [form.nan] * 3
    d_output = backend.array(floats([form.nan | form.sign, form.nan, form.infinity], element))
    one = backend.array(floats([pattern(1, element)], element))
    for op in ("quantize", "fake_quantize"):
        gradient = getattr(skuda, f"{op}_per_tensor_backward")(d_output, x, one, zero)
        assert bits_of(backend.numpy(gradient), element).tolist() == [form.nan, 0, 0]


@pytest.mark.parametrize("element", FORMATS)
def test_semantics_10_layout_and_alignment_change_no_bit(backend, element):
    """Contiguous, one element off, every second element, reversed, broadcast: the oracle's bits each time.

    That the reference and CUDA agree follows: both run this test against the same expected bits.
    """
    form = FORMATS[element]
    bits = np.concatenate([patterns.special(form), patterns.sample(np.random.default_rng(10), form, 1003)])
    rows = floats(bits, element)
    n = len(rows)
    spread = np.zeros(2 * n, rows.dtype)
    spread[::2] = rows
    layouts = [
        backend.array(rows),
        backend.array(np.concatenate([rows[:1], rows]))[1:],
        backend.array(spread)[::2],
        backend.array(rows[::-1])[::-1],
    ]
    weight, zero_point = pattern("0.3", exact.compute_format(element).word), 11
    number = float(floats(weight, exact.compute_format(element).word))
    scale = pattern("0.07", element)
    fake = affine_array.fake_quantize(bits, scale, zero_point, 0, 255, element=element, scale_element=element)
    parameters = backend.array(floats([scale], element)), backend.array(np.array([zero_point], np.int32))
    first = backend.numpy(skuda.lerp(layouts[0], layouts[0][::-1], number))
    for x in layouts:
        actual = skuda.fake_quantize_per_tensor(x, *parameters, dtype="u8")
        assert_floats(backend.numpy(actual), fake, element, input=rows)
        actual = skuda.lerp(x, x[::-1], number)
        assert_floats(backend.numpy(actual), bits_of(first, element), element, a=rows, b=rows[::-1])


@pytest.mark.parametrize(("word", "byte"), [("u4", 0x21), ("s4", 0x21)])
def test_semantics_11_the_even_element_is_in_the_low_nibble(backend, word, byte):
    x = [pattern(1, "f32"), pattern(2, "f32")]
    assert quantize(backend, x, "f32", 1, 0, word) == [byte]
    stored = backend.array(np.array([byte], np.uint8))
    back = skuda.dequantize_per_tensor(stored, 1.0, 0, dtype="f32", input_dtype=word)
    assert backend.numpy(back).tolist() == [1, 2]


def test_semantics_12_the_default_is_the_division_not_the_reciprocal(backend):
    """x = (k + 1/2) * f32(0.3), |k| <= 120: multiplying by the reciprocal misses dozens of the ties."""
    scale = pattern("0.3", "f32")
    size = exact.decode(scale, F32)
    x = [patterns.near_multiple(scale, k + Fraction(1, 2), 0, F32, F32) for k in range(-120, 120)]
    reciprocal = exact.divide(exact.integer(1, F32), size, F32)
    by_reciprocal = [round(exact.multiply(exact.decode(each, F32), reciprocal, F32).signed) for each in x]
    divided = [affine.quantize(each, scale, 0, -128, 127, element="f32", scale_element="f32") for each in x]
    assert sum(a != b for a, b in zip(divided, by_reciprocal)) >= 20
    assert quantize(backend, x, "f32", "0.3", 0, "s8") == divided


@pytest.mark.parametrize("element", FORMATS)
def test_every_nan_written_is_the_canonical_one(backend, element):
    """From NaN inputs of either sign and any payload, and from 0 * inf and inf - inf."""
    form = FORMATS[element]
    nans = [form.nan, form.nan | form.sign, form.infinity + 1, (form.infinity + 1) | form.sign]
    d_output = backend.array(floats(nans, element))
    x, one = backend.array(floats([0] * 4, element)), backend.array(floats([pattern(1, element)], element))
    zero = backend.array(np.zeros(1, np.int32))
    infinite = backend.array(floats([form.infinity], element))
    results = [
        skuda.fake_quantize_per_tensor_backward(d_output, x, one, zero),
        skuda.quantize_per_tensor_backward(d_output, x, one, zero),
        skuda.dequantize_per_tensor_backward(d_output, one),
        skuda.fake_quantize_per_tensor(x, infinite, zero),
        skuda.lerp(d_output, x, 0.5),
        skuda.lerp_tensor(x, d_output, x),
        *skuda.lerp_backward(d_output, 0.5),
        skuda.dequantize_per_tensor(backend.array(np.zeros(4, np.int8)), infinite, zero, dtype=element),
    ]
    for result in results:
        assert bits_of(backend.numpy(result), element).tolist() == [form.nan] * 4
