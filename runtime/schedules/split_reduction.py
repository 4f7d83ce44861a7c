"""Split reductions (runtime/cuda/split_*.cuh): how rows are cut into splits, and the arguments of their kernels.

A split is what one block takes of a row: an aligned range of the accumulators of a segment. Joining splits gives the
bits of one pass over the whole row. How many there are follows from the sizes alone; how the elements lie says who
takes them.
What comes out the same in any order, an extreme, has splits that follow each other where they lie across rows: the
blocks that run last, which take the first ones, leave them in the cache for the next kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skuda.errors import Unsupported
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operation, Types
from skuda.model.records import Record
from skuda.model.sum_order import GROUP, INDEX_REDUCTIONS, PARTED, SEGMENT, accumulators_with_elements, slab
from skuda.schedules import abi
from skuda.schedules.abi import AXES
from skuda.schedules.axes import Axis
from skuda.schedules.geometry import Geometry, Layouts, divide_slots, outer_of
from skuda.schedules.reduced_rows import ReducedRows
from skuda.schedules.row_variants import FINISH, across_lanes, row_variants, split_variants
from skuda.schedules.variant import TUNED, RowMode

_WARP = 32
_MOST_ROWS = 1 << 31  # whose tiles and splits kernels that take several rows a thread count in 32 bits
_MOST_STEP = 1 << 31  # bytes along a row that kernels which take several rows a thread count in 32 bits
_SHORT_TURNS = 2  # groups of an accumulator of short rows, at most
_APART_EACH = 2  # accumulators of a thread whose columns lie apart, at most: 32 such threads lie beside each other
_TOGETHER = 128  # threads of a block of several teams, at most
_SPANS = tuple([span for span in (256, 128, 64, 32) if span <= TUNED.split_threads])
_SIZES = {"C": 0, "i64": 8, "bool": 1}
_ADDED = ("sum", "prod", *PARTED)  # reductions whose bits depend on how elements are brought together
_ORDERED = (*_ADDED, *INDEX_REDUCTIONS)  # that depend on the order of elements


class Cut(Record):
    """How rows are cut into splits.

    Attributes:
        segment: elements that are dealt to the same accumulators.
        accumulators: of a segment.
        span: how many of these a split takes.
        splits: of a row.
        each: how many of these a thread across rows takes, one after the other.
    """

    segment: int
    accumulators: int
    span: int
    splits: int
    each: int = 1

    @property
    def places(self) -> int:
        """Threads that have a split of a row."""
        return self.span // self.each


class SplitReductionKernels(ReducedRows):
    """Geometry of a program that comes apart, at fixed types and sizes.

    Attributes:
        busy: threads that keep a GPU busy: rows of so many, one block each, are not taken apart; shorter ones never.
        few: threads across rows: where there were fewer, each takes one column instead of a vector.
        left: threads across rows that are to be left where each takes several accumulators.
        enough: blocks across rows, of which so many are to be left where teams share them.
        dealt: blocks of 32 accumulators along rows; where there are no more, as many warps share an accumulator.
    """

    busy = TUNED.split_busy_threads
    few = TUNED.split_few_threads
    left = TUNED.split_each_threads
    enough = 2 * TUNED.split_blocks
    dealt = TUNED.split_dealt_blocks

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        self.lanes, self.apart, self.shifted = across_lanes(operation, types)
        self.ordered = any(each.how in _ORDERED for each in operation.analysis.split)
        self.in_slabs = operation.analysis.slabs
        self.accumulators = accumulators_with_elements(self.length)
        self.segments = max(1, -(-self.length // SEGMENT))
        if self.in_slabs:
            self.few //= 2  # vectors pay from fewer threads on: as measured, of two sums most
            self.slab = slab(self.length)
            self.slabs = max(1, -(-self.length // self.slab))
            self.accumulators, self.segments = self.slabs, 1
        self._turns = -(-min(self.length, SEGMENT) // (self.accumulators * GROUP))
        held = [variant.elements for variant in row_variants(operation, types)]
        self._longest = max(held, default=0)  # of the rows that a block holds
        vector = self.lanes * max(bits for bits, full in zip(self.bits, self.full, strict=True) if full) // 8
        # log2 of the vectors that are so many bytes
        self._wide = max(3, min(5, (TUNED.split_line_bytes // vector - 1).bit_length()))
        self._lines = -(-self.count // (self.lanes << self._wide)) * self.segments
        # Few short rows across, of slabs for one sum: a block takes all of each, and no kernel joins splits.
        self._lone = (
            TUNED.split_places < self.accumulators <= TUNED.split_lone_places
            and self.count * self.length <= TUNED.split_lone_elements
            and not (self.in_slabs and len(operation.analysis.split) > 1)
        )
        hows = [each.how for each in operation.analysis.split]
        self._added = any(how in _ADDED for how in hows)
        writes = any(output.dims == operation.space for output in operation.outputs)
        # sums of exponentials, whose joins are dear; one sum beside rows that are written
        self._long = TUNED.split_each if "logsumexp" in hows else 2 if writes and len(hows) == 1 else 1
        self._alone = self.segments == 1 and self.accumulators <= TUNED.split_threads  # a block takes a row
        spans = (self.accumulators,) if self._alone else _SPANS
        across = [self._across(most) for most in (TUNED.split_each, _APART_EACH)]
        self._along = across[0] if self.in_slabs else self._cut(spans, self.count * self.segments)
        self.workspace = max(map(self._bytes, (*across, self._along)))

    def _across(self, most: int = TUNED.split_each) -> Cut:
        """How rows are cut that lie beside each other, of which a thread takes so many accumulators at most."""
        places = self.accumulators if self._lone else TUNED.split_places
        if self.in_slabs:
            return self._of_slabs(places)
        each = self._each(places, most)
        cut = self._cut((places * each,), self._lines, each)
        return cut if self._added else self._one_after_another(cut, self._lines)

    def _each(self, places: int, most: int) -> int:
        """How many: of short rows as many as leave enough threads, of longer ones `_long` at most. Half as many threads
        are enough where each accumulator has one group, and where no splits are left, which a kernel would join."""
        each = 1 if self._lone else min(most, self.accumulators)
        while each > 1:
            threads = self.count // self.lanes * (self.accumulators // each)
            whole = places < self.accumulators <= places * each
            short = self.accumulators <= places and self._turns <= _SHORT_TURNS
            few = whole or (short and self._turns == 1)
            if (whole or short or each <= self._long) and threads >= self.left // (2 if few else 1):
                return each
            each //= 2
        return 1

    def _cut(self, spans: Sequence[int], lines: int, each: int = 1) -> Cut:
        """Splits in the order of every sum; as many as leave enough blocks."""
        span = self._span([span for span in spans if span <= self.accumulators] or [self.accumulators], lines)
        return Cut(SEGMENT, self.accumulators, span, self.segments * (self.accumulators // span), each)

    def _of_slabs(self, places: int) -> Cut:
        """Splits of slabs beside each other, one a thread; of so many at most."""
        span = 1 << (min(places, self.slabs) - 1).bit_length()
        return Cut(self.slab * span, 1, span, -(-self.slabs // span))

    def _span(self, spans: Sequence[int], lines: int) -> int:
        """How many of a segment's accumulators a block takes."""
        busy = TUNED.split_blocks
        if self.segments == 1 and spans[0] == self.accumulators and 4 * lines >= busy:  # one kernel
            return spans[0]
        return next((span for span in spans if lines * self.accumulators // span >= busy), spans[-1])

    def _one_after_another(self, cut: Cut, lines: int) -> Cut:
        """At most as many splits, each a segment of its own; of few columns more, while all blocks run at once."""
        groups = -(-self.length // GROUP)
        splits, tiles = cut.splits, lines // self.segments
        while 1 < splits < groups // cut.places and 2 * splits * tiles <= TUNED.split_few_blocks:
            splits *= 2
        turns = max(1, -(-groups // (splits * cut.places)))
        segment = turns * cut.places * GROUP
        return Cut(segment, cut.places, cut.places, max(1, -(-self.length // segment)))

    def _bytes(self, cut: Cut) -> int:
        """What the splits of all rows take in the workspace."""
        room = -(-cut.splits // GROUP) * GROUP if self.count == 1 else cut.splits  # of one row they are read in eights
        return room * self.count * self._accumulator_bytes() if cut.splits > 1 else 0

    def _accumulator_bytes(self) -> int:
        """Size of the struct of a split."""
        compute = DTYPES[self.types[COMPUTE]].bits // 8
        size = widest = 0
        for each in self.operation.analysis.split:
            own = _SIZES[each.element] or compute
            if each.how in INDEX_REDUCTIONS:  # the value, and its index in 8 bytes
                size, own = -(-size // 8) * 8 + 8, 8
            elif each.how in PARTED:
                size += (PARTED[each.how] - 1) * own  # the last as of any reduction
            size, widest = -(-size // own) * own + own, max(widest, own)
        return -(-size // widest) * widest

    def geometry(self, layouts: Layouts) -> Geometry | None:
        """The launch that serves operands which lie so; None where one block a row does better."""
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        kept, along, in_order = self.axes_of(layouts, arrays)
        for axes, what in ((kept, "that are kept"), (along, "that are reduced")):
            if len(axes) > AXES:
                raise Unsupported(
                    f"{self.operation.class_name}Plan: strides that need {len(axes)} axes {what} after merging, at "
                    f"most {AXES} are served; copy an operand to a contiguous array"
                )
        full = [position for position, index in enumerate(arrays) if self.full[index]]
        operands = self.operation.operands
        runs = [position for position, index in enumerate(arrays) if self.operation.runs_along(operands[index])]
        whole_row = len(along) == 1 and all(along[0].strides[position] == 1 for position in full)
        held = in_order and self.length <= self._longest and all(along[0].strides[position] == 1 for position in runs)
        if self.length == 1 and kept and kept[-1].extent > 1:
            whole_row = False  # rows of one element are neighbours of each other
        if self.in_slabs:
            whole_row = False
        if whole_row and self._longest and held and (self._alone or self.count * self.accumulators >= self.busy):
            return None
        if whole_row and self.accumulators >= 32:
            whole = self.on_vectors(layouts, arrays, full, [*kept, *along[:-1]], GROUP, self.length)
            mode = RowMode.WHOLE if whole else RowMode.UNIT
        elif kept and kept[-1].extent > 1 and all(kept[-1].strides[position] == 1 for position in full):
            whole = self.on_vectors(layouts, arrays, full, [*kept[:-1], *along], self.lanes, kept[-1].extent)
            mode = RowMode.WHOLE if whole else RowMode.UNIT
            threads = self.count // self.lanes * self.accumulators * self.segments
            many = threads >= self.few and not self._lone and len(along) == 1 and self.count < _MOST_ROWS
            least = self.lanes if whole or self.shifted else _WARP * self.apart // 2
            many = many and kept[-1].extent >= least
            steps = zip(along[-1].strides, arrays, strict=True)
            many = many and all(abs(step) * self.bits[index] // 8 < _MOST_STEP for step, index in steps)
            return self._across_rows(arrays, kept, along, mode if many else RowMode.STEPPED)
        elif self.in_slabs:
            return self._across_rows(arrays, kept, along, RowMode.STEPPED)
        elif self.accumulators >= 32 and all(along[-1].strides[position] == 1 for position in full):
            whole = self.on_vectors(layouts, arrays, full, [*kept, *along[:-1]], GROUP, along[-1].extent)
            mode = RowMode.WHOLE if whole else RowMode.STEPPED
        elif self.accumulators < 32 or (self.count >= 32 and not self._nearer(full, along[-1], kept[-1])):
            return self._across_rows(arrays, kept, along, RowMode.STEPPED)
        else:
            mode = RowMode.STEPPED
        return self._along_rows(arrays, kept, along, mode)

    @staticmethod
    def _nearer(full: Sequence[int], along: Axis, kept: Axis) -> bool:
        """Whether neighbours along a row are nearer to each other than those of rows beside each other."""
        return all(0 < abs(along.strides[position]) < abs(kept.strides[position]) for position in full)

    def finish_of_slabs(self, layouts: Layouts) -> Geometry:
        """The launch that joins slabs whose sums another kernel has left in the workspace."""
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        kept, along, _ = self.axes_of(layouts, arrays)
        cut = Cut(self.slab, 1, 1, self.slabs)
        found = self._launch(FINISH, arrays, kept, along, self.count, cut, 0, 1, 0, 0, alone=True)
        grid, threads = found.finish
        return found.but(grid=grid, block=threads, finish=None, workspace=self.bytes_of_slabs)

    @property
    def bytes_of_slabs(self) -> int:
        """What the sums of all slabs take in the workspace."""
        return self.slabs * self.count * self._accumulator_bytes()

    def _along_rows(self, arrays, kept: list[Axis], along: list[Axis], mode: RowMode) -> Geometry:
        variant = next(v for v in split_variants(self.operation, self.types) if v.lanes == 0 and v.mode is mode)
        cut = self._along
        grid = self.count * cut.splits
        threads = cut.span
        if cut.span == _WARP and grid <= self.dealt:
            while threads < cut.span * self._turns:
                threads *= 2
        return self._launch(variant, arrays, kept, along, self.count, cut, 0, 1, grid, threads)

    def _across_rows(self, arrays, kept: list[Axis], along: list[Axis], mode: RowMode) -> Geometry:
        lanes = {RowMode.WHOLE: self.lanes, RowMode.UNIT: self.apart, RowMode.STEPPED: 1}[mode]
        columns = self.count if lanes == 1 else kept[-1].extent
        variant = next(v for v in split_variants(self.operation, self.types) if v.lanes == lanes and v.mode is mode)
        shares = -(-columns // lanes)
        beside = mode is RowMode.UNIT and not self.shifted  # of each of a thread's columns, a warp's are neighbours
        wide = 5 if beside else min(5 if mode is RowMode.STEPPED else self._wide, (shares - 1).bit_length())
        cut, tables = self._across(_APART_EACH) if beside else self._across(), self.count // columns
        most = TUNED.split_threads // (2 if cut.each > 2 else 1)  # threads, which keep up to two values each
        wide = min(wide, (most // cut.places).bit_length() - 1)
        few = TUNED.split_lone_blocks if self._lone else TUNED.split_few_blocks
        while not beside and wide > 2 and tables * -(-shares >> wide) * cut.splits < few:
            wide -= 1
        threads = cut.places << wide
        while threads < _WARP and shares > 1 << wide:
            wide, threads = wide + 1, threads * 2
        tiles = -(-shares >> wide)
        teams = tiles * tables * cut.splits
        block = max(threads, _WARP)
        while block < _TOGETHER and teams * threads >= self.enough * block:
            block *= 2
        grid = -(-teams * threads // block)
        team = threads.bit_length() - 1
        return self._launch(variant, arrays, kept, along, columns, cut, wide, tiles, grid, block, team)

    def _launch(
        self, variant, arrays, kept, along, columns, cut: Cut, wide, tiles, grid, threads, team=0, alone=False
    ) -> Geometry:
        splits = cut.splits
        turns = -(-min(self.length, cut.segment) // (cut.accumulators * GROUP))
        finish_wide = min(5, (self.count - 1).bit_length())
        most = TUNED.split_threads
        while finish_wide and (most >> finish_wide) * GROUP < splits:  # a thread joins a group of them at once
            finish_wide -= 1
        below = most >> finish_wide
        finish_each = 1
        while below * finish_each < splits:
            finish_each *= 2
        while below > 1 and below // 2 >= splits and (below << finish_wide) > 32:
            below //= 2
        pieces = max(1, cut.accumulators // cut.span).bit_length() - 1
        head = abi.REDUCTION.pack(
            rows=self.count, length=self.length, columns=columns, segment=cut.segment,
            accumulators=cut.accumulators, turns=turns, cut=pieces, each=cut.each.bit_length() - 1, wide=wide,
            team=team, splits=divide_slots(splits), tiles=divide_slots(tiles), finish_wide=finish_wide,
            finish_each=finish_each, kept=outer_of([axis.extent for axis in kept]),
            along=outer_of([axis.extent for axis in along]),
        )  # fmt: skip
        strides = self.reaches(arrays, kept, along)
        joining = -(-splits // finish_each) << finish_wide  # threads that have splits, of which a block has whole warps
        joining = min(below << finish_wide, -(-joining // _WARP) * _WARP)
        finish = (-(-self.count >> finish_wide), joining) if splits > 1 or alone else None
        return Geometry(variant, grid, head, strides, threads, finish, self._bytes(cut))
