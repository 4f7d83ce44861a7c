"""Operations on rows: plain dynamic quantization to the bit, the others within the spans of their oracles."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest

import skuda
from oracles import rows
from oracles.floats import F32, FORMATS, compute_format
from oracles.spans import ANY, admits
from skuda.errors import InvalidProblem, Unsupported

from .support import RANGE, STORAGE, assert_codes, assert_floats, bits_of, floats, pattern, unpack

LENGTHS = (1, 2, 7, 8, 9, 63, 64, 65, 513, 1000)
LONG = [
    *((name, *each) for each in ((8193, "f32"), (8193, "bf16")) for name in ("rms_norm", "softmax")),
    ("rms_norm", 65536, "f64"),
    ("rms_norm", 65537, "f32"),
]
WORDS = ("s8", "s4")
EPS = dict.fromkeys(
    ("rms_norm", "rms_normalize", "add_rms_norm", "rms_norm_dynamic_quantize", "add_rms_norm_dynamic_quantize"), "1e-6"
)
EPS |= dict.fromkeys(("layer_norm", "standardize", "layer_norm_dynamic_quantize"), "1e-5") | {"l2_normalize": "1e-12"}


def rounded(values, element: str) -> list[int]:
    with np.errstate(over="ignore"):
        return bits_of(np.asarray(values, np.float64).astype(STORAGE[element]), element).tolist()


def random_row(element: str, length: int, seed: int) -> list[int]:
    rng = np.random.default_rng([seed, length])
    return rounded(rng.normal(0.3, 3, length) * 2.0 ** rng.integers(-3, 4), element)


def unusual_rows(element: str) -> dict[str, list[int]]:
    """Rows of 20 elements."""
    form = FORMATS[element]
    rng = np.random.default_rng(20)
    plain = random_row(element, 20, 1)
    one, tenth = pattern(1, element), pattern("0.1", element)

    def with_these(*bits) -> list[int]:
        return [*plain[:7], *bits, *plain[7 + len(bits) :]]

    wide = rng.normal(size=20) * 2.0 ** rng.integers(3 - form.bias // 2, form.bias // 2 - 3, 20)
    far = "1e8" if form.exponent_bits > 5 else "5e4"
    high = pattern(2 ** (form.fraction_bits + 1) if form.exponent_bits > 5 else 2048, element)
    return {
        "zeros": [0] * 20,
        "minus zeros": [form.sign] * 20,
        "zeros of both signs": [form.sign, 0] * 10,
        "one is not zero": [0] * 13 + [one] + [form.sign] * 6,
        "nan": with_these(form.nan),
        "minus nan with a payload": with_these((form.infinity + 1) | form.sign),
        "all nan": [form.nan] * 20,
        "inf": with_these(form.infinity),
        "minus inf": with_these(form.infinity | form.sign),
        "inf of both signs": with_these(form.infinity, form.infinity | form.sign),
        "all inf": [form.infinity] * 20,
        "all minus inf": [form.infinity | form.sign] * 20,
        "inf among nan and zero": [form.nan, 0, form.infinity, form.infinity | form.sign] * 5,
        "subnormals": rng.integers(0, form.smallest_normal, 20).tolist(),
        "the least subnormal": [1, *[0] * 19],
        "subnormals of both signs": [each | form.sign * (i % 2) for i, each in enumerate(range(1, 21))],
        "the largest": [form.largest] * 20,
        "the largest of both signs": [form.largest, form.largest | form.sign] * 10,
        "one is the largest": with_these(form.largest),
        "cancellation": [pattern(each, element) for each in (far, 1, f"-{far}", "0.5")] * 5,
        "ones beside a large one": [high] + [one] * 19,
        "large ones beside one": [high] * 19 + [one],
        "wide exponents": rounded(wide, element),
        "equal": [tenth] * 20,
        "ties": rounded(np.arange(-9.5, 10.5), element),
    }


def all_rows(element: str) -> dict[str, list[int]]:
    return unusual_rows(element) | {f"random {n}": random_row(element, n, 2) for n in LENGTHS}


def eps_of(name: str, element: str) -> int:
    return pattern(EPS[name], compute_format(element).word)


def parameter(element: str, length: int, seed: int) -> list[int]:
    return rounded(np.random.default_rng(seed).normal(1, 0.3, length), element)


def other_row(element: str, length: int) -> list[int]:
    """What stands beside a row: ordinary values, a zero and an infinity."""
    row = random_row(element, length, 3)
    return row if length < 7 else [*row[: length // 2], 0, FORMATS[element].infinity, *row[length // 2 + 2 :]]


# What each operation takes beside the row.
PARAMETERS = {
    "rms_norm": lambda element, n: (parameter(element, n, 4),),
    "layer_norm": lambda element, n: (parameter(element, n, 4), parameter(element, n, 5)),
    "rms_norm_dynamic_quantize": lambda element, n: (parameter(element, n, 4),),
    "silu_mul_dynamic_quantize": lambda element, n: (other_row(element, n),),
    "add_rms_norm": lambda element, n: (other_row(element, n), parameter(element, n, 4)),
    "add_rms_norm_dynamic_quantize": lambda element, n: (other_row(element, n), parameter(element, n, 4)),
    "layer_norm_dynamic_quantize": lambda element, n: (parameter(element, n, 4), parameter(element, n, 5)),
    "softmax_backward": lambda element, n: (rounded(np.full(n, 1 / n), element),),
    "log_softmax_backward": lambda element, n: (rounded(np.linspace(-9, 0, n), element),),
}
REAL = (
    "rms_norm", "rms_normalize", "layer_norm", "standardize", "l2_normalize", "softmax", "log_softmax",
    "softmax_backward", "log_softmax_backward",
)  # fmt: skip
IN_ONE_PASS = (
    "rms_norm_dynamic_quantize", "silu_mul_dynamic_quantize", "add_rms_norm_dynamic_quantize",
    "layer_norm_dynamic_quantize", "softmax_dynamic_quantize", "gelu_dynamic_quantize", "gelu_tanh_dynamic_quantize",
)  # fmt: skip
ONE_VALUE = {
    "sum": rows.total, "mean": rows.mean, "prod": rows.product, "amax": rows.largest, "amin": rows.smallest,
    "norm1": rows.norm1, "norm2": rows.norm2, "logsumexp": rows.logsumexp, "var": rows.variance, "std": rows.deviation,
}  # fmt: skip
WHOLE = {
    "any": rows.some, "all": rows.each, "count_nonzero": rows.nonzero, "argmax": rows.first_largest,
    "argmin": rows.first_smallest,
}  # fmt: skip


def assert_admitted(actual: np.ndarray, expected: list, element: str, what: str) -> int:
    """Stored values lie in their spans; how many of these are more than one value."""
    bits = np.atleast_1d(bits_of(actual, element)).tolist()
    for position, (each, span) in enumerate(zip(bits, expected, strict=True)):
        if not admits(span, each, FORMATS[element]):
            ends = [float(end.signed) if end.kind == "finite" else end for end in (span.low, span.high)]
            got = float(floats(each, element))
            limits = f"expected from {ends[0]!r} to {ends[1]!r}"
            raise AssertionError(f"{what} [{position}]: got {got!r} ({each:#x}), {limits}")
    return sum(not span.exact for span in expected)


def compute(backend, name: str, element: str, *given: list[int], **options) -> np.ndarray:
    return backend.numpy(getattr(skuda, name)(*(backend.array(floats(each, element)) for each in given), **options))


# ---- real values ----


@pytest.mark.turns(3)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", REAL)
def test_an_output_for_each_element(backend, name, element):
    said = 0
    for what, row in all_rows(element).items():
        given = (row, *PARAMETERS.get(name, lambda *_: ())(element, len(row)))
        eps = [eps_of(name, element)] if name in EPS else []
        wanted = range(len(row)) if len(row) <= 65 else [*range(0, len(row), 37), len(row) - 1]
        expected = getattr(rows, name)(*given, *eps, element=element, wanted=wanted)
        actual = compute(backend, name, element, *given)
        assert actual.shape == (len(row),)
        assert_admitted(actual[list(wanted)], expected, element, f"{name} {element} {what}")
        said += sum(span is not ANY for span in expected)
    assert said > 600


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", ONE_VALUE)
def test_an_output_for_each_row(backend, name, element):
    for what, row in all_rows(element).items():
        expected = ONE_VALUE[name](row, element=element)
        assert_admitted(compute(backend, name, element, row), [expected], element, f"{name} {element} {what}")


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", WHOLE)
def test_a_truth_or_an_integer_for_each_row(backend, name, element):
    ties = pattern(2, element)
    for what, row in (all_rows(element) | {"equal at the end": [0] * 99 + [ties] * 7, "one": [ties]}).items():
        for rolled in (row, row[len(row) // 2 :] + row[: len(row) // 2], row[::-1]):
            actual = compute(backend, name, element, rolled)
            assert actual.dtype == (np.bool_ if name in ("any", "all") else np.int64)
            assert actual == WHOLE[name](rolled, element=element), f"{name} {element} {what}"


@pytest.mark.parametrize("element", FORMATS)
def test_the_sum_of_two_and_its_norm(backend, element):
    for what, row in all_rows(element).items():
        other, weight = PARAMETERS["add_rms_norm"](element, len(row))
        given = (backend.array(floats(each, element)) for each in (row, other, weight))
        total, output = map(backend.numpy, skuda.add_rms_norm(*given))
        stored, expected = rows.add_rms_norm(row, other, weight, eps_of("add_rms_norm", element), element=element)
        assert_floats(total, stored, element)
        assert_admitted(output, expected, element, f"add_rms_norm {element} {what}")


@pytest.mark.parametrize("correction", ["0", "1", "0.5", "5", "20", "20.5", "-3"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_what_the_divisor_of_a_variance_is_corrected_by(backend, name, correction):
    for what, row in unusual_rows("f32").items():
        expected = ONE_VALUE[name](row, Fraction(correction), element="f32")
        actual = compute(backend, name, "f32", row, correction=float(correction))
        assert_admitted(actual, [expected], "f32", f"{name} {what}")


@pytest.mark.turns(4)
@pytest.mark.parametrize(("name", "length", "element"), LONG)
def test_long_rows(backend, name, length, element):
    row = random_row(element, length, 6)
    given = (row, *PARAMETERS.get(name, lambda *_: ())(element, length))
    eps = [eps_of(name, element)] if name in EPS else []
    wanted = [0, 1, 1023, 8191, 8192, length - 1, *range(5, length, length // 20)]
    expected = getattr(rows, name)(*given, *eps, element=element, wanted=wanted)
    assert_admitted(compute(backend, name, element, *given)[wanted], expected, element, name)


def test_a_sum_is_that_of_the_small_parts(backend):
    """Rows on which one accumulator is far off: the bound holds for 65536 ones beside 2^24, and for 2^20 elements."""
    row = [pattern(2**24, "f32")] + [pattern(1, "f32")] * 65536
    actual = compute(backend, "sum", "f32", row)
    assert_admitted(actual, [rows.total(row, element="f32")], "f32", "ones")
    assert abs(float(actual) - (2**24 + 65536)) <= 40
    tenth = np.full(1 << 20, 0.1, np.float32)
    total = float(backend.numpy(skuda.sum(backend.array(tenth))))
    exact = float(np.float32(0.1)) * 2**20
    assert abs(total - exact) <= (20 + 15) * 2.0**-24 * exact


@pytest.mark.parametrize("element", FORMATS)
def test_sums_that_cancel(backend, element):
    """The error is one of the magnitudes, and no more: x and -x in any order, with a little one between."""
    rng = np.random.default_rng(8)
    large = rounded(rng.uniform(1, 2, 100), element)
    row = np.array([*large, *(each | FORMATS[element].sign for each in large), pattern("0.001", element)], np.uint64)
    for _ in range(10):
        rng.shuffle(row)
        for name in ("sum", "mean", "norm2"):
            expected = ONE_VALUE[name](row.tolist(), element=element)
            assert not expected.exact
            assert_admitted(compute(backend, name, element, row.tolist()), [expected], element, name)


@pytest.mark.parametrize("shape", [(5,), (3, 9), (2, 3, 17), (2, 1, 2, 8), (4, 1)])
def test_rows_are_those_of_the_last_axis(backend, shape):
    """An array's results are those of its rows alone, whatever it lies beside and however it lies."""
    x, other = (backend.array(floats(random_row("f16", int(np.prod(shape)), s), "f16").reshape(shape)) for s in (1, 2))
    weight = backend.array(floats(parameter("f16", shape[-1], 9), "f16"))
    apart = backend.array(np.repeat(backend.numpy(x), 2, axis=-1))[..., ::2]
    for name, given in {
        "softmax": (x,), "rms_norm": (x, weight), "layer_norm": (x, weight, weight), "softmax_backward": (other, x),
        "log_softmax": (x,), "silu_mul_dynamic_quantize": (x, other), "dynamic_quantize_per_token": (x,),
    }.items():  # fmt: skip
        operation = getattr(skuda, name)
        whole = operation(*given)
        spread = operation(*(apart if each is x else each for each in given))
        for output, again in zip(*(each if isinstance(each, tuple) else (each,) for each in (whole, spread))):
            np.testing.assert_array_equal(backend.numpy(output), backend.numpy(again))
        for index in np.ndindex(shape[:-1]):
            alone = operation(*(each if each is weight else each[index] for each in given))
            for output, part in zip(*(each if isinstance(each, tuple) else (each,) for each in (whole, alone))):
                np.testing.assert_array_equal(backend.numpy(output)[index], backend.numpy(part))


