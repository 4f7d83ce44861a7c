"""Operations of one's own over the floats that tests/oracles/small_floats.py lists, and what they are given."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

from oracles import small_floats
from oracles.floats import F32, F64, FORMATS, Format, decode, encode_fraction

_OPERATIONS = """\
  WORD_store:
    kind: elementwise.cast
    types: {T: [f32, f64, f16, bf16], Q: [WORD]}
    inputs: {input: "T[*d]"}
    outputs: {output: "Q[*d] = input"}

  WORD_read:
    kind: elementwise.cast
    types: {T: [f32, f64, f16, bf16], Q: [WORD], S: [e8m0, T]}
    inputs: {input: "Q[*n, d]", scale: "S[*n]"}
    outputs: {output: "T[*n, d] = input * scale"}

  WORD_product:
    types: {T: [f32, f64, f16, bf16]}
    inputs: {input: "T[*d]", factor: "WORD[]"}
    outputs: {output: "T[*d] = input * factor"}

"""
SPEC = "ops:\n" + "".join(_OPERATIONS.replace("WORD", word) for word in small_floats.SIZES)
STORES = {f"{word}_store": word for word in small_floats.SIZES}
STORAGE = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


def codes_of(word: str) -> np.ndarray:
    """All codes of a small float, ascending."""
    count = len(small_floats.SIZES[word]) * (2 if word in small_floats.SIGN else 1) + (word in small_floats.NAN_CODE)
    return np.arange(count, dtype=np.uint8)


def patterns(word: str, element: str) -> np.ndarray:
    """Bit patterns of an element type to store as a small float: all of 16 bits; of wider ones what lies on and next to
    each value and each middle of two, special values, and random patterns."""
    form = FORMATS[element]
    if form.bits == 16:
        return np.arange(1 << 16, dtype=np.uint16)
    sizes = small_floats.SIZES[word]
    points = {*sizes, *((low + high) / 2 for low, high in zip(sizes, sizes[1:])), Fraction(sizes[-1] * 3, 2)}
    around = {encode_fraction(point, form) + step for point in points for step in (-2, -1, 0, 1, 2)}
    if form is F64:  # next to a middle by less than f32 can tell
        around |= {encode_fraction(p + side * p / (1 << 40), form) for p in points for side in (-1, 1)}
    special = {0, 1, form.smallest_normal, form.largest, form.infinity, form.infinity + 1, form.nan}
    found = sorted({size for size in around | special if 0 <= size <= form.nan})
    rng = np.random.default_rng(13)
    random = rng.integers(0, 1 << form.bits, 20000, np.uint64, endpoint=False) if form is F32 else rng.integers(
        0, (1 << 64) - 1, 20000, np.uint64, endpoint=True
    )
    ordinary = rng.normal(0, 3, 20000).astype(STORAGE[element]).view(f"u{form.bits // 8}")
    both = np.array([*found, *(size | form.sign for size in found)], np.uint64)
    return np.concatenate([both, random, ordinary.astype(np.uint64)]).astype(f"u{form.bits // 8}")


def stored(bits: np.ndarray, form: Format, word: str) -> np.ndarray:
    """The codes that patterns are stored as, by the oracle, as an array holds them."""
    return held(np.array([small_floats.encode(decode(int(each), form), word) for each in bits], np.uint8), word)


def held(codes: np.ndarray, word: str) -> np.ndarray:
    """Codes as the bytes of an array: those of 4 bits two to a byte."""
    return pack(codes) if len(codes_of(word)) <= 16 else codes


def pack(codes: np.ndarray) -> np.ndarray:
    """Two codes a byte, the first in the low half; what pads an odd number is 0."""
    padded = np.append(codes, np.zeros(len(codes) % 2, np.uint8))
    return padded[0::2] + 16 * padded[1::2]
