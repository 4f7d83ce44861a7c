"""Programs that scan rows (scan.cuh, scan_down.cuh): which variant serves a call, how it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.errors import Unsupported
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation, Types
from skuda.model.scan_order import SEGMENT_TILES, TILE_WARPS
from skuda.schedules.axes import merged
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels, Rows
from skuda.schedules.scan_variants import SCAN_THREADS, ScanVariant, scan_variants
from skuda.schedules.variant import ROW_MODES, RowMode

_WARP = 32  # rows beside each other that a warp goes down
_CLEARING = 264  # blocks that clear what parts leave, at most
_OF_UNIT = 3  # values that it leaves: its total, and what comes before the next one


class ScanKernels(RowKernels):
    """Geometry of an operation that scans, at fixed types and sizes.

    Attributes:
        few_rows: rows, or rows beside each other, of which a block that has all of one leaves a GPU waiting.
    """

    few_rows = 264

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        found = scan_variants(operation, types)
        along = [each for each in found if not each.walkers and not each.parts]
        self._along = {mode: [each for each in along if each.mode is mode] for mode in ROW_MODES}
        self._parts = {each.mode: each for each in found if each.parts and not each.walkers}
        self._down = [each for each in found if each.walkers and not each.parts]
        self._down_parts = [each for each in found if each.walkers and each.parts]
        extents = {name: prod(size) if isinstance(size, tuple) else size for name, size in sizes.items()}
        self._length = prod([extents[dim.name] for dim in operation.space if dim.name in self.along])
        self._rows = prod(extents[dim.name] for dim in operation.space) // max(1, self._length)
        self._value_bytes = 4 * DTYPES[types[COMPUTE]].bits // 8  # a recurrence has two of C; half a word is the value
        self.workspace = max([self._bytes(each) for each in (*self._parts.values(), *self._down_parts)])

    def _blocks(self, variant: ScanVariant) -> int:
        """That have parts of rows, of all rows."""
        return -(-self._rows // variant.rows) * -(-self._length // variant.elements)

    def _bytes(self, variant: ScanVariant) -> int:
        """What parts leave each other: 0 where no blocks share rows."""
        if self._length <= variant.elements or self._rows >= self.few_rows * variant.rows:
            return 0
        blocks, beside = self._blocks(variant), -(-self._rows // variant.rows)
        parts = blocks // beside  # of a row; those of a tile, or of a segment, are a unit
        units = -(-parts // (TILE_WARPS if variant.walkers else SEGMENT_TILES // variant.tiles))
        values = (parts * variant.tiles + units * _OF_UNIT) * self._value_bytes * self.operation.analysis.scans
        return beside * variant.rows * values

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
            blocks = self._blocks(variant)
            finish, left = (blocks, SCAN_THREADS), self._bytes(variant)
            return Geometry(variant, min(blocks, _CLEARING), head, strides, SCAN_THREADS, finish, left)
        return Geometry(variant, -(-count // variant.rows), head, strides, SCAN_THREADS)

    def _variant(self, rows: Rows, mode: RowMode, operands: Sequence[Operand]) -> ScanVariant:
        """Threads that lie along rows; where rows are neighbours in most of what is read and written, threads that go
        down them. Of few long rows, several blocks have parts."""
        if mode is RowMode.STEPPED and self._down and rows.axes:
            full = [position for position, operand in enumerate(operands) if operand.dims == self.operation.space]
            beside = sum(rows.axes[-1].strides[position] == 1 for position in full)
            if 2 * beside >= len(full) and rows.axes[-1].extent >= _WARP // 2:
                found = next((each for each in self._down if rows.length <= each.elements), self._down[-1])
                return next((each for each in self._down_parts if self._bytes(each)), found)
        if self._bytes(self._parts[mode]):
            return self._parts[mode]
        return next((each for each in self._along[mode] if rows.length <= each.elements), self._along[mode][-1])
