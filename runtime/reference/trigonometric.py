"""Trigonometric functions and their inverses in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/trigonometric.cuh is the same text in C++.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    Pair,
    elementary,
    fast_two_sum,
    hexadecimal,
    horner,
    in_f32,
    spread,
    two_product,
)
from skuda.reference.elementary import F32, F64, fma32, integer, polynomial, remainder
from skuda.reference.fused import fused_horner

_QUARTER = hexadecimal("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54")  # pi / 2
_PARTS = hexadecimal("0x1.921fb54442d18p+0", "0x1.1a62633p-54", "0x1.45c06e0e68948p-86")  # 30 bits of the second
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
# 2 / pi in binary, 64 bits a word, after a word of zeros.
_WORDS = np.array([
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
], np.uint64)  # fmt: skip
_SINE = hexadecimal(
    "0x1.5d8fcp-33", "-0x1.ae5e5c52c13e3p-26", "0x1.71de356ae826bp-19", "-0x1.a01a019bfeabep-13",
    "0x1.111111110f78ep-7", "-0x1.5555555555548p-3",
)  # fmt: skip
_COSINE = hexadecimal(
    "-0x1.8fa48p-37", "0x1.1ee9dp-29", "-0x1.27e4f7d05b8ap-22", "0x1.a01a019c43697p-16",
    "-0x1.6c16c16c14b79p-10", "0x1.5555555555548p-5",
)  # fmt: skip
_COTANGENT = hexadecimal(  # (1 - r cot(r)) / r^2 - 1/4
    "0x1.aa421p-29", "0x1.694ecp-26", "0x1.d8c116db7d906p-23", "0x1.2272da323ae63p-19",
    "0x1.66a968ade52bdp-16", "0x1.bbd776c6db23cp-13", "0x1.1566abc3ad3f4p-9", "0x1.6c16c16c11778p-6",
    "0x1.55555555555abp-4",
)  # fmt: skip
# Of f32: (r - sin(r)) / r^3, (cos(r) - 1 + r^2 / 2) / r^4, (tan(r) - r) / r^3, (arcsin(t) - t) / t^3 and
# (arctan(t) - t) / t^3; pi / 2 in three parts of one sign, the first one of 23 bits; 2 / pi; and up to where that is
# enough.
SINE_F32 = hexadecimal("-0x1.6cd828p-19", "0x1.a00f9cp-13", "-0x1.111108p-7", "0x1.555556p-3")
COSINE_F32 = hexadecimal("-0x1.242ab2p-22", "0x1.a0112p-16", "-0x1.6c16b8p-10", "0x1.555556p-5")
TANGENT_F32 = hexadecimal(
    "0x1.1fdaf6p-8", "0x1.01e8dcp-14", "0x1.63a692p-7", "0x1.5c9c34p-6", "0x1.badc94p-5", "0x1.110d94p-3",
    "0x1.55556p-2",
)  # fmt: skip
ARCSINE_F32 = hexadecimal("0x1.595c6p-5", "0x1.8c3e5p-6", "0x1.747bb8p-5", "0x1.330204p-4", "0x1.5555c8p-3")
ARCTANGENT_F32 = hexadecimal(
    "0x1.3fd554p-5", "-0x1.480d4p-4", "0x1.c07268p-4", "-0x1.24503p-3", "0x1.999744p-3", "-0x1.555552p-2",
)  # fmt: skip
_HALF_PI_F32 = tuple(map(np.float32, hexadecimal("0x1.921fb4p+0", "0x1.4442dp-24", "0x1.84698ap-48")))
_TURN_F32 = tuple(map(np.float32, hexadecimal("0x1.921fb6p+0", "-0x1.777a5cp-25")))  # pi / 2 in two parts
_TWO_OVER_PI_F32 = np.float32(float.fromhex("0x1.45f306p-1"))
_TURNED_END = np.float32(float.fromhex("0x1p+17"))
# The last two of f64; arctan(1/2) and pi / 4 in two parts, the first ones multiples of 2^-51.
_ARCSINE = hexadecimal(
    "0x1.057332a9d8239p-5", "-0x1.09e246fbc28b5p-6", "0x1.3ffd347e23526p-6", "0x1.abc46f20a44b1p-8",
    "0x1.8ec414652c717p-7", "0x1.c6fd9d2025b7dp-7", "0x1.1c6be33b5c36dp-6", "0x1.6e89f4293387bp-6",
    "0x1.f1c72c39c68dep-6", "0x1.6db6db42787a1p-5", "0x1.333333336e828p-4", "0x1.555555555539p-3",
)  # fmt: skip
_ARCTANGENT = hexadecimal(
    "0x1.7982e49281e2fp-5", "-0x1.0b4d53ae619f8p-4", "0x1.3ab9df3a63644p-4", "-0x1.7459e36d372d2p-4",
    "0x1.c71c60a91d544p-4", "-0x1.2492490b31c5ap-3", "0x1.999999997525ap-3", "-0x1.55555555554c6p-2",
)  # fmt: skip
_OF_HALF = hexadecimal("0x1.dac670561bb5p-2", "-0x1.2ea406ee84d0fp-55")
_OF_ONE = hexadecimal("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55")


# ---- |x| = quadrant pi / 2 + high + low, the last two up to pi / 4 ----


def _high_product(a, b):
    """The upper 64 bits of the product of two uint64."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & mask)
    return a_high * b_high + (middle >> half) + (other >> half)


