"""Rows and sums across them by one kernel (runtime/cuda/slab.cuh): when it serves a call, and how it is launched."""

from __future__ import annotations

from skuda.model.sum_order import GROUP, accumulators, slab
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels
from skuda.schedules.table import SLAB_ROWS_AHEAD, RowMode, SlabVariant, slab_holds, slab_variants

_WARP = 32
_WORD = 16  # bytes of the words that rows are copied in


def slab_geometry(operation, rows: RowKernels, layouts: Layouts) -> Geometry | None:
    """The launch that makes rows and each slab's sums; None where the kernels of both are to make them apart.

    Args:
        operation: of both.
        rows: geometry of that of the rows.
        layouts: how its operands lie; values that rows leave for the sums lie anywhere.
    """
    variants = slab_variants(operation, rows.types)
    if not variants or not rows.cluster_shared:
        return None
    arrays, operands, found = rows.found_in(layouts)
    along = [rows.operation.runs_along(operand) for operand in operands]
    mode = rows.mode_of(layouts, arrays, found, along)
    variant = variant_of(variants, found.length, mode) if found.count else None
    if variant is None:
        return None
    row, others = slab_bytes(rows, variant, found.length, slab_holds(operation, rows.types, variant))
    room = next((room for room in variant.shared if 2 * row + others <= room), 0)
    if not room or room > rows.cluster_shared:
        return None
    shared = min(SLAB_ROWS_AHEAD, (room - others) // row) * row + others
    grid = -(-found.count // slab(found.count))
    strides = rows.strides_of(operands, arrays, found)
    return Geometry(variant, grid, found.head, strides, variant.threads, shared=shared)


def slab_bytes(rows: RowKernels, variant: SlabVariant, length: int, holds: bool) -> tuple[int, int]:
    """Bytes of shared memory of a row; and of what a block has besides: columns, and what it stores outputs through."""
    inputs = len(rows.operation.inputs)
    read = [bits for bits, full in zip(rows.bits[:inputs], rows.full) if full]
    written = [bits for bits, full in zip(rows.bits[inputs:], rows.full[inputs:]) if full]
    every = zip(rows.bits[:inputs], rows.full, rows.vectors)
    columns = [bits for bits, full, runs in every if runs and not full and not holds]
    shares = -(-length // GROUP)
    if variant.mode is RowMode.WHOLE:
        return shares * sum(read), shares * sum(columns)
    stages = variant.threads // _WARP * (_WARP * max(written) + _WORD)
    return shares * sum(read) + _WORD * len(read), shares * sum(columns) + stages


def variant_of(variants: tuple[SlabVariant, ...], length: int, mode: RowMode) -> SlabVariant | None:
    """The one whose threads have an accumulator each of rows of a length that lie so."""
    threads = accumulators(length)
    found = (each for each in variants if each.mode is mode and each.threads == threads)
    return next((each for each in found if length <= each.elements), None)
