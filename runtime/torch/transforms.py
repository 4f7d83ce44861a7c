"""Autocast and vmap of operators, from their element types and named dimensions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from skuda.arrays.libraries import CPU
from skuda.arrays.views import View, contiguous_strides
from skuda.errors import InvalidProblem
from skuda.frameworks.batching import batched
from skuda.plans.functions import Call
from skuda.plans.results import resolved_by
from skuda.torch.broadcasting import aligned, promoted
from skuda.torch.described import described

if TYPE_CHECKING:
    from skuda.torch.operators import Operator

def autocast(operator: Operator, numbers: bool, out: bool, key: str) -> Callable:
    """What runs at an autocast key: inputs of one type letter get the widest type that one of them has.

    A kernel computes in f32 (f64 for f64) and rounds once, so no input has to be widened for the sake of precision, and
    none is narrowed. Scales and other letters keep their own types.
    """
    def promote(*values):
        values = promoted(operator, values)
        with _ExcludeDispatchKeyGuard(DispatchKeySet(getattr(DispatchKey, key))):
            return operator.overloads[numbers, out](*values)

    return promote


def vmap(operator: Operator, numbers: bool, out: bool) -> Callable:
    """What `torch.vmap` does with an operator: one call with a batch axis first, or one for each of the batch."""

    def mapped(info, in_dims, *values):
        values = operator.filled(values, out)
        dims = [
            dim if isinstance(value, torch.Tensor) else None
            for value, dim in zip_longest(values, in_dims[: len(values)])
        ]
        values, dims = aligned(operator, values, dims, info.batch_size)
        count = len(operator.operation.outputs)
        if out and None in dims[-count:]:
            raise InvalidProblem(
                f"skuda.{operator.operation.function}: out= is one array for all of the batch that vmap maps over; "
                "map out= too, or leave it out"
            )
        dims_of_made = 0 if count == 1 else (0,) * count
        if not out and (one := _in_one_call(operator, info.batch_size, dims, values)) is not None:
            return operator.overloads[numbers, False](*one), dims_of_made
        overload = operator.overloads[numbers, out]
        made = [
            overload(*(value if dim is None else value.select(dim, index) for value, dim in zip(values, dims)))
            for index in range(info.batch_size)
        ]
        if out:
            return None, None
        if count == 1:
            return torch.stack(made), dims_of_made
        return tuple(map(torch.stack, zip(*made))), dims_of_made

    return mapped


def _in_one_call(operator: Operator, size: int, dims: list, values: tuple) -> list | None:
    """The arguments of the one call that maps another one; None where there is none (see `frameworks.batching`)."""
    operation = operator.operation

    positions = iter(operator.inputs)  # in the order in which they are described

    def without_batch(value, name):
        position, view = next(positions), described(value, name)
        if dims[position] is None or not isinstance(view, View):
            return view
        shape = tuple(extent for axis, extent in enumerate(value.shape) if axis != dims[position] % value.ndim)
        return View(0, shape, contiguous_strides(shape), view.storage, CPU, True, False, value)

    call, views, found = resolved_by(operator.call_of(values), without_batch)
    ranks = {
        operand.name: len(operation.shape_of(operand, found.sizes)) for operand in operation.operands
    }  # as many as travel
    ranks |= {o.name: len(view.shape) for o, view in zip(operation.inputs, views) if isinstance(view, View)}
    has_batch = {o.name: dims[at] is not None for o, at in zip(operation.inputs, operator.inputs, strict=True)}
    attributes = dict(zip((attribute.name for attribute in operation.attributes), call.attributes, strict=True))
    rule = batched(operation, has_batch, ranks, attributes, found.types)
    if rule is None:
        return None
    inputs = []
    for operand, position in zip(operation.inputs, operator.inputs, strict=True):
        value, dim = values[position], dims[position]
        if dim is not None:
            value = value.movedim(dim, 0)
        elif operand.name in rule.expanded:
            value = value.expand(size, *value.shape)
        inputs.append(value)
    attributes = tuple(rule.attributes[attribute.name] for attribute in operation.attributes)
    said = Call(*(call.plan_class, tuple(inputs), None, attributes, None, call.dtypes, call.input_dtype),
                rule.shape(call.shape, size), call.keepdims)  # fmt: skip
    return operator.values_of(said)
