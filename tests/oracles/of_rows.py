"""The oracles of operations on rows: see binding.py."""

from __future__ import annotations

from fractions import Fraction

from . import fp8, observers, of_elements, rows
from .binding import oracle
from .floats import FORMATS, compute_format, decode, encode, encode_fraction
from .of_elements import number


def _wide(scale: int, element: str, scale_element: str) -> int:
    """A stored scale in the compute type, which holds it exactly."""
    return encode(decode(scale, FORMATS[scale_element]), compute_format(element))


def _real(bits: int, element: str) -> Fraction:
    """A finite number of the compute type."""
    return decode(bits, compute_format(element)).signed


def _ones(row: list[int], element: str) -> list[int]:
    """The weights of a row that has none."""
    return [int(encode_fraction(1, FORMATS[element]))] * len(row)


def _nothing(row: list[int], element: str) -> list[int]:
    """The bias of a row that has none: -0, which changes no bit."""
    return [FORMATS[element].sign] * len(row)


# ---- codes whose scale is found ----


@oracle(sharing="scale")
def dynamic_quantize(input, *, q_min, q_max, T, S):
    return rows.dynamic_quantize(input, q_min, q_max, element=T, scale_element=S)


@oracle(sharing="scale")
def dynamic_quantize_asymmetric(input, *, q_min, q_max, T, S):
    return rows.dynamic_quantize_asymmetric(input, q_min, q_max, element=T, scale_element=S)


@oracle(sharing="scale")
def dynamic_quantize_fp8(input, *, q_max, T, S, Q):
    return fp8.dynamic_quantize(input, number(q_max, Q), element=T, word=Q, scale_element=S)


@oracle(over="d")
def rms_norm_dynamic_quantize(input, weight=None, *, scale, eps, q_min, q_max, T, S, W=None):
    weight = _ones(input, T) if weight is None else weight
    kinds = {"element": T, "scale_element": S, "weight_element": W}
    return rows.rms_norm_dynamic_quantize(input, weight, eps, q_min, q_max, _wide(scale, T, S), **kinds)


@oracle(over="d")
def add_rms_norm_dynamic_quantize(input, residual, weight=None, *, scale, eps, q_min, q_max, T, S, W=None):
    weight = _ones(input, T) if weight is None else weight
    kinds = {"element": T, "scale_element": S, "weight_element": W}
    stored = _wide(scale, T, S)
    return rows.add_rms_norm_dynamic_quantize(input, residual, weight, eps, q_min, q_max, stored, **kinds)


@oracle(over="d")
def layer_norm_dynamic_quantize(input, weight=None, bias=None, *, scale, eps, q_min, q_max, T, S, W=None):
    weight = _ones(input, T) if weight is None else weight
    bias = _nothing(input, W or T) if bias is None else bias
    kinds = {"element": T, "scale_element": S, "weight_element": W}
    return rows.layer_norm_dynamic_quantize(input, weight, bias, eps, q_min, q_max, _wide(scale, T, S), **kinds)


@oracle(sharing="scale")
def silu_mul_dynamic_quantize(gate, up, scale, *, q_min, q_max, T, S):
    return rows.silu_mul_dynamic_quantize(gate, up, q_min, q_max, _wide(scale, T, S), element=T, scale_element=S)


@oracle(over="d")
def sums_silu_mul_dynamic_quantize(gate, up, row_scale, gate_scale, up_scale, scale, *, q_min, q_max, T):
    """The products are rounded to f32 in two steps each, as those of dequantize_sums."""
    gate = [of_elements.dequantize_sums(value, row_scale, each, T=T) for value, each in zip(gate, gate_scale)]
    up = [of_elements.dequantize_sums(value, row_scale, each, T=T) for value, each in zip(up, up_scale)]
    return rows.silu_mul_dynamic_quantize(gate, up, q_min, q_max, scale, element=T, scale_element=T)


@oracle(over="d")
def softmax_dynamic_quantize(input, scale, *, q_min, q_max, T, S):
    return rows.softmax_dynamic_quantize(input, q_min, q_max, _wide(scale, T, S), element=T, scale_element=S)


@oracle(over="d")
def gelu_dynamic_quantize(input, scale, *, q_min, q_max, T, S):
    return rows.gelu_dynamic_quantize(input, q_min, q_max, _wide(scale, T, S), element=T, scale_element=S)


@oracle(over="d")
def gelu_tanh_dynamic_quantize(input, scale, *, q_min, q_max, T, S):
    return rows.gelu_tanh_dynamic_quantize(input, q_min, q_max, _wide(scale, T, S), element=T, scale_element=S)


# ---- observers ----


@oracle(sharing="low")
def observe_min_max(input, low, high, *, T):
    return observers.min_max(input, low, high, element=T)


@oracle(sharing="largest")
def observe_absmax(input, largest, *, T):
    return observers.absmax(input, largest, element=T)


@oracle(sharing="low")
def observe_moving_average(input, low, high, *, averaging, T):
    return observers.moving_average(input, low, high, averaging, element=T)


# ---- an output for each element ----


@oracle(over="d")
def rms_norm(input, weight, *, eps, T, W):
    return rows.rms_norm(input, weight, eps, element=T, weight_element=W)


@oracle(over=("n", "d"))
def rms_norm_backward(d_output, input, weight, *, eps, T, W):
    return rows.rms_norm_backward(d_output, input, weight, eps, element=T, weight_element=W)


@oracle(over="d")
def rms_normalize(input, *, eps, T):
    return rows.rms_normalize(input, eps, element=T)


@oracle(over="d")
def rms_normalize_backward(d_output, input, *, eps, T):
    return rows.rms_normalize_backward(d_output, input, eps, element=T)


