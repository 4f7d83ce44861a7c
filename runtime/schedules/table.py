"""The table of schedules: their kernels by name, and which of their forms a call of an operation can reach.

The forms that reductions and scans have are imported when an operation with some comes: a first call waits for imports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skuda.model.operation import Operation, Types
from skuda.model.records import Record
from skuda.schedules import abi
from skuda.schedules.elementwise_variants import elementwise_variants, lanes_of, strided_lanes, tile_of
from skuda.schedules.variant import (
    BROADCAST,
    COLUMNS,
    COLUMNS_SMALL,
    COLUMNS_UNALIGNED,
    GROUPS,
    PITCHED,
    ROWS,
    SHIFTED,
    SHIFTED_SMALL,
    SINGLE_SMALL,
    STAGES,
    VEC,
    VEC_SMALL,
    RowMode,
    Variant,
)

if TYPE_CHECKING:
    from skuda.schedules.row_variants import RowVariant, SplitVariant
    from skuda.schedules.scan_variants import ScanVariant
    from skuda.schedules.slab_variants import SlabVariant
    from skuda.schedules.stripe_variants import StripeVariant

# Those whose symbols say how many neighbours a thread takes.
_LAYOUTS = {
    VEC_SMALL: "FEW", SHIFTED: "SHIFTED", SHIFTED_SMALL: "FEW_SHIFTED", SINGLE_SMALL: "FEW", PITCHED: "PITCHED",
}  # as in runtime/cuda/flat.cuh  # fmt: skip
_IN_LANES = VEC, *_LAYOUTS, BROADCAST, ROWS, COLUMNS, COLUMNS_SMALL, COLUMNS_UNALIGNED, GROUPS


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
        waits: whether it waits by itself for the kernel in front of it, so that it may begin before that ends.
    """

    kernel: str
    serves: str
    header: str
    geometry: str
    argument: abi.Arguments
    template: Callable[[Operation, Types, Variant], Sequence[object]] = lambda operation, types, variant: ()
    then: tuple[str, ...] = ()
    waits: bool = False

    def entry(self, operation: Operation, types: Types, variant: Variant) -> str:
        """The NVRTC name expression of the kernel."""
        elements = ", ".join(types[letter] for letter in operation.kernel_letters)
        arguments = self.template(operation, types, variant)
        spelled = [str(each).lower() if isinstance(each, bool) else str(each) for each in arguments]
        return f"{self.kernel}<{', '.join([f'{operation.function}_program<{elements}>', *spelled])}>"


def _vec_arguments(operation: Operation, types: Types, variant: Variant) -> tuple[int, int, str]:
    return *lanes_of(operation, types, variant), _LAYOUTS.get(variant, "ALIGNED")


def _row_arguments(operation: Operation, types: Types, variant: RowVariant) -> tuple[int, int, bool, int]:
    return variant.threads, variant.chunks, variant.keep, int(variant.mode)


def _slab_arguments(operation: Operation, types: Types, variant: SlabVariant) -> tuple[int, ...]:
    from skuda.schedules.slab_variants import slab_arguments

    return slab_arguments(operation, types, variant)


def _stripe_arguments(operation: Operation, types: Types, variant: StripeVariant) -> tuple[int, int]:
    from skuda.schedules.stripe_variants import stripe_lanes

    return stripe_lanes(operation, types, variant), variant.blocks


def _scan_arguments(operation: Operation, types: Types, variant: ScanVariant) -> tuple[int, ...]:
    if variant.parts:
        return () if variant.walkers else (variant.tiles, int(variant.mode))
    return (variant.walkers,) if variant.walkers else (variant.threads, variant.tiles, int(variant.mode))


def _across_arguments(operation: Operation, types: Types, variant: SplitVariant) -> tuple[int, int]:
    lie = 1 if variant.mode is RowMode.WHOLE else 2 if variant.shifted else 0  # as in split_moves.cuh
    return variant.lanes, lie


