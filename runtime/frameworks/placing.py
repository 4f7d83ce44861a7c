"""How the arrays of a call lie, for what evaluates formulas on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from skuda.arrays.views import View
from skuda.model.descriptor import attributes_of
from skuda.model.records import Record
from skuda.plans.functions import Call
from skuda.plans.results import made_by, resolved_by


class Placing(Record):
    """How the arrays of a call lie.

    Attributes:
        rank: axes of the operation's space.
        axes: of each dimension the axes that it is, as the arrays of the call have them.
        ranks: of each operand by name, how many axes its array has; of inputs that broadcast, after that.
        words: element types by type letter, C among them.
        values: of the attributes that formulas use, and the lengths of blocks.
        shape: of an array with all dimensions, where a call says it and no input shows it; or that of what codes of 4
            bits were packed from. Numbers, or a value of the graph. None where the call says none.
        sizes: the extent of each dimension, or extents of a `*name`; the length of each kind of block.
        given: of each input that broadcasts by name, the shape of the caller's array; of a number ().
    """

    rank: int
    axes: Mapping[str, tuple[int, ...]]
    ranks: Mapping[str, int]
    words: Mapping[str, str]
    values: Mapping[str, int | float]
    shape: Any = None
    sizes: Mapping[str, Any] = {}
    given: Mapping[str, tuple] = {}


def placing(call: Call, describe: Callable[[Any, str], View | int | float]) -> Placing:
    """How the arrays of a call lie.

    Args:
        call: the call; extents of its inputs may be symbols.
        describe: what makes a view (or a number) of an input; its second argument is what an error calls it.

    Raises:
        SkudaError: the arguments do not fit together.
    """
    call, views, found = resolved_by(call, describe)
    operation, name = call.plan_class.operation, call.plan_class.__name__
    given = {}
    for index in operation.broadcast:
        known = operation.inputs[index].name
        given[known] = getattr(describe(call.inputs[index], f"{name}: {known}"), "shape", ())
    attributes = attributes_of(operation, SimpleNamespace(**found.attributes), found.types, name)
    shapes = [shape for shape, _ in made_by(call, describe)]
    counts = {each: len(size) if isinstance(size, tuple) else 1 for each, size in found.sizes.items()}
    rank = sum(counts[dim.name] for dim in operation.space)
    order = range(rank) if found.axes is None else found.axes.order
    axes, start = {}, 0
    for dim in operation.space:
        axes[dim.name] = tuple(order[start : start + counts[dim.name]])
        start += counts[dim.name]
    ranks = {o.name: len(getattr(view, "shape", ())) for o, view in zip(operation.inputs, views, strict=True)}
    ranks |= {operation.inputs[index].name: rank for index in operation.broadcast}  # numbers among them
    ranks |= {o.name: len(shape) for o, shape in zip(operation.outputs, shapes, strict=True)}
    blocks = {each: found.sizes[each] for each in found.blocks}
    return Placing(rank, axes, ranks, found.types, attributes | blocks, call.shape, found.sizes, given)
