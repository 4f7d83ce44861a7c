"""How the arrays of a call may be split over devices, from the named dimensions of its operation.

Each axis of an array is one of a dimension: a `Factor`. Where every array that has a factor is split along it alike,
and no element of an output depends on others along it, each device computes its part without hearing of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation, Types
from skuda.model.records import Record


class Factor(Record):
    """One axis of a dimension.

    Attributes:
        name: the dimension.
        index: which of its axes; 0 where it is no `*name`.
        unit: how many of its elements one entry of the array stands for: a block's length, 2 where codes of 4 bits
            share a byte, else 1.
    """

    name: str
    index: int
    unit: int = 1

    @property
    def key(self) -> tuple[str, int]:
        """What is the same for all operands that have it."""
        return self.name, self.index


class Rule(Record):
    """How the arrays of a call may be split along one factor.

    Attributes:
        splits: whether they may at all.
        multiple: elements of which each part has a whole number, but for the last: blocks and bytes do not straddle.
        partial: of each output the reduction that joins the parts' results (`sum`, `max`, ...), or an empty text where
            each part makes its own elements; empty where that is so of all. A sum of parts has another order than the
            sum of all, and each part's was rounded when it was stored.
    """

    splits: bool
    multiple: int = 1
    partial: tuple[str, ...] = ()


Axes = tuple[Factor | None, ...]


def factors(
    operation: Operation,
    sizes: Mapping[str, int | tuple[int, ...]],
    types: Types,
    order: Sequence[int] | None = None,
    keeps: Sequence[str] = (),
) -> dict[str, Axes]:
    """Of each operand by name, what the axes of its array are; None is an axis of one element that `keepdims` keeps.

    Args:
        operation: of the call.
        sizes: of its dimensions and blocks.
        types: the words of the type letters.
        order: where a call names axes, those of the array in the order of the space, `ChosenAxes.order`.
        keeps: names of operands whose arrays have one element along each axis that they lack.
    """
    space = [factor for dim in operation.space for factor in _of(dim.name, sizes)]
    places = list(range(len(space))) if order is None else [*order]
    by_place = dict(zip(places, space, strict=True))
    found = {}
    for operand in operation.operands:
        own = [factor for dim in operand.dims for factor in _of(dim.name, sizes, sizes[dim.block] if dim.block else 1)]
        if order is not None and operand.dims == operation.space:
            own = [by_place[place] for place in range(len(space))]
        elif operand.name in keeps:
            named = {factor.key: factor for factor in own}
            own = [named.get(by_place[place].key) for place in range(len(space))]
        if own and own[-1] is not None and DTYPES[operation.word(operand, types)].packed:
            own[-1] = Factor(own[-1].name, own[-1].index, 2 * own[-1].unit)
        found[operand.name] = tuple(own)
    return found


def repeated(own: Axes, shape: Sequence[int], given: Sequence[int]) -> Axes:
    """What the axes of an array are that is broadcast: it lacks the first ones, and has one element along others.

    Args:
        own: once it is broadcast.
        shape: then.
        given: its own shape.
    """
    first = len(shape) - len(given)
    return tuple([None if extent == 1 != shape[axis] else own[axis] for axis, extent in enumerate(given, first)])


def rule(
    operation: Operation, axes: Mapping[str, Axes], key: tuple[str, int], sizes: Mapping[str, int | tuple[int, ...]]
) -> Rule:
    """How a call's arrays may be split along a factor.

    Args:
        operation: of the call.
        axes: what `factors` says.
        key: of the factor.
        sizes: of dimensions and blocks.
    """
    name = key[0]
    if name in operation.fixed:  # a part would have another size
        return Rule(False)
    whole = [text.partition("/")[2] for text in operation.analysis.whole if text.partition("/")[0] == name]
    units = [each.unit for own in axes.values() for each in own if each is not None and each.key == key]
    multiple = lcm(*units, *[sizes[block] for block in whole if block])
    if "" in whole:
        partial = dict(operation.analysis.partial).get(name, ())
    else:
        partial = ("",) * len(operation.outputs)
    for operand, how in zip(operation.outputs, partial):
        if not how and not any(each is not None and each.key == key for each in axes[operand.name]):
            return Rule(False, multiple)
    return Rule(bool(partial), multiple, partial if any(partial) else ())


def _of(name: str, sizes: Mapping[str, int | tuple[int, ...]], unit: int = 1) -> list[Factor]:
    """The factors of a dimension."""
    size = sizes[name]
    return [Factor(name, index, unit) for index in range(len(size) if isinstance(size, tuple) else 1)]
