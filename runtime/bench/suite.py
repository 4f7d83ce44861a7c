"""What is measured: every operation of a catalog at every float type, over a fixed suite of shapes (`shapes`).

A `Case` is one row of the bench. It knows its plan, where each operand lies and how many bytes a kernel has
to move; nothing here touches a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from math import prod

from skuda.bench import shapes
from skuda.bench.shapes import SHAPES, Layout, Shape, SizeClass
from skuda.errors import InvalidProblem
from skuda.launch.registry import Catalog
from skuda.model.dtypes import DTYPES
from skuda.model.operation import FORM, Operand, Operation, count, packed_shape
from skuda.plans.layout import deciding, preserving
from skuda.verification import coverage

GROUP_SIZES = (32, 64, 128)
_MB = 1_000_000
SMALL = 16 * _MB  # bytes; what moves fewer is timed as a graph of several calls
_FEW = 256 * 4096  # elements: no more than 256 rows of a decoding step
_WIDE = 65536  # elements of a row
_L2 = 50 * _MB  # of the GPUs that targets are set for; what is read twice counts once if it fits


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
        shape: shape and layout of the index space: of the operands that have most dimensions.
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
    def family(self) -> str:
        """What a table of few lines lists it under."""
        if self.operation.reduces and self.operation.category != "quantization":
            return self.operation.category
        name = self.operation.name.partition("_per_")[0].partition("_tensor")[0]
        return name.removesuffix("_asymmetric").replace("_", " ")

    @property
    def dtype(self) -> str:
        """The types of what is read and written for each element: `f16 s8`."""
        named = [o for o in self.operation.operands if self.is_full(o)]
        if self.reads_only:
            named += self.operation.outputs
        return " ".join(dict.fromkeys(self.operation.word(operand, self.types) for operand in named))

    @property
    def variant(self) -> str:
        """The attributes as text: `axis 0`, `group 128`."""
        words = {"group_size": "group"}
        return ", ".join(f"{words.get(name, name)} {value}" for name, value in self.attributes.items())

    @cached_property
    def sizes(self) -> dict[str, int | tuple[int, ...]]:
        """Sizes of the dimensions and block lengths."""
        return self.sizes_of(self.extents)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """The shape's axes in the order of the index space."""
        return tuple(self.shape.extents[axis] for axis in self._order)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """The axes of the shape in the order of the index space, where the ones that a call names come last."""
        rank = len(self.shape.extents)
        last = self.attributes.get("axis", -1) % rank if self.operation.chooses_axes else rank - 1
        return (*(axis for axis in range(rank) if axis != last), last)

    def sizes_of(self, extents: tuple[int, ...]) -> dict[str, int | tuple[int, ...]]:
        """The same for other extents of as many axes."""
        operation = self.operation
        axis = -1 if operation.chooses_axes else self.attributes.get("axis", -1)
        bound = operation.bind(self._widest, extents, axis, operation.function)
        blocks = {name: value for name, value in self.attributes.items() if name != "axis"}
        return {**bound, **blocks}

    @property
    def _widest(self) -> Operand:
        """An operand that has the dimensions of the index space."""
        return next(operand for operand in self.operation.operands if self.is_full(operand))

    def axes_of(self, operand: Operand) -> tuple[int, ...]:
        """The axes of the index space that an operand's axes lie along."""
        return tuple(axis for dim in operand.dims for axis in self._axes[dim.name])

    @cached_property
    def _axes(self) -> dict[str, range]:
        found, start = {}, 0
        for dim in self.operation.space:
            stop = start + (len(self.sizes[dim.name]) if dim.many else 1)
            found[dim.name] = range(start, stop)
            start = stop
        return found

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The axes that each reduction is over, or over blocks of which; none in an elementwise operation."""
        names = shapes.reduced_names(self.operation)
        return tuple(axis for name, axes in self._axes.items() if name in names for axis in axes)

    @cached_property
    def together(self) -> tuple[int, ...]:
        """The axes of which a part does not stand for itself: reductions, counts and positions are along them."""
        names = {*self.operation.analysis.whole, *shapes.reduced_names(self.operation)}
        return tuple(axis for name, axes in self._axes.items() if name in names for axis in axes)

    @property
    def row_length(self) -> int:
        """Elements that one reduction takes, at most."""
        blocks = [value for name, value in self.attributes.items() if name != "axis"]
        return prod(self.extents[axis] for axis in self.reduced) if not blocks else blocks[0]

    def default(self, name: str) -> float:
        """What an attribute is in every row, as the catalog has it; 0 in an operation that has none of that name."""
        return next((each.default for each in self.operation.attributes if each.name == name), 0.0)

    @property
    def reads_only(self) -> bool:
        """Whether outputs are small beside what is read: reductions of which no output spans the index space."""
        return bool(self.operation.analysis.over) and not shapes.spans_output(self.operation)

    def descriptor(self, extents: tuple[int, ...] | None = None):
        """What the plan is selected by, at this shape or at another."""
        fields = {field: self.types[letter] for letter, field in self.operation.element_fields.items()}
        return self.plan_class.descriptor_type(**self.sizes_of(extents or self.extents), **fields)

    def is_full(self, operand: Operand) -> bool:
        """Whether an operand has an element for each position of the index space."""
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
        strides = _steps(wide, turned=self._is_turned(operand))
        if layout in shapes.BROADCAST and operand is self.operation.inputs[self.operation.broadcast[-1]]:
            own = [(axis == len(shape) - 1) == (layout is Layout.OF_COLUMNS) for axis in range(len(shape))]
            wide = tuple(extent if has else 1 for extent, has in zip(shape, own, strict=True))
            strides = tuple(step if has else 0 for step, has in zip(_steps(wide), own, strict=True))
        if layout is Layout.TRANSPOSED and (not written or self._keeps_layout(operand)):
            strides = tuple(prod(shape[:axis]) for axis in range(len(shape)))
        if self.is_full(operand) and self._order != tuple(range(len(shape))):  # the axes that are reduced lie first
            steps = _steps(self.shape.extents, turned=self._is_turned(operand))
            strides = tuple(steps[axis] for axis in self._order)
        return Placed(operand, word, shape, strides, start, start + count(wide))

    def _is_turned(self, operand: Operand) -> bool:
        """Whether two axes of an operand have changed places in memory: of the first input of heads, and of what a call
        that is given no output makes as the only input lies."""
        if self.shape.layout is not Layout.HEADS or not self.is_full(operand):
            return False
        first, *others = [each for each in self.operation.inputs if self.is_full(each)]
        return operand is first or (operand in self.operation.outputs and not others and self._keeps_layout(operand))

    def _keeps_layout(self, output: Operand) -> bool:
        """Whether a call that is given no output makes it as its transposed inputs lie."""
        words = [self.operation.word(operand, self.types) for operand in self.operation.operands]
        whole = preserving(self.operation, words)[self.operation.outputs.index(output)]
        return whole and bool(deciding(self.operation, words))

    @property
    def bytes(self) -> int:
        """What a kernel has to move: each input read once, each output written once.

        Elements that follow from the whole tensor need a second read, which counts where the L2 cannot hold the first.
        """
        moved = {
            each.operand.name: min(count(each.shape), each.size) * DTYPES[each.word].storage.itemsize
            for each in self.operands
        }
        read = sum(moved[operand.name] for operand in self.operation.inputs)
        return sum(moved.values()) + (read if self._of_tensor and not self.reads_only and read > _L2 else 0)

    @property
    def _of_tensor(self) -> bool:
        """Whether one reduction takes everything."""
        return bool(self.operation.analysis.over) and self.row_length == prod(self.shape.extents)

    @cached_property
    def size_class(self) -> SizeClass:
        """The class of shapes whose target holds for this row."""
        return self._class_of_reductions() if self.operation.reduces else self._class_of_map()

    def _class_of_map(self) -> SizeClass:
        if self.shape.layout in (Layout.ROW_STRIDED, Layout.HEADS):
            return SizeClass.ROW_STRIDED
        if self.shape.layout is Layout.TRANSPOSED:
            return SizeClass.TRANSPOSED
        if self.shape.layout in shapes.BROADCAST:
            return SizeClass.BROADCAST
        if self.bytes < SMALL:
            return SizeClass.SMALL
        return SizeClass.MIDDLE if self.bytes < 64 * _MB else SizeClass.LARGE

    def _class_of_reductions(self) -> SizeClass:
        if prod(self.shape.extents) <= _FEW:
            return SizeClass.FEW_ROWS
        if self._of_tensor:
            return SizeClass.WHOLE if self.reads_only else SizeClass.PER_TENSOR
        if len(self.extents) - 1 not in [self._order[axis] for axis in self.reduced]:
            return SizeClass.COLUMNS
        if self.row_length >= _WIDE:
            return SizeClass.WIDE_ROWS
        if self.reads_only:
            return SizeClass.VALUES
        return SizeClass.FUSED if self.operation.category == "fused" else SizeClass.ROWS

    def __str__(self) -> str:
        parts = (self.operation.function, self.dtype, str(self.shape), self.variant)
        return " ".join(filter(None, parts))


def cases(
    catalog: Catalog,
    operations: Sequence[str] = (),
    elements: Sequence[str] = (),
    quick: bool = False,
    models: bool = False,
) -> list[Case]:
    """The rows of a run, in the order in which they are measured.

    Args:
        catalog: what to measure.
        operations: names of operations (both directions) or of functions, `*` allowed; all if empty. If none is named,
            the first of each structure is measured at all shapes of f32 and f16, and at few of other types; others at
            few of f32 and f16.
        elements: element types, measured at all of these shapes; all if empty.
        quick: fewer shapes, and one group size.
        models: the shapes of language models and of image models in place of the suite's, of bf16 and f32 if no
            element type is named.

    Raises:
        InvalidProblem: a name matches no operation, or no operation has an element type.
    """
    plans = plans_of(catalog, operations, elements)
    if models:
        return [
            Case(plan, types, shape, attributes)
            for plan in plans
            for types in types_of(plan.operation)
            if types[next(iter(plan.operation.types))] in (elements or shapes.MODEL_ELEMENTS)
            for shape, attributes in shapes.of_models(plan.operation)
        ]
    first: dict[tuple, str] = {}
    for plan in plans_of(catalog):
        main = _main(plan.operation)[0] in shapes.MAIN_ELEMENTS
        first.setdefault((coverage.structure(plan.operation), main), plan.operation.function)
    in_full = {*first.values()}
    return [
        Case(plan, types, shape, attributes)
        for plan in plans
        for types in types_of(plan.operation)
        if not elements or types[next(iter(plan.operation.types))] in elements
        for shape, attributes in _rows(
            plan.operation, types, quick, bool(operations) or plan.operation.function in in_full, bool(elements)
        )
    ]


def plans_of(catalog: Catalog, operations: Sequence[str] = (), elements: Sequence[str] = ()) -> list[type]:
    """The plans that `operations` name, of both directions; stages of others are measured with these.

    Raises:
        InvalidProblem: a name matches no operation, or none of the operations has one of the element types.
    """
    forms = any(FORM in pattern for pattern in operations)
    plans = [p for module in catalog.modules for p in _plans(catalog, module, forms)]
    for pattern in operations:
        if not any(_matches(plan.operation, pattern) for plan in plans):
            there = dict.fromkeys(plan.operation.name for plan in plans)
            raise InvalidProblem(f"--op {pattern}: no such operation in the suite; there are {' '.join(there)}")
    chosen = [p for p in plans if not operations or any(_matches(p.operation, o) for o in operations)]
    known = list(dict.fromkeys(word for plan in chosen for word in _elements(plan.operation)))
    for word in elements:
        if word not in known:
            raise InvalidProblem(f"--dtype {word}: expected one of {' '.join(known)}")
    return chosen


def _plans(catalog: Catalog, module: str, forms: bool) -> Iterator[type]:
    """The plans of a row, and those of its forms that are measured beside it: by instructions of the GPU, and those
    without optional inputs, if such `forms` are asked for."""
    own = catalog.own_plans(module)
    for plan in catalog.plans(module):
        operation = plan.operation
        quick = not operation.analysis.exact and FORM not in operation.name
        lacking = operation.name.startswith(operation.row + FORM) and not operation.analysis.of_one
        if (plan in own or quick or (forms and lacking)) and operation.is_whole:
            yield plan


def whole_name(operation: Operation) -> str:
    """The name of the function whose form an operation without optional inputs is, or its own."""
    direction = operation.function.removeprefix(operation.name)
    return operation.row + direction if FORM in operation.name else operation.function


def _rows(
    operation: Operation, types: dict[str, str], quick: bool, in_full: bool, asked: bool
) -> Iterator[tuple[Shape, dict[str, int]]]:
    """Shapes and the attributes that differ between rows, of an operation at a choice of types.

    Args:
        operation, types: what is measured.
        quick: few shapes.
        in_full: whether it stands for itself; else for what it differs in from another of its structure.
        asked: whether its element type is named.
    """
    every = asked or types[next(iter(operation.types))] in _main(operation)
    if not (every or in_full):
        return
    every = every and in_full and not quick
    if operation.reduces:
        for shape, attributes in shapes.reducing(operation):
            if every or shapes.is_core(shape):
                yield shape, attributes
        return
    few = shapes.CORE if in_full else {shapes.LARGE, shapes.OF_ROWS}
    wanted = {*SHAPES} if every else shapes.QUICK if in_full and quick else few
    axes = sum(not dim.many for dim in operation.space)
    for shape in shapes.of_maps(operation):
        if shape in wanted and len(shape.extents) >= axes:
            if axes == len(operation.space):
                shape = Shape(shapes.fitted(shape.extents, operation), shape.layout)
            for attributes in attributes_of(operation, shape, not every):
                yield shape, attributes


def _steps(extents: Sequence[int], turned: bool = False) -> tuple[int, ...]:
    """Elements from one position of each axis to the next, without gaps; `turned`: where the two axes before the last
    have changed places."""
    order = [*range(len(extents))]
    if turned:
        order[-3:-1] = order[-2], order[-3]
    steps = {axis: prod(extents[each] for each in order[place + 1 :]) for place, axis in enumerate(order)}
    return tuple(steps[axis] for axis in range(len(extents)))


# Where inputs lie, uniformly: beyond, a function has no value, or torch's ends the process, which checks it on the GPU.
_INTERVALS = {"bernoulli": (0, 1), "binary_cross_entropy": (0, 1), "logit": (0, 1), "erfinv": (-1, 1)}


def interval(operation: Operation, operand: Operand) -> tuple[int, int] | None:
    """The ends of what an input's random values lie between, the first included; None where they are normal."""
    return _INTERVALS.get(operation.row) if operand.name in ("input", "target") else None


