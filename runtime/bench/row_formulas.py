"""Normalizations, softmaxes, dynamic quantization and reductions as a torch user writes them.

Composed of elementary operations in the catalog's compute type, for torch eager and torch.compile.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from skuda.bench import gradient_formulas
from skuda.bench.problem import Problem
from skuda.bench.tensors import dtype_of, is_packed, pack, wide_of

Formula = Callable[..., object]


def _out(problem: Problem) -> torch.dtype:
    """The type of the last output: codes, or the one result."""
    return dtype_of(problem.case.operands[-1].word)


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
    group, length = problem.case.attributes.get("group_size"), problem.case.extents[-1]
    if group is None:
        return lambda parameter: parameter
    return lambda parameter: parameter.repeat_interleave(group, -1)[..., :length]


def _kept(problem: Problem) -> Formula:
    """Codes and their parameters as the outputs hold them."""
    out, packed = _out(problem), is_packed(problem)
    outputs = [placed for placed in problem.case.operands if placed.operand in problem.case.operation.outputs]
    before = [placed.shape for placed in outputs[:-1]]

    def stored(codes, *parameters):
        shapes = before[len(before) - len(parameters) :]  # after those of what is stored on the way
        kept = [each.reshape(shape) for each, shape in zip(parameters, shapes, strict=True)]
        return (*kept, pack(codes) if packed else codes.to(out))

    return stored


def _symmetric(problem: Problem) -> Formula:
    """From values in the compute type. Codes that are floats are rounded by the store alone."""
    low, high, out = problem.q_min, problem.q_max, _out(problem)
    largest, spread, stored = _blocks(problem, torch.amax), _spread(problem), _kept(problem)

    def quantize(x):
        most = largest(x.abs())
        scale = torch.where(most == 0, 1, most / high)
        quotient = x / spread(scale)
        return stored(torch.clamp(quotient if out.is_floating_point else torch.round(quotient), low, high), scale)

    return quantize


def _dynamic_quantize_asymmetric(problem: Problem) -> Formula:
    wide, low, high = wide_of(problem), problem.q_min, problem.q_max
    spread, stored = _spread(problem), _kept(problem)
    least, most = _blocks(problem, torch.amin), _blocks(problem, torch.amax)

    def quantize(x):
        x = x.to(wide)
        bottom, top = least(x).clamp(max=0), most(x).clamp(min=0)
        scale = torch.where(top == bottom, 1, top / (high - low) - bottom / (high - low))
        zero = torch.clamp(low - torch.round(bottom / scale), low, high)
        codes = torch.clamp(torch.round(x / spread(scale)) + spread(zero), low, high)
        return stored(codes, scale, zero.to(torch.int32))

    return quantize


# ---- rows: each from values in the compute type to such ----


def _rms_norm(problem: Problem) -> Formula:
    eps = problem.case.default("eps")
    return lambda x, weight=1: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _add_rms_norm(problem: Problem) -> Formula:
    out, rms_norm = dtype_of(problem.case.types["T"]), _rms_norm(problem)

    def normalize(x, residual, weight):
        total = (x + residual).to(out)
        return total, rms_norm(total.to(x.dtype), weight)

    return normalize


def _layer_norm(problem: Problem) -> Formula:
    eps = problem.case.default("eps")

    def layer_norm(x, weight=1, bias=0):
        x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight + bias

    return layer_norm


def _l2_normalize(problem: Problem) -> Formula:
    eps = problem.case.default("eps")
    return lambda x: x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)


def _softmax(problem: Problem) -> Formula:
    def softmax(x):
        raised = torch.exp(x - x.amax(-1, keepdim=True))
        return raised / raised.sum(-1, keepdim=True)

    return softmax


def _log_softmax(problem: Problem) -> Formula:
    def log_softmax(x):
        x = x - x.amax(-1, keepdim=True)
        return x - x.exp().sum(-1, keepdim=True).log()

    return log_softmax


_ROWS: dict[str, Callable[[Problem], Formula]] = {
    "rms_norm": _rms_norm,
    "rms_normalize": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "layer_norm": _layer_norm,
    "standardize": _layer_norm,
    "l2_normalize": _l2_normalize,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}

# What is computed on the way to codes, of one or two inputs.
_BEFORE_CODES: dict[str, Callable[[Problem], Formula]] = {
    "dynamic_quantize": lambda problem: lambda x: x,
    "dynamic_quantize_fp8": lambda problem: lambda x: x,
    "gelu_dynamic_quantize": lambda problem: functional.gelu,
    "gelu_tanh_dynamic_quantize": lambda problem: lambda x: functional.gelu(x, approximate="tanh"),
    "silu_mul_dynamic_quantize": lambda problem: lambda gate, up: functional.silu(gate) * up,
    **{f"{name}_dynamic_quantize": _ROWS[name] for name in ("rms_norm", "add_rms_norm", "layer_norm", "softmax")},
}
_BEFORE_CODES |= {  # the same with codes that are floats of 8 bits
    f"{name}_fp8": make for name, make in _BEFORE_CODES.items() if name.endswith("_dynamic_quantize")
}


def _stored(make: Callable[[Problem], Formula]) -> Callable[[Problem], Formula]:
    """A formula of the compute type, of inputs and for outputs as they are stored."""

    def widened(problem: Problem) -> Formula:
        formula, wide, written = make(problem), wide_of(problem), problem.case.operation.outputs
        outs = [dtype_of(placed.word) for placed in problem.case.operands if placed.operand in written]

        def stored(*inputs):
            result = formula(*(x.to(wide) if isinstance(x, torch.Tensor) else x for x in inputs))
            results = result if isinstance(result, tuple) else (result,)
            return tuple(x.to(out) for x, out in zip(results, outs, strict=True))

        return stored

    return widened


def _quantized(make: Callable[[Problem], Formula]) -> Callable[[Problem], Formula]:
    """A formula of the compute type, and what its result gives of a dynamic quantization, without rounding between."""

    def fused(problem: Problem) -> Formula:
        formula, wide, quantize = make(problem), wide_of(problem), _symmetric(problem)

        def quantized(*inputs):
            result = formula(*(x.to(wide) for x in inputs))
            *stored, last = result if isinstance(result, tuple) else (result,)
            return (*stored, *quantize(last))

        return quantized

    return fused


# ---- reductions ----


def only(axes: tuple[int, ...]) -> int:
    """For functions of torch that take one axis."""
    (axis,) = axes
    return axis


REDUCTIONS: dict[str, Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]] = {
    "sum": lambda x, axes: x.sum(axes),
    "mean": lambda x, axes: x.mean(axes),
    "prod": lambda x, axes: x.prod(only(axes)),
    "amax": lambda x, axes: x.amax(axes),
    "amin": lambda x, axes: x.amin(axes),
    "argmax": lambda x, axes: x.argmax(only(axes)),
    "argmin": lambda x, axes: x.argmin(only(axes)),
    "var": lambda x, axes: x.var(axes),
    "std": lambda x, axes: x.std(axes),
    "any": lambda x, axes: x.any(only(axes)),
    "all": lambda x, axes: x.all(only(axes)),
    "count_nonzero": lambda x, axes: x.count_nonzero(axes),
    "norm1": lambda x, axes: torch.linalg.vector_norm(x, 1, axes),
    "norm2": lambda x, axes: torch.linalg.vector_norm(x, 2, axes),
    "logsumexp": lambda x, axes: x.logsumexp(axes),
    "cumsum": lambda x, axes: x.cumsum(only(axes)),
    "cumsum_backward": lambda x, axes: x.flip(axes).cumsum(only(axes)).flip(axes),
    "cumsum_reverse": lambda x, axes: x.flip(axes).cumsum(only(axes)).flip(axes),
    "cumprod": lambda x, axes: x.cumprod(only(axes)),
    "cummax": lambda x, axes: x.cummax(only(axes)).values,
    "cummin": lambda x, axes: x.cummin(only(axes)).values,
    "logcumsumexp": lambda x, axes: x.logcumsumexp(only(axes)),
}


def _reduction(name: str) -> Callable[[Problem], Formula]:
    def make(problem: Problem) -> Formula:
        wide, out, axes = wide_of(problem), _out(problem), problem.case.reduced
        return lambda x: REDUCTIONS[name](x.to(wide), axes).to(out)

    return make


MAKERS: dict[str, Callable[[Problem], Formula]] = {
    "dynamic_quantize_asymmetric": _dynamic_quantize_asymmetric,
    **{name: _quantized(make) for name, make in _BEFORE_CODES.items()},
    **{name: _stored(make) for name, make in _ROWS.items()},
    **{name: _stored(make) for name, make in gradient_formulas.MAKERS.items()},
    **{name: _reduction(name) for name in REDUCTIONS},
}
