"""Elementary functions in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/elementary.cuh, and erf.cuh for erf and what follows, is the same text in C++: products and sums of two,
each rounded once, and in f32 fused multiply-adds, which are computed here through f64 (a product of two f32 is exact
there).
"""

from __future__ import annotations

import numpy as np

_hex = float.fromhex
_SQRT_HALF = _hex("0x1.6a09e6p-1")


class _Exp:
    """e^x = 2^k e^r: r = x - k ln 2, e^r = 1 + r + r^2 P(r) by a near-minimax polynomial P."""

    def __init__(self, low: float, high: float, integer: str, ln2: tuple[str, str], polynomial: tuple[str, ...]):
        self.low, self.high = low, high  # beyond, the result is 0 or infinite
        self.integer = _hex(integer)  # added and subtracted: rounds to an integer
        self.log2e = _hex("0x1.71547652b82fep+0")
        self.ln2 = tuple(map(_hex, ln2))  # the first part times k is exact
        self.polynomial = tuple(map(_hex, polynomial))  # highest power first


_F32 = _Exp(
    -104.5,
    89.0,
    "0x1.8p23",
    ("0x1.62e4p-1", "0x1.7f7d1cp-20"),
    ("0x1.6d117ap-10", "0x1.120bdep-7", "0x1.555518p-5", "0x1.5554dcp-3", "0x1p-1"),
)
_F64 = _Exp(
    -746.0,
    710.0,
    "0x1.8p52",
    ("0x1.62e42fefap-1", "0x1.cf79abc9e3b3ap-40"),
    ("0x1.1f733f411b727p-29", "0x1.af4e5274a366cp-26", "0x1.27e4db47938d1p-22", "0x1.71de01ff19a6bp-19",
     "0x1.a01a01a6e1a43p-16", "0x1.a01a01abf7ed6p-13", "0x1.6c16c16c162c3p-10", "0x1.11111111100bep-7",
     "0x1.5555555555556p-5", "0x1.5555555555557p-3", "0x1p-1"),
)  # fmt: skip


def fma32(a, b, c):
    """a * b + c of f32, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = np.asarray(product + c)
    # What the sum in f64 lost decides ties in f32: where it lost something, its last bit is made 1 (round to odd).
    other = total - product
    lost = (product - (total - other)) + (c - other)
    inexact = (lost != 0) & np.isfinite(total)
    bits = total.view(np.int64) - (inexact & ((lost > 0) != (total > 0)))
    return (bits | inexact).view(np.float64).astype(np.float32)


def exp(x):
    """e^x of f32 or f64, within 1 unit in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives inf, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    by = _F32 if C is np.float32 else _F64
    y, power = _exp(np.clip(x, C(by.low), C(by.high)), by)
    half = power >> 1
    return y * np.ldexp(C(1), half) * np.ldexp(C(1), power - half)


def _step_of(C):
    """a * b + c: rounded once in f32, twice in f64."""
    return fma32 if C is np.float32 else lambda a, b, c: a * b + c


def _polynomial(coefficients: tuple[float, ...], x) -> np.ndarray:
    """By Horner's rule, highest power first."""
    C, step = x.dtype.type, _step_of(x.dtype.type)
    p = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        p = step(p, x, C(coefficient))
    return p


def _exp(x, by: _Exp) -> tuple[np.ndarray, np.ndarray]:
    """(y, power): e^x = y * 2^power for an x within the bounds."""
    C, step = x.dtype.type, _step_of(x.dtype.type)
    k = step(x, C(by.log2e), C(by.integer)) - C(by.integer)
    r = step(k, C(-by.ln2[1]), x - k * C(by.ln2[0]))
    p = _polynomial(by.polynomial, r)
    y = step(step(p, r, C(1)), r, C(1)) if C is np.float32 else (r * r * p + r) + C(1)
    return y, np.where(np.isnan(k), C(0), k).astype(np.int64)


class _Log:
    """log x = k ln 2 + log m with m in [sqrt(1/2), sqrt(2)): f = m - 1, s = f / (2 + f), and
    log m = f - (f^2 / 2 - s (f^2 / 2 + s^2 P(s^2))), P near-minimax (the form of fdlibm's log)."""

    def __init__(self, ln2: tuple[str, str], polynomial: tuple[str, ...]):
        self.ln2 = tuple(map(_hex, ln2))  # the first part times k is exact
        self.polynomial = tuple(map(_hex, polynomial))  # highest power first


_LOG_F32 = _Log(
    ("0x1.62e4p-1", "0x1.7f7d1cp-20"), ("0x1.ddd04ep-3", "0x1.245c3cp-2", "0x1.9999ecp-2", "0x1.555556p-1")
)
_LOG_F64 = _Log(
    ("0x1.62e42feep-1", "0x1.a39ef35793c76p-33"),
    ("0x1.0c0569de6604dp-3", "0x1.0fbe69b2a187bp-3", "0x1.3b1c370092383p-3", "0x1.745cf8fccb602p-3",
     "0x1.c71c72016baf2p-3", "0x1.2492492476c24p-2", "0x1.9999999999a38p-2", "0x1.5555555555555p-1"),
)  # fmt: skip


