"""Rows that lie beside each other in memory and are held (runtime/cuda/stripe.cuh): when, and how they are launched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from skuda.model.operation import Operation, Types
from skuda.model.sum_order import GROUP, SEGMENT, accumulators_with_elements
from skuda.schedules import abi
from skuda.schedules.abi import AXES
from skuda.schedules.geometry import Geometry, Layouts, divide_slots, outer_of
from skuda.schedules.reduced_rows import ReducedRows
from skuda.schedules.stripe_variants import StripeVariant, stripe_lanes, stripe_state, stripe_variants
from skuda.schedules.variant import TUNED

_WARP = 32
_MOST_THREADS = 512  # of a block: stripe.cuh
_LINE = 128  # bytes of neighbours that a stripe is wide
_MOST_STEP = 1 << 31  # bytes along a row, which are counted in 32 bits


class StripeKernels(ReducedRows):
    """Geometry of an operation whose rows stripes may hold, at fixed types and sizes.

    Attributes:
        room: bytes of shared memory that a block may have where the devices have clusters, else 0.
    """

    room = TUNED.shared_bytes

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        self.variants = stripe_variants(self.operation, types)
        self.lanes = stripe_lanes(self.operation, types)
        self.accumulators = accumulators_with_elements(self.length)
        self._turns = -(-self.length // (self.accumulators * GROUP))
        self._state = stripe_state(self.operation, types)
        inputs = len(self.operation.inputs)
        self._widths = [self.lanes * bits // 8 for bits, full in zip(self.bits[:inputs], self.full) if full]

    def geometry(self, layouts: Layouts) -> Geometry | None:
        """The launch that serves operands which lie so; None where none does."""
        if not self.variants or not self.room or not self.length or self.length > SEGMENT or not self.count:
            return None
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        kept, along, _ = self.axes_of(layouts, arrays)
        full = [position for position, index in enumerate(arrays) if self.full[index]]
        if not kept or len(kept) > AXES or len(along) != 1:
            return None
        columns = kept[-1].extent
        if any(kept[-1].strides[position] != 1 for position in full):
            return None
        if not self.on_vectors(layouts, arrays, full, [*kept[:-1], *along], self.lanes, columns):
            return None
        steps = zip(along[0].strides, arrays, strict=True)
        if any(abs(step) * self.bits[index] // 8 >= _MOST_STEP for step, index in steps):
            return None
        found = next(self._fitting(columns), None)
        if found is None:
            return None
        variant, wide = found
        stripes = -(-columns // (self.lanes << wide))
        head = abi.REDUCTION.pack(
            rows=self.count, length=self.length, columns=columns, segment=SEGMENT, accumulators=self.accumulators,
            turns=self._turns, cut=0, wide=wide, team=0, splits=divide_slots(1), tiles=divide_slots(stripes),
            finish_wide=0, finish_each=1, kept=outer_of([axis.extent for axis in kept]),
            along=outer_of([axis.extent for axis in along]),
        )  # fmt: skip
        slots = {
            self.operation.operands[index].name: self.reach_of(position, self.bits[index], kept, along)
            for position, index in enumerate(arrays)
        }
        grid = stripes * (self.count // columns) * variant.blocks
        return Geometry(variant, grid, head, slots, self._threads(variant, wide), shared=self._shared(variant, wide))

    def _fitting(self, columns: int) -> Iterator[tuple[StripeVariant, int]]:
        """Schedules, and how many threads lie beside each other, as a power of two; the best first."""
        line = (_LINE // max(self._widths)).bit_length() - 1
        chosen = os.environ.get("SKUDA_STRIPE")
        if chosen:
            blocks, wide = map(int, chosen.split(","))
            for variant in self.variants:
                if variant.blocks == blocks and self._fits(variant, wide, self.room):
                    yield variant, wide
            return
        for room in (self.room // 3 - 1024, self.room // 2 - 1024, self.room):
            for variant in self.variants:
                for wide in (line, line - 1):
                    span = self.accumulators // variant.blocks
                    while variant.blocks == 1 and span << wide < _WARP:
                        wide += 1
                    if self._fits(variant, wide, room):
                        yield variant, wide

    def _fits(self, variant: StripeVariant, wide: int, room: int) -> bool:
        threads = self._threads(variant, wide)
        return _WARP <= threads <= _MOST_THREADS and self._shared(variant, wide) <= room

    def _threads(self, variant: StripeVariant, wide: int) -> int:
        return self.accumulators // variant.blocks << wide

    def _shared(self, variant: StripeVariant, wide: int) -> int:
        """Bytes of shared memory of a block: what it holds, what its warps find, and twice what blocks do."""
        threads = self._threads(variant, wide)
        found = (self.lanes << wide) * self._state * (max(1, threads // _WARP) + 2 * variant.blocks)
        return threads * self._turns * GROUP * sum(self._widths) + found
