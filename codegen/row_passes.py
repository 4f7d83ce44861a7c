"""What the analysis of a program with reductions is made of: passes over a row, and the values that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skuda.codegen.conditions import Guard
from skuda.codegen.nodes import REAL, Node
from skuda.codegen.picks import Picked
from skuda.codegen.reductions import REDUCTIONS, Scan
from skuda.model.operation import Operand

OF_FINITE = ("LargestMagnitude", "LargestFinite", "SmallestFinite")  # what is not finite takes no part
LENGTH = Node("name", (), REAL, text="shared.count")  # of the row
INDEX_CLASSES = tuple(row.cuda for row in REDUCTIONS.values() if row.gives_index)


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


@dataclass(frozen=True)
class Value:
    """One value that a pass makes of each element.

    Attributes:
        name: of what takes it: `shared.sum`, `held.normal`; of an output, its own.
        node: what it is.
        how: the class of runtime/cuda/reductions.cuh that reduces it; empty where it is not reduced.
        operand: the output that it is.
        kind: of a reduction, the kind of its result.
        raw: the input that is reduced as it stands.
        scan: of a scan, its row in the table of reductions.
    """

    name: str
    node: Node
    how: str = ""
    operand: Operand | None = None
    kind: str = ""
    raw: Operand | None = None
    scan: Scan | None = None

    @property
    def asks_finite(self) -> bool:
        """Whether its reduction also tells if all of a thread's elements were finite."""
        return self.how in OF_FINITE

    @property
    def gives_index(self) -> bool:
        """Whether it is where an extreme is."""
        return self.how in INDEX_CLASSES


@dataclass(frozen=True)
class HeldValue:
    """A value of an element that several passes use: held from the first of them on, where registers allow."""

    value: Value
    first: bool  # whether no pass before has made it


@dataclass(frozen=True)
class Pick:
    """A reduction that one element of a row tells: no pass makes it, and the first one may use it."""

    name: Node
    of: Picked


@dataclass(frozen=True)
class Repeat:
    """What a pass is repeated for: a value of the row that each makes anew, until it rises no more.

    Attributes:
        name: of the value, `shared.threshold`.
        start: what it is before the first pass.
        next: what it is after a pass, of what the pass reduces.
    """

    name: str
    start: Node
    next: Node


@dataclass(frozen=True)
class Pass:
    """What is made of each element of a row at once.

    Attributes:
        held: values that the others are made of, the inner ones first.
        values: reductions, or outputs.
        early: outputs of the last pass that are known here already: stored here, registers need not hold them.
        ranges: what passes before tell of values of an element.
        operands: the names of the inputs that have an element for each of a row's.
        guards: what holds where a call wants it; none where every call does. It holds no value of an element.
        repeat: what it is repeated for, if it is.
    """

    held: tuple[HeldValue, ...]
    values: tuple[Value, ...]
    early: tuple[Value, ...]
    ranges: Mapping[Node, Range]
    operands: frozenset[str]
    guards: frozenset[Guard] = frozenset()
    repeat: Repeat | None = None

    @property
    def made(self) -> tuple[Value, ...]:
        """Everything that is computed for each element."""
        return (*(each.value for each in self.held), *self.values, *self.early)

    @property
    def fresh(self) -> tuple[Value, ...]:
        """The held values that it is the first to make."""
        return tuple(each.value for each in self.held if each.first)

    @property
    def names(self) -> frozenset[str]:
        """All that what it computes knows of."""
        repeated = (self.repeat.start, self.repeat.next) if self.repeat else ()
        return frozenset().union(*(node.names() for node in (*(value.node for value in self.made), *repeated)))

    @property
    def reads(self) -> frozenset[str]:
        """The inputs that it needs where nothing is held."""
        return self.names & self.operands

    def wanted(self, early: Sequence[Operand]) -> tuple[Value, ...]:
        """Its reductions, or outputs but for those of `early`, which an earlier pass has stored; and its early ones."""
        return (*(value for value in self.values if value.operand not in early), *self.early)

    def taken(self, early: Sequence[Operand]) -> frozenset[str]:
        """The inputs, and the values held by earlier passes, that it needs where all is held."""
        names = _names((*self.fresh, *self.wanted(early)))
        if not any(map(_is_held, names)):  # a kernel that stores outputs of `early` here takes what is held, or nothing
            names |= {*filter(_is_held, _names(self.values))}
        found = {name for name in names if name in self.operands or _is_held(name)}
        return frozenset(found - {value.name for value in self.fresh})


def _names(values: Iterable[Value]) -> set[str]:
    return {name for value in values for name in value.node.names()}


def _is_held(name: str) -> bool:
    return name.startswith("held.")


@dataclass(frozen=True)
class Saved:
    """Something that a cluster keeps of each of a row's elements from one pass to another, all passes if need be.

    Attributes:
        name: of an input, or of a value that is held.
        element: its type.
        below: the types of what lies below it in the memory of an element, from the bottom on.
    """

    name: str
    element: str
    below: tuple[str, ...]


@dataclass(frozen=True)
class RowValue:
    """An output that a row has one of: its formula, and the name of its value as it is stored."""

    operand: Operand
    name: str
    node: Node


@dataclass(frozen=True)
class Extreme:
    """A reduction to an extreme of an input's elements, which can be found in them as they are stored.

    Attributes:
        how: class of reductions.cuh that finds it, where what is found is finite if that matters.
        joined: class that joins what was found with the extremes of other elements.
        raw: the input.
    """

    how: str
    joined: str
    raw: Operand


@dataclass(frozen=True)
class Split:
    """A program whose reductions are of one level, and none of whose outputs has an element for each of a row's that
    depends on them: parts of a row can be reduced apart.

    Attributes:
        whole: the one pass, which makes the reductions and the outputs.
        extremes: the reductions again, if all of them are extremes of elements and there is nothing else to make.
        beside: inputs that run along rows and along something else, so that rows beside each other may differ in them.
    """

    whole: Pass
    extremes: tuple[Extreme, ...]
    beside: tuple[Operand, ...]
