"""Rows and sums across them by one kernel (runtime/cuda/slab.cuh): when it serves a call, and how it is launched."""

from __future__ import annotations

from skuda.model.sum_order import GROUP, accumulators, slab
from skuda.schedules import abi
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels
from skuda.schedules.table import FINISH, SLAB_ROWS_AHEAD, RowMode, SlabVariant, slab_variants

_WARP = 32


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
    if not found.count or rows.mode_of(layouts, arrays, found, along) is not RowMode.WHOLE:
        return None
    variant = variant_of(variants, found.length)
    if variant is None:
        return None
    bits = sum(each for each, full in zip(rows.bits[: len(rows.operation.inputs)], rows.full) if full)
    row = -(-found.length // (_WARP * GROUP)) * (_WARP * GROUP) // 8 * bits
    room = next((room for room in variant.shared if 2 * row <= room), 0)
    if not room or room > rows.cluster_shared:
        return None
    shared = min(SLAB_ROWS_AHEAD, room // row) * row
    grid = -(-found.count // slab(found.count))
    strides = rows.strides_of(operands, arrays, found)
    return Geometry(variant, grid, found.head, strides, variant.threads, shared=shared)


def variant_of(variants: tuple[SlabVariant, ...], length: int) -> SlabVariant | None:
    """The one whose threads have an accumulator each of rows of a length."""
    threads = accumulators(length)
    return next((each for each in variants if each.threads == threads and length <= each.elements), None)
