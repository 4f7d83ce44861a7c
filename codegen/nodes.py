"""The typed values of formulas: kinds, nodes, functions of the spec, and what names mean."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from skuda.codegen.diagnostics import Place
from skuda.codegen.operators import FUNCTIONS
from skuda.codegen.yaml_tree import Text

REAL, INT, BOOL = "real", "int", "bool"
PAIR = "pair"  # of reals, what a recurrence scans: a kind, and the `op` of such a node
CPP = {INT: "i64", BOOL: "bool", PAIR: "Linear<C>"}  # types in C++, and elements; a real is C
SMALLEST = "smallest"  # of a type: takes a type letter, or C
DIM = "dim"  # the name of a dimension: what a reduction is over, and nothing else
REDUCE = "reduce "  # before the name of a reduction in `op`
SCAN = REDUCE + "scan "  # before that of a scan
POSITION = "position"  # of an element along a dimension: `position(d)`
CHOOSE = "choose"  # what takes a formula for each word of a row's choice
PLACED = f"{POSITION}_of_"  # before the dimensions in the name of the operand that such a position is


def found_once(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A method or function of what does not change, such as one that asks a value about all that it is made of: what it
    finds is kept in that."""
    name = f"_{method.__name__}"

    @wraps(method)
    def found(self: Any):
        known = self.__dict__.get(name)
        if known is None:
            known = self.__dict__[name] = method(self)
        return known

    return found


@dataclass(frozen=True)
class Node:
    """One typed value of a formula.

    Attributes:
        op: "number", "name", an operator (`+`, `neg`, `<=`, `and`, ...), the name of an intrinsic; `reduce max` and
            the like, and of scans (`reduce scan cumsum reverse`); "count", the number of elements that a reduction is
            over; "stored", a value as an output holds it; "smallest", the least positive value of a type.
        args: the operands.
        kind: REAL, INT, BOOL, DIM, or PAIR.
        dims: the dimensions that the value depends on, `d/group_size` where it is the same in each block.
        bits: for an integer, how many bits hold it.
        text: the name, the number as it was written, what a reduction is over (`d`, `n, d`, `d/group_size`), the
            element type of what is stored or converted, the type whose smallest value it is, or `WRAPS`.
        place: where it stands in the spec; no part of its identity.
        precise_as: of an intrinsic, the type letter that it is as precise as, in a row whose stores need no more; empty
            where that is C. No part of its identity, for a row has one.
    """

    op: str
    args: tuple[Node, ...]
    kind: str
    dims: frozenset[str] = frozenset()
    bits: int = 0
    text: str = ""
    place: Place | None = field(default=None, compare=False, repr=False)
    precise_as: str = field(default="", compare=False, repr=False)

    def __reduce__(self) -> tuple[type[Node], tuple[Any, ...]]:
        """For another process: without what was found of it, which may hold the node itself."""
        made_of = self.op, self.args, self.kind, self.dims, self.bits, self.text, self.place, self.precise_as
        return Node, made_of

    @found_once
    def __hash__(self) -> int:
        """Of all but the place."""
        return hash((self.op, self.args, self.kind, self.dims, self.bits, self.text))

    @found_once
    def names(self) -> frozenset[str]:
        """The operands and attributes that the value is made of."""
        if self.op == "name":
            return frozenset({self.text})
        return frozenset().union(*[argument.names() for argument in self.args])

    @found_once
    def reductions(self) -> tuple[Node, ...]:
        """The reductions in it, each once, after those inside of it."""
        found = dict.fromkeys(reduced for argument in self.args for reduced in argument.reductions())
        return (*found, self) if self.op.startswith(REDUCE) else tuple(found)

    def scans(self) -> list[Node]:
        """The scans among these."""
        return [each for each in self.reductions() if each.is_scan]

    @property
    def is_scan(self) -> bool:
        """Whether it is a scan: a reduction that has a value for each element."""
        return self.op.startswith(SCAN)

    def counts(self) -> list[Node]:
        """The counts of elements in it, outside of means too."""
        return [part for part in self.parts() if part.op == "count"]

    def types(self) -> set[str]:
        """The type letters whose smallest values it asks for."""
        return {part.text for part in self.parts() if part.op == SMALLEST}

    @property
    def guard(self) -> Node | None:
        """The count of `where(count(over=d) == 0, value, other)`, in which `other` is for rows with elements."""
        if self.op != "where" or self.args[0].op != "==":
            return None
        count, zero = self.args[0].args
        return count if count.op == "count" and zero.op == "number" and float(zero.text) == 0 else None

    @found_once
    def parts(self) -> frozenset[Node]:
        """The value and everything that it is made of."""
        return frozenset({self}).union(*[argument.parts() for argument in self.args])

    def of(self, args: tuple[Node, ...]) -> Node:
        """The same of other operands."""
        return Node(self.op, args, self.kind, self.dims, self.bits, self.text, self.place, self.precise_as)

    def replaced(self, by: Callable[[Node], Node | None]) -> Node:
        """The value with parts of it replaced: by what `by` makes of them, outermost first, unless that is None."""
        return Replaced(by)(self)

    def with_names(self, values: Mapping[str, Node]) -> Node:
        """The value with other values in place of some names."""
        if values.keys().isdisjoint(self.names()):
            return self
        return self.replaced(lambda each: values.get(each.text) if each.op == "name" else None)

    @property
    def spelled(self) -> str:
        """A name as a formula spells it: `position(d)` for what the name `position_of_d` stands for."""
        if not self.text.startswith(PLACED):
            return self.text
        dims = ", ".join(sorted(self.dims))
        return f"{POSITION}(({dims}))" if len(self.dims) > 1 else f"{POSITION}({dims})"

    def positions(self) -> set[Node]:
        """The positions in it."""
        return {part for part in self.parts() if part.op == "name" and part.text.startswith(PLACED)}

    @found_once
    def intrinsics(self) -> frozenset[str]:
        """The intrinsics that it calls."""
        own = frozenset({self.op} if self.op in FUNCTIONS else ())
        return own.union(*[argument.intrinsics() for argument in self.args])


