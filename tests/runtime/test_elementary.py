"""Functions in common steps: how far off they are, what they do at the ends, and that CUDA has the same numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

import skuda
from skuda import elementary
from skuda.elementary import erf, erfc, exp, fma32, gelu_slope, log, ndtr, sigmoid

TYPES = [np.float32, np.float64]
INF, NAN = np.inf, np.nan
LOW = {np.float32: -103.98, np.float64: -745.14}  # e^x is just below half the smallest subnormal, and 0.02 higher not
HIGH = {np.float32: 88.73, np.float64: 709.79}


def every_exponent(C, count: int, rng: np.random.Generator) -> np.ndarray:
    """Positive finite values, spread over all bit patterns."""
    kind, most = (np.uint32, 0x7F80_0000) if C is np.float32 else (np.uint64, 0x7FF0_0000_0000_0000)
    even = (np.arange(count // 2, dtype=np.uint64) * np.uint64(most // (count // 2))).astype(kind)
    return np.concatenate([even, rng.integers(0, most, count // 2).astype(kind)]).view(C)


def between(rng: np.random.Generator, most: int, count: int) -> np.ndarray:
    """Near (k + 1/2) ln 2, where the remainder of an exponential is largest."""
    return (rng.integers(-most, most, count) + 0.5 + rng.normal(0, 0.02, count)) * np.log(2)


def off_of_f32(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distances in units in the last place of f32 from values that are exact to far below one."""
    unit = np.ldexp(1.0, np.maximum(np.frexp(exact)[1] - 24, -149))
    return np.abs(got.astype(np.float64) - exact) / unit


def exact_f64(function, x: np.ndarray):
    """A function of f64 in f64 arithmetic, whose last bits do not matter to f32; checked against mpmath below."""
    with np.errstate(all="ignore"):
        return function(x.astype(np.float64))


def test_exp_of_f32_is_within_its_bound():
    rng = np.random.default_rng(1)
    x = np.concatenate([
        every_exponent(np.float32, 800_000, rng), -every_exponent(np.float32, 800_000, rng),
        np.linspace(-104, 88.7228, 800_000, dtype=np.float32),
        rng.uniform(-88, 88, 200_000).astype(np.float32), between(rng, 125, 400_000).astype(np.float32),
    ])  # fmt: skip
    assert x.size >= 2_000_000
    with np.errstate(all="ignore"):
        got = exp(x)
    assert got.dtype == np.float32
    exact = exact_f64(np.exp, x)
    over = exact >= 2.0**128 * (1 - 2.0**-25)
    assert (got[over] == INF).all() and np.isfinite(got[~over]).all()
    assert off_of_f32(got[~over], exact[~over]).max() <= 1


def test_log_of_f32_is_within_its_bound():
    rng = np.random.default_rng(2)
    near_one = np.float32(1) + np.arange(-50_000, 50_000, dtype=np.float32) * np.float32(2**-23)
    x = np.concatenate([every_exponent(np.float32, 800_000, rng)[1:], near_one, np.linspace(0.5, 2, 400_000)])
    x = x.astype(np.float32)
    x = x[x > 0]
    got = log(x)
    assert got.dtype == np.float32
    assert off_of_f32(got, exact_f64(np.log, x)).max() <= 0.9


@pytest.mark.parametrize("name", ["exp", "log"])
def test_the_witness_of_f32_is_exact_enough(name):
    """NumPy's f64 functions are within 2^-45 of mpmath's: no more than 2^-21 units of f32."""
    x = np.random.default_rng(3).uniform(-100, 88, 300)
    x = np.exp(x) if name == "log" else x
    with mpmath.workprec(120):
        for each, got in zip(x.tolist(), getattr(np, name)(x).tolist(), strict=True):
            assert abs(getattr(mpmath, name)(each) / got - 1) < 2.0**-45


@pytest.mark.parametrize("name", ["exp", "log"])
def test_f64_is_within_its_bound(name):
    rng = np.random.default_rng(4)
    if name == "exp":
        x = [rng.uniform(-745.2, 709.7, 10_000), rng.normal(0, 1, 6_000), rng.uniform(-745.2, -707, 1_000)]
        x += [sign * every_exponent(np.float64, 6_000, rng) for sign in (1, -1)] + [between(rng, 1000, 15_000)]
        x = np.concatenate(x)
        x = x[(x < 709.78) & (x > -746)]
    else:
        x = np.concatenate([every_exponent(np.float64, 12_000, rng), rng.uniform(0.5, 2, 9_000)])
        x = x[x > 0]
    assert x.size >= 20_000
    with np.errstate(all="ignore"):
        got = getattr(elementary, name)(x)
    worst = 0.0
    function = getattr(mpmath.libmp, f"mpf_{name}")
    with mpmath.workprec(110):
        for each, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = mpmath.mp.make_mpf(function(mpmath.libmp.from_float(each), 110))
            exponent = mpmath.frexp(exact)[1] if exact else -2000
            unit = mpmath.ldexp(1, max(int(exponent) - 53, -1074))
            worst = max(worst, float(abs(exact - value) / unit))
    assert worst <= 1


