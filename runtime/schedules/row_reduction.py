"""Programs whose rows one kernel reduces (row.cuh, cluster_row.cuh): which variant serves a call, how it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.errors import Unsupported
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operand, Operation, Types
from skuda.model.records import Record
from skuda.model.sum_order import GROUP, MOST_ACCUMULATORS, SEGMENT, accumulators
from skuda.schedules import abi
from skuda.schedules.abi import AXES, INNER
from skuda.schedules.axes import Axis, merged, step_along
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry, KernelGeometry, Layouts, divisions, outer_of
from skuda.schedules.reduced_rows import extents_of
from skuda.schedules.row_variants import (
    CLUSTER_SEGMENTS,
    FEW_ROWS,
    PORTABLE_CLUSTER,
    STATE_BYTES,
    ClusterVariant,
    RowVariant,
    cluster_variants,
    row_variants,
    split_variants,
)
from skuda.schedules.split_reduction import SplitReductionKernels
from skuda.schedules.variant import TUNED, RowMode

_RESERVED = 1 << 10  # bytes of shared memory that a block takes for itself
_MOST_STEP = 1 << 31  # bytes along a row that lies beside others, which are counted in 32 bits
_RUN_AXES = 2  # of a row, that what its neighbours share lies along: row_moves.cuh's share_of_runs


class Rows(Record):
    """The rows of a call.

    Attributes:
        axes: outside of a row.
        inner: what a row lies along: its elements are counted in row-major order of these.
        last: those of the last block of a blocked axis, which may be fewer.
        blocks: which of `axes` counts the blocks, where the last one is shorter; else None.
    """

    axes: list[Axis]
    inner: list[Axis]
    last: int
    blocks: int | None

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(axis.extent for axis in self.inner)

    @property
    def count(self) -> int:
        """How many there are."""
        return prod(axis.extent for axis in self.axes)

    @property
    def head(self) -> tuple[int, ...]:
        """Slots of rows.cuh's RowSpace."""
        blocks = AXES if self.blocks is None else AXES - len(self.axes) + self.blocks
        outer = outer_of([axis.extent for axis in self.axes])
        return abi.ROW_SPACE.pack(
            rows=self.count, length=self.length, block_axis=blocks, last_length=self.last, outer=outer
        )

    @property
    def in_line(self) -> tuple[int, ...]:
        """The same of few_rows.cuh's RowsApart."""
        return abi.ROWS_APART.pack(rows=self.count, length=self.length)

    def steps(self, position: int) -> tuple[int, ...]:
        """Slots of row_moves.cuh's Along of an operand."""
        inner = self.inner_of([position])
        free = INNER - len(inner)
        extents = [1] * free + [axis.extent or 1 for axis in inner]
        return abi.ALONG.pack(
            axes=len(inner), of=(*[0] * free, *(axis.strides[0] for axis in inner)), extent=divisions(extents)
        )

    def inner_of(self, positions: Sequence[int]) -> list[Axis]:
        """What a row lies along in some of the operands."""
        return merged([Axis(each.extent, tuple([each.strides[i] for i in positions])) for each in self.inner], 1)


