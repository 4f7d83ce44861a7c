"""The functions of `elementary_points`: how far off they are, what they do at the ends, that they never fall where they
should rise, and that CUDA has the same numbers. tests/host compares bits."""

from __future__ import annotations

import math
import re
import warnings
from fractions import Fraction
from inspect import unwrap
from pathlib import Path

import elementary_points
import mpmath
import numpy as np
import pytest
from elementary_points import BITS, MODULE, PAIRS, beside, every_exponent, furthest, points, quarters

import skuda
from skuda.reference import double_double, formulas, trigonometric
from skuda.reference.powers import logarithm_pair

TYPES = list(BITS)
INF, NAN = np.inf, np.nan
# Units in the last place, where a function is not almost correctly rounded: what is measured, and a little more. The
# promise is 1.
MOST = {"exp2": 0.8, "expm1": 0.9, "pow": 0.85, "sinh": 0.8, "cosh": 0.7, "sin": 0.8, "cos": 0.8, "tan": 0.85}
MOST |= {"asin": 0.78, "acos": 0.74, "atan": 0.63, "atan2": 0.76}
MOST |= {"sinpi": 0.85, "cospi": 0.75, "log1pexp": 1.5, "erfinv": 0.8, "lgamma": 1.3, "digamma": 1.4}
# The others are computed in f64.
MOST_F32 = {"exp2": 0.79, "expm1": 0.87, "log2": 0.93, "log10": 0.84, "log1p": 0.92, "sin": 0.9, "cos": 0.88}
MOST_F32 |= {"pow": 0.83, "log1pexp": 1.15, "logit": 0.78, "sinpi": 0.82, "cospi": 0.82}
MOST_F32 |= {"sinh": 0.76, "cosh": 0.75, "asinh": 0.71, "acosh": 0.61, "atanh": 0.59}
MOST_F32 |= {"tan": 0.94, "asin": 0.74, "acos": 0.7, "atan": 0.7, "atan2": 0.76, "erfinv": 0.97}
MOST_F32 |= {"lgamma": 1.9, "digamma": 1.6}
OWN = ("erfinv", "lgamma", "digamma")  # NumPy has none
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh",
         "acosh": "arccosh", "atanh": "arctanh", "pow": "power"}  # fmt: skip


def function(name: str):
    return getattr(MODULE[name], name)


def witness(name: str, arguments: tuple[np.ndarray, ...]) -> np.ndarray:
    """NumPy's own function in f64: exact enough for f32, as is tested below."""
    wide = [argument.astype(np.float64) for argument in arguments]
    with np.errstate(all="ignore"):
        if name == "log1pexp":
            return np.logaddexp(*wide, 0.0)
        if name == "logit":
            near = np.abs(wide[0] - 0.5) < 0.25
            return np.where(near, 2 * np.arctanh(2 * wide[0] - 1), np.log(wide[0] / (1 - wide[0])))
        if name in ("sinpi", "cospi"):
            turns = wide[0] - 2 * np.rint(0.5 * wide[0])
            part = turns - np.rint(turns)
            part = 0.5 - np.abs(part) if name == "cospi" else part
            return np.sin(np.pi * part) * np.where(np.rint(turns) == 0, 1.0, -1.0)
        return 1 / np.sqrt(*wide) if name == "rsqrt" else getattr(np, NUMPY.get(name, name))(*wide)


@pytest.mark.parametrize("name", MODULE)
def test_f64_is_within_its_bound(name):
    arguments = points(name, np.float64, 150)
    got = function(name)(*arguments)
    assert got.dtype == np.float64
    off, where = furthest(name, np.float64, arguments, got)
    assert off <= MOST.get(name, 0.501), where
    if name not in OWN:
        assert furthest(name, np.float64, arguments, witness(name, arguments))[0] < 2**10  # far below a unit of f32


@pytest.mark.parametrize("name", OWN)
def test_f32_of_functions_that_numpy_lacks(name):
    arguments = points(name, np.float32, 400)
    got = function(name)(*arguments)
    assert got.dtype == np.float32 and furthest(name, np.float32, arguments, got)[0] <= MOST_F32.get(name, 0.51)


