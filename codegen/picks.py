"""What picks one element of a row: a reduction of values of which all but one count for nothing.

`sum(where(position(v) == target, e, 0), over=v)` is e of the element that `target` names, or 0 where it names none. A
kernel reads that element alone. Its bits are those of the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from skuda.codegen.nodes import INT, PLACED, REAL, REDUCE, Node
from skuda.model.operation import Operation, Over

_NOTHING = {"sum": 0.0, "prod": 1.0}  # what an element that is not picked has to be


@dataclass(frozen=True)
class Picked:
    """A reduction that picks one element.

    Attributes:
        reduction: the reduction.
        index: of the element along the row.
        value: of it; None where only whether there is one is asked.
        nothing: what the reduction is where there is none; None where that is false.
    """

    reduction: Node
    index: Node
    value: Node | None
    nothing: Node | None

    @property
    def adds(self) -> bool:
        """Whether the value is added to a zero, which a row of one element has not."""
        return self.reduction.op == f"{REDUCE}sum" and self.reduction.kind == REAL


def picked(reduction: Node) -> Picked | None:
    """What a reduction picks; None where it does not."""
    over = Over.of(reduction.text)
    how, each = reduction.op.removeprefix(REDUCE), reduction.args[0]
    value = nothing = None
    if over.block or reduction.is_scan:
        return None
    if how in _NOTHING and each.op == "where":
        each, value, nothing = each.args
        if nothing.op != "number" or nothing.text.startswith("-") or float(nothing.text) != _NOTHING[how]:
            return None
    elif how != "any":
        return None
    if each.op != "==" or (value is not None and value.reductions()):
        return None
    for place, index in (each.args, each.args[::-1]):
        if _is_place(place, over) and index.kind == INT and not index.dims & {*over.dims} and not index.reductions():
            return Picked(reduction, index, value, nothing)
    return None


def picks_of(operation: Operation, reductions: Iterable[Node]) -> dict[Node, Picked]:
    """The reductions of an operation that kernels read one element for.

    What can be reduced in splits is not: parts of a row know their own elements alone. Nor are elements of 4 bits
    picked, nor those of scans, whose kernels read rows in other ways.
    """
    analysis = operation.analysis
    if analysis.split or analysis.scans or operation.of_alternative:
        return {}
    packed = {o.name for o in operation.read if operation.may_be_packed(o.element)}
    found = {each: picked(each) for each in reductions}
    return {each: of for each, of in found.items() if of and not (of.value and of.value.names() & packed)}


def _is_place(node: Node, over: Over) -> bool:
    """Whether a value is the index of the element along the row."""
    return node.op == "name" and node.text.startswith(PLACED) and node.dims == {*over.dims}

