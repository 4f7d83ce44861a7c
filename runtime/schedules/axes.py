"""The index space of a call as its operands step through it, canonicalised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skuda.model.operation import Operand, Operation
from skuda.model.records import Record


class Axis(Record):
    """One axis of the index space: its extent, and each operand's stride along it (elements).

    A packed operand's strides are in nibbles, but along its last axis in bytes: see index_space.cuh. `block` is the
    number of neighbours that share a parameter; strides of blocked operands then count blocks.
    """

    extent: int
    strides: tuple[int, ...]
    block: int = 1


def index_space(
    operation: Operation,
    sizes: Mapping[str, int | tuple[int, ...]],
    operands: Sequence[Operand],
    strides: Sequence[tuple[int, ...]],
    packed: bool,
) -> list[Axis]:
    """The index space seen by some operands: blocks that divide their axis become axes of their own, extent-1 axes
    are dropped, the rest are put in the order of the output's strides (along the last axis of packed operands lie
    pairs, so that one stays last), neighbours that all operands step through alike are merged.

    Args:
        operation, sizes: whose space it is.
        operands: those that are arrays.
        strides: of each, as in `Axis`.
        packed: whether some operand has two elements to a byte.
    """
    axes: list[Axis] = []
    for dim in operation.space:
        extents = sizes[dim.name] if dim.many else (sizes[dim.name],)
        for nth, extent in enumerate(extents):
            block = 1
            steps = []
            for operand, of in zip(operands, strides, strict=True):
                step, block_name = step_along(operand, of, dim.name, nth, sizes)
                steps.append(step)
                if block_name is not None:
                    block = min(sizes[block_name], extent) or 1
            blocked = [any(d.name == dim.name and d.block for d in operand.dims) for operand in operands]
            if extent % block or (block % 2 and packed):  # a byte must not straddle two axes
                axes.append(Axis(extent, tuple(steps), block))
            else:
                axes += _split(extent, tuple(steps), block, blocked)
    last = axes[-1:] if packed else []
    axes = [axis for axis in axes[: len(axes) - len(last)] if axis.extent != 1]
    output = operands.index(operation.outputs[0])
    axes.sort(key=lambda axis: -abs(axis.strides[output]))
    return merged(axes + [axis for axis in last if axis.extent != 1], 2 if packed else 1)


def step_along(operand: Operand, strides: tuple[int, ...], name: str, nth: int, sizes) -> tuple[int, str | None]:
    """An operand's stride along one axis of a dimension (0 where it has none), and the block attribute of that."""
    axis = 0
    for dim in operand.dims:
        if dim.name == name:
            return strides[axis + nth], dim.block
        axis += len(sizes[dim.name]) if dim.many else 1
    return 0, None


def _split(extent: int, steps: tuple[int, ...], block: int, blocked: list[bool]) -> list[Axis]:
    """The axis of blocks, and that of the elements of a block."""
    outer = tuple(step if is_blocked else step * block for step, is_blocked in zip(steps, blocked, strict=True))
    inner = tuple(0 if is_blocked else step for step, is_blocked in zip(steps, blocked, strict=True))
    return [Axis(extent // block, outer), Axis(block, inner)]


def merged(axes: list[Axis], even: int) -> list[Axis]:
    """Neighbouring axes as one where every operand steps from the one into the other without a gap, and the inner
    one's extent is a multiple of `even`."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and axis.block == 1 and merged[-1].block == 1 and axis.extent % even == 0:
            outer = merged[-1]
            if all(a == b * axis.extent for a, b in zip(outer.strides, axis.strides, strict=True)):
                merged[-1] = Axis(outer.extent * axis.extent, axis.strides)
                continue
        merged.append(axis)
    return merged