def _angle_beyond(size):
    """(high, low, quadrant) of a finite size from 2^20 on, by Payne and Hanek: 192 bits of 2 / pi decide."""
    u64, half, mask = np.uint64, np.uint64(32), np.uint64(0xFFFFFFFF)
    bits = size.view(np.int64)
    mantissa = (bits & 0xFFFFFFFFFFFFF | 0x10000000000000).astype(u64)
    start = (bits >> 52) - 1013
    word, shift = start >> 6, (start & 63).astype(u64)
    part = [_WORDS[word + i] << shift | (_WORDS[word + i + 1] >> u64(1)) >> (u64(63) - shift) for i in range(3)]
    low, middle = mantissa * part[2], mantissa * part[1] + _high_product(mantissa, part[2])
    carry = (middle < mantissa * part[1]).astype(u64)
    high = mantissa * part[0] + _high_product(mantissa, part[1]) + carry
    above, below = high << u64(2) | middle >> u64(62), middle << u64(2) | low >> u64(62)  # a fraction of a quadrant
    beyond = above >> u64(63) != 0  # it is above a half: the next quadrant less
    above, below = np.where(beyond, ~above, above), np.where(beyond, ~below, below)
    first = fast_two_sum((above >> half) * 2.0**-32, (above & mask) * 2.0**-64)
    second = fast_two_sum(first[0], (below >> half) * 2.0**-96)
    share = fast_two_sum(second[0], (first[1] + second[1]) + (below & mask) * 2.0**-128)
    product = two_product(share[0], _QUARTER[0])
    angle = fast_two_sum(product[0], product[1] + (share[0] * _QUARTER[1] + share[1] * _QUARTER[0]))
    sign = np.where(beyond, -1.0, 1.0)
    return sign * angle[0], sign * angle[1], (high >> u64(62)).astype(np.int64) + beyond


def _angle(x):
    """(high, low, quadrant) of |x|; NaN of what is not finite. Below 2^20 by three parts of pi / 2: what the first one
    leaves is a multiple of 2^-53 up to pi / 4, so it is exact. The second has 30 bits, so its products are, and what
    they lose. What all three leave is below 2^-118."""
    size = np.abs(x)
    far = ~(size < 2.0**20)
    near = np.where(far, 0.0, size)
    quadrant = (near * _TWO_OVER_PI + F64.integer) - F64.integer
    left = remainder(near, _PARTS[0], quadrant)
    high = left - quadrant * _PARTS[1]
    low = ((left - high) - quadrant * _PARTS[1]) - quadrant * _PARTS[2]
    quadrant = quadrant.astype(np.int64)
    if far.any():
        beyond = np.where(np.isfinite(size), size, 2.0**20)[far]
        high[far], low[far], quadrant[far] = _angle_beyond(beyond)
    return np.where(np.isfinite(x), high, np.nan), low, quadrant


def sine_near(r, rest) -> Pair:
    """The sine of an angle up to pi / 4, in two parts."""
    z = r * r
    return r, r * z * horner(_SINE, z) + rest * (1.0 - 0.5 * z)


def cosine_near(r, rest) -> Pair:
    """The cosine of an angle up to pi / 4, in two parts."""
    z = two_product(r, r)
    one = 1.0 - 0.5 * z[0]
    lost = ((1.0 - one) - 0.5 * z[0]) - 0.5 * z[1]
    return one, z[0] * z[0] * horner(_COSINE, z[0]) + (lost - r * rest)


