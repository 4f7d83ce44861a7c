"""The catalog's formulas as a torch user writes them, for torch eager and torch.compile; reductions: row_formulas.

Half types are widened to f32 first, as the catalog's rule says; a user who computes in f16 instead gets other
codes. 4-bit codes are packed and unpacked, for that is what our kernels read and write.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from skuda.bench import activation_formulas, gradient_formulas, row_formulas, torch_functions, torch_gradients
from skuda.bench.problem import Problem
from skuda.bench.suite import Case
from skuda.bench.tensors import dtype_of, is_packed, pack, tensors_of, wide_of
from skuda.model.operation import Direction, Operand, Operation


def composed(problem: Problem, inputs: dict[str, object]) -> tuple[Callable[..., object], tuple] | None:
    """The operation composed of torch's own, and its arguments; None for an operation that is not known here.

    Args:
        problem: its case and range of codes.
        inputs: each input by name: a tensor, or a number.
    """
    case = problem.case
    maker = maker_of(case.operation)
    if maker is None:
        return None
    arguments = tuple(_broadcast(case, operand, inputs[operand.name]) for operand in case.operation.inputs)
    return maker(problem), arguments


def maker_of(operation: Operation) -> Callable[[Problem], Callable[..., object]] | None:
    """What composes an operation for a problem; None for one that is not known here."""
    key = _key(operation)
    return _MAKERS.get(key) or row_formulas.MAKERS.get(key)


def is_bit_equal(operation: Operation) -> bool:
    """Whether peers give our bits: composed ones, of neither sums in another order nor exponentials in other steps."""
    inexact = activation_formulas.MAKERS.keys() | gradient_formulas.MAKERS.keys()
    return not operation.reduces and maker_of(operation) is not None and _key(operation) not in inexact


def _key(operation: Operation) -> str:
    """What the tables of formulas call an operation: all granularities are one."""
    return operation.name.partition("_per_")[0] + operation.function.removeprefix(operation.name)


def _broadcast(case: Case, operand: Operand, value: object) -> object:
    """A parameter with an axis for each of the index space; what there is one of for each block stays as it is."""
    if not isinstance(value, torch.Tensor) or case.is_full(operand) or any(dim.block for dim in operand.dims):
        return value
    axes = case.axes_of(operand)
    return value.reshape([extent if axis in axes else 1 for axis, extent in enumerate(case.extents)])


def _group(problem: Problem) -> int | None:
    return problem.case.attributes.get("group_size")


def _spread(problem: Problem) -> Callable[[object], object]:
    """What makes a scale or zero point broadcast with the input."""
    group, length = _group(problem), problem.case.extents[-1]
    if group is None:
        return lambda parameter: parameter
    return lambda parameter: parameter.repeat_interleave(group, -1)[..., :length]


def _rounded(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide = _spread(problem), wide_of(problem)
    return lambda x, s, z: torch.round(x.to(wide) / spread(s)) + spread(z)


def _quantize(problem: Problem) -> Callable[..., torch.Tensor]:
    rounded, low, high = _rounded(problem), problem.q_min, problem.q_max
    out = dtype_of(problem.case.operands[-1].word)
    if not is_packed(problem):
        return lambda x, s, z: torch.clamp(rounded(x, s, z), low, high).to(out)

    return lambda x, s, z: pack(torch.clamp(rounded(x, s, z), low, high))


def _quantize_fp8(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide, high = _spread(problem), wide_of(problem), problem.q_max
    out = dtype_of(problem.case.operands[-1].word)
    return lambda x, s: torch.clamp(x.to(wide) / spread(s), -high, high).to(out)


def _quantize_fp8_backward(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide, high = _spread(problem), wide_of(problem), problem.q_max
    out = dtype_of(problem.case.operands[-1].word)

    def backward(g, x, s):
        return torch.where((x.to(wide) / spread(s)).abs() <= high, g.to(wide) / spread(s), 0).to(out)

    return backward


def _dequantize_fp8(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide = _spread(problem), wide_of(problem)
    out = dtype_of(problem.case.operands[-1].word)
    return lambda q, s: (q.to(wide) * spread(s)).to(out)


def _dequantize(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide = _spread(problem), wide_of(problem)
    out = dtype_of(problem.case.operands[-1].word)
    length, signed = problem.case.extents[-1], problem.q_min < 0
    packed = is_packed(problem)

    def dequantize(q, s, z):
        if packed:
            q = torch.stack((q & 15, q >> 4), -1).flatten(-2)[..., :length]
            if signed:
                q = (q ^ 8).to(torch.int8) - 8
        return ((q.to(wide) - spread(z)) * spread(s)).to(out)

    return dequantize


def _fake_quantize(problem: Problem) -> Callable[..., torch.Tensor]:
    rounded, spread, low, high = _rounded(problem), _spread(problem), problem.q_min, problem.q_max
    out = dtype_of(problem.case.operands[-1].word)

    def fake_quantize(x, s, z):
        codes = torch.clamp(rounded(x, s, z), low, high)
        return ((codes - spread(z)) * spread(s)).to(out)

    return fake_quantize


def _quantize_backward(problem: Problem) -> Callable[..., torch.Tensor]:
    rounded, spread, wide = _rounded(problem), _spread(problem), wide_of(problem)
    low, high, out = problem.q_min, problem.q_max, dtype_of(problem.case.operands[-1].word)

    def backward(g, x, s, z):
        code = rounded(x, s, z)
        return torch.where((code >= low) & (code <= high), g.to(wide) / spread(s), 0).to(out)

    return backward


def _fake_quantize_backward(problem: Problem) -> Callable[..., torch.Tensor]:
    rounded, low, high = _rounded(problem), problem.q_min, problem.q_max

    def backward(g, x, s, z):
        code = rounded(x, s, z)
        return torch.where((code >= low) & (code <= high), g, 0)

    return backward


def _dequantize_backward(problem: Problem) -> Callable[..., torch.Tensor]:
    spread, wide = _spread(problem), wide_of(problem)
    out = dtype_of(problem.case.operands[-1].word)
    return lambda g, s: (g.to(wide) * spread(s)).to(out)


def _lerp(problem: Problem) -> Callable[..., torch.Tensor]:
    wide, out = wide_of(problem), dtype_of(problem.case.operands[-1].word)

    def lerp(a, b, weight):
        a, b = a.to(wide), b.to(wide)
        return (a + weight * (b - a)).to(out)

    return lerp


def _lerp_backward(problem: Problem) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    wide, out = wide_of(problem), dtype_of(problem.case.operands[-1].word)

    def backward(g, weight):
        g = g.to(wide)
        if isinstance(weight, torch.Tensor):
            weight = weight.to(wide)
        return ((1 - weight) * g).to(out), (weight * g).to(out)

    return backward


def _lerp_tensor_backward(problem: Problem) -> Callable[..., tuple[torch.Tensor, ...]]:
    ends, wide, out = _lerp_backward(problem), wide_of(problem), dtype_of(problem.case.operands[-1].word)
    return lambda g, a, b, weight: (*ends(g, weight), (g.to(wide) * (b.to(wide) - a.to(wide))).to(out))


_MAKERS = {
    "quantize_fp8": _quantize_fp8,
    "quantize_fp8_backward": _quantize_fp8_backward,
    "dequantize_fp8": _dequantize_fp8,
    "dequantize_fp8_backward": _dequantize_backward,
    "quantize": _quantize,
    "quantize_backward": _quantize_backward,
    "dequantize": _dequantize,
    "dequantize_backward": _dequantize_backward,
    "fake_quantize": _fake_quantize,
    "fake_quantize_backward": _fake_quantize_backward,
    "lerp": _lerp,
    "lerp_backward": _lerp_backward,
    "lerp_tensor": _lerp,
    "lerp_tensor_backward": _lerp_tensor_backward,
    **activation_formulas.MAKERS,
}


def native(problem: Problem) -> Callable[[], object] | None:
    """torch's own function for the operation, or autograd's gradient of that for the forward pass; None without one."""
    return _call_of(problem, torch_functions.function_of)


def few(problem: Problem) -> Callable[[], object] | None:
    """The same of two or three functions where torch has no single one."""
    return _call_of(problem, torch_functions.composed_of)


def _call_of(problem: Problem, find: torch_functions.Finder) -> Callable[[], object] | None:
    if problem.case.operation.direction is Direction.BACKWARD:
        return torch_gradients.call_of(problem, tensors_of(problem), find)
    return torch_functions.call_of(problem.case, tensors_of(problem), find)