def log(x):
    """The natural logarithm of f32 or f64, within 0.9 units in the last place.

    NaN gives NaN, 0 gives -inf, below 0 gives NaN, inf gives inf.
    """
    x = np.asarray(x)
    by = _LOG_F32 if x.dtype == np.float32 else _LOG_F64
    C = x.dtype.type
    m, k = np.frexp(x)  # m in [1/2, 1)
    low = m < C(_SQRT_HALF)
    f = np.where(low, m + m, m) - C(1)
    power = (k - low).astype(x.dtype)
    half = C(0.5) * f * f
    s = f / (C(2) + f)
    z = s * s
    p = np.full_like(z, by.polynomial[0])
    for coefficient in by.polynomial[1:]:
        p = p * z + C(coefficient)
    rest = s * (half + z * p) + power * C(by.ln2[1])
    value = power * C(by.ln2[0]) - ((half - rest) - f)
    value = np.where(x == 0, C(-np.inf), np.where(x < 0, C(np.nan), value))
    return np.where(np.isnan(x) | (x == C(np.inf)), x, value)


class _Erf:
    """erfc x = e^(-x^2) T(q) / (x + c) for x >= 0, with q = (x - c) / (x + c), and erf x = x + x N(x^2) near 0; T and N
    near-minimax."""

    def __init__(self, end: float, middle: float, raised: int, tail: tuple[str, ...], near: tuple[str, ...]):
        self.end = end  # erfc is 0 from here on
        self.middle = middle
        self.raised = raised  # e^(-x^2) times this power of two is a normal number
        self.tail, self.near = tuple(map(_hex, tail)), tuple(map(_hex, near))  # highest power first


_NEAR = 0.9  # up to here erf is by its own polynomial
_ERF_F32 = _Erf(
    11.0, 3.0, 64,
    ("-0x1.5bfbcp-12", "-0x1.02cdbp-11", "0x1.93fc7ep-9", "-0x1.3f4726p-10", "-0x1.b7ba1p-6",
     "0x1.e9950cp-4", "-0x1.3deae4p-2", "0x1.2e326ep-1", "-0x1.c44c48p-1", "0x1.12f21ep+0"),
    ("0x1.65bfcp-14", "-0x1.acd92ap-11", "0x1.55107p-8", "-0x1.b815ccp-6", "0x1.ce2e5cp-4",
     "-0x1.812744p-2", "0x1.06eba8p-3"),
)  # fmt: skip
_ERF_F64 = _Erf(
    28.0, 4.0, 512,
    ("0x1.f36d8f26067d6p-31", "-0x1.5e243bcb5bcdp-31", "-0x1.055c642430266p-26", "0x1.d16930edb8c31p-29",
     "0x1.0a395a44d8d18p-23", "-0x1.534dbf9f8d75fp-24", "-0x1.c6596b17a2096p-21", "0x1.7f048f4ea1fbdp-20",
     "0x1.3b0cf5024bf2dp-18", "-0x1.3c7440d5e91e8p-16", "-0x1.e7ebd7777a24ep-19", "0x1.72cddbdba093ap-13",
     "-0x1.dd2843b0c3d54p-12", "-0x1.269b5709946d1p-12", "0x1.908f471ffe9afp-8", "-0x1.b00c0529fc336p-6",
     "0x1.38dbd2c8e8e74p-4", "-0x1.645fd8a4c08c6p-3", "0x1.52cac23710011p-2", "-0x1.14eacb1ad02b6p-1",
     "0x1.8be202d26c708p-1", "-0x1.f3fe31ecb49cp-1", "0x1.18932bf08e154p+0"),
    ("-0x1.d2f667da9b81bp-31", "0x1.e2ce2646d66cbp-27", "-0x1.5d8926e69e361p-23", "0x1.b9b82879bf4f3p-20",
     "-0x1.f4cf6a5de9cf3p-17", "0x1.f9a307176ef13p-14", "-0x1.c02db31c72a35p-11", "0x1.565bcd0a60cdcp-8",
     "-0x1.b82ce31273114p-6", "0x1.ce2f21a042822p-4", "-0x1.812746b0379e3p-2", "0x1.06eba8214db69p-3"),
)  # fmt: skip


def erfc(x):
    """1 - erf(x) of f32 or f64, within 6 units in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives 0, -inf gives 2.
    """
    x = np.asarray(x)
    C, step = x.dtype.type, _step_of(x.dtype.type)
    by, base = (_ERF_F32, _F32) if C is np.float32 else (_ERF_F64, _F64)
    size = np.minimum(np.abs(x), C(by.end))
    square = size * size
    part = C(1) / (size + C(by.middle))
    smooth = _polynomial(by.tail, (size - C(by.middle)) * part) * part
    exact = step(smooth, -_square_rest(size, square), smooth)
    y, power = _exp(-square, base)
    value = y * np.ldexp(C(1), power + by.raised) * exact * np.ldexp(C(1), -by.raised)
    return np.where(x < 0, C(2) - value, value)


