"""Rows and sums across them by one kernel (slab.cuh, narrow_slab.cuh): when it serves a call, and how."""

from __future__ import annotations

from skuda.model.sum_order import slab
from skuda.schedules.geometry import Geometry, Layouts
from skuda.schedules.row_reduction import RowKernels
from skuda.schedules.slab_variants import SlabVariant, slab_bytes, slab_variants
from skuda.schedules.variant import RowMode


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
    shared = slab_bytes(operation, rows.types, variant, found.length)
    grid = -(-found.count // slab(found.count))
    if not shared or shared > rows.cluster_shared:
        return None
    strides = rows.strides_of(operands, arrays, found)
    return Geometry(variant, grid, found.head, strides, variant.block, shared=shared)


def variant_of(variants: tuple[SlabVariant, ...], length: int, mode: RowMode) -> SlabVariant | None:
    """The one for rows of a length that lie so."""
    found = (each for each in variants if each.mode is mode and each.shortest <= length <= each.elements)
    return next(found, None)
