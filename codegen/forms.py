"""Forms of a row: the operations that it becomes where some of its optional inputs are left out, and for each word of
a choice.

`bias: W[*d] = 0` is an optional input. A call leaves out one and those after it, and for each of them the row has a
form: an operation of its own without these operands, whose formulas have their numbers in their place. What such a
number does not change is not computed: neither a sum with 0, nor a product with 1, nor a gradient of what is not there.

`reduction: reduction = mean` is a choice among three words. The row itself is the form of the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from skuda.codegen.diagnostics import Place
from skuda.codegen.nodes import INT, REAL, Node, promote
from skuda.model.operation import AS, FORM
from skuda.model.sku import Direction

if TYPE_CHECKING:
    from skuda.codegen.program import Program, Row

_ABSENT = Place(0, 0)  # of a number that stands for an absent operand


def number_of(value: int | float, kind: str) -> Node:
    """What stands for an absent operand in formulas, a real or an integer."""
    magnitude = abs(value)
    bits = magnitude.bit_length() + 1 if isinstance(value, int) else 0
    node = Node("number", (), INT if isinstance(value, int) else REAL, bits=bits, text=repr(magnitude), place=_ABSENT)
    node = promote(node) if kind == REAL else node
    return node if value == magnitude else Node("neg", (node,), kind, bits=bits and bits + 1)


def unchanged(sign: str, left: Node, right: Node) -> Node | None:
    """The operand that a sum or a product with an absent one leaves as it is; None where it is computed.

    A floating sum with 0 makes +0 of -0, and this does not: what is absent is not added.
    """
    neutral = {"+": 0, "-": 0, "*": 1, "/": 1}[sign]
    if _is_absent(right, neutral):
        return left
    return right if sign in "+*" and _is_absent(left, neutral) else None


def converted(name: str, values: Sequence[Node]) -> Node | None:
    """An absent integer as a real, where an intrinsic would convert it; else None."""
    is_absent = name == "to_real" and values[0].op == "number" and values[0].place is _ABSENT
    return promote(values[0]) if is_absent else None


def alike(name: str, values: Sequence[Node]) -> Node | None:
    """An absent operand between which and the same number an intrinsic chooses, by whatever condition; else None."""
    if name != "where":
        return None
    _, a, b = values
    numbers = a.op == b.op == "number" and float(a.text) == float(b.text)
    return next((each for each in (a, b) if each.place is _ABSENT), None) if numbers else None


def reduced(name: str, value: Node) -> Node | None:
    """An absent operand that a reduction leaves as it is, over whatever elements; else None."""
    same = value.op == "number" and value.place is _ABSENT and name in ("mean", "min", "max")
    neutral = {"prod": 1, "sum": 0}.get(name)
    return value if same or (neutral is not None and _is_absent(value, neutral)) else None


def _is_absent(node: Node, value: int) -> bool:
    return node.op == "number" and node.place is _ABSENT and float(node.text) == value


def suffixes(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What may be left out together: as with arguments of Python, one input and those after it."""
    for index in range(len(names)):
        yield tuple(names[index:])


def form_name(row: str, absent: Sequence[str]) -> str:
    """`layer_norm_without_weight_and_bias`."""
    return row + FORM + "_and_".join(absent)


def chosen_name(row: str, word: str) -> str:
    """`mse_loss_as_sum`."""
    return row + AS + word


def of_backward(row: Row) -> tuple[str, ...]:
    """The optional inputs without which the backward pass is another one: it reads them, or makes their gradients."""
    if row.backward is None:
        return ()
    operation = row.backward.operation
    names = {operand.name for operand in operation.inputs}
    names |= {operand.name.removeprefix("d_") for operand in operation.outputs}
    return tuple(name for name in row.optional if name in names)


def linked(rows: Sequence[Row]) -> list[Row]:
    """Rows whose operations know their forms. A form that is another row of the file is that row, and has no kernels
    of its own."""
    plain = [row for row in rows if not row.optional and row.choice is None]
    return [_chosen(_linked(row, plain), plain) for row in rows]


def _chosen(row: Row, plain: Sequence[Row]) -> Row:
    """A row with a choice, whose operations know what it chooses."""
    if row.choice is None:
        return row
    others = {word: next((other for other in plain if same(form, other)), None) for word, form in row.chosen.items()}
    forms = tuple((word, others[word].name if others.get(word) else name) for word, name in row.choice.forms)
    choice = row.choice.but(forms=forms)

    def with_choice(program: Program) -> Program:
        return replace(program, operation=replace(program.operation, choice=choice))

    chosen = {word: _linked(form, ()) for word, form in row.chosen.items() if others[word] is None}
    backward = row.backward and with_choice(row.backward)
    return replace(row, forward=with_choice(row.forward), backward=backward, choice=choice, chosen=chosen)


def _linked(row: Row, plain: Sequence[Row]) -> Row:
    if not row.optional:
        return row
    forms = {first: next((other for other in plain if same(form, other)), form) for first, form in row.forms.items()}

    def with_forms(program: Program, names: Sequence[str]) -> Program:
        backward = program.operation.direction is Direction.BACKWARD
        modules = tuple((name, forms[name].name) for name in names if not backward or forms[name].backward is not None)
        optional = tuple((name, row.optional[name]) for name in names)
        return replace(program, operation=replace(program.operation, optional=optional, forms=modules))

    forward = with_forms(row.forward, tuple(row.optional))
    backward = row.backward and with_forms(row.backward, of_backward(row))
    own = {first: form for first, form in forms.items() if form is row.forms[first]}
    return replace(row, forward=forward, backward=backward, forms=own)


def same(form: Row, other: Row) -> bool:
    """Whether another row has the programs of a form: operands, types, attributes and formulas."""
    pairs = [(form.forward, other.forward)]
    if form.backward is not None:
        pairs.append((form.backward, other.backward))
    return all(b is not None and _meaning(a) == _meaning(b) for a, b in pairs)


def _meaning(program: Program) -> tuple:
    operation = program.operation
    conditions = tuple(node for _, node in program.requirements)
    return (
        operation.types, operation.inputs, operation.outputs, operation.attributes, conditions,
        operation.analysis.exact, list(program.formulas.items()),
    )  # fmt: skip


def spelled(formula: str, absent: Mapping[str, int | float | str]) -> str:
    """A formula's text with the numbers of what is absent, or the texts of what stands for something else."""
    for name, value in absent.items():
        number = f"({value})" if not isinstance(value, str) and value < 0 else str(value)
        formula = re.sub(rf"\b{name}\b(?!\s*\()", number, formula)
    return formula
