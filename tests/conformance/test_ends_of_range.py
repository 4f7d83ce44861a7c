"""Infinities in rows, scales that underflow, and sums and products that overflow on the way."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles.floats import FORMATS
from skuda.launch import registry
from skuda.model.dtypes import DTYPES

from .support import STORAGE, floats

INF, NAN = np.inf, np.nan
ELEMENTS = tuple(FORMATS)
CATALOG = registry.catalogs()[0]
FORWARD = {plan.operation.function: plan for name in CATALOG.modules for plan in CATALOG.plans(name)}
SCALED = [  # operations that find a scale
    name for name in CATALOG.modules if any(output.name == "scale" for output in FORWARD[name].operation.outputs)
]


def placed(operation) -> dict[str, int]:
    """The attributes by which an array of (1, 64) is one group, or one channel."""
    groups = {attribute.name: 64 for attribute in operation.attributes if attribute.type == "size"}
    return groups | {a.name: -1 if groups else 0 for a in operation.attributes if a.type == "axis"}


def of(backend, name: str, *given, element: str = "f32", **options) -> np.ndarray:
    arrays = [backend.array(np.array(each).astype(STORAGE[element])) for each in given]
    return backend.numpy(getattr(skuda, name)(*arrays, **options)).astype(np.float64)


# ---- infinities ----


@pytest.mark.parametrize("length", [1, 3, 9, 700])
@pytest.mark.parametrize("element", ELEMENTS)
def test_logsumexp_of_infinities(backend, element, length):
    ordinary = np.random.default_rng(1).normal(0, 2, length)
    for value, other, expected in (
        (-INF, np.full(length, -INF), -INF), (INF, np.full(length, INF), INF), (INF, ordinary, INF),
        (INF, np.full(length, -INF), INF), (NAN, np.full(length, INF), NAN), (NAN, np.full(length, -INF), NAN),
    ):  # fmt: skip
        row = np.array(other)
        row[length // 2] = value
        for x, axis in ((row[None], 1), (row[:, None], 0)):
            np.testing.assert_array_equal(of(backend, "logsumexp", x, axis=axis, element=element), [expected])
    one = np.full(length, -INF)
    one[length // 2] = 0.5
    np.testing.assert_array_equal(of(backend, "logsumexp", one, element=element), 0.5)


@pytest.mark.parametrize("length", [5, 64, 1000, 70_003])
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_logsumexp_of_elements_far_from_each_other(backend, element, length):
    """Largest elements next to the ends of what one anchor serves, and steps of every size below them."""
    rng = np.random.default_rng(length)
    half = 32 if element == "f32" else 256
    rows = [rng.normal(0, size, length) for size in (half / 4, half, 4 * half, 1e6, 1e30)]
    for end in (half, 3 * half, -half, -5 * half):
        for side in (-0.01, 0.01):  # many at one side of the end, one at the other
            row = np.full(length, end + side)
            row[length // 2] = end - side
            rows += [row, row - rng.exponential(half, length)]
    x = np.array(rows).astype(STORAGE[element])
    expected = np.logaddexp.reduce(x.astype(np.longdouble), axis=1).astype(np.float64)
    off = (8 if element == "f32" else 16) * np.finfo(x.dtype).eps * np.maximum(np.abs(expected), 1)
    for given, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        assert (np.abs(of(backend, "logsumexp", given, axis=axis, element=element) - expected) <= off).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_mean_of_no_weight_is_nan(backend, name, smoothing):
    """As torch's: whatever the elements are that nothing weighs."""
    options = {"label_smoothing": smoothing} if name == "cross_entropy" else {}
    logits, labels = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]], np.float32), np.array([0, 1])
    arrays = [backend.array(each) for each in (logits, labels, np.array([0, 0, 1], np.float32))]
    for weights, targets in ((arrays[2], arrays[1]), (None, backend.array(np.array([-100, -100])))):
        assert np.isnan(backend.numpy(getattr(skuda, name)(arrays[0], targets, weights, **options)))
        whole = backend.numpy(getattr(skuda, name)(arrays[0], targets, weights, reduction="sum", **options))
        assert np.isfinite(whole)


