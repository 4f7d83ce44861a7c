"""Gradients of reductions and of what is normalized: within the spans of their oracles, slopes of the definitions."""

from __future__ import annotations

import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

import skuda
from oracles import rows
from oracles.floats import F32, FORMATS, compute_format
from oracles.spans import ANY
from skuda.errors import InvalidProblem

from .support import STORAGE, assert_floats, bits_of, floats, pattern
from .test_rows import EPS, assert_admitted, eps_of, lines_over, other_row, parameter, random_row, unusual_rows

# The gradients that take the output beside the input, and those that do not.
BY_OUTPUT = {
    "amax": rows.largest_backward, "amin": rows.smallest_backward, "norm2": rows.norm2_backward,
    "logsumexp": rows.logsumexp_backward, "std": rows.deviation_backward, "prod": rows.product_backward,
}  # fmt: skip
BY_SHAPE = {"sum": rows.total_backward, "mean": rows.mean_backward}  # the gradients that take the input's shape alone
REDUCED = BY_OUTPUT | BY_SHAPE | {"norm1": rows.norm1_backward, "var": rows.variance_backward}
NORMALIZED = ("rms_normalize", "standardize", "l2_normalize")


def some_rows(element: str) -> dict[str, list[int]]:
    few = unusual_rows(element) | {f"random {n}": random_row(element, n, 2) for n in (1, 2, 9, 64, 513)}
    one, two, sign = pattern(1, element), pattern(2, element), FORMATS[element].sign
    few |= {"two are largest": [one, two, one, two, one | sign], "zeros are equal": [0, sign, 0, one | sign]}
    few |= {"one zero": [two, one, 0, two | sign], "one zero alone": [sign]}
    return few | {"inf and zero": [two, 0, FORMATS[element].infinity]}


def of_reduction(backend, name: str, gradient, x, **options):
    """The gradient of a reduction, by the output of its forward pass where it takes one."""
    if name in BY_SHAPE:
        return backend.numpy(getattr(skuda, f"{name}_backward")(gradient, shape=x.shape, **options))
    given = [gradient, x]
    if name in BY_OUTPUT:
        given.append(getattr(skuda, name)(x, **options))
    return backend.numpy(getattr(skuda, f"{name}_backward")(*given, **options))


@pytest.mark.turns(2)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", REDUCED)
def test_the_gradients_of_reductions(backend, name, element):
    said = 0
    for what, row in some_rows(element).items():
        x = backend.array(floats(row, element))
        for g in (pattern("-1.75", element), FORMATS[element].infinity):
            gradient = backend.array(floats(g, element))
            given = (g, row)
            if name in BY_OUTPUT:
                given += (int(bits_of(backend.numpy(getattr(skuda, name)(x)), element)),)
            expected = REDUCED[name](*given, element=element)
            actual = of_reduction(backend, name, gradient, x)
            assert_admitted(actual, expected, element, f"{name}_backward {element} {what}")
            said += sum(span is not ANY for span in expected)
    assert said > (700 if name == "prod" else 1000)


@pytest.mark.parametrize("correction", ["0", "0.5", "20", "20.5"])
@pytest.mark.parametrize("name", ["var", "std"])
def test_what_the_divisor_is_corrected_by(backend, name, correction):
    g = pattern(3, "f32")
    for what, row in unusual_rows("f32").items():
        x = backend.array(floats(row, "f32"))
        given = (g, row)
        if name == "std":
            given += (int(bits_of(backend.numpy(skuda.std(x, correction=float(correction))), "f32")),)
        expected = REDUCED[name](*given, Fraction(correction), element="f32")
        actual = of_reduction(backend, name, backend.array(floats(g, "f32")), x, correction=float(correction))
        assert_admitted(actual, expected, "f32", f"{name} {what}")


@pytest.mark.parametrize("axis", [0, 1, -1, None, (0, 1), (1, 2), (2, 0), ()])
def test_gradients_over_any_axes_are_those_over_the_last(backend, axis):
    x, dy = (floats(random_row("f32", 4 * 9 * 5, seed), "f32").reshape(4, 9, 5) for seed in (18, 19))
    shape, lines = lines_over(x, axis)
    gradient = floats(random_row("f32", int(np.prod(shape)), 20), "f32")
    for name in REDUCED:
        actual = of_reduction(backend, name, backend.array(gradient.reshape(shape)), backend.array(x), axis=axis)
        assert actual.shape == x.shape
        expected = of_reduction(backend, name, backend.array(gradient), backend.array(lines), axis=-1)
        np.testing.assert_array_equal(lines_over(actual, axis)[1], expected, name)
    for name in NORMALIZED if axis != () else ():
        call = getattr(skuda, f"{name}_backward")
        actual = backend.numpy(call(*map(backend.array, (dy, x)), axis=axis))
        moved = (backend.array(lines_over(each, axis)[1]) for each in (dy, x))
        np.testing.assert_array_equal(lines_over(actual, axis)[1], backend.numpy(call(*moved)), name)


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", NORMALIZED)
def test_the_gradients_of_what_is_normalized(backend, name, element):
    said = 0
    for what, row in some_rows(element).items():
        dy = other_row(element, len(row))
        expected = getattr(rows, f"{name}_backward")(dy, row, eps_of(name, element), element=element)
        given = (backend.array(floats(each, element)) for each in (dy, row))
        actual = backend.numpy(getattr(skuda, f"{name}_backward")(*given))
        assert_admitted(actual, expected, element, f"{name}_backward {element} {what}")
        said += sum(span is not ANY for span in expected)
    assert said > 300


