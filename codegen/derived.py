"""`backward: derived`: the section that a row then has, as if a person had written it.

A row whose outputs are floats and that says nothing of its gradients has derived ones, if they can be derived;
`backward: none` says that it has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skuda.codegen.declarations import CONSTANT, DERIVED, LET, NONE
from skuda.codegen.derivatives import GRADIENT, Forward, NotDifferentiable, gradients
from skuda.codegen.derived_text import texts
from skuda.codegen.diagnostics import Diagnostics, Place, suggestion
from skuda.codegen.forms import of_backward
from skuda.codegen.nodes import REAL, Function, Node
from skuda.codegen.yaml_tree import Mapping, Text
from skuda.model.operation import Operand

if TYPE_CHECKING:
    from skuda.codegen.program import Program, Row
    from skuda.codegen.row_reader import RowReader

# What reading a section leaves in its reader.
_STATE = ("meanings", "texts", "formula_places", "lets", "lets_used", "called")


def is_asked(reader: RowReader) -> bool:
    """Whether a row says of its gradients, or a form of those that it has, anything but that there are none."""
    node = reader.fields["backward"]
    if isinstance(node, Text) and node.value.strip() == NONE:
        return False
    return not reader.absent or is_whole(reader) or bool(reader.entries("backward"))


def is_whole(reader: RowReader) -> bool:
    """Whether a row says that all of its gradients are derived."""
    node = reader.fields["backward"]
    return isinstance(node, Text) and node.value.strip() == DERIVED


def as_said(reader: RowReader, kind: str, doc: str, forward: Program) -> Program | None:
    """The backward pass of a row that has a section `backward:`."""
    node = reader.fields["backward"]
    whole = is_whole(reader)
    if isinstance(node, Text) and node.value.strip() and not whole:
        message = f"`backward:` needs the gradients, `{DERIVED}` or `{NONE}`, this is `{node.value.strip()}`"
        help = suggestion(node.value.strip(), (DERIVED, NONE), reader.such_as("`backward:`"))
        reader.error(node.place, message, help)
        return None
    entries = node.entries if isinstance(node, Mapping) else ()
    asked = [(name, body) for name, body in entries if isinstance(body, Text) and body.value.strip() == DERIVED]
    if not whole and not asked:
        return reader.backward(kind, doc, forward)
    place = node.place if whole else asked[0][1].place
    inputs = {GRADIENT + operand.name: operand for operand in forward.operation.inputs}
    wanted = _differentiable(reader, forward) if whole else []
    for name, body in asked:
        if name.value not in inputs and reader.absent:
            continue
        if name.value not in inputs:
            help = suggestion(name.value, inputs, f"gradients: {', '.join(sorted(inputs))}")
            reader.error(name.place, f"`{name.value}` is the gradient of no input", help)
            return None
        if not _is_real(reader, inputs[name.value]):
            message = (
                f"`{name.value[len(GRADIENT) :]}: {inputs[name.value].signature}` holds no reals, and has no derivative"
            )
            reader.error(body.place, message, _declare(inputs[name.value]))
            return None
        if name.value.removeprefix(GRADIENT) in _dividing(reader):
            message = f"`{name.value.removeprefix(GRADIENT)}` is in what the mean divides by"
            reader.error(body.place, message, _declare(inputs[name.value]))
            return None
        wanted.append(inputs[name.value])
    if not wanted and asked:
        return reader.backward(kind, doc, forward) if reader.entries("backward") else None
    try:
        made = _section(reader, forward, tuple(wanted), place)
    except NotDifferentiable as error:
        reader.error(error.place or place, error.message, _declare(*wanted[:1]))
        return None
    own = {name.value: (name, body) for name, body in made.entries}
    if not whole:
        said = [entry for entry in entries if entry[0].value != LET]
        kept = [(name, own[name.value][1] if name.value in own else body) for name, body in said]
        lets = [*_lets(node), *_lets(made)]
        first = [(Text(LET, place), Mapping(tuple(lets), place))] if lets else []
        made = Mapping((*first, *kept), node.place)
    elif all(isinstance(body, Text) and body.value == CONSTANT for _, body in made.entries):
        reader.error(place, "the derivative of every output is 0 for every input", "write `backward: none`")
        return None
    return _read(reader, kind, doc, forward, made, place)


def by_default(reader: RowReader, kind: str, doc: str, forward: Program) -> Program | None:
    """The backward pass of a row that says nothing of it: derived for the inputs for which it can be made; None where
    there are none, or where the derivative of something does not exist."""
    if forward.operation.creates:
        return None  # no array of its inputs has a gradient
    wanted = _differentiable(reader, forward)
    try:
        found = _tried(reader, kind, doc, forward, wanted)
        if found is None and len(wanted) > 1:
            able: list[Operand] = []
            for each in wanted:
                if _tried(reader, kind, doc, forward, [*able, each], keep=False) is not None:
                    able.append(each)
            found = _tried(reader, kind, doc, forward, able) if able else None
    except NotDifferentiable:
        return None
    return found


def in_all_forms(row: Row) -> Row:
    """A row whose gradients are derived by default, if it and each form that needs gradients of its own have them; else
    the row without gradients."""
    of_words = (row, *row.chosen.values())
    lacking = any(form.backward is None for first, form in row.forms.items() if first in of_backward(row))
    lacking = lacking or any(form.backward is None for form in of_words)
    if not lacking or not any(form.by_default for form in of_words):
        return row
    return _without_backward(row)


def _without_backward(row: Row) -> Row:
    forms = {first: replace(form, backward=None) for first, form in row.forms.items()}
    chosen = {word: _without_backward(form) for word, form in row.chosen.items()}
    return replace(row, backward=None, forms=forms, chosen=chosen, by_default=False)


def _tried(
    reader: RowReader, kind: str, doc: str, forward: Program, wanted: Sequence[Operand], keep: bool = True
) -> Program | None:
    """The backward pass with some derived gradients, or None where the language cannot say it. What it leaves in the
    reader is kept or not."""
    section = _section(reader, forward, tuple(wanted), reader.place)
    before = {name: getattr(reader, name).copy() for name in _STATE}
    fields, diagnostics = reader.fields, reader.diagnostics
    reader.diagnostics = Diagnostics(diagnostics.file_name, "")
    reader.error = reader.diagnostics.error
    reader.fields = {**fields, "backward": section}
    try:
        found = reader.backward(kind, doc, forward) if reader.entries("backward") else None
    except RecursionError:  # a gradient is deeper than its formula
        found = None
    found = None if len(reader.diagnostics) else found
    reader.diagnostics, reader.error, reader.fields = diagnostics, diagnostics.error, fields
    if found is None or not keep:
        for name, value in before.items():
            setattr(reader, name, value)
    return found


class _Mistakes(Diagnostics):
    """Mistakes in a section of which a part is derived: at the places of that part in the words of its author."""

    def __init__(self, others: Diagnostics, place: Place, help: str):
        super().__init__(others.file_name, "")
        self.others, self.derived_at, self.help = others, place, help

    def error(self, place: Place, message: str, help: str | None = None) -> None:
        if (place.line, place.column) == (self.derived_at.line, self.derived_at.column):
            place, message, help = self.derived_at, f"the gradient that is derived cannot be made: {message}", self.help
        super().error(place, message, help)
        self.others.error(place, message, help)


def _read(reader: RowReader, kind: str, doc: str, forward: Program, section: Mapping, place: Place) -> Program | None:
    """The backward pass of a section, as if it stood in the row."""
    diagnostics, fields, lets = reader.diagnostics, reader.fields, reader.lets.copy()
    reader.diagnostics = _Mistakes(diagnostics, place, _declare(*_differentiable(reader, forward)[:1]))
    reader.error = reader.diagnostics.error
    reader.fields = {**fields, "backward": section}
    try:
        found = reader.backward(kind, doc, forward)
    except RecursionError:
        found = None
        reader.error(place, "the formula is too deep")
    reader.diagnostics, reader.error, reader.fields = diagnostics, diagnostics.error, fields
    if found is None:
        reader.lets = lets
    return found


def _declare(operand: Operand | None = None) -> str:
    """What to do where nothing can be derived."""
    such_as = f", such as `{GRADIENT}{operand.name}: {operand.signature} = ...`" if operand is not None else ""
    return f"declare the gradient{such_as}"


def _lets(section: Mapping) -> tuple:
    """The names that a section has of its own."""
    return next((body.entries for name, body in section.entries if name.value == LET), ())


def _is_real(reader: RowReader, operand: Operand) -> bool:
    return reader.kind_of(operand.element)[0] == REAL and not reader.of_codes(operand.element)


def _differentiable(reader: RowReader, forward: Program) -> list[Operand]:
    """The inputs that have a gradient, but for those that a mean divides by."""
    return [o for o in forward.operation.inputs if _is_real(reader, o) and o.name not in _dividing(reader)]


def _dividing(reader: RowReader) -> set[str]:
    """The inputs of which the weights are made that the row's mean divides by: what is derived is of an element."""
    by = reader.choice.by if reader.choice is not None else ""
    return reader.lets[by].names() if by in reader.lets else set()


