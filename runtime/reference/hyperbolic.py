"""Hyperbolic functions and their inverses in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/hyperbolic.cuh is the same text in C++. f64 is computed in double-double, f32 in sums of two f32.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    elementary,
    fast_two_sum,
    hexadecimal,
    in_f32,
    pair_quotient,
    pair_root,
    times_two_to,
    two_product,
    two_sum,
    two_to_the,
)
from skuda.reference.elementary import F32, fma32, integer, nearest_power, polynomial
from skuda.reference.powers import exponential_parts, logarithm_terms

_SIXTH = float.fromhex("0x1.5555555555555p-3")
_THIRD = float.fromhex("0x1.5555555555555p-2")
# Of f32, by squares: (sinh(r) - r) / r^3, (cosh(r) - 1) / r^2, (2 atanh(q / 2) - q) / q^3 and (atanh(q) - q) / q^3.
_SINH_F32 = hexadecimal("0x1.a2e2e4p-13", "0x1.110fbep-7", "0x1.555556p-3")
_COSH_F32 = hexadecimal("0x1.6d4f2cp-10", "0x1.5554e6p-5", "0x1p-1")
_RATIO_F32 = hexadecimal("0x1.31e29cp-9", "0x1.995ecap-7", "0x1.55557ap-4")
ATANH_F32 = hexadecimal("0x1.091f2ap-3", "0x1.22240ap-3", "0x1.99a92cp-3", "0x1.555546p-2")
# -ln 2 in two parts; ln 2 and its half for a factor 2^23 k.
_MINUS_LN2 = tuple(map(np.float32, hexadecimal("-0x1.62e4p-1", "-0x1.7f7d1cp-20")))
LN2_RAISED = tuple(map(np.float32, hexadecimal("0x1.62e4p-24", "0x1.7f7d1cp-43")))
_LN2_HALVES = tuple(map(np.float32, hexadecimal("0x1.62e4p-25", "0x1.7f7d1cp-44")))
EXPONENT = np.int32(-1 << 23)  # the bits of a sign and an exponent


def _half_sum(size, sign):
    """(e^x + sign e^-x) / 2 for x >= 0."""
    r, even, odd, power = exponential_parts(np.minimum(size, 720.0))
    share = two_to_the(-np.minimum(2 * power, 1000))  # of e^-x in 2^-power
    one, part = fast_two_sum(1.0, sign * share), fast_two_sum(r, -sign * share * r)
    high, low = two_sum(one[0], part[0])
    rest = one[0] * even + (1.0 - sign * share) * odd
    return times_two_to(high + (low + ((one[1] + part[1]) + rest)), power - 1)


@in_f32(lambda x: _sinh_f32(x))
@elementary
def sinh(x, single):
    """The hyperbolic sine of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    return np.copysign(_half_sum(np.abs(x), -1.0), x)


@in_f32(lambda x: _cosh_f32(x))
@elementary
def cosh(x, single):
    """The hyperbolic cosine of f32 or f64, within 1 unit in the last place."""
    return _half_sum(np.abs(x), 1.0)


def _inverse(x, one):
    """log(x + sqrt(x^2 + one)), where one is 1 or -1; from 2^30 on log(2 x)."""
    near = np.minimum(x, 2.0**30)
    square = two_product(near, near)
    high, low = two_sum(square[0], one)
    root = pair_root(fast_two_sum(high, low + square[1]))
    high, low = two_sum(root[0], near)
    beyond = x >= 2.0**30
    high, low = logarithm_terms(
        np.where(beyond, x, high), np.where(beyond, 0.0, low + root[1]), np.where(beyond, 1, 0)
    )
    return high + low


