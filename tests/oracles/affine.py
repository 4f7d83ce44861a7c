"""Affine quantization, one element at a time, from its definition.

Floating-point arguments and results are bit patterns (ints); `element` and `scale_element` are type words.
The compute type is f64 for f64 elements and f32 for all others, whatever the scale's own type.
"""

from __future__ import annotations

from .floats import FORMATS, compute_format, decode, divide, encode, integer, multiply

# More than any finite quotient plus any zero point: an infinity stays outside whatever is added to it.
BEYOND = 1 << 1100


def clamp(number: int, low: int, high: int) -> int:
    return max(low, min(number, high))


def steps(x: int, scale: int, *, element: str, scale_element: str) -> int:
    """x / scale divided in the compute type, then rounded to an integer, ties to even; 0 for a NaN."""
    scale = decode(scale, FORMATS[scale_element])
    quotient = divide(decode(x, FORMATS[element]), scale, compute_format(element))
    if quotient.kind == "nan":
        return 0
    if quotient.kind == "inf":
        return -BEYOND if quotient.negative else BEYOND
    return round(quotient.signed)


def quantize(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> int:
    """The code of x."""
    return clamp(steps(x, scale, element=element, scale_element=scale_element) + zero_point, q_min, q_max)


def in_range(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> bool:
    """The straight-through mask: whether the clamp leaves the code of x alone."""
    return q_min <= steps(x, scale, element=element, scale_element=scale_element) + zero_point <= q_max


def dequantize(q, scale, zero_point, *, element, scale_element) -> int:
    """(q - zero_point) * scale: integer rounded once to the compute type, the product once, then narrowed."""
    compute = compute_format(element)
    product = multiply(integer(q - zero_point, compute), decode(scale, FORMATS[scale_element]), compute)
    return encode(product, FORMATS[element])


def fake_quantize(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> int:
    """x after a round trip through its code."""
    kinds = {"element": element, "scale_element": scale_element}
    return dequantize(quantize(x, scale, zero_point, q_min, q_max, **kinds), scale, zero_point, **kinds)


def quantize_backward(d_output, x, scale, zero_point, q_min, q_max, *, element, scale_element) -> int:
    """d_output / scale inside the range, 0 outside."""
    if not in_range(x, scale, zero_point, q_min, q_max, element=element, scale_element=scale_element):
        return 0
    form = FORMATS[element]
    scale = decode(scale, FORMATS[scale_element])
    return encode(divide(decode(d_output, form), scale, compute_format(element)), form)


def fake_quantize_backward(d_output, x, scale, zero_point, q_min, q_max, *, element, scale_element) -> int:
    """d_output inside the range, 0 outside."""
    if not in_range(x, scale, zero_point, q_min, q_max, element=element, scale_element=scale_element):
        return 0
    return encode(decode(d_output, FORMATS[element]), FORMATS[element])


def dequantize_backward(d_output, scale, *, element, scale_element) -> int:
    """d_output * scale."""
    form = FORMATS[element]
    product = multiply(decode(d_output, form), decode(scale, FORMATS[scale_element]), compute_format(element))
    return encode(product, form)
