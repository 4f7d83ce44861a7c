"""Bit patterns worth trying, chosen without regard to what the operations make of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from .floats import Format, decode, encode_fraction


def special(form: Format) -> np.ndarray:
    """Zeros, both ends of subnormals and normals, 1 and its neighbours, infinities, NaNs, of both signs."""
    one, normal = form.bias << form.fraction_bits, form.smallest_normal
    sizes = [0, 1, 2, 3, normal - 1, normal, normal + 1, one - 1, one, one + 1]
    sizes += [form.largest - 1, form.largest, form.infinity, form.infinity + 1, form.nan]
    return np.array(sizes + [size | form.sign for size in sizes], dtype=np.uint64)


def sample(rng: np.random.Generator, form: Format, count: int) -> np.ndarray:
    """Random patterns: about a quarter special ones, half of the rest within a factor 2^12 of 1."""
    bits = rng.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - form.bits)
    span = min(12, form.bias - 1)
    field = rng.integers(form.bias - span, form.bias + span + 1, count).astype(np.uint64)
    keep = np.uint64(form.sign | ((1 << form.fraction_bits) - 1))
    near_one = (bits & keep) | (field << np.uint64(form.fraction_bits))
    bits = np.where(rng.random(count) < 0.5, near_one, bits)
    return np.where(rng.random(count) < 0.25, rng.choice(special(form), count), bits)


def near_multiple(scale: int, multiple: Fraction, beside: int, scale_form: Format, form: Format) -> int:
    """The pattern nearest to multiple * scale, moved by `beside` patterns; 0 if scale is not finite."""
    size = decode(scale, scale_form)
    if size.kind != "finite":
        return 0
    pattern = encode_fraction(multiple * size.signed, form) + beside
    return max(0, min(pattern, (1 << form.bits) - 1))