@pytest.mark.parametrize("element", FORMATS)
def test_the_gradient_of_a_sum_and_its_norm(backend, element):
    eps = pattern(EPS["add_rms_norm"], compute_format(element).word)
    for count, length in ((3, 9), (1, 64), (9, 5), (2, 130)):
        d_total, dy, totals = ([random_row(element, length, s + i) for i in range(count)] for s in (10, 30, 60))
        weight = parameter(element, length, 7)
        expected = rows.add_rms_norm_backward(d_total, dy, weight, totals, eps, element=element)
        given = (backend.array(floats(each, element)) for each in (d_total, dy, weight, totals))
        d_input, d_weight = map(backend.numpy, skuda.add_rms_norm_backward(*given))
        assert_admitted(d_input.reshape(-1), sum(expected[0], []), element, f"d_input {element}")
        assert_admitted(d_weight, expected[1], element, f"d_weight {element}")


def exact_of(name: str):
    """What a reduction gives, in mpmath."""
    def variance(x):
        middle = mpmath.fsum(x) / len(x)
        return mpmath.fsum((each - middle) ** 2 for each in x) / (len(x) - 1)

    return {
        "amax": max, "amin": min, "norm1": lambda x: mpmath.fsum(map(abs, x)), "var": variance,
        "norm2": lambda x: mpmath.sqrt(mpmath.fsum(each * each for each in x)),
        "logsumexp": lambda x: mpmath.log(mpmath.fsum(map(mpmath.exp, x))),
        "std": lambda x: mpmath.sqrt(variance(x)), "sum": mpmath.fsum, "mean": lambda x: mpmath.fsum(x) / len(x),
        "prod": mpmath.fprod,
    }[name]  # fmt: skip


def normalized(name: str, x: list) -> list:
    """A row normalized, in mpmath."""
    middle = mpmath.fsum(x) / len(x) if name == "standardize" else 0
    x = [each - middle for each in x]
    size = mpmath.fsum(each * each for each in x)
    root = mpmath.sqrt(size) if name == "l2_normalize" else mpmath.sqrt(size / len(x) + mpmath.mpf(float(EPS[name])))
    return [each / root for each in x]


@pytest.mark.parametrize("name", [*REDUCED, *NORMALIZED])
def test_gradients_are_slopes(backend, name):
    """Against the central difference of the definition, in 60 digits."""
    rng = np.random.default_rng(13)
    x, dy = rng.normal(0, 2, 7), rng.normal(0, 1, 7)
    if name in REDUCED:
        got = of_reduction(backend, name, backend.array(dy[:1].reshape(())), backend.array(x))
    else:
        got = backend.numpy(getattr(skuda, f"{name}_backward")(*map(backend.array, (dy, x))))

    def loss(row):
        if name in REDUCED:
            return float(dy[0]) * exact_of(name)(row)
        return mpmath.fsum(g * each for g, each in zip(dy.tolist(), normalized(name, row), strict=True))

    with mpmath.workdps(60):
        step = mpmath.mpf("1e-20")
        row = list(map(mpmath.mpf, x.tolist()))
        for position in range(len(row)):
            above, below = ([each + move * (i == position) for i, each in enumerate(row)] for move in (step, -step))
            assert abs((loss(above) - loss(below)) / (2 * step) - float(got[position])) < 1e-14


@pytest.mark.parametrize("axis", [0, -1, None, (0, 2), ()])
@pytest.mark.parametrize("name", REDUCED)
def test_what_keeps_its_axes_has_the_same_gradient(backend, name, axis):
    x = backend.array(floats(random_row("f32", 4 * 9 * 5, 18), "f32").reshape(4, 9, 5))
    kept = backend.numpy(skuda.sum(x, axis=axis, keepdims=True)).shape
    gradient = floats(random_row("f32", int(np.prod(kept)), 20), "f32").reshape(kept)
    lines = gradient.reshape([extent for extent, whole in zip(kept, x.shape) if extent == whole])
    found = of_reduction(backend, name, backend.array(gradient), x, axis=axis, keepdims=True)
    np.testing.assert_array_equal(found, of_reduction(backend, name, backend.array(lines), x, axis=axis))


