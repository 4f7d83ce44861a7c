"""Sums of products, in which derivatives are collected, simplified and written again as formulas.

A product keeps what it is a product of apart, so that equal factors meet: `x * x / x` is x. A sum of the forward
formula is one factor and is never multiplied out: `g * (b - a)` loses no digits that `g * b - g * a` would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import copysign, inf, isfinite

from skuda.codegen.nodes import REAL, REDUCE, Node
from skuda.codegen.reductions import COUNT

GRADIENT = "d_"  # before the name of what an operand is the gradient of


@dataclass(frozen=True)
class Term:
    """A product: a number, and powers of values (negative ones divide)."""

    number: int | float = 1
    powers: Mapping[Node, int] = field(default_factory=dict)

    def __mul__(self, other: Term) -> Term:
        powers = dict(self.powers)
        for node, power in other.powers.items():
            powers[node] = powers.get(node, 0) + power
        return Term(self.number * other.number, {node: power for node, power in powers.items() if power})

    def over(self, other: Mapping[Node, int]) -> Term:
        """The term divided by powers of values."""
        return self * Term(1, {node: -power for node, power in other.items()})

    @property
    def key(self) -> frozenset:
        """What is the same of two terms that differ in their numbers alone."""
        return frozenset(self.powers.items())

    @property
    def dims(self) -> frozenset[str]:
        """The dimensions that it depends on."""
        return frozenset().union(*(node.dims for node in self.powers))


def number(value: int | float) -> Node:
    """A number as a real. What is beyond a double is infinite, as it is where formulas are computed."""
    if abs(value) >= 2**53:
        value = float(value) if abs(value) < 2**1000 else copysign(inf, value)
    text = str(int(value)) if abs(value) < 2**53 and value == int(value) else repr(value)
    return Node("number", (), REAL, text=text)


def binary(sign: str, left: Node, right: Node) -> Node:
    """An operation of two reals."""
    return Node(sign, (left, right), REAL, left.dims | right.dims)


def negative(node: Node) -> Node:
    """A value with the other sign."""
    return node.args[0] if node.op == "neg" else Node("neg", (node,), REAL, node.dims)


def counted(names: str) -> Node:
    """The number of elements along dimensions."""
    return Node(COUNT, (), REAL, text=names)


def product(node: Node) -> Term:
    """A value as a product."""
    if node.kind == REAL and node.op in ("*", "/"):
        left, right = map(product, node.args)
        if node.op == "*":
            return left * right
        if right.number != 0:
            quotient = left.number / right.number
            whole = isinstance(left.number, int) and isinstance(right.number, int) and left.number % right.number == 0
            return Term(left.number // right.number if whole else quotient, left.powers).over(right.powers)
    if node.kind == REAL and node.op == "neg":
        return Term(-1) * product(node.args[0])
    if node.op == "number" and node.kind == REAL and isfinite(float(node.text)):
        return Term(float(node.text) if not node.text.lstrip("-").isdigit() else int(node.text))
    return Term(1, {node: 1})


def summands(node: Node) -> list[Term]:
    """A value as a sum of products."""
    if node.kind == REAL and node.op in ("+", "-"):
        left, right = node.args
        sign = Term(1 if node.op == "+" else -1)
        return [*summands(left), *(sign * term for term in summands(right))]
    if node.kind == REAL and node.op == "neg":
        return [Term(-1) * term for term in summands(node.args[0])]
    return [product(node)]


def collected(terms: Iterable[Term]) -> list[Term]:
    """A sum in which terms that differ in their numbers alone are one; those of 0 are gone."""
    found: dict[frozenset, Term] = {}
    for term in terms:
        before = found.get(term.key)
        found[term.key] = Term(term.number + (before.number if before else 0), before.powers if before else term.powers)
    return [term for term in found.values() if term.number != 0]


def common(terms: Sequence[Term]) -> Term:
    """The factors that all terms have."""
    first, *rest = terms
    powers = dict(first.powers)
    for term in rest:
        for node, power in [*powers.items()]:
            other = term.powers.get(node, 0)
            least = min(power, other) if power > 0 else max(power, other)
            if least * power <= 0:
                del powers[node]
            else:
                powers[node] = least
    magnitudes = {abs(term.number) for term in terms}
    return Term(magnitudes.pop() if len(magnitudes) == 1 else 1, powers)


def written(terms: Iterable[Term]) -> Node:
    """A sum of products as a formula: common factors once, what is positive first."""
    terms = collected(terms)
    if not terms:
        return number(0)
    if len(terms) == 1:
        return _signed(terms[0])
    shared = common(terms)
    if shared.powers or shared.number != 1:
        signs = shared.number != 1  # all magnitudes are the common one
        rest = written(
            Term((term.number > 0) * 2 - 1 if signs else term.number, term.powers).over(shared.powers) for term in terms
        )
        return _signed(shared * Term(1, {rest: 1}))
    terms.sort(key=lambda term: term.number < 0)
    first, *others = terms
    total = _signed(first)
    for term in others:
        total = binary("-" if term.number < 0 else "+", total, _positive(Term(abs(term.number), term.powers)))
    return total


def _signed(term: Term) -> Node:
    value = _positive(Term(abs(term.number), term.powers))
    if term.number >= 0:
        return value
    if value.op == "number":
        return number(-float(value.text))
    return Node("neg", (value,), REAL, value.dims)


def _positive(term: Term) -> Node:
    """A product as a formula. What fewer dimensions have is multiplied first, in parentheses of its own: it is computed
    once for all elements that share it."""
    dims = term.dims
    shared = {node: power for node, power in term.powers.items() if node.dims != dims and (node.args or not node.dims)}
    own = {node: power for node, power in term.powers.items() if node not in shared}
    if not any(power > 0 for power in shared.values()) or not any(power > 0 for power in own.values()):
        shared, own = {}, dict(term.powers)
    factors = _repeated(own, 1)
    inner = _repeated(shared, 1)
    if term.number != 1 or not factors:
        (inner if inner else factors).insert(0, number(term.number))
    if inner:
        factors.append(_quotient(inner, _repeated(shared, -1)))
    return _quotient(factors, _repeated(own, -1))


def _repeated(powers: Mapping[Node, int], sign: int) -> list[Node]:
    """The factors, or divisors, of a product; a mean is a sum that is divided by a count first."""
    found = [node for node, power in powers.items() for _ in range(max(sign * power, 0))]
    return sorted(found, key=lambda node: node.op != COUNT) if sign < 0 else _sums_first(found)


def _sums_first(factors: list[Node]) -> list[Node]:
    return sorted(factors, key=lambda node: node.op != REDUCE + "sum")


def _quotient(factors: Sequence[Node], divisors: Sequence[Node]) -> Node:
    """A product divided by one value after the other. A sum that is divided by the count of its own elements is a
    mean."""
    factors, divisors = list(factors), list(divisors)
    masked = next((factor for factor in factors if _is_masked(factor)), None)
    if masked is not None and len(factors) + len(divisors) > 1:
        condition, value, other = masked.args
        factors.remove(masked)
        inside = _quotient([value, *factors] if value.op != "number" else [*factors, value], divisors)
        return Node("where", (condition, inside, other), REAL, masked.dims | inside.dims)
    for index, factor in enumerate(factors):
        count = counted(factor.text)
        if factor.op == REDUCE + "sum" and count in divisors:
            divisors.remove(count)
            factors[index] = binary("/", factor, count)
    value, *others = factors
    for factor in others:
        value = binary("*", value, factor)
    for divisor in divisors:
        value = binary("/", value, divisor)
    return value


def _is_masked(node: Node) -> bool:
    """Whether a value is a gradient where a condition holds, and 0 elsewhere: a product with what may be infinite
    there is one under the same condition."""
    if node.op != "where" or node.args[2].op != "number" or float(node.args[2].text) != 0:
        return False
    return any(part.op == "name" and part.text.startswith(GRADIENT) for part in node.args[1].parts())


def rebuilt(node: Node, by: Callable[[Node], Node]) -> Node:
    """A value with other arguments, and the dimensions that follow."""
    args = tuple(map(by, node.args))
    if args == node.args:
        return node
    dims = frozenset().union(*(argument.dims for argument in args))
    return _of_what_is_left(Node(node.op, args, node.kind, dims, node.bits, node.text, node.place))


def _of_what_is_left(node: Node) -> Node:
    """A reduction without the dimensions that it is over."""
    if not node.op.startswith(REDUCE) or node.is_scan:
        return node
    block = "/" in node.text
    names = {node.text.partition("/")[0]} if block else {*node.text.split(", ")}
    dims = frozenset(each for each in node.dims if each.partition("/")[0] not in names)
    return replace(node, dims=dims | ({node.text} if block else set()))


def substituted(node: Node, values: Mapping[Node, Node]) -> Node:
    """A value with others in place of some of its parts."""
    if node in values:
        return values[node]
    return rebuilt(node, lambda argument: substituted(argument, values))


def total(value: Node, over: str) -> Node:
    """The sum of a value over dimensions, or over blocks."""
    return _of_what_is_left(Node(REDUCE + "sum", (value,), REAL, value.dims, text=over))
