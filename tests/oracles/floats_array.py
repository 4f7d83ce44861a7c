"""IEEE arithmetic over whole arrays, in 64-bit NumPy integers only: no floating-point operation anywhere.

Every finite value is carried as mantissa * 2^exponent with the mantissa zero or normalised to 53 bits, wide
enough for every format here. A result is first computed with at least 55 bits, all bits lost below
folded into the lowest one (a "sticky" bit), and then rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .floats import Format

FINITE, INF, NAN = 0, 1, 2
WIDTH = 53
FAR = 1 << 40  # what to_integers saturates at: beyond every i32 zero point plus every code


@dataclass(frozen=True)
class Values:
    """An array of IEEE values; mantissa and exponent mean something where kind is FINITE only."""

    kind: np.ndarray
    negative: np.ndarray
    mantissa: np.ndarray
    exponent: np.ndarray


def decode(bits: np.ndarray, form: Format) -> Values:
    """The values of an array of bit patterns (any unsigned integer type)."""
    bits = np.asarray(bits).astype(np.uint64)
    fraction = (bits & np.uint64((1 << form.fraction_bits) - 1)).astype(np.int64)
    field = ((bits >> np.uint64(form.fraction_bits)) & np.uint64(form.special)).astype(np.int64)
    negative = (bits >> np.uint64(form.bits - 1)).astype(bool)
    size = (bits & np.uint64(form.sign - 1)).astype(np.int64)
    infinite = (size == form.infinity) if form.infinities else False
    kind = np.where(size <= form.largest, FINITE, np.where(infinite, INF, NAN))
    mantissa = np.where(field > 0, fraction | (1 << form.fraction_bits), fraction)
    exponent = form.unit + np.maximum(field, 1) - 1
    return Values(kind, negative, *_normalised(mantissa, exponent))


def encode(values: Values, form: Format) -> np.ndarray:
    """The nearest bit patterns, as uint64: ties to even, overflow as the format has it, NaN to the canonical NaN."""
    values = _rounded(values.kind, values.negative, values.mantissa, values.exponent, form)
    field = values.exponent - form.unit + (WIDTH - form.fraction_bits)  # 1 for the smallest normal binade
    drop = (WIDTH - 1 - form.fraction_bits) + np.clip(1 - field, 0, form.fraction_bits + 1)
    size = (np.maximum(field, 1) - 1 << form.fraction_bits) + (values.mantissa >> drop)
    size = np.where(values.mantissa == 0, 0, size)
    size = np.where(values.kind == INF, form.overflow, np.minimum(size, form.overflow))
    bits = size.astype(np.uint64) | (values.negative.astype(np.uint64) << np.uint64(form.bits - 1))
    return np.where(values.kind == NAN, np.uint64(form.nan), bits)


def from_integers(numbers: np.ndarray, form: Format) -> Values:
    """Integers below 2^61 in size, rounded once to a format."""
    numbers = np.asarray(numbers, dtype=np.int64)
    return _rounded(np.zeros_like(numbers), numbers < 0, np.abs(numbers), np.zeros_like(numbers), form)


def to_integers(values: Values) -> np.ndarray:
    """The nearest integers, ties to even; 0 for NaN; saturated at +-FAR."""
    shift = np.clip(-values.exponent, 0, 60)
    size = shift_to_even(values.mantissa, shift)
    far = (values.kind == INF) | (values.exponent > FAR.bit_length() - 1 - WIDTH) & (values.mantissa > 0)
    size = np.where(values.kind == NAN, 0, np.where(far, FAR, size))
    return np.where(values.negative, -size, size)


def divide(a: Values, b: Values, form: Format) -> Values:
    """a / b, each rounded once to a format."""
    divisor = np.where((b.kind == FINITE) & (b.mantissa > 0), b.mantissa, 1 << (WIDTH - 1))
    quotient = a.mantissa // divisor
    rest = a.mantissa - quotient * divisor
    for _ in range(7):  # long division, 8 bits a time: 56 bits below the point, all in 64-bit integers
        rest = rest << 8
        digit = rest // divisor
        quotient = (quotient << 8) + digit
        rest = rest - digit * divisor
    mantissa = (quotient << 1) | (rest != 0)
    result = _rounded(_both(a, b), a.negative ^ b.negative, mantissa, a.exponent - b.exponent - 57, form)
    a_zero, b_zero = _zero(a), _zero(b)
    kind = np.where((a.kind == INF) | b_zero, INF, np.where(b.kind == INF, FINITE, result.kind))
    kind = np.where((a.kind == INF) & (b.kind == INF) | a_zero & b_zero, NAN, kind)
    mantissa = np.where(b.kind == INF, 0, result.mantissa)
    return Values(_with_nans(kind, a, b), result.negative, mantissa, result.exponent)


def multiply(a: Values, b: Values, form: Format) -> Values:
    """a * b, each rounded once to a format."""
    low_mask = (1 << 27) - 1
    a_high, a_low = a.mantissa >> 27, a.mantissa & low_mask
    b_high, b_low = b.mantissa >> 27, b.mantissa & low_mask
    bottom = a_low * b_low
    middle = a_high * b_low + a_low * b_high + (bottom >> 27)
    tail = ((middle & low_mask) << 27) | (bottom & low_mask)  # the lowest 54 of the product's 106 bits
    top = a_high * b_high + (middle >> 27)
    mantissa = (top << 9) | (tail >> 46 << 1) | ((tail & ((1 << 46) - 1)) != 0)
    result = _rounded(_both(a, b), a.negative ^ b.negative, mantissa, a.exponent + b.exponent + 45, form)
    infinite = (a.kind == INF) | (b.kind == INF)
    kind = np.where(infinite, np.where(_zero(a) | _zero(b), NAN, INF), result.kind)
    return Values(_with_nans(kind, a, b), result.negative, result.mantissa, result.exponent)


def _zero(a: Values) -> np.ndarray:
    return (a.kind == FINITE) & (a.mantissa == 0)


def _both(a: Values, b: Values) -> np.ndarray:
    return np.zeros(np.broadcast(a.kind, b.kind).shape, dtype=np.int64)


def _with_nans(kind: np.ndarray, a: Values, b: Values) -> np.ndarray:
    return np.where((a.kind == NAN) | (b.kind == NAN), NAN, kind)


def _rounded(kind, negative, mantissa, exponent, form: Format) -> Values:
    """Round mantissa * 2^exponent (mantissa below 2^62) to a format; other kinds pass."""
    top = _bit_length(mantissa) - 1 + exponent
    unit = np.maximum(top - form.fraction_bits, form.unit)
    lost = np.maximum(unit - exponent, 0)
    kept = np.where(lost > 62, 0, shift_to_even(mantissa, np.minimum(lost, 62)))
    mantissa, exponent = _normalised(kept, exponent + lost)
    overflow = (mantissa > 0) & (exponent + (WIDTH - 1) > form.highest_exponent)
    return Values(np.where((kind == FINITE) & overflow, INF, kind), negative, mantissa, exponent)


def shift_to_even(mantissa: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """mantissa / 2^shift to the nearest integer, ties to even; 0 <= shift <= 62, mantissa < 2^62."""
    kept = mantissa >> shift
    rest = mantissa - (kept << shift)
    half = (np.int64(1) << shift) >> 1
    return kept + ((rest > half) | (rest == half) & (shift > 0) & (kept & 1 == 1))


def _normalised(mantissa: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same numbers with every mantissa zero or in [2^52, 2^53); mantissas of up to 2^53 are taken."""
    over = mantissa >> WIDTH
    mantissa, exponent = mantissa >> over, exponent + over
    for step in (32, 16, 8, 4, 2, 1):
        small = mantissa < (1 << (WIDTH - step))
        mantissa = np.where(small, mantissa << step, mantissa)
        exponent = np.where(small, exponent - step, exponent)
    return mantissa, exponent


def _bit_length(numbers: np.ndarray) -> np.ndarray:
    for step in (1, 2, 4, 8, 16, 32):
        numbers = numbers | (numbers >> step)
    return np.bitwise_count(numbers).astype(np.int64)