def lines_over(x: np.ndarray, axis) -> tuple[tuple[int, ...], np.ndarray]:
    """The shape of a reduction over some axes as NumPy has it, and the elements of each of its rows."""
    named = range(x.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    reduced = {each % x.ndim for each in named}
    kept = [each for each in range(x.ndim) if each not in reduced]
    shape = tuple(x.shape[each] for each in kept)
    return shape, x.transpose(*kept, *sorted(reduced)).reshape(int(np.prod(shape)), -1)


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1), (1, 2), (-1, 1), (2, 0), (0, 1, 2), ()])
def test_reductions_over_any_axes(backend, axis, element):
    x = floats(random_row(element, 4 * 9 * 5, 10), element).reshape(4, 9, 5)
    shape, lines = lines_over(x, axis)
    for name, oracle in ONE_VALUE.items():
        actual = backend.numpy(getattr(skuda, name)(backend.array(x), axis=axis))
        assert actual.shape == shape
        expected = [oracle(line, element=element) for line in bits_of(lines, element).tolist()]
        assert_admitted(actual.reshape(-1), expected, element, name)


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1), (1, 2), (0, 2), ()])
def test_truths_and_integers_over_any_axes(backend, axis):
    x = np.random.default_rng(17).integers(-2, 3, (4, 9, 5)).astype(np.float16)
    x[1, :, 2] = x[2, 0, :] = 0
    x[3, 1, 1] = np.nan
    shape, lines = lines_over(x, axis)
    for name, oracle in WHOLE.items():
        actual = backend.numpy(getattr(skuda, name)(backend.array(x), axis=axis))
        assert actual.shape == shape
        expected = [oracle(line, element="f16") for line in bits_of(lines, "f16").tolist()]
        assert actual.reshape(-1).tolist() == expected, name


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_axes_of_a_weight_are_normalized_together(backend, rank):
    x, y = (floats(random_row("bf16", 4 * 9 * 5, seed), "bf16").reshape(4, 9, 5) for seed in (18, 19))
    length = int(np.prod(x.shape[-rank:]))
    weight, bias = (floats(parameter("bf16", length, seed), "bf16") for seed in (4, 5))
    for name, given in {
        "layer_norm": (x, weight, bias), "rms_norm": (x, weight), "add_rms_norm": (x, y, weight),
    }.items():  # fmt: skip
        shaped = [each.reshape(x.shape[-rank:]) if each.size == length and each.ndim == 1 else each for each in given]
        flat = [each.reshape(-1, length) if each.ndim > 1 else each for each in given]
        actual, expected = (getattr(skuda, name)(*map(backend.array, each)) for each in (shaped, flat))
        for mine, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (actual, expected))):
            assert mine.shape == x.shape
            np.testing.assert_array_equal(backend.numpy(mine), backend.numpy(other).reshape(x.shape))


