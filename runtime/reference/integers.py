"""Integers and booleans as data: the functions of runtime/cuda/data.cuh in NumPy, to the bits.

Integers are int64 in two's complement, whose sums, differences and products NumPy wraps by itself.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.formulas import remainder

bits_and, bits_or, bits_xor, bits_not = np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert


def floor_quotient(a, b):
    """The quotient toward minus infinity: of integers by zero 0, of reals by zero that of `/`."""
    if _are_integers(a, b):
        return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))
    rest = np.fmod(a, b)
    quotient = (a - rest) / b
    quotient = np.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = np.floor(quotient)
    whole = np.where(quotient - whole > 0.5, whole + 1, whole)
    return np.where(b == 0, a / b, np.where(quotient == 0, np.copysign(np.zeros_like(quotient), a / b), whole))


def modulo(a, b):
    """What the quotient toward minus infinity leaves: of integers by zero 0."""
    if _are_integers(a, b):
        return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b)))
    return remainder(a, b)


def shifted_left(a, by):
    """Shifted to the left in 64 bits; by 64 or more, or by less than none, 0."""
    inside = (by >= 0) & (by < 64)
    return np.where(inside, np.left_shift(a, np.where(inside, by, 0)), 0)


def shifted_right(a, by):
    """The quotient by a power of two toward minus infinity; by 64 or more, or by less than none, 0 or -1."""
    return np.right_shift(a, np.where((by >= 0) & (by < 64), by, 63))


def _are_integers(*values) -> bool:
    return all(np.asarray(value).dtype.kind == "i" for value in values)