@in_f32(lambda x: _asinh_f32(x))
@elementary
def asinh(x, single):
    """The inverse hyperbolic sine of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    size = np.abs(x)
    usual = np.where(np.isfinite(x), size, 1.0)
    value = np.where(size < 2.0**-20, size - size * size * size * _SIXTH, _inverse(usual, 1.0))
    return np.where(np.isfinite(x), np.copysign(value, x), x)


@in_f32(lambda x: _acosh_f32(x))
@elementary
def acosh(x, single):
    """The inverse hyperbolic cosine of f32 or f64, within 1 unit in the last place; below 1 NaN."""
    usual = np.where((x >= 1) & (x < np.inf), x, 1.0)
    return np.where(x < 1, np.nan, np.where(np.isfinite(x), _inverse(usual, -1.0), x))


@in_f32(lambda x: _atanh_f32(x))
@elementary
def atanh(x, single):
    """The inverse hyperbolic tangent of f32 or f64, within 1 unit in the last place; 1 gives inf, beyond NaN;
    zeros keep their sign."""
    size = np.abs(x)
    usual = np.where(size < 1, size, 0.5)
    high, low = logarithm_terms(*pair_quotient(two_sum(1.0, usual), two_sum(1.0, -usual)))
    value = np.where(size < 1, 0.5 * (high + low), np.where(size == 1, np.inf, np.nan))
    return np.copysign(np.where(size < 2.0**-20, size + size * size * size * _THIRD, value), x)


# ---- f32: sums of two f32 ----


def _quarters(x):
    """(r, rest, z, up, down): |x| = k ln 2 + r + rest up to 89.5, where both functions are infinite; z = r^2; a quarter
    of 2^k and of 2^-k."""
    C = np.float32
    t = np.minimum(np.abs(x), C(89.5))
    k = nearest_power(t, F32)
    large = fma32(k, _MINUS_LN2[0], t)
    r = fma32(k, _MINUS_LN2[1], large)
    up = np.ldexp(C(1), integer(k) - 2)
    down = C(2.0**-4) * (np.int32(0x7F000000) - up.view(np.int32)).view(C)
    return r, fma32(k, _MINUS_LN2[1], large - r), r * r, up, down


def _sinh_f32(x):
    """Half of (up - down) cosh(r) + (up + down) sinh(r)."""
    r, r_rest, z, up, down = _quarters(x)
    less, total = up - down, up + down
    near = fma32(total, r, less)
    rest = fma32(up, r, less - near) + fma32(down, r, (up - less) - down)
    small = fma32(total, fma32(r * z, polynomial(_SINH_F32, z), r_rest), rest)
    value = near + fma32(less, z * polynomial(_COSH_F32, z), small)
    return np.where(np.abs(x) < np.float32(2.0**-12), x, np.copysign(value + value, x))


def _cosh_f32(x):
    """Half of (up + down) cosh(r) + (up - down) sinh(r)."""
    r, r_rest, z, up, down = _quarters(x)
    less, total = up - down, up + down
    near = fma32(less, r, total)
    rest = fma32(less, r, total - near) + ((up - total) + down)
    small = fma32(less, fma32(r * z, polynomial(_SINH_F32, z), r_rest), rest)
    value = near + fma32(total, z * polynomial(_COSH_F32, z), small)
    return value + value


def _logarithm_of_sum(a, b, root, left):
    """log(a + b + left / (2 root)) for a >= b, and what is left of a root, which is small: the last bits of an inverse
    need not be right, so integers give it. The sum is 2^k m, kept 2^-24 times as large, and log m = 2 atanh(n / 2d)
    with n = m - 1 and d = 1 + n / 2; `raised` is k where an exponent stands."""
    C, down = np.float32, np.float32(2.0**-24)
    most = down * a
    total = fma32(down, b, most)
    half = (np.int32(0x72800000) - root.view(np.int32)).view(C)
    lost = fma32(left, half, fma32(down, b, most - total))
    bits = total.view(np.int32) + np.int32(0x0C000000)
    raised = (bits - np.int32(0x3F3504F3)) & EXPONENT
    n = (bits - raised).view(C) - C(1)
    n_rest = lost * (np.int32(0x4B800000) - raised).view(C)
    d = fma32(C(0.5), n, C(1))
    d_rest = fma32(C(0.5), n_rest, fma32(C(0.5), n, C(1) - d))
    y = C(1) / d
    q = n * y
    left_of_n = fma32(-d_rest, q, fma32(-d, q, n)) + n_rest
    return with_powers(raised.astype(C), LN2_RAISED, q, _RATIO_F32, left_of_n, y)


def with_powers(k, ln2, q, coefficients, left, y):
    """k ln2 + q + q^3 P(q^2) + left y, where ln2, or its half, is in two parts and k times the first exact."""
    near = fma32(k, ln2[0], q)
    rest = fma32(k, ln2[1], fma32(k, ln2[0], -near) + q)
    return near + fma32(q * (q * q), polynomial(coefficients, q * q), fma32(left, y, rest))


def _asinh_f32(x):
    """log(t + sqrt(t^2 + 1)); from 2^40 on the root is t."""
    C = np.float32
    t = np.abs(x)
    near = np.minimum(t, C(2.0**40))
    root = np.sqrt(fma32(near, near, C(1)))
    left = fma32(near, near, fma32(-root, root, C(1)))
    value = _logarithm_of_sum(np.maximum(root, t), t, root, left)
    return np.where((t < C(2.0**-12)) | np.isinf(x), x, np.copysign(value, x))


def _acosh_f32(x):
    """log(x + sqrt(v^2 + 2v)) with v = x - 1, which is exact where it matters; below 0 the root is made that of a
    number below 0, which is NaN."""
    C = np.float32
    v = x - C(1)
    near = np.minimum(v, C(2.0**40))
    twice = near + near
    root = np.sqrt(fma32(near, np.abs(near), twice))
    left = fma32(near, near, fma32(-root, root, twice))
    value = _logarithm_of_sum(x, np.maximum(root, v), root, left)
    return np.where((v == 0) | ~(v < np.inf), v, value)


def _atanh_f32(x):
    """k ln(2) / 2 + atanh(n / d) for t = |x|: with s = 1 - t and m = (2^k - 1) / 2, n = t - m s and d = 1 + m s. k is
    about log2((1 + t) / s), read from the bits of both, and 0 up to t = 1/4. n is exact where s is."""
    C = np.float32
    t = np.abs(x)
    s = C(1) - t
    s_rest = (C(1) - s) - t
    raised = ((C(1) + t).view(np.int32) - s.view(np.int32) + np.int32(0x200000)) & EXPONENT
    m = (raised + np.int32(0x3F000000)).view(C) - C(0.5)
    n, d = fma32(-m, s, t), fma32(m, s, C(1))
    d_rest = fma32(m, s, C(1) - d)
    y = C(1) / d
    q = n * y
    left = fma32(-m, s_rest, fma32(-d_rest, q, fma32(-d, q, n)))
    value = with_powers(raised.astype(C), _LN2_HALVES, q, ATANH_F32, left, y)
    return np.copysign(np.where(t < 1, value, np.where(t == 1, C(np.inf), C(np.nan))), x)
