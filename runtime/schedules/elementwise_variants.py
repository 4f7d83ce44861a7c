"""Schedules of elementwise operations: which an operation has, and how much a thread takes of each."""

from __future__ import annotations

from skuda.model.operation import Operation, Types
from skuda.schedules.abi import is_parameter
from skuda.schedules.variant import (
    BLOCK,
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
    STRIDED,
    TABULATE,
    TILE,
    TUNED,
    VEC,
    VEC_SMALL,
    Variant,
)

# Elementwise stages that end a multi-kernel form: of few long rows, of neighbouring rows, of operands that lie
# crosswise, of other inputs, and of anything else.
_SECOND = VEC, COLUMNS, TILE, BROADCAST, STRIDED
TABLED_BITS = 16  # of the elements whose results a table holds
_REPACK = VEC, TILE, STRIDED  # an elementwise operation without parameters


def elementwise_variants(operation: Operation, types: Types) -> tuple[Variant, ...]:
    """The schedules that some call of an elementwise operation can reach.

    Groups need parameters, columns those that change along the last axis. With an unpacked element any axis may be the
    last that counts, those after it having one element; a packed row of one element has a gap, so there it must be the
    last one. Tiles need two axes.
    """
    if operation.of_alternative:
        if operation.repacked:
            return _REPACK
        return tuple([each for each in _SECOND if each is not BROADCAST or has_broadcast(operation, types)])
    parameters = [operand for operand in operation.in_kernels.inputs if is_parameter(operation, operand)]
    groups = (GROUPS,) if parameters else ()
    if operation.is_packed(types):
        ends = set()
        for dim in reversed(operation.space):
            ends.add(dim.name)
            if not dim.many:
                break
        parameters = [operand for operand in parameters if ends & {dim.name for dim in operand.dims}]
    flat = ()
    for variant, less in (VEC, VEC_SMALL), (SHIFTED, unaligned_small(operation, types)):
        small = lanes_of(operation, types, less) != lanes_of(operation, types, variant)
        flat += (variant, less) if small else (variant,)
    flat += (TABULATE,) if operation.analysis.tabled and has_table(operation, types) else ()
    lines = *flat, *groups, ROWS
    less = lanes_of(operation, types, COLUMNS_SMALL) != lanes_of(operation, types, COLUMNS)
    columns = ((COLUMNS, COLUMNS_SMALL) if less else (COLUMNS,)) + (COLUMNS_UNALIGNED,) if parameters else ()
    planes = (PITCHED, TILE) if len(operation.space) > 1 or any(dim.many for dim in operation.space) else ()
    planes = planes if tile_of(operation, types) else planes[:1]
    differing = {dim.name for operand in parameters for dim in operand.dims if dim.block is None}
    if operation.space and all(dim.name in differing for dim in operation.space):  # no neighbours share all parameters
        lines, planes = (), planes[1:]
    anywhere = (BROADCAST,) if has_broadcast(operation, types) else ()
    return (*lines, *columns, *planes, *anywhere, STRIDED)


def unaligned_small(operation: Operation, types: Types) -> Variant:
    """The schedule of few elements that begin anywhere: one by one, but for those that share a byte or four of which
    have random numbers of one block."""
    return SHIFTED_SMALL if operation.is_packed(types) or operation.analysis.draws else SINGLE_SMALL


def has_broadcast(operation: Operation, types: Types) -> bool:
    """Whether an operation reads arrays that may lie in any way, and no operand has two elements to a byte."""
    return any([not operand.scalar for operand in operation.read]) and not operation.is_packed(types)


def has_table(operation: Operation, types: Types) -> bool:
    """Whether an operation of one operand reads and writes numbers of 16 bits."""
    return all([operation.bits(operand, types) == TABLED_BITS for operand in operation.operands if not operand.scalar])


