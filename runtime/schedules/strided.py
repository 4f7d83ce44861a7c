"""The host side of index_space.cuh: kernels that find an element by divisions, along up to AXES axes.

The moves of runtime/cuda/row_shares.cuh and columns_unaligned.cuh, whose threads take shares of rows, and of
strided.cuh, which serves what nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skuda.errors import Unsupported
from skuda.schedules import abi
from skuda.schedules.abi import AXES
from skuda.schedules.axes import Axis
from skuda.schedules.elementwise_variants import lanes_of, strided_lanes
from skuda.schedules.geometry import NO_DIVISION, Geometry, divide_slots, divisions, outer_of, product, repeats
from skuda.schedules.variant import BLOCK, COLUMNS_UNALIGNED, ROWS, STRIDED, TUNED, Variant

if TYPE_CHECKING:
    from skuda.schedules.elementwise import ElementwiseKernels

BUSY = TUNED.busy_threads


def strided(kernels: ElementwiseKernels, arrays: Sequence[int], axes: list[Axis]) -> Geometry:
    """Any axes: an element, or a byte of packed output, a thread."""
    if not axes or (kernels.packed and kernels.space[-1] == 1):  # an extent-1 last axis holds one nibble a byte
        axes = [*axes, Axis(1, (0,) * len(arrays))]
    lanes = strided_lanes(kernels.operation, kernels.types)
    extents = [axis.extent for axis in axes[:-1]] + [-(-axes[-1].extent // lanes)]
    blocked = [index for index, axis in enumerate(axes) if axis.block > 1]
    free = _free(kernels, axes)
    units = 1
    for extent in extents:
        units *= extent
    head = abi.SPACE.pack(
        units=units, first_axis=free, last=axes[-1].extent, block_axis=free + blocked[0] if blocked else -1,
        block=divide_slots(axes[blocked[0]].block if blocked else 1), extent=divisions([1] * free + extents),
    )  # fmt: skip
    return Geometry(STRIDED, -(-units // BLOCK), head, outer_strides(kernels, arrays, axes))


# ---- shares of rows ----


def in_rows(
    kernels: ElementwiseKernels,
    arrays: Sequence[int],
    axes: list[Axis],
    start: int,
    length: int,
    run: int,
    period: int,
    steps: Sequence[int],
) -> Geometry:
    """Rows along the axes from `start` on, as `ElementwiseKernels._row` describes them; any strides outside."""
    lanes, groups = lanes_of(kernels.operation, kernels.types, ROWS)
    chunks = -(-length // lanes)
    depth = _depth(chunks * product(axes[:start]), TUNED.rows_shares, groups)
    stretches = -(-chunks // (32 * depth))
    # Below each other where too many lanes would have no share of a row.
    below = start > 0 and 4 * chunks < 3 * stretches * 32 * depth
    outer, rows = axes[: max(0, start - 1)], axes[start - 1] if start else Axis(1, (0,) * len(arrays))
    depth = min(depth, rows.extent) if below else depth
    across = chunks if below else 32 * stretches
    whole = run // lanes if run % lanes == 0 else chunks if run >= length else 0  # a run in shares
    runs = divide_slots(run), divide_slots(whole) if whole else NO_DIVISION, repeats(period)
    strides = _strides(kernels, arrays, axes, outer, rows, None if below else 32 * lanes, lanes, depth)
    _add_steps(kernels, strides, arrays, steps)
    return _shares(kernels, ROWS, length, chunks, rows.extent, depth, below, across, runs, outer, strides)


def in_columns(
    kernels: ElementwiseKernels, arrays: Sequence[int], tables: list[Axis], rows: Axis, inner: Axis
) -> Geometry:
    """Columns whose parameters are the same in all rows; any strides outside."""
    lanes, together = lanes_of(kernels.operation, kernels.types, COLUMNS_UNALIGNED)
    length = inner.extent
    chunks = -(-length // lanes)
    depth = min(_depth(chunks * rows.extent * product(tables), TUNED.columns_unaligned_shares, together), rows.extent)
    strides = _strides(kernels, arrays, [*tables, rows, inner], tables, rows, None, lanes, depth)
    steps = [inner.strides[position] for position, index in enumerate(arrays) if not kernels.full[index]]
    _add_steps(kernels, strides, arrays, steps)
    runs = (NO_DIVISION,) * 3
    return _shares(
        kernels, COLUMNS_UNALIGNED, length, chunks, rows.extent, depth, True, chunks, runs, tables, strides
    )


def _depth(shares: int, most: int, together: int) -> int:
    """How many shares a thread takes, `together` at a time."""
    depth = max(1, min(most, shares // BUSY))
    return depth - depth % together if depth > together else depth


def _shares(
    kernels: ElementwiseKernels, variant: Variant, length, chunks, rows, depth, below, across, runs, outer, strides
) -> Geometry:
    """A launch of index_space.cuh's Shares."""
    slabs = -(-rows // depth) if below else rows
    units = across * slabs * product(outer)
    run, run_chunks, period = runs
    head = abi.SHARES.pack(
        units=units, length=length, chunks=chunks, rows=rows, depth=depth, below=int(below),
        across=divide_slots(across), slabs=divide_slots(slabs), run=run, run_chunks=run_chunks, period=period,
        outer=outer_slots(kernels, outer),
    )  # fmt: skip
    return Geometry(variant, -(-units // BLOCK), head, strides)


def _strides(
    kernels: ElementwiseKernels, arrays, axes: list[Axis], outer: list[Axis], rows: Axis, apart, lanes: int, depth: int
) -> dict[str, tuple[int, ...]]:
    """An operand's slots: its strides from table to table, the bytes from row to row and from one share of a
    thread to its next (`apart` elements in the row, or in the next row), and the span of an input."""
    strides = outer_strides(kernels, arrays, outer)
    for position, index in enumerate(arrays):
        bits, full = kernels.bits[index], kernels.full[index]
        row = rows.strides[position] * bits // 8
        strides[kernels.operation.operands[index].name] += (
            row,
            row if apart is None else apart * bits // 8 if full else 0,
        )
    _add_spans(kernels, strides, arrays, axes, lanes, depth)
    return strides


def _add_steps(kernels: ElementwiseKernels, strides: dict[str, tuple[int, ...]], arrays, steps) -> None:
    """The slot after a parameter's strides: its step from run to run."""
    parameters = [kernels.operation.operands[index].name for index in arrays if not kernels.full[index]]
    for name, step in zip(parameters, steps, strict=True):
        strides[name] += (step,)


def _add_spans(
    kernels: ElementwiseKernels, strides: dict[str, tuple[int, ...]], arrays, axes, lanes: int, depth: int
) -> None:
    """Slots of shift.cuh's Span, of each input in the output's shape."""
    for position, index in enumerate(arrays):
        if not kernels.full[index] or index >= len(kernels.operation.inputs):
            continue
        bits, low, high = kernels.bits[index], 0, 1  # the elements between which the input lies
        for axis in axes:
            step = axis.strides[position] * (axis.extent - 1)
            low, high = low + min(step, 0), high + max(step, 0)
        first, last = low * bits // 8, -(-high * bits // 8)
        name = kernels.operation.operands[index].name
        share, apart = lanes * bits // 8, strides[name][-1]
        width = min(16, share)
        reach = (depth - 1) * apart  # from a thread's first share to its last
        slack = width if apart % width else 0  # its shares begin at different bytes of a word
        first += slack - min(reach, 0)
        last -= share + width + slack + max(reach, 0)
        strides[name] += (first, max(0, last - first + 1))


# ---- outer axes ----


def outer_slots(kernels: ElementwiseKernels, axes: list[Axis]) -> tuple[int, ...]:
    """Slots of Outer; refuses too many axes."""
    _free(kernels, axes)
    return outer_of([axis.extent for axis in axes])


def outer_strides(kernels: ElementwiseKernels, arrays: Sequence[int], axes: list[Axis]) -> dict[str, tuple[int, ...]]:
    """Each operand's strides along Outer's axes, by name."""
    free = (0,) * _free(kernels, axes)
    return {
        kernels.operation.operands[index].name: free + tuple(axis.strides[position] for axis in axes)
        for position, index in enumerate(arrays)
    }


def _free(kernels: ElementwiseKernels, axes: list[Axis]) -> int:
    """Axes that a kernel has and these are not."""
    if len(axes) > AXES:
        raise Unsupported(
            f"{kernels.operation.class_name}Plan: strides that need {len(axes)} axes after merging, at most {AXES} "
            "are served; copy an operand to a contiguous array"
        )
    return AXES - len(axes)