def test_a_weight_that_does_not_fit_is_refused(backend):
    x = backend.array(np.zeros((3, 4, 5), np.float32))
    for shape, message in {
        (6,): r"weight has shape \(6,\), expected \(d,\) = \(5,\)",
        (3, 5): r"weight has shape \(3, 5\), expected \(\*d,\) = \(4, 5\)",
        (2, 3, 4, 5): r"input has shape \(3, 4, 5\), expected \(\*n, \*d\) with 4 axes of \*d",
    }.items():
        with pytest.raises(InvalidProblem, match=f"RmsNormPlan: {message}"):
            skuda.rms_norm(x, backend.array(np.zeros(shape, np.float32)))


@pytest.mark.parametrize("axis", [0, -1, None, (0, 1), (1, 2), ()])
def test_the_reduced_axes_may_be_kept(backend, axis):
    x = backend.array(floats(random_row("f16", 4 * 9 * 5, 10), "f16").reshape(4, 9, 5))
    for view in (x, x.transpose(2, 0, 1), x[::2, ::-1]):
        plain = backend.numpy(skuda.sum(view, axis=axis))
        kept = skuda.sum(view, axis=axis, keepdims=True)
        assert kept.shape == np.empty(view.shape).sum(axis, keepdims=True).shape
        np.testing.assert_array_equal(backend.numpy(kept).reshape(plain.shape), plain)
        out = backend.array(np.zeros(kept.shape, np.float16))
        for _ in range(3):
            assert skuda.sum(view, axis=axis, keepdims=True, out=out) is out
        np.testing.assert_array_equal(backend.numpy(out), backend.numpy(kept))
        with pytest.raises(InvalidProblem, match=r"SumPlan: output has shape \(2, 2\), expected "):
            skuda.sum(view, axis=axis, keepdims=True, out=backend.array(np.zeros((2, 2), np.float16)))


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (3, r"axis is 3, expected -3 to 2 for input of shape \(4, 9, 5\)"),
        ((0, -4), r"axis is \(0, -4\), expected -3 to 2 for input"),
        ((1, -2), r"axis is \(1, -2\), which names axis 1 of input twice"),
        (1.0, r"axis is 1.0, expected an integer, a tuple of integers, or None for all axes"),
        ((0, "x"), r"axis is \(0, 'x'\), expected an integer, a tuple of integers"),
        (True, r"axis is True, expected an integer"),
    ],
)
def test_axes_that_an_array_does_not_have(backend, axis, message):
    with pytest.raises(InvalidProblem, match=f"SumPlan: {message}"):
        skuda.sum(backend.array(np.zeros((4, 9, 5), np.float32)), axis=axis)