def lanes_of(operation: Operation, types: Types, variant: Variant) -> tuple[int, int]:
    """Neighbours that a thread takes at once, and how often (columns: rows; groups: turns; else groups).

    A thread stores 16 bytes at once, so that a warp writes whole lines, and has as many bytes of loads under way as
    memory wants; but beyond few stores of wide elements it gains nothing from more. Few elements are spread over more
    threads, for there it is one thread's way from its first load to its store that takes the time. Where these begin
    anywhere, a thread takes several single ones.

    Of columns a thread prepares few, for registers, and takes many rows of them, for what preparing costs. But where
    more is written than read memory wants a GPU's writes close together, so there they are few.
    """
    operands = *operation.read, *operation.outputs
    words = {operand: operation.bits(operand, types) for operand in operands}
    if variant.of_few and variant.kernel == "vec":
        most = max(words[operand] for operand in words if operand.dims == operation.space)
        if variant is SINGLE_SMALL:
            return 1, max(1, min(TUNED.single_elements, (64 if operation.analysis.precise_as else 128) // most))
        inputs = [operand for operand in operation.read if operand.dims == operation.space]
        # Elementary functions of several inputs of 16 bits: eight of them take longer than their way there and back.
        long = operation.analysis.precise_as and len(inputs) > 1 and most == 16 and variant is VEC_SMALL
        return (64 if long else 128) // most, 1
    widest = max(words[operand] for operand in operation.outputs)
    inputs = [words[operand] for operand in operation.read if operand.dims == operation.space]
    inputs = inputs or [widest]  # a value that is spread over elements is stored as it would be copied
    if variant is COLUMNS_UNALIGNED:  # each lane's parameters stay in registers
        lanes = min(TUNED.columns_unaligned_lanes, 128 // widest, max(4, 128 // max(inputs)))
        most = TUNED.columns_unaligned_bits // (lanes * sum(inputs))
        return lanes, max(1, min(TUNED.columns_unaligned_rows, most))
    if variant.kernel == "columns" and operation.of_rows:  # nothing is prepared for several rows
        lanes = min(16, 128 // widest)
        rows = max(1, min(TUNED.columns_rows_of_each, TUNED.columns_bits_of_each // (lanes * sum(inputs))))
        return lanes, 1 if variant is COLUMNS_SMALL else rows
    if variant.kernel == "columns":
        lanes = TUNED.columns_lanes_of_one if len(inputs) == 1 else TUNED.columns_lanes
        lanes = min(lanes, 128 // max(widest, *inputs))
        if widest > max(inputs):
            rows = TUNED.columns_bits_written // (lanes * widest)
        else:
            rows = TUNED.columns_bits // (lanes * sum(inputs))
        rows = max(1, min(TUNED.columns_rows, rows))
        return lanes, min(TUNED.columns_rows_small, rows) if variant is COLUMNS_SMALL else rows
    if variant is BROADCAST:
        return min(16, 128 // widest), 1
    lanes = min(16, 128 // widest, TUNED.vec_bits // max(inputs))
    if variant is ROWS:
        return lanes, max(1, min(TUNED.rows_groups, TUNED.rows_bits // (lanes * sum(inputs))))
    if variant is GROUPS:  # what a warp prepares serves all of its turns
        most = (TUNED.groups_bits_of_one if len(inputs) == 1 else TUNED.groups_bits) // (lanes * sum(inputs))
        return lanes, max(1, 8 // lanes, min(TUNED.groups_turns, TUNED.groups_elements // lanes, most))
    return lanes, max(1, min(TUNED.vec_groups, TUNED.vec_bits // (lanes * sum(inputs))))


def strided_lanes(operation: Operation, types: Types) -> int:
    """Neighbours that a thread of the strided kernel takes: a packed output is written a byte at a time."""
    return 2 if any(operation.bits(operand, types) < 8 for operand in operation.outputs) else 1


def tile_of(operation: Operation, types: Types) -> tuple[int, int, int] | None:
    """Elements of a tile along and across, and neighbours along that a thread takes at once; None where so many wide
    operands leave no room for one, or where no input could lie across.

    A tile costs a thread some hundred instructions, so it is as large as shared memory allows, and as square as can be.
    In memory the lines of outputs run along, and those of inputs mostly across. Packed elements come in groups, so
    there a thread keeps to 32 neighbours: to prepare a second group costs more than a larger tile saves.
    """
    full = [operand for operand in operation.in_kernels.operands if operand.dims == operation.space]
    bits = {operand: operation.bits(operand, types) for operand in full}
    outputs = [bits[operand] for operand in operation.outputs]
    inputs = [bits[operand] for operand in full if operand in operation.read]
    if not inputs:
        return None
    most = BLOCK * (TUNED.tile_elements_packed if min(bits.values()) < 8 else TUNED.tile_elements)

    def fits(along: int, across: int) -> bool:
        padded = along * across * sum(bits.values()) // 8 + 16 * max(along, across) * len(full)
        return padded <= TUNED.tile_bytes and along * across <= most

    sizes = [(along, across) for along in TUNED.tile_sides for across in TUNED.tile_sides if fits(along, across)]
    if not sizes:
        return None
    along, across = max(
        sizes, key=lambda size: (size[0] * size[1], min(size), min(size[0] * min(outputs), size[1] * min(inputs)))
    )
    return along, across, 16 if max(outputs) <= 16 and max(inputs) <= 32 else 8
