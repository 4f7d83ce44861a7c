"""The logarithm of the gamma function and its derivative of f32 in steps that CPU and GPU have in common, sums of two
f32.

runtime/cuda/gamma_f32.cuh is the same text in C++.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skuda.reference.double_double import hexadecimal
from skuda.reference.elementary import F32, LOG_F32, fma32, polynomial

_C = np.float32
_LN2 = tuple(map(_C, F32.ln2))
# log gamma(x) - x (log(x) - 1), by 1 / x and its square.
_STIRLING = hexadecimal("0x1.6d8cbep-11", "-0x1.6b7002p-9", "0x1.555544p-4")
_STIRLING_CONSTANT = hexadecimal("0x1.acfe3ap-2", "-0x1.e6d052p-27")
# log gamma(1 + u) / (u m) by m = u - 1, for u up to 2, and the last coefficient.
_NEAR = hexadecimal(
    "0x1.eeed82p-17", "-0x1.3b6fc8p-15", "0x1.228df4p-15", "-0x1.d38784p-15", "0x1.764da2p-13",
    "-0x1.ba76e4p-12", "0x1.e28b3ap-11", "-0x1.13c104p-9", "0x1.47789p-8", "-0x1.95d184p-7",
    "0x1.0e0d1ep-5", "-0x1.9ae65p-4",
)  # fmt: skip
_LAST = _C(float.fromhex("0x1.b0ee6p-2"))
# By t = 8 (x - c), for the first and the second zero between -3 and -2, and these zeros in two parts.
_NEXT_TO_ZEROS = np.array([
    hexadecimal(
        "0x1.f4040cp-23", "0x1.b6f8a4p-20", "0x1.ea77d2p-25", "0x1.027e9cp-15", "0x1.6e61e6p-17", "0x1.579da8p-11",
        "0x1.d82d9cp-13", "0x1.04ef2ep-6", "0x1.545ef2p-8", "0x1.322b8cp-1", "0x1.4f0ap+0",
    ),
    hexadecimal(
        "-0x1.f439b6p-13", "0x1.f4e3a8p-11", "-0x1.015fc6p-9", "0x1.f6cc9ep-9", "-0x1.1dfa6cp-7", "0x1.53062ep-6",
        "-0x1.9516c4p-5", "0x1.01e03ep-3", "-0x1.489698p-2", "0x1.356b42p+0", "-0x1.efc82ap+0",
    ),
]).T.astype(_C)  # fmt: skip
_ZEROS = np.array([
    hexadecimal("-0x1.3a7fcap+1", "-0x1.3fe0f2p-24"),
    hexadecimal("-0x1.5fb41p+1", "0x1.437b2p-24"),
]).T.astype(_C)  # fmt: skip
# 1 - sin(pi d) / (pi d) by d^2, over d^2.
_SINE = hexadecimal("0x1.22632cp-9", "-0x1.abb33ap-6", "0x1.86a584p-3", "-0x1.9f9ca6p-1", "0x1.a51a66p+0")
# The derivative at 1 + u over u - u0, its zero, by m = u - 1, for u up to 2; the last two coefficients; u0.
_SLOPE = hexadecimal(
    "0x1.00ca88p-14", "-0x1.eb43d4p-14", "0x1.062522p-17", "-0x1.204208p-15", "0x1.a6eb7cp-12",
    "-0x1.9b265p-11", "0x1.5bef0ap-10", "-0x1.61255cp-9", "0x1.6c5b0ep-8", "-0x1.73d73ap-7",
    "0x1.8025c4p-6", "-0x1.95ea6ep-5", "0x1.be76bap-4",
)  # fmt: skip
_SLOPE_LAST = tuple(map(_C, hexadecimal("-0x1.0aff28p-2", "0x1.9213d4p-1", "0x1.9cdae8p-27")))
_SLOPE_ZERO = tuple(map(_C, hexadecimal("0x1.d8b618p-2", "-0x1.ab5f2p-27")))
# 1 / e - pi / tan(pi e) over e, for |e| up to 1/4, by e^2.
_COTANGENT = hexadecimal(
    "0x1.27a446p+1", "0x1.fe7f66p+0", "0x1.047682p+1", "0x1.15132cp+1", "0x1.a51a66p+1",
)  # fmt: skip
# pi tan(pi h) / h, for |h| up to 1/4, by h^2, and its value at 0.
_TANGENT = hexadecimal(
    "0x1.87656ep+18", "-0x1.1bd5d6p+9", "0x1.3c685cp+13", "0x1.f131d4p+10", "0x1.008414p+9",
    "0x1.005b2ap+7", "0x1.03c1fap+5",
)  # fmt: skip
_TANGENT_LAST = tuple(map(_C, hexadecimal("0x1.3bd3ccp+3", "0x1.37c8bcp-22")))
# log x - 1 / (2 x) less the derivative, times x^2, by 1 / x^2.
_SERIES = hexadecimal(
    "0x1.0cdd6ep-9", "-0x1.9e803ap-9", "0x1.fabd9ep-9", "-0x1.10e7d4p-7", "0x1.55554p-4",
)  # fmt: skip


def _logarithm_parts(a, a_rest, inverse_a):
    """The logarithm of a + a_rest in two parts, for a normal a above 0."""
    above = a.view(np.int32) - 0x3F3504F3
    k, g = (above >> 23).astype(_C), ((above & 0x7FFFFF) + 0x3F3504F3).view(_C) - _C(1)
    square, whole = g * g, k * _LN2[0]
    log = whole + g
    bent = fma32(square * g, polynomial(LOG_F32.polynomial, g), _C(-0.5) * square)
    return log, ((whole - log) + g) + fma32(a_rest, inverse_a, fma32(k, _LN2[1], bent))


def _stirling_rest(x, inverse_x, less, log_rest):
    """log gamma(x) less x times the first part of log(x) - 1, for x from 3 on."""
    p = polynomial(_STIRLING, inverse_x * inverse_x)
    small = fma32(x - _C(0.5), log_rest, fma32(p, inverse_x, _C(_STIRLING_CONSTANT[1])))
    return fma32(_C(-0.5), less, _C(_STIRLING_CONSTANT[0])) + small


def _near_zeros(x):
    """Next to the zeros between -3 and -2: the distance from one times a polynomial."""
    second = (~(x > _C(-2.62))).astype(np.int32)
    t = (x + np.where(second, _C(2.75), _C(2.5))) * _C(8)
    p = _NEXT_TO_ZEROS[0][second]
    for column in _NEXT_TO_ZEROS[1:9]:
        p = fma32(p, t, column[second])
    b, c = _NEXT_TO_ZEROS[9][second], _NEXT_TO_ZEROS[10][second]
    q = fma32(p, t, b)
    slope, q_rest = fma32(q, t, c), fma32(p, t, b - q)
    slope_rest, apart = fma32(q_rest, t, fma32(q, t, c - slope)), x - _ZEROS[0][second]
    return fma32(apart, slope, fma32(apart, slope_rest, _ZEROS[1][second] * slope))


def _far(x, careful: Callable):
    """Of -3 and below less log |x sin(pi x) / pi| and log gamma(|x|); of infinities, NaN, poles, subnormal numbers."""
    size = np.abs(x)
    turn = np.abs(size - ((size + _C(2.0**23)) - _C(2.0**23)))
    end = ~(size < _C(2.0**23)) | (turn == 0)
    small = ~end & (size < 1)
    size, turn = np.where(end | small, _C(3.5), size), np.where(end | small, _C(0.5), turn)
    z = turn * turn
    p = polynomial(_SINE, z)
    sine = fma32(-p, z, _C(1))
    sine_rest, area = fma32(-p, z, _C(1) - sine), size * turn
    area_rest, a = fma32(size, turn, -area), area * sine
    a_rest = fma32(area, sine, -a) + fma32(area, sine_rest, area_rest * sine)
    below, rest = _logarithm_parts(a, a_rest, _C(1) / a)
    inverse_size = _C(1) / size
    log, log_rest = _logarithm_parts(size, _C(0), inverse_size)
    less = log - _C(1)
    product = size * less
    other = fma32(size, less, -product) + _stirling_rest(size, inverse_size, less, log_rest)
    total = product + below
    back = total - product
    lost = (product - (total - back)) + (below - back)
    value = -(total + (lost + (other + rest)))
    cancelled = small | (~end & (np.abs(value) < _C(0.375) * (_C(1) + (product + other))))
    value[cancelled] = careful(x[cancelled])
    return np.where(np.isnan(x), x, np.where(end, _C(np.inf), value))


def lgamma_f32(x, careful: Callable):
    """Below 1, log gamma(1 + u) less the logarithm of x, or of |x (x + 1) .. u| below 0; of an array with an axis.

    Args:
        careful: the function by way of f64, for where terms cancel.
    """
    usual = (x > -3) & (x < np.inf)
    x_far, x = x, np.where(usual, x, _C(0.5))
    second, third, fourth = x + _C(1), np.where(x < -1, x + _C(2), _C(1)), np.where(x < -2, x + _C(3), _C(1))
    one, two = x * second, third * fourth
    product = one * two
    one_rest, two_rest = fma32(x, x - (second - _C(1)), fma32(x, second, -one)), fma32(third, fourth, -two)
    rest = fma32(one, two, -product) + fma32(one_rest, two, one * two_rest)
    negative, below = x < 0, x < 1
    u = np.where(below, x, x - _C(1))
    u = np.where(negative, np.where(x < -2, fourth, np.where(x < -1, third, second)), u)
    a = np.where(negative, np.abs(product), x)
    a_rest = np.where(negative, np.where(product < 0, -rest, rest), _C(0))
    usual &= ~(a < _C(2.0**-126))
    a = np.where(usual, a, _C(1))
    inverse_a = _C(1) / a
    log, log_rest = _logarithm_parts(a, a_rest, inverse_a)
    less, m = log - _C(1), u - _C(1)
    zeros = u * m
    zeros_rest, p = fma32(u, m, -zeros), polynomial(_NEAR, m)
    q = fma32(p, m, _LAST)
    q_rest = fma32(p, m, _LAST - q)
    small = fma32(zeros, q_rest, zeros_rest * q) - np.where(below, log_rest, _C(0))
    near = fma32(zeros, q, small) - np.where(below, log, _C(0))
    value = np.where(x < 3, near, fma32(x, less, _stirling_rest(x, inverse_a, less, log_rest)))
    for where, way in (((x > _C(-2.833)) & (x < _C(-2.339)), _near_zeros), (~usual, lambda x: _far(x, careful))):
        if where.any():
            value[where] = way(x_far[where])
    return value


def _tangent_parts(h):
    """pi tan(pi h) in two parts, for |h| up to 1/4."""
    z = h * h
    p = polynomial(_TANGENT, z)
    q = fma32(p, z, _TANGENT_LAST[0])
    q_rest, value = fma32(p, z, _TANGENT_LAST[0] - q) + _TANGENT_LAST[1], h * q
    return value, fma32(h, q_rest, fma32(h, q, -value))


def digamma_f32(x, careful: Callable):
    """The derivative at 1 + u, for u = |x| below 1 and x - 1 above, from 2 on by its series; less 1 / x from 0 to 1,
    and less pi / tan(pi x) below 0.

    Args:
        careful: the function by way of f64, for where terms cancel, and for special values.
    """
    negative, below = x < 0, x < 1
    nearest = (x - _C(1.5 * 2.0**23)) + _C(1.5 * 2.0**23)
    e = np.where(negative, x - nearest, x)
    given, usual = x, (x > _C(-(2.0**22))) & (np.abs(e) >= _C(2.0**-60)) & (np.abs(x) <= _C(2.0**60))
    x, e = np.where(usual, x, _C(1.5)), np.where(usual, e, _C(1.5))
    negative, below = negative & usual, below & usual
    z = np.abs(x)
    u = np.where(below, z, x - _C(1))
    apart, m = u - _SLOPE_ZERO[0], u - _C(1)
    p = polynomial(_SLOPE, m)
    p1 = fma32(p, m, _SLOPE_LAST[0])
    p1_rest, q = fma32(p, m, _SLOPE_LAST[0] - p1), fma32(p1, m, _SLOPE_LAST[1])
    q_rest, near = fma32(p1_rest, m, fma32(p1, m, _SLOPE_LAST[1] - q) + _SLOPE_LAST[2]), apart * q
    near_rest = fma32(apart, q_rest, fma32(apart, q, -near)) + q * _SLOPE_ZERO[1]
    w = _C(1) / z
    v = w * w
    log, log_rest = _logarithm_parts(z, _C(0), w)
    far_rest = fma32(np.where(negative, _C(0.5), _C(-0.5)), w, fma32(-polynomial(_SERIES, v), v, log_rest))
    is_near = u < 2
    value, rest = np.where(is_near, near, log), np.where(is_near, near_rest, far_rest)
    y = _C(1) / e
    y_rest = y * fma32(-e, y, _C(1))
    tangent = _tangent_parts(np.copysign(_C(0.5), e) - e)
    wide = negative & (np.abs(e) > _C(0.25))
    other_rest = np.where(negative, fma32(-e, polynomial(_COTANGENT, e * e), y_rest), y_rest)
    other, other_rest = np.where(wide, tangent[0], y), np.where(wide, tangent[1], other_rest)
    total = value - other
    back = total - value
    lost = ((value - (total - back)) - (other + back)) + (rest - other_rest)
    result = np.where(below, total + lost, value + rest)
    cancelled = ~usual | (negative & (np.abs(result) < np.where(is_near, _C(2.0**-5), _C(0.5))))
    if cancelled.any():
        result[cancelled] = careful(given[cancelled])
    return result
