"""The host side of lines with gaps between them (`pitched` of runtime/cuda/vec.cuh), and of lines whose groups
begin anywhere in a vector (runtime/cuda/groups.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from skuda.schedules import abi
from skuda.schedules.axes import Axis
from skuda.schedules.elementwise_variants import lanes_of
from skuda.schedules.geometry import MARGIN, MOST_FLAT, NEVER, Geometry, divide_slots
from skuda.schedules.variant import BLOCK, GROUPS, PITCHED

if TYPE_CHECKING:
    from skuda.schedules.elementwise import ElementwiseKernels

_SHORTEST_GROUP = 32  # a groups kernel has room for the parameters of a stretch of such runs


def pitched(
    kernels: ElementwiseKernels, arrays: Sequence[int], axes: list[Axis], start: int, line: int
) -> Geometry | None:
    """Lines of whole aligned vectors with gaps between them, the axes from `start` on being a line; None where the
    operands are not so."""
    lanes, groups = lanes_of(kernels.operation, kernels.types, PITCHED)
    parameters = [position for position, index in enumerate(arrays) if not kernels.full[index]]
    runs = kernels.runs(axes, parameters)
    if line % lanes or runs is None or not kernels.keep_aligned(arrays, axes[:start], lanes):
        return None
    length, run, period, steps = runs
    gaps = {}
    for position, index in enumerate(arrays):
        if kernels.full[index]:
            pitch = axes[start - 1].strides[position]
            gaps[index] = pitch - line
            if any(
                outer.strides[position] != inner.strides[position] * inner.extent
                for outer, inner in pairwise(axes[:start])
            ):
                return None
    return kernels.one_row(PITCHED, lanes, groups, arrays, length, run, period, steps, line, gaps)


def in_groups(kernels: ElementwiseKernels, arrays: Sequence[int], axes: list[Axis]) -> Geometry | None:
    """Lines that follow each other in the outputs, at most a nibble apart, in runs of at least a vector each whose
    parameters follow each other as well; None where the operands are not so, or too few for long stretches."""
    full = [position for position, index in enumerate(arrays) if kernels.full[index]]
    parameters = [position for position, index in enumerate(arrays) if not kernels.full[index]]
    outputs = [position for position in full if arrays[position] >= len(kernels.operation.inputs)]
    row, lines, line = kernels.row(axes, full, parameters), 1, 0
    if row is None and len(axes) > 1:
        row, lines = kernels.row(axes[1:], full, parameters), axes[0].extent
        line = axes[0].strides[outputs[0]]
    if row is None or row[2] is not NEVER or not parameters:
        return None
    elements, run, _, steps = row
    line = line or elements
    runs = -(-elements // run)
    if runs == 1:
        run = line
    if lines > 1:
        along = tuple(axes[0].strides[position] for position in parameters)
        steps = along if runs == 1 else steps
        if along != tuple(runs * step for step in steps):
            return None
    padded = line - elements
    if padded not in ((0, 1) if kernels.bits[arrays[outputs[0]]] < 8 else (0,)) or (padded and run % 2):
        return None
    gaps = {}
    for position in full:
        pitch = axes[0].strides[position] if lines > 1 else line
        if pitch < elements or (position in outputs and pitch != line) or pitch * lines >= MOST_FLAT:
            return None
        gaps[arrays[position]] = pitch - line
    lanes, turns = lanes_of(kernels.operation, kernels.types, GROUPS)
    stretch, length = 32 * lanes * turns, lines * line
    apart = [step * kernels.bits[arrays[position]] // 8 for position, step in zip(parameters, steps, strict=True)]
    if (
        min(run, line - (runs - 1) * run) < lanes
        or stretch > line  # it would meet more than two
        or length < max(stretch + 2 * MARGIN, kernels.few_blocks * BLOCK // 32 * stretch)
        or run < _SHORTEST_GROUP
        or max(length, runs * run) >= MOST_FLAT
        or any(abs(each) >= 1 << 31 for each in apart)
        or len({kernels.bits[arrays[position]] for position in outputs}) > 1
    ):
        return None
    operands = kernels.operation.operands
    strides = {operands[index].name: (gap,) for index, gap in gaps.items()}
    strides |= {operands[arrays[position]].name: () for position in outputs}
    strides |= {operands[arrays[position]].name: (each,) for position, each in zip(parameters, apart, strict=True)}
    head = abi.GROUPS.pack(
        length=length, line=divide_slots(line), run=divide_slots(run), runs=runs, elements=elements
    )
    return Geometry(GROUPS, -(-(length + lanes - 1) // (BLOCK // 32 * stretch)), head, strides)
