"""Axes that a call chooses (`axis: axes of reduced`): a plan's operands as other views of the caller's arrays.

A plan has the kept axes of an array first and the reduced ones after them. Which axes of the caller's array these are
is a matter of strides alone: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skuda.arrays.views import View, halves_of, view_of, with_axes
from skuda.errors import InvalidProblem, Unsupported, shown
from skuda.launch.prepared import FastPath, Ready, refuse
from skuda.model.descriptor import is_integer
from skuda.model.dtypes import DTYPES
from skuda.model.records import Record

if TYPE_CHECKING:
    from skuda.model.operation import Operand, Operation
    from skuda.plans.plan import Plan


class AxisView(Record):
    """How an operand lies in the caller's array.

    Attributes:
        shape: of the array, as it travels.
        axes: the axes of the array that the operand has, in the operand's order. Any other has one element.
        half: which half of the array along its last axis the operand is, 0 or 1; None where it is the whole.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    half: int | None = None

    def within(self, view: View) -> View:
        """The operand in the array."""
        return with_axes(view if self.half is None else halves_of(view)[self.half], self.axes)


class ChosenAxes(Record):
    """The axes of an array that a call names, and the others; both ascend."""

    kept: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order in which a plan has them."""
        return self.kept + self.reduced


def chosen(axis, shape: tuple[int, ...], called: str, of: str) -> ChosenAxes:
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
        return ChosenAxes((), tuple(range(rank)))
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
        return ChosenAxes((), ())
    return ChosenAxes(tuple(each for each in range(rank) if each not in reduced), tuple(reduced))


class AxisViewPlan:
    """A plan whose operands lie in the caller's arrays as `axis_views` say.

    It stands in for the plan in `skuda.plans.functions`.

    Attributes:
        deciding: no inputs: outputs are C-contiguous.
        plan: what runs.
        operation: the plan's.
        made: of each output, the shape and the element of an array that can hold it, as the caller wants it.
        axes: the axes that the call names, and the others.
        keepdims: whether outputs keep the axes that they lack.
        axis_views: of each operand.
    """

    deciding = ()

    def __init__(
        self,
        plan: Plan,
        axis_views: tuple[AxisView, ...],
        spread: tuple[AxisView | None, ...],
        axes: ChosenAxes,
        keepdims: bool,
    ):
        self.plan = plan
        self.axes = axes
        self.keepdims = keepdims
        self.operation = plan.operation
        self.made = tuple(
            (axis_view.shape, DTYPES[word].storage)
            for axis_view, word in list(zip(axis_views, plan.words, strict=True))[len(plan.operation.inputs) :]
        )
        self.stream_of = plan.stream_of
        self.axis_views = axis_views
        self._spread = spread  # where else an operand may lie: in an array that keeps the axes it lacks
        self._fast_path: FastPath = refuse  # the one that served last

    def execute(self, values: Sequence, stream=None) -> None:
        """`Plan.execute` on the caller's arrays."""
        if not self._fast_path(values, stream):
            self.plan.execute(self.operands(values), stream)

    def operands(self, values: Sequence) -> list:
        """The plan's operands in the caller's arrays, which are the caller's numbers where these are."""
        return [self._operand(index, value) for index, value in enumerate(values)]

    def learn(self, values: Sequence) -> FastPath | None:
        """`Plan.learn` for the caller's arrays."""
        fast_path = self.plan.learn(values, self.axis_views)
        if fast_path is not None:
            self._fast_path = fast_path
        return fast_path

    def ready(self, values: Sequence, call: tuple) -> Ready | None:
        """`Plan.ready` for the caller's arrays."""
        return self.plan.ready(values, call, self.axis_views)

    def _operand(self, index: int, value) -> Any:
        """The operand in a caller's array, or the caller's number."""
        operand, axis_view = self.operation.operands[index], self.axis_views[index]
        if operand.scalar and not axis_view.shape:
            return value
        view = value if type(value) is View else view_of(value, f"{self.plan.name}: {operand.name}")
        spread = self._spread[index]
        if view.shape != axis_view.shape and spread is not None and view.shape == spread.shape:
            axis_view = spread
        if view.shape != axis_view.shape:
            raise InvalidProblem(f"{self.plan.name}: {operand.name} has shape {view.shape}, expected {axis_view.shape}")
        return axis_view.within(view)


def with_axis_views(plan: Plan, axes: ChosenAxes, keepdims: bool) -> Plan | AxisViewPlan:
    """The plan for a caller whose arrays have the axes so; the plan itself where its operands are these arrays.

    Raises:
        Unsupported: an array is packed along an axis that would have to be another.
    """
    operation = plan.operation
    found = [
        axis_views_of(operation, operand, stored, word, axes, keepdims)
        for operand, stored, word in zip(operation.operands, plan.stored, plan.words, strict=True)
    ]
    axis_views, spread = zip(*found)
    same = all(axis_view.shape == stored and axis_view.axes == tuple(range(len(stored)))
               for axis_view, stored in zip(axis_views, plan.stored, strict=True))  # fmt: skip
    return plan if same else AxisViewPlan(plan, axis_views, spread, axes, keepdims)


def axis_views_of(
    operation: Operation, operand: Operand, stored: tuple[int, ...], word: str, axes: ChosenAxes, keepdims: bool
) -> tuple[AxisView, AxisView | None]:
    """How an operand lies in the caller's array, and how else it may: in an array that keeps the axes it lacks.

    Args:
        stored: the operand's shape in a plan, as it travels.
        word: its element type.

    Raises:
        Unsupported: the array is packed along an axis that would have to be another.
    """
    shape, own = stored, tuple(range(len(stored)))
    kept = None
    if operand.dims == operation.space_of_axes:
        if DTYPES[word].packed and axes.order[-1:] != own[-1:]:
            raise Unsupported(
                f"{operation.class_name}Plan: {operation.axis.name} leaves axis {axes.order[-1]} of {operand.name} "
                "last, expected the last axis, along which 4-bit codes are packed"
            )
        own = axes.order
        shape = tuple(stored[own.index(axis)] for axis in range(len(own)))
    elif operand.name in operation.analysis.keeps:
        ranks = range(len(axes.order))
        kept = AxisView(tuple(stored[axes.kept.index(a)] if a in axes.kept else 1 for a in ranks), axes.kept)
    return kept if kept is not None and keepdims else AxisView(shape, own), kept