def _section(reader: RowReader, forward: Program, wanted: tuple[Operand, ...], place: Place) -> Mapping:
    """What `derived` stands for.

    Raises:
        NotDifferentiable: there is no derivative.
    """
    operation = forward.operation
    for operand in operation.outputs:
        if not _is_real(reader, operand):
            message = f"`{operand.name}: {operand.signature}` holds no reals, and has no derivative"
            raise NotDifferentiable(place, message)
    space = frozenset(str(dim).lstrip("*") for dim in operation.space)
    dims = [*reader.values((), ())]
    try:
        outputs, values = operation.outputs, forward.formulas
        if reader.how:  # of an element: `backward` knows what share of a mean's gradient it has
            outputs = tuple(reader.elements)
            values = {operand.name: value for operand, value in reader.elements.items()}
        found = gradients(Forward(outputs, values, wanted, dims, _functions(), space, reader.readable))
    except RecursionError:
        raise NotDifferentiable(place, "the formula is too deep for a gradient to be derived") from None
    signatures = {GRADIENT + operand.name: operand.signature for operand in wanted}
    formulas, same = _distinct({GRADIENT + name: node for name, node in found.items() if node is not None}, signatures)
    known = {node: name for name, node in reader.lets.items() if node.args}
    taken = {*reader.meanings, *reader.dims, *reader.lets, *(GRADIENT + o.name for o in operation.operands)}
    lets, written = texts(formulas, known, reader.called, taken)
    entries = {name: f"{signatures[name]} = {text}" for name, text in written.items()}
    entries |= same
    entries |= {GRADIENT + name: CONSTANT for name, node in found.items() if node is None}
    own = Mapping(tuple((Text(name, place), _placed(text, place)) for name, text in lets.items()), place)
    first = [(Text(LET, place), own)] if lets else []
    return Mapping((*first, *((Text(name, place), _placed(text, place)) for name, text in entries.items())), place)


def _distinct(formulas: dict[str, Node], signatures: dict[str, str]) -> tuple[dict[str, Node], dict[str, str]]:
    """The gradients that differ, and those that are others above them."""
    first: dict[tuple[Node, str], str] = {}
    owner = {name: first.setdefault((node, signatures[name]), name) for name, node in formulas.items()}
    distinct = {name: node for name, node in formulas.items() if owner[name] == name}
    return distinct, {name: other for name, other in owner.items() if name != other}


def _functions() -> dict[str, Function]:
    """What rules may call, whatever a spec calls its own functions."""
    from skuda.codegen.spec import library  # which reads rows

    return library()


def _placed(text: str, place: Place) -> Text:
    """A text that stands at a place as a whole."""
    return Text(text, place, ((place.line, place.column),) * (len(text) + 1))
