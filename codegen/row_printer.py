"""C++ of what is computed for each element of a row, and what a row knows of its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skuda.codegen.cuda import CudaPrinter
from skuda.codegen.lowering import Lowering
from skuda.codegen.nodes import BOOL, REAL, Node
from skuda.codegen.row_values import Wanted, finite_name

_SMALL = 16  # bits of an integer, its sign among them, that is small for RowSteps


@dataclass(frozen=True)
class Range:
    """What a row knows of a value of its elements: between which two all that are finite lie, and whether all are."""

    smallest: Node
    greatest: Node
    finite: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """What a constructor is told of it: without the smallest, where that is the greatest's negative."""
        symmetric = self.smallest == Node("neg", (self.greatest,), REAL)
        return (self.greatest, self.finite) if symmetric else (self.smallest, self.greatest, self.finite)


def known_ranges(reduced: Sequence[Wanted]) -> dict[Node, Range]:
    """What reductions tell of the values that they are of."""
    by_class = {(value.how, value.node): value.name for value in reduced}
    found: dict[Node, Range] = {}

    def name(text: str, kind: str = REAL) -> Node:
        return Node("name", (), kind, text=text)

    for (how, node), reduction in by_class.items():
        finite = name(finite_name(reduction), BOOL)
        if how == "LargestMagnitude":
            found[node] = Range(Node("neg", (name(reduction),), REAL), name(reduction), finite)
        smallest = by_class.get(("SmallestFinite", node))
        if how == "LargestFinite" and smallest:
            both = Node("and", (name(finite_name(smallest), BOOL), finite), BOOL)
            found[node] = Range(name(smallest), name(reduction), both)
    return found


class RowPrinter(CudaPrinter):
    """C++ of what is computed for each element of a row: in quick forms first, which say where they do not hold.

    Args:
        each: as in CudaPrinter.
        ranges_of: of values of an element.
    """

    usual = "usual_"  # what becomes false where a quick form does not hold

    def __init__(self, each: Mapping[str, str], ranges_of: Mapping[Node, Range]):
        super().__init__(each)
        self.ranges_of = ranges_of

    def written(self, node: Node, own: int) -> str:
        if (power := _logistic_power(node)) is not None:
            x = node.args[0]
            return f"logistic_quotient<FAST, {self.each[x.text]}>({self.text(x)}, {self.text(power)}, {self.usual})"
        if node.op == "exp" or (node.op == "/" and node.kind == REAL):
            arguments = ", ".join(self.text(argument) for argument in node.args)
            return f"row_{'exponential' if node.op == 'exp' else 'quotient'}<FAST>({arguments}, {self.usual})"
        return super().written(node, own)

    def prepared(self, rule: Lowering, found: dict[str, Node], *elements: str) -> str:
        if rule.holder == "Steps" and found[rule.each] in self.ranges_of and rule.method != "inside":
            known = self.ranges_of[found[rule.each]]
            made_of = (*(found[name] for name in rule.once), *known.parts)
            arguments = ", ".join(self.once.text(node) for node in made_of)
            taken = sum(key[0] == "RowSteps" for key in self.members)
            name = self.member_name(f"steps_in_range_{taken + 1}" if taken else "steps_in_range")
            varying = found[rule.each]
            element = self.each[varying.text] if varying.op == "name" else "C"
            small = all(found[bound].bits <= _SMALL for bound in ("low", "high"))
            type = f"RowSteps<C, {element}, {str(small).lower()}>"
            member = self.member(("RowSteps", element, *made_of), type, name, arguments, prepared=True)
            return f"{member}.template {rule.method}<FAST>({self.text(varying)}, {self.usual})"
        text = super().prepared(rule, found, *elements)
        if rule.method != "quotient":
            return text
        divisor, dividend = text.partition(".")[0], found[rule.each]
        element = self.each.get(dividend.text, "C") if dividend.op == "name" else "C"
        return f"quotient_of<FAST, {element}>({self.text(dividend)}, {divisor}, {self.usual})"


def _logistic_power(node: Node) -> Node | None:
    """The u of x / (1 + exp(u)), where x is an operand's element that is finite if u is.

    Sums and products with what is not finite are not finite.
    """

    def keeps(part: Node) -> bool:
        if part.op == "name":
            return part.kind == REAL
        return part.op in ("number", "+", "-", "*", "neg") and all(map(keeps, part.args))

    if node.op != "/" or node.kind != REAL or node.args[0].op != "name" or node.args[1].op != "+":
        return None
    x, (one, raised) = node.args[0], node.args[1].args
    if one.op != "number" or float(one.text) != 1 or raised.op != "exp":
        return None
    power = raised.args[0]
    return power if keeps(power) and x.text in power.names() else None
