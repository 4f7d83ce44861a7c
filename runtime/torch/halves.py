"""Two inputs of an operation as the halves of one tensor: `skuda.plans.halves` hands such tensors over.

Autograd would join the gradients of two halves by a copy. Where a backward pass reads halves of one tensor, it writes
the halves of one gradient, which is then taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C import _are_functorch_transforms_active

from skuda.plans import functions


class _Halves(torch.autograd.Function):
    """The halves of a tensor, recorded."""

    @staticmethod
    def forward(ctx, whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Both, as views."""
        return whole.chunk(2, -1)

    @staticmethod
    def backward(ctx, *gradients: torch.Tensor) -> torch.Tensor:
        """The gradient of the whole: where both lie as halves of one tensor, that."""
        return joined(*gradients)


def halves(whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The first and the second half of a tensor along its last axis."""
    recorded = torch.is_grad_enabled() and whole.requires_grad
    return _Halves.apply(whole) if recorded and _in_memory(whole) else whole.chunk(2, -1)


def joined(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """The tensor with these halves: one that there is, or a new one."""
    if not (_in_memory(first, second) and first.numel() and of_one(first, second)):
        return torch.cat((first, second), -1)
    return first.as_strided((*first.shape[:-1], 2 * first.shape[-1]), first.stride())


def _in_memory(*tensors: torch.Tensor) -> bool:
    """Whether no transform and no program of torch is made: tensors have addresses."""
    traced = functions.tracing() or _are_functorch_transforms_active()
    return not traced and all(type(tensor) is torch.Tensor for tensor in tensors)


def of_one(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the one lies behind the other as the halves of one tensor would."""
    distance = first.shape[-1] * first.stride(-1) * first.element_size()
    alike = first.shape == second.shape and first.stride() == second.stride()
    behind = alike and second.data_ptr() - first.data_ptr() == distance
    return behind and first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def places_of_one(operands: Sequence[torch.Tensor], places: Sequence[int]) -> Sequence[int] | None:
    """Of two operands of a backward pass, which is the first half of one tensor and which the second, as places; None
    where they are not halves, or where something of torch follows the pass."""
    first, second = (operands[place] for place in places)
    if torch.is_grad_enabled() or not _in_memory(*operands) or not first.ndim or not first.numel():
        return None
    if of_one(first, second):
        return places
    return places[::-1] if of_one(second, first) else None
