"""What a call makes, from the shapes and element types of its inputs alone: for frameworks that trace programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skuda.arrays.views import View, view_of
from skuda.errors import InvalidProblem
from skuda.model.dtypes import DTYPES
from skuda.model.operation import packed_shape
from skuda.plans.broadcasting import broadcast
from skuda.plans.functions import Call, normalized
from skuda.plans.layout import deciding, strides_of
from skuda.plans.selection import Resolved, resolve


def resolved_by(call: Call, describe: Callable[[Any, str], View | int | float]) -> tuple[Call, list, Resolved]:
    """The call with checked options, its inputs as `describe` has them, in one shape those that broadcast, and what it
    means; the same as of `made_by`."""
    call = normalized(call)
    operation, name = call.plan_class.operation, call.plan_class.__name__
    values = []
    for index, (operand, value) in enumerate(zip(operation.inputs, call.inputs, strict=True)):
        described = describe(value, f"{name}: {operand.name}")
        if not (isinstance(described, View) or operand.scalar or index in operation.broadcast):
            described = view_of(value, f"{name}: {operand.name}")  # which refuses a number
        values.append(described)
    if operation.differ(values):
        values = broadcast(operation, values, name)
    return call, values, resolve(call.plan_class, values, call.attributes, call.dtypes, call.input_dtype, call.shape)


def made_by(call: Call, describe: Callable[[Any, str], View | int | float]) -> list[tuple[tuple, np.dtype]]:
    """The shape and the element of each output, as it travels.

    Args:
        call: the call; extents of its inputs may be symbols.
        describe: what makes a view (or a number) of an input; its second argument is what an error calls it.

    Raises:
        SkudaError: the arguments do not fit together.
    """
    call, values, found = resolved_by(call, describe)
    operation, name = call.plan_class.operation, call.plan_class.__name__
    shapes = []
    for operand in operation.operands:
        word = operation.word(operand, found.types)
        shape = packed_shape(operation.shape_of(operand, found.sizes), word)
        if found.axes is not None:
            from skuda.plans.axis_views import axis_views_of

            axis_view, kept = axis_views_of(operation, operand, shape, word, found.axes, call.keepdims)
            shapes.append((axis_view.shape, kept.shape if kept is not None else axis_view.shape, word))
        else:
            spread = operation.spread(operand, found.sizes)
            shapes.append((shape, spread[0] if spread is not None else shape, word))
    for operand, value, (shape, spread, _) in zip(operation.inputs, values, shapes):
        if isinstance(value, View) and not operand.scalar and value.shape not in (shape, spread):
            raise InvalidProblem(f"{name}: {operand.name} has shape {value.shape}, expected {shape}")
    return [(shape, DTYPES[word].storage) for shape, _, word in shapes[len(operation.inputs) :]]


def strides_by(
    call: Call,
    describe: Callable[[Any, str], View | int | float],
    shapes: list[tuple],
    known: Callable[[Any], bool] = bool,
) -> list:
    """Of each output its strides, None where it is C-contiguous: as `functions.run` makes it of arrays that lie so.

    Args:
        call, describe: as of `made_by`, with the strides of inputs, which may be symbols.
        shapes: of each output, as `made_by` says.
        known: as of `layout.strides_of`.
    """
    call, values, found = resolved_by(call, describe)
    operation = call.plan_class.operation
    words = [operation.word(operand, found.types) for operand in operation.operands]
    decide = deciding(operation, words)
    if not decide:
        return [None] * len(shapes)
    return strides_of(operation, words, shapes, [values[index] for index in decide], known)
