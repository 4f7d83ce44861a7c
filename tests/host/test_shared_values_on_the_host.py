"""What elements share, as the CPU's C++ compiler makes it of quotient.cuh: quotients by any divisor and the elements
between any bounds are NumPy's, in the form for usual values and in the other one; so are quotients that are rounded.
The moments of a few elements, which share their number, are those of any group."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from host.functions import compiled
from skuda.reference import formulas

TEXT = '#include "reductions.cuh"\n' + "".join(f"""
extern "C" void moments_{C}(const {C}* x, long groups, int exist, {C}* first, {C}* any, bool* sure) {{
  const DivisorFromOne<{C}> count{{{C}(exist)}};
  for (long i = 0; i < groups; ++i) {{
    {C} values[GROUP];
    Moments<{C}> group[GROUP];
    for (int j = 0; j < GROUP; ++j) values[j] = x[i * GROUP + j], group[j] = SquaredDeviations::of_one(values[j]);
    cut<SquaredDeviations>(group, exist);
    const auto found = exist <= GROUP / 2 ? moments_of_first<GROUP / 2>(values, exist, count)
                                          : moments_of_first<GROUP>(values, exist, count);
    const auto expected = moments_of(group);
    sure[i] = sure_moments(found, exist);
    memcpy(first + i * 4, &found, sizeof found), memcpy(any + i * 4, &expected, sizeof expected);
  }}
}}
extern "C" bool quotients_{C}({C}* usual, {C}* other, {C} s, {C}, const {C}* x, long count) {{
  const PowerDivisor<{C}> by(s);
  for (long i = 0; i < count; ++i)
    usual[i] = by.quotient<FAST_WITHIN>(x[i]), other[i] = by.quotient<FAST_FORM>(x[i]);
  return by.within;
}}
extern "C" bool clamped_{C}({C}* usual, {C}* other, {C} low, {C} high, const {C}* x, long count) {{
  const Bounds<{C}> bounds(low, high);
  for (long i = 0; i < count; ++i)
    usual[i] = bounds.value<FAST_WITHIN>(x[i]), other[i] = bounds.value<FAST_FORM>(x[i]);
  return bounds.within;
}}
extern "C" bool refined_{C}({C}* usual, {C}* other, {C} s, {C}, const {C}* x, long count) {{
  const Divisor<{C}> by(s);
  for (long i = 0; i < count; ++i)
    usual[i] = by.quotient<FAST_WITHIN, {C}>(x[i]), other[i] = by.quotient<FAST_FORM, {C}>(x[i]);
  return by.fast;
}}
extern "C" bool rounded_{C}({C}* usual, {C}* other, {C} s, {C}, const {C}* x, long count) {{
  const DivisorFromOne<{C}> by(s);
  for (long i = 0; i < count; ++i)
    usual[i] = by.rounded<FAST_FORM>(x[i]), other[i] = by.quotient<FAST_FORM>(rint(x[i]));
  return by.fast;
}}
""" for C in ("f32", "f64"))  # fmt: skip
TYPES = [np.float32, np.float64]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(TEXT, tmp_path_factory.mktemp("shared"))


def numbers(C: type) -> np.ndarray:
    """Of every exponent, subnormal ones and special values too."""
    kind = np.dtype(f"i{np.dtype(C).itemsize}")
    ends = np.iinfo(kind)
    drawn = np.random.default_rng(9).integers(ends.min, ends.max, 20_000, kind, endpoint=True)
    least = np.finfo(C).smallest_subnormal * np.arange(1, 9, dtype=C)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 6, np.finfo(C).max], C)
    return np.concatenate([drawn.view(C), least, -least, special])


def both(function, C: type, first: float, second: float, x: np.ndarray) -> tuple[bool, list[np.ndarray]]:
    """Whether what is shared is usual, and the values in both forms."""
    real = ctypes.c_float if C is np.float32 else ctypes.c_double
    found = [np.empty_like(x) for _ in range(2)]
    function.restype = ctypes.c_bool
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (*found, x)]
    return function(*pointers[:2], real(first), real(second), pointers[2], ctypes.c_long(x.size)), found


def same(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan, what)
    np.testing.assert_array_equal(found[~nan].view(np.uint8), expected[~nan].view(np.uint8), what)


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("s, usual", [
    (1, True), (-1, True), (0.5, True), (-0.25, True), (2.0**60, True), (2.0**-60, True), (3, False), (0.1, False),
    (1.5, False), (2.0**-130, None), (2.0**120, None), (0, False), (-0.0, False), (np.inf, False), (np.nan, False),
])  # fmt: skip
def test_quotients_of_any_dividend(library, C, s, usual):
    x = numbers(C)
    within, (quick, other) = both(library.quotients_f32 if C is np.float32 else library.quotients_f64, C, s, 0, x)
    with np.errstate(all="ignore"):
        expected = x / C(s)
    assert within == usual or usual is None  # f64 has further ones
    same(other, expected, str(s))
    if within:
        same(quick, expected, str(s))


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("s, usual", [
    (1, True), (0.1, True), (-3, True), (-1, True), (-1e-9, True), (1e9, True), (2.0**-60, True), (0, False),
    (-0.0, False), (np.inf, False), (np.nan, False),
])  # fmt: skip
def test_quotients_of_usual_dividends(library, C, s, usual):
    x = numbers(C)
    fast, (refined, other) = both(library.refined_f32 if C is np.float32 else library.refined_f64, C, s, 0, x)
    with np.errstate(all="ignore"):
        expected = x / C(s)
    assert fast == usual
    if fast:
        same(other, expected, str(s))
        within = (np.abs(x) >= 2.0**-63) & (np.abs(x) <= 2.0**63) | (x == 0) | ~np.isfinite(x)
        same(refined[within], expected[within], str(s))


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("s, usual", [
    (1, True), (1.5, True), (3, True), (10, True), (1e10, True), (1 + 2.0**-23, True), (2.0**60, True), (0.999, False),
    (1e-30, False), (-10, False), (1e38, None), (0, False), (np.inf, False), (np.nan, False),
])  # fmt: skip
def test_quotients_that_are_rounded_and_those_of_integers(library, C, s, usual):
    x = numbers(C)
    fast, (rounded, whole) = both(library.rounded_f32 if C is np.float32 else library.rounded_f64, C, s, 0, x)
    assert fast == usual or usual is None  # f64 has further ones
    if fast:
        with np.errstate(all="ignore"):
            same(rounded, np.rint(x / C(s)), str(s))
            same(whole, np.rint(x) / C(s), str(s))


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("low, high, usual", [
    (-1, 6, True), (1e-5, 1 - 1e-5, True), (3, -3, True), (-np.inf, np.inf, True), (np.nan, 1, True),
    (-1, np.nan, True), (0, 6, False), (-0.0, 6, False), (-1, 0, False), (-1, -0.0, False),
])  # fmt: skip
def test_elements_between_bounds(library, C, low, high, usual):
    x = numbers(C)
    within, (quick, other) = both(library.clamped_f32 if C is np.float32 else library.clamped_f64, C, low, high, x)
    with np.errstate(all="ignore"):
        expected = formulas.clamp(x, C(low), C(high))
    assert within == usual
    same(other, expected, f"{low}, {high}")
    if within:
        same(quick, expected, f"{low}, {high}")


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("exist", range(1, 8))
def test_moments_of_a_few_elements_are_those_of_any_group(library, C, exist):
    """Of every size, subnormal ones too, near each other and far apart. What is behind the last is the last again."""
    random = np.random.default_rng(exist)
    groups, least = 20_000, np.finfo(C).smallest_subnormal
    sizes = np.ldexp(C(1), random.integers(np.finfo(C).minexp, np.finfo(C).maxexp - 8, (groups, 1))).astype(C)
    drawn = (random.standard_normal((groups, 8)).astype(C) * sizes).astype(C)
    tiny = (random.integers(-40, 40, (groups, 8)) * least).astype(C)
    x = np.concatenate([drawn, tiny, np.full((8, 8), np.inf, C), numbers(C)[:groups].reshape(-1, 8)])
    x[:, exist:] = x[:, exist - 1 : exist]
    found, expected, sure = np.empty((len(x), 4), C), np.empty((len(x), 4), C), np.empty(len(x), bool)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (x, found, expected, sure)]
    function = library[f"moments_f{8 * np.dtype(C).itemsize}"]
    function(pointers[0], ctypes.c_long(len(x)), ctypes.c_int(exist), *pointers[1:])
    few, infinite = slice(groups, 2 * groups), slice(2 * groups, 2 * groups + 8)
    assert sure[:groups].all() or (exist == 6 and sure[:groups].any())
    assert not sure[infinite].any() and sure[few].all() == (exist != 6)
    assert (found[few] != expected[few]).any() == (exist == 6)  # a tie that is decided otherwise
    same(found[sure], expected[sure], f"{exist} elements")
