"""The host side of runtime/cuda/columns.cuh: parameters that differ along the last axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd
from typing import TYPE_CHECKING

from skuda.schedules import abi
from skuda.schedules.axes import Axis
from skuda.schedules.elementwise_variants import lanes_of
from skuda.schedules.geometry import MOST, NEVER, SECTOR, Geometry, Layouts, divide_slots, repeats
from skuda.schedules.variant import BLOCK, COLUMNS, COLUMNS_SMALL, Variant

if TYPE_CHECKING:
    from skuda.schedules.elementwise import ElementwiseKernels


def in_columns(kernels: ElementwiseKernels, layouts: Layouts, arrays: Sequence[int], axes: list[Axis]) -> Geometry:
    """The launch for operands in the output's shape that run along the last axis, in tables of rows."""
    *tables, inner = axes
    rows = Axis(1, (0,) * len(arrays))
    parameters = {at: kernels.operation.operands[index] for at, index in enumerate(arrays) if not kernels.full[index]}
    of_rows = {at for at, operand in parameters.items() if operand in kernels.operation.of_rows}
    in_memory = {at for at in of_rows if parameters[at] not in kernels.operation.positions}
    if not any(inner.strides[at] for at in in_memory):
        if tables and not any(tables[-1].strides[at] for at in parameters.keys() - of_rows):
            rows = tables.pop()  # what columns have is the same all along this axis
        found = _whole(kernels, layouts, arrays, of_rows, tables, rows, inner)
        if found is not None:
            return found
    from skuda.schedules import strided

    if any(rows.strides[at] for at in of_rows):
        tables, rows = [*tables, rows], Axis(1, (0,) * len(arrays))
    return strided.in_columns(kernels, arrays, tables, rows, inner)


def _whole(
    kernels: ElementwiseKernels, layouts: Layouts, arrays: Sequence[int], of_rows: Collection[int], tables: list[Axis],
    rows: Axis, inner: Axis,
) -> Geometry | None:
    """Tables of whole aligned vectors, or one without gaps, or a stack of such whose rows have the same inputs in each;
    None where the operands are not so. `of_rows`: the positions of those that rows have one element of."""
    lanes, width, extent = kernels.boundaries[-1], inner.extent, rows.extent
    if len(tables) > 1 or width < lanes:
        return None
    full = [position for position, index in enumerate(arrays) if kernels.full[index]]
    gapless = extent == 1 or all(rows.strides[position] == width for position in full)
    alike = [at for at in range(len(arrays)) if at not in full]  # in each table of a stack
    stacked = bool(tables and of_rows) and not any(tables[0].strides[at] for at in alike)
    stacked = stacked and all(tables[0].strides[position] == width * extent for position in full)
    lead = vectors_end = length = edges = 0
    period = NEVER
    if layouts.aligned and width % lanes == 0 and kernels.keep_aligned(arrays, [*tables, rows], lanes):
        chunks = last = width // lanes
        count, apart, rows_each = extent, rows.strides, 1
    elif (
        gapless
        and (stacked or not tables)
        and layouts.lead is not None
        and not (kernels.packed and width % 2 and extent > 1)
    ):
        length, again = width * extent, width  # elements, and those after which columns are the same again
        if stacked:
            length, again, period, tables = length * tables[0].extent, length, extent, []
        lead = layouts.lead if length >= 4 * SECTOR else layouts.lead % lanes
        vectors = (length - lead) // lanes
        if vectors < 1 or length >= MOST:
            return None
        vectors_end = lead + vectors * lanes
        edges = int(length - vectors * lanes > 0)
        chunks = min(again // gcd(again, lanes), vectors)
        count, last = -(-vectors // chunks), (vectors - 1) % chunks + 1
        apart, rows_each = (chunks * lanes,) * len(arrays), 0 if stacked else chunks * lanes // width
    else:
        return None
    variant, depth = _variant(kernels, chunks * count * (tables[0].extent if tables else 1))
    slabs = -(-count // depth)
    units = chunks * slabs * (tables[0].extent if tables else 1)
    table = tables[0] if tables else Axis(1, (0,) * len(arrays))
    strides = {}
    for position, index in enumerate(arrays):
        steps = [apart[position] if kernels.full[index] else inner.strides[position]]
        if position in of_rows:
            steps = [rows.strides[position], rows.strides[position] * rows_each, inner.strides[position]]
        own = tuple(step * kernels.bits[index] // 8 for step in (table.strides[position], *steps))
        if any(abs(step) >= 1 << 31 for step in own):
            return None
        strides[kernels.operation.operands[index].name] = own + (repeats(period) if position in of_rows else ())
    if chunks * lanes >= MOST or count >= MOST:
        return None
    blocks = -(-units // BLOCK)
    head = abi.COLUMNS.pack(
        units=units, blocks=blocks, rows=count, last=last,
        chunks=divide_slots(chunks), slabs=divide_slots(slabs), width=divide_slots(width),
        lead=lead, vectors_end=vectors_end, length=length,
    )  # fmt: skip
    return Geometry(variant, blocks + edges, head, strides)


def _variant(kernels: ElementwiseKernels, vectors: int) -> tuple[Variant, int]:
    """The variant for so many vectors, and the rows that a thread of it takes."""
    depth, less = (lanes_of(kernels.operation, kernels.types, variant)[1] for variant in (COLUMNS, COLUMNS_SMALL))
    if depth == less or vectors >= kernels.few_blocks * BLOCK * depth:
        return COLUMNS, depth
    return COLUMNS_SMALL, less
