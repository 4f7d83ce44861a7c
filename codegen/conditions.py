"""Under which conditions the values of a row are wanted, where a call decides: conditions on attributes and scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from skuda.codegen.nodes import BOOL, REDUCE, Node


@dataclass(frozen=True)
class Guard:
    """A condition that is the same for a whole call, and what it has to be."""

    condition: Node
    holds: bool

    @property
    def wanted(self) -> Node:
        """The condition, or its opposite."""
        return self.condition if self.holds else Node("not", (self.condition,), BOOL)


def guards_of(formulas: Iterable[Node], uniform: Callable[[Node], bool]) -> dict[Node, frozenset[Guard]]:
    """The reductions that are not always wanted, with what holds wherever they are.

    What is inside of a reduction is wanted wherever that is, so that it is known before.

    Args:
        formulas: of the outputs.
        uniform: whether a condition is the same for a whole call.
    """
    found: dict[Node, frozenset[Guard]] = {}
    seen: set[tuple[Node, frozenset[Guard], bool]] = set()

    def visit(node: Node, under: frozenset[Guard], reduced: bool) -> None:
        if (node, under, reduced) in seen:
            return
        seen.add((node, under, reduced))
        if node.op.startswith(REDUCE):
            found[node] = found.get(node, under) & under
            reduced = True
        if node.op == "where" and not reduced and uniform(node.args[0]):
            condition, one, other = node.args
            visit(one, under | {Guard(condition, True)}, reduced)
            visit(other, under | {Guard(condition, False)}, reduced)
            return
        for argument in node.args:
            visit(argument, under, reduced)

    for node in formulas:
        visit(node, frozenset(), False)
    return {node: under for node, under in found.items() if under}
