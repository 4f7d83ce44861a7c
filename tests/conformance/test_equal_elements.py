"""Equal elements deviate from their mean by 0, exactly, in every operation, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import skuda

from .support import STORAGE

ELEMENTS = ("f32", "f64", "f16", "bf16")
LENGTHS = (2, 7, 48, 768, 1000, 4097)


def values(element: str) -> np.ndarray:
    """Values whose sums and means are rounded, overflow, or underflow."""
    largest = float(np.finfo(np.float32).max) if element in ("f32", "bf16") else 1.7e308 if element == "f64" else 65504
    rng = np.random.default_rng(31)
    chosen = [12345.678, 0.1, 1 / 3, -7.3e-9, 3e38, largest, -largest, 5e-44, 0.0, -0.0, *rng.normal(0, 1e4, 20)]
    with np.errstate(over="ignore"):
        stored = np.array(chosen).astype(STORAGE[element])
    return stored[np.isfinite(stored.astype(np.float64))]


def lines(element: str, length: int) -> np.ndarray:
    """A row of each value, of shape (values, length)."""
    return np.repeat(values(element)[:, None], length, axis=1)


def assert_zero(array: np.ndarray, what: str) -> None:
    found = np.asarray(array).astype(np.float64)
    assert (found == 0).all(), f"{what}: {found[found != 0][:4]}"


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_deviations_of_a_constant_row(backend, element, length):
    x = lines(element, length)
    noise = np.random.default_rng(32).normal(1, 1, (2, length)).astype(x.dtype)
    weight, bias = (backend.array(each) for each in noise)
    rows = backend.array(x)
    assert_zero(backend.numpy(skuda.var(rows, axis=-1)), "var")
    assert_zero(backend.numpy(skuda.var(rows, axis=-1, correction=0)), "var without a correction")
    assert_zero(backend.numpy(skuda.std(rows, axis=-1)), "std")
    assert_zero(backend.numpy(skuda.standardize(rows)), "standardize")
    plain = backend.numpy(skuda.layer_norm(rows, weight, bias)).astype(np.float64)
    np.testing.assert_array_equal(plain, np.broadcast_to(noise[1].astype(np.float64), plain.shape))
    none = backend.array(np.zeros(length, x.dtype))
    scale, codes = map(backend.numpy, skuda.layer_norm_dynamic_quantize(rows, weight, none))
    assert (scale == 1).all()
    assert_zero(codes, "codes")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_gradients_of_a_constant_row(backend, element, length):
    x = lines(element, length)
    rng = np.random.default_rng(33)
    d_output, ones = rng.normal(0, 1, x.shape).astype(x.dtype), np.ones(length, x.dtype)
    d_rows = rng.normal(0, 1, len(x)).astype(x.dtype)
    rows, gradient = backend.array(x), backend.array(d_output)
    assert_zero(backend.numpy(skuda.var_backward(backend.array(d_rows), rows, axis=-1)), "var_backward")
    deviations = skuda.std(rows, axis=-1)
    of_std = skuda.std_backward(backend.array(d_rows), rows, deviations, axis=-1)
    assert_zero(backend.numpy(of_std), "std_backward")
    # A constant row passes on what is not common to its gradients; equal gradients pass nothing on.
    weight = backend.array(ones)
    _, d_weight, _ = skuda.layer_norm_backward(gradient, rows, weight)
    assert_zero(backend.numpy(d_weight), "the gradient of the weight")
    plain = backend.array(rng.normal(0, 1, x.shape).astype(x.dtype))
    for given in (rows, backend.array(np.full_like(x, 0.1))):
        equal = skuda.standardize_backward(given, rows)
        assert_zero(backend.numpy(equal), "equal gradients of a constant row")
        assert_zero(backend.numpy(skuda.layer_norm_backward(given, rows, weight)[0]), "the same through a weight of 1")
    assert not (backend.numpy(skuda.standardize_backward(gradient, plain)).astype(np.float64) == 0).all()


@pytest.mark.turns(8)
@pytest.mark.parametrize("axis", [0, 1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("element", ["f32", "f16"])
def test_over_any_axes(backend, element, axis):
    """By whatever kernels serve rows that lie crosswise, or the whole array."""
    for value in (12345.678, 0.1, -3e38 if element == "f32" else -6e4):
        x = backend.array(np.full((70, 33, 65), value).astype(STORAGE[element]))
        assert_zero(backend.numpy(skuda.var(x, axis=axis)), f"var over {axis}")
        assert_zero(backend.numpy(skuda.std(x, axis=axis)), f"std over {axis}")
        assert_zero(backend.numpy(skuda.standardize(x, axis=axis)), f"standardize over {axis}")
        assert_zero(backend.numpy(skuda.standardize_backward(x, x, axis=axis)), f"the gradient over {axis}")


@pytest.mark.parametrize("length", [70_000, 200_000])
def test_a_row_of_several_segments(backend, length):
    x = backend.array(np.full((2, length), 12345.678, np.float32))
    assert_zero(backend.numpy(skuda.std(x, axis=-1)), "std")
    assert_zero(backend.numpy(skuda.standardize(x)), "standardize")
    assert_zero(backend.numpy(skuda.var(x)), "var of all")


@pytest.mark.parametrize("element", ELEMENTS)
def test_what_is_not_finite_still_shows(backend, element):
    """A constant row of infinities or NaN has no deviation."""
    form = np.array([np.inf, -np.inf, np.nan])
    x = np.repeat(form[:, None], 9, axis=1).astype(STORAGE[element])
    for name in ("var", "std"):
        assert np.isnan(backend.numpy(getattr(skuda, name)(backend.array(x), axis=-1)).astype(np.float64)).all()
    assert np.isnan(backend.numpy(skuda.standardize(backend.array(x))).astype(np.float64)).all()
    one = np.ones((3, 9), STORAGE[element])
    one[:, 4] = form.astype(STORAGE[element])
    assert np.isnan(backend.numpy(skuda.std(backend.array(one), axis=-1)).astype(np.float64)).all()


def test_the_mean_of_other_rows_is_what_it_was(backend):
    """Means between the least and the greatest element are not cut: the last bit of one element counts."""
    row = np.full(768, 12345.678, np.float32)
    row[5] = np.nextafter(row[5], np.float32(np.inf))
    found = float(backend.numpy(skuda.var(backend.array(row), correction=0)))
    step = float(row[5]) - float(row[0])
    assert 0 < found <= step**2  # the mean is one of the two
