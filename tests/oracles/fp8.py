"""Quantization to floats of 8 bits, one element at a time, from its definition.

Floating-point arguments and results are bit patterns (ints), codes too; `element`, `scale_element` and `word` (of the
codes) are type words, `q_max` is a number. The compute type is f64 for f64 elements and f32 for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .floats import FORMATS, FP8, Value, compute_format, decode, divide, encode, encode_fraction, multiply, rounded


def highest(word: str) -> Fraction:
    """The largest finite value of a type of codes."""
    return decode(FP8[word].largest, FP8[word]).magnitude


def quotient(x: int, scale: int, *, element: str, scale_element: str) -> Value:
    """x / scale, rounded to the compute type."""
    scale = decode(scale, FORMATS[scale_element])
    return divide(decode(x, FORMATS[element]), scale, compute_format(element))


def in_range(x, scale, q_max, *, element, scale_element) -> bool:
    """The straight-through mask: whether the quotient is no larger than q_max; not so for NaN."""
    value = quotient(x, scale, element=element, scale_element=scale_element)
    return value.kind == "finite" and value.magnitude <= q_max


def quantize(x, scale, q_max, *, element, scale_element, word) -> int:
    """The code nearest to x / scale, cut to -q_max .. q_max; of NaN the canonical NaN."""
    value = quotient(x, scale, element=element, scale_element=scale_element)
    if value.kind == "inf" or (value.kind == "finite" and value.magnitude > q_max):
        value = Value("finite", value.negative, Fraction(q_max))
    return encode(value, FP8[word])


def quantize_backward(d_output, x, scale, q_max, *, element, scale_element) -> int:
    """d_output / scale inside the range, 0 outside."""
    kinds = {"element": element, "scale_element": scale_element}
    if not in_range(x, scale, q_max, **kinds):
        return 0
    return encode(quotient(d_output, scale, **kinds), FORMATS[element])


def dequantize(code, scale, *, element, scale_element, word) -> int:
    """code * scale in the compute type, then narrowed."""
    compute = compute_format(element)
    product = multiply(decode(code, FP8[word]), decode(scale, FORMATS[scale_element]), compute)
    return encode(product, FORMATS[element])


def dequantize_backward(d_output, scale, *, element, scale_element) -> int:
    """d_output * scale."""
    form = FORMATS[element]
    product = multiply(decode(d_output, form), decode(scale, FORMATS[scale_element]), compute_format(element))
    return encode(product, form)


def dynamic_quantize(row: Sequence[int], q_max, *, element, word, scale_element=None) -> tuple[int, list[int]]:
    """(scale, codes): scale = the largest finite magnitude / q_max as `scale_element` (the compute type if None) holds
    it, the least positive value of that type (bit pattern 1) in place of 0; 1 where the magnitude is 0. The codes
    are made with the scale as it is stored.
    """
    compute = compute_format(element)
    scale_form = FORMATS[scale_element or compute.word]
    values = [decode(x, FORMATS[element]) for x in row]
    size = max((value.magnitude for value in values if value.kind == "finite"), default=0)
    scale = encode_fraction(1, scale_form)
    if size:
        divisor = rounded(Value("finite", False, Fraction(q_max)), compute)
        scale = encode(divide(Value("finite", False, size), divisor, compute), scale_form) or 1
    kinds = {"element": element, "scale_element": scale_form.word, "word": word}
    return scale, [quantize(x, scale, q_max, **kinds) for x in row]
