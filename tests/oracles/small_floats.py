"""Floats whose values are few enough to be listed: the code of a number is found by looking for the nearest one.

Nothing here knows of exponents, of a bias or of bits: the lists are OCP's (Microscaling Formats, 1.0), in the order of
their codes.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache

from .floats import NAN, Value

# The values of the codes without a sign.
SIZES = {
    "e2m1": tuple(map(Fraction, ("0", "1/2", "1", "3/2", "2", "3", "4", "6"))),
    "e8m0": tuple(Fraction(2) ** power for power in range(-127, 128)),
}
SIGN = {"e2m1": 8}  # what a minus adds to a code
NAN_CODE = {"e8m0": 255}
TIES_UP = {"e8m0"}  # else to the even code


@cache
def _middles(word: str) -> tuple[Fraction, ...]:
    sizes = SIZES[word]
    return tuple((low + high) / 2 for low, high in zip(sizes, sizes[1:]))


def decode(code: int, word: str) -> Value:
    """The value of a code."""
    if code == NAN_CODE.get(word):
        return NAN
    sign = SIGN.get(word, 0)
    return Value("finite", bool(code & sign), SIZES[word][code & ~sign])


def encode(value: Value, word: str) -> int:
    """The code that a value is stored as: the nearest; beyond the ends it is that of the end."""
    last = len(SIZES[word]) - 1
    if value.kind == "nan":
        return NAN_CODE.get(word, last)
    negative = value.negative and (value.kind == "inf" or word in SIGN or value.magnitude != 0)
    if negative and word not in SIGN:
        return NAN_CODE[word]
    size = last if value.kind == "inf" else _nearest(value.magnitude, word)
    return size + (SIGN[word] if negative else 0)


def _nearest(magnitude: Fraction, word: str) -> int:
    middles = _middles(word)
    below = bisect_left(middles, magnitude)  # as many middles are less than it
    tie = below < len(middles) and middles[below] == magnitude
    return below + (tie and (word in TIES_UP or below % 2 == 1))
