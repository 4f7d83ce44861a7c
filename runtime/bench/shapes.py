"""The shapes of the suite: of elementwise operations, and of programs that reduce, by what they reduce over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isqrt, prod

from skuda.model.operation import Operation


class Layout(StrEnum):
    """How the operands that have an element for each position of the index space lie in memory."""

    CONTIGUOUS = "contiguous"
    MISALIGNED = "misaligned"  # contiguous, one element after an aligned address; outputs too
    ROW_STRIDED = "row-strided"  # inputs are the left half of the columns of a matrix; outputs are contiguous
    TRANSPOSED = "transposed"  # inputs are transposed views; outputs lie as a call makes them
    HEADS = "heads"  # the first input's two axes before the last have changed places; outputs lie as a call makes them
    OF_ROWS = "with a value a row"  # the last input broadcasts along the last axis; the others are contiguous
    OF_COLUMNS = "with a value a column"  # the last input broadcasts along all axes but the last


BROADCAST = Layout.OF_ROWS, Layout.OF_COLUMNS
OF_INPUTS = Layout.ROW_STRIDED, Layout.TRANSPOSED, Layout.HEADS, *BROADCAST  # what inputs alone choose


@dataclass(frozen=True)
class Shape:
    """A logical shape in elements and how it lies."""

    extents: tuple[int, ...]
    layout: Layout = Layout.CONTIGUOUS

    def __str__(self) -> str:
        extents = "x".join(map(str, self.extents))
        return extents if self.layout is Layout.CONTIGUOUS else f"{extents} {self.layout}"


class SizeClass(StrEnum):
    """The groups of rows that targets are set for: elementwise ones by size and layout, then programs that reduce."""

    SMALL = "under 16 MB"
    MIDDLE = "16 to 64 MB"
    LARGE = "64 MB and more"
    ROW_STRIDED = "row-strided views"
    TRANSPOSED = "transposed views"
    BROADCAST = "a broadcast input"
    ROWS = "rows of 64 to 16384"
    WIDE_ROWS = "rows of 65536 and more"
    FEW_ROWS = "few rows"
    FUSED = "fused chains"
    VALUES = "rows to a value each"
    COLUMNS = "columns"
    WHOLE = "a tensor to a value"
    PER_TENSOR = "dynamic per tensor"


# What programs that reduce are listed by; every other class is of elementwise operations.
REDUCING = (
    SizeClass.ROWS, SizeClass.WIDE_ROWS, SizeClass.FEW_ROWS, SizeClass.FUSED, SizeClass.VALUES, SizeClass.COLUMNS,
    SizeClass.WHOLE, SizeClass.PER_TENSOR,
)  # fmt: skip

ONE_ROW, DECODE, BATCH = Shape((1, 4096)), Shape((16, 4096)), Shape((256, 4096))
LARGE, ODD = Shape((16384, 4096)), Shape((16384, 4095))
NARROW = Shape((4097, 127))
MISALIGNED = Shape((16384, 4096), Layout.MISALIGNED)
TRANSPOSED = Shape((16384, 4096), Layout.TRANSPOSED)
OF_ROWS = Shape((16384, 4095), Layout.OF_ROWS)
FLAT = Shape((1 << 25,))
HEADS = Shape((4, 32, 1024, 128), Layout.HEADS)  # batch, heads, tokens, width of a head

SHAPES = (
    ONE_ROW,
    DECODE,
    BATCH,
    NARROW,
    Shape((1000003,)),
    Shape((4096, 4096)),
    LARGE,
    ODD,
    Shape((16384, 8192)),
    Shape((65536, 8192)),
    MISALIGNED,
    Shape((16384, 4096), Layout.ROW_STRIDED),
    Shape((16384, 4095), Layout.ROW_STRIDED),
    Shape((65536, 127), Layout.ROW_STRIDED),
    TRANSPOSED,
    HEADS,
    Shape((16384, 4096), Layout.OF_ROWS),
    OF_ROWS,
    Shape((16384, 4095), Layout.OF_COLUMNS),
    Shape((16384, 63, 65), Layout.OF_ROWS),
    Shape((32, 512, 28 * 28), Layout.OF_ROWS),
)
QUICK = {DECODE, SHAPES[3], SHAPES[5], LARGE, ODD, *SHAPES[10:18]}

# Rows along the last axis, of programs that write as many elements as they read.
_SHORT = (Shape((262144, 64)), Shape((65536, 127)))
_ROWS = (
    *_SHORT, Shape((65536, 1024)), ODD, LARGE, MISALIGNED, Shape((8192, 8192)), Shape((8192, 11008)),
    Shape((4096, 16384)), ONE_ROW, DECODE, BATCH, Shape((1024, 65536)), Shape((256, 262144)),
)  # fmt: skip
# Rows along the last axis that become a value each; their kernels differ less.
_REDUCED_ROWS = (*_SHORT, ODD, LARGE, BATCH, Shape((256, 262144)))
_SCANNED = (*_SHORT, ODD, LARGE, MISALIGNED, ONE_ROW, DECODE, Shape((256, 262144)))
_GROUPED = (ODD, LARGE, MISALIGNED, Shape((8192, 11008)), DECODE, BATCH)
_COLUMNS = (ODD, LARGE)
_FEW_TERMS = Shape((8, 1 << 22)), Shape((32, 1 << 20))  # of which each column is a sum
_TENSORS = (Shape((4096, 4096)), ODD, LARGE, MISALIGNED, DECODE)
# Rows as wide as those of language models, of a training step, of one that decodes, one more than a model's width, and
# the vocabulary of GPT-2, which is odd.
MODELS = (
    Shape((16384, 5120)), Shape((8192, 2880)), Shape((16384, 1536)), Shape((4096, 12288)), Shape((4096, 7169)),
    Shape((1024, 50257)), Shape((128, 7168)), Shape((16, 5120)), Shape((1, 7168)),
)  # fmt: skip
# Images of the layers of a ResNet-50, whose channels are an axis in the middle, the last of which lie in pieces of odd
# lengths; and few classes of many pixels.
IMAGES = Shape((32, 256, 56 * 56)), Shape((32, 512, 28 * 28)), Shape((32, 1024, 14 * 14)), Shape((32, 2048, 7 * 7))
CLASSES = Shape((8, 21, 512 * 512))
# Groups of channels of a diffusion model's layers.
GROUPS_OF_CHANNELS = Shape((8, 32, 10, 64 * 64)), Shape((8, 32, 20, 32 * 32)), Shape((8, 32, 40, 16 * 16))
MODEL_ELEMENTS = ("bf16", "f32")
# All that is measured of element types but the two that say most, a wide one and a half one; also a quick run, and of
# operations whose kernels have the structure of another's.
CORE = {ODD, LARGE}
MAIN_ELEMENTS = ("f32", "f16")
GROUP = 128  # elements


def reduced_names(operation: Operation) -> frozenset[str]:
    """The dimensions that an operation reduces over, or over blocks of which."""
    over = operation.analysis.over
    if operation.analysis.stages and not over:  # over several things: rows along the last axis are among them
        return frozenset({operation.space[-1].name})
    return frozenset(over.dims if over else ())


def spans_output(operation: Operation) -> bool:
    """Whether some output has an element for each position of the index space."""
    return any(output.dims == operation.space for output in operation.outputs)


def _takes_rows(operation: Operation) -> bool:
    """Whether it reduces along the last axis, or along axes that a call names."""
    names = reduced_names(operation)
    return operation.space[-1].name in names or any(each.axis_of in names for each in operation.attributes)


def reducing(operation: Operation) -> Iterator[tuple[Shape, dict[str, int]]]:
    """The shapes of an operation with reductions, and the attributes that differ between rows."""
    names, space = reduced_names(operation), operation.space
    sizes = {attribute.name: GROUP for attribute in operation.attributes if attribute.type == "size"}
    movable = any(attribute.axis_of in names for attribute in operation.attributes)
    full, scans = spans_output(operation), bool(operation.analysis.scans)
    if sizes:
        found = [(shape, sizes) for shape in _GROUPED]
    elif all(dim.name in names for dim in space):
        found = [(shape, {}) for shape in (_TENSORS if full else (FLAT, LARGE, BATCH))]
    else:
        found = []
        if _takes_rows(operation):
            found += [(shape, {}) for shape in (_SCANNED if scans else _ROWS if full else _REDUCED_ROWS)]
        if (movable and (scans or not full)) or space[-1].name not in names:
            columns = _COLUMNS[-1:] if scans else (*_COLUMNS, *_FEW_TERMS) if movable else _COLUMNS
            found += [(shape, {"axis": 0} if movable else {}) for shape in columns]
        if movable and (scans or not full):
            found.append((FLAT, {}))
        if movable and not (scans or full):
            found.append((HEADS, {"axis": 0}))
    for shape, attributes in found:
        yield Shape(fitted(shape.extents, operation), shape.layout), attributes


def of_maps(operation: Operation) -> Iterator[Shape]:
    """The suite's shapes of an elementwise operation, whose inputs can lie so."""
    full = any(operand.dims == operation.space for operand in operation.inputs)
    for shape in SHAPES:
        if shape.layout is Layout.HEADS and len(operation.space) > 1:
            continue
        if len(operation.broadcast) > 1 or (shape.layout not in BROADCAST and (full or shape.layout not in OF_INPUTS)):
            yield shape


