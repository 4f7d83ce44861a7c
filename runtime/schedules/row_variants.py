"""Schedules of rows that are reduced: by threads of a block, by a cluster of blocks, or in splits."""

from __future__ import annotations

from functools import cache

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operation, Types
from skuda.model.sku import Layout
from skuda.model.sum_order import ACCUMULATOR_GROUPS, GROUP, MOST_ACCUMULATORS, accumulators, state_values
from skuda.schedules.variant import CLUSTER_ARCH, ROW_MODES, TUNED, RowMode, Variant

FEW_ROWS = "few_rows"  # the kernel of few rows
CLUSTER_SEGMENTS = 32  # of a row that a cluster holds, at most: cluster.cuh
PORTABLE_CLUSTER = 8  # blocks that a cluster may have on every GPU that has clusters
STATE_BYTES = 32  # of a partial result of a warp, at most: cluster.cuh
_EXCHANGED = 40 << 10  # bytes of shared memory by way of which threads hand each other their shares, at most
_REGISTERS = 1 << 16  # of a block, 32 bits each
_THREAD_REGISTERS = 256

# Threads that hold a row, and how many groups of eight each of them holds. What a thread does once it does for all of
# its elements, so there are few threads; the order of sums says how many, or half as many with two accumulators each.
# A row of one group has a thread to itself: accumulators of nothing change no bit of its sum.
assert all(
    accumulators(threads * chunks * GROUP) == threads
    for threads, chunks in TUNED.row_shapes
    if threads * chunks > 1
)


class RowVariant(Variant):
    """One schedule of the row template.

    Attributes:
        threads: that hold a row.
        chunks: groups of a row that each of them holds.
        keep: whether they hold all of it.
        mode: how its elements lie.
        crowded: whether it is for rows enough to keep a GPU busy: each of its threads has much to do.
    """

    threads: int = 32
    chunks: int = 1
    keep: bool = True
    mode: RowMode = RowMode.WHOLE
    crowded: bool = False

    def serves(self, rows: int, length: int, few_blocks: int) -> bool:
        """Whether rows of so many elements may be its, where fewer blocks leave a GPU idle."""
        return length <= self.elements and (not self.crowded or rows >= self.rows * few_blocks)

    @property
    def number(self) -> int:
        return self.threads

    @property
    def of_few(self) -> bool:
        return self.kernel == FEW_ROWS

    @property
    def block(self) -> int:
        """Threads of a block."""
        return max(self.threads, TUNED.row_threads)

    @property
    def rows(self) -> int:
        """Rows that a block takes."""
        return self.block // self.threads

    @property
    def elements(self) -> int:
        """Elements that a row may have."""
        return self.threads * self.chunks * GROUP

    @property
    def spread(self) -> int:
        """Threads that have groups of one accumulator; as in runtime/cuda/few_rows.cuh."""
        return ACCUMULATOR_GROUPS if self.of_few and self.chunks == 1 else 1

    @property
    def accumulators(self) -> int:
        """Accumulators of a thread; as in runtime/cuda/reduce.cuh."""
        if self.threads == 1:
            return self.chunks
        return 2 if self.keep and self.chunks > ACCUMULATOR_GROUPS and self.threads < MOST_ACCUMULATORS else 1


class ClusterVariant(Variant):
    """One schedule of the kernel of rows that a cluster of blocks holds in shared memory.

    Attributes:
        blocks: of a cluster.
        mode: how the elements of a row lie.
    """

    blocks: int = 8
    mode: RowMode = RowMode.WHOLE

    least_arch = CLUSTER_ARCH

    @property
    def number(self) -> int:
        return self.blocks

    @property
    def team(self) -> int:
        """Threads of a block that have an accumulator of the row each: a block has as many or a multiple."""
        return MOST_ACCUMULATORS // self.blocks

    @property
    def teams(self) -> int:
        """How many times as many, at most: each takes other segments of the row."""
        return TUNED.cluster_threads // self.team


