"""The schedules of templates/map.cu.jinja: which a call can reach, what they are called, how much a thread takes."""

from __future__ import annotations

from dataclasses import dataclass

from skuda.dtypes import DTYPES
from skuda.operation import Operand, Operation, Types
from skuda.sku import Layout

BLOCK = 128  # threads


@dataclass(frozen=True)
class Variant:
    """One schedule of the map template.

    Attributes:
        kernel: suffix of the kernel's name.
        layout: what it serves.
    """

    kernel: str
    layout: Layout


VEC = Variant("vec", Layout.CONTIGUOUS)
ROWS = Variant("rows", Layout.STRIDED)
COLUMNS = Variant("columns", Layout.STRIDED)
STRIDED = Variant("strided", Layout.STRIDED)


def variants(operation: Operation, types: Types) -> tuple[Variant, ...]:
    """The schedules that some call of an operation at these types can reach.

    Columns need parameters that change along the last axis. With an unpacked element any axis may be the last that
    counts, those after it having one element; a packed row of one element has a gap, so there it must be the last one.
    """
    parameters = [operand for operand in operation.inputs if is_parameter(operation, operand)]
    if any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands):
        ends = set()
        for dim in reversed(operation.space):
            ends.add(dim.name)
            if not dim.many:
                break
        parameters = [operand for operand in parameters if ends & {dim.name for dim in operand.dims}]
    return (VEC, ROWS, *((COLUMNS,) if parameters else ()), STRIDED)


def is_parameter(operation: Operation, operand: Operand) -> bool:
    """Whether several output elements share each of its elements, and it has more than one."""
    return operand.dims != operation.space and not operand.scalar


def variant_name(operation: Operation, types: Types, variant: Variant) -> str:
    """As in a symbol: `vec16`, `rows16`, `columns4`, `strided`."""
    if variant is STRIDED:
        return variant.kernel
    lanes = lanes_of(operation, types, variant)[0]
    return f"{variant.kernel}{lanes}"


def entry(operation: Operation, types: Types, variant: Variant) -> str:
    """The NVRTC name expression of a variant's kernel."""
    arguments = [types[letter] for letter in operation.kernel_letters]
    if variant is STRIDED:
        arguments.append(str(strided_lanes(operation, types)))
    else:
        arguments += map(str, lanes_of(operation, types, variant))
    return f"{operation.function}_{variant.kernel}<{', '.join(arguments)}>"


def lanes_of(operation: Operation, types: Types, variant: Variant) -> tuple[int, int]:
    """Neighbours that a thread takes at once, and how often (columns: rows at a time, else groups).

    A thread stores 16 bytes at once, so that a warp writes whole lines, and has 64 bytes of loads
    under way; but beyond two stores of wide elements it gains nothing from more.
    """
    words = {operand: DTYPES[operation.word(operand, types)].bits for operand in operation.operands}
    inputs = [words[operand] for operand in operation.inputs if operand.dims == operation.space]
    widest = max(words[operand] for operand in operation.outputs)
    if variant is COLUMNS:  # each lane's parameters stay in registers
        lanes = min(8, 128 // widest, 256 // max(inputs))
        return lanes, max(1, min(2, 512 // (lanes * sum(inputs))))
    lanes = min(16, 128 // widest, 512 // max(inputs))
    if variant is ROWS:
        return lanes, max(1, min(2, 256 // (lanes * sum(inputs))))
    return lanes, max(1, min(4 if widest <= 16 else 2, 512 // (lanes * sum(inputs))))


def strided_lanes(operation: Operation, types: Types) -> int:
    """Neighbours that a thread of the strided kernel takes: a packed output is written a byte at a time."""
    return 2 if any(DTYPES[operation.word(o, types)].packed for o in operation.outputs) else 1