SCHEDULES = {
    row.kernel: row
    for row in (
        # Elementwise programs.
        Schedule(
            "vec", "neighbours in memory, in vectors", "vec.cuh", "elementwise", abi.VEC_ARGUMENTS, _vec_arguments
        ),
        Schedule(
            "tabulate", "a function of 16 bits, of many elements: its results for all numbers", "tabulate.cuh",
            "elementwise", abi.TABLED_ARGUMENTS, then=("look_up",),
        ),
        Schedule("look_up", "those of its elements", "tabulate.cuh", "elementwise", abi.TABLED_ARGUMENTS),
        Schedule(
            "groups", "runs that begin anywhere in a vector", "groups.cuh", "groups", abi.GROUPS_ARGUMENTS, lanes_of
        ),
        Schedule(
            "rows", "rows of any alignment, any strides outside of them", "row_shares.cuh", "strided",
            abi.ROWS_ARGUMENTS, lanes_of, waits=True,
        ),
        Schedule(
            "columns", "inputs that differ between columns, whole vectors", "columns.cuh", "columns",
            abi.COLUMNS_ARGUMENTS, lanes_of, waits=True,
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
            "broadcast", "outputs in one row, inputs of any strides", "broadcast.cuh", "broadcasts",
            abi.BROADCAST_ARGUMENTS, lambda operation, types, variant: lanes_of(operation, types, variant)[:1],
            waits=True,
        ),
        Schedule(
            "strided", "any strides", "strided.cuh", "strided", abi.STRIDED_ARGUMENTS,
            lambda operation, types, variant: (strided_lanes(operation, types),),
        ),
        # Programs with reductions.
        Schedule(
            "row", "a row held by threads of one block", "row.cuh", "row_reduction", abi.ROW_ARGUMENTS, _row_arguments,
            waits=True,
        ),
        Schedule(
            "few_rows", "few rows, equally far apart, held by threads of one block", "few_rows.cuh", "row_reduction",
            abi.FEW_ROWS_ARGUMENTS, lambda operation, types, variant: (variant.threads, variant.chunks), waits=True,
        ),
        Schedule(
            "cluster", "a row held by a cluster of blocks", "cluster_row.cuh", "row_reduction", abi.ROW_ARGUMENTS,
            lambda operation, types, variant: (variant.blocks, int(variant.mode)),
        ),
        Schedule(
            "slab", "rows and sums across them, by blocks that go down rows", "slab.cuh", "slabs", abi.PARTS_ARGUMENTS,
            _slab_arguments,
        ),
        Schedule(
            "narrow_slab", "the same of narrow rows, many of them at once", "narrow_slab.cuh", "slabs",
            abi.PARTS_ARGUMENTS, _slab_arguments,
        ),
        Schedule(
            "stripe", "rows beside each other, held by a block or a cluster of blocks", "stripe.cuh", "stripes",
            abi.SPLIT_ARGUMENTS.but(workspace=False), _stripe_arguments, waits=True,
        ),
        Schedule(
            "along", "a row reduced by several blocks", "split_along.cuh", "split_reduction", abi.SPLIT_ARGUMENTS,
            lambda operation, types, variant: (int(variant.mode),), ("finish",), waits=True,
        ),
        Schedule(
            "across", "rows beside each other, reduced by several blocks", "split_across.cuh", "split_reduction",
            abi.SPLIT_ARGUMENTS, _across_arguments, ("finish",), waits=True,
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
        Schedule("cpu_rows", "programs with reductions", "parts.h", "cpu", abi.ROW_ARGUMENTS),
        Schedule("cpu_scans", "programs with scans", "scans.h", "cpu", abi.ROW_ARGUMENTS),
    )
}


def variants(operation: Operation, types: Types) -> tuple[Variant, ...]:
    """The schedules that some call of an operation at these types can reach."""
    if operation.analysis.stages:
        from skuda.schedules.slab_variants import slab_variants

        return (STAGES, *slab_variants(operation, types), *_stripes(operation, types), *_pieces(operation, types))
    if operation.analysis.scans:
        from skuda.schedules.scan_variants import scan_variants

        return scan_variants(operation, types)
    if operation.analysis.over:
        from skuda.schedules.row_variants import cluster_variants, row_variants, split_variants

        rows = row_variants(operation, types), cluster_variants(operation), split_variants(operation, types)
        has_stages = operation.analysis.alternative and not operation.analysis.stage
        stages = (STAGES,) if has_stages and (operation.is_packed(types) or not operation.repacked) else ()
        return tuple([variant for each in (*rows, stages, _stripes(operation, types)) for variant in each])
    return elementwise_variants(operation, types)


def _stripes(operation: Operation, types: Types) -> tuple[StripeVariant, ...]:
    if not operation.analysis.stripes:
        return ()
    from skuda.schedules.stripe_variants import stripe_variants

    return stripe_variants(operation, types)


def _pieces(operation: Operation, types: Types) -> tuple[Variant, ...]:
    if not operation.analysis.pieces:
        return ()
    from skuda.schedules.row_variants import piece_variants

    return piece_variants(operation, types)


def runs_on(variant: Variant, arch: str) -> bool:
    """Whether an architecture, such as `sm_90`, has what a schedule needs."""
    return int("".join(filter(str.isdigit, arch)) or 0) >= variant.least_arch


def variant_name(operation: Operation, types: Types, variant: Variant) -> str:
    """As in a symbol: `vec16`, `groups16`, `rows16`, `columns4`, `tile`, `strided`, `row256x4`."""
    number = lanes_of(operation, types, variant)[0] if variant in _IN_LANES else variant.number or ""
    return f"{variant.kernel}{number}{variant.suffix}"


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
