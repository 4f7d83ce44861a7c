"""Autocast and vmap of operators, from their element types and named dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from skuda.model.operation import COMPUTE

if TYPE_CHECKING:
    from skuda.torch.operators import Operator

_BY_WIDTH = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def autocast(operator: Operator, numbers: bool, out: bool, key: str) -> Callable:
    """What runs at an autocast key: inputs of one type letter get the widest type that one of them has.

    A kernel computes in f32 (f64 for f64) and rounds once, so no input has to be widened for the sake of precision, and
    none is narrowed. Scales and other letters keep their own types.
    """
    operation = operator.operation
    letters = [operand.element for operand in operation.inputs]

    def promote(*values):
        values = list(values)
        for letter in dict.fromkeys(letters):
            if letter not in operation.types and letter != COMPUTE:
                continue
            positions = [position for position, each in zip(operator.inputs, letters) if each == letter]
            tensors = [values[position] for position in positions if isinstance(values[position], torch.Tensor)]
            types = {tensor.dtype for tensor in tensors}
            if len(types) > 1 and types <= {*_BY_WIDTH}:
                halves = {torch.bfloat16, torch.float16} <= types
                widest = torch.float32 if halves else next(dtype for dtype in _BY_WIDTH if dtype in types)
                for position in positions:
                    if isinstance(values[position], torch.Tensor):
                        values[position] = values[position].to(widest)
        with _ExcludeDispatchKeyGuard(DispatchKeySet(getattr(DispatchKey, key))):
            return operator.overloads[numbers, out](*values)

    return promote


def vmap(operator: Operator, numbers: bool, out: bool) -> Callable:
    """What `torch.vmap` does with an operator: calls it for each of the batch, and stacks what it makes."""

    def each(info, in_dims, *values):
        overload = operator.overloads[numbers, out]
        size = info.batch_size

        def of(index):
            return tuple(
                value.select(dim, index) if isinstance(value, torch.Tensor) and dim is not None else value
                for value, dim in zip(values, in_dims, strict=True)
            )

        made = [overload(*of(index)) for index in range(size)]
        if out:
            return None, None
        if len(operator.operation.outputs) == 1:
            return torch.stack(made), 0
        return tuple(map(torch.stack, zip(*made))), (0,) * len(operator.operation.outputs)

    return each