class SplitVariant(Variant):
    """One schedule of a split reduction.

    Attributes:
        lanes: rows beside each other that a thread takes; 0: threads lie along a row.
        mode: how the elements of rows lie, or how those of neighbouring rows do.
        shifted: whether these are a thread's wherever they begin; else those of a thread lie 32 apart.
    """

    lanes: int = 0
    mode: RowMode = RowMode.WHOLE
    shifted: bool = False

    @property
    def number(self) -> int:
        return self.lanes


# Short rows that lie beside each other, where stripes may hold them too: a thread has a row to itself, with all of its
# accumulators, which have a group each.
_BESIDE = tuple(
    RowVariant("row", RowMode.BESIDE.layout, f"x{chunks}{RowMode.BESIDE.suffix}", 1, chunks, True, RowMode.BESIDE)
    for chunks in (1, 2, 3, 4)
)
FINISH = SplitVariant("finish", Layout.STRIDED)  # what joins slabs, of the operation of the sums
_CLUSTERS = tuple(
    ClusterVariant("cluster", mode.layout, mode.suffix, blocks, mode)
    for mode in (RowMode.WHOLE, RowMode.UNIT)
    for blocks in TUNED.clusters
)
_CLUSTERS_OF_PIECES = tuple(
    ClusterVariant("cluster", mode.layout, mode.suffix, blocks, mode)
    for mode in (RowMode.PIECES, RowMode.PIECES_OF_HALVES)
    for blocks in TUNED.clusters
    if blocks <= PORTABLE_CLUSTER
)


def row_variants(operation: Operation, types: Types) -> tuple[RowVariant, ...]:
    """The schedules of an operation with reductions, the smallest first.

    Where rows can be reduced in splits, only those of neighbouring elements that a row's threads hold at once, however
    the rows lie; and only short ones where there is one row. Stages of a multi-kernel form take split reductions alone.
    """
    bits = sum(operation.bits(operand, types) for operand in operation.read if operand.dims == operation.space)
    if operation.of_alternative or operation.analysis.scans:
        return ()
    analysis = operation.analysis
    found = _row_variants(bits, bool(analysis.stack), analysis.exponentials, analysis.repeats)
    if not analysis.reductions and all(operand.dims != operation.space for operand in operation.outputs):
        return tuple([next(each for each in found if each.mode is mode) for mode in ROW_MODES])  # no pass reads rows
    if operation.holds_alone:
        return tuple([variant for variant in found if variant.keep and variant.mode is not RowMode.STEPPED])
    if not split_variants(operation, types):
        if takes_few_rows(operation):
            found = _with_few(found, _most_spread(operation, types), analysis.draws)
        return (*found, *_BESIDE) if analysis.stripes and not operation.is_packed(types) else found
    last = operation.space[-1]
    if analysis.slabs or (last.name not in operation.along and not last.many):
        return ()
    held = [variant for variant in found if variant.keep and variant.mode is not RowMode.STEPPED]
    longest = min({each.mode: each.elements for each in held}.values(), default=0)  # the last of a mode is its longest
    if all(dim.name in operation.along for dim in operation.space):
        longest = min(longest, TUNED.short_row)
    return tuple([variant for variant in held if variant.elements <= longest])


def takes_few_rows(operation: Operation) -> bool:
    """Whether an operation has schedules for few rows."""
    analysis = operation.analysis
    apart = operation.block or operation.of_alternative or analysis.split or analysis.scans
    return bool(analysis.over and not apart and not operation.has_runs)


def _most_spread(operation: Operation, types: Types) -> int:
    """Accumulators of a row, up to which few rows have a thread for each group of elements; 0 where none have.

    Of longer rows so many threads wait for each other, and so they do in each pass that is repeated. But where random
    numbers are made, code is long, and few threads wait for it longer: there shared memory sets the limit.
    """
    if operation.analysis.repeats:
        return 0
    if operation.analysis.draws:
        return TUNED.spread_bytes * 8 // DTYPES[types[COMPUTE]].bits // ACCUMULATOR_GROUPS
    return TUNED.spread_threads[1]


