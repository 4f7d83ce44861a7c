"""What a schedule is in one of its forms, and the forms of elementwise schedules."""

from __future__ import annotations

from enum import IntEnum

from skuda.model.records import Record
from skuda.model.sku import Layout
from skuda.schedules import tuning

TUNED = tuning.active()
BLOCK = TUNED.elementwise_threads  # threads of a block of an elementwise kernel
CLUSTER_ARCH = 90  # sm_90 and newer have clusters


class Variant(Record):
    """One schedule, in one of its forms.

    Attributes:
        kernel: suffix of the kernel's name.
        layout: what it serves.
        suffix: what the name of the more special form ends in.
        number: what a symbol says between kernel and suffix; 0 where it says nothing. Elementwise schedules say how
            many neighbours a thread takes: `lanes_of`.
        of_few: whether it is for so few rows or elements that the time between kernels counts: its kernel waits by
            itself for the one in front of it, and may begin before that ends.
        least_arch: the oldest architecture that has what the schedule needs, as in `sm_90`; 0 where all have.
    """

    kernel: str
    layout: Layout
    suffix: str = ""

    number = 0  # without annotations these are no fields
    of_few = False
    least_arch = 0


class SmallVariant(Variant):
    """One of few elements."""

    of_few = True


class TabledVariant(Variant):
    """One whose kernel keeps a table in shared memory, which is as large where there are clusters."""

    least_arch = CLUSTER_ARCH


VEC = Variant("vec", Layout.CONTIGUOUS)
VEC_SMALL = SmallVariant("vec", Layout.CONTIGUOUS, suffix="_small")
SHIFTED = Variant("vec", Layout.STRIDED, suffix="_shifted")
SHIFTED_SMALL = SmallVariant("vec", Layout.STRIDED, suffix="_shifted_small")
SINGLE_SMALL = SmallVariant("vec", Layout.STRIDED, suffix="_single")  # one by one, from any element on
PITCHED = Variant("vec", Layout.STRIDED, suffix="_pitched")
ROWS = Variant("rows", Layout.STRIDED)
COLUMNS = Variant("columns", Layout.STRIDED)
COLUMNS_SMALL = Variant("columns", Layout.STRIDED, suffix="_small")
COLUMNS_UNALIGNED = Variant("columns", Layout.STRIDED, suffix="_unaligned")
GROUPS = Variant("groups", Layout.STRIDED)
TILE = Variant("tile", Layout.STRIDED)
BROADCAST = Variant("broadcast", Layout.STRIDED)
STRIDED = Variant("strided", Layout.STRIDED)
TABULATE = TabledVariant("tabulate", Layout.CONTIGUOUS)
CPU_ELEMENTWISE = Variant("cpu_elementwise", Layout.STRIDED)
CPU_ROWS = Variant("cpu_rows", Layout.STRIDED)
CPU_SCANS = Variant("cpu_scans", Layout.STRIDED)
STAGES = Variant("stages", Layout.STRIDED)  # the kernels of other operations


class RowMode(IntEnum):
    """How the elements of rows lie; as in runtime/cuda/row_moves.cuh."""

    WHOLE = 0  # neighbours, rows on 16-byte boundaries and of a multiple of GROUP elements
    UNIT = 1  # neighbours
    STEPPED = 2  # some distance apart
    PIECES = 3  # as WHOLE, in pieces that lie along a second axis
    PIECES_OF_HALVES = 4  # the same, in pieces of a multiple of half a GROUP
    PIECES_UNALIGNED = 5  # neighbours, in such pieces
    BESIDE = 6  # some distance apart, and neighbours in memory belong to different rows

    @property
    def whole_pieces(self) -> bool:
        """Whether rows lie in pieces of whole words."""
        return self in (RowMode.PIECES, RowMode.PIECES_OF_HALVES)

    @property
    def layout(self) -> Layout:
        """What a schedule of such rows serves."""
        return Layout.CONTIGUOUS if self is RowMode.WHOLE else Layout.STRIDED

    @property
    def suffix(self) -> str:
        """What the name of a schedule of such rows ends in, where there are several."""
        return ("", "_unaligned", "_strided", "_pieces", "_pieces_of_halves", "_pieces_unaligned", "_beside")[self]


# Those of rows whatever they lie along; in pieces they have schedules of their own.
ROW_MODES = RowMode.WHOLE, RowMode.UNIT, RowMode.STEPPED