class RowKernels(KernelGeometry):
    """Geometry of an operation with reductions at fixed types and sizes.

    Attributes:
        split: that of several blocks to a row, where rows come apart.
        cluster_shared: bytes of shared memory that a block may have where the devices have clusters, else 0. Whoever
            has devices sets it; the same for all of them, so that no call asks for its own.
        few_blocks: fewer leave a GPU idle: their rows have many threads.
        few_threads: threads of all rows, up to which these are few.
        few_spread_threads: the same where threads have a group of elements each.
    """

    cluster_shared = TUNED.shared_bytes
    few_blocks = TUNED.few_blocks
    few_threads = TUNED.few_threads
    few_spread_threads = TUNED.few_spread_threads

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        operation = self.operation
        self.along, self.block = operation.along, operation.block
        self.vectors = tuple([operation.runs_along(o) and not operation.in_runs(o) for o in operation.operands])
        self._variants = row_variants(operation, types)
        if operation.analysis.draws:
            self.few_spread_threads = self.few_threads
        self._of_few = [each for each in self._variants if each.kernel == FEW_ROWS]
        self._beside = [each for each in self._variants if each.mode is RowMode.BESIDE]
        clusters = cluster_variants(operation)
        self._clusters = {mode: [each for each in clusters if each.mode is mode] for mode in RowMode}
        columns = zip(self.operation.operands, self.vectors, self.full, strict=True)
        self._columns = any(runs and not full and o not in operation.positions for o, runs, full in columns)
        # Up to how many elements a block that holds a row does better than a cluster. One that keeps values besides has
        # little room, hence few threads that wait for what rows share.
        self._alone = SEGMENT if self._columns and operation.analysis.stack else TUNED.lone_row
        inputs = [bits for bits, full in zip(self.bits[: len(operation.inputs)], self.full) if full]
        self._slot = self._slot_bytes(inputs)
        # Bytes of a warp's shares of the widest output, and of a word beyond: row_moves.cuh's Stretch.
        self._stretch = 32 * GROUP * max(self.bits[len(operation.inputs) :]) // 8 + 16
        self._beyond = 16 * len(inputs)  # the last word of each input around a warp's shares: cluster.cuh
        self.split = SplitReductionKernels(operation, types, sizes) if split_variants(operation, types) else None
        self.workspace = self.split.workspace if self.split else 0

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so."""
        if self.packed and (reason := self.bytes_shared()):
            raise Unsupported(f"{self.operation.class_name}Plan: {reason}")
        if beside := self._beside and self._geometry_beside(layouts):
            return beside
        split = self.split.geometry(layouts) if self.split else None
        if split is not None:
            return split
        arrays, operands, rows = self.found_in(layouts)
        along = [self.operation.runs_along(o) and not self.operation.in_runs(o) for o in operands]
        mode = self.mode_of(layouts, arrays, rows, along)
        head, strides = rows.head, self.strides_of(operands, arrays, rows)
        count = rows.count
        variants = [each for each in self._variants if each.mode is mode and each.kernel != FEW_ROWS]
        few = self.few_blocks
        last = None if self.operation.holds_alone else variants[-1]
        variant = next((each for each in variants if each.serves(count, rows.length, few)), last)
        whole = variant and variant.keep and mode is RowMode.WHOLE and len(rows.axes) <= 1
        if whole and (of_few := self._few(variant.elements, count)):
            apart = {name: slots[AXES - 1 : AXES] for name, slots in strides.items()}
            return Geometry(of_few, -(-count // of_few.rows), rows.in_line, apart, of_few.block)
        alone = variant and variant.keep and rows.length <= self._alone
        if not alone and (held := self._held_by_cluster(rows, self._clusters[mode])):
            cluster, shared = held
            return Geometry(cluster, count * cluster.blocks, head, strides, self._threads(cluster, rows), shared=shared)
        if variant is None:
            return SEVERAL_KERNELS
        return Geometry(variant, -(-count // variant.rows), head, strides, variant.block)

    def _geometry_beside(self, layouts: Layouts) -> Geometry | None:
        """The launch where rows are short, and neighbours in memory belong to different ones: a thread has a row."""
        length = prod([size for name in self.along for size in extents_of(self.sizes[name])])
        variant = next((each for each in self._beside if length <= each.elements), None)
        if variant is None or length < 2:
            return None
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        operands = [self.operation.operands[index] for index in arrays]
        try:
            rows = self.rows_of(operands, [layouts.strides[index] for index in arrays])
        except Unsupported:
            return None
        own = [position for position, index in enumerate(arrays) if self.full[index]]
        if len(rows.inner) != 1 or not rows.axes or any(rows.axes[-1].strides[position] != 1 for position in own):
            return None
        steps = [rows.inner[0].strides[position] * self.bits[arrays[position]] // 8 for position in own]
        if any(abs(step) >= _MOST_STEP for step in steps):
            return None
        grid = -(-rows.count // variant.rows)
        return Geometry(variant, grid, rows.head, self.strides_of(operands, arrays, rows), variant.block)

    def _few(self, elements: int, count: int) -> RowVariant | None:
        """The schedule of few rows with so many elements, if so many rows are few."""
        for each in self._of_few:
            most = min(self.few_threads, self.few_spread_threads) if each.spread > 1 else self.few_threads
            if each.elements == elements and count * each.threads <= most:
                return each
        return None

    def found_in(self, layouts: Layouts) -> tuple[list[int], list[Operand], Rows]:
        """Which operands are arrays, and the rows in them."""
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        operands = [self.operation.operands[index] for index in arrays]
        return arrays, operands, self.rows_of(operands, [layouts.strides[index] for index in arrays])

    def strides_of(self, operands: Sequence[Operand], arrays: Sequence[int], rows: Rows) -> dict[str, tuple[int, ...]]:
        """The slots that follow each operand's pointer."""
        found = {}
        for position, (operand, index) in enumerate(zip(operands, arrays, strict=True)):
            runs = self.operation.runs_along(operand)
            outside = (0,) * (AXES - len(rows.axes)) + tuple(axis.strides[position] for axis in rows.axes)
            inside = rows.steps(position) if runs else ()
            span = self._span(rows, position, index) if runs and index < len(self.operation.inputs) else ()
            found[operand.name] = outside + inside + span
        return found

    def _slot_bytes(self, inputs: Sequence[int]) -> int:
        """Bytes of shared memory that a cluster needs for a group of elements, of inputs of so many bits."""

        def words(bits: Sequence[int]) -> int:
            return sum(-(-GROUP * each // 128) for each in bits)

        def bits(element: str) -> int:
            return DTYPES[self.types.get(element, element)].bits

        return 16 * max([words(inputs), *(words([*map(bits, stack)]) for stack in self.operation.analysis.stack)])

    def _held_by_cluster(
        self, rows: Rows, clusters: Sequence[ClusterVariant]
    ) -> tuple[ClusterVariant, int] | None:
        """Which of some clusters is to hold a row, and how many bytes of shared memory a block of it needs; None where
        none is.

        A multiprocessor should have room for several blocks: one's loads run beside another's arithmetic. Sixteen
        blocks also have twice the threads of eight, which wait for what rows share, and where shared memory bounds
        those that run at once, more of them; but some GPUs have too few multiprocessors beside each other for sixteen
        that need one each.
        """
        segments = -(-rows.length // SEGMENT)
        if accumulators(rows.length) < MOST_ACCUMULATORS or segments > CLUSTER_SEGMENTS:
            return None
        found = None
        for cluster in clusters:
            shared = self._shared(cluster, rows)
            several = self._room_for(shared) > 1
            if cluster.blocks <= PORTABLE_CLUSTER and shared <= self.cluster_shared:
                found = cluster, shared
                idle = self._columns or self._idle(cluster, rows, clusters)
                if several and (segments <= TUNED.few_segments or not idle):
                    break
            elif cluster.blocks > PORTABLE_CLUSTER and several and self.cluster_shared >= TUNED.shared_bytes:
                found = cluster, shared
        return found

    def _shared(self, cluster: ClusterVariant, rows: Rows) -> int:
        """Bytes of shared memory of a block: its shares, and what it gathers of each reduction, with a signal; where
        rows start at any element, a stretch of outputs for each warp."""
        chunks = -(-rows.length // (MOST_ACCUMULATORS * GROUP))
        warps = -(-rows.length // SEGMENT) * MOST_ACCUMULATORS // 32
        found = chunks * cluster.team * self._slot + self.operation.analysis.reductions * (warps + 1) * STATE_BYTES
        if cluster.mode is not RowMode.UNIT:
            return found
        return found + self._threads(cluster, rows) // 32 * self._stretch + chunks * cluster.team // 32 * self._beyond

    def _idle(self, cluster: ClusterVariant, rows: Rows, clusters: Sequence[ClusterVariant]) -> bool:
        """Whether more threads of another cluster would run at once."""
        return self._at_once(cluster, rows) < max([self._at_once(each, rows) for each in clusters])

    def _room_for(self, shared: int) -> int:
        """Blocks of a cluster that a multiprocessor has shared memory for, of so many bytes each."""
        return (self.cluster_shared + _RESERVED) // (shared + _RESERVED)

    def _at_once(self, cluster: ClusterVariant, rows: Rows) -> int:
        """Threads of a multiprocessor that a cluster's blocks have shared memory and registers for."""
        threads = self._threads(cluster, rows)
        return min(self._room_for(self._shared(cluster, rows)), TUNED.cluster_busy // threads) * threads

    @staticmethod
    def _threads(cluster: ClusterVariant, rows: Rows) -> int:
        """Threads of a block: a team for each segment of the row, or for several."""
        return cluster.team * min(cluster.teams, -(-rows.length // SEGMENT))

    def _span(self, rows: Rows, position: int, index: int) -> tuple[int, int]:
        """Slots of shift.cuh's Span: where a share of neighbours may begin, so that the words around it are inside."""
        low, high = 0, rows.length  # the elements between which the input lies
        for axis in rows.axes:
            step = axis.strides[position] * (axis.extent - 1)
            low, high = low + min(step, 0), high + max(step, 0)
        if rows.blocks is not None:  # the last block is shorter
            high -= rows.length - rows.last
        share = GROUP * self.bits[index] // 8
        first, last = low * self.bits[index] // 8, -(-high * self.bits[index] // 8) - share - min(16, share)
        return first, max(0, last - first + 1)

    def mode_of(self, layouts: Layouts, arrays: Sequence[int], rows: Rows, along: Sequence[bool]) -> RowMode:
        """How the elements of the rows lie."""
        own = [position for position, runs in enumerate(along) if runs]
        inner = rows.inner_of(own)
        if len(inner) > 1 or (rows.length > 1 and any(step != 1 for step in inner[0].strides)):
            return RowMode.STEPPED
        if any(len(rows.inner_of([position])) > _RUN_AXES for position in set(range(len(along))).difference(own)):
            return RowMode.STEPPED
        if not layouts.aligned or rows.length % GROUP or rows.last % GROUP:
            return RowMode.UNIT
        for position in own:
            index = arrays[position]
            bits = GROUP * self.bits[index]
            if self.operation.operands[index] not in self.operation.positions:  # in memory, by words of 16 bytes
                bits = min(128, bits)
            if any(axis.strides[position] * self.bits[index] % bits for axis in rows.axes):
                return RowMode.UNIT
        return RowMode.WHOLE

    def rows_of(self, operands: Sequence[Operand], strides: Sequence[tuple[int, ...]]) -> Rows:
        inner: list[Axis] = []
        outer: list[Axis] = []
        ragged: Axis | None = None
        last = 0
        for dim in self.operation.space:
            extents = self.sizes[dim.name] if dim.many else (self.sizes[dim.name],)
            for nth, extent in enumerate(extents):
                steps = tuple(
                    step_along(operand, of, dim.name, nth, self.sizes)[0]
                    for operand, of in zip(operands, strides, strict=True)
                )
                if dim.name not in self.along:
                    outer.append(Axis(extent, steps))
                elif not self.block:
                    inner.append(Axis(extent, steps))
                else:
                    block = max(1, min(self.sizes[self.block], extent))
                    blocks = -(-extent // block)
                    last = extent - (blocks - 1) * block if extent else 0
                    blocked = [not self.operation.runs_along(operand) for operand in operands]
                    pairs = list(zip(steps, blocked, strict=True))
                    across = Axis(blocks, tuple(step if each else step * block for step, each in pairs))
                    outer.append(across)
                    ragged = across if last != block else None
                    inner.append(Axis(block, tuple(0 if each else step for step, each in pairs)))
        inner = merged(inner, 1) if prod(axis.extent for axis in inner) else [Axis(0, (0,) * len(operands))]
        inner = [axis for axis in inner if axis.extent != 1] or [Axis(1, (0,) * len(operands))]
        inner = merged(inner, 1)
        several = self._axes_along(operands, Rows([], inner, last, None))
        if several > (1 if self.packed else INNER):
            most = "4-bit codes are packed along one" if self.packed else f"at most {INNER} are served"
            raise Unsupported(
                f"{self.operation.class_name}Plan: {', '.join(self.along)} are {several} axes that do not follow "
                f"each other in memory, {most}; copy the operands to contiguous arrays"
            )
        axes = []
        for axis in outer:
            if axis.extent != 1 or axis is ragged:
                mergeable = axes and axis is not ragged and axes[-1] is not ragged
                axes = [*axes[:-1], *merged([axes[-1], axis], 1)] if mergeable else [*axes, axis]
        where = next((index for index, axis in enumerate(axes) if axis is ragged), None)
        if len(axes) > AXES:
            raise Unsupported(
                f"{self.operation.class_name}Plan: strides that need {len(axes)} axes after merging, at most "
                f"{AXES} are served; copy an operand to a contiguous array"
            )
        return Rows(axes, inner, last, where)

    def _axes_along(self, operands: Sequence[Operand], rows: Rows) -> int:
        """Axes that rows lie along in an operand, at most; where codes are packed, in all but those in runs."""
        if not self.packed:
            return max([len(rows.inner_of([position])) for position in range(len(operands))])
        op = self.operation
        apart = [op.in_runs(operand) and op.bits(operand, self.types) >= 8 for operand in operands]
        return len(rows.inner_of([position for position, each in enumerate(apart) if not each]))

    @property
    def inner_axes(self) -> int:
        """Axes that the elements of a row lie along, at most."""
        sizes = [self.sizes[name] for name in self.along]
        return sum(len(size) if isinstance(size, tuple) else 1 for size in sizes)

    def bytes_shared(self) -> str:
        """Why two elements of a byte may belong to different rows; empty where they do not: they are neighbours along a
        row, and rows start at bytes."""
        last = self.operation.space[-1]
        after = [d for d in reversed(self.operation.space) if not d.many or self.sizes[d.name]]
        if after and after[0].name not in self.along and last.name not in self.along:
            along = ", ".join(self.along)
            return f"4-bit codes are packed along the last axis, which {along} is not"
        if self.block and self.sizes[self.block] % 2:
            return f"{self.block} is {self.sizes[self.block]}, expected an even number: 4-bit codes are two to a byte"
        return ""