def test_the_product_of_the_others_is_so_beside_zeros_as_torch_has_it(backend):
    """One zero takes all of the gradient, of several none does; numbers whose products are exact."""
    x = np.random.default_rng(5).choice([-2.0, -1.0, 0.5, 2.0], (64, 17)).astype(np.float32)
    x[16:32, 3] = x[32:48, [2, 9]] = x[48:] = 0
    x[5, 5] = x[20, 7] = x[40, 7] = np.nan
    gradient = np.random.default_rng(6).normal(size=64).astype(np.float32)
    witness = torch.from_numpy(x.copy()).requires_grad_()
    witness.prod(dim=1).backward(torch.from_numpy(gradient))
    actual = of_reduction(backend, "prod", backend.array(gradient), backend.array(x), axis=1)
    theirs = witness.grad.numpy()
    finite = ~np.isnan(x).any(axis=1)
    np.testing.assert_array_equal(actual[finite], theirs[finite])
    taking = np.count_nonzero(actual, axis=1)
    assert [set(taking[part][finite[part]]) for part in np.split(np.arange(64), 4)] == [{17}, {1}, {0}, {0}]
    assert np.isnan(actual[~finite]).all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shape": None}, "shape is None, expected a tuple of non-negative integers, the shape of d_input"),
        ({"shape": 36}, "shape is 36, expected a tuple"),
        ({"shape": (4, -9)}, "shape is (4, -9), expected a tuple of non-negative integers"),
        ({"shape": (4.0, 9)}, "shape is (4.0, 9), expected a tuple of non-negative integers"),
        ({"shape": (5, 9)}, "d_output has shape (4,), expected (kept,) = (5,)"),
        ({"shape": (4, 9), "axis": 2}, "axis is 2, expected -2 to 1 for d_input of shape (4, 9)"),
        ({"shape": (4, 9), "keepdims": True}, "d_output has shape (4,), expected (4, 1)"),
    ],
)
def test_a_shape_that_does_not_fit(backend, options, said):
    gradient = backend.array(np.ones(4, np.float32))
    for function in (skuda.sum_backward, skuda.mean_backward):
        with pytest.raises(InvalidProblem, match=re.escape(said)):
            function(gradient, **{"axis": 1} | options)


def test_a_gradient_of_no_elements(backend):
    for shape, axis, of in (((4, 0), 1, (4,)), ((0, 4), 1, (0,)), ((4, 0), None, ())):
        for function in (skuda.sum_backward, skuda.mean_backward):
            assert function(backend.array(np.ones(of, np.float32)), shape=shape, axis=axis).shape == shape


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_ties_share_as_torch_s_do(backend, name):
    """To the bit; where a row has a NaN, all of its gradient is NaN."""
    x = np.random.default_rng(3).integers(-3, 3, (20, 30)).astype(np.float32)
    x[4, 7] = np.nan
    gradient = np.random.default_rng(4).normal(size=20).astype(np.float32)
    witness = torch.from_numpy(x.copy()).requires_grad_()
    getattr(witness, name)(dim=1).backward(torch.from_numpy(gradient))
    actual = of_reduction(backend, name, backend.array(gradient), backend.array(x), axis=1)
    np.testing.assert_array_equal(actual, witness.grad.numpy())
    assert np.isnan(actual[4]).all()


def test_what_has_no_norm_has_no_slope(backend):
    """Of zeros the gradients of norms and of the deviation are 0, as torch's."""
    zeros, one = backend.array(np.zeros(9, STORAGE["f32"])), backend.array(np.ones((), STORAGE["f32"]))
    for name in ("norm1", "norm2", "std"):
        assert_floats(of_reduction(backend, name, one, zeros), np.zeros(9), "f32")
    assert bits_of(of_reduction(backend, "amax", one, zeros), "f32").tolist() == [pattern(Fraction(1, 9), "f32")] * 9
    assert F32.nan not in bits_of(of_reduction(backend, "logsumexp", one, zeros), "f32")


@pytest.mark.parametrize("element", FORMATS)
def test_the_gradient_where_the_norm_equals_eps_is_torch_s(backend, element):
    """`fmax(norm, eps)` is the norm there: the gradient of (3, 4) by eps 5 is not d_output / 5."""
    x, g = (np.array([each], STORAGE[element]) for each in ((3, 4), (1, 0)))
    for eps in (4.75, 5.0, 5.25):
        tensor = torch.tensor([[3.0, 4.0]], dtype=torch.float64, requires_grad=True)
        torch.nn.functional.normalize(tensor, eps=eps).backward(torch.tensor([[1.0, 0.0]], dtype=torch.float64))
        got = backend.numpy(skuda.l2_normalize_backward(backend.array(g), backend.array(x), eps=eps))
        np.testing.assert_allclose(got.astype(np.float64), tensor.grad.numpy(), rtol=2.0**-7, atol=2.0**-9)
