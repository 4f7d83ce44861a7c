"""Derived gradients: the formulas of `backward: derived`, made from those of the outputs.

A gradient flows from the outputs to the inputs. What an intrinsic, an operator or a reduction hands on is a rule in
codegen/intrinsics.py. A value that lacks dimensions of what it is used in gets the sum over these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from skuda.codegen import algebra
from skuda.codegen.algebra import GRADIENT, Term, counted, written
from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.expr import parse
from skuda.codegen.intrinsics import (
    CONVERSIONS,
    DERIVATIVES,
    LIMITED,
    OF_LOGISTIC_QUOTIENT,
    OF_OPERATORS,
    OF_REDUCTIONS,
    OF_SCANS,
    STEPS,
    TRANSCENDENTAL,
    UNDERIVED,
)
from skuda.codegen.nodes import BOOL, DIM, PAIR, PLACED, REAL, REDUCE, Function, Node, Scope
from skuda.codegen.normal_form import clamped_mean, is_zero, logistic_quotient
from skuda.codegen.output_reuse import reading_outputs
from skuda.codegen.yaml_tree import Text
from skuda.model.operation import Operand

_RULE = Place(1, 1)
_LARGEST_NUMBER_OF_CHOICES = 3  # outputs of which every choice is tried


class NotDifferentiable(Exception):
    """A formula has no derivative: where, and why."""

    def __init__(self, place: Place | None, message: str):
        super().__init__(message)
        self.place, self.message = place, message


@dataclass(frozen=True)
class Forward:
    """What gradients are derived from.

    Attributes:
        outputs: with a formula each.
        formulas: of the outputs. One may name outputs above it.
        wanted: the inputs whose gradients are derived.
        dims: the dimensions of the row, in its order.
        functions: those of the catalog, which rules call.
        space: the dimensions that most operands have.
        readable: the outputs that a gradient may read; None: all.
    """

    outputs: tuple[Operand, ...]
    formulas: Mapping[str, Node]
    wanted: tuple[Operand, ...]
    dims: Sequence[str]
    functions: Mapping[str, Function]
    space: frozenset[str]
    readable: frozenset[str] | None = None


def gradients(forward: Forward) -> dict[str, Node | None]:
    """The formula of each gradient, by the name of its input; None where it is 0.

    Raises:
        NotDifferentiable: a gradient would pass through what gives integers, or could not be written.
    """
    sums = _Flow(forward).gradients()
    outputs = {o.name: forward.formulas[o.name] for o in forward.outputs if _is_readable(forward.formulas[o.name])}
    if forward.readable is not None:
        outputs = {name: node for name, node in outputs.items() if name in forward.readable}
    most = len(outputs) if len(outputs) <= _LARGEST_NUMBER_OF_CHOICES else 1
    choices = [chosen for count in range(most + 1) for chosen in combinations(outputs, count)]
    candidates = [
        {name: reading_outputs(terms, {each: outputs[each] for each in chosen}) for name, terms in sums.items()}
        for chosen in choices
    ]
    best = min(candidates, key=lambda each: _cost(each.values(), forward.space))
    return {name: None if node.op == "number" and float(node.text) == 0 else node for name, node in best.items()}


def _is_readable(formula: Node) -> bool:
    """Whether a gradient may read an output. What is made of a scan is rounded once more there, and gradients of scans
    are made of small differences; but extremes of an input are elements of it."""
    exact = formula.op.split()[1:3] in (["scan", "cummax"], ["scan", "cummin"]) and formula.args[0].op == "name"
    return formula.kind == REAL and (exact or not formula.scans())


def _cost(formulas: Iterable[Node], space: frozenset[str]) -> tuple[int, ...]:
    """Scans of scans, which take several kernels; then arrays that are read for each element, reductions, elementary
    functions, operations of some formulas."""
    parts = set().union(*(node.parts() for node in formulas))
    names = {part.text for part in parts if part.op == "name" and part.dims == space}
    arrays = {name for name in names if not name.startswith(PLACED)}
    reductions = sum(part.op.startswith(REDUCE) for part in parts)
    nested = sum(part.is_scan and bool(part.args[0].scans()) for part in parts)
    return nested, len(arrays), reductions, sum(part.op in TRANSCENDENTAL for part in parts), len(parts)


class _Flow:
    """Gradients on their way from the outputs to the inputs."""

    def __init__(self, forward: Forward):
        self.forward = forward
        self.outputs = {operand.name: operand for operand in forward.outputs}
        self.names = {operand.name for operand in forward.wanted}
        self.active: dict[Node, bool] = {}
        self.arriving: dict[Node, list[Term]] = {}

    def gradients(self) -> dict[str, list[Term]]:
        """The gradient of each input."""
        found: dict[str, list[Term]] = {name: [] for name in self.names}
        ends = [self.end(operand) for operand in self.forward.outputs]
        for end in ends:
            name = GRADIENT + end.text
            self.arriving[end] = [Term(1, {Node("name", (), REAL, end.dims, text=name): 1})]
        for node in self.order(ends):
            terms = algebra.collected(self.arriving.pop(node, ()))
            if not terms:
                continue
            if node.op == "name" and node.text in self.names:
                found[node.text] = terms
            elif node.op == "name":
                formula = self.forward.formulas[node.text]
                self.arrives(formula, node, terms)
            else:
                self.hand_on(node, terms)
        return {operand.name: found[operand.name] for operand in self.forward.wanted}

    def end(self, operand: Operand) -> Node:
        """The name of an output, as formulas below it have it."""
        dims = frozenset(str(dim).lstrip("*") for dim in operand.dims)
        return Node("name", (), REAL, dims, text=operand.name)

    def order(self, ends: Iterable[Node]) -> list[Node]:
        """The values that inputs change, each after all that it is used in."""
        done: dict[Node, None] = {}

        def visit(node: Node) -> None:
            if node in done or not self.is_active(node):
                return
            for below in self.below(node):
                visit(below)
            done[node] = None

        for end in ends:
            visit(end)
        return [*done][::-1]

    def below(self, node: Node) -> tuple[Node, ...]:
        """What a value is made of."""
        if node.op == "name":
            formula = self.forward.formulas.get(node.text) if node.kind == REAL else None
            return () if formula is None else (formula,)
        return node.args

    def is_active(self, node: Node) -> bool:
        """Whether a value changes with an input whose gradient is wanted, by more than conditions."""
        if node not in self.active:
            self.active[node] = node.kind != BOOL and (
                (node.op == "name" and node.text in self.names) or any(map(self.is_active, self.below(node)))
            )
        return self.active[node]

    def hand_on(self, node: Node, terms: list[Term]) -> None:
        """Hands the gradient of a value on to its arguments."""
        if node.op in STEPS or node.op.removeprefix(REDUCE) in STEPS or node.op in CONVERSIONS:
            gives = "integers" if node.kind != REAL else "values of the output's type"
            what = f"`{node.op.removeprefix(REDUCE)}` has no derivative: it gives {gives}"
            raise NotDifferentiable(node.place, what)
        if node.kind != REAL or node.op == "to_real":  # a sum or a choice of integers changes by steps below it alone
            for argument in filter(self.is_active, node.args):
                self.arriving.setdefault(argument, []).extend(terms)
            return
        if (mean := clamped_mean(node)) is not None:
            self.arrives(mean, node, terms)
            return
        if node.guard is not None and not self.is_active(node.args[1]):
            self.arrives(node.args[2], node, terms)  # of no elements there is no gradient
            return
        if node.op in (REDUCE + "max", REDUCE + "min") and is_zero(written(terms)):
            return  # such as the greatest element, which a softmax subtracts
        args, extra = node.args, ()
        rules = self.rules(node)
        if node.is_scan and args[0].op == PAIR:
            args = args[0].args
        if (quotient := logistic_quotient(node)) is not None:
            args, rules, extra = quotient, OF_LOGISTIC_QUOTIENT, (algebra.negative(quotient[1]),)
        for argument, rule in zip(args, rules, strict=True):
            if rule and self.is_active(argument):
                self.arrives(argument, node, self.applied(rule, node, terms, (*args, *extra)))

    def rules(self, node: Node) -> tuple[str, ...]:
        """What each argument of a value gets."""
        if node.op in LIMITED and not all(map(self.is_active, node.args)):
            return LIMITED[node.op]
        name = node.op.removeprefix(REDUCE)
        if node.is_scan:
            return OF_SCANS[name]
        table = OF_REDUCTIONS if node.op.startswith(REDUCE) else {**OF_OPERATORS, **DERIVATIVES}
        if name not in table:
            why = f": {UNDERIVED[name]}" if name in UNDERIVED else ""
            raise NotDifferentiable(node.place, f"`{name}` has no derivative{why}")
        return table[name]

    def applied(self, rule: str, node: Node, terms: list[Term], args: Sequence[Node]) -> list[Term]:
        """A rule's text as a value: a product with the gradient where it is one."""
        gradient = Node("name", (), REAL, node.dims, text="g ")
        values = dict(zip("abc", args)) | {"g": gradient, "y": node}
        if node.op.startswith(REDUCE):
            name = node.text
            dims = {name.partition("/")[0]} if "/" in name else {*name.split(", ")}
            values["d"] = Node("name", (), DIM, frozenset(dims), text=name)
        diagnostics = Diagnostics("rule", rule)
        value = parse(Text(rule, _RULE), Scope(values, self.forward.functions, dims=self.forward.dims), diagnostics)
        if value is None:  # where the catalog's functions have mistakes, which are told where they stand
            raise NotDifferentiable(node.place, f"the rule `{rule}` cannot be read: {diagnostics.first}")
        factors = algebra.product(value)
        outside = [part for part in factors.powers if part != gradient]
        if factors.powers.get(gradient) == 1 and not any(gradient in part.parts() for part in outside):
            rest = factors.over({gradient: 1})
            return [term * rest for term in terms]
        whole = written(terms)
        placed = algebra.substituted(value, {gradient: whole})
        return [Term(1, {placed: 1})]

    def arrives(self, argument: Node, node: Node, terms: list[Term]) -> None:
        """Adds to the gradient of an argument, summed over the dimensions that it lacks."""
        if not self.is_active(argument):
            return
        reduced = node.op.startswith(REDUCE)
        have = {each.partition("/")[0] for each in argument.dims}
        lacking = [] if reduced else [each for each in node.dims if each.partition("/")[0] not in have]
        # An argument with one value for each block, of a value with one for each element.
        blocks = [each for each in argument.dims if "/" in each and each.partition("/")[0] in node.dims]
        blocks = [each for each in blocks if each.partition("/")[0] not in argument.dims] if not reduced else []
        whole = {each for each in lacking if "/" not in each}
        if blocks and whole or any(each.partition("/")[0] not in whole for each in lacking) or len(blocks) > 1:
            message = "the gradient would be a sum over blocks and over something else"
            raise NotDifferentiable(node.place, message)
        if whole or blocks:
            terms = self.summed(terms, blocks[0] if blocks else "", whole)
        self.arriving.setdefault(argument, []).extend(terms)

    def summed(self, terms: Iterable[Term], block: str, names: set[str]) -> list[Term]:
        """A sum of elements. What is the same for all of them stands before it."""
        along = {block.partition("/")[0]} if block else names
        groups: dict[tuple, tuple[Term, list[Term]]] = {}
        for term in terms:
            inside = {node: power for node, power in term.powers.items() if node.dims & along}
            before = term.over(inside)
            over = frozenset(set().union(*(node.dims for node in inside)) & along)
            outside = Term(1, before.powers)
            group = groups.setdefault((outside.key, over), (outside, []))
            group[1].append(Term(before.number, inside))
        found = []
        for (_, over), (outside, inner) in groups.items():
            factor = Term()
            rest = along - over
            if rest:
                factor = Term(1, {counted(block or self.spelled(rest)): 1})
            if not over:
                found += [outside * factor * term for term in inner]
                continue
            scale = inner[0].number if len(inner) == 1 else 1
            value = written([Term(1, inner[0].powers)] if len(inner) == 1 else inner)
            if not value.dims & over:  # terms that cancel
                found.append(outside * factor * Term(scale, {value: 1}))
                continue
            total = algebra.total(value, block or self.spelled(over))
            if not is_zero(total):
                found.append(outside * factor * Term(scale, {total: 1}))
        return found

    def spelled(self, names: Iterable[str]) -> str:
        """Dimensions in the order of the row."""
        return ", ".join(name for name in self.forward.dims if name in names)
