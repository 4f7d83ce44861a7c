"""Hyperbolic functions, and exponentials and logarithms of sums with 1, as precise as f16 and bf16: within 2^-14 and
2^-11 of the value, in f32 steps that CPU and GPU have in common.

runtime/cuda/half_hyperbolic.cuh is the same text in C++. Nothing branches: special values are chosen at the end.
"""

from __future__ import annotations

import numpy as np

from skuda.model.records import Record
from skuda.reference.elementary import F32, fma32, polynomial
from skuda.reference.half_powers import SERIES, mantissa
from skuda.reference.half_precision import STEPS, coefficients, lifted

_C = np.float32
_LOG2E, _ROUNDER = _C(F32.log2e), _C(F32.integer)
_LN2 = _C(float.fromhex("0x1.62e43p-1"))
_SQRT_HALF = 0x3F3504F3  # its bits


class Sums(Record):
    """The polynomials of a type, highest power first.

    Attributes:
        even: cosh(f ln 2) by f^2, for f up to 1/2.
        odd: sinh(f ln 2) / f by f^2; at 1/2 sinh is a third of cosh, so that nothing falls from one k to the next.
        less_one: (2^f - 1) / f.
        one_plus: log(1 + u) / u for u from 0 to 1, and right at 1: next to ln 2 is a middle of two values.
    """

    even: tuple[float, ...]
    odd: tuple[float, ...]
    less_one: tuple[float, ...]
    one_plus: tuple[float, ...]


SUMS = {
    "f16": Sums(
        even=coefficients("0x1.0dc754p-7 0x1.ec9542p-3 0x1p+0"),
        odd=coefficients("0x1.c96bfap-5 0x1.62e2d4p-1"),
        less_one=coefficients("0x1.5cef82p-10 0x1.3cc24cp-7 0x1.c6b35ep-5 0x1.ebfa46p-3 0x1.62e42ep-1"),
        one_plus=coefficients("-0x1.7c9868p-6 0x1.98a3c8p-4 -0x1.abd402p-3 0x1.4ca384p-2 -0x1.ff4e2ep-2 0x1.fffedp-1"),
    ),
    "bf16": Sums(
        even=coefficients("0x1.f00ebep-3 0x1p+0"),
        odd=coefficients("0x1.c4d612p-5 0x1.62ed44p-1"),
        less_one=STEPS["f16"].rise,
        one_plus=coefficients("0x1.48098ep-5 -0x1.3da78ap-3 0x1.385a52p-2 -0x1.fcaf0ap-2 0x1.fff7d6p-1"),
    ),
}

# ---- from exponentials ----


def expm1(x, T: str):
    """e^x - 1 of f32, by half of 2^k (2^f - 1) + (2^k - 1). NaN gives NaN, inf gives inf, -inf gives -1; zeros keep
    their sign."""
    x = np.asarray(x)
    f, k = _power(np.clip(x, _C(-18), _C(89)))
    two = lifted(k, -1)
    half = fma32(two, polynomial(SUMS[T].less_one, f) * f, two - _C(0.5))
    return np.copysign(half + half, x)


def sinh(x, T: str):
    """The hyperbolic sine of f32. NaN gives NaN, infinities themselves; zeros keep their sign."""
    x = np.asarray(x)
    even, odd, total, less = _parts(x, T)
    half = fma32(odd, total, even * less)
    return np.copysign(half + half, x)


def cosh(x, T: str):
    """The hyperbolic cosine of f32. NaN gives NaN, infinities give inf."""
    even, odd, total, less = _parts(np.asarray(x), T)
    half = fma32(even, total, odd * less)
    return half + half


def log1pexp(x, T: str):
    """log(1 + e^x) of f32; subnormal results are rounded more than once. NaN gives NaN, inf gives inf, -inf gives 0."""
    x = np.asarray(x)
    f, k = _power(np.maximum(-np.abs(x), _C(-104.5)))
    u = polynomial(tuple(_C(each) * _C(2.0**-24) for each in STEPS[T].power), f) * lifted(k, 24)
    return fma32(u, polynomial(SUMS[T].one_plus, u), np.where(x > 0, x, _C(0)))


def _parts(x, T: str):
    """|x| = (k + f) ln 2: cosh and sinh of f ln 2, the sum and the difference of 2^(k - 2) and 2^(-k - 2)."""
    f, k = _power(np.minimum(np.abs(x), _C(89.5)))
    z, up = f * f, lifted(k, -2)
    down = np.maximum(np.int32(0x7D000000) - up.view(np.int32), np.int32(0)).view(np.float32)
    return polynomial(SUMS[T].even, z), f * polynomial(SUMS[T].odd, z), up + down, up - down


def _power(t):
    """(f, k): e^t = 2^(k + f) with an integer k."""
    k = fma32(t, _LOG2E, _ROUNDER) - _ROUNDER
    return fma32(t, _LOG2E, -k), k


# ---- from logarithms ----