def test_axes_of_one_value(backend):
    x = backend.array(np.array(3, np.float32))
    for axis in (None, (), 0, -1, (0,)):  # as NumPy and torch have it
        assert backend.numpy(skuda.sum(x, axis=axis)) == 3
    with pytest.raises(InvalidProblem, match=r"axis is 1, expected -1, 0, \(\) or None for input of shape \(\)"):
        skuda.sum(x, axis=1)


def test_a_row_that_is_all_one_value_has_no_deviation(backend):
    """The mean of equal powers of two is exact, so that what layer_norm standardizes is 0: the bias is left."""
    for element in FORMATS:
        row, weight = [pattern(4, element)] * 64, parameter(element, 64, 1)
        bias = parameter(element, 64, 2)
        assert_floats(compute(backend, "layer_norm", element, row, weight, bias), bias, element)


def test_the_gradient_of_softmax_is_its_slope(backend):
    """softmax_backward against the central difference of the softmax itself, in 60 digits."""
    rng = np.random.default_rng(12)
    x, gradient = rng.normal(0, 2, 11), rng.normal(0, 1, 11)
    y = backend.numpy(skuda.softmax(backend.array(x)))
    log_y = backend.numpy(skuda.log_softmax(backend.array(x)))
    actual = backend.numpy(skuda.softmax_backward(backend.array(gradient), backend.array(y)))
    log_actual = backend.numpy(skuda.log_softmax_backward(backend.array(gradient), backend.array(log_y)))
    with mpmath.workdps(60):
        step = mpmath.mpf("1e-20")

        def loss(position, move, of):
            raised = [mpmath.exp(mpmath.mpf(each) + move * (i == position)) for i, each in enumerate(x.tolist())]
            whole = mpmath.fsum(raised)
            return mpmath.fsum(g * of(each / whole) for g, each in zip(gradient.tolist(), raised))

        for position in range(len(x)):
            for of, got in ((lambda value: value, actual), (mpmath.log, log_actual)):
                slope = (loss(position, step, of) - loss(position, -step, of)) / (2 * step)
                assert abs(slope - mpmath.mpf(float(got[position]))) < 1e-14