@pytest.mark.parametrize("name", [name for name in MODULE if name not in OWN])
def test_f32_is_almost_correctly_rounded(name):
    arguments = points(name, np.float32, 20_000)
    got, exact = function(name)(*arguments), witness(name, arguments)
    assert got.dtype == np.float32
    over = np.abs(exact) >= 2.0**128 * (1 - 2.0**-25)
    assert (np.abs(got[over]) == INF).all() and np.array_equal(np.isnan(got), np.isnan(exact))
    usual = np.isfinite(exact) & ~over
    unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
    assert usual.sum() > 40_000
    most = MOST_F32.get(name, 0.501)
    assert (np.abs(got[usual] - exact[usual]) / unit[usual]).max() <= most
    some = tuple(argument[:: max(argument.size // 400, 1)] for argument in arguments)
    assert furthest(name, np.float32, some, function(name)(*some))[0] <= most


HALF_PI, PI = np.pi / 2, np.pi
SPECIAL = {
    "exp2": [(0, 1), (-0.0, 1), (10, 1024), (INF, INF), (-INF, 0), (1024, INF), (-1200, 0), (NAN, NAN)],
    "expm1": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -1), (800, INF), (-100, -1), (NAN, NAN)],
    "log2": [(1, 0), (8, 3), (2.0**-140, -140), (0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (NAN, NAN)],
    "log10": [(1, 0), (1000, 3), (1e10, 10), (0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (-INF, NAN), (NAN, NAN)],
    "log1p": [(0, 0), (-0.0, -0.0), (-1, -INF), (INF, INF), (-2, NAN), (-INF, NAN), (NAN, NAN)],
    "log1pexp": [(0, np.log(2)), (-0.0, np.log(2)), (INF, INF), (-INF, 0), (1e30, 1e30), (-800, 0), (NAN, NAN)],
    "logit": [(0, -INF), (-0.0, -INF), (0.5, 0), (1, INF), (-1, NAN), (2, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "rsqrt": [(4, 0.5), (0, INF), (-0.0, -INF), (INF, 0), (-1, NAN), (-INF, NAN), (NAN, NAN)],
    "cbrt": [(27, 3), (-8, -2), (2.0**-126, 2.0**-42), (0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "sinh": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (800, INF), (-800, -INF), (NAN, NAN)],
    "cosh": [(0, 1), (-0.0, 1), (INF, INF), (-INF, INF), (800, INF), (-800, INF), (NAN, NAN)],
    "asinh": [(0, 0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "acosh": [(1, 0), (INF, INF), (0.5, NAN), (-1, NAN), (-INF, NAN), (NAN, NAN)],
    "atanh": [(0, 0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "sin": [(0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "cos": [(0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "sinpi": [
        (0, 0), (-0.0, 0), (1, -0.0), (-1, -0.0), (2, 0), (-4, 0), (5, -0.0), (1e30, 0), (0.5, 1), (-0.5, -1),
        (1.5, -1), (2.5, 1), (2.0**23 - 1, -0.0), (2.0**22 + 0.5, 1), (INF, NAN), (-INF, NAN), (NAN, NAN),
    ],
    "cospi": [
        (0, 1), (-0.0, 1), (1, -1), (-1, -1), (2, 1), (1e30, 1), (0.5, 0), (-0.5, 0), (1.5, 0), (2.5, 0), (-3.5, 0),
        (2.0**23 - 1, -1), (2.0**22 + 0.5, 0), (INF, NAN), (-INF, NAN), (NAN, NAN),
    ],
    "tan": [(0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "asin": [(0, 0), (-0.0, -0.0), (1, HALF_PI), (-1, -HALF_PI), (1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "acos": [(1, 0), (0, HALF_PI), (-0.0, HALF_PI), (-1, PI), (1.5, NAN), (INF, NAN), (-INF, NAN), (NAN, NAN)],
    "atan": [(0, 0), (-0.0, -0.0), (1, PI / 4), (INF, HALF_PI), (-INF, -HALF_PI), (NAN, NAN)],
}
SPECIAL |= {
    "erfinv": [(0, 0), (-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (-INF, NAN), (NAN, NAN)],
    "lgamma": [(1, 0), (2, 0), (0, INF), (-0.0, INF), (-3, INF), (-1e30, INF), (INF, INF), (-INF, INF), (NAN, NAN)],
    "digamma": [(0, -INF), (-0.0, INF), (-3, NAN), (-1e30, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
}
# As C99's annex F has them: an argument, the other one, the result.
SPECIAL |= {
    "hypot": [(3, 4, 5), (0, 0, 0), (-0.0, -0.0, 0), (0, -2, 2), (INF, NAN, INF), (NAN, -INF, INF), (NAN, 1, NAN)],
    "atan2": [
        (0, 0, 0), (-0.0, 0, -0.0), (0, -0.0, PI), (-0.0, -0.0, -PI), (0, -1, PI), (-0.0, -1, -PI), (0, 1, 0),
        (-0.0, 1, -0.0), (1, 0, HALF_PI), (-1, -0.0, -HALF_PI), (1, -INF, PI), (-1, -INF, -PI), (1, INF, 0),
        (-1, INF, -0.0), (INF, 1, HALF_PI), (-INF, -1, -HALF_PI), (INF, INF, PI / 4), (-INF, INF, -PI / 4),
        (INF, -INF, 3 * PI / 4), (-INF, -INF, -3 * PI / 4), (NAN, 1, NAN), (1, NAN, NAN), (INF, NAN, NAN),
    ],
    "pow": [
        (0, -3, INF), (-0.0, -3, -INF), (0, -2.5, INF), (-0.0, -2.5, INF), (-0.0, -2, INF), (0, -INF, INF),
        (-0.0, 3, -0.0), (-0.0, 2.5, 0), (-0.0, 2, 0), (0, 3, 0), (0, INF, 0), (-1, INF, 1), (-1, -INF, 1),
        (1, NAN, 1), (1, INF, 1), (NAN, 0, 1), (NAN, -0.0, 1), (INF, 0, 1), (0, 0, 1), (-2, 0.5, NAN), (-2, 3, -8),
        (-2, -2, 0.25), (-1, 2.0**60, 1), (0.5, -INF, INF), (2, -INF, 0), (-0.5, INF, 0), (-2, INF, INF),
        (-INF, -3, -0.0), (-INF, -2, 0), (-INF, 3, -INF), (-INF, 2, INF), (-INF, 0.5, INF), (INF, -1, 0), (INF, 1, INF),
        (NAN, 1, NAN), (2, NAN, NAN), (-1, NAN, NAN), (-2, 2001, -INF), (-2, -2001, -0.0), (3, 5, 243), (10, 10, 1e10),
    ],
}  # fmt: skip


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("name", MODULE)
def test_special_values(name, C):
    for *arguments, expected in SPECIAL[name]:
        got = function(name)(*(np.array(each, C) for each in arguments))
        assert got.dtype == C and got.shape == ()
        np.testing.assert_array_equal(got, C(expected), err_msg=f"{name}{tuple(arguments)}")
        assert math.isnan(expected) or np.signbit(got) == np.signbit(C(expected)), f"{name}{tuple(arguments)}"


def test_exact_results_are_exact():
    powers_of_ten = 10.0 ** np.arange(23)
    np.testing.assert_array_equal(function("log10")(powers_of_ten), np.arange(23))
    np.testing.assert_array_equal(function("log2")(2.0 ** np.arange(-1074, 1024)), np.arange(-1074, 1024))
    np.testing.assert_array_equal(function("exp2")(np.arange(-1074.0, 1024)), 2.0 ** np.arange(-1074, 1024))
    whole = np.arange(-2000.0, 2000)
    np.testing.assert_array_equal(function("cbrt")(whole * whole * whole), whole)
    np.testing.assert_array_equal(function("pow")(whole, 4.0), whole * whole * whole * whole)
    np.testing.assert_array_equal(function("pow")(whole * whole, 0.5), np.abs(whole))
    np.testing.assert_array_equal(function("rsqrt")(4.0 ** np.arange(-500, 500)), 2.0 ** -np.arange(-500.0, 500))
    np.testing.assert_array_equal(function("hypot")(3 * whole, 4 * whole), 5 * np.abs(whole))


RISING = {
    "exp2": (-1074, 1023), "expm1": (-37, 709), "log2": (1e-300, 1e300), "log10": (1e-300, 1e300), "log1p": (-1, 1e300),
    "cbrt": (-1e300, 1e300), "sinh": (-710, 710), "asinh": (-1e300, 1e300), "acosh": (1, 1e300), "atanh": (-1, 1),
    "asin": (-1, 1), "atan": (-1e300, 1e300), "cosh": (0, 710), "sin": (-1.57, 1.57), "tan": (-1.57, 1.57),
}  # fmt: skip
RISING |= {"erfinv": (-1, 1), "logit": (1e-300, 1), "sinpi": (-0.5, 0.5)}
FALLING = {"rsqrt": (1e-300, 1e300), "acos": (-1, 1), "cos": (0, 3.14), "cospi": (0, 1)}


@pytest.mark.parametrize("name", [*RISING, *FALLING])
def test_neighbours_in_f64_never_step_back(name):
    """Also where a reduction changes: between powers of two, between steps of the tables, between two formulas."""
    low, high = (RISING | FALLING)[name]
    rng = np.random.default_rng(3)
    edges = [(rng.integers(-60, 60, 40) + 0.5) * (1 if name == "exp2" else np.log(2)), 2.0 ** -rng.integers(0, 60, 40)]
    edges += [(0x3FE6A00000000000 + (np.arange(64) << 46)).view(np.float64), [2.0**-20, 2.0**30, 1.0, 0.5, np.pi / 4]]
    edges += [np.tan((np.arange(16) + 0.5) / 16), (np.arange(16) + 0.5) / 16, rng.uniform(low, high, 100)]
    positions = np.concatenate([np.concatenate(edges), rng.normal(0, 1, 100)])
    positions = np.clip(positions, low, high)[:, None]
    x = np.sort(np.clip(positions + np.arange(-60, 60) * np.spacing(np.abs(positions)), low, high), axis=1)
    y = function(name)(x[:, ::-1] if name in FALLING else x)
    assert (y[:, 1:] >= y[:, :-1]).all()


@pytest.mark.parametrize("name", MODULE)
def test_arrays_of_any_shape_and_no_warning(name):
    every = np.array([[0.5, -0.0, INF], [NAN, 1e308, -3.0]]), np.array([[2.0, -INF, -1.0], [1e-310, NAN, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for C in TYPES:
            with np.errstate(over="ignore"):
                arguments = [each.astype(C) for each in every[: 2 if name in PAIRS else 1]]
            whole = function(name)(*arguments)
            assert whole.shape == (2, 3) and whole.dtype == C
            flipped = function(name)(*(np.asfortranarray(each)[::-1, ::2] for each in arguments))
            np.testing.assert_array_equal(flipped, whole[::-1, ::2])
            np.testing.assert_array_equal(function(name)(*(each[0, 0] for each in arguments)), whole[0, 0])
            assert function(name)(*(each[:0] for each in arguments)).shape == (0, 3)
    if name in PAIRS:
        beside = function(name)(np.arange(1.0, 4.0)[:, None], np.float64(2))
        np.testing.assert_array_equal(beside, function(name)(np.arange(1.0, 4.0)[:, None], np.full((3, 1), 2.0)))


def test_the_reference_names_each_function():
    for name in MODULE:
        assert name in formulas.FORMULA_NAMES and unwrap(getattr(formulas, name)) is unwrap(function(name))
    with pytest.raises(AttributeError):
        formulas.no_function  # noqa: B018


# cbrt of f32 is correctly rounded, so NumPy may take other steps.
_CUDA_ALONE = {"powers": {"0x1.555556p-2", "0x1.c9731cp-3", "0x1.6400aap-3"}}
_LONG = re.compile(r"-?0x[\da-f]\.[\da-f]{6,}p[+-]\d+|0x[\da-f]{16}(?=ll|\b)")


@pytest.mark.parametrize(
    "module",
    "powers log1pexp hyperbolic trigonometric turns gamma gamma_f32 gamma_zeros inverse_erf".split(),
)
def test_cuda_has_the_same_constants(module):
    """All long ones, and those of each polynomial and table in their order."""
    folder = Path(skuda.__file__).parent
    ours = (folder / "reference" / f"{module}.py").read_text(encoding="utf-8").lower()
    theirs = _LONG.findall((folder / "cuda" / f"{module}.cuh").read_text(encoding="utf-8").lower())
    assert set(_LONG.findall(ours)) == set(theirs) - _CUDA_ALONE.get(module, set()) and theirs
    blocks = re.findall(r'hexadecimal\((.*?)\)|"""(.*?)"""|np.array\(\[(.*?)\]', ours, re.DOTALL)
    chains = [chain for chain in (_LONG.findall("".join(block)) for block in blocks) if len(chain) >= 5]
    least = {"log1pexp": 1, "hyperbolic": 0, "turns": 0, "gamma": 4, "gamma_f32": 6, "gamma_zeros": 9}
    assert len(chains) >= least.get(module, 5)
    for chain in chains:
        assert any(theirs[position : position + len(chain)] == chain for position in range(len(theirs))), chain


def test_logarithms_of_powers_have_bits_to_spare():
    rng = np.random.default_rng(5)
    high = np.concatenate([np.abs(every_exponent(np.float64, 1_000, rng)), np.abs(beside(1, 1_000, rng))])
    high = np.concatenate([high, rng.uniform(0.98, 1.02, 1_000)])
    high = high[(high >= 2.0**-1022) & (high != 1)]
    low = np.where(high < 2.0**1000, high * rng.normal(0, 2.0**-56, high.size), 0.0)
    with mpmath.workprec(200):
        for x, more, *parts in zip(*(each.tolist() for each in (high, low, *logarithm_pair(high, low))), strict=True):
            exact = mpmath.log(mpmath.mpf(x) + more)
            assert abs(exact - parts[0] - parts[1]) <= abs(exact) * 2.0**-65, x


def test_angles_have_bits_to_spare():
    rng = np.random.default_rng(5)
    size = np.concatenate([np.abs(quarters(np.float64, 2_000, rng)), 2.0 ** rng.uniform(20, 1023, 6_000)])
    size = size[size > 0]
    with mpmath.workprec(1300):
        quarter = mpmath.pi / 2
        for x, *parts, quadrant in zip(*(each.tolist() for each in (size, *trigonometric._angle(size))), strict=True):
            turns = mpmath.mpf(x) / quarter
            whole = mpmath.nint(turns)
            exact = (turns - whole) * quarter
            assert int(whole) % 4 == quadrant % 4
            assert abs(exact - parts[0] - parts[1]) <= abs(exact) * 2.0**-64, x


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_signs_change_at_zeros_below_0(name):
    """Between the two values next to each zero."""
    at = elementary_points.zeros(name)
    x = at[:, None] + np.arange(-1, 2) * np.spacing(np.abs(at))[:, None]
    signs = np.sign(function(name)(x))
    assert len(at) > 25 and (np.abs(np.diff(signs)).sum(1) == 2).all()


def test_double_double_is_exact():
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=300) * 2.0 ** rng.integers(-200, 200, 300) for _ in range(2))
    for exact, (high, low) in (
        (lambda x, y: x + y, double_double.two_sum(a, b)), (lambda x, y: x * y, double_double.two_product(a, b)),
    ):  # fmt: skip
        for x, y, first, second in zip(*(each.tolist() for each in (a, b, high, low)), strict=True):
            assert exact(Fraction(x), Fraction(y)) == Fraction(first) + Fraction(second)
