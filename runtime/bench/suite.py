"""What is measured: every operation of a catalog at every float type, over a fixed suite of shapes.

A `Case` is one row of the bench. It knows its plan, where each operand lies and how many bytes a kernel has
to move; nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod

from skuda.dispatch import Catalog
from skuda.dtypes import DTYPES
from skuda.errors import InvalidProblem
from skuda.operation import Operand, Operation, count, packed_shape

GROUP_SIZES = (32, 64, 128)
_MB = 1_000_000


class Layout(StrEnum):
    """How the operands that have the output's shape lie in memory."""

    CONTIGUOUS = "contiguous"
    MISALIGNED = "misaligned"  # contiguous, one element after an aligned address; outputs too
    ROW_STRIDED = "row-strided"  # inputs are the left half of the columns of a matrix; outputs are contiguous
    TRANSPOSED = "transposed"  # inputs are transposed views; outputs are contiguous


@dataclass(frozen=True)
class Shape:
    """A logical shape in elements and how it lies."""

    extents: tuple[int, ...]
    layout: Layout = Layout.CONTIGUOUS

    def __str__(self) -> str:
        extents = "x".join(map(str, self.extents))
        return extents if self.layout is Layout.CONTIGUOUS else f"{extents} {self.layout}"


SHAPES = (
    Shape((1, 4096)),
    Shape((16, 4096)),
    Shape((256, 4096)),
    Shape((4097, 127)),
    Shape((1000003,)),
    Shape((4096, 4096)),
    Shape((16384, 4096)),
    Shape((16384, 4095)),
    Shape((16384, 8192)),
    Shape((65536, 8192)),
    Shape((16384, 4096), Layout.MISALIGNED),
    Shape((16384, 4096), Layout.ROW_STRIDED),
    Shape((16384, 4096), Layout.TRANSPOSED),
)
_QUICK = {SHAPES[1], SHAPES[3], SHAPES[5], *SHAPES[6:8], *SHAPES[10:]}


class SizeClass(StrEnum):
    """The groups of rows that targets are set for."""

    SMALL = "under 16 MB"
    MIDDLE = "16 to 64 MB"
    LARGE = "64 MB and more"
    ROW_STRIDED = "row-strided views"
    TRANSPOSED = "transposed views"


@dataclass(frozen=True)
class Placed:
    """One operand of a case: a description of memory, in stored elements.

    Attributes:
        operand: which it is.
        word: its element type.
        shape: as it travels (packed types: bytes along the last axis); () for one value.
        strides: one for each axis.
        start: elements before the first one.
        size: elements of memory, `start` and gaps included.
    """

    operand: Operand
    word: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True)
class Case:
    """One row of the bench.

    Attributes:
        plan_class: the operation's plan.
        types: element word of each type letter.
        shape: shape and layout of the output.
        attributes: attributes that differ between rows: `axis`, `group_size`.
    """

    plan_class: type
    types: dict[str, str]
    shape: Shape
    attributes: dict[str, int]

    @property
    def operation(self) -> Operation:
        return self.plan_class.operation

    @property
    def element(self) -> str:
        """The float type that the row is listed under."""
        return self.types[next(iter(self.operation.types))]

    @property
    def dtype(self) -> str:
        """The types of what is read and written for each element: `f16 s8`."""
        full = [self.operation.word(o, self.types) for o in self.operation.operands if self.is_full(o)]
        return " ".join(dict.fromkeys(full))

    @property
    def variant(self) -> str:
        """The attributes as text: `axis 0`, `group 128`."""
        words = {"group_size": "group"}
        return ", ".join(f"{words.get(name, name)} {value}" for name, value in self.attributes.items())

    @cached_property
    def sizes(self) -> dict[str, int | tuple[int, ...]]:
        """Sizes of the dimensions and block lengths."""
        return self.sizes_of(self.shape.extents)

    def sizes_of(self, extents: tuple[int, ...]) -> dict[str, int | tuple[int, ...]]:
        """The same for another shape of as many axes."""
        operation = self.operation
        axis = self.attributes.get("axis", -1)
        bound = operation.bind(operation.outputs[0], extents, axis, operation.function)
        blocks = {name: value for name, value in self.attributes.items() if name != "axis"}
        return {**bound, **blocks}

    def descriptor(self, extents: tuple[int, ...] | None = None):
        """What the plan is selected by, at this shape or at another."""
        fields = {field: self.types[letter] for letter, field in self.operation.element_fields.items()}
        return self.plan_class.descriptor_type(**self.sizes_of(extents or self.shape.extents), **fields)

    def is_full(self, operand: Operand) -> bool:
        """Whether an operand has an element for each element of the output."""
        return operand.dims == self.operation.space

    @cached_property
    def operands(self) -> tuple[Placed, ...]:
        """Where each operand lies, inputs first."""
        return tuple(self._place(operand) for operand in self.operation.operands)

    def _place(self, operand: Operand) -> Placed:
        word = self.operation.word(operand, self.types)
        shape = packed_shape(self.operation.shape_of(operand, self.sizes), word)
        layout = self.shape.layout if self.is_full(operand) else Layout.CONTIGUOUS
        written = operand in self.operation.outputs
        start, wide = 0, shape
        if layout is Layout.MISALIGNED:
            start = 1
        elif layout is Layout.ROW_STRIDED and not written:
            wide = (*shape[:-1], 2 * shape[-1])
        strides = tuple(prod(wide[axis + 1 :]) for axis in range(len(shape)))
        if layout is Layout.TRANSPOSED and not written:
            strides = tuple(prod(shape[:axis]) for axis in range(len(shape)))
        return Placed(operand, word, shape, strides, start, start + count(wide))

    @property
    def bytes(self) -> int:
        """What a kernel has to move: each input read once, each output written once."""
        return sum(count(each.shape) * DTYPES[each.word].storage.itemsize for each in self.operands)

    @property
    def size_class(self) -> SizeClass:
        """The class of shapes whose target holds for this row."""
        if self.shape.layout is Layout.ROW_STRIDED:
            return SizeClass.ROW_STRIDED
        if self.shape.layout is Layout.TRANSPOSED:
            return SizeClass.TRANSPOSED
        if self.bytes < 16 * _MB:
            return SizeClass.SMALL
        return SizeClass.MIDDLE if self.bytes < 64 * _MB else SizeClass.LARGE

    def __str__(self) -> str:
        parts = (self.operation.function, self.dtype, str(self.shape), self.variant)
        return " ".join(filter(None, parts))


