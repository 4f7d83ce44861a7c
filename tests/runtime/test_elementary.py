"""Functions in common steps: how far off they are, what they do at the ends, and that CUDA has the same numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from gpu import sweep_elementary as sweep

import skuda
from skuda.codegen.intrinsics import INTRINSICS
from skuda.reference import elementary, error_functions, inverse_erf, powers, trigonometric
from skuda.reference.elementary import exp, fma32, log, product_rest, remainder, sigmoid, sum_rest, tanh
from skuda.reference.error_functions import erf, erfc, gelu_slope, ndtr

TYPES = [np.float32, np.float64]
INF, NAN = np.inf, np.nan
LOW = {np.float32: -103.98, np.float64: -745.14}  # e^x is just below half the smallest subnormal, and 0.02 higher not
HIGH = {np.float32: 88.73, np.float64: 709.79}


def every_exponent(C, count: int, rng: np.random.Generator) -> np.ndarray:
    """Positive finite values, spread over all bit patterns."""
    kind, most = (np.uint32, 0x7F80_0000) if C is np.float32 else (np.uint64, 0x7FF0_0000_0000_0000)
    even = (np.arange(count // 2, dtype=np.uint64) * np.uint64(most // (count // 2))).astype(kind)
    return np.concatenate([even, rng.integers(0, most, count // 2).astype(kind)]).view(C)


def around(center: float, C, count: int = 2_000) -> np.ndarray:
    """A number's neighbours on both sides."""
    kind = np.int32 if C is np.float32 else np.int64
    return (np.array(center, C).view(kind) + np.arange(-count // 2, count // 2, dtype=kind)).view(C)


def off_of_f32(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distances in units in the last place of f32 from values that are exact to far below one."""
    unit = np.ldexp(1.0, np.clip(np.frexp(exact)[1] - 24, -149, 104))
    return np.abs(got.astype(np.float64) - exact) / unit


def each(function):
    """A function of one float, of all elements."""
    return lambda x: np.array([function(value) for value in x.tolist()])


def slope_of_gelu(x: float) -> float:
    if abs(x + 0.7518) < 0.05:  # the sum of its two terms would have lost what is left
        with mpmath.workprec(120):
            return float(sweep.EXACT["gelu_slope"](mpmath.mpf(x)))
    return math.erfc(-x / math.sqrt(2)) / 2 + max(x, -50.0) * math.exp(-0.5 * min(x * x, 2500)) / math.sqrt(2 * math.pi)


# In f64 arithmetic, whose last bits do not matter to f32: checked against mpmath below.
WITNESSES = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": each(math.erf),
    "erfc": each(math.erfc),
    "ndtr": each(lambda x: math.erfc(-x / math.sqrt(2)) / 2),
    "gelu_slope": each(slope_of_gelu),
}
# Where each was, or is, furthest off.
HARD = {
    "exp": (-5.84915638, 5.199017), "log": (0.625729203, 0.707005441, 1.0),
    "tanh": (0.00389364269, 0.0614828803, 0.205407694),
    "sigmoid": (-5.83819818, -4.8464551), "erf": (0.9099794626235962, 1.05848634, 0.921875),
    "erfc": (0.028645869344472885, 0.479441, 0.65, 1.55510914, 6.52835703),
    "ndtr": (-0.8203125, -0.805310667, -0.75432235, -8.61654, -9.81084156),
    "gelu_slope": (-0.7517915, -0.00357578578, -12.1405334, -3.21164918),
}  # fmt: skip
LOWEST = {"exp": -104, "log": 0, "sigmoid": -104, "ndtr": -14.3, "gelu_slope": -14.5}


def test_each_function_in_common_steps_states_its_bound():
    assert all(row.ulp for row in INTRINSICS.values() if row.common)
    assert WITNESSES.keys() <= sweep.COMMON.keys() <= sweep.CUDA.keys()
    assert sweep.COMMON.keys() <= sweep.EXACT.keys()
    assert "within 1 unit in the last place, the same bits everywhere" in INTRINSICS["erfc"].rule
    assert "within 1.5 units in the last place" in INTRINSICS["sigmoid"].rule


@pytest.mark.parametrize("name", WITNESSES)
def test_f32_is_within_its_bound(name):
    """Over every exponent, densely where functions bend; all arguments: tests/gpu/sweep_elementary.py."""
    rng = np.random.default_rng(1)
    low = LOWEST.get(name, -12)
    x = np.concatenate([
        every_exponent(np.float32, 30_000, rng), -every_exponent(np.float32, 30_000, rng), rng.normal(0, 1, 60_000),
        rng.uniform(low, 12, 60_000), rng.uniform(low, 0.9 * low, 5_000), rng.uniform(-90, 89, 20_000),
        *(around(sign * position, np.float32) for position in (*sweep.POINTS, *HARD[name]) for sign in (1, -1)),
    ]).astype(np.float32)  # fmt: skip
    x = x[x > 0] if name == "log" else x
    with np.errstate(all="ignore"):
        got = sweep.computed(name, x)
        exact = WITNESSES[name](x.astype(np.float64))
    assert got.dtype == np.float32
    over = np.abs(exact) >= 2.0**128 * (1 - 2.0**-25)
    assert (got[over] == np.copysign(INF, exact[over])).all() and np.isfinite(got[~over]).all()
    assert off_of_f32(got[~over], exact[~over]).max() <= INTRINSICS[name].ulp[0]


@pytest.mark.parametrize("name", WITNESSES)
def test_the_witness_of_f32_is_exact_enough(name):
    """Within 2^-40 of mpmath's value: 2^-16 units of f32."""
    x = np.random.default_rng(3).uniform(LOWEST.get(name, -10), 9, 300)
    with mpmath.workprec(120):
        for value, got in zip(x.tolist(), WITNESSES[name](x).tolist(), strict=True):
            assert abs(sweep.EXACT[name](mpmath.mpf(value)) / got - 1) < 2.0**-40


@pytest.mark.parametrize("name", WITNESSES)
def test_f64_is_within_its_bound(name):
    near = [around(sign * position, np.float64, 40) for position in (*sweep.POINTS, *HARD[name]) for sign in (1, -1)]
    x = np.concatenate([sweep.points_f64(4_000), *near, [0.014664867533158453, -745.1, -708.5]])
    worst, position = sweep.worst_f64(name, [x])
    assert worst <= INTRINSICS[name].ulp[1], x[position]


@pytest.mark.parametrize(("name", "argument", "bits"), [
    ("erfc", 0.028645869344472885, 24), ("erf", 0.9099794626235962, 24), ("erfc", 0.014664867533158453, 53),
])  # fmt: skip
def test_where_bounds_were_broken(name, argument, bits):
    """Here erfc was 6.4 and 6.6 units off and erf 1.52."""
    C = np.float32 if bits == 24 else np.float64
    got = float(sweep.computed(name, np.array([argument], C))[0])
    with mpmath.workprec(120):
        exact = sweep.EXACT[name](mpmath.mpf(float(C(argument))))
        assert abs(exact - got) <= mpmath.ldexp(1, int(mpmath.frexp(exact)[1]) - bits)


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("name", sweep.MONOTONE)
def test_no_step_back(name, C):
    """Over runs of neighbours, where sigmoid stepped back, and where functions bend or change their form."""
    rng = np.random.default_rng(5)
    starts = [*rng.normal(0, 1, 20), *rng.uniform(-0.26, 0.26, 20), 0.2499, 0.2244, 2.0**-20]
    starts += [*sweep.POINTS, *HARD[name]]
    if name == "log":
        starts = [abs(each) for each in starts]
    else:
        starts += [-each for each in starts]
    for start in starts:
        x = np.sort(around(start, C, 20_000 if C is np.float32 else 4_000))
        back = np.diff(sweep.computed(name, x)) * sweep.direction(name) < 0
        assert not back.any(), x[:-1][back][:5]


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_the_slope_of_gelu(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        assert gelu_slope(np.array([INF, -INF, info.max, -info.max, 40, -40], C)).tolist() == [1, 0] * 3
        assert np.isnan(gelu_slope(C(NAN)))
        np.testing.assert_allclose(gelu_slope(np.array([0, -0.0, info.tiny], C)), 0.5, rtol=8 * info.eps)


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_the_normal_distribution(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        x = np.array([INF, -INF, info.max, -info.max, 40, -40], C)
        assert ndtr(x).tolist() == [1, 0] * 3 and not np.signbit(ndtr(x)).any()
        assert np.isnan(ndtr(C(NAN)))
        np.testing.assert_allclose(ndtr(np.array([0, -0.0, info.tiny], C)), 0.5, rtol=4 * info.eps)
        falling = ndtr(np.linspace(-5.9, -14, 2000).astype(C))
        assert (np.diff(falling) <= 0).all()


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_sigmoid_and_tanh(C):
    info = np.finfo(C)
    least = {np.float32: -104, np.float64: -745.5}[C]
    with np.errstate(all="ignore"):
        ends = sigmoid(np.array([0, -0.0, INF, -INF, 1e30, -1e30, least - 1], C))
        assert ends.tolist() == [0.5, 0.5, 1, 0, 1, 0, 0] and np.isnan(sigmoid(C(NAN)))
        x = np.array([0.0, -0.0, INF, -INF, info.max, -info.max, info.smallest_subnormal, -info.tiny], C)
        np.testing.assert_array_equal(tanh(x), [0, 0, 1, -1, 1, -1, info.smallest_subnormal, -info.tiny])
        assert np.signbit(tanh(x)).tolist() == [False, True] * 4 and np.isnan(tanh(C(NAN)))


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_erf(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        x = np.array([0.0, -0.0, INF, -INF, info.max, -info.max, 30, -30], C)
        assert erf(x).tolist() == [0, 0, 1, -1, 1, -1, 1, -1] and np.signbit(erf(x)).tolist() == [False, True] * 4
        assert erfc(x).tolist() == [1, 1, 0, 2, 0, 2, 0, 2] and not np.signbit(erfc(x)).any()
        assert np.isnan(erf(C(NAN))) and np.isnan(erfc(C(NAN)))
        tiny = np.array([info.smallest_subnormal, -info.tiny], C)
        np.testing.assert_allclose(erf(tiny), tiny * 1.13, rtol=0.2)
        last = {np.float32: 10.05, np.float64: 27.22}[C]
        assert 0 < erfc(C(last)) < info.tiny


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_exp(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        one = [0.0, -0.0, info.smallest_subnormal, -info.smallest_subnormal, info.tiny]
        assert exp(np.array(one, C)).tolist() == [1] * 5
        assert exp(np.array([INF, info.max, 1000, HIGH[C]], C)).tolist() == [INF] * 4
        low = exp(np.array([-INF, info.min, -1000, LOW[C]], C))
        assert low.tolist() == [0] * 4 and not np.signbit(low).any()
        assert np.isnan(exp(np.array([NAN, -NAN], C))).all()
        assert exp(np.array([], C)).shape == (0,) and exp(C(0)).shape == ()
        assert 0 < exp(C(LOW[C] + 0.02)) <= 2 * info.smallest_subnormal


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_log(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        assert log(np.array([0.0, -0.0, INF, 1], C)).tolist() == [-INF, -INF, INF, 0]
        assert not np.signbit(log(C(1)))
        assert np.isnan(log(np.array([NAN, -1, -INF, -info.smallest_subnormal], C))).all()
        least = log(np.array([info.smallest_subnormal, info.tiny, info.max], C))
        assert np.allclose(least, np.log(np.array([info.smallest_subnormal, info.tiny, info.max], np.float64)))


def nearest_f32(number: Fraction) -> float:
    """The f32 nearest to a rational, ties to even, by integers alone."""
    if number == 0:
        return 0.0
    size = abs(number)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - 23, -149)
    value = round(size / unit) * unit
    value = INF if value >= 2**128 else float(value)
    return -value if number < 0 else value


def test_fma_rounds_once():
    """Random ones, and sums that lie at or beside the middle of two f32, where two roundings go wrong."""
    rng = np.random.default_rng(6)
    count = 4000
    a, b = (rng.normal(size=count).astype(np.float32) for _ in range(2))
    scale = 2.0 ** rng.integers(-40, 40, count)
    c = (rng.normal(size=count) * scale).astype(np.float32)
    tie_a = (1 + rng.integers(0, 4096, count) * 2.0**-12).astype(np.float32)  # products of 24 and more bits
    tie_b = (1 + rng.integers(0, 4096, count) * 2.0**-12).astype(np.float32)
    tie_c = ((-1.0) ** rng.integers(0, 2, count) * 2.0 ** rng.integers(-70, 30, count)).astype(np.float32)
    small = (rng.normal(size=count) * 1e-22).astype(np.float32)
    sets = [(a, b, c), (tie_a, tie_b, tie_c), (a, b, -(a * b)), (small, small, small * small), (small, small, c)]
    twice = 0
    for x, y, z in sets:
        got = fma32(x, y, z)
        assert got.dtype == np.float32
        naive = (x.astype(np.float64) * y + z).astype(np.float32)
        for each, *operands in zip(got.tolist(), x.tolist(), y.tolist(), z.tolist(), strict=True):
            p, q, r = map(Fraction, operands)
            assert each == nearest_f32(p * q + r), operands
        twice += int((naive != got).sum())
    # 1 + 2^-23 + 2^-24 - 2^-70: rounded to f64 first, it becomes a tie, and goes up.
    x, y = np.float32(2.0**-12 * (1 + 2.0**-23)), np.float32(2.0**-12 * (1 - 2.0**-23))
    assert fma32(x, y, np.float32(1 + 2.0**-23)) == np.float32(1 + 2.0**-23)
    assert twice > 0


def test_fma_of_what_is_not_finite():
    f = np.float32
    with np.errstate(all="ignore"):
        assert fma32(f(INF), f(2), f(1)) == INF and fma32(f(1), f(2), f(-INF)) == -INF
        assert np.isnan(fma32(f(INF), f(0), f(1))) and np.isnan(fma32(f(INF), f(1), f(-INF)))
        assert np.isnan(fma32(f(NAN), f(1), f(1)))
        assert fma32(f(3e38), f(2), f(1)) == INF
        assert fma32(f(3e38), f(2), f(-3e38)) == f(3e38)


@pytest.mark.parametrize("C", TYPES)
def test_rests_are_exact(C):
    """What products, sums and quotients lost, against rationals."""
    rng = np.random.default_rng(7)
    a, b = ((rng.normal(size=2_000) * np.exp2(rng.integers(-30, 30, 2_000))).astype(C) for _ in range(2))
    q = (a / b).astype(C)
    for x, y, n, of_product, of_sum, left in zip(
        *(each.tolist() for each in (a, b, q, product_rest(a, b, a * b), sum_rest(a, b, a + b), remainder(a, b, q))),
        strict=True,
    ):
        x, y, n = Fraction(x), Fraction(y), Fraction(n)
        assert of_product == x * y - Fraction(float(C(float(x)) * C(float(y))))
        assert of_sum == x + y - Fraction(float(C(float(x)) + C(float(y))))
        assert left == x - y * n


# ---- CUDA has the same numbers: tests/host compares the bits ----

HEADERS = Path(skuda.__file__).parent / "cuda"
_NUMBER = re.compile(r"-?(?:0x[\da-f]*\.?[\da-f]*p[+-]?\d+|(?<![\w.])\d+\.\d+)")


def function_of(header: str, head: str) -> str:
    """The body of a function of a header, comments aside."""
    text = (HEADERS / header).read_text(encoding="utf-8")
    assert text.count(f"inline {head} {{") == 1, head
    return re.sub("//.*", "", re.split("\n(?:__device__|template|//)", text.split(f"inline {head} {{")[1])[0])


POLYNOMIALS = {
    "exponential_polynomial(f32 r)": elementary.F32.polynomial,
    "exponential_polynomial(f64 r)": elementary.F64.polynomial,
    "one_plus_polynomial(f32 g)": elementary.LOG_F32.polynomial,
    "logarithm_polynomial(f64 z)": elementary._LOG_F64.polynomial,
    "tanh_polynomial(f32 r)": elementary._TANH[np.float32], "tanh_polynomial(f64 r)": elementary._TANH[np.float64],
    "erf_polynomial(f32 z)": error_functions._ERF[np.float32],
    "erf_polynomial(f64 z)": error_functions._ERF[np.float64],
    "erfc_polynomial(f32 q)": error_functions._ERFC[np.float32],
    "erfc_polynomial(f64 q)": error_functions._ERFC[np.float64],
    "erf_power(f32 t)": error_functions._ERF_POWER, "ndtr_polynomial(f32 q)": error_functions._NDTR,
    "ndtr_near(f64 h)": error_functions._NDTR_NEAR[:-1],
    "power_of_two_polynomial(f32 f)": powers.EXP2_F32, "less_one_polynomial(f32 r)": powers.EXPM1_F32,
    "sine_polynomial(f32 z)": trigonometric.SINE_F32, "cosine_polynomial(f32 z)": trigonometric.COSINE_F32,
    "tangent_polynomial(f32 z)": trigonometric.TANGENT_F32, "arcsine_polynomial(f32 z)": trigonometric.ARCSINE_F32,
    "arctangent_polynomial(f32 z)": trigonometric.ARCTANGENT_F32,
    "near_one_polynomial(f32 g)": inverse_erf.NEAR_ONE_F32, "inverse_error_polynomial(f32 u)": inverse_erf.ERFINV_F32,
    "inverse_error_end(f32 u)": inverse_erf.ERFINV_END_F32,
    "slope_polynomial(f32 q)": error_functions._SLOPE[np.float32][:-1],
    "slope_polynomial(f64 q)": error_functions._SLOPE[np.float64],
}  # fmt: skip


@pytest.mark.parametrize("head", POLYNOMIALS)
def test_cuda_has_the_polynomials(head):
    headers = {"elementary.cuh": ("exp", "log", "one_plus"), "powers.cuh": ("power", "less")}
    headers["trigonometric.cuh"] = "sine", "cosine", "tangent", "arc"
    headers["inverse_erf.cuh"] = "near_one", "inverse"
    header = next((name for name, heads in headers.items() if head.startswith(heads)), "erf.cuh")
    word = head.partition("(")[2][:3]
    found = [float.fromhex(each) if "0x" in each else float(each) for each in _NUMBER.findall(
        function_of(header, f"{word} {head}"))]  # fmt: skip
    assert found == list(POLYNOMIALS[head])
    C = np.dtype(word.replace("f", "float")).type
    assert all(float(C(each)) == each for each in found)


@pytest.mark.parametrize(("word", "steps"), [("f32", elementary.F32), ("f64", elementary.F64)])
def test_cuda_has_the_constants_of_exp(word, steps):
    C = np.dtype(word.replace("f", "float")).type
    heads = (f"reduced({word} x, {word} k)", f"exponential_power({word} x)", f"exponential({word} x)")
    text = "".join(function_of("elementary.cuh", f"{word} {head}").partition("}\n")[0] for head in heads)
    found = {abs(float.fromhex(each) if "0x" in each else float(each)) for each in _NUMBER.findall(text)}
    assert found == {-steps.low, steps.high, steps.integer, float(C(steps.log2e)), *steps.ln2}


@pytest.mark.parametrize(("word", "steps"), [("f32", elementary.LOG_F32), ("f64", elementary._LOG_F64)])
def test_cuda_has_the_constants_of_log(word, steps):
    header = (HEADERS / "elementary.cuh").read_text(encoding="utf-8")
    for part, value in zip(("high", "low"), steps.ln2, strict=True):
        line = re.search(rf"ln2_{part}\({word}\) {{ return (0x[\da-f.]+p[+-]\d+)", header)
        assert float.fromhex(line[1]) == value
