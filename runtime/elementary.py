"""Elementary functions in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/elementary.cuh is the same text in C++: products and sums of two, each rounded once, and in f32 fused
multiply-adds, which are computed here through f64 (a product of two f32 is exact there).
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
    if x.dtype == np.float32:
        return _exp(x, _F32, fma32)
    return _exp(x, _F64, lambda a, b, c: a * b + c)


def _exp(x, by: _Exp, fma) -> np.ndarray:
    C = x.dtype.type
    bounded = np.clip(x, C(by.low), C(by.high))
    k = fma(bounded, C(by.log2e), C(by.integer)) - C(by.integer)
    r = fma(k, C(-by.ln2[1]), bounded - k * C(by.ln2[0]))
    p = np.full_like(r, by.polynomial[0])
    for coefficient in by.polynomial[1:]:
        p = fma(p, r, C(coefficient))
    y = fma(fma(p, r, C(1)), r, C(1)) if C is np.float32 else (r * r * p + r) + C(1)
    power = np.where(np.isnan(k), C(0), k).astype(np.int64)
    half = power >> 1
    return y * np.ldexp(C(1), half) * np.ldexp(C(1), power - half)


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