def cases(
    catalog: Catalog, operations: Sequence[str] = (), elements: Sequence[str] = (), quick: bool = False
) -> list[Case]:
    """The rows of a run, in the order in which they are measured.

    Args:
        catalog: what to measure.
        operations: names of operations (both directions) or of functions, `*` allowed; all if empty.
        elements: float types; all if empty.
        quick: fewer shapes, and one group size.

    Raises:
        InvalidProblem: a name matches no operation, or no operation has an element type.
    """
    # The shapes of the suite are those of maps: formulas with reductions are not in it yet.
    plans = [p for module in catalog.modules for p in catalog.module(module).PLANS if is_map(p.operation)]
    for pattern in operations:
        if not any(_matches(plan.operation, pattern) for plan in plans):
            there = dict.fromkeys(plan.operation.name for plan in plans)
            raise InvalidProblem(f"--op {pattern}: no such operation in the suite; there are {' '.join(there)}")
    chosen = [p for p in plans if not operations or any(_matches(p.operation, o) for o in operations)]
    known = list(dict.fromkeys(word for plan in chosen for word in _elements(plan.operation)))
    for word in elements:
        if word not in known:
            raise InvalidProblem(f"--dtype {word}: expected one of {' '.join(known)}")
    shapes = [shape for shape in SHAPES if not quick or shape in _QUICK]
    return [
        Case(plan, types, shape, attributes)
        for plan in chosen
        for types in _types(plan.operation)
        if not elements or types[next(iter(plan.operation.types))] in elements
        for shape in shapes
        for attributes in _attributes(plan.operation, shape, quick)
    ]


def is_map(operation: Operation) -> bool:
    """Whether an operation is one kernel without reductions."""
    return not (operation.over or operation.stages or operation.stage)


def _matches(operation: Operation, pattern: str) -> bool:
    return fnmatchcase(operation.function, pattern) or fnmatchcase(operation.name, pattern)


def _elements(operation: Operation) -> tuple[str, ...]:
    return next(iter(operation.types.values()))


def _types(operation: Operation) -> Iterator[dict[str, str]]:
    """One choice of types for each element type: 4-bit codes where there are groups, 8-bit codes elsewhere.

    A direction whose codes may be signed or not takes them in turn, so that every integer type is measured.
    """
    letter = next(iter(operation.types))
    grouped = any(attribute.type == "size" for attribute in operation.attributes)
    for index, word in enumerate(_elements(operation)):
        fitting = [types for types in operation.combinations if types[letter] == word]
        turn = {}
        for other in operation.types:
            words = list(dict.fromkeys(types[other] for types in fitting))
            codes = [code for code in words if DTYPES[code].kind == "int" and DTYPES[code].packed is grouped]
            if codes:
                turn[other] = codes[index % len(codes)]
        yield next(types for types in fitting if all(types[other] == code for other, code in turn.items()))


def _attributes(operation: Operation, shape: Shape, quick: bool) -> Iterator[dict[str, int]]:
    """Each axis for operations that must be told one, each group size for those that have groups."""
    if any(attribute.type == "size" for attribute in operation.attributes):
        for size in GROUP_SIZES[-1:] if quick else GROUP_SIZES:
            yield {a.name: size for a in operation.attributes if a.type == "size"}
    elif any(attribute.type == "axis" and attribute.default is None for attribute in operation.attributes):
        for axis in range(len(shape.extents)):
            yield {"axis": axis}
    else:
        yield {}
