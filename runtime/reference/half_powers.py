"""log, exp2 and pow as precise as f16 and bf16: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have
in common.

runtime/cuda/half_logarithm.cuh and half_powers.cuh are the same text in C++. Nothing branches: special values are
chosen at the end.
"""

from __future__ import annotations

import numpy as np

from skuda.model.records import Record
from skuda.reference.elementary import F32, fma32, polynomial
from skuda.reference.half_precision import STEPS, coefficients

_C = np.float32
_ROUNDER = _C(F32.integer)
_LN2 = _C(float.fromhex("0x1.62e43p-1"))
_SQRT_HALF = np.int32(0x3F3504F3)  # its bits
_TOO_LARGE = _C(2.0**120)  # an exponent beyond, infinities too, is taken for this


class Series(Record):
    """The polynomials of a type, highest power first.

    Attributes:
        log: log(1 + f) / f for 1 + f from sqrt(1/2) to sqrt(2).
        log2: log2(1 + f) / f.
    """

    log: tuple[float, ...]
    log2: tuple[float, ...]


SERIES = {
    "f16": Series(
        log=coefficients("-0x1.24acb6p-3 0x1.c3af9ap-3 -0x1.04214p-2 0x1.549036p-2 -0x1.ffe65ep-2 0x1.00004cp+0"),
        log2=coefficients(
            "-0x1.2c3ap-3 0x1.df4782p-3 -0x1.fd0fdep-3 0x1.25f7dp-2 -0x1.70ea9ep-2 0x1.ec77c6p-2 -0x1.71550cp-1 "
            "0x1.715474p+0"
        ),
    ),
    "bf16": Series(
        log=coefficients("0x1.69833ap-3 -0x1.157188p-2 0x1.587808p-2 -0x1.ff700ap-2 0x1.fffb8ep-1"),
        log2=coefficients(
            "0x1.5f648ap-3 -0x1.13c6p-2 0x1.2ece18p-2 -0x1.6fff6ep-2 0x1.ec294cp-2 -0x1.71569p-1 0x1.71548ep+0"
        ),
    ),
}


def log(x, T: str):
    """The natural logarithm of f32. NaN gives NaN, 0 gives -inf, below 0 gives NaN, inf gives inf."""
    x = np.asarray(x)
    f, k = mantissa(x)
    value = fma32(k, _LN2, f * polynomial(SERIES[T].log, f))
    end = np.where(x == 0, _C(-np.inf), np.where(x < 0, _C(np.nan), x))
    return np.where((x > 0) & (x < np.inf), value, end)


def exp2(x, T: str):
    """2^x of f32; subnormal results are rounded once more. NaN gives NaN, inf gives inf, -inf gives 0."""
    t = np.clip(np.asarray(x), _C(-150.5), _C(128.5))
    power = t + _ROUNDER
    y = polynomial(STEPS[T].power, t - (power - _ROUNDER))
    bits = power.view(np.uint32)
    half = bits >> 1
    return y * _power_of_two(half) * _power_of_two(bits - half)


def pow(base, exponent, T: str):
    """base^exponent of f32 as 2^(exponent log2 |base|), with the special values of C's pow. Subnormal results are
    rounded once more."""
    base, exponent = np.broadcast_arrays(np.asarray(base), np.asarray(exponent))
    size = np.abs(base)
    f, k = mantissa(size)
    near = fma32(f, polynomial(SERIES[T].log2, f), k)
    product = np.clip(exponent, -_TOO_LARGE, _TOO_LARGE) * np.where(
        size == 0, _C(-np.inf), np.where(size < np.inf, near, size)
    )
    value = exp2(np.where((base == 1) | (exponent == 0), _C(0), product), T)
    left = np.abs(exponent - _C(2) * np.rint(_C(0.5) * exponent))  # 1 of odd integers, 0 of even ones
    undefined = (base < 0) & (base > -np.inf) & (left > 0) & (left < 1)
    return np.where(undefined, _C(np.nan), np.where(left == 1, np.copysign(value, base), value))


def mantissa(x):
    """(f, k): x = (1 + f) 2^k with 1 + f from sqrt(1/2) to sqrt(2), for a finite x above 0."""
    subnormal = x < _C(2.0**-126)
    above = np.where(subnormal, x * _C(2.0**24), x).view(np.int32) - _SQRT_HALF
    k = ((above >> 23) - np.where(subnormal, 24, 0)).astype(np.float32)
    return ((above & 0x7FFFFF) + _SQRT_HALF).view(np.float32) - _C(1), k


def _power_of_two(k):
    """2^k of the last bits of k."""
    return ((k << 23) + np.uint32(0x3F800000)).view(np.float32)
