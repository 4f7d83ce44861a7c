"""Axes that a call chooses (`axis: axes of reduced`): a plan's operands as other views of the caller's arrays.

A plan has the kept axes of an array first and the reduced ones after them. Which axes of the caller's array these are
is a matter of strides alone: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skuda.arrays.views import View, view_of, with_axes
from skuda.errors import InvalidProblem, Unsupported, shown
from skuda.launch.fast_path import Straight, refuse
from skuda.model.descriptor import is_integer
from skuda.model.dtypes import DTYPES
from skuda.model.records import Record

if TYPE_CHECKING:
    from skuda.plans.plan import Plan


class Place(Record):
    """How an operand lies in the caller's array.

    Attributes:
        shape: of the array, as it travels.
        axes: the axes of the array that the operand has, in the operand's order. Any other has one element.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]


class Chosen(Record):
    """The axes of an array that a call names, and the others; both ascend."""

    kept: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order in which a plan has them."""
        return self.kept + self.reduced


def chosen(axis, shape: tuple[int, ...], called: str, of: str) -> Chosen:
    """What an `axes` attribute means for an array: as in NumPy.

    Args:
        axis: an integer, a tuple of them, or None for all axes; negative ones count from the end. An array without
            axes takes 0 and -1 too, as in NumPy and torch: it is a row of one element.
        shape: of the array.
        called: the plan and the attribute, for messages: `SumPlan: axis`.
        of: the array's name.

    Raises:
        InvalidProblem: it is none of these, an axis that the array does not have, or one that is named twice.
    """
    rank = len(shape)
    if axis is None:
        return Chosen((), tuple(range(rank)))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    most = max(rank, 1)  # one value is taken as a row of one
    for each in given:
        if not is_integer(each):
            expected = "an integer, a tuple of integers, or None for all axes"
            raise InvalidProblem(f"{called} is {shown(axis)}, expected {expected}")
        if not -most <= each < most:
            expected = f"{-rank} to {rank - 1}" if rank else "-1, 0, () or None"
            raise InvalidProblem(f"{called} is {shown(axis)}, expected {expected} for {of} of shape {shape}")
    reduced = sorted(int(each) % most for each in given)
    for first, second in zip(reduced, reduced[1:]):
        if first == second:
            raise InvalidProblem(f"{called} is {shown(axis)}, which names axis {first} of {of} twice")
    if not rank:
        return Chosen((), ())
    return Chosen(tuple(each for each in range(rank) if each not in reduced), tuple(reduced))


class Arrangement:
    """A plan whose operands lie in the caller's arrays as `places` say.

    It stands in for the plan in `skuda.plans.functions`.

    Attributes:
        plan: what runs.
        operation: the plan's.
        made: of each output, the shape and the element of an array that can hold it, as the caller wants it.
    """

    def __init__(self, plan: Plan, places: tuple[Place, ...], spread: tuple[Place | None, ...]):
        self.plan = plan
        self.operation = plan.operation
        self.made = tuple(
            (place.shape, DTYPES[word].storage)
            for place, word in list(zip(places, plan.words, strict=True))[len(plan.operation.inputs) :]
        )
        self.stream_of = plan.stream_of
        self._places = places
        self._spread = spread  # where else an operand may lie: in an array that keeps the axes it lacks
        self._straight: Straight = refuse  # the one that served last

    def execute(self, values: Sequence, stream=None) -> None:
        """`Plan.execute` on the caller's arrays."""
        if not self._straight(values, stream):
            self.plan.execute([self._operand(index, value) for index, value in enumerate(values)], stream)

    def learn(self, values: Sequence) -> Straight | None:
        """`Plan.learn` for the caller's arrays."""
        straight = self.plan.learn(values, self._places)
        if straight is not None:
            self._straight = straight
        return straight

    def _operand(self, index: int, value) -> Any:
        """The operand in a caller's array, or the caller's number."""
        operand, place = self.operation.operands[index], self._places[index]
        if operand.scalar and not place.shape:
            return value
        view = value if type(value) is View else view_of(value, f"{self.plan.name}: {operand.name}")
        spread = self._spread[index]
        if view.shape != place.shape and spread is not None and view.shape == spread.shape:
            place = spread
        if view.shape != place.shape:
            raise InvalidProblem(f"{self.plan.name}: {operand.name} has shape {view.shape}, expected {place.shape}")
        return with_axes(view, place.axes)


def arranged(plan: Plan, axes: Chosen, keepdims: bool) -> Plan | Arrangement:
    """The plan for a caller whose arrays have the axes so; the plan itself where its operands are these arrays.

    Raises:
        Unsupported: an array is packed along an axis that would have to be another.
    """
    operation = plan.operation
    of = operation.axis.axis_of
    space = next(operand.dims for operand in operation.operands if operand.dims[-1:] and operand.dims[-1].name == of)
    places, spread = [], []
    for index, (operand, stored) in enumerate(zip(operation.operands, plan.stored, strict=True)):
        shape, own = stored, tuple(range(len(stored)))
        kept = None
        if operand.dims == space:
            if DTYPES[plan.words[index]].packed and axes.order[-1:] != own[-1:]:
                raise Unsupported(
                    f"{plan.name}: {operation.axis.name} leaves axis {axes.order[-1]} of {operand.name} last, expected "
                    "the last axis, along which 4-bit codes are packed"
                )
            own = axes.order
            shape = tuple(stored[own.index(axis)] for axis in range(len(own)))
        elif operand.name in operation.keeps:
            ranks = range(len(axes.order))
            kept = Place(tuple(stored[axes.kept.index(a)] if a in axes.kept else 1 for a in ranks), axes.kept)
        places.append(kept if kept is not None and keepdims else Place(shape, own))
        spread.append(kept)
    same = all(place.shape == stored and place.axes == tuple(range(len(stored)))
               for place, stored in zip(places, plan.stored, strict=True))  # fmt: skip
    return plan if same else Arrangement(plan, tuple(places), tuple(spread))
