"""Programs that scan rows (scan.cuh, scan_down.cuh): which variant serves a call, how it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.errors import Unsupported
from skuda.model.operation import Operand, Operation, Types
from skuda.model.scan_order import TILE_WARPS
from skuda.model.sum_order import GROUP
from skuda.schedules.axes import merged
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels, Rows
from skuda.schedules.table import SCAN_SEGMENT, SCAN_THREADS, RowMode, ScanVariant, scan_variants

_WARP = 32  # rows beside each other that a warp goes down
_BYTES = 8  # of the total of a segment


class ScanKernels(RowKernels):
    """Geometry of an operation that scans, at fixed types and sizes.

    Attributes:
        few_rows: rows that leave a GPU idle where a block has each of them.
    """

    few_rows = 264

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        found = scan_variants(operation, types)
        along = [each for each in found if not each.walkers and not each.parts]
        self._along = {mode: [each for each in along if each.mode is mode] for mode in RowMode}
        self._parts = {each.mode: each for each in found if each.parts}
        self._down = [each for each in found if each.walkers]
        extents = {name: prod(size) if isinstance(size, tuple) else size for name, size in sizes.items()}
        lengths = [extents[dim.name] for dim in operation.space if dim.name in self.along]
        self._length = prod(lengths)
        self._rows = prod(extents[dim.name] for dim in operation.space) // max(1, self._length)
        blocks = self._rows * self._segments
        self._bytes = _BYTES * operation.analysis.scans * blocks
        self.workspace = self._bytes if self._in_parts else 0

    @property
    def _segments(self) -> int:
        return -(-self._length // SCAN_SEGMENT)

    @property
    def _in_parts(self) -> bool:
        """Whether several blocks have a row."""
        return self._segments > 1 and self._rows < self.few_rows

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so."""
        if self.packed and (reason := self.bytes_shared()):
            raise Unsupported(f"{self.operation.class_name}Plan: {reason}")
        arrays, operands, rows = self.found_in(layouts)
        output = operands.index(self.operation.outputs[0])
        axes = sorted(rows.axes, key=lambda axis: -abs(axis.strides[output]))  # neighbours last: rows have no order
        rows = Rows(merged(axes, 1), rows.inner, rows.last, None)
        mode = self.mode_of(layouts, arrays, rows, [self.operation.runs_along(operand) for operand in operands])
        variant = self._variant(rows, mode, operands)
        count, head, strides = rows.count, rows.head, self.strides_of(operands, arrays, rows)
        if variant.parts:
            blocks = count * self._segments
            finish = blocks, SCAN_THREADS
            return Geometry(variant, blocks, head, strides, SCAN_THREADS, finish, self._bytes)
        return Geometry(variant, -(-count // variant.rows), head, strides, SCAN_THREADS)

    def _variant(self, rows: Rows, mode: RowMode, operands: Sequence[Operand]) -> ScanVariant:
        """Threads that lie along rows; where rows are neighbours in most of what is read and written, threads that go
        down them, unless these would be few blocks that go far."""
        idle = self._rows < 4 * self.few_rows and rows.length > _WARP * GROUP * TILE_WARPS
        if mode is RowMode.STEPPED and self._down and rows.axes and not idle:
            full = [position for position, operand in enumerate(operands) if operand.dims == self.operation.space]
            beside = sum(rows.axes[-1].strides[position] == 1 for position in full)
            if 2 * beside >= len(full) and rows.axes[-1].extent >= _WARP // 2:
                return next((each for each in self._down if rows.length <= each.elements), self._down[-1])
        if self._in_parts:
            return self._parts[mode]
        return next((each for each in self._along[mode] if rows.length <= each.elements), self._along[mode][-1])
