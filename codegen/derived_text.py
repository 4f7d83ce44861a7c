"""Derived gradients as a person would write them: formulas in the language of a row, with names for what they share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from keyword import kwlist

from skuda.codegen.intrinsics import CONSTANTS, CONVERSIONS, INTRINSICS, TRANSCENDENTAL
from skuda.codegen.names import IDENTIFIER, RESERVED
from skuda.codegen.nodes import DIM, PAIR, POSITION, REDUCE, SMALLEST, Node
from skuda.codegen.operators import OPERATORS
from skuda.codegen.printers import Printer
from skuda.codegen.reductions import COUNT, MEAN, REDUCTION_NAMES, REDUCTIONS, SCAN_NAMES, Repeated, Scan
from skuda.codegen.value_names import UniqueNames, default_name

_STEMS = {"+": "total", REDUCE + "sum": "total", REDUCE + "prod": "product"}
_STEMS |= {REDUCE + "max": "largest", REDUCE + "min": "smallest"}
_STEMS |= {REDUCE + name: "threshold" for name, row in REDUCTIONS.items() if isinstance(row, Repeated)}
_STEMS |= {REDUCE + name: "scanned" for name, row in REDUCTIONS.items() if isinstance(row, Scan)}
_LEAST = 4  # operations that are worth a name


class FormulaPrinter(Printer):
    """A formula in the language of rows: what is read of its text is the same tree.

    Args:
        names: values that have names.
    """

    spelled = {"neg": "-", "not": "not "}
    pair = "{0}, {1}"

    def __init__(self, names: Mapping[Node, str] | None = None):
        self.names = names or {}

    def text(self, node: Node, outer: int = 0) -> str:
        return self.names[node] if node in self.names else super().text(node, outer)

    def written(self, node: Node, own: int) -> str:
        if node.op == "/" and node.args[0].op == REDUCE + "sum" and node.args[0] not in self.names:
            of, count = node.args
            if (count.op, count.text) == (COUNT, of.text):
                return f"{MEAN}({self.text(of.args[0])}, over={_over(of)})"
        if node.op in INTRINSICS or node.op in CONVERSIONS:
            return f"{node.op}({', '.join(map(self.text, node.args))})"
        if node.op in OPERATORS:
            texts = [f"({self.text(each)})" if each.args else self.text(each) for each in node.args]
            return f"({node.op}{texts[0]})" if len(texts) == 1 else f"({texts[0]} {node.op} {texts[1]})"
        return super().written(node, own)

    def number(self, node: Node) -> str:
        return node.text

    def name(self, node: Node) -> str:
        return node.spelled

    def reduction(self, node: Node) -> str:
        return REDUCTIONS[node.op.removeprefix(REDUCE)].call(self.text(node.args[0]), _over(node))

    def count(self, node: Node) -> str:
        return f"{COUNT}(over={_over(node)})"

    def smallest(self, node: Node) -> str:
        return f"{SMALLEST}({node.text})"


def _over(node: Node) -> str:
    return f"({node.text})" if "," in node.text else node.text


def texts(
    formulas: Mapping[str, Node], known: Mapping[Node, str], called: Mapping[Node, str], taken: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The formulas as texts, and the names that they share values by.

    Args:
        formulas: by the names of gradients.
        known: values that names of the row's `let:` stand for.
        called: values that functions of the spec make, with the names of these functions.
        taken: names that mean something else.

    Returns:
        Texts of values by new names, each of which uses names above it; texts of the formulas.
    """
    shared = _shared(formulas.values(), known)
    words = {*RESERVED, *kwlist, *INTRINSICS, *CONVERSIONS, *REDUCTION_NAMES, *SCAN_NAMES, *CONSTANTS}
    words |= {COUNT, SMALLEST, POSITION}
    unique = UniqueNames({*taken, *words})
    names = dict(known)
    found: dict[str, str] = {}
    for node in shared:
        stem = called.get(node) or _STEMS.get(node.op) or default_name(node.op)
        stem = stem if IDENTIFIER.fullmatch(stem) else "condition"
        name = unique.new(f"{stem}_value" if stem in words else stem)
        found[name] = FormulaPrinter(names).text(node)
        names[node] = name
    return found, {name: FormulaPrinter(names).text(node) for name, node in formulas.items()}


def _shared(formulas: Iterable[Node], known: Mapping[Node, str]) -> list[Node]:
    """The values that are used in several places and cost something, each after those that it is made of."""
    users: dict[Node, int] = {}
    order: list[Node] = []

    def visit(node: Node) -> None:
        users[node] = users.get(node, 0) + 1 if node.kind != PAIR else 1
        if users[node] > 1 or node in known:
            return
        for argument in node.args:
            visit(argument)
        order.append(node)

    for formula in formulas:
        visit(formula)
    return [node for node in order if users[node] > 1 and node.kind != DIM and _cost(node) >= _LEAST]


def _cost(node: Node) -> int:
    """Roughly, how much a reader would have to read twice."""
    own = _LEAST if node.op.startswith(REDUCE) or node.op in TRANSCENDENTAL else 1 if node.args else 0
    return own + sum(map(_cost, node.args))
