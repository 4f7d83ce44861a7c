"""What torch has no one function for and its users compose of a few, of operands by name; for torch eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from skuda.bench.suite import Case

Operands = Mapping[str, Any]


def _hinge_loss(case: Case, of: Operands) -> torch.Tensor:
    return torch.relu(1 - of["target"] * of["input"]).mean()


def _gaussian_nll_loss(case: Case, of: Operands) -> torch.Tensor:
    """torch's function asks the GPU whether a variance is negative, and waits; this is the rest of it."""
    var = of["var"].clone()
    with torch.no_grad():
        var.clamp_(min=case.default("eps"))
    return (0.5 * (torch.log(var) + (of["input"] - of["target"]) ** 2 / var)).mean()


def _sparsemax(case: Case, of: Operands) -> torch.Tensor:
    ordered = of["input"].sort(-1, descending=True).values
    above = ordered.cumsum(-1) - 1
    kept = (ordered * of["places"] > above).sum(-1, keepdim=True)
    return torch.relu(of["input"] - above.gather(-1, kept - 1) / kept)


def _masked(case: Case, of: Operands) -> torch.Tensor:
    return of["input"].masked_fill(of["hidden"], -torch.inf).softmax(-1)


def _places(case: Case, of: Operands) -> Operands:
    x = of["input"]
    return {"places": torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)}


def _later(case: Case, of: Operands) -> Operands:
    x = of["input"]
    every = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device)
    return {"hidden": every.triu(1 + case.default("diagonal"))}


COMPOSED: dict[str, Callable[[Case, Operands], object]] = {
    "reglu": lambda case, of: functional.relu(of["gate"]) * of["up"],
    "geglu": lambda case, of: functional.gelu(of["gate"]) * of["up"],
    "geglu_tanh": lambda case, of: functional.gelu(of["gate"], approximate="tanh") * of["up"],
    "causal_softmax": _masked,
    "masked_softmax": _masked,
    "sparsemax": _sparsemax,
    "hinge_loss": _hinge_loss,
    "gaussian_nll_loss": _gaussian_nll_loss,
}

PREPARED: dict[str, Callable[[Case, Operands], Operands]] = {  # what users keep beside the operands
    "causal_softmax": _later,
    "masked_softmax": lambda case, of: {"hidden": ~of["mask"]},
    "sparsemax": _places,
}