BOUNDS = {"erf": 1.5, "erfc": 6}  # units in the last place


@pytest.mark.parametrize("name", BOUNDS)
def test_erf_of_f32_is_within_its_bound(name):
    """Against libm in f64, which is checked against mpmath below."""
    rng = np.random.default_rng(7)
    x = np.concatenate([
        rng.uniform(-5, 10.2, 60_000), rng.normal(0, 1, 40_000), np.linspace(0.89, 0.91, 2_000),
        rng.uniform(9, 10.1, 5_000), np.linspace(-1e-3, 1e-3, 2_000), every_exponent(np.float32, 20_000, rng),
    ]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        got = getattr(elementary, name)(x)
    assert got.dtype == np.float32
    exact = np.array([getattr(math, name)(each) for each in x.tolist()])
    assert off_of_f32(got, exact).max() <= BOUNDS[name]


@pytest.mark.parametrize("name", BOUNDS)
def test_erf_of_f64_is_within_its_bound(name):
    rng = np.random.default_rng(8)
    x = np.concatenate([
        rng.uniform(-6, 27.3, 2_500), rng.normal(0, 1, 1_500), np.linspace(0.89, 0.91, 200), rng.uniform(26, 27.3, 400),
        rng.uniform(-1, 1, 500) * 2.0 ** rng.integers(-900, 0, 500),
    ])  # fmt: skip
    with np.errstate(all="ignore"):
        got = getattr(elementary, name)(x)
    worst = witness = 0.0
    with mpmath.workprec(110):
        for each, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = getattr(mpmath, name)(each)
            unit = mpmath.ldexp(1, max(int(mpmath.frexp(exact)[1]) - 53, -1074))
            worst = max(worst, float(abs(exact - value) / unit))
            witness = max(witness, float(abs(exact - getattr(math, name)(each)) / unit))
    assert worst <= BOUNDS[name]
    assert witness < 2**10  # far below a unit of f32


def test_the_normal_distribution_in_f32_is_within_its_bound():
    rng = np.random.default_rng(10)
    x = np.concatenate([
        rng.uniform(-6.5, 6, 60_000), rng.normal(0, 1, 40_000), np.linspace(-1e-3, 1e-3, 2_000),
        rng.uniform(-14, -5.9, 5_000), -every_exponent(np.float32, 20_000, rng),
        every_exponent(np.float32, 20_000, rng),
    ]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        got = ndtr(x)
        exact = np.array([math.erfc(-each / math.sqrt(2)) / 2 for each in x.tolist()])
        most = 8 + 2 * np.square(x.astype(np.float64))
    assert got.dtype == np.float32
    low = x < -5.9
    assert (off_of_f32(got[~low], exact[~low]) <= most[~low]).all()
    assert np.abs(got[low] - exact[low]).max() <= 2.0**-45


def test_the_slope_of_gelu_in_f32_is_within_its_bound():
    rng = np.random.default_rng(14)
    x = np.concatenate([
        rng.uniform(-6.5, 6, 60_000), rng.normal(0, 1, 40_000), rng.normal(-0.7518, 1e-3, 5_000),
        rng.uniform(-14, -5.9, 5_000), -every_exponent(np.float32, 20_000, rng),
        every_exponent(np.float32, 20_000, rng),
    ]).astype(np.float32)  # fmt: skip
    with np.errstate(all="ignore"):
        got = gelu_slope(x)
        wide = x.astype(np.float64)
        density = np.exp(-0.5 * wide * wide) / math.sqrt(2 * math.pi)
        exact = np.array([math.erfc(-each / math.sqrt(2)) / 2 for each in x.tolist()]) + wide * density
    assert got.dtype == np.float32
    low, tail = x < -5.9, (x >= -5.9) & (x < -1)
    assert np.abs(got[~low] - exact[~low]).max() <= 2.0**-20
    assert (off_of_f32(got[tail], exact[tail]) <= 8 + 4 * np.square(wide[tail])).all()
    assert np.abs(got[low] - exact[low]).max() <= 2.0**-40


@pytest.mark.parametrize("C", TYPES)
def test_the_ends_of_the_slope_of_gelu(C):
    info = np.finfo(C)
    with np.errstate(all="ignore"):
        assert gelu_slope(np.array([INF, -INF, info.max, -info.max, 40, -40], C)).tolist() == [1, 0] * 3
        assert np.isnan(gelu_slope(C(NAN)))
        np.testing.assert_allclose(gelu_slope(np.array([0, -0.0, info.tiny], C)), 0.5, rtol=8 * info.eps)


def test_the_normal_distribution_in_f64_is_within_its_bound():
    rng = np.random.default_rng(11)
    x = np.concatenate([rng.uniform(-37, 9, 1_000), rng.normal(0, 1, 1_000)])
    with mpmath.workprec(120):
        for each, value in zip(x.tolist(), ndtr(x).tolist(), strict=True):
            exact = mpmath.ncdf(each)
            unit = mpmath.ldexp(1, max(int(mpmath.frexp(exact)[1]) - 53, -1074))
            assert abs(exact - value) <= (8 + 2 * each * each) * unit


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
def test_sigmoid_is_within_its_bound(C):
    rng = np.random.default_rng(12)
    least = {np.float32: -104, np.float64: -745.5}[C]
    x = np.concatenate([rng.uniform(least, 40, 2_000), rng.normal(0, 2, 2_000), rng.uniform(least, least * 0.85, 500)])
    x = x.astype(C)
    bits, unit_least = (24, -149) if C is np.float32 else (53, -1074)
    with np.errstate(all="ignore"):
        got = sigmoid(x)
    with mpmath.workprec(120):
        for each, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
            unit = mpmath.ldexp(1, max(int(mpmath.frexp(exact)[1]) - bits, unit_least))
            assert abs(exact - value) <= 3 * unit
    with np.errstate(all="ignore"):
        ends = sigmoid(np.array([0, -0.0, INF, -INF, 1e30, -1e30, least - 1], C))
        assert ends.tolist() == [0.5, 0.5, 1, 0, 1, 0, 0] and np.isnan(sigmoid(C(NAN)))


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
    x = np.sort(np.random.default_rng(9).uniform(-4, 26 if C is np.float64 else 9, 20_000).astype(C))
    assert (np.diff(erf(x)) >= 0).all()
    assert (np.diff(erfc(x)) <= 8 * info.eps * np.abs(erfc(x[1:]))).all()  # as far as its bound lets it rise


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


@pytest.mark.parametrize("C", TYPES)
def test_neither_function_ever_falls_over_a_longer_step(C):
    """Over steps of two units and more of the result a function that is within 1 of them rises."""
    x = np.sort(np.random.default_rng(5).uniform(-80, 80, 100_000).astype(C))
    with np.errstate(all="ignore"):
        assert (np.diff(exp(np.unique(x))) > 0).mean() > 0.98
        assert (np.diff(exp(x)) >= 0).all()
        assert (np.diff(log(np.exp(x.astype(np.float64)).astype(C))) >= 0).all()


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


# ---- CUDA has the same numbers ----

_NUMBER = re.compile(r"0x[\da-f]*\.?[\da-f]*p[+-]?\d+(f?)|(?<![\w.])\d+\.\d+(f?)")


def constants(text: str) -> dict[bool, set[float]]:
    """Hexadecimal and decimal floating-point constants of a C++ text: {whether f32: values}."""
    found: dict[bool, set[float]] = {True: set(), False: set()}
    for match in _NUMBER.finditer(text):
        word = match.group().removesuffix("f")
        found[bool(match[1] or match[2])].add(float.fromhex(word) if word.startswith("0x") else float(word))
    return found


def body(text: str, head: str) -> str:
    """A function of the header, from its head to the brace at a line's start."""
    assert text.count(head) == 1, head
    return text.split(head)[1].split("\n}")[0].split("\n__device__")[0]


@pytest.mark.parametrize(("word", "steps"), [("f32", elementary._F32), ("f64", elementary._F64)])
def test_cuda_has_the_constants_of_exp(word, steps):
    header = (Path(skuda.__file__).parent / "cuda" / "elementary.cuh").read_text(encoding="utf-8")
    heads = (f"exponential_near({word} x, {word} k)", f"exponential_power({word} x)", f"exponential({word} x)")
    text = "".join(body(header, f"inline {word} {head} {{") for head in heads)
    found = constants(text)
    assert not found[word != "f32"]
    C = np.dtype(word.replace("f", "float")).type
    numbers = {-steps.low, steps.high, steps.integer, float(C(steps.log2e)), *steps.ln2, *steps.polynomial, 1.0}
    assert found[word == "f32"] == numbers
    polynomial = [float.fromhex(each) for each in re.findall(r"\bp = .*?(0x[\da-f.]+p[+-]\d+)", text)]
    assert polynomial == list(steps.polynomial)  # in this order
    assert all(float(C(each)) == each for each in (*steps.polynomial, *steps.ln2))


@pytest.mark.parametrize(("word", "steps"), [("f32", elementary._LOG_F32), ("f64", elementary._LOG_F64)])
def test_cuda_has_the_constants_of_log(word, steps):
    header = (Path(skuda.__file__).parent / "cuda" / "elementary.cuh").read_text(encoding="utf-8")
    text = body(header, f"inline {word} logarithm_polynomial({word} z) {{")
    polynomial = [float.fromhex(each) for each in re.findall(r"(0x[\da-f.]+p[+-]\d+)", text)]
    assert polynomial == list(steps.polynomial)
    for part, value in zip(("high", "low"), steps.ln2, strict=True):
        line = re.search(rf"ln2_{part}\({word}\) {{ return (0x[\da-f.]+p[+-]\d+)", header)
        assert float.fromhex(line[1]) == value
    C = np.dtype(word.replace("f", "float")).type
    assert all(float(C(each)) == each for each in (*steps.polynomial, *steps.ln2))


@pytest.mark.parametrize(("word", "steps"), [("f32", elementary._ERF_F32), ("f64", elementary._ERF_F64)])
def test_cuda_has_the_constants_of_erf(word, steps):
    header = (Path(skuda.__file__).parent / "cuda" / "erf.cuh").read_text(encoding="utf-8")
    for head, polynomial in ((f"erfc_polynomial({word} q)", steps.tail), (f"erf_polynomial({word} z)", steps.near)):
        text = body(header, f"inline {word} {head} {{")
        found = [float.fromhex(each) for each in re.findall(r"(-?0x[\da-f.]+p[+-]\d+)", text)]
        assert found == list(polynomial)
        assert constants(text)[word != "f32"] == set()
    end = 110.0 if word == "f32" else 760.0
    for head, value in (("erfc_end", steps.end), ("erfc_middle", steps.middle), ("logistic_end", end)):
        line = re.search(rf"inline {word} {head}\({word}\) {{ return ([\d.]+)f?;", header)
        assert float(line[1]) == value
    assert constants(body(header, f"inline {word} lowered({word} x) {{")) == {
        word == "f32": {2.0**-steps.raised}, word != "f32": set()
    }  # fmt: skip
    bits = re.search(r"0x[\da-f]{8,}", body(header, f"inline {word} raised_exponential({word} x) {{"))[0]
    bias, fraction = (127, 23) if word == "f32" else (1023, 52)
    assert int(bits, 16) == steps.raised + bias << fraction
    assert f"if (absolute(x) < C({elementary._NEAR}))" in header
    C = np.dtype(word.replace("f", "float")).type
    assert all(float(C(each)) == each for each in (*steps.tail, *steps.near))


def test_cuda_has_the_constants_of_the_normal_distribution():
    header = (Path(skuda.__file__).parent / "cuda" / "erf.cuh").read_text(encoding="utf-8")
    polynomials = {"ndtr": elementary._NDTR, "exp2": elementary._EXP2, "slope": elementary._SLOPE}
    for head, polynomial in polynomials.items():
        text = body(header, f"inline f32 {head}_polynomial(f32 {'r' if head == 'exp2' else 'u'}) {{")
        assert [float.fromhex(each) for each in re.findall(r"(-?0x[\da-f.]+p[+-]\d+)f", text)] == list(polynomial)
        assert all(float(np.float32(each)) == each for each in polynomial)
    text = body(header, "inline f32 normal_below(f32 x) {")
    assert constants(text)[True] == {elementary._NDTR_MIDDLE, 127.0, 1.0, 0.0}
    text = body(header, "inline f32 two_to(f32 power) {")
    assert constants(text)[True] == {elementary._F32.integer, 1.0}
    text = body(header, "inline f32 gelu_slope(f32 x) {")
    assert constants(text)[True] == {elementary._NDTR_MIDDLE, elementary._SLOPE_END, 1.0, 0.0}
