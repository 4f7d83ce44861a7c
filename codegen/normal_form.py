"""Whether two formulas are equal as mathematics, whatever their order of operations.

A formula is multiplied out to a sum of products of powers of what cannot be taken apart. Equal forms mean equal values
where all steps are exact and finite; formulas with other forms may be equal nevertheless.
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from math import isfinite

from skuda.codegen.nodes import BOOL, REDUCE, Node
from skuda.codegen.reductions import COUNT

_MOST = 3_000  # products in a form
_LARGEST_POWER = 16  # that is multiplied out
_HALF = Fraction(1, 2)

# A product: powers of parts, each (what it is, the dimensions that it depends on). A form: products and their numbers.
Part = tuple[Hashable, frozenset[str]]
Product = frozenset
Form = dict[Product, Fraction]


class TooLong(Exception):
    """The formula has too many products to be compared."""


def equal(one: Node, other: Node) -> bool:
    """Whether the forms of two formulas are the same; False too where they are too long to tell."""
    try:
        return _Forms().close(one, other)
    except TooLong:
        return False


def is_zero(node: Node) -> bool:
    """Whether the form of a formula is 0."""
    try:
        return not _rounded(_Forms().of(node))
    except TooLong:
        return False


def clamped_mean(node: Node) -> Node | None:
    """The mean of `clamp(mean(x), min(x), max(x))`, which is that mean but for its rounding; else None."""
    if node.op != "clamp":
        return None
    mean, low, high = node.args
    if mean.op != "/" or mean.args[0].op != REDUCE + "sum" or mean.args[1].op != COUNT:
        return None
    of = mean.args[0]
    same = of.text == mean.args[1].text and all((each.args, each.text) == (of.args, of.text) for each in (low, high))
    return mean if same and (low.op, high.op) == (REDUCE + "min", REDUCE + "max") else None


def logistic_quotient(node: Node) -> tuple[Node, Node] | None:
    """Of `x / (1 + exp(-u))`, which is x times sigmoid(u), x and -u; else None."""
    if node.op != "/" or node.args[1].op != "+":
        return None
    one, rising = node.args[1].args
    logistic = rising.op == "exp" and one.op == "number" and float(one.text) == 1
    return (node.args[0], rising.args[0]) if logistic else None


def _rounded(form: Form) -> Form:
    """A form without what the rounding of its numbers leaves."""
    return {each: value for each, value in form.items() if abs(value) > Fraction(1, 10**9)}


class _Forms:
    def __init__(self) -> None:
        self.known: dict[Node, Form] = {}

    def close(self, one: Node, other: Node) -> bool:
        return not _rounded(_added(self.of(one), self.of(other), -1))

    def of(self, node: Node) -> Form:
        if node not in self.known:
            self.known[node] = self.made(node)
        return self.known[node]

    def made(self, node: Node) -> Form:
        if node.op == "number" and isfinite(float(node.text)):
            value = Fraction(node.text)
            return {Product(): value} if value else {}
        if node.op in ("+", "-"):
            return _added(self.of(node.args[0]), self.of(node.args[1]), 1 if node.op == "+" else -1)
        if node.op == "neg":
            return _added({}, self.of(node.args[0]), -1)
        if node.op == "*":
            return _multiplied(self.of(node.args[0]), self.of(node.args[1]))
        if node.op == "/":
            return _multiplied(self.of(node.args[0]), _power(self.of(node.args[1]), Fraction(-1)))
        if node.op in ("sqrt", "rsqrt"):
            return _power(self.of(node.args[0]), _HALF if node.op == "sqrt" else -_HALF)
        if node.op in ("stored", "to_real"):
            return self.of(node.args[0])
        if node.op == "exp":
            return self.exponential(self.of(node.args[0]))
        if node.op == "sigmoid":
            falling = self.exponential(_added({}, self.of(node.args[0]), -1))
            return _power(_added({Product(): Fraction(1)}, falling, 1), Fraction(-1))
        if node.op == "abs":
            return _multiplied(self.of(node.args[0]), _part(("sign", self.key(node.args[0])), node.dims))
        if node.op == "where":
            return self.chosen(node)
        if node.op == "gelu_slope":
            return self.gelu_slope(node.args[0])
        if node.op == REDUCE + "sum":
            return self.summed(node)
        mean = clamped_mean(node)
        return self.of(mean) if mean is not None else _part(self.own_key(node), node.dims)

    def chosen(self, node: Node) -> Form:
        if node.guard is not None:
            return self.of(node.args[2])
        condition = _part(("holds", self.own_key(node.args[0])), node.args[0].dims)
        yes, no = self.of(node.args[1]), self.of(node.args[2])
        return _added(no, _multiplied(condition, _added(yes, no, -1)), 1)

    def gelu_slope(self, x: Node) -> Form:
        """ndtr(x) + x times the density of the normal distribution."""
        below = self.of(Node("ndtr", (x,), x.kind, x.dims))
        square = _multiplied(self.of(x), self.of(x))
        falling = self.exponential({each: -value / 2 for each, value in square.items()})
        density = {each: value * Fraction(0.3989422804014327) for each, value in falling.items()}
        return _added(below, _multiplied(self.of(x), density), 1)

    def key(self, node: Node) -> Hashable:
        return frozenset(self.of(node).items())

    def own_key(self, node: Node) -> Hashable:
        if not node.args:
            return (node.op, node.text)
        own = [self.own_key(each) if each.kind == BOOL else self.key(each) for each in node.args]
        return (node.op, node.text, *own)

    def exponential(self, form: Form) -> Form:
        """The exponential of a sum: a product of exponentials, of which that of a logarithm is what it is of."""
        result: Form = {Product(): Fraction(1)}
        for each, value in form.items():
            ((what, _), power), *more = [*each] or [((("number",), frozenset()), Fraction(1))]
            if what[0] == "log" and power == 1 and not more:
                factor = _power(dict(what[2]), value)
            else:
                dims = frozenset().union(*(part[1] for part, _ in each))
                factor = {Product([((("exp", each), dims), value)]): Fraction(1)}
            result = _multiplied(result, factor)
        return result

    def summed(self, node: Node) -> Form:
        """A sum of products: what is the same for all elements stands before it."""
        block = "/" in node.text
        names = {node.text.partition("/")[0]} if block else {*node.text.split(", ")}
        result: Form = {}
        for each, value in self.of(node.args[0]).items():
            along = {(part, power) for part, power in each if part[1] & names}
            before = {Product(each - along): value}
            if not along:
                total = _part((COUNT, node.text), frozenset())
            else:
                dims = frozenset().union(*(part[1] for part, _ in along))
                kept = frozenset(dim for dim in dims if dim.partition("/")[0] not in names)
                total = _part((REDUCE + "sum", node.text, frozenset(along)), kept | ({node.text} if block else set()))
            result = _added(result, _multiplied(before, total), 1)
        return result


def _part(key: Hashable, dims: frozenset[str]) -> Form:
    return {Product([((key, dims), Fraction(1))]): Fraction(1)}


def _added(one: Form, other: Form, sign: int) -> Form:
    result = dict(one)
    for each, value in other.items():
        result[each] = result.get(each, 0) + sign * value
    return {each: value for each, value in result.items() if value}


def _multiplied(one: Form, other: Form) -> Form:
    if len(one) * len(other) > _MOST:
        raise TooLong
    result: Form = {}
    for first, a in one.items():
        for second, b in other.items():
            product, spread = _joined(first, second)
            whole: Form = {product: Fraction(1)}
            for each, value in (_multiplied(whole, spread) if spread else whole).items():
                result[each] = result.get(each, 0) + a * b * value
    return {each: value for each, value in result.items() if value}


def _joined(one: Product, other: Product) -> tuple[Product, Form | None]:
    """A product of two products, and what of it is a sum again: whole powers of sums."""
    powers: dict[Part, Fraction] = dict(one)
    for part, power in other:
        powers[part] = powers.get(part, Fraction(0)) + power
    spread: Form | None = None
    for part, power in [*powers.items()]:
        if part[0][0] == "holds":
            powers[part] = Fraction(1)
        if part[0][0] == "sum of" and power > 0 and power.denominator == 1:
            if power > _LARGEST_POWER:
                raise TooLong
            del powers[part]
            for _ in range(int(power)):
                form = dict(part[0][1])
                spread = form if spread is None else _multiplied(spread, form)
    return Product((part, power) for part, power in powers.items() if power), spread


def _power(form: Form, power: Fraction) -> Form:
    """A power of a form. Roots of products are not taken apart: x of sqrt(x * x) may be negative."""
    if abs(power) > _LARGEST_POWER:
        raise TooLong
    if len(form) == 1 and power.denominator == 1:
        ((each, value),) = form.items()
        if not any(part[0][0] == "holds" for part, _ in each):
            return {Product((part, own * power) for part, own in each): value ** int(power)}
    dims = frozenset().union(*(part[1] for each in form for part, _ in each))
    key = ("sum of", frozenset(form.items()))
    if power.denominator == 1 and power > 0:
        result: Form = {Product(): Fraction(1)}
        for _ in range(int(power)):
            result = _multiplied(result, form)
        return result
    return {Product([((key, dims), power)]): Fraction(1)}