def _matches(operation: Operation, pattern: str) -> bool:
    return fnmatchcase(operation.function, pattern) or fnmatchcase(operation.name, pattern)


def _elements(operation: Operation) -> tuple[str, ...]:
    return next(iter(operation.types.values()))


def _main(operation: Operation) -> tuple[str, ...]:
    """The element types that say most of an operation: the first one where it has none of those."""
    words = _elements(operation)
    return tuple(word for word in words if word in shapes.MAIN_ELEMENTS) or words[:1]


def types_of(operation: Operation) -> Iterator[dict[str, str]]:
    """One choice of types for each element type: 4-bit codes where there are groups, 8-bit codes elsewhere.

    A direction whose codes may be of several such types takes them in turn, so that every one is measured.
    """
    letter = next(iter(operation.types))
    grouped = any(attribute.type == "size" for attribute in operation.attributes)
    for index, word in enumerate(_elements(operation)):
        fitting = [types for types in operation.combinations if types[letter] == word]
        turn = {}
        for other in operation.types:
            words = dict.fromkeys(types[other] for types in fitting)
            narrow = [word for word in words if DTYPES[word].bits <= 8]
            codes = [word for word in narrow if DTYPES[word].packed is grouped] or narrow
            if codes:
                turn[other] = codes[index % len(codes)]
        yield next(types for types in fitting if all(types[other] == code for other, code in turn.items()))


def attributes_of(operation: Operation, shape: Shape, quick: bool) -> Iterator[dict[str, int]]:
    """Each axis for operations that must be told one, each group size for those that have groups."""
    if any(attribute.type == "size" for attribute in operation.attributes):
        for size in GROUP_SIZES[-1:] if quick else GROUP_SIZES:
            yield {a.name: size for a in operation.attributes if a.type == "size"}
    elif any(attribute.type == "axis" and attribute.default is None for attribute in operation.attributes):
        for axis in range(len(shape.extents)):
            yield {"axis": axis}
    else:
        yield {}
