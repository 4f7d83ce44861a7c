"""What every schedule knows: how operands lie, what a launch of a kernel is, and which slots a division takes.

The slots of a kernel's argument are written in the order in which the kernel declares them, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skuda.model.operation import Operation, Types
from skuda.model.records import Record
from skuda.schedules import abi
from skuda.schedules.axes import Axis
from skuda.schedules.variant import BLOCK, STAGES, Variant

MOST_FLAT = (1 << 31) - (1 << 16)  # elements that 32-bit indices reach, those of the last block's idle threads too
NEVER = 0  # the period of parameters that do not repeat
MOST = (1 << 31) - (1 << 12)  # threads, shares to a row and rows that 32-bit numbers reach
SECTOR = 32  # elements, of which even the narrowest fill a sector of memory, or half of one where they are packed
MARGIN = 32  # elements around a shifted vector that its words may reach: flat.cuh


def divide_slots(divisor: int) -> tuple[int, int, int, int]:
    """Divisor, multipliers for n < 2^63 and for n < 2^31, and shift: index_space.cuh's Divide."""
    shift = (divisor - 1).bit_length()
    narrow = -(-(1 << (31 + shift)) // divisor) if shift < 32 else 0
    return divisor, -(-(1 << (63 + shift)) // divisor), narrow, shift


def divisions(divisors: Sequence[int]) -> tuple[int, ...]:
    """The slots of several divisions."""
    return tuple([slot for divisor in divisors for slot in divide_slots(divisor)])


def outer_of(extents: Sequence[int]) -> tuple[int, ...]:
    """Slots of Outer, the axes outside of a row."""
    free = abi.AXES - len(extents)
    return abi.OUTER.pack(first_axis=free, extent=divisions([1] * free + [*extents]))


class Layouts(Record):
    """How the operands of one call lie, in the operation's operand order.

    Attributes:
        strides: of each operand that is an array, as in Axis; None for a single value.
        aligned: whether every array in the output's shape starts on a 16-byte boundary.
        lead: elements of each before the first one of a vector, counted from one of
            `KernelGeometry.boundaries`; None where the arrays differ in that.
    """

    strides: tuple[tuple[int, ...] | None, ...]
    aligned: bool
    lead: int | None


class Geometry(Record):
    """Everything of a launch but pointers and numbers.

    Attributes:
        variant: what runs.
        grid: blocks.
        head: slots before the operands'.
        strides: slots that follow each array operand's pointer, by operand name.
        block: threads of a block.
        finish: blocks, and threads of one, of the kernel that joins what the blocks of this one leave in the workspace;
            None where there is nothing to join.
        workspace: bytes of that.
        shared: bytes of shared memory that a block has beside what its kernel declares.
        finish_shared: the same of the kernel that joins.
    """

    variant: Variant
    grid: int
    head: tuple[int, ...]
    strides: Mapping[str, tuple[int, ...]]
    block: int = BLOCK
    finish: tuple[int, int] | None = None
    workspace: int = 0
    shared: int = 0
    finish_shared: int = 0


SEVERAL_KERNELS = Geometry(STAGES, 0, (), {})  # of a call that kernels of other operations serve


class KernelGeometry:
    """Geometry of the kernels of one operation at fixed types and sizes: what a plan asks of any kind of schedules.

    A subclass has `geometry`, and sets what differs.

    Attributes:
        operation, types, sizes: what of; positions are inputs of this operation.
        bits: of an element of each operand.
        packed: whether some operand has two elements to a byte.
        full: of each operand, whether it has an element for each of the index space; the others are parameters.
        vectors: operands that vectors are taken of, whose alignment counts.
        boundaries: elements whose multiples vectors are counted from where arrays are not aligned alike: the first of
            these that all arrays have in common. None where vectors are only counted from an array's start.
        workspace: bytes of scratch memory that a launch needs at most.
    """

    vectors: tuple[bool, ...]
    boundaries: tuple[int, ...] = ()
    workspace = 0

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        self.operation = operation = operation.in_kernels
        self.types = types
        self.sizes = sizes
        self.bits = tuple([operation.bits(operand, types) for operand in operation.operands])
        self.packed = any([bits < 8 for bits in self.bits])
        self.full = self.vectors = tuple([abi.is_full(operation, operand) for operand in operation.operands])

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so.

        Raises:
            Unsupported: no kernel serves them.
        """
        raise NotImplementedError


NO_DIVISION = (0, 0, 0, 0)


def repeats(period: int) -> tuple[int, int, int, int]:
    """Slots of the division by a number of runs, if they repeat."""
    return NO_DIVISION if period == NEVER else divide_slots(period)


def gapless(axes: Sequence[Axis]) -> list[int]:
    """The strides of an array whose elements follow each other along some axes."""
    return [product(axes[at + 1 :]) for at in range(len(axes))]


def product(axes: Sequence[Axis]) -> int:
    """The elements along some axes."""
    result = 1
    for axis in axes:
        result *= axis.extent
    return result