@cache
def _with_few(found: tuple[RowVariant, ...], most_spread: int, draws: bool) -> tuple[RowVariant, ...]:
    """Schedules, and those for few rows: first those whose threads have a group of elements each."""
    held = [each for each in found if each.mode is RowMode.WHOLE and each.keep and not each.crowded]
    fewest, highest = TUNED.few_rows_threads
    if draws:
        fewest = most_spread + 1
    spread = [
        each.but(kernel=FEW_ROWS, suffix="x1", threads=each.threads * ACCUMULATOR_GROUPS, chunks=1)
        for each in held
        if each.chunks == ACCUMULATOR_GROUPS and TUNED.spread_threads[0] <= each.threads <= most_spread
    ]
    return (*found, *spread, *[each.but(kernel=FEW_ROWS) for each in held if fewest <= each.threads <= highest])


@cache
def _row_variants(bits: int, costly: bool, exponentials: bool, repeats: bool) -> tuple[RowVariant, ...]:
    """Of inputs of so many bits an element; costly: values are held beside them; exponentials, repeats: as `Analysis`
    has them.

    Of long narrow rows more are under way where threads hold twice as much, for what a thread needs besides it needs
    half as often. Where values are held, or rows are not in whole words, there are too few registers for that; there
    what a thread does once for all of its elements takes its time, and those of half as many hold what they can.
    """
    narrow, found = bits <= TUNED.halved_bits, []
    # Whether half as many threads have more to do than to wait: of rows that take the fewer of `held_threads`, and of
    # those that take the more. Narrow ones of the latter that hold no values are halved by `halved_threads`.
    of_few = costly or exponentials or (narrow and not repeats)
    of_many = costly if narrow else exponentials
    for mode in ROW_MODES:
        layout, suffix = mode.layout, mode.suffix
        for threads, chunks in TUNED.row_shapes:
            held = of_few if threads == TUNED.held_threads[0] else of_many
            for more in _held_chunks(mode, threads, chunks, bits) if held else ():
                found.append(RowVariant("row", layout, f"x{more}{suffix}", threads // 2, more, True, mode, True))
            long = threads >= TUNED.halved_threads and chunks == ACCUMULATOR_GROUPS
            if long and mode is RowMode.WHOLE and narrow and not costly and not repeats:
                threads, chunks = threads // 2, chunks * 2
            most = min(_THREAD_REGISTERS, _REGISTERS // threads)
            whole = mode is RowMode.WHOLE
            others = TUNED.row_other_registers if whole else TUNED.row_other_registers_unaligned
            if chunks * GROUP * bits // 32 <= most - others:
                found.append(RowVariant("row", layout, f"x{chunks}{suffix}", threads, chunks, True, mode))
            elif threads < TUNED.row_reread[0]:
                found.append(RowVariant("row", layout, f"_reread{suffix}", threads, chunks, False, mode))
        found.append(RowVariant("row", layout, f"_reread{suffix}", *TUNED.row_reread, False, mode))
    return tuple(found)


def _held_chunks(mode: RowMode, threads: int, chunks: int, bits: int) -> tuple[int, ...]:
    """How many groups half as many threads may hold of rows that need so many threads."""
    suits = mode is RowMode.WHOLE and chunks == ACCUMULATOR_GROUPS and threads in TUNED.held_threads
    return TUNED.held_shapes if suits and bits <= TUNED.held_bits else ()


def cluster_variants(operation: Operation) -> tuple[ClusterVariant, ...]:
    """The schedules of rows that a cluster holds; none of rows that are read once, or can be reduced in splits."""
    analysis = operation.analysis
    if analysis.pieces:
        return _CLUSTERS_OF_PIECES
    if analysis.scans or analysis.repeats or analysis.stages:
        return ()
    full = any(operand.dims == operation.space for operand in operation.outputs)
    once = analysis.reductions <= (0 if full else 1)
    return _CLUSTERS if analysis.over and not analysis.split and not once else ()


def piece_variants(operation: Operation, types: Types) -> tuple[RowVariant | ClusterVariant, ...]:
    """The schedules of an operation in stages whose rows may be held as they lie: in pieces, as a channel's elements do
    where images follow each other. The smallest first; none of packed elements."""
    if not operation.analysis.pieces or operation.is_packed(types):
        return ()
    read = tuple([operation.bits(operand, types) for operand in operation.read if operand.dims == operation.space])
    written = [operation.bits(operand, types) for operand in operation.outputs if operand.dims == operation.space]
    return _piece_variants(read, sum(written), bool(operation.analysis.stack)) + cluster_variants(operation)


@cache
def _piece_variants(read: tuple[int, ...], written: int, costly: bool) -> tuple[RowVariant, ...]:
    """Those of rows that a block holds, of inputs and outputs of so many bits an element."""
    found = []
    for lie in (RowMode.PIECES, RowMode.PIECES_OF_HALVES, RowMode.PIECES_UNALIGNED):
        least = 0 if lie.whole_pieces else 32  # bits that an element comes in
        for each in _row_variants(sum([max(least, bits) for bits in read]), costly, False, False):
            exchanged = each.block * GROUP * (sum(read) + written) // 8
            of_two = each.elements > GROUP and exchanged <= _EXCHANGED
            if each.keep and each.mode is RowMode.WHOLE and (lie.whole_pieces or of_two):
                found.append(each.but(layout=lie.layout, suffix=f"{each.suffix}{lie.suffix}", mode=lie))
    return tuple(found)


def split_variants(operation: Operation, types: Types) -> tuple[SplitVariant, ...]:
    """The schedules of an operation whose rows can be reduced in splits; none of packed elements."""
    if not operation.analysis.split or operation.is_packed(types):
        return ()
    rows = any(dim.name not in operation.along for dim in operation.space)
    found = _split_variants(*across_lanes(operation, types) if rows else (0, 0, False))
    return tuple([each for each in found if each.kernel == "across"]) if operation.analysis.slabs else found


@cache
def _split_variants(lanes: int, apart: int, shifted: bool) -> tuple[SplitVariant, ...]:
    found = [SplitVariant("along", mode.layout, mode.suffix, 0, mode) for mode in ROW_MODES]
    found.append(SplitVariant("across", Layout.STRIDED, "", 1, RowMode.STEPPED))
    if lanes:
        found.append(SplitVariant("across", Layout.CONTIGUOUS, "", lanes, RowMode.WHOLE))
        found.append(SplitVariant("across", Layout.STRIDED, RowMode.UNIT.suffix, apart, RowMode.UNIT, shifted))
    return tuple(found)


def across_lanes(operation: Operation, types: Types) -> tuple[int, int, bool]:
    """Rows that a thread takes: neighbours, 16 bytes of the widest element, fewer where there is much to make of each;
    where rows do not lie in whole vectors; and whether these are neighbours as well, brought into place by shifts: of
    bytes, which are too many to load one by one."""
    operands = *operation.read, *operation.outputs
    full = [operation.bits(o, types) for o in operands if o.dims == operation.space]
    values = len(operation.analysis.split) + 2 * (len(full) - 1)
    values += sum(state_values(each.how) - 1 for each in operation.analysis.split)
    few = TUNED.split_values * (2 if max(full) == 8 else 1)  # bytes are held four to a word
    lanes = max(2, min(TUNED.split_lanes, 128 // max(full)) // (1 if values <= few else 2 if values <= 2 * few else 4))
    shifted = max(full) == 8 and lanes >= 4 and all(o.dims != operation.space for o in operation.outputs)
    return lanes, lanes if shifted else min(4, lanes), shifted
