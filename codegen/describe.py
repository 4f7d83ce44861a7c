"""A row in words and in Python: what the plan, reference and documentation templates need to know of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from skuda.codegen.examples import example
from skuda.codegen.intrinsics import HALF_RULE, HALVED, QUICKENED
from skuda.codegen.nodes import REDUCE
from skuda.codegen.one_element import serving
from skuda.codegen.operators import FUNCTIONS
from skuda.codegen.printers import LatexPrinter, NumpyPrinter, PythonPrinter, spelled_formulas
from skuda.codegen.program import Program, Row
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.stages import stages
from skuda.model import documentation
from skuda.model.operation import ALL, COMPUTE, COUNTED, Operand, Operation, may_be_bytes
from skuda.model.sku import Direction
from skuda.names import OUT, OUT_OF, PLACED, STREAM
from skuda.reference.formulas import FORMULA_NAMES


@dataclass(frozen=True)
class Heading:
    """What every file says at its top."""

    name: str
    doc: str
    origin: str


@dataclass(frozen=True)
class Imports:
    """What formulas in Python call: NumPy, and functions of skuda.reference.formulas."""

    numpy: bool
    names: tuple[str, ...]


class Described:
    """One row."""

    def __init__(self, row: Row):
        self.row = row
        self.programs = tuple(DescribedProgram(program) for program in row.programs)
        every = [pair for program in row.programs for pair in serving(program)]
        self.in_plans = tuple(found for program, form in every for found in _of_pair(program, form))

    def heading(self, file_name: str) -> Heading:
        """The top of its files."""
        whole = self.row.forward.operation.row
        return Heading(self.row.name, self.row.doc, f"{file_name} [{whole}]")


def imports_of(programs: Iterable[DescribedProgram]) -> Imports:
    """What a module of plans imports for the references and conditions in it."""
    return Imports(any(each.formula_imports.numpy or each.check_imports.numpy for each in programs), ())


def _imports(formulas: Iterable[str]) -> Imports:
    """What some formulas in Python call."""
    text = " ".join(formulas)
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    return Imports("np." in text, tuple(name for name in FORMULA_NAMES if name in words))


def _of_pair(program: Program, form: Program | None) -> tuple[DescribedProgram, ...]:
    """A program behind its form for rows of one element."""
    return (*([DescribedProgram(form)] if form else []), DescribedProgram(program, form))


class DescribedProgram:
    """One direction of a row.

    Args:
        form: that for rows of one element, of what plans are made of.
    """

    def __init__(self, program: Program, form: Program | None = None):
        self.operation = program.operation
        self.stages = tuple(stage.operation for stage in stages(program))
        self.of_one = form.operation if form else None
        self.formulas = spelled_formulas(program)
        self.backward = self.operation.direction is Direction.BACKWARD
        self.numpy_steps, self.numpy = _numpy(program)
        pairs = zip(program.requirements, self.operation.requirements, strict=True)
        self.requirements = [
            (text, requirement.names, PythonPrinter().text(node)) for (text, node), requirement in pairs
        ]
        self._formulas = program.formulas
        self._reduced = program.reduced

    @cached_property
    def called(self) -> bool:
        """Whether it has a function of its own: neither a stage nor a form has one."""
        return self.operation.is_whole and self.operation.name == self.operation.row

    @cached_property
    def formula_imports(self) -> Imports:
        """What its reference calls; a plan in stages has none."""
        if self.operation.analysis.stages:
            return Imports(False, ())
        return _imports([*(text for _, text in self.numpy_steps), *self.numpy.values()])

    @cached_property
    def check_imports(self) -> Imports:
        """What its conditions on attributes call."""
        return _imports(condition for _, _, condition in self.requirements)

    # ---- Python ----

    @property
    def options(self) -> tuple[str, ...]:
        """Keyword arguments that the function hands on, `stream` aside."""
        return self.operation.options

    @cached_property
    def output_dtypes(self) -> list[str]:
        """Keywords beside `dtype` that name the element type of an output."""
        return list(self.operation.asked.values())[1:]

    @cached_property
    def signature(self) -> str:
        """Parameters of the function form."""
        op = self.operation
        parts = [operand.name for operand in op.inputs]
        first = next((index for index, name in enumerate(parts) if name in op.numbers), len(parts))
        parts[first:] = [f"{name}=None" for name in parts[first:]]  # after one that may be left out, all have defaults
        parts[:] = [f"{name}=None" if name in op.halves else name for name in parts]
        parts.append("*")
        if op.creates:
            parts = ["shape=None", *(f"{operand.name}=None" for operand in op.inputs), "*"]
        required = ["shape"] if op.shaped else []
        required += [a.name for a in op.attributes if a.default is None]
        parts += required if not op.creates else required[1:]
        for attribute in op.attributes:
            if attribute.default is not None:
                default = attribute.default if attribute.names_axes and attribute.default != ALL else None
                parts.append(f"{attribute.name}={default}")
        parts += [f'{op.choice.name}="{op.choice.default}"'] if op.choice is not None else []
        defaults = {"keepdims": False}
        said = ["without"] if self.unread else []
        placed = ["like", "device"] if op.creates else []
        rest = [name for name in (*said, *self.options, *placed, "out", "stream") if name not in required]
        options = [f"{name}={defaults.get(name)}" for name in rest]
        return ", ".join([*parts, *options])

    @cached_property
    def unread(self) -> list[str]:
        """Optional inputs that a backward pass does not read: a call says by name that it wants no gradient of them."""
        return [name for name in self.operation.numbers if name not in {o.name for o in self.operation.inputs}]

    @cached_property
    def left_out(self) -> str:
        """Whether a call leaves out some input, as Python."""
        asked = [f"{o.name} is None" for o in self.operation.inputs if o.name in self.operation.numbers]
        return " or ".join([*asked, *(["without is not None"] if self.unread else [])])

    @cached_property
    def in_one(self) -> str:
        """Whether a call gives two inputs as one array, as Python."""
        return " or ".join(f"{name} is None" for name in self.operation.halves)

    @cached_property
    def attribute_names(self) -> list[str]:
        """The attributes in call order."""
        return [attribute.name for attribute in self.operation.attributes]

    @cached_property
    def reference_parameters(self) -> str:
        """Parameters of the generated reference."""
        op = self.operation
        row = ["row"] if op.takes_row else []
        counted = [COUNTED] if op.analysis.counted else []
        return ", ".join(["C", *row, *(o.name for o in op.in_kernels.inputs), *op.analysis.attributes, *counted])

    @cached_property
    def function_docs(self) -> list[str]:
        """One line for each parameter of the function form, but for those that all functions have."""
        arrays = {operand.name: operand.signature for operand in self.operation.inputs}
        rows = [(name, meaning) for name, _, meaning in self.argument_rows if name not in ("out", "stream")]
        shapes = {name: f"{signature}, " for name, signature in arrays.items()}
        return [f"{name}: {shapes.get(name, '')}{meaning}" for name, meaning in rows]

    @cached_property
    def example(self) -> list[str]:
        """A call that runs, as lines of a session."""
        return example(self.operation)

    @cached_property
    def returns(self) -> str:
        """What the function form returns."""
        outputs = [f"{o.name}: {o.signature}" for o in self.operation.outputs]
        packed = any(self.operation.may_be_packed(o.element) for o in self.operation.outputs)
        tail = "; 4-bit codes two to a byte, low nibble first" if packed else ""
        several = f"({', '.join(outputs)}): named {self.operation.class_name}Results"
        return (outputs[0] if len(outputs) == 1 else several) + tail + "."

    # ---- documentation ----

    @cached_property
    def argument_rows(self) -> list[tuple[str, str, str]]:
        """(name, type, meaning) of each argument of the function form."""
        op = self.operation
        rows = [(o.name, o.signature, _operand_meaning(o, op)) for o in op.inputs]
        if op.creates:
            rows.insert(0, ("shape", "int, tuple", "the shape of the output; that of out where it is given."))
        elif op.shaped:
            rows.append(("shape", "tuple", f"the shape of {op.shaped.name}, which the arrays alone do not tell."))
        ordered = sorted(op.attributes, key=lambda attribute: attribute.default is not None)
        rows += [(a.name, a.type, documentation.of_attribute(op, a) + ".") for a in ordered]
        if op.choice is not None:
            rows.append((op.choice.name, "str", documentation.of_choice(op.choice) + "."))
        for letter, keyword in op.asked.items():
            names = "or as NumPy, ml_dtypes or torch name it"
            rows.append((keyword, letter, f"element type {letter}: {documentation.words(op, letter)}; {names}."))
        if self.unread:
            names = " or ".join(f'"{name}"' for name in self.unread)
            meaning = f"{names} where the forward pass went without: no gradient of it is made."
            rows.append(("without", "str", meaning))
        if op.told:
            words = op.words_of(op.told)
            what = "packed codes, which travel as uint8" if op.reads_packed else "codes in an array of uint8"
            names = " or ".join(filter(may_be_bytes, words)) + ("; u8 if not given" if "u8" in words else "")
            rows.append(("input_dtype", "str", f"element type of {what}: {names}."))
        if self.operation.reads_packed:
            rows.append(("shape", "tuple", "logical shape of packed codes, where the last axis is odd."))
        if op.analysis.keeps:
            names = " and ".join(op.analysis.keeps) if self.backward else "the output"
            kept = f"{names} keep{'s' if len(op.analysis.keeps) == 1 else ''}"
            rows.append(("keepdims", "bool", f"whether {kept} the reduced axes, with one element each."))
        if op.creates:
            rows += [(name, kind, f"{meaning}.") for name, kind, meaning in PLACED]
        rows.append(("out", "array", OUT.format(OUT_OF[len(op.outputs) > 1])))
        rows.append(("stream", "stream", STREAM))
        return rows

    @cached_property
    def latex(self) -> list[str]:
        """What each reduction is, then each output's formula; a reduction stands in a formula as r with its number."""
        names = {node: f"r_{{{index}}}" for index, node in enumerate(self._reduced)}
        printer = LatexPrinter(names)
        lines = [f"{name} = {printer.reduced_from(node)}" for node, name in names.items()]
        return lines + [f"{printer.identifier(name)} = {printer.text(node)}" for name, node in self._formulas.items()]

    @cached_property
    def type_text(self) -> str:
        """What each type letter may be."""
        op = self.operation
        letters = [f"{letter}: {' '.join(options)}" for letter, options in op.types.items()]
        uses = {operand.element for operand in op.operands}
        if COMPUTE in uses.union(*op.types.values()):
            letters.append("C: f64 where T is f64, else f32")
        return "; ".join(letters)

    @cached_property
    def guarantee_text(self) -> str:
        """The promise, in words."""
        letters = self.operation.types
        if self.operation.analysis.exact and any(map(self.operation.in_compute, letters)):
            mixed = any(map(self.operation.is_mixed, letters))
            lowest = "; integers are computed in 64 bits and stored as their lowest" if mixed else ""
            return (
                "the same bits on CPU and GPU, and for every layout and alignment: each step is correctly "
                "rounded in C (f64 where T is f64, else f32), or made of such steps in one order "
                f"(sums, elementary functions: docs/numerics.md), and the result is rounded once at the store{lowest}"
            )
        if self.operation.analysis.exact:
            return "the same bits on CPU and GPU, and for every layout and alignment: integers of 64 bits"
        return (
            f"on a GPU {', '.join(sorted(QUICKENED))} are its instructions, so that a result may be a step of its type "
            "from that of the CPU; the same bits on each run, and for every layout and alignment, on GPUs of one "
            "architecture (docs/numerics.md)"
        )

    @cached_property
    def rules(self) -> list[tuple[str, str]]:
        """What its intrinsics do with NaN, ties and limits."""
        used = set().union(*(node.intrinsics() for node in self._formulas.values()))
        halved = HALVED if self.operation.analysis.precise_as else frozenset()
        rules = [
            (name, f"{row.rule}; {HALF_RULE}" if name in halved else row.rule)
            for name, row in FUNCTIONS.items()
            if name in used and row.rule
        ]
        reduced = {r.op.removeprefix(REDUCE) for node in self._formulas.values() for r in node.reductions()}
        return rules + [(row.heading, row.rule) for name, row in REDUCTIONS.items() if name in reduced]


