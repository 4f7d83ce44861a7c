"""Linear interpolation, one element at a time: a + weight * (b - a), each step rounded once.

Arguments and results are bit patterns. `weight` is of the compute type in `lerp`, of the element type in
`lerp_tensor`: `weight_element` says which.
"""

from __future__ import annotations

from .floats import FORMATS, add, compute_format, decode, encode, integer, multiply, subtract


def lerp(a, b, weight, *, element, weight_element) -> int:
    form, compute = FORMATS[element], compute_format(element)
    start = decode(a, form)
    span = subtract(decode(b, form), start, compute)
    return encode(add(start, multiply(decode(weight, FORMATS[weight_element]), span, compute), compute), form)


def lerp_backward(d_output, weight, *, element, weight_element) -> tuple[int, int]:
    """(d_a, d_b) = ((1 - weight) * d_output, weight * d_output)."""
    form, compute = FORMATS[element], compute_format(element)
    gradient, share = decode(d_output, form), decode(weight, FORMATS[weight_element])
    rest = subtract(integer(1, compute), share, compute)
    return encode(multiply(rest, gradient, compute), form), encode(multiply(share, gradient, compute), form)


def lerp_tensor_backward(d_output, a, b, weight, *, element) -> tuple[int, int, int]:
    """(d_a, d_b, d_weight); d_weight = d_output * (b - a)."""
    form, compute = FORMATS[element], compute_format(element)
    span = subtract(decode(b, form), decode(a, form), compute)
    ends = lerp_backward(d_output, weight, element=element, weight_element=element)
    return *ends, encode(multiply(decode(d_output, form), span, compute), form)
