"""Calls on torch tensors that the bench times beside torch's own operators of the same kind, on one tiny tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

import skuda

_ROWS, _WIDTH = 16, 256


def pairs() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By name: a call of torch's own operator, and of ours. `+ gradients` is a forward and a backward pass."""
    torch.manual_seed(0)
    x, y = (torch.randn(_ROWS, _WIDTH, device="cuda") for _ in range(2))
    weight, bias = (torch.randn(_WIDTH, device="cuda") for _ in range(2))
    out, sums = torch.empty_like(x), torch.empty(_ROWS, device="cuda")
    found = _calls(x, y, weight, bias) | {
        "softmax(out=)": (lambda: torch.softmax(x, -1, out=out), lambda: skuda.softmax(x, out=out)),
        "lerp(out=)": (lambda: torch.lerp(x, y, 0.3, out=out), lambda: skuda.lerp(x, y, 0.3, out=out)),
        "sum(out=)": (lambda: torch.sum(x, -1, out=sums), lambda: skuda.sum(x, axis=-1, out=sums)),
    }
    learned = [each.clone().requires_grad_() for each in (x, y, weight, bias)]
    for name, both in _calls(*learned).items():
        found[f"{name} + gradients"] = tuple([partial(_gradients, call, *_operands(call, learned)) for call in both])
    return found


def _calls(x, y, weight, bias) -> dict[str, tuple]:
    return {
        "rms_norm": (lambda: functional.rms_norm(x, (_WIDTH,), weight, 1e-6), lambda: skuda.rms_norm(x, weight)),
        "layer_norm": (
            lambda: functional.layer_norm(x, (_WIDTH,), weight, bias), lambda: skuda.layer_norm(x, weight, bias)
        ),
        "softmax": (lambda: functional.softmax(x, -1), lambda: skuda.softmax(x)),
        "lerp": (lambda: torch.lerp(x, y, 0.3), lambda: skuda.lerp(x, y, 0.3)),
        "sum": (lambda: x.sum(-1), lambda: skuda.sum(x, axis=-1)),
    }  # fmt: skip


def _operands(call: Callable[[], torch.Tensor], learned: list[torch.Tensor]) -> tuple[list, torch.Tensor]:
    """Those of which a call makes something, and a gradient of what it makes."""
    made = call()
    found = torch.autograd.grad(made.sum(), learned, allow_unused=True)
    return [each for each, gradient in zip(learned, found, strict=True) if gradient is not None], made.detach()


def _gradients(call: Callable[[], torch.Tensor], inputs: list[torch.Tensor], gradient: torch.Tensor) -> tuple:
    return torch.autograd.grad(call(), inputs, gradient)