@oracle(over="d")
def add_rms_norm(input, residual, weight=None, *, eps, T, W=None):
    weight = _ones(input, T) if weight is None else weight
    return rows.add_rms_norm(input, residual, weight, eps, element=T, weight_element=W)


@oracle(over=("n", "d"))
def add_rms_norm_backward(d_total, d_output, weight, total, *, eps, T, W):
    return rows.add_rms_norm_backward(d_total, d_output, weight, total, eps, element=T, weight_element=W)


@oracle(over=("n", "d"))
def add_rms_norm_without_weight_backward(d_total, d_output, total, *, eps, T):
    weight = _ones(total[0] if total else [], T)
    return rows.add_rms_norm_backward(d_total, d_output, weight, total, eps, element=T)[0]


@oracle(over="d")
def layer_norm(input, weight, bias=None, *, eps, T, W):
    bias = _nothing(input, W) if bias is None else bias
    return rows.layer_norm(input, weight, bias, eps, element=T, weight_element=W)


@oracle(over=("n", "d"))
def layer_norm_backward(d_output, input, weight, *, eps, T, W):
    return rows.layer_norm_backward(d_output, input, weight, eps, element=T, weight_element=W)


@oracle(over=("n", "d"))
def layer_norm_without_bias_backward(d_output, input, weight, *, eps, T, W):
    return rows.layer_norm_backward(d_output, input, weight, eps, element=T, weight_element=W)[:2]


@oracle(over="d")
def standardize(input, *, eps, T):
    return rows.standardize(input, eps, element=T)


@oracle(over="d")
def standardize_backward(d_output, input, *, eps, T):
    return rows.standardize_backward(d_output, input, eps, element=T)


@oracle(over="d")
def l2_normalize(input, *, eps, T):
    return rows.l2_normalize(input, eps, element=T)


@oracle(over="d")
def l2_normalize_backward(d_output, input, *, eps, T):
    return rows.l2_normalize_backward(d_output, input, eps, element=T)


@oracle(over="d")
def softmax(input, *, T):
    return rows.softmax(input, element=T)


@oracle(over="d")
def softmax_backward(d_output, output, *, T):
    return rows.softmax_backward(d_output, output, element=T)


@oracle(over="d")
def log_softmax(input, *, T):
    return rows.log_softmax(input, element=T)


@oracle(over="d")
def log_softmax_backward(d_output, output, *, T):
    return rows.log_softmax_backward(d_output, output, element=T)


# ---- an output for each row; of the gradients of sum and mean, d_input is there for its length ----


@oracle(over="reduced")
def sum(input, *, T):
    return rows.total(input, element=T)


@oracle(over="reduced")
def sum_backward(d_output, d_input, *, T):
    return rows.total_backward(d_output, d_input, element=T)


@oracle(over="reduced")
def mean(input, *, T):
    return rows.mean(input, element=T)


@oracle(over="reduced")
def mean_backward(d_output, d_input, *, T):
    return rows.mean_backward(d_output, d_input, element=T)


@oracle(over="reduced")
def prod(input, *, T):
    return rows.product(input, element=T)


@oracle(over="reduced")
def prod_backward(d_output, input, output, *, T):
    return rows.product_backward(d_output, input, output, element=T)


@oracle(over="reduced")
def amax(input, *, T):
    return rows.largest(input, element=T) if T in FORMATS else sorted(input)[-1]


@oracle(over="reduced")
def amax_backward(d_output, input, output, *, T):
    return rows.largest_backward(d_output, input, output, element=T)


@oracle(over="reduced")
def amin(input, *, T):
    return rows.smallest(input, element=T) if T in FORMATS else sorted(input)[0]


@oracle(over="reduced")
def amin_backward(d_output, input, output, *, T):
    return rows.smallest_backward(d_output, input, output, element=T)


@oracle(over="reduced")
def norm1(input, *, T):
    return rows.norm1(input, element=T)


@oracle(over="reduced")
def norm1_backward(d_output, input, *, T):
    return rows.norm1_backward(d_output, input, element=T)


@oracle(over="reduced")
def norm2(input, *, T):
    return rows.norm2(input, element=T)


@oracle(over="reduced")
def norm2_backward(d_output, input, output, *, T):
    return rows.norm2_backward(d_output, input, output, element=T)


@oracle(over="reduced")
def logsumexp(input, *, T):
    return rows.logsumexp(input, element=T)


@oracle(over="reduced")
def logsumexp_backward(d_output, input, output, *, T):
    return rows.logsumexp_backward(d_output, input, output, element=T)


@oracle(over="reduced")
def var(input, *, correction, T):
    return rows.variance(input, _real(correction, T), element=T)


@oracle(over="reduced")
def var_backward(d_output, input, *, correction, T):
    return rows.variance_backward(d_output, input, _real(correction, T), element=T)


@oracle(over="reduced")
def std(input, *, correction, T):
    return rows.deviation(input, _real(correction, T), element=T)


@oracle(over="reduced")
def std_backward(d_output, input, output, *, correction, T):
    return rows.deviation_backward(d_output, input, output, _real(correction, T), element=T)


@oracle(over="reduced")
def any(input, *, T):
    return rows.some(input, element=T) if T in FORMATS else int(set(input) != {0})


@oracle(over="reduced")
def all(input, *, T):
    return rows.each(input, element=T) if T in FORMATS else int(0 not in input)


@oracle(over="reduced")
def count_nonzero(input, *, T):
    return rows.nonzero(input, element=T) if T in FORMATS else len(input) - input.count(0)


@oracle(over="reduced")
def argmax(input, *, T):
    return rows.first_largest(input, element=T) if T in FORMATS else input.index(sorted(input)[-1])


@oracle(over="reduced")
def argmin(input, *, T):
    return rows.first_smallest(input, element=T) if T in FORMATS else input.index(sorted(input)[0])