class Replaced:
    """Values with parts of them replaced, as `Node.replaced` says. A part that several values share is made once.

    Args:
        by: what stands for a part; None where its operands are looked at.
    """

    def __init__(self, by: Callable[[Node], Node | None]):
        self._by = by
        self._made: dict[int, tuple[Node, Node]] = {}  # by identity, with what is replaced: so it lives on

    def __call__(self, node: Node) -> Node:
        known = self._made.get(id(node))
        if known is not None:
            return known[1]
        made = self._by(node)
        if made is None:
            args = tuple(map(self, node.args))
            same = all(map(operator.is_, args, node.args))
            made = node if same or args == node.args else node.of(args)
        self._made[id(node)] = node, made
        return made


@dataclass(frozen=True)
class Function:
    """A row of `functions:`: a name for a formula, expanded where it is called.

    Attributes:
        name: how a formula calls it.
        parameters: names in its body.
        body: the formula.
        library: of a function of the catalog, which a spec of one's own calls: the functions that its body may call,
            whatever the spec calls its own. None for a function of the spec.
    """

    name: str
    parameters: tuple[str, ...]
    body: Text
    library: Mapping[str, Function] | None = field(default=None, compare=False, repr=False)

    @property
    def signature(self) -> str:
        """As a call spells it: `silu(x)`."""
        return f"{self.name}({', '.join(self.parameters)})"


class Scope:
    """What the names of a formula mean.

    Args:
        values: the operands and attributes, as name nodes.
        functions: those that it may call.
        hidden: names that are declared and have no value here: why, or None if their own mistake has been
            reported.
        dims: the dimensions in the order in which several of them are named; that of `values`, if not given.
        types: the type letters and C, each with whether it is a real, an integer or a boolean.
        called: takes the values that functions make, with the names of these functions.
        computes: what C may be: of "float", "int" and "bool" those that some choice of the row's types makes it.
        choice: the name of the row's choice, its words, and the one that is read; empty where there is none.
    """

    def __init__(
        self,
        values: Mapping[str, Node],
        functions: Mapping[str, Function],
        hidden: Mapping[str, str | None] | None = None,
        dims: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        called: dict[Node, str] | None = None,
        computes: frozenset[str] = frozenset({"float"}),
        choice: tuple[str, tuple[str, ...], str] | tuple[()] = (),
    ):
        self.values = values
        self.functions = functions
        self.hidden = hidden or {}
        self.dims = [*values] if dims is None else dims
        self.types = types or {}
        self.called = {} if called is None else called
        self.computes = computes
        self.choice = choice


def promote(node: Node) -> Node:
    """An integer as a real, rounded once; anything else as it is."""
    if node.kind != INT:
        return node
    if node.op == "number":
        return Node("number", (), REAL, text=node.text, place=node.place)
    return Node("to_real", (node,), REAL, node.dims, place=node.place)