def _sine_of_turned_f64(high, low, quadrant):
    sine, cosine = sum(sine_near(high, low)), sum(cosine_near(high, low))
    value = np.where(quadrant & 1, cosine, sine)
    return np.where(quadrant & 2, -value, value)


@in_f32(lambda x: _of_near_angle(x, _sine_of_turned, sin))
@elementary
def sin(x, single):
    """The sine of f32 or f64, within 1 unit in the last place; infinities give NaN, zeros keep their sign."""
    return _sine_of_turned_f64(*_angle(x)) * np.copysign(1.0, x)


@in_f32(lambda x: _of_near_angle(x, _sine_of_turned, cos, quarters=1))
@elementary
def cos(x, single):
    """The cosine of f32 or f64, within 1 unit in the last place; infinities give NaN."""
    high, low, quadrant = _angle(x)
    return _sine_of_turned_f64(high, low, quadrant + 1)


@in_f32(lambda x: _of_near_angle(x, _tan_f32, tan))
@elementary
def tan(x, single):
    """The tangent of f32 or f64, within 1 unit in the last place; infinities give NaN, zeros keep their sign.

    In f64, with r cot(r) = 1 - z C(z), it is the quotient of r and that, or the other way round. What z and r lost
    counts by the slope of z C(z), near 0.36.
    """
    *angle, quadrant = _angle(x)
    r = fast_two_sum(*angle)
    z = two_product(r[0], r[0])
    bent = 0.25 * z[0] + z[0] * fused_horner(_COTANGENT, z[0])
    near = 1.0 - bent
    lost = ((1.0 - near) - bent) - 0.359375 * (2.0 * (r[0] * r[1]) + z[1])
    turned = quadrant & 1 != 0
    n, n_rest = np.where(turned, near, r[0]), np.where(turned, lost, r[1])
    d, d_rest = np.where(turned, r[0], near), np.where(turned, r[1], lost)
    y = 1.0 / d
    quotient = n * y
    rest = (remainder(n, d, quotient) + n_rest) - quotient * d_rest
    return (quotient + rest * y) * np.copysign(1.0, np.where(turned, -x, x))


# ---- the same of f32, in sums of two ----


def _of_near_angle(x, function, wide, quarters=0):
    """function(r, rest, quadrant) of x = k pi / 2 + r - rest, quadrant = k + quarters; of a large x `wide`, in f64.
    What the first part of pi / 2 leaves is exact, and so is what the difference lost."""
    C = np.float32
    a, b, c = _HALF_PI_F32
    near = np.abs(x) <= _TURNED_END
    usual, whole = np.where(near, x, C(0)), C(F32.integer) + C(quarters)
    quadrant = fma32(usual, _TWO_OVER_PI_F32, whole) - C(F32.integer)
    k = quadrant - C(quarters)
    large = fma32(k, -a, usual)
    r = large - k * b
    value = function(r, fma32(k, c, fma32(k, b, r - large)), integer(quadrant))
    value[~near] = wide(x[~near].astype(np.float64)).astype(C)
    return value


def _sine_of_turned(r, rest, quadrant):
    """The sine of an angle and of quadrant pi / 2."""
    C = np.float32
    z = r * r
    sine = r - fma32(z * r, polynomial(SINE_F32, z), rest)
    half = C(-0.5) * r
    near = fma32(half, r, C(1))
    lost = fma32(r, rest, fma32(half, r, C(1) - near))
    cosine = near + fma32(z * z, polynomial(COSINE_F32, z), lost)
    value = np.where(quadrant & 1, cosine, sine)
    return np.where(quadrant & 2, -value, value)


def _tan_f32(r, rest, quadrant):
    """tan(r - rest) as a difference of two, and -1 by it. The rest counts by the slope at r, near 1 + 1.6 z. What the
    square lost counts in the cube."""
    C = np.float32
    z = r * r
    cube = fma32(z, r, fma32(r, r, -z) * r)
    small = fma32(-cube, polynomial(TANGENT_F32, z), fma32(C(1.6) * z, rest, rest))
    value = r - small
    lost = (r - value) - small
    y = C(1) / -value
    turned = fma32(fma32(lost, y, fma32(value, y, C(1))), y, y)
    return np.where(quadrant & 1, turned, value)


# ---- inverses ----


