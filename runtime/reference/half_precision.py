"""Elementary functions as precise as f16 and bf16: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU
have in common.

runtime/cuda/half_precision.cuh and half_erf.cuh are the same text in C++. Each function is 2^u, with u = k + f, k an
integer and f at most 1/2: 2^f is a short polynomial P with P(0) = 1 and P(1/2) = 2 P(-1/2), so that it rises where u
does.
"""

from __future__ import annotations

import numpy as np

from skuda.model.records import Record
from skuda.reference.elementary import F32, fma32, integer, polynomial

_C = np.float32
_LOG2E = _C(F32.log2e)
_ROUNDER = _C(F32.integer)
_SQRT2 = _C(float.fromhex("0x1.6a09e6p+0"))


def coefficients(text: str) -> tuple[float, ...]:
    """Those of a polynomial, in hexadecimal, highest power first."""
    return tuple(map(float.fromhex, text.split()))


class Steps(Record):
    """The polynomials of a type, highest power first, and where what they give ends.

    Attributes:
        power: 2^f.
        rise: (2^f - 1) / f.
        ndtr: log2(2 ndtr(-t)) / t.
        ndtr_end: ndtr(-t) is 0 from this t on.
        ndtr_lift: see `_lifted`; that ends at this t.
        slope: log2(S(t) / S(0)) / t with S(t) = gelu_slope(-t) / (x0 - t), x0 its zero.
        slope_end: gelu_slope(-t) is 0 from this t on.
        slope_lift: see `_lifted`.
    """

    power: tuple[float, ...]
    rise: tuple[float, ...]
    ndtr: tuple[float, ...]
    ndtr_end: float
    ndtr_lift: int
    slope: tuple[float, ...]
    slope_end: float
    slope_lift: int


STEPS = {
    "f16": Steps(
        power=coefficients("0x1.3c8b1ep-7 0x1.ca69b4p-5 0x1.ebfd9ep-3 0x1.62e048p-1 0x1p+0"),
        rise=coefficients("0x1.3afc7ap-7 0x1.c976a8p-5 0x1.ebfe68p-3 0x1.62e2d4p-1"),
        ndtr=coefficients("0x1.a2c0c6p-16 -0x1.51970cp-11 0x1.e510c4p-8 -0x1.a8427cp-5 -0x1.d77e46p-2 -0x1.268ffp+0"),
        ndtr_end=12.0,
        ndtr_lift=-25,
        slope=coefficients(
            "-0x1.664a12p-18 0x1.30424ap-13 -0x1.bca2ap-10 0x1.74e2e2p-7 -0x1.99293p-5 -0x1.20bdfep-1 -0x1.87a242p-2"
        ),
        slope_end=12.0,
        slope_lift=-11,
    ),
    "bf16": Steps(
        power=coefficients("0x1.c29bd8p-5 0x1.f00c88p-3 0x1.62f608p-1 0x1p+0"),
        rise=coefficients("0x1.c89c94p-5 0x1.eff45cp-3 0x1.62dd12p-1"),
        ndtr=coefficients(
            "0x1.5ab894p-26 -0x1.731ee6p-20 0x1.545002p-15 -0x1.6060bcp-11 0x1.cc55e4p-8 -0x1.970d2p-5 -0x1.db43fep-2 "
            "-0x1.2613acp+0"
        ),
        ndtr_end=14.55,
        ndtr_lift=30,
        slope=coefficients(
            "-0x1.9b5462p-29 0x1.d215acp-23 -0x1.c54a22p-18 0x1.f0885cp-14 -0x1.52de94p-10 0x1.2ec69ap-7 "
            "-0x1.6e0944p-5 -0x1.23ab46p-1 -0x1.8595bp-2"
        ),
        slope_end=14.71,
        slope_lift=30,
    ),
}
_LOGISTIC_ENDS = _C(-108.8), _C(30)  # it is 0 up to the first, 1 from the second on
_LOGISTIC_LIFT = -60  # both parts of 1 + e^-x are lowered by this power of two
_TANH_END = _C(9.5)  # tanh is 1 from here on
# a t = b at the zero of gelu_slope(-t), to 2^-44 of it; S(0) / b.
_ZERO = tuple(map(_C, coefficients("0x1.0006fcp+0 0x1.80f552p-1 0x1.547bdp-1")))


def exp(x, T: str):
    """e^x of f32; subnormal results are rounded once more. NaN gives NaN, inf gives inf, -inf gives 0."""
    x = np.asarray(x)
    y, k = _power(np.clip(x, _C(F32.low), _C(F32.high)), _LOG2E, T)
    k = integer(k)
    half = k >> 1
    return y * np.ldexp(_C(1), half) * np.ldexp(_C(1), k - half)


def sigmoid(x, T: str):
    """1 / (1 + e^-x) of f32. NaN gives NaN, inf gives 1, -inf gives 0."""
    x = np.asarray(x)
    y, k = _power(np.clip(x, *_LOGISTIC_ENDS), -_LOG2E, T)
    one = _C(2.0**_LOGISTIC_LIFT)
    return _C(1) / fma32(y, lifted(k, _LOGISTIC_LIFT), one) * one


def tanh(x, T: str):
    """The hyperbolic tangent of f32. NaN gives NaN, inf gives 1, -inf gives -1; -0 keeps its sign."""
    x = np.asarray(x)
    t = np.minimum(np.abs(x), _TANH_END)
    k = fma32(t, _C(2) * _LOG2E, _ROUNDER) - _ROUNDER
    f = fma32(t, _C(2) * _LOG2E, -k)
    two = lifted(k, 0)
    m = fma32(two, polynomial(STEPS[T].rise, f) * f, two - _C(1))
    return np.copysign(m * (_C(1) / (m + _C(2))), x)


def ndtr(x, T: str):
    """The normal distribution below x, of f32. NaN gives NaN, inf gives 1, -inf gives 0."""
    x, by = np.asarray(x), STEPS[T]
    t = np.minimum(np.abs(x), _C(by.ndtr_end))
    y, k = _power(t, polynomial(by.ndtr, t), T, 2.0 ** (-by.ndtr_lift - 1))
    below = y * lifted(k, by.ndtr_lift)
    return np.where(x < 0, below, _C(1) - below)


def erfc(x, T: str):
    """1 - erf(x) of f32. NaN gives NaN, inf gives 0, -inf gives 2."""
    return _C(2) * ndtr(np.asarray(x) * -_SQRT2, T)


def gelu_slope(x, T: str):
    """The derivative of x ndtr(x), of f32. NaN gives NaN, inf gives 1, -inf gives -0."""
    x, by = np.asarray(x), STEPS[T]
    t = np.minimum(np.abs(x), _C(by.slope_end))
    a, b, scale = _ZERO
    y, k = _power(t, polynomial(by.slope, t), T, scale * 2.0**-by.slope_lift)
    below = y * fma32(-a, t, b) * lifted(k, by.slope_lift)
    return np.where(x < 0, below, _C(1) - below)


def _power(a, b, T: str, unit: float = 1.0):
    """(y, k): unit * 2^(a b) = y * 2^k with an integer k."""
    k = fma32(a, b, _ROUNDER) - _ROUNDER
    scaled = tuple(_C(each) * _C(unit) for each in STEPS[T].power)
    return polynomial(scaled, fma32(a, b, -k)), k


def lifted(k, lift: int):
    """2^(k + lift) as bits: 0 where k + lift is -127, the least that may be."""
    return ((integer(k) + (127 + lift)).astype(np.int32) << 23).view(np.float32)
