"""Normalizations, softmaxes, dynamic quantization and reductions as a torch user writes them.

`MAKERS` composes them of elementary operations in the catalog's compute type, for torch eager and torch.compile;
`native` is torch's one function for each, where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.nn import functional

from skuda.bench.formulas import dtype_of, is_packed, pack, wide_of
from skuda.bench.problem import Problem
from skuda.bench.suite import Case

Formula = Callable[..., object]


def _out(problem: Problem) -> torch.dtype:
    """The type of the last output: codes, or the one result."""
    return dtype_of(problem.case.operands[-1].word)


def epsilon(case: Case) -> float:
    """What a normalization adds, as the catalog has it; 0 in an operation that adds none."""
    return next((attribute.default for attribute in case.operation.attributes if attribute.name == "eps"), 0.0)


# ---- dynamic quantization ----


def _blocks(problem: Problem, reduce: Callable[..., torch.Tensor]) -> Formula:
    """A reduction over rows or groups, kept so that `_spread` fits it to the elements."""
    group, axes = problem.case.attributes.get("group_size"), problem.case.reduced
    if group is None:
        return lambda x: reduce(x, axes, True)

    def reduced(x):
        if x.shape[-1] % group:
            x = functional.pad(x, (0, -x.shape[-1] % group))
        return reduce(x.unflatten(-1, (-1, group)), -1, False)

    return reduced


def _spread(problem: Problem) -> Formula:
    group, length = problem.case.attributes.get("group_size"), problem.case.shape.extents[-1]
    if group is None:
        return lambda parameter: parameter
    return lambda parameter: parameter.repeat_interleave(group, -1)[..., :length]


def _stored(problem: Problem) -> Formula:
    """Codes and their parameters as the outputs hold them."""
    out, packed = _out(problem), is_packed(problem)
    places = [placed for placed in problem.case.operands if placed.operand in problem.case.operation.outputs]
    shapes = [placed.shape for placed in places[:-1]]

    def stored(codes, *parameters):
        kept = [each.reshape(shape) for each, shape in zip(parameters, shapes, strict=True)]
        return (*kept, pack(codes) if packed else codes.to(out))

    return stored


def _symmetric(problem: Problem) -> Formula:
    """From values in the compute type. Codes that are floats are rounded by the store alone."""
    low, high, out = problem.q_min, problem.q_max, _out(problem)
    largest, spread, stored = _blocks(problem, torch.amax), _spread(problem), _stored(problem)

    def quantize(x):
        most = largest(x.abs())
        scale = torch.where(most == 0, 1, most / high)
        quotient = x / spread(scale)
        return stored(torch.clamp(quotient if out.is_floating_point else torch.round(quotient), low, high), scale)

    return quantize


def _dynamic_quantize(problem: Problem) -> Formula:
    wide, quantize = wide_of(problem), _symmetric(problem)
    return lambda x: quantize(x.to(wide))


def _dynamic_quantize_asymmetric(problem: Problem) -> Formula:
    wide, low, high = wide_of(problem), problem.q_min, problem.q_max
    spread, stored = _spread(problem), _stored(problem)
    least, most = _blocks(problem, torch.amin), _blocks(problem, torch.amax)

    def quantize(x):
        x = x.to(wide)
        bottom, top = least(x).clamp(max=0), most(x).clamp(min=0)
        scale = torch.where(top == bottom, 1, top / (high - low) - bottom / (high - low))
        zero = torch.clamp(low - torch.round(bottom / scale), low, high)
        codes = torch.clamp(torch.round(x / spread(scale)) + spread(zero), low, high)
        return stored(codes, scale, zero.to(torch.int32))

    return quantize


def _rms_norm_dynamic_quantize(problem: Problem) -> Formula:
    wide, eps, quantize = wide_of(problem), epsilon(problem.case), _symmetric(problem)

    def fused(x, weight):
        x = x.to(wide)
        return quantize(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(wide))

    return fused


def _silu_mul_dynamic_quantize(problem: Problem) -> Formula:
    wide, quantize = wide_of(problem), _symmetric(problem)
    return lambda gate, up: quantize(functional.silu(gate.to(wide)) * up.to(wide))


# ---- rows ----


def _rms_norm(problem: Problem) -> Formula:
    wide, out, eps = wide_of(problem), _out(problem), epsilon(problem.case)

    def rms_norm(x, weight):
        x = x.to(wide)
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(wide)).to(out)

    return rms_norm


def _layer_norm(problem: Problem) -> Formula:
    wide, out, eps = wide_of(problem), _out(problem), epsilon(problem.case)

    def layer_norm(x, weight, bias):
        x = x.to(wide)
        x = x - x.mean(-1, keepdim=True)
        normal = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return (normal * weight.to(wide) + bias.to(wide)).to(out)

    return layer_norm


def _l2_normalize(problem: Problem) -> Formula:
    wide, out, eps = wide_of(problem), _out(problem), epsilon(problem.case)

    def normalize(x):
        x = x.to(wide)
        return (x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)).to(out)

    return normalize


def _softmax(problem: Problem) -> Formula:
    wide, out = wide_of(problem), _out(problem)

    def softmax(x):
        x = x.to(wide)
        raised = torch.exp(x - x.amax(-1, keepdim=True))
        return (raised / raised.sum(-1, keepdim=True)).to(out)

    return softmax


def _log_softmax(problem: Problem) -> Formula:
    wide, out = wide_of(problem), _out(problem)

    def log_softmax(x):
        x = x.to(wide)
        x = x - x.amax(-1, keepdim=True)
        return (x - x.exp().sum(-1, keepdim=True).log()).to(out)

    return log_softmax


def _softmax_backward(problem: Problem) -> Formula:
    wide, out = wide_of(problem), _out(problem)

    def backward(gradient, y):
        gradient, y = gradient.to(wide), y.to(wide)
        return (y * (gradient - (gradient * y).sum(-1, keepdim=True))).to(out)

    return backward


def _log_softmax_backward(problem: Problem) -> Formula:
    wide, out = wide_of(problem), _out(problem)

    def backward(gradient, y):
        gradient = gradient.to(wide)
        return (gradient - y.to(wide).exp() * gradient.sum(-1, keepdim=True)).to(out)

    return backward


# ---- reductions ----


def _one(axes: tuple[int, ...]) -> int:
    """For functions of torch that take one axis."""
    (axis,) = axes
    return axis


_REDUCTIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]] = {
    "sum": lambda x, axes: x.sum(axes),
    "mean": lambda x, axes: x.mean(axes),
    "prod": lambda x, axes: x.prod(_one(axes)),
    "amax": lambda x, axes: x.amax(axes),
    "amin": lambda x, axes: x.amin(axes),
    "argmax": lambda x, axes: x.argmax(_one(axes)),
    "argmin": lambda x, axes: x.argmin(_one(axes)),
    "norm1": lambda x, axes: torch.linalg.vector_norm(x, 1, axes),
    "norm2": lambda x, axes: torch.linalg.vector_norm(x, 2, axes),
    "logsumexp": lambda x, axes: x.logsumexp(axes),
}


def _reduction(name: str) -> Callable[[Problem], Formula]:
    def make(problem: Problem) -> Formula:
        wide, out, axes = wide_of(problem), _out(problem), problem.case.reduced
        return lambda x: _REDUCTIONS[name](x.to(wide), axes).to(out)

    return make


MAKERS: dict[str, Callable[[Problem], Formula]] = {
    "dynamic_quantize": _dynamic_quantize,
    "dynamic_quantize_fp8": _dynamic_quantize,
    "dynamic_quantize_asymmetric": _dynamic_quantize_asymmetric,
    "rms_norm_dynamic_quantize": _rms_norm_dynamic_quantize,
    "silu_mul_dynamic_quantize": _silu_mul_dynamic_quantize,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "l2_normalize": _l2_normalize,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _log_softmax_backward,
    **{name: _reduction(name) for name in _REDUCTIONS},
}


def native(problem: Problem, tensors: Mapping[str, object]) -> Callable[[], object] | None:
    """torch's own function for the operation, on tensors over the operands' memory; None where it has none."""
    case = problem.case
    name = case.operation.function
    if name in _REDUCTIONS:
        return lambda: _REDUCTIONS[name](tensors["input"], case.reduced)
    make = _NATIVE.get(name)
    return make and make(case, tensors)


def _native_normalization(case: Case, tensors: Mapping[str, object]) -> Callable[[], object]:
    x, width, eps = tensors["input"], case.shape.extents[-1:], epsilon(case)
    if case.operation.name == "rms_norm":
        return lambda: functional.rms_norm(x, width, tensors["weight"], eps)
    return lambda: functional.layer_norm(x, width, tensors["weight"], tensors["bias"], eps)


_NATIVE: dict[str, Callable[[Case, Mapping[str, object]], Callable[[], object]]] = {
    "rms_norm": _native_normalization,
    "layer_norm": _native_normalization,
    "l2_normalize": lambda case, of: lambda: functional.normalize(of["input"], dim=-1, eps=epsilon(case)),
    "softmax": lambda case, of: lambda: torch.softmax(of["input"], -1),
    "log_softmax": lambda case, of: lambda: torch.log_softmax(of["input"], -1),
    "softmax_backward": lambda case, of: lambda: torch._softmax_backward_data(
        of["d_output"], of["output"], -1, of["output"].dtype
    ),
    "log_softmax_backward": lambda case, of: lambda: torch._log_softmax_backward_data(
        of["d_output"], of["output"], -1, of["output"].dtype
    ),
}