def erf(x):
    """The error function of f32 or f64, within 1.5 units in the last place.

    NaN gives NaN, inf gives 1, -inf gives -1; -0 keeps its sign.
    """
    x = np.asarray(x)
    C, step = x.dtype.type, _step_of(x.dtype.type)
    by = _ERF_F32 if C is np.float32 else _ERF_F64
    size = np.abs(x)
    inner = np.where(size < C(_NEAR), x, C(0))
    near = step(_polynomial(by.near, inner * inner), inner, inner)
    return np.where(size < C(_NEAR), near, np.copysign(C(1) - erfc(size), x))


_NDTR_MIDDLE = _hex("0x1.4p+0")
_NDTR = tuple(map(_hex, (
    "-0x1.12a728p-26", "0x1.596614p-22", "-0x1.510124p-19", "0x1.e58e92p-18", "0x1.1a4f0ep-15",
    "-0x1.1bbf3cp-11", "0x1.099e34p-8", "-0x1.849e56p-6", "-0x1.31ba14p-1", "-0x1.3f4072p+1", "-0x1.9f0ec6p+1",
)))  # fmt: skip
_EXP2 = tuple(map(_hex, (
    "0x1.5bba14p-10", "0x1.3cea88p-7", "0x1.c6b752p-5", "0x1.ebf9bcp-3", "0x1.62e42ap-1",
)))  # fmt: skip
_SLOPE_END = _hex("0x1.776p+3")
_SLOPE = tuple(map(_hex, (
    "0x1.271e3p-26", "-0x1.825b9p-22", "0x1.9ed54cp-19", "-0x1.b701bp-17", "0x1.ce8baap-17", "0x1.97af5cp-13",
    "-0x1.bcf628p-10", "0x1.22cff8p-7", "-0x1.20ff6ap-5", "-0x1.c763ap-1", "-0x1.61bcp+1", "-0x1.2938a8p+0",
)))  # fmt: skip


def _two_to(power):
    """2 to a power from -127 on, where it is taken for 0."""
    C = power.dtype.type
    whole = power + C(_F32.integer) - C(_F32.integer)
    rest = power - whole
    value = fma32(rest, _polynomial(_EXP2, rest), C(1))
    return value * np.where(whole < -126, C(0), np.exp2(np.where(np.isnan(whole), C(0), whole)))


def ndtr(x):
    """The normal distribution below x, of f32 or f64: within 8 + 2 x^2 units in the last place, in f32 down to -5.9;
    below that, where it is less than 2^-29, within 2^-45.

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    if C is np.float64:
        return C(0.5) * erfc(C(-_hex("0x1.6a09e667f3bcdp-1")) * x)
    power = np.maximum(_polynomial(_NDTR, np.abs(x) - C(_NDTR_MIDDLE)), C(-127))  # log2 of what is below -|x|
    value = _two_to(power)
    return np.where(x < 0, value, C(1) - value)


def gelu_slope(x):
    """The derivative of x ndtr(x), of f32 or f64: in f32 within 2^-20, from -1 down to -5.9 within 8 + 4 x^2 units in
    the last place, and below that within 2^-40. In f64 it is ndtr(x) + x e^(-x^2 / 2) / sqrt(2 pi).

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    if C is np.float64:
        x = np.minimum(np.maximum(x, C(-40)), C(40))
        return ndtr(x) + x * (C(0.3989422804014327) * exp(C(-0.5) * (x * x)))
    u = np.minimum(np.abs(x), C(_SLOPE_END)) - C(_NDTR_MIDDLE)
    value = _two_to(_polynomial(_NDTR, u)) * _polynomial(_SLOPE, u)
    return np.where(x < 0, value, C(1) - value)


def sigmoid(x):
    """1 / (1 + e^-x) of f32 or f64, within 3 units in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    end, by, base = (110.0, _ERF_F32, _F32) if C is np.float32 else (760.0, _ERF_F64, _F64)
    y, power = _exp(-np.minimum(np.abs(x), C(end)), base)
    decay, lower = y * np.ldexp(C(1), power + by.raised), np.ldexp(C(1), -by.raised)
    share = C(1) / (C(1) + decay * lower)
    return np.where(x < 0, decay * share * lower, share)


def _square_rest(x, square):
    """What a square lost where it was rounded."""
    if x.dtype == np.float32:
        return fma32(x, x, -square)
    high = (x.view(np.int64) & ~0x7FFFFFF).view(np.float64)  # its square is exact, and so is that product with the rest
    low = x - high
    return ((high * high - square) + 2 * high * low) + low * low
