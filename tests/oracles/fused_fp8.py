"""The oracles of operations on rows whose results become floats of 8 bits: see binding.py.

Values are spans of rows.py, before they are stored. The scale is f32, the compute type of all elements that these
operations take; codes follow from the scale that was stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import rows, spans
from .binding import oracle
from .floats import FORMATS, compute_format, decode, encode_fraction
from .of_elements import number
from .spans import Span, point, real


def _codes(values: Sequence[Span], scale: int, q_max: int, T: str, Q: str) -> tuple[Span, list[Span]]:
    """(scale, codes): the quotient of each value and the scale that was stored, cut to -q_max .. q_max."""
    compute, most = compute_format(T), number(q_max, Q)
    found = rows.symmetric_scale(values, most, decode(rows.LEAST, compute), compute)
    stored, ends = point(decode(scale, compute)), [point(real(end, compute)) for end in (-most, most)]
    return found, [spans.cut(spans.divide(value, stored, compute), *ends) for value in values]


def _filled(parameter: list[int] | None, row: Sequence[int], word: str, value: int) -> list[int]:
    """A weight or bias, or what stands for one that is left out: 1, or -0, which changes no bit."""
    if parameter is not None:
        return parameter
    return [int(encode_fraction(value, FORMATS[word])) if value else FORMATS[word].sign] * len(row)


@oracle(over="d")
def rms_norm_dynamic_quantize_fp8(input, weight=None, *, scale, eps, q_max, T, Q, W=None):
    weight = _filled(weight, input, W or T, 1)
    return _codes(rows.rms_norm(input, weight, eps, element=T, weight_element=W), scale, q_max, T, Q)


@oracle(over="d")
def add_rms_norm_dynamic_quantize_fp8(input, residual, weight=None, *, scale, eps, q_max, T, Q, W=None):
    weight = _filled(weight, input, W or T, 1)
    total, values = rows.add_rms_norm(input, residual, weight, eps, element=T, weight_element=W)
    return total, *_codes(values, scale, q_max, T, Q)


@oracle(over="d")
def layer_norm_dynamic_quantize_fp8(input, weight=None, bias=None, *, scale, eps, q_max, T, Q, W=None):
    weight, bias = _filled(weight, input, W or T, 1), _filled(bias, input, W or T, 0)
    return _codes(rows.layer_norm(input, weight, bias, eps, element=T, weight_element=W), scale, q_max, T, Q)


@oracle(over="d")
def silu_mul_dynamic_quantize_fp8(gate, up, scale, *, q_max, T, Q):
    return _codes(rows.silu_mul(gate, up, element=T), scale, q_max, T, Q)


@oracle(over="d")
def gelu_dynamic_quantize_fp8(input, scale, *, q_max, T, Q):
    return _codes(rows.gelu(input, element=T), scale, q_max, T, Q)


@oracle(over="d")
def gelu_tanh_dynamic_quantize_fp8(input, scale, *, q_max, T, Q):
    return _codes(rows.gelu_tanh(input, element=T), scale, q_max, T, Q)
