"""What an operation is, as data: its operands, dimensions, element types and attributes.

The generator writes one `Operation` into each generated plan module; plans, function forms and the
documentation read it. Nothing here knows about arrays or devices. What an operation is made of is imported from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from skuda.model.analysis import COUNTED, Analysis, Over, Reduced
from skuda.model.dtypes import DTYPES
from skuda.model.operands import (
    ALL,
    COMPUTE,
    REDUCTIONS,
    SCALE,
    WEIGHT,
    Attribute,
    Choice,
    Dim,
    Operand,
    Requirement,
)
from skuda.model.records import Record
from skuda.model.shapes import Shapes, count, packed_shape
from skuda.model.sku import Direction, PrecisionGuarantee
from skuda.model.type_combinations import TypeCombinations, Types, compute_word, may_be_bytes

__all__ = [
    "ALL", "AS", "COMPUTE", "COUNTED", "FORM", "REDUCTIONS", "SCALE", "SECTION", "WEIGHT", "WIDE", "Analysis",
    "Attribute", "Choice", "Dim", "Direction", "Operand", "Operation", "Over", "PrecisionGuarantee", "Reduced",
    "Requirement", "Types", "class_stem", "compute_word", "count", "may_be_bytes", "packed_shape", "row_of",
    "section_of",
]  # fmt: skip

FORM = "_without_"  # between the name of a row and the optional inputs that a form of it lacks
AS = "_as_"  # between the name of a row and the word of a choice that a form of it is for
SECTION = "// ---- "  # before the name of a form, where its part of the row's CUDA source begins
WIDE = "s8"  # holds the codes of both types of 4 bits


class Operation(Record, TypeCombinations, Shapes):
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
        halves: the two inputs that a call may give as one array, which holds one behind the other along its last axis.
            A backward pass makes the gradient of that array then.
        choice: the attribute by whose word a call selects a form; of the form that runs for the default.
        positions: what stands for `position(d)` in the formulas: operands that are in no memory, each element of which
            is its own index. A call does not see them; kernels take them as inputs (`in_kernels`).
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
    choice: Choice | None = None
    halves: tuple[str, ...] = ()
    positions: tuple[Operand, ...] = ()
    analysis: Analysis = Analysis()

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs

    @cached_property
    def in_kernels(self) -> Operation:
        """The operation as kernels and references see it: with positions behind its inputs."""
        if self.inputs[-len(self.positions) :] == self.positions or not self.positions:
            return self
        return self.but(inputs=(*self.inputs, *self.positions))

    @cached_property
    def read(self) -> tuple[Operand, ...]:
        """The inputs that are in memory."""
        return tuple([operand for operand in self.inputs if operand not in self.positions])

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
    def broadcast(self) -> tuple[int, ...]:
        """Where the inputs are that broadcast against each other: those with all dimensions, of a forward pass that has
        several. Those of a gradient do not, nor where one may hold two codes to a byte."""
        whole = [operand.dims == self.space != () for operand in self.inputs]
        found = tuple([index for index, has_all in enumerate(whole) if has_all])
        if len(found) < 2 or self.direction is Direction.BACKWARD:
            return ()
        return () if any(self._holds_packed(self.inputs[index].element) for index in found) else found

    @cached_property
    def row(self) -> str:
        """Name of the row that it is a direction, a form or a stage of."""
        return row_of(self.source.removesuffix(".cu"))

    @property
    def is_whole(self) -> bool:
        """Whether it is a row's or a form's: neither a stage of one, nor what stands in for rows of one element."""
        return not (self.analysis.stage or self.analysis.of_one)

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
    def options(self) -> tuple[str, ...]:
        """Keyword arguments of the function form beside the attributes, `out` and `stream`."""
        told = ("input_dtype",) if self.told else ()
        shaped = ("shape",) if self.reads_packed or self.shaped else ()
        return (*self.asked.values(), *told, *shaped, *(("keepdims",) if self.analysis.keeps else ()))

    @cached_property
    def space(self) -> tuple[Dim, ...]:
        """The dimensions that a kernel runs over: those of the operand that has most of them, in front what it lacks of
        outputs, and behind what is reduced of others."""
        widest = max((*self.outputs, *self.inputs), key=lambda o: sum(not dim.block for dim in o.dims)).dims
        reduced = self.analysis.over.dims if self.analysis.over else ()
        own = {dim.name for dim in widest}
        others = {d.name: d for o in self.operands for d in o.dims if not d.block and d.name not in own}
        made = dict.fromkeys(d.name for o in self.outputs for d in o.dims if d.name in others and d.name not in reduced)
        behind = [name for name in reduced if name in others]
        return (*[others[name] for name in made], *widest, *[others[name] for name in behind])

    @property
    def takes_row(self) -> bool:
        """Whether its reference asks about rows, or about types."""
        found = self.analysis
        return bool(found.over or found.chained or found.asks_of or found.converts or found.precise_as)

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

    def in_runs(self, operand: Operand) -> bool:
        """Whether neighbours in a row share each element of an operand in memory: it has some of the dimensions that
        rows lie along."""
        along = {dim.name for dim in operand.dims if dim.block is None}.intersection(self.along)
        return 0 < len(along) < len(self.along) and operand in self.read and not self.analysis.scans

    @cached_property
    def has_runs(self) -> bool:
        """Whether neighbours in a row share elements of some operand."""
        return any(map(self.in_runs, self.inputs))

    @property
    def holds_alone(self) -> bool:
        """Whether its kernels only serve rows of neighbours that blocks hold, and stages the others."""
        return self.has_runs and self.analysis.alternative > 1

    @cached_property
    def of_rows(self) -> tuple[Operand, ...]:
        """Inputs of an elementwise operation that differ between rows, where others differ between columns: those
        without the last dimension that any input has which elements share. None where some are shared by blocks."""
        shared = [each for each in self.in_kernels.inputs if each.dims != self.space and not each.scalar]
        names = [{dim.name for dim in operand.dims} for operand in shared]
        columns = next((dim.name for dim in reversed(self.space) if any(dim.name in each for each in names)), "")
        found = tuple([operand for operand, own in zip(shared, names, strict=True) if columns not in own])
        in_blocks = any(dim.block for operand in shared for dim in operand.dims)
        return () if self.along or in_blocks else found

    @cached_property
    def axis(self) -> Attribute | None:
        """The attribute that says which axes of an array a dimension is; None where shapes alone do."""
        return next((attribute for attribute in self.attributes if attribute.names_axes), None)

    def hands_on(self, attribute: Attribute) -> bool:
        """Whether an attribute of a forward pass takes no part in it: its gradient, where a framework records one, is
        computed with it."""
        if self.direction is Direction.BACKWARD or attribute.names_axes or attribute.type == "size":
            return False
        checked = {name for requirement in self.requirements for name in requirement.names}
        return attribute.name not in {*self.analysis.attributes, *checked}

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
    def creates(self) -> bool:
        """Whether no input is an array: a call says the shape and the element type of what it makes, and where."""
        forward = self.direction is Direction.FORWARD and self.is_whole
        return forward and all([operand.scalar for operand in self.inputs])

    @cached_property
    def shaped(self) -> Operand | None:
        """The output whose shape a call says (`shape=`), as it has a dimension that no input shows which must be there;
        None where such inputs show all of them.
        """
        always = [operand for operand in self.inputs if operand.name not in self.numbers]
        shown = {dim.name for operand in always for dim in operand.dims if dim.block is None} | self.fixed.keys()
        whole = (operand for operand in self.outputs if operand.dims == self.space)
        return next((operand for operand in whole if not {dim.name for dim in operand.dims} <= shown), None)

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """Every dimension that the caller's shapes decide, in order of appearance."""
        found: dict[str, Dim] = {}
        for operand in self.operands:
            for dim in operand.dims:
                if dim.block is None and dim.size is None:
                    found.setdefault(dim.name, dim)
        return tuple(found.values())

    @cached_property
    def fixed(self) -> dict[str, int]:
        """The dimensions that must have a size, by their names: the 4 of `T[n, 4]`."""
        return {dim.name: dim.size for operand in self.operands for dim in operand.dims if dim.size is not None}

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


def row_of(name: str) -> str:
    """The name of the row that an operation is a form of, or its own."""
    return name.partition(FORM)[0].partition(AS)[0]


def section_of(text: str, source: str) -> str:
    """What is compiled of a CUDA file: the part of the form that a source is named after, or of the row itself."""
    name = source.removesuffix(".cu")
    is_form = name != row_of(name)
    parts = {part.partition("\n")[0]: part for part in text.split(f"\n{SECTION}")}
    own = parts.get(name) if is_form else next(iter(parts.values()))
    if own is None:
        raise FileNotFoundError(source)
    return own if len(parts) == 1 else (SECTION if is_form else "") + own.rstrip("\n") + "\n"


def class_stem(function: str) -> str:
    """What the names of the classes of a function begin with: QuantizePerToken."""
    return "".join(word.capitalize() for word in function.split("_"))
