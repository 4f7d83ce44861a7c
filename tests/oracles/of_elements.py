"""The oracles of operations whose elements are made one by one: see binding.py."""

from __future__ import annotations

from fractions import Fraction

from . import affine, fp8, learned, rows
from . import lerp as interpolation
from .binding import oracle
from .floats import FORMATS, FP8, add, compute_format, decode, encode, integer, multiply


def number(bits: int, word: str) -> Fraction:
    """A finite float of 8 bits."""
    return decode(bits, FP8[word]).signed


def kinds(element: str, scale_element: str) -> dict[str, str]:
    return {"element": element, "scale_element": scale_element}


@oracle
def quantize(input, scale, zero_point=0, *, q_min, q_max, T, S):
    return affine.quantize(input, scale, zero_point, q_min, q_max, **kinds(T, S))


@oracle
def quantize_backward(d_output, input, scale, zero_point=0, *, q_min, q_max, T, S):
    return affine.quantize_backward(d_output, input, scale, zero_point, q_min, q_max, **kinds(T, S))


@oracle
def dequantize(input, scale, zero_point=0, *, T, S):
    return affine.dequantize(input, scale, zero_point, **kinds(T, S))


@oracle
def dequantize_sums(input, row_scale, scale, bias=None, *, T, W=None):
    """Rounded to the compute type, and once more after each step; without a bias nothing is added."""
    compute = compute_format(T)
    value = integer(input, compute)
    for factor in (row_scale, scale):
        value = multiply(value, decode(factor, compute), compute)
    if bias is not None:
        value = add(value, decode(bias, FORMATS[W]), compute)
    return encode(value, FORMATS[T])


@oracle
def dequantize_backward(d_output, scale, *, T, S):
    return affine.dequantize_backward(d_output, scale, **kinds(T, S))


@oracle
def fake_quantize(input, scale, zero_point=0, *, q_min, q_max, T, S):
    return affine.fake_quantize(input, scale, zero_point, q_min, q_max, **kinds(T, S))


@oracle
def fake_quantize_backward(d_output, input, scale, zero_point=0, *, q_min, q_max, T, S):
    return affine.fake_quantize_backward(d_output, input, scale, zero_point, q_min, q_max, **kinds(T, S))


@oracle
def learnable_fake_quantize(input, scale, zero_point=0, *, q_min, q_max, T):
    return learned.fake_quantize(input, scale, zero_point, q_min, q_max, element=T)


@oracle(sharing="scale")
def learnable_fake_quantize_backward(d_output, input, scale, zero_point=0, *, q_min, q_max, grad_factor, T):
    return learned.fake_quantize_backward(d_output, input, scale, zero_point, q_min, q_max, grad_factor, element=T)


@oracle(sharing="scale")
def learnable_fake_quantize_without_zero_point_backward(d_output, input, scale, *, q_min, q_max, grad_factor, T):
    return learned.fake_quantize_backward(d_output, input, scale, 0, q_min, q_max, grad_factor, element=T)[:2]


@oracle
def quantize_fp8(input, scale, *, q_max, T, S, Q):
    return fp8.quantize(input, scale, number(q_max, Q), word=Q, **kinds(T, S))


@oracle
def quantize_fp8_backward(d_output, input, scale, *, q_max, T, S, Q):
    return fp8.quantize_backward(d_output, input, scale, number(q_max, Q), **kinds(T, S))


@oracle
def dequantize_fp8(input, scale, *, T, S, Q):
    return fp8.dequantize(input, scale, word=Q, **kinds(T, S))


@oracle
def dequantize_fp8_backward(d_output, scale, *, T, S):
    return fp8.dequantize_backward(d_output, scale, **kinds(T, S))


@oracle
def lerp(a, b, weight, *, T):
    return interpolation.lerp(a, b, weight, element=T, weight_element=compute_format(T).word)


@oracle
def lerp_backward(d_output, weight, *, T):
    return interpolation.lerp_backward(d_output, weight, element=T, weight_element=compute_format(T).word)


@oracle
def lerp_tensor(a, b, weight, *, T):
    return interpolation.lerp(a, b, weight, element=T, weight_element=T)


@oracle
def lerp_tensor_backward(d_output, a, b, weight, *, T):
    return interpolation.lerp_tensor_backward(d_output, a, b, weight, element=T)


@oracle
def gelu(input, *, T):
    return rows.gelu([input], element=T)[0]


@oracle
def gelu_backward(d_output, input, *, T):
    return rows.gelu_backward([d_output], [input], element=T)[0]


@oracle
def gelu_tanh(input, *, T):
    return rows.gelu_tanh([input], element=T)[0]


@oracle
def gelu_tanh_backward(d_output, input, *, T):
    return rows.gelu_tanh_backward([d_output], [input], element=T)[0]


@oracle
def silu_mul(gate, up, *, T):
    return rows.silu_mul([gate], [up], element=T)[0]


@oracle
def silu_mul_backward(d_output, gate, up, *, T):
    of_gate, of_up = rows.silu_mul_backward([d_output], [gate], [up], element=T)
    return of_gate[0], of_up[0]


@oracle
def gelu_quantize(input, scale, zero_point=0, *, q_min, q_max, T, S):
    return rows.gelu_quantize([input], scale, zero_point, q_min, q_max, **kinds(T, S))[0]


@oracle
def gelu_quantize_backward(d_output, input, scale, zero_point=0, *, q_min, q_max, T, S):
    return rows.gelu_quantize_backward([d_output], [input], scale, zero_point, q_min, q_max, **kinds(T, S))[0]


@oracle
def gelu_tanh_quantize(input, scale, zero_point=0, *, q_min, q_max, T, S):
    return rows.gelu_tanh_quantize([input], scale, zero_point, q_min, q_max, **kinds(T, S))[0]


@oracle
def gelu_tanh_quantize_backward(d_output, input, scale, zero_point=0, *, q_min, q_max, T, S):
    return rows.gelu_tanh_quantize_backward([d_output], [input], scale, zero_point, q_min, q_max, **kinds(T, S))[0]
