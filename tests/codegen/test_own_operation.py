"""Operations of one's own: a few lines of YAML become functions that run, forward and backward, to the bit.

The results are compared with the formula done by hand in NumPy's own arithmetic (f32 for the 16-bit types),
on the reference and, where there is a GPU, on CUDA.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from catalogs import catalog_fixture
from conformance.support import STORAGE, bits_of, unpack
from quick_compiler import compile_quickly

from skuda.errors import ElementMismatch, InvalidProblem, Unsupported
from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku
from skuda.schedules import table

SPEC = """\
ops:
  leaky_relu:
    inputs:
      x: T[*shape]
    attrs: {alpha: C = 0.01}
    outputs:
      y: T[*shape] = where(x > 0, x, alpha * x)
    backward:
      d_x: T[*shape] = where(x > 0, d_y, alpha * d_y)

  is_outlier:
    doc: Whether a value is further from its row's mean than a number of deviations.
    inputs:
      x: T[*n, d]
      mean: T[*n]
      deviation: f32[*n]
    attrs:
      count: C = 3
    outputs:
      outlier: bool[*n, d] = abs(x - mean) > count * deviation

  sum_and_difference:
    inputs:
      a: T[*shape]
      b: T[*shape]
    outputs:
      total: T[*shape] = a + b
      difference: T[*shape] = a - b
    backward:
      d_a: T[*shape] = d_total + d_difference
      d_b: T[*shape] = d_total - d_difference

  scale_and_shift:
    inputs:
      x: T[*shape]
      factor: T[]
      shift: f32[]
    outputs:
      y: T[*shape] = x * factor + shift
    backward:
      d_x: T[*shape] = d_y * factor

  normalize_rows:
    types: {T: [f16, bf16, f32, f64], S: [T, f32]}
    inputs:
      x: T[*n, d]
      mean: S[*n]
      deviation: S[*n]
    outputs:
      y: T[*n, d] = (x - mean) / deviation
    backward:
      d_x: T[*n, d] = d_y / deviation

  add_codes:
    types: {T: f32, Q: [s4, u4, s8]}
    inputs:
      a: Q[*shape]
      b: Q[*shape]
      weight: T[]
    attrs: {low: Q = lowest(Q), high: Q = highest(Q)}
    requires: low <= high
    outputs:
      y: Q[*shape] = clamp(round_to_int(weight * (a + b)), low, high)
"""

ours = catalog_fixture("skuda_own_operations", SPEC)


FLOATS = ("f32", "f64", "f16", "bf16")


def wide(array: np.ndarray) -> np.ndarray:
    """In the compute type."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def values(element: str, shape, seed: int) -> np.ndarray:
    array = np.random.default_rng(seed).normal(0, 3, shape).astype(STORAGE[element])
    flat = array.reshape(-1)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    flat[: min(len(special), flat.size)] = np.array(special, array.dtype)[: flat.size]
    return array


def assert_value(actual: np.ndarray, expected: np.ndarray, element: str) -> None:
    """The bits of the expected compute-type values, narrowed once, NaN canonical."""
    with np.errstate(all="ignore"):
        narrowed = np.array(expected.astype(STORAGE[element]))
    wanted = bits_of(narrowed, element)
    wanted[np.isnan(narrowed)] = (1 << (8 * narrowed.itemsize - 1)) - 1
    np.testing.assert_array_equal(bits_of(actual, element), wanted)


@pytest.mark.parametrize("element", FLOATS)
@pytest.mark.parametrize("shape", [(1000,), (3, 0, 2), (7, 13), ()])
def test_the_readme_operation(run, element, shape):
    x = values(element, shape, seed=1)
    C = wide(x).dtype.type
    for options, alpha in (({}, 0.01), ({"alpha": -0.3}, -0.3)):
        with np.errstate(invalid="ignore"):
            assert_value(
                run("leaky_relu", x, **options), np.where(x > 0, wide(x), C(alpha) * wide(x)), element
            )
            d_y = values(element, shape, seed=2)[..., ::-1] if shape else values(element, shape, seed=2)
            expected = np.where(x > 0, wide(d_y), C(alpha) * wide(d_y))
            assert_value(run("leaky_relu_backward", d_y, x, **options), expected, element)


@pytest.mark.parametrize("element", FLOATS)
def test_a_boolean_output_and_parameters_of_rows(run, element):
    x, mean = values(element, (9, 50), seed=3), values(element, (9,), seed=4)
    deviation = np.abs(np.random.default_rng(5).normal(size=9)).astype(np.float32)
    actual = run("is_outlier", x, mean, deviation, count=1.5)
    C = wide(x).dtype.type
    with np.errstate(invalid="ignore"):
        expected = np.abs(wide(x) - wide(mean)[:, None]) > C(1.5) * deviation.astype(C)[:, None]
    assert actual.dtype == np.bool_ and 0 < expected.sum() < expected.size
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("element", FLOATS)
def test_two_outputs(run, element):
    a, b = values(element, (4, 37), seed=6), values(element, (4, 37), seed=7)[:, ::-1].copy()
    with np.errstate(invalid="ignore"):
        for name in ("sum_and_difference", "sum_and_difference_backward"):
            total, difference = run(name, a, b)
            assert_value(total, wide(a) + wide(b), element)
            assert_value(difference, wide(a) - wide(b), element)


@pytest.mark.parametrize("element", FLOATS)
def test_scalar_operands_as_numbers_and_as_arrays(run, element):
    x = values(element, (2, 3, 11), seed=8)
    C = wide(x).dtype.type
    factor, shift = STORAGE[element](1.7), np.float32(-0.3)
    with np.errstate(invalid="ignore"):
        expected = wide(x) * C(factor) + C(shift)
    assert_value(run("scale_and_shift", x, float(factor), float(shift)), expected, element)
    assert_value(run("scale_and_shift", x, np.array(factor), np.array([shift])), expected, element)
    with np.errstate(invalid="ignore"):
        assert_value(run("scale_and_shift_backward", x, 1.7), wide(x) * C(factor), element)


