"""The schedules: which a call can reach, what their kernels are called, how much a thread takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation, Types
from skuda.model.records import Record
from skuda.model.scan_order import TILE_WARPS, WARP_GROUPS
from skuda.model.sku import Layout
from skuda.model.sum_order import ACCUMULATOR_GROUPS, GROUP, INDEX_REDUCTIONS, MOST_ACCUMULATORS, accumulators
from skuda.schedules import abi, tuning

TUNED = tuning.active()
BLOCK = TUNED.elementwise_threads


class Variant(Record):
    """One schedule, in one of its forms.

    Attributes:
        kernel: suffix of the kernel's name.
        layout: what it serves.
        suffix: what the name of the more special form ends in.
    """

    kernel: str
    layout: Layout
    suffix: str = ""


VEC = Variant("vec", Layout.CONTIGUOUS)
VEC_SMALL = Variant("vec", Layout.CONTIGUOUS, suffix="_small")
SHIFTED = Variant("vec", Layout.STRIDED, suffix="_shifted")
PITCHED = Variant("vec", Layout.STRIDED, suffix="_pitched")
ROWS = Variant("rows", Layout.STRIDED)
COLUMNS = Variant("columns", Layout.STRIDED)
COLUMNS_SMALL = Variant("columns", Layout.STRIDED, suffix="_small")
COLUMNS_UNALIGNED = Variant("columns", Layout.STRIDED, suffix="_unaligned")
GROUPS = Variant("groups", Layout.STRIDED)
TILE = Variant("tile", Layout.STRIDED)
STRIDED = Variant("strided", Layout.STRIDED)
CPU_ELEMENTWISE = Variant("cpu_elementwise", Layout.STRIDED)
CPU_ROWS = Variant("cpu_rows", Layout.STRIDED)
CPU_SCANS = Variant("cpu_scans", Layout.STRIDED)
STAGES = Variant("stages", Layout.STRIDED)  # the kernels of other operations


class RowMode(IntEnum):
    """How the elements of rows lie; as in runtime/cuda/row_moves.cuh."""

    WHOLE = 0  # neighbours, rows on 16-byte boundaries and of a multiple of GROUP elements
    UNIT = 1  # neighbours
    STEPPED = 2  # some distance apart


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
    def accumulators(self) -> int:
        """Accumulators of a thread; as in runtime/cuda/reduce.cuh."""
        return 2 if self.keep and self.chunks > ACCUMULATOR_GROUPS and self.threads < MOST_ACCUMULATORS else 1


class ClusterVariant(Variant):
    """One schedule of the kernel of rows that a cluster of blocks holds in shared memory.

    Attributes:
        blocks: of a cluster.
    """

    blocks: int = 8

    @property
    def team(self) -> int:
        """Threads of a block that have an accumulator of the row each: a block has as many or a multiple."""
        return MOST_ACCUMULATORS // self.blocks

    @property
    def teams(self) -> int:
        """How many times as many, at most: each takes other segments of the row."""
        return TUNED.cluster_threads // self.team


class SlabVariant(Variant):
    """One schedule of rows and of sums across them, of blocks that go down slabs of rows.

    Attributes:
        threads: that hold a row.
        chunks: groups of a row that each of them holds.
        mode: how its elements lie: neighbours, WHOLE or not.
        teams: rows that a block takes at once.
    """

    threads: int = 64
    chunks: int = 1
    mode: RowMode = RowMode.WHOLE
    teams: int = 1

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.threads * self.teams

    @property
    def elements(self) -> int:
        """Elements that a row may have."""
        return self.threads * self.chunks * GROUP

    @property
    def shortest(self) -> int:
        """Elements that a row has at least."""
        chunks = self.chunks - 1 if self.mode is RowMode.WHOLE else ACCUMULATOR_GROUPS // 2
        return self.threads * chunks * GROUP + 1

    @property
    def room(self) -> int:
        """Blocks that a multiprocessor is to have room for."""
        return 2 if self.block <= SLAB_THREADS_OF_TWO else 1

    @property
    def shared(self) -> tuple[int, int]:
        """Bytes of shared memory for the rows of a block: of one that others have room beside, and of one alone."""
        return SLAB_SHARED[self.room - 1], SLAB_SHARED[0]


SLAB_THREADS = (64, 128, 256, 512)
SLAB_TEAM = 256  # threads of a block, which take several rows where few threads hold one
SLAB_THREADS_OF_TWO = 256  # of a block, up to which a multiprocessor has registers for two
SLAB_SHARED = (226 << 10, 112 << 10)  # bytes for rows of one block to a multiprocessor, and of two
SLAB_ROWS_AHEAD = 3  # of a block in shared memory, at most
SLAB_LINE = 128  # bytes, of which each input of a row begins a line of shared memory
SLAB_FEW = 192  # slabs: where there are fewer, too few blocks go down them
SLAB_FEW_REDUCTIONS = 4  # of a row: more is much to be made of it
SLAB_MANY_THREADS = 512  # of a multiprocessor, which do that
_WORD = 16  # bytes that are copied at once
SLAB_REGISTERS = 56  # of a thread for what it keeps of all rows, at most: sums, and columns


class SplitVariant(Variant):
    """One schedule of a split reduction.

    Attributes:
        lanes: rows beside each other that a thread takes; 0: threads lie along a row.
        mode: how the elements of rows lie, or how those of neighbouring rows do.
    """

    lanes: int = 0
    mode: RowMode = RowMode.WHOLE


class ScanVariant(Variant):
    """One schedule of scans.

    Attributes:
        threads: that hold a row, or tiles of it at a time.
        tiles: how many.
        walkers: threads that go down a row beside others; 0: threads lie along it.
        parts: whether several blocks have a row.
        mode: how the elements of rows lie.
    """

    threads: int = 32
    tiles: int = 1
    walkers: int = 0
    mode: RowMode = RowMode.STEPPED
    parts: bool = False

    @property
    def elements(self) -> int:
        """Elements that it takes at once."""
        return self.walkers * SCAN_GROUPS * GROUP if self.walkers else self.threads * self.tiles * GROUP

    @property
    def block(self) -> int:
        """Threads of a block."""
        return SCAN_THREADS

    @property
    def rows(self) -> int:
        """Rows that a block takes."""
        return SCAN_THREADS // (self.walkers or self.threads)


SCAN_THREADS = WARP_GROUPS * TILE_WARPS  # of a block: they hold a tile
SCAN_GROUPS = 4  # of a row, that a thread which goes down it takes at once: scan_down.cuh
_SCAN_SHARES = (4, 8, 16, 32, 128, SCAN_THREADS)  # threads that hold a row at once
SCAN_KERNELS = ("scan", "scan_parts", "scan_down", "scan_down_parts")


# Threads that hold a row, and how many groups of eight each of them holds. What a thread does once it does for all of
# its elements, so there are few threads; the order of sums says how many, or half as many with two accumulators each.
assert all(accumulators(threads * chunks * GROUP) == threads for threads, chunks in TUNED.row_shapes)
_CLUSTERS = tuple(ClusterVariant("cluster", Layout.CONTIGUOUS, "", blocks) for blocks in TUNED.clusters)
CLUSTER_ARCH = 90  # sm_90 and newer have clusters
CLUSTER_SEGMENTS = 32  # of a row that a cluster holds, at most: cluster.cuh
PORTABLE_CLUSTER = 8  # blocks that a cluster may have on every GPU that has clusters
STATE_BYTES = 16  # of a partial result of a warp, at most: cluster.cuh
_REGISTERS = 1 << 16  # of a block, 32 bits each
_THREAD_REGISTERS = 256


def scan_variants(operation: Operation, types: Types) -> tuple[ScanVariant, ...]:
    """The schedules of an operation that scans; none of rows beside each other where elements are packed."""
    if not operation.analysis.scans:
        return ()
    rows = any(dim.name not in operation.along for dim in operation.space)
    packed = any(DTYPES[operation.word(o, types)].packed for o in operation.operands)
    return _scan_variants(4 if DTYPES[types[COMPUTE]].bits <= 32 else 2, rows and not packed)


@cache
def _scan_variants(many: int, down: bool) -> tuple[ScanVariant, ...]:
    """With so many tiles of a long row at once; `down`: and for rows beside each other."""
    shapes = *((threads, 1) for threads in _SCAN_SHARES), *((SCAN_THREADS, tiles) for tiles in sorted({2, many}))
    found = []
    for mode, suffix in zip(RowMode, ("", "_unaligned", "_strided"), strict=True):
        layout = Layout.CONTIGUOUS if mode is RowMode.WHOLE else Layout.STRIDED
        for threads, tiles in shapes:
            name = f"x{tiles}{suffix}" if tiles > 1 else suffix
            found.append(ScanVariant("scan", layout, name, threads, tiles, 0, mode))
        found.append(ScanVariant("scan_parts", layout, suffix, SCAN_THREADS, many, 0, mode, True))
    if down:
        found += [ScanVariant("scan_down", Layout.STRIDED, "", 0, 1, walkers) for walkers in (1, TILE_WARPS)]
        found.append(ScanVariant("scan_down_parts", Layout.STRIDED, "", 0, 1, TILE_WARPS, parts=True))
    return tuple(found)


def row_variants(operation: Operation, types: Types) -> tuple[RowVariant, ...]:
    """The schedules of an operation with reductions, the smallest first.

    Where rows can be reduced in splits, only those of neighbouring elements that a row's threads hold at once, however
    the rows lie; and only short ones where there is one row. Stages of a multi-kernel form take split reductions alone.
    """
    bits = sum(
        DTYPES[operation.word(operand, types)].bits for operand in operation.read if operand.dims == operation.space
    )
    if operation.of_alternative or operation.analysis.scans:
        return ()
    found = _row_variants(bits, bool(operation.analysis.stack))
    if not operation.analysis.reductions and all(operand.dims != operation.space for operand in operation.outputs):
        return tuple([next(each for each in found if each.mode is mode) for mode in RowMode])  # no pass reads rows
    if not split_variants(operation, types):
        return found
    last = operation.space[-1]
    if operation.analysis.slabs or (last.name not in operation.along and not last.many):
        return ()
    held = [variant for variant in found if variant.keep and variant.mode is not RowMode.STEPPED]
    longest = min({each.mode: each.elements for each in held}.values(), default=0)  # the last of a mode is its longest
    if all(dim.name in operation.along for dim in operation.space):
        longest = min(longest, TUNED.short_row)
    return tuple([variant for variant in held if variant.elements <= longest])


@cache
def _row_variants(bits: int, costly: bool) -> tuple[RowVariant, ...]:
    """Of inputs of so many bits an element; costly: values are held beside them.

    Of long narrow rows more are under way where threads hold twice as much, for what a thread needs besides it needs
    half as often. Where values are held, or rows are not in whole words, there are too few registers for that; there
    what a thread does once for all of its elements takes its time, and those of half as many hold what they can.
    """
    found = []
    for mode in RowMode:
        suffix = {RowMode.WHOLE: "", RowMode.UNIT: "_unaligned", RowMode.STEPPED: "_strided"}[mode]
        layout = Layout.CONTIGUOUS if mode is RowMode.WHOLE else Layout.STRIDED
        for threads, chunks in TUNED.row_shapes:
            for more in _held_chunks(mode, threads, chunks, bits) if costly else ():
                found.append(RowVariant("row", layout, f"x{more}{suffix}", threads // 2, more, True, mode, True))
            long = threads >= TUNED.halved_threads and chunks == ACCUMULATOR_GROUPS
            if long and mode is RowMode.WHOLE and bits <= TUNED.halved_bits and not costly:
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
    """How many groups half as many threads may hold of rows that need so many threads, beside values of theirs."""
    least, most = TUNED.held_threads
    suits = mode is RowMode.WHOLE and chunks == ACCUMULATOR_GROUPS and least <= threads <= most
    return TUNED.held_shapes if suits and bits <= TUNED.halved_bits else ()


def cluster_variants(operation: Operation) -> tuple[ClusterVariant, ...]:
    """The schedules of rows that a cluster holds; none of rows that are read once, or can be reduced in splits."""
    analysis = operation.analysis
    if analysis.scans:
        return ()
    full = any(operand.dims == operation.space for operand in operation.outputs)
    once = analysis.reductions <= (0 if full else 1)
    return _CLUSTERS if analysis.over and not analysis.split and not once else ()


def least_arch(variant: Variant) -> int:
    """The oldest architecture that has what a schedule needs, as in `sm_90`; 0 where all have."""
    return CLUSTER_ARCH if isinstance(variant, (ClusterVariant, SlabVariant)) else 0


def runs_on(variant: Variant, arch: str) -> bool:
    """Whether an architecture, such as `sm_90`, has what a schedule needs."""
    return int("".join(filter(str.isdigit, arch)) or 0) >= least_arch(variant)


_SLABS = tuple(
    SlabVariant("slab", layout, f"x{chunks}{suffix}", threads, chunks, mode, max(1, SLAB_TEAM // threads))
    for layout, suffix, mode, every, shapes in (
        (Layout.CONTIGUOUS, "", RowMode.WHOLE, SLAB_THREADS, (3, ACCUMULATOR_GROUPS)),
        (Layout.STRIDED, "_unaligned", RowMode.UNIT, SLAB_THREADS[2:], (ACCUMULATOR_GROUPS,)),
    )
    for threads in every
    for chunks in shapes
)
FINISH = SplitVariant("finish", Layout.STRIDED)  # what joins slabs, of the operation of the sums


def slab_variants(operation: Operation, types: Types) -> tuple[SlabVariant, ...]:
    """The schedules of an operation whose rows and whose sums across these one kernel makes."""
    if not (operation.analysis.slabs and operation.analysis.stages) or DTYPES[types[COMPUTE]].bits > 32:
        return ()
    return tuple([each for each in _SLABS if slab_bytes(operation, types, each, each.shortest)])


def slab_bytes(operation: Operation, types: Types, variant: SlabVariant, length: int) -> int:
    """Bytes of shared memory of a block of slabs, of rows of a length; 0 where it is no work for them.

    That is where there is no room for two rows, and where much is to be made of each element by few threads: then
    kernels that have more of them do better.
    """
    holds = slab_holds(operation, types, variant)

    def bits(operands) -> list[int]:
        return [DTYPES[operation.word(operand, types)].bits for operand in operands]

    read = bits([operand for operand in operation.read if operand.dims == operation.space])
    written = bits([operand for operand in operation.outputs if operand.dims == operation.space])
    columns = bits([] if holds else [operand for operand in operation.read if is_parameter(operation, operand)])
    unaligned, shares = variant.mode is RowMode.UNIT, -(-length // GROUP)
    around = _WORD if unaligned else 0
    row = sum([-(-(shares * each + around) // SLAB_LINE) * SLAB_LINE for each in read]) * variant.teams
    others = SLAB_LINE + shares * sum(columns)
    if unaligned:  # outputs are stored through it
        others += variant.block // 32 * (32 * max(written) + around)
    beside, alone = variant.shared
    room = beside if 2 * row + others <= beside else alone
    threads = variant.block * (variant.room if room == beside else 1)
    much = operation.analysis.slabs > SLAB_FEW_REDUCTIONS
    if min(read + written) < 16 or 2 * row + others > room or (much and (unaligned or threads < SLAB_MANY_THREADS)):
        return 0
    return min(SLAB_ROWS_AHEAD, (room - others) // row) * row + others


def slab_holds(operation: Operation, types: Types, variant: SlabVariant) -> bool:
    """Whether threads that go down a slab hold their shares of what rows have in common."""
    columns = [operand for operand in operation.read if is_parameter(operation, operand)]
    bits = sum([DTYPES[operation.word(operand, types)].bits for operand in columns])
    sums = sum([operand.dims != operation.space for operand in operation.outputs])
    registers = variant.chunks * GROUP * (bits + sums * DTYPES[types[COMPUTE]].bits) // 32
    return variant.teams == 1 and registers <= SLAB_REGISTERS


def split_variants(operation: Operation, types: Types) -> tuple[SplitVariant, ...]:
    """The schedules of an operation whose rows can be reduced in splits; none of packed elements."""
    if not operation.analysis.split or any(DTYPES[operation.word(o, types)].packed for o in operation.operands):
        return ()
    rows = any(dim.name not in operation.along for dim in operation.space)
    found = _split_variants(*across_lanes(operation, types) if rows else (0, 0))
    return tuple([each for each in found if each.kernel == "across"]) if operation.analysis.slabs else found


@cache
def _split_variants(lanes: int, apart: int) -> tuple[SplitVariant, ...]:
    found = [
        SplitVariant("along", Layout.CONTIGUOUS, "", 0, RowMode.WHOLE),
        SplitVariant("along", Layout.STRIDED, "_unaligned", 0, RowMode.UNIT),
        SplitVariant("along", Layout.STRIDED, "_strided", 0, RowMode.STEPPED),
        SplitVariant("across", Layout.STRIDED, "", 1, RowMode.STEPPED),
    ]
    if lanes:
        found += [
            SplitVariant("across", Layout.CONTIGUOUS, "", lanes, RowMode.WHOLE),
            SplitVariant("across", Layout.STRIDED, "_unaligned", apart, RowMode.UNIT),
        ]
    return tuple(found)


def across_lanes(operation: Operation, types: Types) -> tuple[int, int]:
    """Rows that a thread takes: neighbours, 16 bytes of the widest element, fewer where there is much to make of each;
    and where rows do not lie in whole vectors."""
    operands = *operation.read, *operation.outputs
    full = [DTYPES[operation.word(o, types)].bits for o in operands if o.dims == operation.space]
    values = len(operation.analysis.split) + 2 * (len(full) - 1)
    values += 2 * sum(each.how in INDEX_REDUCTIONS for each in operation.analysis.split)
    few = TUNED.split_values
    lanes = max(2, min(TUNED.split_lanes, 128 // max(full)) // (1 if values <= few else 2 if values <= 2 * few else 4))
    return lanes, min(4, lanes)


# Elementwise stages that end a multi-kernel form: of few long rows, of neighbouring rows, of operands that lie
# crosswise, and of anything else.
_SECOND = VEC, COLUMNS, TILE, STRIDED
_REPACK = VEC, TILE, STRIDED  # an elementwise operation without parameters


def variants(operation: Operation, types: Types) -> tuple[Variant, ...]:
    """The schedules that some call of an operation at these types can reach.

    Groups need parameters, columns those that change along the last axis. With an unpacked element any axis may be the
    last that counts, those after it having one element; a packed row of one element has a gap, so there it must be the
    last one. Tiles need two axes.
    """
    if operation.analysis.stages:
        return (STAGES, *slab_variants(operation, types))
    if operation.analysis.scans:
        return scan_variants(operation, types)
    if operation.analysis.over:
        rows = row_variants(operation, types), cluster_variants(operation), split_variants(operation, types)
        packed = any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands)
        has_stages = operation.analysis.alternative and not operation.analysis.stage
        stages = (STAGES,) if has_stages and (packed or not operation.repacked) else ()
        return tuple([variant for each in (*rows, stages) for variant in each])
    if operation.of_alternative:
        return _REPACK if operation.repacked else _SECOND
    parameters = [operand for operand in operation.in_kernels.inputs if is_parameter(operation, operand)]
    groups = (GROUPS,) if parameters else ()
    if any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands):
        ends = set()
        for dim in reversed(operation.space):
            ends.add(dim.name)
            if not dim.many:
                break
        parameters = [operand for operand in parameters if ends & {dim.name for dim in operand.dims}]
    small = lanes_of(operation, types, VEC_SMALL) != lanes_of(operation, types, VEC)
    flat = (VEC, VEC_SMALL, SHIFTED) if small else (VEC, SHIFTED)
    lines = *flat, *groups, ROWS
    less = lanes_of(operation, types, COLUMNS_SMALL) != lanes_of(operation, types, COLUMNS)
    columns = ((COLUMNS, COLUMNS_SMALL) if less else (COLUMNS,)) + (COLUMNS_UNALIGNED,) if parameters else ()
    planes = (PITCHED, TILE) if len(operation.space) > 1 or any(dim.many for dim in operation.space) else ()
    planes = planes if tile_of(operation, types) else planes[:1]
    differing = {dim.name for operand in parameters for dim in operand.dims if dim.block is None}
    if operation.space and all(dim.name in differing for dim in operation.space):  # no neighbours share all parameters
        lines, planes = (), planes[1:]
    return (*lines, *columns, *planes, STRIDED)


def is_parameter(operation: Operation, operand: Operand) -> bool:
    """Whether several output elements share each of its elements, and it has more than one."""
    return operand.dims != operation.space and not operand.scalar


def variant_name(operation: Operation, types: Types, variant: Variant) -> str:
    """As in a symbol: `vec16`, `groups16`, `rows16`, `columns4`, `tile`, `strided`, `row256x4`."""
    if isinstance(variant, (RowVariant, SlabVariant)):
        return f"{variant.kernel}{variant.threads}{variant.suffix}"
    if isinstance(variant, ClusterVariant):
        return f"{variant.kernel}{variant.blocks}{variant.suffix}"
    if isinstance(variant, SplitVariant):
        return f"{variant.kernel}{variant.lanes or ''}{variant.suffix}"
    if isinstance(variant, ScanVariant):
        return f"{variant.kernel}{'' if variant.parts else variant.walkers or variant.threads}{variant.suffix}"
    if variant in (TILE, STRIDED, STAGES):
        return variant.kernel
    lanes = lanes_of(operation, types, variant)[0]
    return f"{variant.kernel}{lanes}{variant.suffix}"


def schedule_of(variant: Variant) -> Schedule:
    """The row of the table that a variant belongs to: that of its kernel and suffix, or that of its kernel."""
    return SCHEDULES.get(f"{variant.kernel}{variant.suffix}") or (SCHEDULES | ON_CPU)[variant.kernel]


def entry(operation: Operation, types: Types, variant: Variant) -> str:
    """The NVRTC name expression of a variant's kernel."""
    return schedule_of(variant).entry(operation, types, variant)


