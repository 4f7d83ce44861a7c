"""Rows in pieces that lie apart in memory, each held by threads of one block or by a cluster of blocks (row.cuh,
cluster_row.cuh): when, and how they are launched.

So lie the elements of a channel, where images of several channels follow each other. Stages read them twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skuda.errors import Unsupported
from skuda.model.operation import Operation, Types
from skuda.model.sum_order import GROUP
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels, Rows
from skuda.schedules.row_variants import ClusterVariant, RowVariant, piece_variants
from skuda.schedules.variant import RowMode

_SHORTEST = 4  # elements of a piece; of shorter ones most of a cache line belongs to other rows


class PieceKernels(RowKernels):
    """Geometry of an operation in stages whose rows may be held, at fixed types and sizes.

    Attributes:
        variants: the schedules, the smallest first.
    """

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        self.variants = piece_variants(operation, types)

    def geometry(self, layouts: Layouts) -> Geometry | None:
        """The launch that serves operands which lie so; None where none does."""
        try:
            arrays, operands, rows = self.found_in(layouts)
        except Unsupported:
            return None
        mode = self._mode(layouts, arrays, rows)
        if mode is None or not rows.count or not rows.length:
            return None
        head, strides = rows.head, self.strides_of(operands, arrays, rows)
        variants = [each for each in self.variants if each.mode is mode]
        blocks = [each for each in variants if isinstance(each, RowVariant)]
        row = next((each for each in blocks if each.serves(rows.count, rows.length, self.few_blocks)), None)
        if row is None or rows.length > self._alone:
            clusters = [each for each in variants if isinstance(each, ClusterVariant)]
            cluster, shared = self._held_by_cluster(rows, clusters) or (None, 0)
            if cluster is not None and self._room_for(shared) > 1:
                grid, threads = rows.count * cluster.blocks, self._threads(cluster, rows)
                return Geometry(cluster, grid, head, strides, threads, shared=shared)
        if row is None:
            return None
        return Geometry(row, -(-rows.count // row.rows), head, strides, row.block)

    def _mode(self, layouts: Layouts, arrays: Sequence[int], rows: Rows) -> RowMode | None:
        """How the elements of rows lie; None where they are no neighbours, or all of them are and do not lie in whole
        shares: the kernels of stages read these as fast."""
        own = [position for position, index in enumerate(arrays) if self.full[index]]
        inner = rows.inner
        if len(inner) > 2 or any(inner[-1].strides[position] != 1 for position in own):
            return None
        for mode, part in ((RowMode.PIECES, GROUP), (RowMode.PIECES_OF_HALVES, GROUP // 2)):
            if layouts.aligned and rows.length % GROUP == 0 and self._in_parts(arrays, own, rows, part):
                return mode
        return RowMode.PIECES_UNALIGNED if len(inner) > 1 and inner[-1].extent >= _SHORTEST else None

    def _in_parts(self, arrays: Sequence[int], own: Sequence[int], rows: Rows, part: int) -> bool:
        """Whether pieces are of a multiple of so many elements, and begin at words of so many."""
        if rows.inner[-1].extent % part:
            return False
        axes = [axis for axis in (*rows.axes, *rows.inner[:-1]) if axis.extent > 1]
        bits = [(position, self.bits[arrays[position]]) for position in own]
        return not any(axis.strides[at] * each % min(128, part * each) for axis in axes for at, each in bits)