def test_the_gradient_of_logsumexp_beside_infinities(backend):
    """As torch's: 0 for what is finite, NaN for what is as infinite as the result."""
    d_output = [2.0]
    for row, output, expected in (
        ([-INF, 0.0, 0.0], np.log(2), [0, 1, 1]), ([INF, 0.0, -INF], INF, [NAN, 0, 0]),
        ([INF, INF, 1.0], INF, [NAN, NAN, 0]), ([-INF, -INF], -INF, [NAN, NAN]),
    ):  # fmt: skip
        found = of(backend, "logsumexp_backward", d_output, [row], [output], axis=-1)
        np.testing.assert_allclose(found, [expected], rtol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmax_dynamic_quantize"])
def test_softmax_of_infinities_is_not_a_number(backend, name):
    """As torch's: without a finite largest element, no element has a share. Codes of NaN are that of 0."""
    for row in ([-INF, -INF, -INF], [INF, 0.0, 1.0], [INF, -INF, 1.0], [NAN, 0.0, 1.0]):
        if name == "softmax_dynamic_quantize":
            scale, codes = skuda.softmax_dynamic_quantize(backend.array(np.array(row, np.float32)))
            assert backend.numpy(scale) == 1 and backend.numpy(codes).tolist() == [0, 0, 0]
        else:
            assert np.isnan(of(backend, name, row)).all()
    masked = of(backend, "softmax", [-INF, 0.0, 0.0])
    assert masked.tolist() == [0, 0.5, 0.5]


def test_norms_and_deviations_of_infinities(backend):
    """As torch's: a norm is infinite, of which what is finite is 0; a deviation is not a number."""
    row = [INF, 0.0, 1.0]
    assert of(backend, "norm1", row) == of(backend, "norm2", row) == INF
    np.testing.assert_array_equal(of(backend, "norm2_backward", [1.0], [row], [INF], axis=-1), [[NAN, 0, 0]])
    np.testing.assert_array_equal(of(backend, "l2_normalize", row), [NAN, 0, 0])
    np.testing.assert_array_equal(of(backend, "rms_normalize", row), [NAN, 0, 0])
    for name in ("var", "std", "standardize"):
        assert np.isnan(of(backend, name, row)).all()


def test_l2_normalize_of_what_is_not_a_number_and_at_eps(backend):
    """As torch's: NaN is not below eps, and a norm that equals eps is the divisor."""
    assert np.isnan(of(backend, "l2_normalize", [NAN, 0.0, 1.0])).all()
    assert np.isnan(of(backend, "l2_normalize_backward", [1.0, 1.0, 1.0], [NAN, 0.0, 1.0])).all()
    assert of(backend, "l2_normalize_backward", [1.0], [2.0], eps=2.0).tolist() == [0]
    assert of(backend, "l2_normalize_backward", [1.0], [2.0], eps=2.5).tolist() == [np.float32(1 / 2.5)]


def test_the_slopes_of_activations_at_infinity(backend):
    x = [INF, -INF, 1e30, -1e30, 1e13, -1e13, 3e38, -3e38]
    for name in ("gelu_backward", "gelu_tanh_backward"):
        assert of(backend, name, [1.0] * 8, x).tolist() == [1, 0] * 4, name


# ---- scales ----


def scales_and_codes(backend, name: str, element: str, scale_word: str, size: float, word: str):
    """The scale of an operation on elements of a size, and what its codes stand for; 64 elements."""
    operation = FORWARD[name].operation
    x = np.full((1, 64), size)
    x[0, ::3] = -size / 2
    x = x.astype(STORAGE[element])
    options = {"dtype": word, "scale_dtype": scale_word}
    options |= placed(operation)
    scale, *zero_point, codes = (backend.numpy(each) for each in getattr(skuda, name)(backend.array(x), **options))
    zero = zero_point[0].astype(np.int64) if zero_point else 0
    codes = codes.view(DTYPES[word].storage).astype(np.float64)
    assert (scale == scale.reshape(-1)[0]).all()
    return float(scale.reshape(-1)[0]), codes - np.reshape(zero, -1)[0], x


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("name", [name for name in SCALED if name.startswith("dynamic_quantize")])
def test_a_scale_that_would_be_zero_is_the_least_of_its_type(backend, name, element):
    compute = "f64" if element == "f64" else "f32"
    word = "e5m2" if "fp8" in name else "s8"
    tried = 0
    for scale_word in dict.fromkeys((element, compute)):
        least = DTYPES[scale_word].smallest
        for size in (least, 3 * least, least * 2.0**5):
            if not np.float64(np.array(size).astype(STORAGE[element])):
                continue
            divisor = 57344 if "fp8" in name else 255 / 1.5 if "asymmetric" in name else 127
            scale, steps, x = scales_and_codes(backend, name, element, scale_word, size, word)
            tried += 1
            assert size < divisor * least / 2 and scale == least, (scale_word, size)
            np.testing.assert_array_equal(steps[0], np.rint(x[0].astype(np.float64) / least))
    assert tried >= 3


def of_sums(operation, small: np.ndarray) -> list[np.ndarray]:
    """Sums of 1 and scales of 1, but for the first scale along rows: one factor of the products is small."""
    sizes = dict(zip((dim.name for dim in operation.space), small.shape, strict=True))
    arrays = [
        np.ones([sizes[dim.name] for dim in o.dims], np.int32 if o.element == "i32" else small.dtype)
        for o in operation.inputs
    ]
    next(x for x in arrays if x.dtype == small.dtype and x.shape == small.shape[1:])[:] = small[0]
    return arrays


@pytest.mark.parametrize("name", SCALED)
def test_no_scale_is_zero(backend, name):
    """Each operation that finds a scale, on rows from the least f32 up, by scales of all types that it has."""
    operation = FORWARD[name].operation
    for exponent in range(-149, -110, 7):
        x = np.full((1, 64), 2.0**exponent)
        for element, scale_word in (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16")):
            small = (x * (2.0**125 if element == "f16" else 1)).astype(STORAGE[element])
            if not small.any():
                continue
            if "T" in operation.types and element not in operation.types["T"]:
                continue
            arrays = [small if operand.dims == operation.space else small[0] for operand in operation.inputs]
            if any(operand.element == "i32" for operand in operation.inputs):
                arrays = of_sums(operation, small)
            options = placed(operation)
            if "S" in operation.types:  # else scales are of the compute type
                options["scale_dtype"] = scale_word
            results = getattr(skuda, name)(*map(backend.array, arrays), **options)
            scale = backend.numpy(results[[o.name for o in operation.outputs].index("scale")])
            assert (scale.astype(np.float64) > 0).all(), (name, exponent, element)


def test_a_row_of_zeros_keeps_scale_one(backend):
    for name in ("dynamic_quantize_per_token", "dynamic_quantize_asymmetric_per_token"):
        scale, *_ = getattr(skuda, name)(backend.array(np.zeros((2, 9), np.float32)))
        assert backend.numpy(scale).tolist() == [1, 1]


# ---- sums and products that leave the range on the way ----


def test_a_sum_that_overflows_on_the_way(backend):
    """Each partial sum is rounded in C, in the one order: infinities of both signs make NaN, as in any other order."""
    big = 3e38
    assert np.isnan(of(backend, "sum", [big, big, -big, -big]))
    assert of(backend, "sum", [big, -big, big, -big]) == 0
    assert of(backend, "sum", [big, big, big, -big]) == INF
    assert of(backend, "sum", [big, big, -1e30, -1e30]) == INF  # though the total would be finite: 6e38 is not
    assert of(backend, "sum", [6e4, 6e4, -6e4, -6e4], element="f16") == 0  # in f32 nothing overflows
    assert of(backend, "sum", [6e4, 6e4], element="f16") == INF  # but what is stored may
    assert of(backend, "mean", [6e4, 6e4], element="f16") == np.float16(6e4)
    assert of(backend, "mean", [big, big]) == INF


def test_a_product_that_overflows_on_the_way(backend):
    """Neighbours first: (1e30 * 1e30) * (1e-30 * 1e-30) is infinity times 0."""
    assert np.isnan(of(backend, "prod", [1e30, 1e30, 1e-30, 1e-30]))
    assert of(backend, "prod", [1e30, 1e-30, 1e30, 1e-30]) == pytest.approx(1, rel=1e-6)
    assert of(backend, "prod", [1e30, 1e30, 1e-10]) == INF
    assert of(backend, "prod", [1e-30, 1e-30, 1e10]) == 0
    assert of(backend, "prod", [6e4, 6e4, 2.0**-16, 2.0**-16], element="f16") == np.float16((6e4 / 65536) ** 2)


def test_the_largest_values_are_values(backend):
    """What these rules stand on: the ends of the range, as the formats define them."""
    for element in ELEMENTS:
        form = FORMATS[element]
        largest = float(floats([form.largest], element)[0])
        assert of(backend, "sum", [largest, -largest], element=element) == 0
        assert of(backend, "amax", [largest, -largest], element=element) == largest


@pytest.mark.parametrize("element, most", [("f32", 3e38), ("f64", 1.5e308)])
def test_a_range_that_overflows_has_finite_steps(backend, element, most):
    """Of one, two and several elements."""
    ends = [backend.array(np.array(each).astype(STORAGE[element])) for each in (-most, most)]
    for count in (1, 2, 3, 5):
        found = backend.numpy(skuda.linspace(count, *ends)).astype(np.float64)
        wanted = np.array([-1.0, *(2 * i / (count - 1) - 1 for i in range(1, count))])
        np.testing.assert_allclose(found / np.float64(found.max() if count > 1 else most), wanted, atol=1e-15)
