"""Philox 4x32-10 in Python integers, from the paper's definition (Salmon, Moraes, Dror, Shaw: Parallel random numbers,
2011), and the numbers that are made of its words."""

from __future__ import annotations

from fractions import Fraction

import mpmath

WORD = 1 << 32


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    """The four words of a counter of four words."""
    for number in range(10):
        keys = ((key[0] + number * 0x9E3779B9) % WORD, (key[1] + number * 0xBB67AE85) % WORD)
        high, low = divmod(0xD2511F53 * counter[0], WORD)
        other_high, other_low = divmod(0xCD9E8D57 * counter[2], WORD)
        counter = (other_high ^ counter[1] ^ keys[0], other_low, high ^ counter[3] ^ keys[1], low)
    return counter


def block(seed: int, offset: int, number: int) -> tuple[int, ...]:
    """The words of a block: counters and keys are 64 bits of two's complement, the lower word first."""
    two = [(value % WORD, value // WORD % WORD) for value in (seed, offset, number)]
    return philox((*two[2], *two[1]), two[0])


def random_bits(seed: int, offset: int, index: int) -> int:
    return block(seed, offset, index // 4)[index % 4]


def random_uniform(seed: int, offset: int, index: int, word: str) -> Fraction:
    """Of f32 or f64."""
    if word == "f32":
        return Fraction(random_bits(seed, offset, index) // 2**8, 2**24)
    at = index % 2 * 2
    low, high = block(seed, offset, index // 2)[at : at + 2]
    return Fraction((high * WORD + low) // 2**11, 2**53)


def random_normal(seed: int, offset: int, index: int, word: str) -> mpmath.mpf:
    """By Box and Muller, of f32 or f64: the cosine of an angle for even elements, its sine for odd ones."""
    if word == "f32":
        at = index % 4 // 2 * 2
        distance, angle = block(seed, offset, index // 4)[at : at + 2]
        share = _rounded(Fraction(_rounded(Fraction(distance)), WORD) + Fraction(1, 2 * WORD))
        turns = mpmath.mpf(angle) / WORD
    else:
        low, high, angle_low, angle_high = block(seed, offset, index // 2)
        share = Fraction((high * WORD + low) // 2**11 + 1, 2**53)
        turns = mpmath.mpf(angle_high * WORD + angle_low) / 2**64
    size = mpmath.sqrt(-2 * mpmath.log(mpmath.mpf(share.numerator) / share.denominator))
    return size * (mpmath.sinpi(2 * turns) if index % 2 else mpmath.cospi(2 * turns))


def _rounded(value: Fraction) -> Fraction:
    """To the 24 bits of f32, ties to even; above 0."""
    if not value:
        return value
    unit = Fraction(1)
    while value >= unit * 2**24:
        unit *= 2
    while value < unit * 2**23:
        unit /= 2
    return round(value / unit) * unit