def _numpy(program: Program) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The reference: (name, expression) of what is computed on the way, and an expression for each output."""
    printer = NumpyPrinter(program.reduced)
    steps: dict[str, str] = {}
    results: dict[str, str] = {}
    for operand in program.operation.outputs:
        node = program.formulas[operand.name]
        for reduction in node.reductions():
            row = REDUCTIONS[reduction.op.removeprefix(REDUCE)]
            steps.setdefault(program.reduced[reduction], row.of_rows(printer.text(reduction.args[0])))
        results[operand.name] = printer.text(node)
        if operand.name in program.named:
            steps[operand.name] = f'row.stored({results[operand.name]}, "{operand.element}")'
            results[operand.name] = operand.name
    return list(steps.items()), results


def _operand_meaning(operand: Operand, operation: Operation) -> str:
    meaning = "array, any strides"
    own = {dim.name for dim in operand.dims}
    lacks = [dim.name in own for dim in operation.space].count(False)
    together = [operation.inputs[index].name for index in operation.broadcast]
    if operand.scalar:
        meaning = "one value: a number, or an array of one element (read on the device, no synchronisation)"
    elif operand.name in together:
        others = " and ".join(name for name in together if name != operand.name)
        number = "a boolean" if operand.element == "bool" else "a number"
        meaning += f", or {number}; broadcasts with {others}"
    elif lacks and (operation.axis is not None or any(not dim.many for dim in operation.space)):
        meaning += "; may have the axes that it lacks, with one element each"
    if operand.name in operation.halves:
        (other,) = {*operation.halves} - {operand.name}
        meaning += f"; without {other}: an array with {operand.name} and {other} side by side along its last axis"
    if operand.name in operation.numbers:
        meaning += f"; None is {operation.numbers[operand.name]}, by a kernel that reads none"
    return f"{meaning}."
