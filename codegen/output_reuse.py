"""Gradients that read outputs: what an output has computed already is not computed again.

An output that is a factor of a product is named there, also where part of that product stands before a sum: with
`output = e / s`, `e * sum(g * e, over=d) / s / s` is `output * sum(g * output, over=d)`. Of an output that has a
logarithm in it, exponentials are products too: with `output = x - log(s)`, `exp(x) / s` is `exp(output)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skuda.codegen import algebra
from skuda.codegen.algebra import Term, product, rebuilt, summands, written
from skuda.codegen.intrinsics import TRANSCENDENTAL
from skuda.codegen.nodes import REAL, REDUCE, Node

_COSTLY = TRANSCENDENTAL | {"sqrt"}


def reading_outputs(terms: Iterable[Term], outputs: Mapping[str, Node]) -> Node:
    """A sum of products as a formula that names some outputs where they are parts of it.

    Args:
        terms: the sum.
        outputs: formulas of outputs, by their names.
    """
    costly = {name: node for name, node in outputs.items() if _is_costly(node)}
    reader = _Reader({Node("name", (), REAL, node.dims, text=name): node for name, node in costly.items()})
    return written(reader.term(term) for term in algebra.collected(terms))


def _is_costly(node: Node) -> bool:
    return any(part.op in _COSTLY or part.op.startswith(REDUCE) for part in node.parts())


class _Reader:
    def __init__(self, outputs: Mapping[Node, Node]):
        self.named = {node: name for name, node in outputs.items()}
        self.products = {name: product(node) for name, node in outputs.items()}
        self.sums = {name: _parts_of(node) for name, node in outputs.items()}
        self.known: dict[Node, Node] = {}

    def node(self, node: Node) -> Node:
        """A value that names outputs."""
        if node in self.named:
            return self.named[node]
        if node not in self.known:
            self.known[node] = self.made(node)
        return self.known[node]

    def made(self, node: Node) -> Node:
        if node.kind == REAL and node.op in ("*", "/", "neg"):
            before = product(node)
            if node not in before.powers and before.number != 0:  # 0 * x keeps the NaN of x
                term = self.term(before)
                return node if term.key == before.key else written([term])
        changed = rebuilt(node, self.node)
        if changed is node or node.kind != REAL or node.op not in ("+", "-"):
            return changed
        return written(summands(changed))

    def term(self, term: Term) -> Term:
        """A product that names outputs."""
        if not self.named:
            return term
        term = self.exponentials(term)
        for name, own in self.products.items():
            term = self.factored(term, name, own)
        made = Term(term.number)
        for node, power in term.powers.items():
            made = made * Term(1, {self.node(node): power})
        return made

    def factored(self, term: Term, name: Node, own: Term) -> Term:
        """A product in which an output's factors are the output, also those before and in a sum."""
        if own.number != 1 or len(own.powers) < 2:
            return term
        while _divides(own, term):
            term = term.over(own.powers) * Term(1, {name: 1})
        for node, power in [*term.powers.items()]:
            if node.op != REDUCE + "sum" or power != 1:
                continue
            inside = product(node.args[0])
            before = {each: own.powers[each] for each in own.powers
                      if own.powers[each] * term.powers.get(each, 0) > 0 and not each.dims & _along(node)}  # fmt: skip
            if before and _divides(own, inside * Term(1, before)):
                inner = (inside * Term(1, before)).over(own.powers) * Term(1, {name: 1})
                term = term.over({node: 1, **before}) * Term(inner.number, {
                    algebra.total(written([Term(1, inner.powers)]), node.text): 1})  # fmt: skip
        return term

    def exponentials(self, term: Term) -> Term:
        """A product in which an exponential and a divisor are the exponential of an output, or of a difference from
        it."""
        for node in [each for each, power in term.powers.items() if each.op == "exp" and power == 1]:
            for name, parts in self.sums.items():
                for log, sign in parts.items():
                    if log.op != "log" or abs(sign) != 1 or term.powers.get(log.args[0], 0) >= 0:
                        continue
                    exponent = _parts_of(node.args[0])
                    rest = _without(exponent | {log: exponent.get(log, 0) - 1}, parts, -sign)
                    if len(rest) < len(exponent):
                        terms = [Term(number, {each: 1}) for each, number in rest.items()]
                        value = written([*terms, Term(-sign, {name: 1})])
                        return term.over({node: 1, log.args[0]: -1}) * Term(1, {_exp(value): 1})
        return term


def _exp(value: Node) -> Node:
    return Node("exp", (value,), REAL, value.dims)


def _along(reduction: Node) -> frozenset[str]:
    names = reduction.text.partition("/")[0] if "/" in reduction.text else reduction.text
    return frozenset(names.split(", "))


def _divides(one: Term, other: Term) -> bool:
    """Whether all factors of a product are factors of another."""
    return all(power * (other.powers.get(node, 0) - power) >= 0 and other.powers.get(node, 0) * power > 0
               for node, power in one.powers.items())  # fmt: skip


def _parts_of(node: Node) -> dict[Node, int | float]:
    """A sum as numbers of its parts; empty where it is none of these."""
    found: dict[Node, int | float] = {}
    for term in summands(node):
        if len(term.powers) != 1 or [*term.powers.values()] != [1]:
            return {node: 1}
        (part,) = term.powers
        found[part] = found.get(part, 0) + term.number
    return found


def _without(one: Mapping[Node, float], other: Mapping[Node, float], times: float) -> dict[Node, float]:
    """A sum less a multiple of another."""
    found = {part: one.get(part, 0) - times * other.get(part, 0) for part in {**one, **other}}
    return {part: value for part, value in found.items() if value}