@pytest.mark.parametrize("scale_element", ["own", "f32"])
@pytest.mark.parametrize("element", FLOATS)
def test_a_division_by_a_parameter_of_the_row(run, element, scale_element):
    """The kernel's fast division and the plain one: rows with tiny, huge, zero and infinite divisors among
    them.
    """
    storage = STORAGE[element] if scale_element == "own" else np.float32
    rng = np.random.default_rng(9)
    x = values(element, (40, 130), seed=10)
    mean = rng.normal(size=40).astype(storage)
    info = ml_dtypes.finfo(storage)
    special = [
        0.0,
        -0.0,
        np.inf,
        np.nan,
        float(info.smallest_subnormal),
        float(info.max),
        float(info.tiny),
        3.0,
    ]
    deviation = rng.normal(size=40).astype(storage)
    deviation[: len(special)] = np.array(special, storage)
    C = wide(x).dtype.type
    with np.errstate(all="ignore"):
        expected = (wide(x) - mean.astype(C)[:, None]) / deviation.astype(C)[:, None]
        assert_value(run("normalize_rows", x, mean, deviation), expected, element)
        assert_value(
            run("normalize_rows_backward", x, deviation), wide(x) / deviation.astype(C)[:, None], element
        )


@pytest.mark.parametrize("word", ["s8", "s4", "u4"])
def test_integer_operands(run, word):
    rng = np.random.default_rng(11)
    a, b = rng.integers(0, 256, (2, 5, 8)).astype(np.uint8)
    storage, options = (np.int8, {}) if word == "s8" else (np.uint8, {"input_dtype": word})
    a, b = a.view(storage), b.view(storage)
    actual = run("add_codes", a, b, 0.37, low=-3 if word[0] == "s" else 3, high=5, **options)
    if word != "s8":
        a, b, actual = (unpack(each, 16, word == "s4") for each in (a, b, actual))
    total = np.float32(0.37) * (a.astype(np.int64) + b).astype(np.float32)
    np.testing.assert_array_equal(actual, np.clip(np.rint(total), -3 if word[0] == "s" else 3, 5))


@pytest.mark.parametrize("width", [8, 9, 1003])
def test_packed_codes_in_place(ours, backend, width):
    """Two elements share a byte: neither may be lost when the other is written."""
    rng = np.random.default_rng(width)
    a, b = rng.integers(0, 256, (2, 3, width)).astype(np.uint8)
    options = {"input_dtype": "u4", "low": 2, "high": 13}
    expected = ours.add_codes(a, b, 0.37, **options)
    target = backend.array(a)
    ours.add_codes(target, backend.array(b), 0.37, out=target, **options)
    np.testing.assert_array_equal(backend.numpy(target), expected)


def test_its_errors_speak_of_it(ours):
    x = np.ones((4, 5), np.float32)
    with pytest.raises(
        InvalidProblem, match=r"NormalizeRowsPlan: mean has shape \(3,\), expected \(n,\) = \(4,\)"
    ):
        ours.normalize_rows(x, x[:3, 0], x[:, 0])
    with pytest.raises(Unsupported, match="LeakyReluPlan: x is i32, expected f32, f64, f16 or bf16"):
        ours.leaky_relu(x.astype(np.int32))
    with pytest.raises(InvalidProblem, match="requires low <= high, got low=5, high=1"):
        ours.add_codes(np.zeros(4, np.int8), np.zeros(4, np.int8), 1.0, low=5, high=1)
    with pytest.raises((ElementMismatch, InvalidProblem), match="alpha"):
        ours.leaky_relu(x, alpha="steep")
    with pytest.raises(
        AttributeError, match="skuda_own_operations has no 'leaky_rule'; did you mean 'leaky_relu'"
    ):
        ours.leaky_rule  # noqa: B018


def test_a_plan_shows_its_operands_and_attributes(ours):
    plan = ours.LeakyReluPlan.select(ours.LeakyReluDescriptor(shape=(2, 3)))
    assert repr(plan) == "<LeakyReluPlan leaky_relu_f32__reference: x f32[2, 3], alpha=0.01 -> y f32[2, 3]>"


def test_it_has_plans_skus_and_kernels_like_any_other(ours):
    plan = ours.LeakyReluPlan.select(
        ours.LeakyReluDescriptor(shape=(3, 4), element="f16"), preference=BackendKind.REFERENCE
    )
    assert plan.sku.symbol == "leaky_relu_f16__reference"
    assert plan.sku.category == "custom"
    assert plan.precision_guarantee.exact
    assert KernelSku.parse("leaky_relu_backward_bf16__strided") in set(registry.skus())
    x = np.linspace(-1, 1, 12, dtype=np.float16).reshape(3, 4)
    y = np.empty_like(x)
    plan.run(ours.LeakyReluArgs(x=x, y=y))
    np.testing.assert_array_equal(y, ours.leaky_relu(x))


@pytest.mark.turns(3)
def test_every_kernel_compiles(ours):
    """Every schedule by the first choice of types, some by the next: other tests compile bodies for each type."""
    catalog = registry._CATALOGS[ours.__name__]
    for source in {operation.source for operation in catalog.operations}:
        entries = [
            table.entry(operation, types, variant)
            for operation in catalog.operations
            if operation.source == source
            for types, step in zip(operation.kernel_combinations(), (1, 8))
            for variant in table.variants(operation, types)[::step]
        ]
        assert compile_quickly(catalog.source(source), source, entries, "sm_90").log == ""
