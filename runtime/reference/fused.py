"""A product and a sum that are rounded once, as the instruction of GPUs does it.

f32 goes through f64, where the product is exact. In f64 the product is a sum of two numbers, and their sum with the
third is rounded to odd before the last step (Boldo and Melquiond 2008); what may leave the range on the way is computed
in integers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from skuda.reference.double_double import Pair, spread
from skuda.reference.elementary import fma32, product_rest, round_to_odd, sum_rest

_FEW, _MANY = 2.0**-900, 2.0**960  # between which nothing leaves the range, the product's rest neither


def fma(a, b, c):
    """a * b + c, rounded once; NaN and infinities as those of the exact product and sum."""
    a, b, c = spread(a, b, c)
    if a.dtype == np.float32:
        return fma32(a, b, c)
    product = a * b
    size = np.abs(product)
    usual = (size > _FEW) & (size < _MANY) & (np.abs(a) < _MANY) & (np.abs(b) < _MANY) & (np.abs(c) < _MANY)
    simple = (product == 0) & ((a == 0) | (b == 0)) | ~(np.isfinite(a) & np.isfinite(b))
    found = np.where(usual, multiply_add(a, b, c), product + c)
    for index in np.argwhere(~(usual | simple)):
        found[tuple(index)] = _exactly(*(float(each[tuple(index)]) for each in (a, b, c)))
    return found


def multiply_add(a, b, c):
    """The same of f64 where no product leaves the range that a sum feels."""
    product = a * b
    rest = product_rest(a, b, product)
    low = rest + c
    high = product + low
    return high + round_to_odd(sum_rest(rest, c, low), sum_rest(product, low, high))


def fused_horner(coefficients, x):
    """A polynomial of f64, the highest power first, each step rounded once."""
    p = coefficients[0] + np.zeros_like(x)
    for coefficient in coefficients[1:]:
        p = multiply_add(p, x, coefficient)
    return p


def pair_step(p, x, c: Pair) -> Pair:
    """c + p x, rounded once but for the low part of c."""
    value = multiply_add(p, x, c[0])
    return value, multiply_add(p, x, c[0] - value) + c[1]


def _exactly(a: float, b: float, c: float) -> float:
    """Of finite factors that are not 0."""
    if not np.isfinite(c):
        return c
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return total.numerator / total.denominator if total else 0.0  # quotients of integers are rounded once
    except OverflowError:
        return float("inf") if total > 0 else -float("inf")
