"""The formulas of a row: those of its names, outputs, gradients and requirements, checked against what it declares."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from skuda.codegen.attributes import REDUCERS
from skuda.codegen.declarations import OPERAND, Declarations
from skuda.codegen.diagnostics import Diagnostics, Place, suggestion
from skuda.codegen.expr import parse
from skuda.codegen.intrinsics import CONVERSIONS
from skuda.codegen.names import check_identifier
from skuda.codegen.nodes import BOOL, CHOOSE, DIM, INT, POSITION, REAL, REDUCE, Function, Node, Scope, promote
from skuda.codegen.ranges import misfits
from skuda.codegen.reductions import COUNT, MEAN, REDUCTIONS
from skuda.codegen.syntax import said_by
from skuda.codegen.yaml_tree import Sequence, Text
from skuda.model.operation import Attribute, Dim, Operand

_BELOW = "is an output that stands below: a formula may use those above it"
_KINDS = {REAL: "reals", INT: "integers", BOOL: "booleans"}


class Formulas(Declarations):
    """Reads the formulas of a row.

    Args:
        diagnostics: takes the row's mistakes.
        name: of the row.
        fields: its sections, by their names.
        functions: the spec's functions.
        broken_functions: names of functions whose mistakes have been reported: calls of them are none.
        absent: of a form of the row, the operands that it lacks and their numbers.
        declared: of a form, the inputs of the row.
        word: of a form, that of the row's choice; empty for the default.

    Attributes:
        let_entries: the lines of `let:`; `lets`: what their names stand for; `lets_used`: those that a formula names.
        called: values of functions, with the names of these.
        elements: of a row with a choice, the outputs as the row spells them.
        formula_places: where the formula of each output stands.
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
        word: str = "",
    ):
        super().__init__(diagnostics, name, fields, absent, declared, word)
        self.functions = functions
        self.broken_functions = broken_functions
        self.lets: dict[str, Node] = {}
        self.called: dict[Node, str] = {}
        self.lets_used: set[str] = set()
        self.formula_places: dict[str, Place] = {}
        self.let_entries: tuple[tuple[Text, object], ...] = ()
        self.elements: dict[Operand, Node] = {}
        # The outputs that a derived gradient may read; None: all. A form is called as the row is: it reads no others.
        self.readable: frozenset[str] | None = None

    def hidden(self, attributes: tuple[Attribute, ...]) -> dict[str, str | None]:
        """Names that the row or the file declares and that have no value in a formula: see Scope."""
        names_of_let = [name.value for name, _ in self.let_entries]
        hidden: dict[str, str | None] = dict.fromkeys([*self.broken_functions, *self.places, *names_of_let])
        for name, _ in self.entries("outputs") if "outputs" in self.fields else ():
            hidden.setdefault(name.value, _BELOW)
        for attribute in attributes:
            if attribute.type == "size" or attribute.names_axes:
                hidden[attribute.name] = f"is of type {attribute.type}, it has no value in a formula"
        if self.choice is not None:
            hidden[self.choice.name] = "chooses a form of the row, it has no value in a formula"
            if self.choice.of_formulas:
                each = ", ".join(f"{word}=..." for word in self.choice.words)
                hidden[self.choice.name] += f" but in `{CHOOSE}({self.choice.name}, {each})`"
        return hidden

    @property
    def said_choice(self) -> tuple:
        """The choice, as a Scope has it."""
        if self.choice is None or not self.choice.of_formulas or CHOOSE in self.functions:
            return ()
        return self.choice.name, self.choice.words, self.chosen_word

    def read_lets(self, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...], entries) -> dict[str, Node]:
        """What the names under `let:` stand for, each in terms of inputs and attributes, and of those known already."""
        found: dict[str, Node] = {}
        hidden = self.hidden(attributes)
        types = self.kinds_of_types()
        computes = self.computes if entries is self.let_entries else frozenset({"float"})  # gradients are floats
        below = "is a name of `let:` that stands below: a formula may use those above it"
        hidden |= {name.value: below for name, _ in entries if name.value not in self.places}
        for name, body in entries:
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
            values = {**self.values(inputs, attributes), **self.lets, **found}
            own = {name.value: "is this formula's own name"}
            scope = Scope(values, self.functions, hidden | own, None, types, self.called, computes, self.said_choice)
            value = parse(text, scope, self.diagnostics)
            if value is not None:
                found[name.value] = value
                self.lets_used |= _words(text) & (found.keys() | self.lets.keys())
        return found

    def outputs(self, section: str, inputs: tuple[Operand, ...], attributes: tuple[Attribute, ...], extra=()):
        """Operands and their typed formulas: (operands, {name: (formula text, node)})."""
        found: list[Operand] = []
        formulas: dict[str, tuple[str, Node]] = {}
        values = {**self.values(tuple(inputs) + tuple(extra), attributes), **self.lets}
        hidden = self.hidden(attributes)
        hidden |= {name.value: _BELOW for name, _ in self.entries(section) if name.value not in self.meanings}
        types, computes = self.kinds_of_types(), self.computes if section == "outputs" else frozenset({"float"})
        all_inputs = len(inputs) == len(self.entries("inputs") if "inputs" in self.fields else ())
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
            if section == "outputs" and operand is not None:
                own = [dim for dim in dims if dim.name not in self.dims]
                creates = all(each.scalar for each in inputs)
                counted = {d.name: d for d in own if creates or d.size is not None or _counts_along(d, tail)}
                self.dims |= counted  # which the row or a call says the length of
                values |= {name: Node("name", (), DIM, frozenset({name}), text=name) for name in counted}
            unknown = [dim for dim in dims if dim.name not in self.dims]
            for dim in unknown if all_inputs else ():
                help = suggestion(dim.name, self.dims, f"dimensions: {', '.join(self.dims)}")
                self.error(self.place_of(operand, dim), f"no input has the dimension `{dim.name}`", help)
            starred = operand is not None and self.check_stars(operand)
            formula = _tail(text, len(text.value) - len(tail.lstrip()))
            own = {name.value: "is this output itself: a formula may use those above it"}
            scope = Scope(values, self.functions, hidden | own, None, types, self.called, computes, self.said_choice)
            value = parse(formula, scope, self.diagnostics)
            if operand is None or value is None or unknown or not starred:
                continue
            if self.choice is not None and self.choice.reduces and section == "outputs":
                self.elements[operand] = value
                if not operand.dims or len(self.elements) > 1:
                    message = f"`{operand.name}: {operand.signature}` is one value, which has no mean"
                    if operand.dims:
                        message = f"`{operand.name}` is a second output of a row with `{self.choice.name}`"
                    help = f"`{self.choice.name}` is of the elements of one output, as they are spelled"
                    self.error(self.texts[name.value].place, message, help)
                    continue
                operand, value, tail = self.reduced(operand, value, tail.strip(), formula.place)
                if value is None:
                    continue
            value = self.fitted(operand, value, formula)
            if value is not None:
                found.append(operand)
                self.formula_places[name.value] = formula.place
                formulas[name.value] = (said_by(" ".join(tail.split()), self.said_choice), value)
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

    def reduced(
        self, operand: Operand, value: Node, text: str, place: Place
    ) -> tuple[Operand, Node | None, str]:
        """An output as the row's choice has it: its elements, or their mean or sum."""
        by = self.choice.by
        if by and not self.check_weights(operand, by):
            return operand, None, text
        if self.how not in REDUCERS:
            return operand, value, text
        over = spelled(over_all(operand))
        divisor = self.divisor(operand)[1]

        def how(each: str) -> str:
            total = f"sum({each}, over={over})"
            weighted = f"where({divisor} == 0, nan, {total} / {divisor})"
            return weighted if by and self.how == MEAN else f"{self.how}({each}, over={over})"

        value = self.of_all(how(operand.name), {operand.name: value}, place)
        return replace(operand, dims=()), value, how(text)

    def of_all(self, formula: str, values: Mapping[str, Node], place: Place) -> Node | None:
        """A formula over dimensions, some values and the names of `let:`."""
        dims = {name: known for name, known in self.values((), ()).items() if known.kind == DIM}
        known = {name: promote(value) for name, value in (self.lets | {**values}).items()}
        return parse(_all_at(formula, place), Scope({**dims, **known}, {}), self.diagnostics)

    def divisor(self, operand: Operand) -> tuple[Node | None, str]:
        """What the mean of an output's elements divides by, and how a formula spells it."""
        over = spelled(over_all(operand))
        text = f"sum({self.choice.by}, over={over})" if self.choice.by else f"{COUNT}(over={over})"
        return self.of_all(text, {}, self.places[self.choice.name]), text

    def check_weights(self, operand: Operand, by: str) -> bool:
        """Whether the weights of a mean are a name of `let:` with a number for each element of the output."""
        value, place = self.lets.get(by), self.places[self.choice.name]
        self.lets_used.add(by)
        if value is None:
            help = suggestion(by, self.lets, "such as `let: {weight: where(target == ignore_index, 0, 1)}`")
            self.error(place, f"`{by}` is no name of `let:`", help)
        elif value.kind == BOOL or value.dims != {str(dim).lstrip("*") for dim in operand.dims}:
            message = f"`{by}` is no number for each element of `{operand.name}: {operand.signature}`"
            self.error(place, message, "a mean divides by the sum of the elements' weights")
        else:
            return True
        return False

    def fitted(self, operand: Operand, value: Node, formula: Text) -> Node | None:
        """The formula as its output's kind and dimensions need it."""
        kind, bits = self.kind_of(operand.element)
        if value.op in CONVERSIONS and kind == value.kind:
            value = replace(value, text=operand.element, bits=bits if kind == INT else 0)
        elif value.op in CONVERSIONS:
            to = "an integer" if value.kind == INT else "a float"
            message = f"`{value.op}` converts to {to} type, `{operand.signature}` holds {_KINDS[kind]}"
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

    def check_over(self, section: str, formulas: Mapping[str, tuple[str, Node]]) -> list[str]:
        """What the reductions of a section are over: `d`, `n, d`, `d/group_size`."""
        reductions = [r for _, node in formulas.values() for r in node.reductions()]
        counts = sorted((c for _, node in formulas.values() for c in node.counts()), key=lambda count: count.text)
        over = list(dict.fromkeys(r.text for r in (*reductions, *counts)))
        self.check_scans(section, list(dict.fromkeys(reductions)))
        for count in counts if not reductions else ():
            if "/" in count.text:
                message = f"`{section}:` counts the elements of blocks, and reduces none"
                self.error(count.place or self.place, message, "such a count stands beside a reduction")
            elif count.text != over[0]:
                message = f"`{section}:` counts over `{over[0]}` and over `{count.text}`"
                self.error(count.place or self.place, message, "without a reduction, count over one thing")
        reduced = {r.text for r in reductions}
        apart = {count.text for count in counts} - reduced
        over = [text for text in over if text in reduced or not reduced]
        for count in counts if reductions else ():
            if count.text in apart and (len(apart) > 1 or len(reduced) > 1 or "/" in "".join(apart | reduced)):
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

    def check_scans(self, section: str, reductions: list[Node]) -> None:
        """Whether a section that scans is kernels of scans alone, along the same dimensions."""
        scans = [each for each in reductions if each.is_scan]
        if not scans:
            return
        for other in reductions:
            row = REDUCTIONS[other.op.removeprefix(REDUCE)]
            message = ""
            if not other.is_scan:
                message = f"`{section}:` scans, and reduces with `{row.name}`"
                help = "a direction that scans has no reductions: give their values as an input"
            elif other.text != scans[0].text:
                message = f"`{section}:` scans along `{scans[0].text}` and along `{other.text}`"
                help = "the scans of a direction run along the same dimensions"
            if message:
                self.error(other.place or self.place, message, help)
                return

    def check_stages(self, inputs, outputs: list[Operand], formulas: Mapping[str, tuple[str, Node]]) -> None:
        """Whether each output of a section that reduces over several things is one value for each element, or for each
        row of one of its reductions."""
        reductions = [r for _, node in formulas.values() for r in node.reductions()]
        used = set().union(*(node.names() for _, node in formulas.values()))
        space = max((*outputs, *(each for each in inputs if each.name in used)), key=lambda each: len(each.dims))
        overs = {r.text: {*r.text.split(", ")} for r in reductions}
        nested = [{*r.text.split(", ")}.union(*(overs[i.text] for i in r.args[0].reductions())) for r in reductions]
        fitting = [{dim.name for dim in space.dims} - over for over in (set(), *overs.values(), *nested)]
        fitting += [{*r.dims} for r in reductions if r.args[0].reductions()]
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
            own = {each.name for each in operand.dims}
            beyond = {other: {each.name for each in other.dims} - own for other in (space, *outputs, *inputs)}
            if dim is None or (dim.block is not None and dim.block == block):
                wider = next((other for other, dims in beyond.items() if dims - {*names}), None)
                if operand in outputs and wider is not None:
                    message = f"{shown} lacks what `{wider.signature}` has beside `over={_shown(first)}`"
                    self.error(self.texts[operand.name].place, message, "an output has one value for each row")
                continue
            place = self.place_of(operand, dim) if operand in outputs else first.place or self.place
            if dim.block is not None:
                message = f"{shown} changes within the rows that `over={_shown(first)}` reduces"
                self.error(place, message, f"reduce over `{dim}`, or declare it without blocks")
            elif operand in outputs and (operand.dims != space.dims or any(beyond.values())):
                wider = next((other for other, dims in beyond.items() if dims), space)
                message = f"{shown} changes along `over={_shown(first)}`, and lacks what `{wider.signature}` has"
                self.error(place, message, "an output has all of them, or one value for each row")

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


def over_all(operand: Operand) -> str:
    """What a reduction of all elements of an operand is over."""
    return ", ".join(dim.name for dim in operand.dims)


def spelled(over: str) -> str:
    """What a reduction is over, as a formula spells it."""
    return f"({over})" if "," in over else over


def _shown(reduction: Node) -> str:
    return spelled(reduction.text)


def _counts_along(dim: Dim, formula: str) -> bool:
    """Whether a formula asks for the position along a dimension."""
    return dim.block is None and bool(re.search(rf"\b{POSITION}\(\(?[^()]*\b{dim.name}\b", formula))


def _words(text: Text) -> set[str]:
    return set(re.findall(r"[a-z]\w*", text.value))


def _all_at(text: str, place: Place) -> Text:
    """A text whose mistakes are all at one place."""
    return Text(text, place, ((place.line, place.column),) * (len(text) + 1))


def _tail(text: Text, start: int) -> Text:
    """The text from an offset on, whose characters keep their places."""
    return Text(text.value[start:], text.at(start, max(len(text.value) - start, 1)), text.spots[start:])
