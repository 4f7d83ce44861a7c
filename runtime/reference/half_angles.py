"""Trigonometric functions and their inverses as precise as f16 and bf16: within 2^-14 and 2^-11 of the value, in f32
steps that CPU and GPU have in common.

runtime/cuda/half_angles.cuh and half_turns.cuh are the same text in C++. Only what is far from 0, where pi needs more
digits, branches.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skuda.model.records import Record
from skuda.reference import trigonometric
from skuda.reference.double_double import hexadecimal
from skuda.reference.elementary import F32, fma32, polynomial
from skuda.reference.half_precision import coefficients

_C = np.float32
_ROUNDER = _C(F32.integer)
_HALF, _HALF_PI, _PI = _C(0.5), _C(float.fromhex("0x1.921fb6p+0")), _C(float.fromhex("0x1.921fb6p+1"))
# -pi in three parts of one sign, so that 0 times them keeps the sign of a zero.
_PARTS = tuple(map(_C, hexadecimal("-0x1.921fb4p+1", "-0x1.4442dp-23", "-0x1.84698ap-47")))
_HALF_PARTS = tuple(part / _C(2) for part in _PARTS)
_OVER_PI, _TWO_OVER_PI = _C(float.fromhex("0x1.45f306p-2")), _C(float.fromhex("0x1.45f306p-1"))
_TURNED_END = _C(2.0**17)  # from here on pi needs more parts
_LEAST, _LEAST_ROOT = _C(2.0**-100), _C(2.0**-50)


class Angles(Record):
    """The polynomials of a type, highest power first.

    Attributes:
        tan: tan(r) / r by r^2, for |r| up to pi / 4.
        asin: arcsin(t) / t by t^2, for t up to 1/2.
        acos: arccos(t) / sqrt(1 - t), for t from 0, where it is pi / 2, to 1.
        atan: arctan(q) / q by q^2, for q up to 1.
    """

    tan: tuple[float, ...]
    asin: tuple[float, ...]
    acos: tuple[float, ...]
    atan: tuple[float, ...]


ANGLES = {
    "f16": Angles(
        tan=coefficients("0x1.6a5b86p-5 0x1.474cd6p-5 0x1.17e328p-3 0x1.550ef4p-2 0x1.000038p+0"),
        asin=coefficients("0x1.0a844cp-4 0x1.24cc6ap-4 0x1.55b69ap-3 0x1.ffffcep-1"),
        acos=coefficients("0x1.237b98p-7 -0x1.297c08p-5 0x1.5c8346p-4 -0x1.b6c3ecp-3 0x1.921fb6p+0"),
        atan=coefficients("-0x1.adf3b4p-7 0x1.d0310ap-5 -0x1.edfdcep-4 0x1.90410ap-3 -0x1.54f6eep-2 0x1.ffff62p-1"),
    ),
    "bf16": Angles(
        tan=coefficients("0x1.84765cp-4 0x1.d8ce9ep-4 0x1.57bd3ap-2 0x1.fff9e2p-1"),
        asin=coefficients("0x1.892af4p-4 0x1.50f9bap-3 0x1.00020ap+0"),
        acos=coefficients("-0x1.3d650cp-6 0x1.34c666p-4 -0x1.b38d82p-3 0x1.921fb6p+0"),
        atan=coefficients("-0x1.6b1fep-5 0x1.3ea032p-3 -0x1.4da0c4p-2 0x1.ffe432p-1"),
    ),
}
# Of both types: sin(r) / r by r^2, for |r| up to pi / 2, where the sine is 1, and sin(pi r) / r, for |r| up to 1/2.
_SINE = coefficients("-0x1.82b9d8p-13 0x1.10502cp-7 -0x1.554ed8p-3 0x1.ffffdcp-1")
_SINE_OF_TURNS = coefficients("-0x1.1d299cp-1 0x1.45852cp+1 -0x1.4ab582p+2 0x1.921f98p+1")


def asin(x, T: str):
    """The arcsine of f32; beyond 1 NaN; zeros keep their sign. Beyond a half it is pi / 2 - 2 arcsin(s) with
    s = sqrt((1 - x) / 2)."""
    x = np.asarray(x)
    size = np.abs(x)
    square, wide = _HALF - _HALF * size, size > _HALF
    t = np.where(wide, np.sqrt(square + _LEAST), size)
    near = t * polynomial(ANGLES[T].asin, np.where(wide, square, size * size))
    return np.copysign(np.where(wide, fma32(_C(-2), near, _HALF_PI), near), x)


def acos(x, T: str):
    """The arccosine of f32; beyond 1 NaN."""
    x = np.asarray(x)
    size = np.abs(x)
    root = np.sqrt((_C(1) - size) + _LEAST) - _LEAST_ROOT  # 0 at 1
    value = root * polynomial(ANGLES[T].acos, size)
    return np.where(x < 0, _PI - value, value)


def atan(x, T: str):
    """The arctangent of f32; zeros keep their sign."""
    x = np.asarray(x)
    size = np.abs(x)
    steep = size > 1
    q = np.where(steep, _C(1) / np.minimum(size, _C(2.0**60)), size)
    p = polynomial(ANGLES[T].atan, q * q)
    return np.copysign(np.where(steep, fma32(-q, p, _HALF_PI), q * p), x)


def atan2(y, x, T: str):
    """The angle of the point (x, y) of f32, with the special values of C's atan2. The quotient of the smaller magnitude
    by the larger one is 0 beside an infinity and for zeros, 1 of two infinities."""
    y, x = np.broadcast_arrays(np.asarray(y), np.asarray(x))
    steep = np.abs(y) > np.abs(x)
    least, most = np.where(steep, np.abs(x), np.abs(y)), np.where(steep, np.abs(y), np.abs(x))
    by = (np.int32(0x7F000000) - (most.view(np.int32) & np.int32(0x7E000000))).view(np.float32)
    divisor = most * by
    infinite = divisor == np.inf
    quotient = least * by * np.where(infinite | (divisor == 0), _C(0), _C(1) / divisor)
    q = np.where(infinite & (least == most), _C(1), quotient)
    near = q * polynomial(ANGLES[T].atan, q * q)
    angle = np.where(steep, _HALF_PI - near, near)
    return np.copysign(np.where(np.signbit(x), _PI - angle, angle), y)


def tan(x, T: str):
    """The tangent of f32; infinities give NaN, zeros keep their sign. x = k pi / 2 + r; for an odd k it is that of r,
    divided into -1."""
    x = np.asarray(x)
    power = fma32(x, _TWO_OVER_PI, _ROUNDER)
    r = _left_of(x, power - _ROUNDER, _HALF_PARTS)
    value = r * polynomial(ANGLES[T].tan, r * r)
    return _of_near(x, np.where(_odd(power), -(_C(1) / value), value), trigonometric.tan)


def sin(x, T: str):
    """The sine of f32; infinities give NaN, zeros keep their sign. x = k pi + r."""
    x = np.asarray(x)
    power = fma32(x, _OVER_PI, _ROUNDER)
    r = _left_of(x, power - _ROUNDER, _PARTS)
    return _of_near(x, _changed(r * polynomial(_SINE, r * r), power), trigonometric.sin)


def cos(x, T: str):
    """The cosine of f32; infinities give NaN. x = (k + 1/2) pi - r."""
    x = np.asarray(x)
    power = fma32(x, _OVER_PI, -_HALF) + _ROUNDER
    r = -_left_of(x, (power - _ROUNDER) + _HALF, _PARTS)
    return _of_near(x, _changed(r * polynomial(_SINE, r * r), power), trigonometric.cos)


def sinpi(x, T: str):
    """The sine of pi x of f32; infinities give NaN, even integers 0 and odd ones -0."""
    r, power = _turns(np.asarray(x))
    return _changed(r * polynomial(_SINE_OF_TURNS, r * r), power)


def cospi(x, T: str):
    """The cosine of pi x of f32, the sine of pi (1/2 - |r|); infinities give NaN, odd multiples of a half 0."""
    r, power = _turns(np.asarray(x))
    a = _HALF - np.abs(r)
    return _changed(a * polynomial(_SINE_OF_TURNS, a * a), power)


def _left_of(x, k, parts):
    """x + k (parts), of which only the last sum is inexact where it is small."""
    for part in parts:
        x = fma32(k, part, x)
    return x


def _turns(x):
    """(r, power): x = k + r, which is exact, r up to a half; the last bit of `power` is that of k."""
    rest = x - _C(2) * np.rint(_HALF * x)
    power = rest + _ROUNDER
    return rest - (power - _ROUNDER), power


def _odd(power):
    return power.view(np.uint32) & 1 != 0


def _changed(value, power):
    """A value whose sign changes for an odd k."""
    return np.where(_odd(power), -value, value)


def _of_near(x, value, wide: Callable):
    """A value, or a function in f64 where x is far from 0 or no number."""
    far = ~(np.abs(x) <= _TURNED_END)
    if not far.any():
        return value
    return np.where(far, wide(x.astype(np.float64)).astype(_C), value)