# ---- codes ----


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("element", FORMATS)
def test_dynamic_quantize(backend, element, word):
    for what, row in all_rows(element).items():
        check_dynamic(backend, "dynamic_quantize", row, element, word, what)


@pytest.mark.parametrize("word", RANGE)
@pytest.mark.parametrize("element", FORMATS)
def test_dynamic_quantize_asymmetric(backend, element, word):
    for what, row in all_rows(element).items():
        check_dynamic(backend, "dynamic_quantize_asymmetric", row, element, word, what)
        one_sided = [each & ~FORMATS[element].sign for each in row]
        check_dynamic(backend, "dynamic_quantize_asymmetric", one_sided, element, word, what)


@pytest.mark.parametrize("name", ["dynamic_quantize", "dynamic_quantize_asymmetric"])
def test_a_range_of_one_s_own(backend, name):
    row = random_row("f32", 100, 13)
    for q_min, q_max in ((-127, 127), (-3, 9), (0, 1), (2, 100)):
        check_dynamic(backend, name, row, "f32", "s8", "own range", q_min=q_min, q_max=q_max)


def test_a_range_without_a_scale_is_refused(backend):
    x = backend.array(np.ones((2, 3), np.float32))
    with pytest.raises(InvalidProblem, match="requires 0 < q_max"):
        skuda.dynamic_quantize_per_token(x, q_min=-8, q_max=0)
    with pytest.raises(InvalidProblem, match="requires q_min < q_max"):
        skuda.dynamic_quantize_asymmetric_per_token(x, q_min=5, q_max=5)


