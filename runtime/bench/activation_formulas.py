"""Activations as a torch user writes them: what `formulas` asks for the elementwise ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from skuda.bench.problem import Problem
from skuda.bench.tensors import dtype_of, wide_of

Formula = Callable[..., object]

# What torch calls the two forms of gelu.
_FORMS = {"gelu": "none", "gelu_tanh": "tanh"}


def _types(problem: Problem) -> tuple[torch.dtype, torch.dtype]:
    """The compute type, and that of the last output."""
    return wide_of(problem), dtype_of(problem.case.operands[-1].word)


def _gelu(problem: Problem) -> Formula:
    (wide, out), form = _types(problem), _FORMS[problem.case.operation.name]
    return lambda x: functional.gelu(x.to(wide), approximate=form).to(out)


def _gelu_backward(problem: Problem) -> Formula:
    (wide, out), form = _types(problem), _FORMS[problem.case.operation.name]
    return lambda g, x: torch.ops.aten.gelu_backward(g.to(wide), x.to(wide), approximate=form).to(out)


def _silu_mul(problem: Problem) -> Formula:
    wide, out = _types(problem)
    return lambda gate, up: (functional.silu(gate.to(wide)) * up.to(wide)).to(out)


def _silu_mul_backward(problem: Problem) -> Formula:
    wide, out = _types(problem)

    def backward(g, gate, up):
        g, gate, up = g.to(wide), gate.to(wide), up.to(wide)
        return torch.ops.aten.silu_backward(g * up, gate).to(out), (g * functional.silu(gate)).to(out)

    return backward


def _gelu_quantize(problem: Problem) -> Formula:
    (wide, out), form = _types(problem), _FORMS[problem.case.operation.name.partition("_quantize")[0]]
    low, high = problem.q_min, problem.q_max

    def quantize(x, s, z):
        return torch.clamp(torch.round(functional.gelu(x.to(wide), approximate=form) / s) + z, low, high).to(out)

    return quantize


def _gelu_quantize_backward(problem: Problem) -> Formula:
    (wide, out), form = _types(problem), _FORMS[problem.case.operation.name.partition("_quantize")[0]]
    low, high = problem.q_min, problem.q_max

    def backward(g, x, s, z):
        x = x.to(wide)
        codes = torch.round(functional.gelu(x, approximate=form) / s) + z
        slope = torch.ops.aten.gelu_backward(g.to(wide) / s, x, approximate=form)
        return torch.where((codes >= low) & (codes <= high), slope, 0).to(out)

    return backward


MAKERS: dict[str, Callable[[Problem], Formula]] = {
    "gelu": _gelu,
    "gelu_backward": _gelu_backward,
    "gelu_tanh": _gelu,
    "gelu_tanh_backward": _gelu_backward,
    "silu_mul": _silu_mul,
    "silu_mul_backward": _silu_mul_backward,
    "gelu_quantize": _gelu_quantize,
    "gelu_tanh_quantize": _gelu_quantize,
    "gelu_quantize_backward": _gelu_quantize_backward,
    "gelu_tanh_quantize_backward": _gelu_quantize_backward,
}
