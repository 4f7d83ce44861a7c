"""Planes of two axes for runtime/cuda/tile.cuh: operands that run along different axes of the index space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skuda.model.records import Record
from skuda.schedules import abi
from skuda.schedules.axes import Axis
from skuda.schedules.geometry import Geometry, divide_slots, product
from skuda.schedules.strided import outer_slots, outer_strides
from skuda.schedules.variant import TILE

if TYPE_CHECKING:
    from skuda.schedules.elementwise import ElementwiseKernels

_SHORTEST = 8  # shorter axes would leave most of a tile empty
_LONGEST = (1 << 31) - 1  # what the 32-bit indices of a plane reach


class Side(Record):
    """One axis of a plane, perhaps several of the index space that follow each other without a gap.

    Attributes:
        start, end: which axes of the index space, end included.
        extent: its elements.
        run: neighbours that share parameters.
        steps: of each array: of one in the output's shape from element to element, of a parameter from run to run.
    """

    start: int
    end: int
    extent: int
    run: int
    steps: tuple[int, ...]


class Plane(Record):
    """The side that a thread's share runs along, the other, and the axes outside of the plane."""

    along: Side
    across: Side
    outer: list[Axis]

    def steps(self, position: int) -> tuple[int, int, int]:
        """Slots of tile.cuh's PlaneSteps: an array's steps along and across, and whether its lines run across."""
        along, across = self.along.steps[position], self.across.steps[position]
        return along, across, int(along == 0 or 0 < abs(across) < abs(along))


class Arrays(Record):
    """Which of the arrays of a call are what, by their positions among its arrays.

    Attributes:
        output: the output that decides.
        full: those in the output's shape.
        parameters: those that several elements share.
        blocked: parameters with an entry for each block of elements.
        packed: whether some operand has two elements to a byte, pairs of the last axis.
    """

    output: int
    full: Sequence[int]
    parameters: Sequence[int]
    blocked: Sequence[int]
    packed: bool


def in_tiles(
    kernels: ElementwiseKernels,
    arrays: Sequence[int],
    axes: list[Axis],
    full: Sequence[int],
    parameters: Sequence[int],
    tile: tuple[int, int, int],
) -> Geometry | None:
    """The launch of tiles; None where there is no plane.

    Args:
        kernels: whose.
        arrays: positions of the operands that are arrays.
        axes: the index space.
        full, parameters: positions among `arrays` of those in the output's shape, and of the others.
        tile: as of `schedules.tile_of`.
    """
    operands = [kernels.operation.operands[index] for index in arrays]
    blocked = [position for position in parameters if any(dim.block for dim in operands[position].dims)]
    output = operands.index(kernels.operation.outputs[0])
    along, across, lanes = tile
    found = plane(axes, Arrays(output, full, parameters, blocked, kernels.packed), lanes)
    if found is None:
        return None
    count = -(-found.along.extent // along), -(-found.across.extent // across)
    head = abi.TILES.pack(
        along=found.along.extent, across=found.across.extent,
        tiles_along=divide_slots(count[0]), tiles_across=divide_slots(count[1]),
        run_along=divide_slots(found.along.run), run_across=divide_slots(found.across.run),
        outer=outer_slots(kernels, found.outer),
    )  # fmt: skip
    strides = outer_strides(kernels, arrays, found.outer)
    for position, operand in enumerate(operands):
        strides[operand.name] += found.steps(position)
    return Geometry(TILE, count[0] * count[1] * product(found.outer), head, strides)


def plane(axes: list[Axis], arrays: Arrays, lanes: int) -> Plane | None:
    """The plane in which every operand has an axis to be read or written along; None where there is none to be found.

    Args:
        axes: the index space.
        arrays: of the call.
        lanes: neighbours that a thread takes at once.
    """
    if len(axes) < 2:
        return None
    last = len(axes) - 1
    inner = last if arrays.packed else _nearest(axes, arrays.output)
    crossing = [at for at in arrays.full if inner != _nearest(axes, at) and axes[inner].strides[at]]
    if not crossing and inner == last:
        return None
    other = _nearest(axes, crossing[0]) if crossing else last
    j = _side(axes, inner, other, arrays)
    i = _side(axes, other, inner, arrays) if j else None
    if i is None or min(i.extent, j.extent) < _SHORTEST or max(i.extent, j.extent) > _LONGEST:
        return None
    taken = {*range(i.start, i.end + 1), *range(j.start, j.end + 1)}
    outer = [axis for index, axis in enumerate(axes) if index not in taken]
    if any(axis.block > 1 for axis in outer):
        return None
    # Packed pairs lie along j, and so must a share, whatever the parameters do.
    return Plane(i, j, outer) if j.run < lanes and i.run > j.run and not arrays.packed else Plane(j, i, outer)


def _nearest(axes: list[Axis], position: int) -> int:
    """The axis along which an array's neighbours are nearest; the innermost of those."""
    steps = [(abs(axis.strides[position]) or 1 << 63, -index) for index, axis in enumerate(axes)]
    return -min(steps)[1]


def _side(axes: list[Axis], end: int, other: int, arrays: Arrays) -> Side | None:
    """The side that ends with an axis; None where parameters of single elements lie beside those of blocks."""
    inner = axes[end]
    extent, steps, start = inner.extent, inner.strides, end
    if inner.block > 1:
        if any(inner.strides[position] for position in arrays.parameters if position not in arrays.blocked):
            return None
        return Side(end, end, extent, inner.block, steps)
    run = 1 if any(steps[position] for position in arrays.parameters) else extent
    while start > 0 and start - 1 != other and axes[start - 1].block == 1 and not (arrays.packed and extent % 2):
        outer = axes[start - 1]
        gap = any(outer.strides[position] != inner.strides[position] * extent for position in arrays.full)
        if gap or extent * outer.extent > _LONGEST:
            break
        if run == extent:
            if any(outer.strides[position] for position in arrays.parameters):
                steps = tuple(
                    outer.strides[position] if position in arrays.parameters else step
                    for position, step in enumerate(steps)
                )
            else:
                run *= outer.extent
        elif any(outer.strides[position] * run != steps[position] * extent for position in arrays.parameters):
            break
        extent *= outer.extent
        start -= 1
    return Side(start, end, extent, run, steps)
