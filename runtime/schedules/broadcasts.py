"""The host side of runtime/cuda/broadcast.cuh: outputs in one row without gaps, inputs with any strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skuda.schedules import abi
from skuda.schedules.abi import BROADCAST_AXES
from skuda.schedules.axes import Axis
from skuda.schedules.elementwise_variants import has_broadcast, lanes_of
from skuda.schedules.geometry import MOST_FLAT, Geometry, divisions, gapless, product
from skuda.schedules.variant import BLOCK, BROADCAST

if TYPE_CHECKING:
    from skuda.schedules.elementwise import ElementwiseKernels


def in_broadcast(kernels: ElementwiseKernels, arrays: Sequence[int], axes: list[Axis]) -> Geometry | None:
    """The launch for operands which lie so; None where there are too many axes or elements, or outputs have gaps."""
    length, flat = product(axes), gapless(axes)
    if not has_broadcast(kernels.operation, kernels.types) or (kernels.served and BROADCAST not in kernels.served):
        return None
    if not 0 < len(axes) <= BROADCAST_AXES or length >= MOST_FLAT:
        return None
    if any(axis.block > 1 for axis in axes):
        return None
    free = BROADCAST_AXES - len(axes)
    extents = [1] * free + [axis.extent for axis in axes]
    strides = {}
    for position, index in enumerate(arrays):
        operand, steps = kernels.operation.operands[index], [axis.strides[position] for axis in axes]
        if operand in kernels.operation.outputs:
            if steps != flat:
                return None
            strides[operand.name] = ()
        else:
            if sum([abs(step) * axis.extent for step, axis in zip(steps, axes, strict=True)]) >= MOST_FLAT:
                return None
            strides[operand.name] = *[0] * free, *steps, int(steps == flat)
    lanes = lanes_of(kernels.operation, kernels.types, BROADCAST)[0]
    head = abi.BROADCAST.pack(length=length, extent=divisions(extents[1:]))
    return Geometry(BROADCAST, -(-(length + lanes - 1) // (BLOCK * lanes)), head, strides)
