"""The sine and cosine of pi x in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/turns.cuh is the same text in C++. What an even number leaves of x is exact, so that no size of x is
harder than another.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import elementary, hexadecimal, in_f32, two_product
from skuda.reference.elementary import fma32, polynomial
from skuda.reference.trigonometric import cosine_near, sine_near

_PI = hexadecimal("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53")
# Of f32: (sin(pi r) / r - 2 - w) / w^2 by w = 1 - 4 r^2.
HALF_TURN_F32 = hexadecimal("0x1.c9b156p-18", "0x1.2c34fap-12", "0x1.0b0da6p-7", "0x1.10b0ccp-3")


def _turns(x):
    """(r, odd): x = k + r for an even or odd k, which is exact: r is up to a half."""
    C = x.dtype.type
    rest, whole = x - C(2) * np.rint(C(0.5) * x), C(1.5 * 2**23 if C is np.float32 else 1.5 * 2**52)
    k = (rest + whole) - whole  # of -1, 0 and 1
    return rest - k, k != 0


def _sine_of_share(a, turned):
    """The sine of pi a or of pi (1/2 - a), for a from 0 to a quarter."""
    product = two_product(a, _PI[0])
    angle = product[0], product[1] + a * _PI[1]
    value = np.where(turned, sum(cosine_near(*angle)), sum(sine_near(*angle)))
    return np.where((a < 2.0**-500) & ~turned, product[0], value)


@in_f32(lambda x: _sinpi_f32(x))
@elementary
def sinpi(x, single):
    """The sine of pi x of f32 or f64, within 1 unit in the last place; infinities give NaN, even integers 0 and odd
    ones -0."""
    r, odd = _turns(x)
    size = np.abs(r)
    wide = size > 0.25
    value = np.copysign(_sine_of_share(np.where(wide, 0.5 - size, size), wide), r)
    return np.where(odd, -value, value)


@in_f32(lambda x: _cospi_f32(x))
@elementary
def cospi(x, single):
    """The cosine of pi x of f32 or f64, within 1 unit in the last place; infinities give NaN, odd multiples of a half
    0."""
    r, odd = _turns(x)
    size = np.abs(r)
    wide = size > 0.25
    value = _sine_of_share(np.where(wide, 0.5 - size, size), ~wide)
    return np.where(odd, -value, value)


# ---- f32: 2 r + r w is nearly all, in two f32 ----


def _sine_f32(r, rest):
    """sin(pi r) + rest."""
    C = np.float32
    two = r + r
    w = fma32(-two, two, C(1))
    near = fma32(r, w, two)
    lost = fma32(r, w, two - near) + rest
    return near + fma32(r, w * w * polynomial(HALF_TURN_F32, w), lost)


def _sinpi_f32(x):
    r, odd = _turns(x)
    value = _sine_f32(r, np.float32(-0.0))  # which adds nothing
    return np.where(odd, -value, value)


def _cospi_f32(x):
    """sin(pi (1/2 - |r|)). What that difference lost, if r is up to a quarter, counts by the slope, near 9.1 |r|."""
    C = np.float32
    r, odd = _turns(x)
    size = np.abs(r)
    a = C(0.5) - size
    value = _sine_f32(a, ((C(0.5) - a) - size) * (C(9.1) * size))
    return np.where(odd, -value, value)
