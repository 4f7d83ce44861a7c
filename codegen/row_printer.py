"""C++ of what is computed for each element of a row, and what a row knows of its elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skuda.codegen.cuda import CudaPrinter
from skuda.codegen.lowering import Lowering, Site
from skuda.codegen.nodes import BOOL, REAL, Node
from skuda.codegen.row_values import Wanted, finite_name


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

    def __init__(self, each: Mapping[str, str], ranges_of: Mapping[Node, Range]):
        super().__init__(each)
        self.ranges_of = ranges_of

    site = Site.ROW
    usual = "usual_"

    def ranged(self, node: Node) -> bool:
        return node in self.ranges_of

    def known(self, rule: Lowering, found: dict[str, Node]) -> tuple[Node, ...]:
        return self.ranges_of[found[rule.ranged]].parts if rule.ranged else ()
