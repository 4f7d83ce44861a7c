"""Rows that are reduced, by their axes: which a row lies along and which it does not, in all operands together.

What kernels with `split_moves.cuh`'s Reduction have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.model.operation import Operation, Types
from skuda.schedules.abi import AXES
from skuda.schedules.axes import Axis, merged, step_along
from skuda.schedules.geometry import KernelGeometry, Layouts


class ReducedRows(KernelGeometry):
    """Geometry of rows whose elements lie anywhere.

    Attributes:
        ordered: whether what comes of a row depends on the order of its elements.
        length: elements of a row.
        count: how many rows there are.
    """

    ordered = True

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        lengths = {True: 1, False: 1}
        for dim in operation.space:
            lengths[dim.name in operation.along] *= prod(extents_of(sizes[dim.name]))
        self.length, self.count = lengths[True], lengths[False]

    def axes_of(self, layouts: Layouts, arrays: Sequence[int]) -> tuple[list[Axis], list[Axis], bool]:
        """Those of the rows, in the order of the first input's strides; those along a row, in the space's order, or in
        that of the strides as well where the order does not matter; and whether they are in the space's order."""
        operation = self.operation
        kept: list[Axis] = []
        along: list[Axis] = []
        for dim in operation.space:
            for nth, extent in enumerate(extents_of(self.sizes[dim.name])):
                steps = tuple(
                    step_along(operation.operands[index], layouts.strides[index], dim.name, nth, self.sizes)[0]
                    for index in arrays
                )
                if extent != 1:
                    (along if dim.name in operation.along else kept).append(Axis(extent, steps))
        first = next(position for position, index in enumerate(arrays) if self.full[index])

        def apart(axis: Axis) -> int:
            return -abs(axis.strides[first])

        kept.sort(key=apart)
        in_order = [*along]
        if not self.ordered:
            along.sort(key=apart)
        one = [Axis(1, (1,) * len(arrays))]
        return merged(kept, 1), (merged(along, 1) if self.length else []) or one, along == in_order

    def on_vectors(self, layouts, arrays, full, outer: Sequence[Axis], lanes: int, extent: int) -> bool:
        """Whether `lanes` neighbours are whole vectors on their boundaries, wherever they lie."""
        return (
            layouts.aligned
            and extent % lanes == 0
            and all(
                axis.strides[position] * self.bits[arrays[position]]
                % min(128, lanes * self.bits[arrays[position]]) == 0
                for axis in outer
                if axis.extent > 1
                for position in full
            )
        )

    def reaches(self, arrays: Sequence[int], kept: Sequence[Axis], along: Sequence[Axis]) -> dict[str, tuple[int, ...]]:
        """The slots that follow each operand's pointer."""
        operands = [(position, self.operation.operands[index], index) for position, index in enumerate(arrays)]
        return {each.name: self._reach(position, self.bits[index], kept, along) for position, each, index in operands}

    def _reach(self, position: int, bits: int, kept: Sequence[Axis], along: Sequence[Axis]) -> tuple[int, ...]:
        """Slots of split_moves.cuh's Reach."""
        slots: list[int] = []
        low, high = 0, 1
        for axes in (kept, along):
            slots += [0] * (AXES - len(axes)) + [axis.strides[position] for axis in axes]
            for axis in axes:
                step = axis.strides[position] * (axis.extent - 1)
                low, high = low + min(step, 0), high + max(step, 0)
        return (*slots, low * bits // 8, high * bits // 8)


def extents_of(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """The extents of a dimension's axes."""
    return size if isinstance(size, tuple) else (size,)
