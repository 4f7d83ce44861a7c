"""Hyperbolic functions and their inverses in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/hyperbolic.cuh is the same text in C++.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    elementary,
    fast_two_sum,
    pair_quotient,
    pair_root,
    times_two_to,
    two_product,
    two_sum,
    two_to_the,
)
from skuda.reference.powers import exponential_parts, logarithm_near, logarithm_pair

_SIXTH = float.fromhex("0x1.5555555555555p-3")
_THIRD = float.fromhex("0x1.5555555555555p-2")


def _half_sum(size, sign):
    """(e^x + sign e^-x) / 2 for x >= 0."""
    r, even, odd, power = exponential_parts(np.minimum(size, 720.0))
    share = two_to_the(-np.minimum(2 * power, 1000))  # of e^-x in 2^-power
    one, part = fast_two_sum(1.0, sign * share), fast_two_sum(r, -sign * share * r)
    high, low = two_sum(one[0], part[0])
    rest = one[0] * even + (1.0 - sign * share) * odd
    return times_two_to(high + (low + ((one[1] + part[1]) + rest)), power - 1)


@elementary
def sinh(x, single):
    """The hyperbolic sine of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    return np.copysign(_half_sum(np.abs(x), -1.0), x)


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
    high, low = logarithm_pair(
        np.where(beyond, x, high), np.where(beyond, 0.0, low + root[1]), np.where(beyond, 1, 0)
    )
    return high + low


@elementary
def asinh(x, single):
    """The inverse hyperbolic sine of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    size = np.abs(x)
    usual = np.where(np.isfinite(x), size, 1.0)
    value = logarithm_near(usual + np.sqrt(usual * usual + 1.0)) if single else _inverse(usual, 1.0)
    near = size - size * size * size * _SIXTH
    value = np.where(size < (2.0**-12 if single else 2.0**-20), near, value)
    return np.where(np.isfinite(x), np.copysign(value, x), x)


@elementary
def acosh(x, single):
    """The inverse hyperbolic cosine of f32 or f64, within 1 unit in the last place; below 1 NaN."""
    usual = np.where((x >= 1) & (x < np.inf), x, 1.0)
    value = logarithm_near(usual + np.sqrt(usual * usual - 1.0)) if single else _inverse(usual, -1.0)
    return np.where(x < 1, np.nan, np.where(np.isfinite(x), value, x))


@elementary
def atanh(x, single):
    """The inverse hyperbolic tangent of f32 or f64, within 1 unit in the last place; 1 gives inf, beyond NaN;
    zeros keep their sign."""
    size = np.abs(x)
    usual = np.where(size < 1, size, 0.5)
    if single:
        value = 0.5 * logarithm_near((1.0 + usual) / (1.0 - usual))
    else:
        high, low = logarithm_pair(*pair_quotient(two_sum(1.0, usual), two_sum(1.0, -usual)))
        value = 0.5 * (high + low)
    value = np.where(size < 1, value, np.where(size == 1, np.inf, np.nan))
    near = size + size * size * size * _THIRD
    return np.copysign(np.where(size < (2.0**-12 if single else 2.0**-20), near, value), x)