def _beyond_high(high, low, t, small):
    """high + low + t + small, where t is at most the size of a high that is not 0, with what the sum lost."""
    value = high + t
    lost = (high - value) + t
    return value + ((small + low) + lost)


def _half_angle(size):
    """(2 s, what it lost, z, wide): beyond a half, arcsin(x) is pi / 2 - 2 arcsin(s) and arccos(x) is 2 arcsin(s),
    s = sqrt((1 - x) / 2). What the root lost is the remainder over 2 s; the bits of s, from a number, are those of
    1 / s within 6 %, which is near enough. z is s^2, or x^2 up to a half."""
    C = size.dtype.type
    square = C(0.5) - C(0.5) * size
    s = np.sqrt(square)
    bits, number = (np.int32, 0x7EF311C7) if C is np.float32 else (np.int64, 0x7FDE6238DA3C2118)
    rest = remainder(square, s, s) * (bits(number) - s.view(bits)).view(C)
    wide = size > C(0.5)
    return s + s, rest, np.where(wide, square, size * size), wide


def _turned_arctangent(least, most, raised, back, turn):
    """turn pi / 2 + arctan(least / most), 0 <= least <= most, or - where it goes back. From a quarter of most on,
    arctan(1/2) is taken off, and from 0.72 on pi / 4: the quotient left is up to a quarter, n is exact, and so are sums
    of the upper parts of both angles, multiples of 2^-51. A least that is raised stands for 2^-600 of it."""
    middle, far = ~raised & (least > 0.25 * most), ~raised & (least > 0.72 * most)
    c, off, off_rest = (
        np.where(far, one, np.where(middle, half, 0.0))
        for half, one in zip((0.5, *_OF_HALF), (1.0, *_OF_ONE), strict=True)
    )
    left = least - c * most
    n = np.where(back, -left, left)
    d = c * least + most
    d_rest = c * least + (most - d)
    y = 1.0 / d
    quotient = n * y
    rest = (remainder(n, d, quotient) - quotient * d_rest) * y
    t = np.where(raised, (quotient + rest) * 2.0**-600, quotient)
    z = t * t
    small = t * z * horner(_ARCTANGENT, z) + np.where(raised, 0.0, rest)
    high = turn * _QUARTER[0] + np.where(back, -off, off)
    return _beyond_high(high, turn * _QUARTER[1] + np.where(back, -off_rest, off_rest), t, small)


@in_f32(lambda x: _asin_f32(x))
@elementary
def asin(x, single):
    """The arcsine of f32 or f64, within 1 unit in the last place; beyond 1 NaN; zeros keep their sign."""
    size = np.abs(x)
    root, rest, z, wide = _half_angle(size)
    t = np.where(wide, -root, size)
    small = t * z * horner(_ARCSINE, z) + np.where(wide, -rest, 0.0)
    high, low = (np.where(wide, part, 0.0) for part in _QUARTER)
    return np.copysign(_beyond_high(high, low, t, small), x)


@in_f32(lambda x: _acos_f32(x))
@elementary
def acos(x, single):
    """The arccosine of f32 or f64, within 1 unit in the last place; beyond 1 NaN."""
    root, rest, z, wide = _half_angle(np.abs(x))
    t = np.where(wide, np.copysign(root, x), -x)
    turn = np.where(wide, np.where(x < 0, 2.0, 0.0), 1.0)
    small = t * z * horner(_ARCSINE, z) + np.where(wide, np.where(x < 0, -rest, rest), 0.0)
    return _beyond_high(turn * _QUARTER[0], turn * _QUARTER[1], t, small)


@in_f32(lambda y, x: _atan2_f32(y, x))
@elementary
def atan2(y, x, single):
    """The angle of the point (x, y), of f32 or f64, within 1 unit in the last place, with the special values of C's
    atan2."""
    y, x = spread(y, x)
    steep, negative = np.abs(y) > np.abs(x), np.signbit(x)
    least, most = np.where(steep, np.abs(x), np.abs(y)), np.where(steep, np.abs(y), np.abs(x))
    # Both are multiplied by a power of two, and a least that is small beside most by another one. Beside an infinity
    # what is finite is 0.
    low = most < 2.0**-400
    by = np.where(low, 2.0**700, np.where(most > 2.0**500, 2.0**-700, 1.0))
    raised = (least * by < 2.0**-450) & ~low
    least = np.where(np.isinf(most) & (least < np.inf), 0.0, least * np.where(raised, 2.0**600 * by, by))
    least, most = np.minimum(least, 2.0**500), np.clip(most * by, 2.0**-400, 2.0**500)
    turn = np.where(steep, 1.0, np.where(negative, 2.0, 0.0))
    angle = _turned_arctangent(least, most, raised, steep != negative, turn)
    return np.copysign(angle, y)