def log1p(x, T: str):
    """log(1 + x) of f32. NaN gives NaN, -1 gives -inf, below gives NaN, inf gives inf; zeros keep their sign."""
    x = np.asarray(x)
    y = _C(1) + x
    end = np.where(y == 0, _C(-np.inf), np.where(y < 0, _C(np.nan), y))
    return np.where((y > 0) & (y < np.inf), _logarithm_beside(y, x, T), end)


def asinh(x, T: str):
    """The inverse of sinh, of f32. NaN gives NaN, infinities themselves; zeros keep their sign. It is the logarithm of
    half of |x| + sqrt(x^2 + 1), doubled, or x, where that is next to 1."""
    x = np.asarray(x)
    t = np.abs(x)
    near = np.minimum(t, _C(2.0**40))
    root = np.sqrt(fma32(near, near, _C(1)))
    value = _logarithm_of_normal(fma32(_C(0.5), np.maximum(root, t), _C(0.5) * t), T, -1)
    return np.copysign(np.where((t > _C(2.0**-7)) & (t < np.inf), value, t), x)


def acosh(x, T: str):
    """The inverse of cosh, of f32. NaN and numbers below 1 give NaN, inf gives inf. It is the logarithm of half of
    x + sqrt(v^2 + 2v), doubled, with v = x - 1."""
    v = np.asarray(x) - _C(1)
    near = np.minimum(v, _C(2.0**40))
    root = np.sqrt(fma32(near, near, near + near))
    y = fma32(_C(0.5), np.maximum(root, v), _C(0.5) * x)
    end = np.where(v < 0, _C(np.nan), v)
    return np.where((v > 0) & (v < np.inf), _logarithm_beside(y, root + v, T, -1), end)


def atanh(x, T: str):
    """The inverse of tanh, of f32. NaN and numbers beyond 1 and -1 give NaN, these two infinities; zeros keep their
    sign. It is half of the logarithm of (1 + t) / (1 - t), which is 1 more than 2 t / (1 - t)."""
    x = np.asarray(x)
    t = np.abs(x)
    y = _C(1) / (_C(1) - t)
    value = _C(0.5) * _logarithm_beside((_C(1) + t) * y, (t + t) * y, T)
    end = np.where(t == 1, _C(np.inf), _C(np.nan))
    return np.copysign(np.where(t < 1, value, end), x)


def logit(x, T: str):
    """log(x / (1 - x)) of f32. 0 gives -inf, 1 gives inf, NaN and numbers outside [0, 1] give NaN. The quotient, raised
    by 2^24, so that it is a normal number, is 1 more than (2x - 1) / (1 - x)."""
    x = np.asarray(x)
    y = _C(1) / fma32(x, _C(-(2.0**-24)), _C(2.0**-24))
    near = fma32(x, _C(2.0**-23), _C(-(2.0**-24))) * y
    end = np.where(x == 0, _C(-np.inf), np.where(x == 1, _C(np.inf), _C(np.nan)))
    return np.where((x > 0) & (x < 1), _logarithm_beside(x * y, near, T, 24), end)


def log2(x, T: str):
    """The binary logarithm of f32, right at powers of two. NaN gives NaN, 0 gives -inf, below 0 gives NaN, inf gives
    inf."""
    return _logarithm_by(np.asarray(x), 1.0, _LOG2E, T)


def log10(x, T: str):
    """The decimal logarithm of f32. NaN gives NaN, 0 gives -inf, below 0 gives NaN, inf gives inf."""
    return _logarithm_by(np.asarray(x), *coefficients("0x1.344136p-2 0x1.bcb7b2p-2"), T)


def _logarithm_by(x, c: float, by: float, T: str):
    """log(x) by = c k + by log(1 + f), where c is that of 2."""
    f, k = mantissa(x)
    value = fma32(k, _C(c), f * _C(by) * polynomial(SERIES[T].log, f))
    end = np.where(x == 0, _C(-np.inf), np.where(x < 0, _C(np.nan), x))
    return np.where((x > 0) & (x < np.inf), value, end)


def _logarithm_of_normal(y, T: str, lift: int = 0):
    """log(y 2^-lift) of a normal y."""
    above = _above(y, lift)
    return _logarithm_at(above, _rest(above), T)


def _logarithm_beside(y, near, T: str, lift: int = 0):
    """log(y 2^-lift); where k is 0, f is `near`, which has all digits."""
    above = _above(y, lift)
    return _logarithm_at(above, np.where(above.view(np.uint32) < 0x800000, near, _rest(above)), T)


def _above(y, lift: int):
    """y 2^-lift = (1 + f) 2^k with 1 + f from sqrt(1/2) to sqrt(2), of a normal y: k in the upper bits, f in others."""
    return (np.asarray(y).view(np.uint32) - np.uint32(_SQRT_HALF + (lift << 23))).view(np.int32)


def _rest(above):
    """f"""
    return ((above & 0x7FFFFF) + np.int32(_SQRT_HALF)).view(np.float32) - _C(1)


def _logarithm_at(above, f, T: str):
    """k ln 2 + log(1 + f). Where both are 0 it has the sign of f."""
    return fma32((-(above >> 23)).astype(np.float32), -_LN2, f * polynomial(SERIES[T].log, f))
