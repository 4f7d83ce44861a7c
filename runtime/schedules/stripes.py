"""Rows that lie beside each other in memory and are held (runtime/cuda/stripe.cuh): when, and how they are launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skuda.model.operation import Operation, Types
from skuda.model.sum_order import GROUP, SEGMENT, accumulators_with_elements
from skuda.schedules import abi
from skuda.schedules.abi import AXES
from skuda.schedules.axes import Axis
from skuda.schedules.geometry import Geometry, Layouts, divide_slots, outer_of
from skuda.schedules.reduced_rows import ReducedRows
from skuda.schedules.stripe_variants import StripeVariant, stripe_lanes, stripe_state, stripe_variants
from skuda.schedules.variant import TUNED

_WARP = 32
_MOST_THREADS = 512  # of a block: stripe.cuh
_WIDE = 4  # threads beside each other, as a power of two: 128 bytes of neighbours
_RESERVED = 1 << 10  # bytes of shared memory that a block takes for itself
_MOST_STEP = 1 << 31  # bytes along a row, which are counted in 32 bits


class StripeKernels(ReducedRows):
    """Geometry of an operation whose rows stripes may hold, at fixed types and sizes.

    Attributes:
        variants: the schedules, the smallest first.
        cluster_shared: bytes of shared memory that a block may have where the devices have clusters, else 0.
        few: threads; where there are fewer, each takes fewer rows.
        least: blocks; where there are fewer, and rows are not short, several kernels do better.
    """

    cluster_shared = TUNED.shared_bytes
    few = TUNED.stripe_few_threads
    least = TUNED.stripe_least_blocks

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        self.variants = stripe_variants(self.operation, types)
        self._lanes = {variant: stripe_lanes(self.operation, types, variant) for variant in self.variants}
        self._accumulators = accumulators_with_elements(self.length)
        self._turns = -(-self.length // (self._accumulators * GROUP))
        self._state = stripe_state(self.operation, types)
        inputs = zip(self.bits[: len(self.operation.inputs)], self.full)
        self._read = sum([bits for bits, full in inputs if full]) // 8  # bytes of an element of all inputs

    def geometry(self, layouts: Layouts) -> Geometry | None:
        """The launch that serves operands which lie so; None where none does."""
        if not self.variants or not self.cluster_shared or not self.count or not 0 < self.length <= SEGMENT:
            return None
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        kept, along, _ = self.axes_of(layouts, arrays)
        full = [position for position, index in enumerate(arrays) if self.full[index]]
        if not self._beside(arrays, full, kept, along):
            return None
        columns = kept[-1].extent

        def serves(lanes: int) -> bool:
            return self.on_vectors(layouts, arrays, full, [*kept[:-1], *along], lanes, columns)

        variant = self._holding([variant for variant in self.variants if serves(self._lanes[variant])], columns)
        if variant is None:
            return None
        wide = self._wide(variant)
        stripes = self._stripes(variant, columns)
        head = abi.REDUCTION.pack(
            rows=self.count, length=self.length, columns=columns, segment=SEGMENT, accumulators=self._accumulators,
            turns=self._turns, cut=0, each=0, wide=wide, team=0, splits=divide_slots(1), tiles=divide_slots(stripes),
            finish_wide=0, finish_each=1, kept=outer_of([axis.extent for axis in kept]),
            along=outer_of([axis.extent for axis in along]),
        )  # fmt: skip
        slots = self.reaches(arrays, kept, along)
        grid, threads = self._blocks(variant, columns), self._threads(variant)
        return Geometry(variant, grid, head, slots, threads, shared=self._shared(variant))

    def _beside(
        self, arrays: Sequence[int], full: Sequence[int], kept: Sequence[Axis], along: Sequence[Axis]
    ) -> bool:
        """Whether neighbours in memory belong to different rows, each of which lies along one axis."""
        if not kept or len(kept) > AXES or len(along) != 1:
            return False
        steps = zip(along[0].strides, arrays, strict=True)
        near = all(abs(step) * self.bits[index] // 8 < _MOST_STEP for step, index in steps)
        return near and all(kept[-1].strides[position] == 1 for position in full)

    def _holding(self, variants: Sequence[StripeVariant], columns: int) -> StripeVariant | None:
        """The smallest that leaves a multiprocessor room for two more blocks, or for one: one block's loads run beside
        another's arithmetic. None where each would be alone: the kernels of stages do better."""
        plain = next(variant for variant in self._lanes if not variant.narrow)
        few = self._blocks(plain, columns) * self._threads(plain) < self.few
        for blocks in (3, 2):
            room = (self.cluster_shared + _RESERVED) // blocks - _RESERVED
            for variant in variants:
                wanted = few or not variant.narrow
                if wanted and _WARP <= self._threads(variant) <= _MOST_THREADS and self._shared(variant) <= room:
                    many = self.length <= TUNED.stripe_short_row or self._blocks(variant, columns) >= self.least
                    return variant if many else None
        return None

    def _blocks(self, variant: StripeVariant, columns: int) -> int:
        """Of all clusters."""
        return self.count // columns * self._stripes(variant, columns) * variant.blocks

    def _stripes(self, variant: StripeVariant, columns: int) -> int:
        """Stripes beside each other."""
        return -(-columns // (self._lanes[variant] << self._wide(variant)))

    def _wide(self, variant: StripeVariant) -> int:
        """Threads beside each other, as a power of two; more where a warp would not be full."""
        return _WIDE + (variant.blocks == 1 and self._accumulators == 1)

    def _threads(self, variant: StripeVariant) -> int:
        """Of a block; 0 where there are fewer accumulators than blocks."""
        return self._accumulators // variant.blocks << self._wide(variant)

    def _shared(self, variant: StripeVariant) -> int:
        """Bytes of shared memory of a block: what it holds, what its warps find, and twice what all blocks do."""
        lanes, threads = self._lanes[variant], self._threads(variant)
        found = (lanes << self._wide(variant)) * self._state * (threads // _WARP + 2 * variant.blocks)
        return threads * self._turns * GROUP * lanes * self._read + found