@pytest.mark.parametrize("name", ["dynamic_quantize", "dynamic_quantize_asymmetric"])
@pytest.mark.parametrize("element", FORMATS)
def test_a_scale_of_the_element_s_type(backend, element, name):
    """The codes are those of the scale as it is stored; where that underflows, they saturate, and 0 / 0 is code 0."""
    for what, row in unusual_rows(element).items():
        check_dynamic(backend, name, row, element, "s8", what, scale_dtype=element)


def test_an_f16_scale_that_underflows(backend):
    """A largest magnitude of 2^-24 over 127 is no f16: the scale is the least that there is, 2^-24."""
    x = backend.array(floats([1, 1 | FORMATS["f16"].sign, 0], "f16"))
    scale, codes = map(backend.numpy, skuda.dynamic_quantize_per_token(x, scale_dtype="f16"))
    assert (scale.dtype, scale.tolist(), codes.tolist()) == (np.float16, 2.0**-24, [1, -1, 0])
    scale, codes = map(backend.numpy, skuda.dynamic_quantize_per_token(x))
    assert (scale.dtype, codes.tolist()) == (np.float32, [127, -127, 0])


def test_a_scale_type_is_the_element_s_or_the_compute_type(backend):
    x = backend.array(np.ones((2, 3), np.float16))
    with pytest.raises(Unsupported, match=r"scale is bf16, expected f32 or f16 \(\w+ is f16"):
        skuda.dynamic_quantize_per_token(x, scale_dtype="bf16")
    for name, given in (("rms_norm_dynamic_quantize", x[0]), ("silu_mul_dynamic_quantize", x)):
        scale, codes = map(backend.numpy, getattr(skuda, name)(x, given, scale_dtype="f16"))
        wide, _ = map(backend.numpy, getattr(skuda, name)(x, given))
        assert scale.dtype == np.float16 and wide.dtype == np.float32
        np.testing.assert_array_equal(scale, wide.astype(np.float16))
        assert codes.tolist() == [[127] * 3] * 2


def check_dynamic(backend, name, row, element, word, what, scale_dtype=None, **own_range):
    low, high = RANGE[word]
    q_min, q_max = own_range.get("q_min", low), own_range.get("q_max", high)
    scale, *zero_point, codes = getattr(rows, name)(row, q_min, q_max, element=element, scale_element=scale_dtype)
    x = backend.array(floats(row, element))
    call = getattr(skuda, f"{name}_per_token")
    got = [backend.numpy(each) for each in call(x, dtype=word, scale_dtype=scale_dtype, **own_range)]
    shown = {"input": floats(row, element)}
    assert_floats(got[0], scale, scale_dtype or compute_format(element).word)
    assert [each.tolist() for each in got[1:-1]] == zero_point, what
    assert_codes(got[-1], np.array(codes), word, **shown)