@in_f32(lambda x: _atan_f32(x))
@elementary
def atan(x, single):
    """The arctangent of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    size = np.abs(x)
    steep = size > 1
    least, most = np.where(steep, 1.0, size), np.where(steep, np.minimum(size, 2.0**60), 1.0)
    return np.copysign(_turned_arctangent(least, most, np.False_, steep, np.where(steep, 1.0, 0.0)), x)


# ---- the same of f32, in sums of two ----


def _turned_by(turn, t, small):
    """turn pi / 2 + t + small, with what the sum lost."""
    high, low = _TURN_F32
    value = fma32(turn, high, t)
    lost = fma32(turn, high, -value) + t
    return value + (fma32(turn, low, small) + lost)


def _asin_f32(x):
    C = np.float32
    size = np.abs(x)
    root, rest, z, wide = _half_angle(size)
    t = np.where(wide, -root, size)
    small = fma32(t * z, polynomial(ARCSINE_F32, z), np.where(wide, -rest, C(0)))
    return np.copysign(_turned_by(np.where(wide, C(1), C(0)), t, small), x)


def _acos_f32(x):
    C = np.float32
    root, rest, z, wide = _half_angle(np.abs(x))
    t = np.where(wide, np.copysign(root, x), -x)
    turn = np.where(wide, np.where(x < 0, C(2), C(0)), C(1))
    small = fma32(t * z, polynomial(ARCSINE_F32, z), np.where(wide, np.copysign(C(1), x) * rest, C(0)))
    return _turned_by(turn, t, small)


def _turned_arctangent_f32(least, most, share, sign, turn):
    """turn pi / 2 + sign arctan(share least / most), 0 <= share least <= most. From half of most on, pi / 4 is taken
    off. What the quotient lost counts by the slope, near 1 - 0.85 z."""
    C = np.float32
    taken = np.where((share + share) * least > most, sign, C(0))
    more = np.abs(taken)
    n, d = fma32(-taken, most, sign * least), fma32(more, least, most)
    d_rest = fma32(more, least, most - d)
    y = C(1) / d
    near = n * y
    quotient = fma32(remainder(n, d, near), y, near)
    rest = fma32(-quotient, d_rest, remainder(n, d, quotient)) * y
    t, t_rest = quotient * share, rest * share
    z = t * t
    small = fma32(C(-0.85) * z, t_rest, t_rest)
    return _turned_by(fma32(C(0.5), taken, turn), t, fma32(t * z, polynomial(ARCTANGENT_F32, z), small))


def _atan_f32(x):
    C = np.float32
    size = np.abs(x)
    steep = size > 1
    least, most = np.where(steep, C(1), size), np.where(steep, np.minimum(size, C(2.0**60)), C(1))
    sign, turn = np.where(steep, C(-1), C(1)), np.where(steep, C(1), C(0))
    return np.copysign(_turned_arctangent_f32(least, most, C(1), sign, turn), x)


def _atan2_f32(y, x):
    """Both are multiplied by a power of two, and a least that is small beside most by another one. Beside an infinity
    what is finite is 0."""
    C = np.float32
    side = np.copysign(C(1), x)
    steep = np.abs(y) > np.abs(x)
    least, most = np.where(steep, np.abs(x), np.abs(y)), np.where(steep, np.abs(y), np.abs(x))
    low = most < C(2.0**-30)
    raised = (least < C(2.0**-32)) & ~low
    by = np.where(low, C(2.0**89), np.where(most > C(2.0**59), C(2.0**-69), C(1)))
    least = np.where(np.isinf(most) & (least < np.inf), C(0), least * np.where(raised, C(2.0**68) * by, by))
    least, most = np.minimum(least, C(2.0**59)), np.clip(most * by, C(2.0**-60), C(2.0**59))
    share, sign = np.where(raised, C(2.0**-68), C(1)), np.where(steep, -side, side)
    turn = np.where(steep, C(1), C(1) - side)
    return np.copysign(_turned_arctangent_f32(least, most, share, sign, turn), y)