def of_models(operation: Operation) -> Iterator[tuple[Shape, dict[str, int]]]:
    """The shapes of models: images, of an operation with an axis of channels; rows, of one that takes rows along the
    last axis or each element by itself."""
    grouped = any(attribute.type == "size" for attribute in operation.attributes)
    axis, space = operation.axis, operation.space
    many = [dim.many for dim in space]
    if operation.chooses_axes:
        yield CLASSES, {axis.name: 1}
    if axis is not None and not grouped and many == [True, False, True] and space[1].name == axis.axis_of:
        yield from ((shape, {axis.name: 1}) for shape in IMAGES)
    elif operation.reduces and many in ([False, False, True], [False, False, False, True]):
        yield from ((shape, {}) for shape in (IMAGES if len(many) == 3 else GROUPS_OF_CHANNELS))
    elif not grouped and (not operation.reduces or _takes_rows(operation)):
        for shape in MODELS:
            yield Shape(fitted(shape.extents, operation), shape.layout), {}


def is_core(shape: Shape) -> bool:
    """Whether a shape is measured at every element type."""
    head = shape.extents[:1]
    return any(
        (head, prod(shape.extents), shape.layout) == (core.extents[:1], prod(core.extents), core.layout)
        for core in CORE
    )


def fitted(extents: tuple[int, ...], operation: Operation) -> tuple[int, ...]:
    """As many axes as an index space needs: the last one is split, or the first ones become one."""
    single = sum(not dim.many for dim in operation.space)
    many = len(operation.space) > single
    while len(extents) < single + (many and len(extents) > 1):
        width = next(part for part in range(isqrt(extents[-1]), 0, -1) if extents[-1] % part == 0)
        extents = (*extents[:-1], width, extents[-1] // width)
    if not many and len(extents) > single:
        joined = len(extents) - single + 1
        extents = (prod(extents[:joined]), *extents[joined:])
    return extents
