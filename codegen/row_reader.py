"""Reads one operation of a spec: its formulas, forward and backward, checked against what it declares."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from skuda.codegen.declarations import CONSTANT, OPERAND, Declarations
from skuda.codegen.diagnostics import Diagnostics, Place, suggestion
from skuda.codegen.expr import parse
from skuda.codegen.forms import form_name, of_backward, spelled, suffixes
from skuda.codegen.intrinsics import CONVERSIONS
from skuda.codegen.names import check_identifier
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, REDUCE, Function, Node, Scope, promote
from skuda.codegen.operators import FUNCTIONS
from skuda.codegen.program import Program, Row, analysed, partial_results, whole_dims
from skuda.codegen.ranges import misfits
from skuda.codegen.reductions import COUNT
from skuda.codegen.row_analysis import saved_of
from skuda.codegen.stages import alternative_stages, is_staged, stages
from skuda.codegen.yaml_tree import Sequence, Text
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Analysis, Attribute, Operand, Operation, Over, Requirement
from skuda.model.sku import Direction

_BELOW = "is an output that stands below: a formula may use those above it"
_KINDS = {REAL: "reals", INT: "integers", BOOL: "booleans"}


class RowReader(Declarations):
    """Reads one operation.

    Args:
        diagnostics: takes its mistakes.
        name: of the operation.
        fields: its sections, by their names.
        functions: the spec's functions.
        broken_functions: names of functions whose mistakes have been reported: calls of them are none.
        absent: of a form of the row, the operands that it lacks and their numbers.
        declared: of a form, the inputs of the row.
    """

    def __init__(
        self,
        diagnostics: Diagnostics,
        name: Text,
        fields: dict,
        functions: Mapping[str, Function],
        broken_functions: Collection[str],
        absent: Mapping[Operand, int | float] = {},
        declared: tuple[Operand, ...] = (),
    ):
        super().__init__(diagnostics, name, fields, absent)
        self.declared = declared
        self.functions = functions
        self.broken_functions = broken_functions
        self.lets: dict[str, Node] = {}
        self.called: dict[Node, str] = {}  # values of functions, with the names of these
        self.lets_used: set[str] = set()
        self.formula_places: dict[str, Place] = {}
        self.let_entries: tuple[tuple[Text, object], ...] = ()

    def row(self) -> Row | None:
        """The operation, or None where it has mistakes, each of which has been reported."""
        before = len(self.diagnostics)
        if "let" in self.fields:
            self.let_entries = self.mapping(self.fields["let"], "`let:`")
        kind = self.kind()
        doc = " ".join([self.doc(), *([f"Without {self.lacking}."] if self.absent else [])])
        self.types = self.shown = self.read_types()
        inputs = self.operands()
        if not self.places:
            self.entries("outputs")
            return None
        for dim in (dim for operand in inputs for dim in operand.dims if dim.block is None):
            self.dims.setdefault(dim.name, dim)
            self.meanings.setdefault(dim.name, "a dimension")
        attributes = self.last_axis(inputs, self.attributes())
        self.check_dims(inputs, attributes)
        self.lets = self.read_lets(inputs, attributes)
        outputs, formulas = self.outputs("outputs", inputs, attributes)
        numbers = {a.name: a.type for a in attributes if a.type != "size" and not a.names_axes}
        self.check_mixed({operand.name: operand.element for operand in (*inputs, *outputs)} | numbers)
        wrong = len(self.diagnostics)
        requirements = self.requirements(attributes)
        if len(self.diagnostics) == wrong:
            self.check_fit((*inputs, *outputs), attributes, outputs, formulas, requirements)
        if len(self.diagnostics) > before or len(outputs) < len(self.entries("outputs")):
            return None
        if self.absent:
            letters = {o.element for o in (*inputs, *outputs)} | {attribute.type for attribute in attributes}
            self.shown = {letter: self.types[letter] for letter in self.types if letter in self.needed(letters)}
        forward = self.program(
            Direction.FORWARD, kind, doc, inputs, outputs, attributes, requirements, formulas
        )
        used = set().union(*(node.names() for _, node in (*formulas.values(), *requirements)))
        used |= {forward.operation.block}
        used |= {dim.block for operand in inputs for dim in operand.dims}
        placed = {_between(operand) for operand in inputs}
        used |= {a.name for a in attributes if a.names_axes and a.axis_of in placed}
        backward = None
        of_backward = set()  # the attributes that the backward pass alone has
        if "backward" in self.fields and (not self.absent or self.entries("backward")):
            backward = self.backward(kind, doc, forward)
            named = {name for node in backward.formulas.values() for name in node.names()} if backward else None
            of_backward = {a.name for a in attributes if a.name not in used and (named is None or a.name in named)}
        for name, place in self.places.items() if not self.absent else ():
            if name not in used | of_backward:
                message = f"`{self.name.value}` never uses `{name}`"
                self.error(place, message, "remove it, or use it in an output")
        for name in self.lets.keys() - self.lets_used if not self.absent else ():
            message = f"`{self.name.value}` never uses `{name}`"
            self.error(self.texts[name].place, message, "remove it, or use it in an output")
        if len(self.diagnostics) > before:
            return None
        lacking = {a.name for a in attributes if a.name not in used} if self.absent else of_backward
        own = tuple(a for a in forward.operation.attributes if a.name not in lacking)
        forward = replace(forward, operation=replace(forward.operation, attributes=own))
        row = Row(self.name.value, kind, doc, forward, backward, self.place.line, "", self.optional)
        return row if self.absent else replace(row, forms=self.forms(row))

    def forms(self, row: Row) -> dict[str, Row]:
        """The operations that the row is without an optional input and those after it, by the first of them."""
        inputs = row.forward.operation.inputs
        found: dict[str, Row] = {}
        for absent in suffixes([*self.optional]):
            diagnostics = Diagnostics(self.diagnostics.file_name, "")
            name = Text(form_name(row.name, absent), self.name.place, self.name.spots)
            numbers = {each: self.optional[each.name] for each in inputs if each.name in absent}
            reader = RowReader(
                diagnostics, name, self.fields, self.functions, self.broken_functions, numbers, inputs
            )
            form = reader.row()
            mistake = diagnostics.first or (self.lost(row, form) if form is not None else None)
            if mistake is not None:
                names = " and ".join(f"`{each}`" for each in absent)
                self.error(self.defaults[absent[0]], f"without {names}, {mistake[0]}", mistake[1])
            elif form is not None:
                # Elsewhere the backward pass is that of another form, or of the row itself.
                backward = form.backward if absent[0] in of_backward(row) else None
                found[absent[0]] = replace(form, backward=backward, optional={})
        return found

    @property
    def lacking(self) -> str:
        """What a form lacks, in words."""
        return " and ".join(operand.name for operand in self.absent)

    def lost(self, row: Row, form: Row) -> tuple[str, str] | None:
        """What a call would have to say of a form that it need not say of the row: message and help."""
        for program in (form.forward, form.backward):
            whole = row.forward if program is form.forward else row.backward
            if program is None:
                continue
            asked = program.operation.asked.items() - whole.operation.asked.items()
            if asked:
                return f"no input shows the type {min(asked)[0]}", "an input that must be there shows it"
            if (program.operation.shaped is None) != (whole.operation.shaped is None):
                return "no input shows how long an output is", "an input that must be there shows it"
        return None

    def hidden(self, attributes: tuple[Attribute, ...]) -> dict[str, str | None]:
        """Names that the row or the file declares and that have no value in a formula: see Scope."""
        names_of_let = [name.value for name, _ in self.let_entries]
        hidden: dict[str, str | None] = dict.fromkeys([*self.broken_functions, *self.places, *names_of_let])
        for name, _ in self.entries("outputs") if "outputs" in self.fields else ():
            hidden.setdefault(name.value, _BELOW)
        for attribute in attributes:
            if attribute.type == "size" or attribute.names_axes:
                hidden[attribute.name] = f"is of type {attribute.type}, it has no value in a formula"
        return hidden

    def read_lets(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...]) -> dict[str, Node]:
        """What the names under `let:` stand for, each in terms of inputs and attributes."""
        found: dict[str, Node] = {}
        hidden = self.hidden(attributes)
        below = "is a name of `let:` that stands below: a formula may use those above it"
        hidden |= {name.value: below for name, _ in self.let_entries if name.value not in self.places}
        for name, body in self.let_entries:
            taken = self.meanings.get(name.value)
            if taken is None:
                self.meanings[name.value] = "a name of `let:`"
                hidden[name.value] = None  # what is wrong with it is none of its users' mistake
            text = self.text(body, f"`{name.value}`", "write the formula that it stands for")
            if not check_identifier(name, "the name", self.diagnostics) or text is None:
                continue
            if taken is not None:
                self.error(name.place, f"`{name.value}` is {taken} already", "choose another name")
                continue
            self.texts[name.value] = text
            values = {**self.values(inputs, attributes), **found}
            own = {name.value: "is this formula's own name"}
            types, computes = self.kinds_of_types(), self.computes
            scope = Scope(values, self.functions, hidden | own, None, types, self.called, computes)
            value = parse(text, scope, self.diagnostics)
            if value is not None:
                found[name.value] = value
                self.lets_used |= _words(text) & found.keys()
        return found

    def outputs(self, section: str, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...], extra=()):
        """Operands and their typed formulas: (operands, {name: (formula text, node)})."""
        found: list[Operand] = []
        formulas: dict[str, tuple[str, Node]] = {}
        values = {**self.values(tuple(inputs) + tuple(extra), attributes), **self.lets}
        hidden = self.hidden(attributes)
        hidden |= {name.value: _BELOW for name, _ in self.entries(section) if name.value not in self.meanings}
        all_inputs = len(inputs) == len(self.entries("inputs"))
        for name, body in self.entries(section):
            hidden[name.value] = None  # below it, a mistake in it is none of its users'
            such_as = "such as `T[*shape] = 2 * x`"
            text = self.text(body, f"`{name.value}`", f"write its type, dimensions and formula, {such_as}")
            if not check_identifier(name, "the output's name", self.diagnostics) or text is None:
                continue
            taken = self.meanings.setdefault(name.value, "an output")
            if taken != "an output" or name.value in values:
                self.error(name.place, f"`{name.value}` is {taken} already", "choose another name")
                continue
            self.texts[name.value] = text
            head, _, tail = text.value.partition("=")
            match = OPERAND.fullmatch(head)
            if match is None or not tail.strip():
                help = "such as `T[*shape] = 2 * x`"
                self.error(text.place, f"`{name.value}` is spelled `Type[dimensions] = formula`", help)
                continue
            operand = self.operand(name, text, match)
            dims = operand.dims if operand is not None else ()
            unknown = [dim for dim in dims if dim.name not in self.dims]
            for dim in unknown if all_inputs else ():
                help = suggestion(dim.name, self.dims, f"dimensions: {', '.join(self.dims)}")
                self.error(self.place_of(operand, dim), f"no input has the dimension `{dim.name}`", help)
            starred = operand is not None and self.check_stars(operand)
            formula = _tail(text, len(text.value) - len(tail.lstrip()))
            own = {name.value: "is this output itself: a formula may use those above it"}
            types, computes = self.kinds_of_types(), self.computes if section == "outputs" else frozenset({"float"})
            scope = Scope(values, self.functions, hidden | own, None, types, self.called, computes)
            value = parse(formula, scope, self.diagnostics)
            if operand is None or value is None or unknown or not starred:
                continue
            value = self.fitted(operand, value, formula)
            if value is not None:
                found.append(operand)
                self.formula_places[name.value] = formula.place
                formulas[name.value] = (" ".join(tail.split()), value)
                values[name.value] = self.value_of(operand)
                self.lets_used |= _words(formula) & self.lets.keys()
        before = len(self.diagnostics)
        overs = self.check_over(section, formulas)
        for operand in found if not overs else ():
            if not operand.dims:
                help = "reduce over all dimensions; `T[*shape]` is any number of axes, none too"
                self.error(self.texts[operand.name].place, f"`{operand.name}` has no dimensions", help)
            elif operand.dims != found[0].dims:
                message = f"`{found[0].name}` has other dimensions: `{found[0].signature}`"
                help = "without a reduction, all outputs have the same"
                self.error(self.texts[operand.name].place, message, help)
        if overs and len(self.diagnostics) == before:
            check = self.check_rows if len(overs) == 1 else self.check_stages
            check((*inputs, *extra), found, formulas)
        return tuple(found), formulas

    def check_over(self, section: str, formulas: Mapping[str, tuple[str, Node]]) -> list[str]:
        """What the reductions of a section are over: `d`, `n, d`, `d/group_size`."""
        reductions = [r for _, node in formulas.values() for r in node.reductions()]
        counts = sorted((c for _, node in formulas.values() for c in node.counts()), key=lambda count: count.text)
        over = list(dict.fromkeys(r.text for r in (*reductions, *counts)))
        for count in counts if not reductions else ():
            if "/" in count.text:
                message = f"`{section}:` counts the elements of blocks, and reduces none"
                self.error(count.place or self.place, message, "such a count stands beside a reduction")
            elif count.text != over[0]:
                message = f"`{section}:` counts over `{over[0]}` and over `{count.text}`"
                self.error(count.place or self.place, message, "without a reduction, count over one thing")
        reduced = {r.text for r in reductions}
        for count in counts if reductions else ():
            if count.text not in reduced:
                message = f"`{section}:` reduces over `{over[0]}` and counts over `{count.text}`"
                self.error(count.place or self.place, message, "count over what is reduced over")
        for other in over[1:]:
            if "/" in other or "/" in over[0]:
                place = next(r.place for r in (*reductions, *counts) if r.text == other)
                message = f"`{section}:` reduces over `{over[0]}` and over `{other}`"
                help = "a direction that reduces over blocks reduces over nothing else"
                self.error(place or self.place, message, help)
        name, _, block = over[0].partition("/") if over else ("", "", "")
        if block and self.dims[name].many:
            place = next(r.place for r in (*reductions, *counts) if r.text == over[0])
            self.error(place or self.place, f"`{name}` is any number of axes, blocks are along one")
        return over if reductions else []

    def check_counts(self, program: Program) -> None:
        """Whether a program in stages counts elements only in means, and to say what a reduction of none is: a kernel
        knows what it reduces over itself."""
        found: dict[Node, None] = {}
        for node in program.formulas.values():
            found |= dict.fromkeys(_counts_apart(node))
        for count in found:
            message = "a count that no sum over the same is divided by, where several kernels reduce"
            self.error(count.place or self.place, message, "use `mean`, or divide the sum by the count")

    def check_stages(self, inputs, outputs: list[Operand], formulas: Mapping[str, tuple[str, Node]]) -> None:
        """Whether each output of a section that reduces over several things is one value for each element, or for each
        row of one of its reductions."""
        reductions = [r for _, node in formulas.values() for r in node.reductions()]
        used = set().union(*(node.names() for _, node in formulas.values()))
        space = max((*outputs, *(each for each in inputs if each.name in used)), key=lambda each: len(each.dims))
        overs = {r.text: {*r.text.split(", ")} for r in reductions}
        fitting = [{dim.name for dim in space.dims} - over for over in (set(), *overs.values())]
        for operand in outputs:
            if {dim.name for dim in operand.dims} not in fitting or any(dim.block for dim in operand.dims):
                shown = " and ".join(f"`over={_shown(r)}`" for r in {r.text: r for r in reductions}.values())
                message = f"`{operand.name}: {operand.signature}` is no value for each row of {shown}"
                help = f"an output has the dimensions of `{space.signature}`, or all but those of a reduction"
                self.error(self.texts[operand.name].place, message, help)

    def check_rows(self, inputs, outputs: list[Operand], formulas: Mapping[str, tuple[str, Node]]) -> None:
        """Whether what a section reads and writes is one value a row that it reduces, or one an element."""
        first = next(r for _, node in formulas.values() for r in node.reductions())
        over, _, block = first.text.partition("/")
        names = over.split(", ")
        used = set().union(*(node.names() for _, node in formulas.values()))
        inputs = [each for each in inputs if each.name in used]
        space = max((*outputs, *inputs), key=lambda operand: sum(not dim.block for dim in operand.dims))
        for operand in (*inputs, *outputs):
            shown = f"`{operand.name}: {operand.signature}`"
            dim = next((dim for dim in operand.dims if dim.name in names), None)
            if dim is None or (dim.block is not None and dim.block == block):
                kept = {each.name for each in space.dims} - {*names}
                if operand in outputs and kept - {each.name for each in operand.dims}:
                    message = f"{shown} lacks what `{space.signature}` has beside `over={_shown(first)}`"
                    self.error(self.texts[operand.name].place, message, "an output has one value for each row")
                continue
            place = self.place_of(operand, dim) if operand in outputs else first.place or self.place
            if dim.block is not None:
                message = f"{shown} changes within the rows that `over={_shown(first)}` reduces"
                self.error(place, message, f"reduce over `{dim}`, or declare it without blocks")
            elif operand in outputs and operand.dims != space.dims:
                message = f"{shown} changes along `over={_shown(first)}`, and lacks what `{space.signature}` has"
                self.error(place, message, "an output has all of them, or one value for each row")

    def fitted(self, operand: Operand, value: Node, formula: Text) -> Node | None:
        """The formula as its output's kind and dimensions need it."""
        kind, bits = self.kind_of(operand.element)
        if value.op in CONVERSIONS and kind == INT:
            value = replace(value, text=operand.element, bits=bits)
        elif value.op in CONVERSIONS:
            message = f"`{value.op}` converts to an integer type, `{operand.signature}` holds {_KINDS[kind]}"
            self.error(formula.place, message, "store the formula without it")
            return None
        if kind == REAL:
            value = promote(value)
        if value.kind != kind:
            help = "use `where(condition, 1, 0)`" if value.kind == BOOL else None
            if (kind, value.kind) == (INT, REAL):
                help = "use `round_to_int(x)`"
            message = f"`{operand.signature}` holds {_KINDS[kind]}, the formula gives {_KINDS[value.kind]}"
            self.error(formula.place, message, help)
            return None
        own = {str(dim).lstrip("*") for dim in operand.dims}
        missing = sorted(
            {entry.partition("/")[0] for entry in value.dims - own if entry.partition("/")[0] not in own}
            & self.dims.keys()
        )
        if missing:
            self.error(
                formula.place,
                f"the formula depends on {', '.join(f'`{name}`' for name in missing)}, "
                f"which `{operand.signature}` does not have",
                "add the dimension to the output",
            )
            return None
        return value

    def check_fit(self, operands, attributes, outputs, formulas, requirements) -> None:
        """Whether integer outputs hold every integer that their formulas may give, whatever types the letters are."""
        elements = {operand.name: operand.element for operand in operands}
        elements |= {a.name: a.type for a in attributes if a.type != "size" and not a.names_axes}
        words = {name: self.words(element) for name, element in elements.items() if self.kind_of(element)[0] == INT}
        nodes = {operand.name: formulas[operand.name][1] for operand in outputs if operand.name in words}
        for name, found in misfits(nodes, elements, words, [node for _, node in requirements]).items():
            message = f"the integer may be {found.least} to {found.most}, {found.holds}"
            help = "write `clamp(i, low, high)` to bound it, `saturate(i)` for the nearest integer that fits, or "
            help += "`wrap(i)` for two's complement"
            if found.unordered:
                help = "nothing says that the bounds of `clamp` are in order: add `requires: low <= high` for these"
            self.error(self.formula_places[name], message, help)

    def requirements(self, attributes: tuple[Attribute, ...]) -> tuple[tuple[str, Node], ...]:
        if "requires" not in self.fields:
            return ()
        node = self.fields["requires"]
        found = []
        if isinstance(node, Sequence) and not node.items:
            self.error(node.place, "`requires:` is empty", "write a condition such as `low <= high`, or remove it")
        for item in node.items if isinstance(node, Sequence) else (node,):
            text = self.text(item, "`requires:`", "write a condition such as `low <= high`, or remove it")
            if text is None:
                continue
            hidden = self.hidden(attributes)
            arrays = [name for name, what in self.meanings.items() if what in ("an input", "an output")]
            hidden |= dict.fromkeys(arrays, "is an array, `requires` is about attributes")
            hidden |= dict.fromkeys(self.lets, "is a name of `let:`, `requires` is about attributes")
            values = self.values((), attributes)
            dims = [name for name, value in values.items() if value.kind == DIM]
            hidden = dict.fromkeys(dims, "is a dimension, `requires` is about attributes") | hidden
            scope = Scope({name: values[name] for name in values if name not in dims}, self.functions, hidden)
            value = parse(text, scope, self.diagnostics)
            if value is not None and value.kind != BOOL:
                self.error(text.place, "`requires` needs a condition on attributes", "such as `low <= high`")
            elif value is not None:
                found.append((" ".join(text.value.split()), value))
        return tuple(found)

    def backward(self, kind: str, doc: str, forward: Program) -> Program | None:
        op = forward.operation
        gradients = []
        names = {f"d_{operand.name}" for operand in op.inputs}
        node = self.fields["backward"]
        if not self.entries("backward"):
            return None
        written = {name.value for name, _ in self.entries("backward")}
        for name, _ in self.entries("backward"):
            if name.value not in names:
                left = sorted(names - written) or sorted(names)
                otherwise = f"gradients: {', '.join(left)}" if len(left) > 1 else f"did you mean `{left[0]}`?"
                help = suggestion(name.value, left, otherwise)
                self.error(name.place, f"`{name.value}` is the gradient of no input", help)
        floats = next((o.element for o in self.declared or op.inputs if not self.of_codes(o.element)), "T")
        for operand in op.outputs:  # the gradient of codes flows in the type of the values they came from
            element = floats if self.of_codes(operand.element) else operand.element
            gradients.append(Operand(f"d_{operand.name}", element, operand.dims))
            name, what = f"d_{operand.name}", f"the gradient of `{operand.name}`"
            if self.meanings.setdefault(name, what) != what:
                place = self.texts[name].place if name in self.texts else self.place
                message = f"`{name}` is the name of {what}"
                self.error(self.places.get(name, place), message, "choose another name")
        outputs, formulas = self.outputs("backward", (*op.inputs, *op.outputs), op.attributes, gradients)
        if len(outputs) < len(self.entries("backward")):
            return None
        operands = (*gradients, *op.inputs, *op.outputs, *outputs)
        self.check_fit(operands, op.attributes, outputs, formulas, forward.requirements)
        inputs_by_name = {f"d_{operand.name}": operand for operand in op.inputs}
        for operand in outputs:
            of = inputs_by_name.get(operand.name, operand)
            declared = self.of_codes(of.element)  # the gradient of codes is of the type declared
            if operand.dims != of.dims or (not declared and operand.element != of.element):
                message = f"`{operand.name}` is the gradient of `{of.name}`, which is `{of.signature}`"
                self.error(self.texts[operand.name].place, message, "declare it so")
        used = set().union(*(value.names() for _, value in formulas.values()))
        inputs = tuple(o for o in (*gradients, *op.inputs, *op.outputs) if o.name in used)
        if not inputs or inputs[0] not in gradients:
            message = f"`backward` never uses {' or '.join(f'`{g.name}`' for g in gradients)}"
            self.error(node.place, message, "a gradient is a multiple of the outputs' gradients")
            return None
        whole = {dim.name for operand in inputs for dim in operand.dims if dim.block is None}
        said = self.said(inputs, outputs)
        for operand in outputs:
            for dim in operand.dims:
                if dim.name not in whole | said:
                    message = f"no input of the backward pass has the dimension `{dim.name}`"
                    help = "use an input that has it: the shapes of what a formula uses give its output's"
                    self.error(self.place_of(operand, dim), message, help)
                    return None
        dims = {dim.name for operand in (*inputs, *outputs) for dim in operand.dims}
        blocks = {dim.block for operand in (*inputs, *outputs) for dim in operand.dims}
        checks = tuple(r for r in forward.requirements if r[1].names() & used)
        wanted = used | blocks | {name for r in checks for name in r[1].names()}
        attributes = tuple(a for a in op.attributes if a.name in wanted or (a.axis_of in dims))
        program = self.program(Direction.BACKWARD, kind, doc, inputs, outputs, attributes, checks, formulas)
        made = {operand.name for operand in (*gradients, *op.outputs)}
        letters = {a.type for a in attributes} | {o.element for o in (*inputs, *outputs)}
        needed = self.needed(letters | {*program.operation.analysis.asks_of})
        operation = replace(
            program.operation,
            same=self.same(op, outputs),
            types={letter: words for letter, words in program.operation.types.items() if letter in needed},
            element_fields={letter: f for letter, f in op.element_fields.items() if letter in needed},
        )
        return replace(program, operation=analysed(operation, keeps=_keeping(operation, made)))

    def same(self, op: Operation, outputs: tuple[Operand, ...]) -> tuple[tuple[str, str], ...]:
        """The gradients that are others, and those of inputs that are declared constant."""
        made = {operand.name: operand for operand in outputs}
        inputs = {f"d_{operand.name}": operand for operand in op.inputs}
        found = []
        for name, text in self.same_gradients():
            other = text.value.strip()
            if name.value not in inputs:
                help = suggestion(name.value, sorted(inputs.keys() - made), f"gradients: {', '.join(sorted(inputs))}")
                self.error(name.place, f"`{name.value}` is the gradient of no input", help)
            elif other == CONSTANT:
                found.append((name.value, ""))
            elif other not in made:
                help = suggestion(other, sorted(made), f"gradients with a formula: {', '.join(sorted(made))}")
                self.error(text.place, f"`{other}` is no gradient that a formula makes", help)
            elif (inputs[other].element, inputs[other].dims) != (inputs[name.value].element, inputs[name.value].dims):
                message = f"`{name.value}` is the gradient of `{inputs[name.value].signature}`, `{other}` of "
                self.error(text.place, f"{message}`{inputs[other].signature}`", "give it a formula of its own")
            else:
                found.append((name.value, other))
        return tuple(found)

    def differentiable(self) -> dict[str, tuple[str, ...]]:
        """The types of a backward pass: of a letter that C follows the floats alone."""
        floats = lambda words: tuple(word for word in words if DTYPES[word].kind == "float")  # noqa: E731
        return {letter: floats(words) if letter == self.mixed else words for letter, words in self.shown.items()}

    def said(self, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> set[str]:
        """The dimensions of which a call says how long they are (`shape=`): those of an output that has all that there
        are. Of inputs that may be packed, `shape=` is another shape."""
        widest = max((*outputs, *inputs), key=lambda operand: sum(not dim.block for dim in operand.dims))
        packed = any(DTYPES[word].packed for operand in inputs for word in self.words(operand.element))
        return {dim.name for dim in widest.dims} if widest in outputs and not packed else set()

    def program(self, direction, kind, doc, inputs, outputs, attributes, requirements, formulas) -> Program:
        called = {FUNCTIONS[name] for _, node in formulas.values() for name in node.intrinsics()}
        exact = all(intrinsic.exact or intrinsic.common for intrinsic in called)
        names = [attribute.name for attribute in attributes]
        used = set().union(*(node.names() for _, node in formulas.values()))
        reductions = [reduction for _, node in formulas.values() for reduction in node.reductions()]
        over = {reduction.text for reduction in reductions}
        counted = {count.text for _, node in formulas.values() for count in node.counts()} if not over else set()
        operation = Operation(
            name=self.name.value,
            category=kind.partition(".")[0],
            direction=direction,
            doc=doc,
            types=self.shown if direction is Direction.FORWARD else self.differentiable(),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            attributes=tuple(attributes),
            requirements=tuple(
                Requirement(text, tuple(name for name in names if name in node.names()), _never)
                for text, node in requirements
            ),
            element_fields=self.element_fields((*inputs, *outputs)),
            source=f"{self.name.value}.cu",
            analysis=Analysis(
                exact=exact,
                attributes=tuple(name for name in names if name in used),
                over=Over.of(*over) if len(over) == 1 else None,
                whole=whole_dims([node for _, node in formulas.values()]),
                partial=partial_results({name: node for name, (_, node) in formulas.items()}),
                counted=Over.of(counted.pop()).dims if counted else (),
                chained=bool(used & formulas.keys()),
                asks_of=tuple(sorted(set().union(*(node.types() for _, node in formulas.values())))),
                converts=any(node.op in CONVERSIONS for _, node in formulas.values()),
            ),
        )
        if direction is Direction.FORWARD:
            self.check_letters(operation)
            operation = analysed(operation, keeps=_keeping(operation, {operand.name for operand in outputs}))
        program = Program(
            operation,
            {name: node for name, (_, node) in formulas.items()},
            {name: self.with_lets(text) for name, (text, _) in formulas.items()},
            tuple(requirements),
            self.called | {node: name for name, node in self.lets.items() if node.args},
        )
        operation = analysed(operation, of_some=program.of_some)
        whole = analysed(
            operation, split=program.split_reductions, reductions=len(program.reductions), updated=program.updated
        )
        program = replace(program, operation=whole)
        if not is_staged(program):
            found = analysed(whole, stack=saved_of(program), alternative=alternative_stages(program))
            return replace(program, operation=found)
        self.check_counts(program)
        program = replace(program, operation=analysed(operation, stages=1))
        return replace(program, operation=analysed(operation, stages=len(stages(program))))

    def with_lets(self, formula: str) -> str:
        """A formula's text with the lines of `let:` that it needs."""
        absent = {operand.name: value for operand, value in self.absent.items()}
        formula = spelled(formula, absent)
        needed: list[str] = []
        for name in reversed(self.lets):
            text = spelled(" ".join(self.texts[name].value.split()), absent)
            if any(re.search(rf"\b{name}\b", each) for each in (formula, *needed)):
                needed.insert(0, f"{name} = {text}")
        return formula + "".join(f", {'where' if not i else 'and'} {line}" for i, line in enumerate(needed))

    def check_letters(self, operation: Operation) -> None:
        shown = {operand.element for operand in operation.inputs}
        hidden = [letter for letter in self.shown if letter not in shown]
        unnamed = [letter for letter in hidden if letter not in operation.asked]
        if unnamed:
            self.error(
                self.place,
                f"no input shows the types {' and '.join(hidden)}; `dtype=` can name only one of them",
                "another may be that of an output: `scale_dtype=` names the type of an output `scale`",
            )
        for letter, keyword in operation.asked.items():
            if keyword in self.meanings:
                message = f"`{keyword}` is {self.meanings[keyword]}, and would name the type {letter}"
                self.error(self.place, message, "choose another name")
        if not any(operand.dims == operation.space for operand in operation.inputs):
            self.error(
                self.place,
                "no input has the dimensions of the output",
                "one input gives the output its shape",
            )

    def element_fields(self, operands: tuple[Operand, ...]) -> dict[str, str]:
        first = {}
        for operand in operands:
            if operand.element in self.types:
                first.setdefault(operand.element, f"{operand.name}_element")
        for letter in self.shown:
            first.setdefault(letter, f"{letter.lower()}_element")
        if len(first) == 1:
            return {letter: "element" for letter in first}
        return first


def _between(operand: Operand) -> str | None:
    """The dimension between an operand's two `*names`, or the second of these where there is none."""
    stars = [index for index, dim in enumerate(operand.dims) if dim.many]
    return operand.dims[stars[0] + 1].name if len(stars) == 2 else None


def _keeping(op: Operation, names: Collection[str]) -> tuple[str, ...]:
    """Those of some operands that lack the axes which a call names, and have all others."""
    if not op.chooses_axes:
        return ()
    return tuple(operand.name for operand in op.operands if operand.name in names and operand.dims == op.space[:-1])


def _shown(reduction: Node) -> str:
    """What a reduction is over, as a formula spells it."""
    return f"({reduction.text})" if "," in reduction.text else reduction.text


def _words(text: Text) -> set[str]:
    return set(re.findall(r"[a-z]\w*", text.value))


def _tail(text: Text, start: int) -> Text:
    """The text from an offset on, whose characters keep their places."""
    return Text(text.value[start:], text.at(start, max(len(text.value) - start, 1)), text.spots[start:])


def _never(**_) -> bool:
    raise AssertionError("a requirement is evaluated by the generated plan")


def _counts_apart(node: Node) -> Iterator[Node]:
    """The counts in a value that a stage might need without reducing over the same."""
    if node.op == COUNT:
        yield node
        return
    args = node.args
    if node.op == "/" and args[0].op.startswith(REDUCE) and (args[1].op, args[1].text) == (COUNT, args[0].text):
        args = args[:1]
    over = {reduction.text for reduction in args[2].reductions()} if node.guard is not None else set()
    if over and over == {node.guard.text} and not args[1].names():
        args = args[2:]
    for argument in args:
        yield from _counts_apart(argument)