@pytest.mark.parametrize("name", ["dynamic_quantize", "dynamic_quantize_asymmetric"])
@pytest.mark.parametrize(
    ("shape", "axis", "group_size"),
    [
        ((37,), -1, 8), ((3, 20), -1, 6), ((3, 20), -1, 20), ((3, 20), 1, 64), ((20, 3), 0, 6), ((2, 9, 4), 1, 4),
        ((2, 9, 4), 1, 1), ((2, 9, 4), -2, 9), ((1, 1, 5), 0, 3),
    ],
)  # fmt: skip
def test_groups_along_an_axis(backend, name, shape, axis, group_size):
    """Ragged last groups, groups of one, groups longer than the axis; the axis anywhere."""
    element, word = ("bf16", "s8") if len(shape) % 2 else ("f32", "s8")
    bits = np.array(random_row(element, int(np.prod(shape)), 14)).reshape(shape)
    bits.reshape(-1)[::11] = FORMATS[element].infinity
    x = backend.array(floats(bits, element))
    got = [
        backend.numpy(each)
        for each in getattr(skuda, f"{name}_per_group")(x, group_size=group_size, axis=axis, dtype=word)
    ]
    lines = np.moveaxis(bits, axis, -1)
    results = [np.moveaxis(each, axis, -1) for each in got]
    groups = -(-shape[axis] // group_size)
    assert results[0].shape == (*lines.shape[:-1], groups)
    for index in np.ndindex(lines.shape[:-1]):
        for group in range(groups):
            part = slice(group * group_size, (group + 1) * group_size)
            scale, *zero_point, codes = getattr(rows, name)(lines[index][part].tolist(), -128, 127, element=element)
            assert bits_of(results[0], compute_format(element).word)[index][group] == scale
            assert [int(each[index][group]) for each in results[1:-1]] == zero_point
            assert results[-1][index][part].tolist() == codes


def test_groups_of_packed_codes(backend):
    bits = np.array(random_row("f16", 3 * 21, 15)).reshape(3, 21)
    scale, codes = skuda.dynamic_quantize_per_group(backend.array(floats(bits, "f16")), group_size=4, dtype="s4")
    scale, codes = backend.numpy(scale), unpack(backend.numpy(codes), 21, True)
    for row in range(3):
        for group in range(6):
            part = slice(4 * group, 4 * group + 4)
            expected = rows.dynamic_quantize(bits[row, part].tolist(), -8, 7, element="f16")
            assert (int(bits_of(scale, "f32")[row, group]), codes[row, part].tolist()) == expected


@pytest.mark.turns(8)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", IN_ONE_PASS)
def test_quantized_in_one_pass(backend, name, element):
    open_codes = closed_codes = 0
    compute_word = compute_format(element).word
    oracle, eps = getattr(rows, name), [eps_of(name, element)] if name in EPS else []
    for (number, (what, row)), word in product(enumerate(all_rows(element).items()), WORDS):
        q_min, q_max = RANGE[word]
        given = (row, *PARAMETERS.get(name, lambda *_: ())(element, len(row)))
        scale_word = (compute_word, element)[number % 2]  # codes are made with the scale as it is stored
        arrays = (backend.array(floats(each, element)) for each in given)
        results = getattr(skuda, name)(*arrays, dtype=word, scale_dtype=scale_word)
        *totals, scale, codes = map(backend.numpy, results)
        assert codes.shape == ((len(row) + 1) // 2 if word == "s4" else len(row),)
        codes = unpack(codes, len(row), True) if word == "s4" else codes
        stored = int(bits_of(scale.astype(STORAGE[compute_word]), compute_word))
        kinds = {"element": element, "scale_element": scale_word}
        *sums, expected, admitted = oracle(*given, *eps, q_min, q_max, stored, **kinds)
        for mine, other in zip(totals, sums, strict=True):
            assert_floats(mine, other, element)
        assert_admitted(scale, [expected], scale_word, f"{name} {what}")
        for position, (code, (low, high)) in enumerate(zip(codes.tolist(), admitted, strict=True)):
            assert low <= code <= high, f"{name} {what} {word} [{position}]: got {code}, expected {low} to {high}"
            open_codes += low < high
            closed_codes += low == high
    assert closed_codes > 10 * open_codes


@pytest.mark.parametrize(
    ("shape", "axis", "group_size"), [((3, 20), -1, 6), ((20, 3), 0, 6), ((2, 9, 4), 1, 4), ((37,), -1, 64)]
)
def test_groups_quantized_in_one_pass(backend, shape, axis, group_size):
    """Each group is as silu_mul_dynamic_quantize makes it of that group alone."""
    gate, up = (floats(random_row("f16", int(np.prod(shape)), seed), "f16").reshape(shape) for seed in (21, 22))
    results = skuda.silu_mul_dynamic_quantize_per_group(
        backend.array(gate), backend.array(up), group_size=group_size, axis=axis
    )
    gate, up, scale, codes = (np.moveaxis(each, axis, -1) for each in (gate, up, *map(backend.numpy, results)))
    for index in np.ndindex(gate.shape[:-1]):
        for group in range(scale.shape[-1]):
            part = slice(group * group_size, (group + 1) * group_size)
            alone = (backend.array(each[index][part]) for each in (gate, up))
            own_scale, own_codes = map(backend.numpy, skuda.silu_mul_dynamic_quantize(*alone))
            assert scale[index][group] == own_scale
            np.testing.assert_array_equal(codes[index][part], own_codes)


def test_the_codes_are_of_the_scale_that_is_stored(backend):
    """Dynamic quantization is quantization by its own scale; so is that of one pass, beside the unfused values."""
    x = backend.array(floats(random_row("f16", 3 * 200, 16), "f16").reshape(3, 200))
    scale, codes = skuda.dynamic_quantize_per_token(x)
    zero = backend.array(np.zeros(3, np.int32))
    again = skuda.quantize_per_token(x, scale, zero)
    np.testing.assert_array_equal(backend.numpy(codes), backend.numpy(again))
    scale, zero_point, codes = skuda.dynamic_quantize_asymmetric_per_token(x, dtype="u8")
    again = skuda.quantize_per_token(x, scale, zero_point, dtype="u8")
    np.testing.assert_array_equal(backend.numpy(codes), backend.numpy(again))


# ---- rows of nothing ----


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_the_largest_of_nothing_is_an_error(backend, shape):
    x = backend.array(np.zeros(shape, np.float32))
    assert np.all(backend.numpy(skuda.logsumexp(x, axis=-1)) == -np.inf)
    for name in ("amax", "argmin"):
        with pytest.raises(InvalidProblem, match="axis . of input has length 0; there is no .*est of no elements$"):
            getattr(skuda, name)(x)
    for name in ("softmax", "log_softmax", "l2_normalize"):  # nothing to give, nothing to ask
        assert backend.numpy(getattr(skuda, name)(x)).shape == shape
    scale, codes = skuda.dynamic_quantize_per_group(x, group_size=4)
    assert backend.numpy(scale).shape == backend.numpy(codes).shape == shape


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_sums_and_products_of_nothing(backend, shape):
    x = backend.array(np.zeros(shape, np.float32))
    for name, bits in (("sum", 0), ("norm1", 0), ("norm2", 0), ("prod", pattern(1, "f32")), ("mean", F32.nan)):
        actual = backend.numpy(getattr(skuda, name)(x, axis=-1))
        assert_floats(actual, np.full(shape[:-1], bits), "f32")
    for name, value in (("any", False), ("all", True), ("count_nonzero", 0)):
        assert np.all(backend.numpy(getattr(skuda, name)(x, axis=-1)) == value)


def test_no_rows(backend):
    x = backend.array(np.zeros((0, 5), np.float32))
    assert backend.numpy(skuda.softmax(x)).shape == (0, 5)
    assert backend.numpy(skuda.amax(x, axis=1)).shape == (0,)
    scale, codes = skuda.dynamic_quantize_per_token(x)
    assert (backend.numpy(scale).shape, backend.numpy(codes).shape) == ((0,), (0, 5))
