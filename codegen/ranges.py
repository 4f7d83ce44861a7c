"""The range of an integer formula, and whether an integer type holds all of it.

A bound is a linear form: a sum of named values, each times an integer, plus an integer. So the bounds of
`clamp(i, q_min - z, q_max - z) + z` are q_min and q_max, whatever z is. What has no such bound has a number. Reals are
followed as far as `round_to_int(clamp(x, -128, 127))` needs; NaN, which has no order, becomes the integer 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import exp, inf

import numpy as np

from skuda.codegen.intrinsics import CONVERSIONS, INTRINSICS
from skuda.codegen.nodes import INT, PLACED, REAL, REDUCE, Node
from skuda.codegen.operators import OPERATORS, WRAPS
from skuda.codegen.reductions import LENGTH_BITS, REDUCTIONS
from skuda.model.dtypes import DTYPES

Limits = Mapping[str, tuple[int, int]]
_MOST = 8  # bounds of one value that are kept
_ROUNDED = 1 << 53  # where round_to_int saturates
_EXACT = 1 << 24  # integers up to this are exact in every compute type
_INTEGRAL: dict[str, Callable] = {"round_even": round, "floor": lambda x: x.__floor__(), "ceil": lambda x: x.__ceil__()}
_INTEGRAL["trunc"] = int


@dataclass(frozen=True)
class Linear:
    """A sum of named values, each times an integer, plus a number."""

    terms: frozenset[tuple[Node, int]]
    constant: int | Fraction

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """The sum of this and so many times the other."""
        sums = dict(self.terms)
        for name, factor in other.terms:
            sums[name] = sums.get(name, 0) + times * factor
        return Linear(frozenset(each for each in sums.items() if each[1]), self.constant + times * other.constant)


def number(value: int | Fraction) -> Linear:
    """A bound that is a number."""
    return Linear(frozenset(), value)


@dataclass(frozen=True)
class Range:
    """Bounds of a value, all of which hold; none on a side where nothing is known."""

    lower: tuple[Linear, ...] = ()
    upper: tuple[Linear, ...] = ()

    @property
    def negative(self) -> Range:
        """The range of the value with the other sign."""
        zero = number(0)
        return Range(tuple(zero.plus(b, -1) for b in self.upper), tuple(zero.plus(b, -1) for b in self.lower))


@dataclass(frozen=True)
class Misfit:
    """What an integer output may not hold.

    Attributes:
        least, most: of its formula.
        holds: what it does hold: "s8 holds -128 to 127".
        unordered: whether it would fit if the lower bound of each `clamp` were below the upper one.
    """

    least: int
    most: int
    holds: str
    unordered: bool


def misfits(
    formulas: Mapping[str, Node],
    elements: Mapping[str, str],
    words: Mapping[str, Sequence[str]],
    requirements: Sequence[Node],
) -> dict[str, Misfit]:
    """The integer outputs that may not hold what their formulas give.

    Args:
        formulas: of the integer outputs.
        elements: of each name, its type: a word, or a letter, which is the same type wherever it stands.
        words: of each integer name, what its type may be.
        requirements: conditions that hold.
    """
    found: dict[str, Misfit] = {}
    letters = {elements[name]: options for name, options in words.items()} if formulas else {}
    for chosen in product(*letters.values()) if letters else ():
        types = dict(zip(letters, chosen))
        held = {name: DTYPES[types[elements[name]]] for name in words}
        limits = {name: (dtype.lowest, dtype.highest) for name, dtype in held.items()}
        ranges = Ranges(limits, types, requirements)
        for name, node in formulas.items():
            if name in found or ranges.fits(node, held[name].word):
                continue
            holds = f"{held[name]} holds {held[name].lowest} to {held[name].highest}"
            ordered = Ranges(limits, types, requirements, ordered=True)
            found[name] = Misfit(*ranges.interval(node), holds, ordered.fits(node, held[name].word))
    return found


def _between(low: int, high: int) -> Range:
    return Range((number(low),), (number(high),))


_ANY = _between(-(1 << 63), (1 << 63) - 1)  # what 64 bits hold


def _signed_bits(value: int) -> int:
    """How many bits hold it, beside the sign."""
    return (~value if value < 0 else value).bit_length()


_ROUGH = 1 + 2.0**-8  # a computed value is off by less, in half types and of several steps too


def ends_of(node: Node) -> tuple[float, float]:
    """Two numbers between which a real lies as it is computed, unless it is NaN: infinities where nothing is known."""
    args = [ends_of(each) if each.kind == REAL else (-inf, inf) for each in node.args if each.kind != "bool"]
    if node.op == "number":
        return (float(node.text),) * 2
    if node.op == "neg":
        return -args[0][1], -args[0][0]
    if node.op == "abs":
        low, high = args[0]
        return max(low, -high, 0.0), max(-low, high)
    if node.op == "where":
        return min(args[0][0], args[1][0]), max(args[0][1], args[1][1])
    if node.op == "+":
        found = [args[0][0] + args[1][0], args[0][1] + args[1][1]]
    elif node.op == "*":
        found = [x * y if x and y else 0.0 for x, y in product(*args)]  # 0 times an infinity is NaN
    elif node.op == "pow" and args[0][0] >= 1 and args[1][0] >= 0:
        found = [1.0, inf]
    elif node.op == "exp":
        found = [exp(each) if each <= 700 else inf for each in args[0]]
    else:
        return -inf, inf
    low, high = min(found), max(found)
    return min(low * _ROUGH, low / _ROUGH), max(high * _ROUGH, high / _ROUGH)


class Ranges:
    """Finds the ranges of values.

    Args:
        limits: the least and the greatest value of each integer name.
        types: element types by letter.
        requirements: conditions that hold.
        ordered: whether the lower bound of each `clamp` is taken to be below the upper one, proven or not.
    """

    def __init__(
        self, limits: Limits, types: Mapping[str, str], requirements: Iterable[Node] = (), ordered: bool = False
    ):
        self.limits = limits
        self.types = types
        self.ordered = ordered
        self._known: dict[int, tuple[Node, Range]] = {}
        self._facts: list[Linear] = []  # what is not negative
        for condition in requirements:
            self._learn(condition)

    def fits(self, node: Node, word: str) -> bool:
        """Whether each value of an integer formula is one of a type."""
        found, dtype = self.range(node), DTYPES[word]
        return any(self._least(b) >= dtype.lowest for b in found.lower) and any(
            self._most(b) <= dtype.highest for b in found.upper
        )

    def interval(self, node: Node) -> tuple[int, int]:
        """The least and the greatest that an integer formula may be, as far as this knows."""
        return self._interval(self.range(node))

    def range(self, node: Node) -> Range:
        """The range of a value; each node is asked once."""
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = node, self._range(node)
        return known[1]

    def _range(self, node: Node) -> Range:
        args = [self.range(each) for each in node.args if each.kind != "bool"]
        if node.op == "number":
            if node.text in ("inf", "-inf", "nan", "-nan"):
                beyond = Range((number(1 << 2000),)) if node.text.endswith("inf") else Range()
                return beyond.negative if node.text.startswith("-") else beyond
            value = Fraction(node.text)
            return self._rounded(value, value, node.kind)
        if node.text.startswith(PLACED):
            return _between(0, (1 << node.bits - 1) - 1)
        if node.op == "name" and node.kind == INT:
            form = Linear(frozenset({(node, 1)}), 0)
            return Range((form,), (form,))
        if node.text == WRAPS and node.kind == INT:
            return _ANY
        if node.op in OPERATORS and node.kind == INT:
            return self._operated(node.op, *map(self._interval, args))
        if node.op == "neg":
            return args[0].negative
        if node.op in ("+", "-") and node.kind == INT:
            return self._sum(args[0], args[1] if node.op == "+" else args[1].negative)
        if node.op == "*" and node.kind == INT:
            return self._product(*args)
        if node.op == "where":
            return Range(self._below_both(*args), self._above_both(*args))
        if node.op == "min":
            return self._smaller(*args)
        if node.op == "max":
            return self._smaller(args[0].negative, args[1].negative).negative
        if node.op == "clamp":
            return self._clamped(*args)
        if node.op == "abs":
            larger = self._smaller(args[0].negative, args[0]).negative
            return Range((*larger.lower, number(0)), larger.upper)
        if node.op == "sign":
            return Range((number(-1),), (number(1),))
        if node.op in _INTEGRAL:
            return self._integral(args[0], _INTEGRAL[node.op])
        if node.op == "to_real":
            low, high = self._interval(args[0])
            return args[0] if low >= -_EXACT and high <= _EXACT else self._rounded(low, high, node.kind)
        if node.op == "round_to_int":
            whole = self._integral(args[0], round)
            zero = Range((number(0),), (number(0),))  # NaN's
            lower, upper = self._below_both(whole, zero), self._above_both(whole, zero)
            return Range((*lower, number(-_ROUNDED)), (*upper, number(_ROUNDED)))
        if node.op in CONVERSIONS and node.kind == INT:
            word = DTYPES[self.types.get(node.text, node.text)]
            return Range((number(word.lowest),), (number(word.highest),))
        if node.op in INTRINSICS and INTRINSICS[node.op].gives:
            word = DTYPES[INTRINSICS[node.op].gives]
            return _between(word.lowest, word.highest)
        if node.op.startswith(REDUCE) and node.kind == INT:
            return self._reduced(node, args[0])
        return _ANY if node.kind == INT else Range()

    def _operated(self, sign: str, of: tuple[int, int], by: tuple[int, int] = (0, 0)) -> Range:
        """Of an operator of integers, from the intervals of its operands."""
        ends = (*of, *by)
        bits = max(_signed_bits(each) for each in ends)
        least = -(1 << bits) if min(ends) < 0 else 0
        if sign == "&" and max(of[0], by[0]) >= 0:  # it has no bit that the one which is not negative lacks
            return _between(0, min(high for low, high in (of, by) if low >= 0))
        if sign in ("&", "|", "^"):
            return _between(least, (1 << bits) - 1)
        if sign == "~":
            return _between(~of[1], ~of[0])
        if sign == ">>":
            return _between(min(of[0], 0), max(of[1], 0))
        if sign == "%":
            return _between(min(by[0] + 1, 0), max(by[1] - 1, 0))
        if sign == "//":  # by 1 and -1 at most
            low, high = (min(*of, 0), max(*of, 0)) if by[0] >= 0 else (min(of[0], -of[1], 0), max(of[1], -of[0], 0))
            return _between(low, high)
        return _ANY

    def _sum(self, a: Range, b: Range) -> Range:
        return Range(
            self._few(x.plus(y) for x, y in product(a.lower, b.lower)),
            self._few(x.plus(y) for x, y in product(a.upper, b.upper)),
        )

    def _product(self, a: Range, b: Range) -> Range:
        for one, other in ((a, b), (b, a)):
            if one.lower == one.upper and len(one.lower) == 1 and not one.lower[0].terms:
                factor = one.lower[0].constant
                scaled = other if factor >= 0 else other.negative
                grown = [tuple(number(0).plus(b, abs(factor)) for b in side) for side in (scaled.lower, scaled.upper)]
                return Range(*grown)
        corners = [x * y for x, y in product(self._interval(a), self._interval(b))]
        return Range((number(min(corners)),), (number(max(corners)),))

    def _smaller(self, a: Range, b: Range) -> Range:
        return Range(self._below_both(a, b), self._few((*a.upper, *b.upper)))

    def _clamped(self, x: Range, low: Range, high: Range) -> Range:
        """min(max(x, low), high)."""
        larger = self._smaller(x.negative, low.negative).negative
        found = self._smaller(larger, high)
        return Range((*low.lower, *found.lower), found.upper) if self.ordered else found

    def _integral(self, value: Range, rounded: Callable) -> Range:
        """Of a real that is rounded to an integer: bounds of integers hold for it too."""

        def side(bounds: tuple[Linear, ...]) -> tuple[Linear, ...]:
            return tuple(b if b.terms else number(int(rounded(b.constant))) for b in bounds)

        return Range(side(value.lower), side(value.upper))

    def _reduced(self, node: Node, of: Range) -> Range:
        reduction = REDUCTIONS[node.op.removeprefix(REDUCE)]
        most = 1 << LENGTH_BITS
        if reduction.gives_index:
            return Range((number(0),), (number(most - 1),))
        if reduction.joins == "sum":
            low, high = self._interval(of)
            return Range((number(min(0, low * most)),), (number(max(0, high * most)),))
        if reduction.joins == "prod":
            return _ANY
        along = set(node.text.partition("/")[0].split(", "))

        def constant(bound: Linear) -> bool:
            return not any({d.partition("/")[0] for d in name.dims} & along for name, _ in bound.terms)

        low, high = self._interval(of)
        if node.is_scan and reduction.exclusive:
            return _ANY  # of nothing it is the least integer, or the greatest
        return Range(
            (*filter(constant, of.lower), number(low)), (*filter(constant, of.upper), number(high))
        )

    def _rounded(self, low: int | Fraction, high: int | Fraction, kind: str) -> Range:
        """An interval of numbers; those of reals are rounded in one compute type or the other."""
        if kind == INT:
            return Range((number(int(low)),), (number(int(high)),))
        with np.errstate(over="ignore"):
            ends = [(x, float(x), float(np.float32(float(x)))) for x in (low, high)]
        finite = [[Fraction(x) for x in each if abs(x) != float("inf")] for each in ends]
        lower = (number(min(finite[0])),) if len(finite[0]) == 3 or low > 0 else ()
        upper = (number(max(finite[1])),) if len(finite[1]) == 3 or high < 0 else ()
        return Range(lower, upper)

    def _below_both(self, a: Range, b: Range) -> tuple[Linear, ...]:
        """Lower bounds of a value that is one of two."""
        shared = [x for x in a.lower if any(self._at_most(x, y) for y in b.lower)]
        shared += [y for y in b.lower if any(self._at_most(y, x) for x in a.lower)]
        if a.lower and b.lower:
            shared.append(number(min(max(map(self._least, each.lower)) for each in (a, b))))
        return self._few(shared)

    def _above_both(self, a: Range, b: Range) -> tuple[Linear, ...]:
        negative = Range(self._below_both(a.negative, b.negative)).negative
        return negative.upper

    def _at_most(self, x: Linear, y: Linear) -> bool:
        """Whether one bound is never above the other, by the limits of their names or by what is required."""
        gap = y.plus(x, -1)
        return self._least(gap) >= 0 or any(self._least(gap.plus(fact, -1)) >= 0 for fact in self._facts)

    def _learn(self, condition: Node) -> None:
        if condition.op == "and":
            for each in condition.args:
                self._learn(each)
        if condition.op not in ("<", "<=", ">", ">=", "==") or condition.args[0].kind != INT:
            return
        forms = [next(iter({*r.lower} & {*r.upper}), None) for r in map(self.range, condition.args)]
        if None in forms:
            return
        small, large = forms if condition.op in ("<", "<=", "==") else reversed(forms)
        self._facts.append(large.plus(small, -1).plus(number(condition.op in ("<", ">")), -1))
        if condition.op == "==":
            self._facts.append(small.plus(large, -1))

    def _interval(self, value: Range) -> tuple[int, int]:
        return max(map(self._least, value.lower)), min(map(self._most, value.upper))

    def _least(self, bound: Linear) -> int | Fraction:
        return bound.constant + sum(f * self.limits[name.text][f < 0] for name, f in bound.terms)

    def _most(self, bound: Linear) -> int | Fraction:
        return bound.constant + sum(f * self.limits[name.text][f > 0] for name, f in bound.terms)

    def _few(self, bounds: Iterable[Linear]) -> tuple[Linear, ...]:
        return tuple(dict.fromkeys(bounds))[:_MOST]
