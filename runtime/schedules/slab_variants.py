"""Schedules of rows and of sums across them, which one kernel makes: slab.cuh."""

from __future__ import annotations

from collections.abc import Iterable

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation, Types
from skuda.model.sum_order import ACCUMULATOR_GROUPS, GROUP
from skuda.schedules.abi import is_parameter
from skuda.schedules.variant import CLUSTER_ARCH, RowMode, Variant

_THREADS = (32, 64, 128, 256, 512)
_TEAM = 256  # threads of a block, which take several rows where few threads hold one
_THREADS_OF_TWO = 256  # of a block, up to which a multiprocessor has registers for two
_SHARED = (226 << 10, 112 << 10)  # bytes for rows of one block to a multiprocessor, and of two
_ROWS_AHEAD = 3  # of a block in shared memory, at most
_LINE = 128  # bytes, of which each input of a row begins a line of shared memory
SLAB_FEW = 192  # slabs: where there are fewer, too few blocks go down them
_WORD = 16  # bytes that are copied at once
_NARROWEST = 32  # elements of a row of many that a block takes at once, at least
_NARROW_LINE = 4  # values that what a row has for a sum takes besides in shared memory
_REGISTERS = 56  # of a thread for what it keeps of all rows, at most: sums, and columns


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

    least_arch = CLUSTER_ARCH

    @property
    def number(self) -> int:
        return self.threads

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
        return self.threads * (self.chunks - 1) * GROUP + 1

    @property
    def ends(self) -> tuple[int, int]:
        """Elements of the shortest and of the longest row."""
        return self.shortest, self.elements

    @property
    def room(self) -> int:
        """Blocks that a multiprocessor is to have room for."""
        return 2 if self.block <= _THREADS_OF_TWO else 1

    @property
    def shared(self) -> tuple[int, int]:
        """Bytes of shared memory for the rows of a block: of one that others have room beside, and of one alone."""
        return _SHARED[self.room - 1], _SHARED[0]


class NarrowSlabVariant(SlabVariant):
    """One of narrow rows, of which a block takes many at once: narrow_slab.cuh."""

    @property
    def shortest(self) -> int:
        return self.elements // 2 + 1 if self.elements > 2 * _NARROWEST else _NARROWEST

    @property
    def ahead(self) -> bool:
        """Whether rows are copied to shared memory ahead."""
        return self.chunks > 1

    @property
    def room(self) -> int:
        return 2 if self.ahead else 3


_SLABS = tuple(
    SlabVariant("slab", mode.layout, f"x{chunks}{mode.suffix}", threads, chunks, mode, max(1, _TEAM // threads))
    for mode in (RowMode.WHOLE, RowMode.UNIT)
    for threads in _THREADS
    for chunks in (3, ACCUMULATOR_GROUPS)
)
# By the groups that a thread holds: two where elements have two bytes, else one.
_NARROW = {
    chunks: tuple(
        NarrowSlabVariant(
            "narrow_slab", RowMode.WHOLE.layout, f"x{chunks}", groups // chunks, chunks, RowMode.WHOLE,
            _TEAM * chunks // groups,
        )
        for groups in (8, 16, 32, 64)
    )
    for chunks in (1, 2)
}  # fmt: skip


def slab_variants(operation: Operation, types: Types) -> tuple[SlabVariant, ...]:
    """The schedules of an operation whose rows and whose sums across these one kernel makes."""
    if not (operation.analysis.slabs and operation.analysis.stages) or DTYPES[types[COMPUTE]].bits > 32:
        return ()
    widest = max([operation.bits(operand, types) for operand in operation.read if operand.dims == operation.space])
    every = *_NARROW[2 if widest <= 16 else 1], *_SLABS
    return tuple([each for each in every if any(slab_bytes(operation, types, each, n) for n in each.ends)])


def slab_bytes(operation: Operation, types: Types, variant: SlabVariant, length: int) -> int:
    """Bytes of shared memory of a block of slabs, of rows of a length; 0 where it is no work for them.

    That is where there is no room for a row, or elements have less than 16 bits.
    """

    def bits(operands: Iterable[Operand]) -> list[int]:
        return [operation.bits(operand, types) for operand in operands]

    read = bits([operand for operand in operation.read if operand.dims == operation.space])
    written = bits([operand for operand in operation.outputs if operand.dims == operation.space])
    if min(read + written) < 16:
        return 0
    if isinstance(variant, NarrowSlabVariant):
        return _narrow_bytes(operation, types, variant, length, len(read))
    holds = _holds(operation, types, variant)
    columns = bits([] if holds else [operand for operand in operation.read if is_parameter(operation, operand)])
    unaligned, shares = variant.mode is RowMode.UNIT, -(-length // GROUP)
    around = _WORD if unaligned else 0
    row = sum([-(-(shares * each + around) // _LINE) * _LINE for each in read]) * variant.teams
    others = _LINE + shares * sum(columns)
    beside, alone = variant.shared
    room = beside if row + others <= beside else alone  # one block's row comes while another's is made
    if row + others > room:
        return 0
    return min(_ROWS_AHEAD, (room - others) // row) * row + others


def _narrow_bytes(operation: Operation, types: Types, variant: NarrowSlabVariant, length: int, inputs: int) -> int:
    """The same of a block of narrow rows: what rows have for each of the sums, and the rows that come.

    With several sums it is no work for them either where many threads have no elements, or of rows of two warps.
    """
    sums = sum([operand.dims != operation.space for operand in operation.outputs])
    if sums > 1 and (variant.threads > 32 or (variant.elements > 2 * _NARROWEST and 4 * length < 3 * variant.elements)):
        return 0
    line = -(-length // GROUP) * GROUP + _NARROW_LINE
    copied = inputs * variant.block * variant.chunks * _WORD if variant.ahead else 0
    return copied + sums * variant.teams * line * DTYPES[types[COMPUTE]].bits // 8


def _holds(operation: Operation, types: Types, variant: SlabVariant) -> bool:
    """Whether threads that go down a slab hold their shares of what rows have in common."""
    columns = [operand for operand in operation.read if is_parameter(operation, operand)]
    bits = sum([operation.bits(operand, types) for operand in columns])
    sums = sum([operand.dims != operation.space for operand in operation.outputs])
    registers = variant.chunks * GROUP * (bits + sums * DTYPES[types[COMPUTE]].bits) // 32
    return variant.teams == 1 and registers <= _REGISTERS


def slab_arguments(operation: Operation, types: Types, variant: SlabVariant) -> tuple[int, ...]:
    """What the template of slab.cuh, or of narrow_slab.cuh, takes after the program."""
    if isinstance(variant, NarrowSlabVariant):
        return variant.threads, variant.chunks, variant.block, variant.room
    mode, holds = int(variant.mode), _holds(operation, types, variant)
    return variant.threads, variant.teams, variant.chunks, mode, holds, variant.room, *variant.shared, _ROWS_AHEAD
