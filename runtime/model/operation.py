"""What an operation is, as data: its operands, dimensions, element types and attributes.

The generator writes one `Operation` into each generated plan module; plans, function forms and the
documentation read it. Nothing here knows about arrays or devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from skuda.errors import InvalidProblem, Unsupported, shown
from skuda.model.dtypes import DTYPES
from skuda.model.records import Record
from skuda.model.sku import Direction, PrecisionGuarantee

COMPUTE = "C"  # the type letter of the compute type
SCALE = "S"  # the type letter of the scale's element
WEIGHT = "W"  # that of a weight's
FORM = "_without_"  # between the name of a row and the optional inputs that a form of it lacks
SECTION = "// ---- "  # before the name of a form, where its part of the row's CUDA source begins
ALL = "all"  # the default of an attribute of axes
WIDE = "s8"  # holds the codes of both types of 4 bits
COUNTED = "Count"  # what kernels and references call a number of elements; no operand or attribute is spelled so


class Dim(Record):
    """One entry of an operand's dimensions.

    Attributes:
        name: the dimension.
        many: `*name`, any number of axes.
        block: `name/block`: one entry for each block of that attribute's length along the dimension.
    """

    name: str
    many: bool = False
    block: str | None = None

    @staticmethod
    def of(text: str) -> Dim:
        """From its spelling in a row: `d`, `*outer` or `d/group_size`."""
        name, _, block = text.partition("/")
        return Dim(name.lstrip("*"), name.startswith("*"), block or None)

    def __str__(self) -> str:
        return ("*" if self.many else "") + self.name + (f"/{self.block}" if self.block else "")


class Operand(Record):
    """One array (or one value, where it has no dimensions) that an operation reads or writes.

    Attributes:
        name: argument name.
        element: a type letter, the word of an element type, or `C`.
        dims: its dimensions.
    """

    name: str
    element: str
    dims: tuple[Dim, ...]

    @staticmethod
    def of(name: str, element: str, dims: str) -> Operand:
        """From the spelling of its dimensions: `Operand.of("scale", "S", "*outer, d/group_size")`."""
        return Operand(name, element, tuple(Dim.of(part.strip()) for part in dims.split(",") if part.strip()))

    @staticmethod
    def each(*spelled: str) -> tuple[Operand, ...]:
        """From the spellings of a row: `Operand.each("input: T[*n, d]", "scale: S[*n]")`."""
        found = []
        for text in spelled:
            name, _, signature = text.partition(": ")
            element, _, dims = signature.partition("[")
            found.append(Operand.of(name, element, dims[:-1]))
        return tuple(found)

    @property
    def scalar(self) -> bool:
        """Whether it is one value: a Python number or a one-element array."""
        return self.dims == ()

    @property
    def signature(self) -> str:
        """As a row spells it: `S[*outer, d/group_size]`."""
        return f"{self.element}[{', '.join(map(str, self.dims))}]"


class Attribute(Record):
    """One value that a plan is selected with.

    Attributes:
        name: argument name.
        type: a type letter (a number that this type can hold), `i32`, `C`, `size`, `axis` or `axes`.
        default: a number, "lowest" or "highest" (of the type), "all" (axes), or None where the caller must say it.
        axis_of: for an axis or axes, the dimension whose axes they name.
    """

    name: str
    type: str
    default: int | float | str | None = None
    axis_of: str | None = None

    @property
    def absent(self):
        """What stands for it in a call that does not say it."""
        return self.default if self.names_axes and self.default != ALL else None

    @property
    def names_axes(self) -> bool:
        """Whether it says which axes of an array a dimension is, and so has no value in a formula or descriptor."""
        return self.axis_of is not None


class Requirement(Record, aside=("holds",)):
    """A condition on attributes that is checked when a plan is selected."""

    text: str
    names: tuple[str, ...]
    holds: Callable[..., bool]


Types = Mapping[str, str]


class Over(Record):
    """What the reductions of an operation are over.

    Attributes:
        dims: the dimensions, as the row names them.
        block: the attribute that is the length of the blocks along the one dimension, where they are over blocks.
    """

    dims: tuple[str, ...]
    block: str = ""

    @staticmethod
    def of(text: str) -> Over:
        """From its spelling in a formula: `d`, `n, d` or `d/group_size`."""
        names, _, block = text.partition("/")
        return Over(tuple(name.strip() for name in names.split(",")), block)

    def __str__(self) -> str:
        return ", ".join(self.dims) + (f"/{self.block}" if self.block else "")


class Reduced(Record):
    """One reduction: its name in a formula (`sum`), and the type in C++ of what it reduces (`C`, `i64`, `bool`)."""

    how: str
    element: str


class Analysis(Record):
    """What follows from the formulas of an operation, for plans and schedules. The generator computes it once.

    Attributes:
        exact: whether every intrinsic is correctly rounded, or made of such steps on CPU and GPU alike.
        attributes: names of the attributes that the formulas use, which kernels and references take.
        over: what the reductions are over; None where there are none, or several things.
        whole: the dimensions that a part of an operation's index space has to have all elements of, for the same
            elements of its outputs: those of reductions and counts, `d/group_size` where all of a block is enough.
        partial: of an operation whose outputs are reductions and nothing else, the name of each (`sum`): results of
            parts of a row make the row's by the same reduction, a sum up to its order. Else empty.
        counted: of an elementwise operation, the dimensions whose elements its formulas count. Kernels and references
            take that number after the attributes, as `COUNTED`.
        keeps: the operands that keep the axes which a call names, with one element each, where it says `keepdims`.
        chained: whether some formula names another output.
        asks_of: the type letters whose smallest values the formulas ask for, C among them.
        converts: whether some formula converts an integer to the type of its output.
        of_some: what a call needs elements for: "largest", "smallest", "largest or smallest"; else empty.
        split: the reductions, where parts of a row can be reduced apart; else empty.
        reductions: how many values a row is reduced to; 0 where there are none.
        stack: what a cluster keeps of an element between its passes: of each thing the types of what lies below it in
            memory, and its own. Empty where that is the inputs alone.
        updated: inputs of which the thread that makes a row's own values alone reads that row's entry: an output with
            the same dimensions may be the very array of one.
        stages: how many operations it is made of, which run one after the other; 0 where it is a kernel's itself.
        stage: which one of such it is, from 1 on; else 0.
        alternative: the number of stages of its multi-kernel form, beside its own kernel: for rows that lie apart, or
            are few and long. A stage of that form has the same number. It is 1 where an elementwise operation may have
            to pack codes of 4 bits, and of that operation; 0 where there is none.
    """

    exact: bool = True
    attributes: tuple[str, ...] = ()
    over: Over | None = None
    whole: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    chained: bool = False
    asks_of: tuple[str, ...] = ()
    converts: bool = False
    of_some: str = ""
    split: tuple[Reduced, ...] = ()
    reductions: int = 0
    stack: tuple[tuple[str, ...], ...] = ()
    updated: tuple[str, ...] = ()
    stages: int = 0
    stage: int = 0
    alternative: int = 0


class Operation(Record):
    """One direction of one row: what the row says, and what follows from it.

    Attributes:
        name: name of the row.
        category: the part of its `kind` before the dot.
        direction: forward or backward.
        doc: one sentence.
        types: what each type letter may be, in order of preference; a letter may stand for an earlier one, or for C.
        inputs, outputs: the operands, in call order.
        element_fields: descriptor field that names each letter's type, e.g. {"T": "input_element"}.
        attributes: attributes, in call order.
        requirements: conditions on attributes.
        source: name of the CUDA source. That of a form is a part of the row's file.
        optional: the inputs that a call may leave out (of a backward pass also those whose gradients it makes), and the
            number that each then is.
        same: of a backward pass, gradients that it does not make: each is another one (`d_residual` is `d_input`), or
            empty for an input that is declared constant.
        forms: for each of these, the operation that runs where it and those after it are left out.
        analysis: what follows from the formulas.
    """

    name: str
    category: str
    direction: Direction
    doc: str
    types: Mapping[str, tuple[str, ...]]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    element_fields: Mapping[str, str]
    attributes: tuple[Attribute, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    source: str = ""
    optional: tuple[tuple[str, int | float], ...] = ()
    forms: tuple[tuple[str, str], ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    analysis: Analysis = Analysis()

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @cached_property
    def function(self) -> str:
        """Name of the function form."""
        return self.name + ("_backward" if self.direction is Direction.BACKWARD else "")

    @cached_property
    def gradients(self) -> dict[str, int | None]:
        """Of a backward pass: which output is each gradient; None for one that is declared constant."""
        found: dict[str, int | None] = {operand.name: index for index, operand in enumerate(self.outputs)}
        return found | {name: found.get(other) for name, other in self.same}

    @cached_property
    def numbers(self) -> dict[str, int | float]:
        """What each optional input is where it is left out."""
        return dict(self.optional)

    @cached_property
    def row(self) -> str:
        """Name of the row that it is a direction, a form or a stage of."""
        return self.source.removesuffix(".cu").partition(FORM)[0]

    @property
    def of_alternative(self) -> bool:
        """Whether it is a stage of a multi-kernel form, which needs only the schedules of some calls."""
        return bool(self.analysis.alternative and self.analysis.stage)

    @property
    def repacked(self) -> bool:
        """Whether its codes of 4 bits are packed by a second kernel, where rows share bytes; or it is that step."""
        return self.analysis.alternative == 1

    @cached_property
    def class_name(self) -> str:
        """Stem of the plan's class names: QuantizePerToken."""
        return class_stem(self.function)

    @cached_property
    def kernel_letters(self) -> tuple[str, ...]:
        """Type letters that some operand has, in operand order, those that formulas alone name, and the one that the
        compute type follows from: parameters of the kernel template.
        """
        named = [*(o.element for o in self.operands), *self.analysis.asks_of]
        letters = dict.fromkeys(letter for letter in named if letter in self.types)
        if not any(map(self.in_compute, letters)):
            floats = [letter for letter in self.types if self.is_float(letter)]
            letters |= dict.fromkeys((floats or [*self.types][: not letters])[:1])
        return tuple(letters)

    @cached_property
    def asked(self) -> dict[str, str]:
        """Keywords that name the type letters which no input array shows: `dtype` for the first, then `scale_dtype` for
        that of an output `scale`.
        """
        shown = {operand.element for operand in self.inputs}
        found: dict[str, str] = {}
        for letter in self.types:
            owner = next((operand.name for operand in self.outputs if operand.element == letter), None)
            if letter not in shown and not found:
                found[letter] = "dtype"
            elif letter not in shown and owner is not None:
                found[letter] = f"{owner}_dtype"
        return found

    @cached_property
    def reads_packed(self) -> bool:
        """Whether some input may hold two elements to a byte."""
        return any(self.may_be_packed(operand.element) for operand in self.inputs)

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Keyword arguments of the function form beside the attributes, `out` and `stream`."""
        told = ("input_dtype",) if self.told else ()
        shaped = ("shape",) if self.reads_packed or self.shaped else ()
        return (*self.asked.values(), *told, *shaped, *(("keepdims",) if self.analysis.keeps else ()))

    @cached_property
    def space(self) -> tuple[Dim, ...]:
        """The dimensions that a kernel runs over: those of the operand that has most of them."""
        return max((*self.outputs, *self.inputs), key=lambda o: sum(not dim.block for dim in o.dims)).dims

    @property
    def takes_row(self) -> bool:
        """Whether its reference asks about rows, or about types."""
        found = self.analysis
        return bool(found.over or found.chained or found.asks_of or found.converts)

    @property
    def reduces(self) -> bool:
        """Whether there are reductions in it, over one thing or over several."""
        return bool(self.analysis.over or self.analysis.stages)

    @cached_property
    def along(self) -> tuple[str, ...]:
        """The dimensions that rows lie along, in the order of the space; none where there are no reductions.

        The elements of a row are counted in row-major order of these, whatever lies between them.
        """
        names = self.analysis.over.dims if self.analysis.over else ()
        return tuple(dim.name for dim in self.space if dim.name in names)

    @cached_property
    def block(self) -> str:
        """The attribute that says how long rows are, where they are blocks; else empty."""
        return self.analysis.over.block if self.analysis.over else ""

    def runs_along(self, operand: Operand) -> bool:
        """Whether an operand has elements of its own along a row, one for each place or shared by some."""
        return any(dim.name in self.along and dim.block is None for dim in operand.dims)

    @cached_property
    def axis(self) -> Attribute | None:
        """The attribute that says which axes of an array a dimension is; None where shapes alone do."""
        return next((attribute for attribute in self.attributes if attribute.names_axes), None)

    @cached_property
    def chooses_axes(self) -> bool:
        """Whether a call names any number of axes, wherever they are: the space is `[*kept, *named]`."""
        return self.axis is not None and self.axis.type == "axes"

    @cached_property
    def space_of_axes(self) -> tuple[Dim, ...]:
        """The dimensions of an operand whose axes a call names, in a plan's order: `[*kept, *named]`."""
        of = self.axis.axis_of
        return next(operand.dims for operand in self.operands if operand.dims[-1:] and operand.dims[-1].name == of)

    @cached_property
    def shaped(self) -> Operand | None:
        """The output whose shape a call says (`shape=`), as it has a dimension that no input shows; None where inputs
        show all of them.
        """
        shown = {dim.name for operand in self.inputs for dim in operand.dims if dim.block is None}
        whole = (operand for operand in self.outputs if operand.dims == self.space)
        return next((operand for operand in whole if not {dim.name for dim in operand.dims} <= shown), None)

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """Every dimension that the caller's shapes decide, in order of appearance."""
        found: dict[str, Dim] = {}
        for operand in self.operands:
            for dim in operand.dims:
                if dim.block is None:
                    found.setdefault(dim.name, dim)
        return tuple(found.values())

    @cached_property
    def combinations(self) -> tuple[dict[str, str], ...]:
        """Every choice of element types, preferred first; `C` is resolved in each."""
        choices: list[dict[str, str]] = [{}]
        for letter, options in self.types.items():
            wider = []
            for choice in choices:
                resolved = {**choice, COMPUTE: self._compute_of(choice)}
                words = dict.fromkeys(resolved.get(option, option) for option in options)
                wider += [{**choice, letter: word} for word in words]
            choices = wider
        return tuple({**choice, COMPUTE: self._compute_of(choice)} for choice in choices)

    def _compute_of(self, types: Types) -> str:
        """The compute type of a choice of element types."""
        follows = next(filter(self.is_mixed, types), None)
        return compute_word(types) if follows is None else DTYPES[types[follows]].C

    def is_mixed(self, element: str) -> bool:
        """Whether it is a type letter of floats, integers and booleans, of more than one of these: C follows it."""
        words = self.types.get(element, ())
        return len({DTYPES[word].kind for word in words if word in DTYPES}) > 1

    def in_compute(self, element: str) -> bool:
        """Whether formulas take elements of a type letter or word as values of C."""
        return self.is_float(element) or self.is_mixed(element)

    def kernel_combinations(self) -> Iterator[dict[str, str]]:
        """The distinct choices as far as a kernel can tell."""
        seen = set()
        for types in self.combinations:
            key = tuple(types[letter] for letter in self.kernel_letters)
            if key not in seen:
                seen.add(key)
                yield {letter: types[letter] for letter in (*self.kernel_letters, COMPUTE)}

    def word(self, operand: Operand, types: Types) -> str:
        """The element type of an operand under a choice of types."""
        return types.get(operand.element, operand.element)

    def is_float(self, element: str) -> bool:
        """Whether a type letter, the word of an element type or `C` stands for floats."""
        while element in self.types:
            element = self.types[element][0]
        return element == COMPUTE or (element in DTYPES and DTYPES[element].kind == "float")

    def guarantee(self, types: Types) -> PrecisionGuarantee:
        """What a kernel of these types promises."""
        words = [self.word(operand, types) for operand in self.outputs]
        integers = all(DTYPES[word].kind != "float" for word in words)
        return PrecisionGuarantee(
            math_precision=types[COMPUTE],
            accumulator=types[COMPUTE] if self.reduces else None,
            rounding="exact integers" if integers else "nearest, ties to even, once at the store",
            exact=self.analysis.exact,
            max_ulp=0.0 if self.analysis.exact else None,
        )

    def may_be_packed(self, letter: str) -> bool:
        """Whether some choice of types makes this letter a packed type."""
        return any(DTYPES[types[letter]].packed for types in self.combinations if letter in types)

    def may_be_bytes(self, letter: str) -> bool:
        """Whether an array of uint8 may hold this letter's elements, so that somebody has to say which they are."""
        return any(map(may_be_bytes, self.words_of(letter)))

    def words_of(self, letter: str) -> list[str]:
        """The words that a letter may be; none of what is no letter."""
        return list(dict.fromkeys(types[letter] for types in self.combinations if letter in types))

    @cached_property
    def told(self) -> str | None:
        """The letter of the first input that an array of uint8 may hold: `input_dtype=` says what that letter is."""
        return next((operand.element for operand in self.inputs if self.may_be_bytes(operand.element)), None)

    def resolve(self, seen: Mapping[str, str], plan: str, numbers: Sequence[Operand] = ()) -> dict[str, str]:
        """The preferred choice of types under which each named operand or letter has the word seen.

        Args:
            seen: element words by operand name or type letter.
            plan: what to call it in an error.
            numbers: operands that are Python numbers: a float one counts as an element of the compute type
                where the operand may be that, and is rounded to what it may be elsewhere.

        Raises:
            Unsupported: there is none; the message names what each operand may be.
        """
        by_name = {operand.name: operand for operand in self.operands}
        fitting = [types for types in self.combinations if self._agree(types, seen, by_name)]
        for types in fitting:
            if all(
                DTYPES[self.word(operand, types)].kind != "float"
                or self.word(operand, types) == types[COMPUTE]
                for operand in numbers
            ):
                return types
        if fitting:
            return fitting[0]
        raise Unsupported(f"{plan}: no kernel {self.describe(seen)}: {self._nearest(seen, by_name)}")

    def describe(self, seen: Mapping[str, str]) -> str:
        """`quantize_per_token f16 -> s8`, from what is known of the types."""
        asked = self.asked
        given = [word for name, word in seen.items() if name not in asked]
        wanted = [word for name, word in seen.items() if name in asked]
        return " ".join([self.function, *given, *(["->", *wanted] if wanted else [])])

    def _word_of(self, name: str, types: Types, by_name: Mapping[str, Operand]) -> str:
        """What an operand or a type letter is, by its name."""
        return self.word(by_name[name], types) if name in by_name else types[name]

    def _agree(self, types: Types, seen: Mapping[str, str], by_name: Mapping[str, Operand]) -> bool:
        """Whether a choice of types is what has been seen of them."""
        return all(self._word_of(name, types, by_name) == word for name, word in seen.items())

    def _nearest(self, seen: Mapping[str, str], by_name: Mapping[str, Operand]) -> str:
        """Which operand cannot be what it is, and what it could be beside the others."""
        for name in seen:
            fits = [self._word_of(name, types, by_name) for types in self.combinations]
            if seen[name] not in fits:
                return f"{self._label(name)} takes {' '.join(dict.fromkeys(fits))}"
        for name in reversed(seen):
            others = {other: word for other, word in seen.items() if other != name}
            fits = [
                self._word_of(name, types, by_name)
                for types in self.combinations
                if self._agree(types, others, by_name)
            ]
            if fits:
                taken = " ".join(dict.fromkeys(fits))
                return f"beside {' '.join(others.values())}, {self._label(name)} takes {taken}"
        return "no choice of types fits them together"

    def _label(self, name: str) -> str:
        if name in self.types:
            owner = next((operand.name for operand in self.outputs if operand.element == name), None)
            return owner or self.asked.get(name, "dtype")
        return name

    def shape_of(self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...]:
        """An operand's shape under given sizes (dimensions and block lengths)."""
        shape: list[int] = []
        for dim in operand.dims:
            size = sizes[dim.name]
            if isinstance(size, tuple):
                shape += size
            elif dim.block is not None:
                shape.append(-(-size // sizes[dim.block]))
            else:
                shape.append(size)
        return tuple(shape)

    def spread(
        self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shape of an operand that lacks some of the space's dimensions in an array that has all of them, with one
        element each for those that it lacks (as `keepdims` leaves them), and which axes of that array are its own.

        None where it lacks none, has none, or has them in another order.
        """
        own = {dim.name: dim for dim in operand.dims}
        if not own or [dim.name for dim in self.space if dim.name in own] != [*own] or len(own) == len(self.space):
            return None
        shape: list[int] = []
        axes: list[int] = []
        for dim in self.space:
            size = sizes[dim.name]
            extents = size if isinstance(size, tuple) else (size,)
            if dim.name not in own:
                shape += [1] * len(extents)
                continue
            axes += range(len(shape), len(shape) + len(extents))
            block = own[dim.name].block
            shape += extents if block is None else [-(-extent // sizes[block]) for extent in extents]
        return tuple(shape), tuple(axes)

    def binds_after(self, operand: Operand) -> tuple[bool, bool]:
        """A key that sorts operands so that each can be bound by what those before it have shown."""
        several = sum(dim.many for dim in operand.dims) > 1
        return several and self.axis is None, operand.dims != self.space

    def bind(
        self, operand: Operand, shape: tuple[int, ...], axis: int | None, plan: str, ranks: Mapping[str, int] = {}
    ) -> dict:
        """Sizes of an operand's dimensions from an array's shape.

        Two `*name`s are split by the number of axes that one of them is known to have (`ranks`), else by `axis`.

        Raises:
            InvalidProblem: the shape has too few axes, or the axis is none of them.
        """
        manies = [index for index, dim in enumerate(operand.dims) if dim.many]
        singles = len(operand.dims) - len(manies)
        spare = len(shape) - singles
        if spare < 0 or (spare > 0 and not manies):
            expected = ", ".join(map(str, operand.dims))
            raise InvalidProblem(f"{plan}: {operand.name} has shape {shape}, expected ({expected})")
        lengths = {index: 0 for index in manies}
        known = next((index for index in manies if operand.dims[index].name in ranks), None)
        if len(manies) == 1:
            lengths[manies[0]] = spare
        elif known is not None:
            lengths[known] = ranks[operand.dims[known].name]
            if lengths[known] > spare:
                expected = ", ".join(map(str, operand.dims))
                raise InvalidProblem(
                    f"{plan}: {operand.name} has shape {shape}, expected ({expected}) with {lengths[known]} axes of "
                    f"{operand.dims[known]}"
                )
            lengths[next(index for index in manies if index != known)] = spare - lengths[known]
        elif manies:
            axis = int(axis)
            position = axis + len(shape) if axis < 0 else axis
            if not 0 <= position < len(shape):
                raise InvalidProblem(
                    f"{plan}: axis is {shown(axis)}, expected {-len(shape)} to {len(shape) - 1} "
                    f"for {operand.name} of shape {shape}"
                )
            lengths[manies[0]], lengths[manies[1]] = position, spare - position
        sizes: dict[str, int | tuple[int, ...]] = {}
        start = 0
        for index, dim in enumerate(operand.dims):
            if dim.many:
                sizes[dim.name] = tuple(shape[start : start + lengths[index]])
                start += lengths[index]
            else:
                sizes[dim.name] = shape[start]
                start += 1
        return sizes


def section_of(text: str, source: str) -> str:
    """What is compiled of a CUDA file: the part of the form that a source is named after, or of the row itself."""
    _, is_form, _ = source.partition(FORM)
    parts = {part.partition("\n")[0]: part for part in text.split(f"\n{SECTION}")}
    own = parts.get(source.removesuffix(".cu")) if is_form else next(iter(parts.values()))
    if own is None:
        raise FileNotFoundError(source)
    return own if len(parts) == 1 else (SECTION if is_form else "") + own.rstrip("\n") + "\n"


def class_stem(function: str) -> str:
    """What the names of the classes of a function begin with: QuantizePerToken."""
    return "".join(word.capitalize() for word in function.split("_"))


def may_be_bytes(word: str) -> bool:
    """Whether an array of uint8 may hold elements of a type and others."""
    return DTYPES[word].packed or DTYPES[word].narrow_float


def compute_word(types: Types) -> str:
    """The compute type of a choice of element types: f64 where its first float is f64, else f32."""
    for word in types.values():
        if DTYPES[word].kind == "float":
            return DTYPES[word].compute
    return "f32"


def packed_shape(shape: tuple[int, ...], word: str) -> tuple[int, ...]:
    """The shape that an array of this element travels as: packed types halve the last axis, rounding up."""
    if not DTYPES[word].packed or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] // 2))


def count(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    return prod(shape)