def entries(operation: Operation, types: Types, variant: Variant) -> tuple[str, ...]:
    """The NVRTC name expressions of the kernels of its own that a variant may launch, in this order."""
    if variant is STAGES:
        return ()
    schedule = schedule_of(variant)
    rows = schedule, *[SCHEDULES[name] for name in schedule.then]
    return tuple([row.entry(operation, types, variant) for row in rows])


def lanes_of(operation: Operation, types: Types, variant: Variant) -> tuple[int, int]:
    """Neighbours that a thread takes at once, and how often (columns: rows; groups: turns; else groups).

    A thread stores 16 bytes at once, so that a warp writes whole lines, and has as many bytes of loads under way as
    memory wants; but beyond few stores of wide elements it gains nothing from more. Few elements are spread over more
    threads, for there it is one thread's way from its first load to its store that takes the time.

    Of columns a thread prepares few, for registers, and takes many rows of them, for what preparing costs. But where
    more is written than read memory wants a GPU's writes close together, so there they are few.
    """
    operands = *operation.read, *operation.outputs
    words = {operand: DTYPES[operation.word(operand, types)].bits for operand in operands}
    if variant is VEC_SMALL:
        return 128 // max(words[operand] for operand in words if operand.dims == operation.space), 1
    widest = max(words[operand] for operand in operation.outputs)
    inputs = [words[operand] for operand in operation.read if operand.dims == operation.space]
    inputs = inputs or [widest]  # a value that is spread over elements is stored as it would be copied
    if variant is COLUMNS_UNALIGNED:  # each lane's parameters stay in registers
        lanes = min(TUNED.columns_unaligned_lanes, 128 // widest, max(4, 128 // max(inputs)))
        most = TUNED.columns_unaligned_bits // (lanes * sum(inputs))
        return lanes, max(1, min(TUNED.columns_unaligned_rows, most))
    if variant.kernel == "columns":
        lanes = TUNED.columns_lanes_of_one if len(inputs) == 1 else TUNED.columns_lanes
        lanes = min(lanes, 128 // max(widest, *inputs))
        if widest > max(inputs):
            rows = TUNED.columns_bits_written // (lanes * widest)
        else:
            rows = TUNED.columns_bits // (lanes * sum(inputs))
        rows = max(1, min(TUNED.columns_rows, rows))
        return lanes, min(TUNED.columns_rows_small, rows) if variant is COLUMNS_SMALL else rows
    lanes = min(16, 128 // widest, TUNED.vec_bits // max(inputs))
    if variant is ROWS:
        return lanes, max(1, min(TUNED.rows_groups, TUNED.rows_bits // (lanes * sum(inputs))))
    if variant is GROUPS:  # what a warp prepares serves all of its turns
        most = (TUNED.groups_bits_of_one if len(inputs) == 1 else TUNED.groups_bits) // (lanes * sum(inputs))
        return lanes, max(1, 8 // lanes, min(TUNED.groups_turns, TUNED.groups_elements // lanes, most))
    return lanes, max(1, min(TUNED.vec_groups, TUNED.vec_bits // (lanes * sum(inputs))))


def strided_lanes(operation: Operation, types: Types) -> int:
    """Neighbours that a thread of the strided kernel takes: a packed output is written a byte at a time."""
    return 2 if any(DTYPES[operation.word(o, types)].packed for o in operation.outputs) else 1


def tile_of(operation: Operation, types: Types) -> tuple[int, int, int] | None:
    """Elements of a tile along and across, and neighbours along that a thread takes at once; None where so many wide
    operands leave no room for one, or where no input could lie across.

    A tile costs a thread some hundred instructions, so it is as large as shared memory allows, and as square as can be.
    In memory the lines of outputs run along, and those of inputs mostly across. Packed elements come in groups, so
    there a thread keeps to 32 neighbours: to prepare a second group costs more than a larger tile saves.
    """
    full = [operand for operand in operation.in_kernels.operands if operand.dims == operation.space]
    bits = {operand: DTYPES[operation.word(operand, types)].bits for operand in full}
    outputs = [bits[operand] for operand in operation.outputs]
    inputs = [bits[operand] for operand in full if operand in operation.read]
    if not inputs:
        return None
    most = BLOCK * (TUNED.tile_elements_packed if min(bits.values()) < 8 else TUNED.tile_elements)

    def fits(along: int, across: int) -> bool:
        padded = along * across * sum(bits.values()) // 8 + 16 * max(along, across) * len(full)
        return padded <= TUNED.tile_bytes and along * across <= most

    sizes = [(along, across) for along in TUNED.tile_sides for across in TUNED.tile_sides if fits(along, across)]
    if not sizes:
        return None
    along, across = max(
        sizes, key=lambda size: (size[0] * size[1], min(size), min(size[0] * min(outputs), size[1] * min(inputs)))
    )
    return along, across, 16 if max(outputs) <= 16 and max(inputs) <= 32 else 8


class Schedule(Record):
    """One kernel. A row here, a header and its geometry are all that is to be said of a new one.

    Attributes:
        kernel: its name.
        serves: what it is for.
        header: of runtime/cuda, which has it.
        geometry: the module of skuda.schedules that decides when it is launched.
        argument: what it takes, as the host packs it.
        template: what its template takes after the program.
        then: kernels that are launched after it.
    """

    kernel: str
    serves: str
    header: str
    geometry: str
    argument: abi.Arguments
    template: Callable[[Operation, Types, Variant], Sequence[object]] = lambda operation, types, variant: ()
    then: tuple[str, ...] = ()

    def entry(self, operation: Operation, types: Types, variant: Variant) -> str:
        """The NVRTC name expression of the kernel."""
        elements = ", ".join(types[letter] for letter in operation.kernel_letters)
        arguments = self.template(operation, types, variant)
        spelled = [str(each).lower() if isinstance(each, bool) else str(each) for each in arguments]
        return f"{self.kernel}<{', '.join([f'{operation.function}_program<{elements}>', *spelled])}>"


def _vec_arguments(operation: Operation, types: Types, variant: Variant) -> tuple[int, int, str]:
    return *lanes_of(operation, types, variant), {SHIFTED: "SHIFTED", PITCHED: "PITCHED"}.get(variant, "ALIGNED")


def _row_arguments(operation: Operation, types: Types, variant: RowVariant) -> tuple[int, int, bool, int]:
    return variant.threads, variant.chunks, variant.keep, int(variant.mode)


def _slab_arguments(operation: Operation, types: Types, variant: SlabVariant) -> tuple[int, ...]:
    mode, holds = int(variant.mode), slab_holds(operation, types, variant)
    return variant.threads, variant.teams, variant.chunks, mode, holds, variant.room, *variant.shared, SLAB_ROWS_AHEAD


def _scan_arguments(operation: Operation, types: Types, variant: ScanVariant) -> tuple[int, ...]:
    if variant.parts:
        return () if variant.walkers else (variant.tiles, int(variant.mode))
    return (variant.walkers,) if variant.walkers else (variant.threads, variant.tiles, int(variant.mode))


def _across_arguments(operation: Operation, types: Types, variant: SplitVariant) -> tuple[int, bool]:
    return variant.lanes, variant.mode is RowMode.WHOLE


SCHEDULES = {
    row.kernel: row
    for row in (
        # Elementwise programs.
        Schedule(
            "vec", "neighbours in memory, in vectors", "vec.cuh", "elementwise", abi.VEC_ARGUMENTS, _vec_arguments
        ),
        Schedule(
            "groups", "runs that begin anywhere in a vector", "groups.cuh", "groups", abi.GROUPS_ARGUMENTS, lanes_of
        ),
        Schedule(
            "rows", "rows of any alignment, any strides outside of them", "row_shares.cuh", "strided",
            abi.ROWS_ARGUMENTS, lanes_of,
        ),
        Schedule(
            "columns", "inputs that differ between columns, whole vectors", "columns.cuh", "columns",
            abi.COLUMNS_ARGUMENTS, lanes_of,
        ),
        Schedule(
            "columns_unaligned", "the same, any alignment", "columns_unaligned.cuh", "strided", abi.ROWS_ARGUMENTS,
            lanes_of,
        ),
        Schedule(
            "tile", "operands that run along different axes", "tile.cuh", "tiles", abi.TILE_ARGUMENTS,
            lambda operation, types, variant: tile_of(operation, types),
        ),
        Schedule(
            "strided", "any strides", "strided.cuh", "strided", abi.STRIDED_ARGUMENTS,
            lambda operation, types, variant: (strided_lanes(operation, types),),
        ),
        # Programs with reductions.
        Schedule(
            "row", "a row held by threads of one block", "row.cuh", "row_reduction", abi.ROW_ARGUMENTS, _row_arguments
        ),
        Schedule(
            "cluster", "a row held by a cluster of blocks", "cluster_row.cuh", "row_reduction", abi.ROW_ARGUMENTS,
            lambda operation, types, variant: (variant.blocks,),
        ),
        Schedule(
            "slab", "rows and sums across them, by blocks that go down rows", "slab.cuh", "slabs", abi.PARTS_ARGUMENTS,
            _slab_arguments,
        ),
        Schedule(
            "along", "a row reduced by several blocks", "split_along.cuh", "split_reduction", abi.SPLIT_ARGUMENTS,
            lambda operation, types, variant: (int(variant.mode),), ("finish",),
        ),
        Schedule(
            "across", "rows beside each other, reduced by several blocks", "split_across.cuh", "split_reduction",
            abi.SPLIT_ARGUMENTS, _across_arguments, ("finish",),
        ),
        Schedule(
            "scan", "a row scanned by threads of one block", "scan.cuh", "scans", abi.ROW_ARGUMENTS, _scan_arguments
        ),
        Schedule(
            "scan_parts", "a row scanned by several blocks: nothing is known yet", "scan_parts.cuh", "scans",
            abi.PARTS_ARGUMENTS, _scan_arguments, ("scan_rest",),
        ),
        Schedule("scan_rest", "its scan", "scan_parts.cuh", "scans", abi.PARTS_ARGUMENTS, _scan_arguments),
        Schedule(
            "scan_down", "rows beside each other, scanned by threads that go down them", "scan_down.cuh", "scans",
            abi.ROW_ARGUMENTS, _scan_arguments,
        ),
        Schedule(
            "scan_down_parts", "rows beside each other, scanned by several blocks each: nothing is known yet",
            "scan_down_parts.cuh", "scans", abi.PARTS_ARGUMENTS, _scan_arguments, ("scan_down_rest",),
        ),
        Schedule(
            "scan_down_rest", "the scans of such rows", "scan_down_parts.cuh", "scans", abi.PARTS_ARGUMENTS,
            _scan_arguments,
        ),
        Schedule(
            "finish", "partial results of split reductions, joined", "split_finish.cuh", "split_reduction",
            abi.SPLIT_ARGUMENTS,
        ),
    )
}  # fmt: skip

# Those of the CPU, by kernel: headers of runtime/cpu.
ON_CPU = {
    row.kernel: row
    for row in (
        Schedule("cpu_elementwise", "any strides", "elementwise.h", "cpu", abi.STRIDED_ARGUMENTS),
        Schedule("cpu_rows", "programs with reductions", "rows.h", "cpu", abi.ROW_ARGUMENTS),
        Schedule("cpu_scans", "programs with scans", "scans.h", "cpu", abi.ROW_ARGUMENTS),
    )
}
