"""Fake quantization by a scale and a zero point that are learned (LSQ), and its gradients, from their definitions.

Arguments are bit patterns; scale, zero point and gradient factor are of the compute type. The gradients of scale and
zero point are sums, so they are spans.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import affine, spans
from .floats import FORMATS, compute_format, decode, divide, integer, multiply, negate, subtract
from .spans import ZERO, Span, point


def nearest_code(zero_point: int, q_min: int, q_max: int, *, element: str) -> int:
    """A zero point rounded to an integer, ties to even, and cut to the codes; that of NaN is the code nearest to 0."""
    value = decode(zero_point, FORMATS[element])
    if value.kind == "nan":
        return affine.clamp(0, q_min, q_max)
    if value.kind == "inf":
        return q_min if value.negative else q_max
    return affine.clamp(round(value.signed), q_min, q_max)


def fake_quantize(x, scale, zero_point, q_min, q_max, *, element) -> int:
    """x after a round trip through its code."""
    wide = compute_format(element).word
    code = nearest_code(zero_point, q_min, q_max, element=wide)
    return affine.fake_quantize(x, scale, code, q_min, q_max, element=element, scale_element=wide)


def fake_quantize_backward(
    d_output: Sequence[int], row: Sequence[int], scale, zero_point, q_min, q_max, grad_factor, *, element
) -> tuple[list[int], Span, Span]:
    """(of the input, of the scale, of the zero point): an element in range passes its gradient g on, and adds
    g * (round(x / scale) - x / scale) to the scale's; one beyond adds g * (the steps of the end that it is cut to) to
    the scale's and -g * scale to the zero point's. Both sums are multiplied by the factor."""
    compute = compute_format(element)
    kinds = {"element": element, "scale_element": compute.word}
    code = nearest_code(zero_point, q_min, q_max, element=compute.word)
    step, factor = decode(scale, compute), point(decode(grad_factor, compute))
    of_input, of_scale, of_zero_point = [], [], []
    for gradient, x in zip(d_output, row, strict=True):
        g = decode(gradient, FORMATS[element])
        steps = affine.steps(x, scale, **kinds)
        of_input.append(affine.fake_quantize_backward(gradient, x, scale, code, q_min, q_max, **kinds))
        if q_min <= steps + code <= q_max:
            quotient = divide(decode(x, FORMATS[element]), step, compute)
            slope, shift = subtract(integer(steps, compute), quotient, compute), ZERO
        else:
            slope = integer((q_min if steps + code < q_min else q_max) - code, compute)
            shift = multiply(negate(g), step, compute)
        of_scale.append(point(multiply(g, slope, compute)))
        of_zero_point.append(point(shift))
    totals = (spans.total(each, compute) for each in (of_scale, of_zero_point))
    return of_input, *(spans.multiply(each, factor, compute) for each in totals)
