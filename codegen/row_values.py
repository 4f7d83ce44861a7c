"""What a program with reductions is made of in CUDA: its passes over a row, and what each of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from skuda.codegen.cuda import Member, Parameter
from skuda.codegen.nodes import CPP, INT, Node
from skuda.codegen.reductions import REDUCTIONS
from skuda.model.operation import Operand

_OF_FINITE = ("LargestMagnitude", "LargestFinite", "SmallestFinite")  # what is not finite takes no part


@dataclass(frozen=True)
class Value:
    """One value of an element of a row, as a method of its pass.

    Attributes:
        name: of a reduction (`Reduced0`), or of an output.
        type: in C++, of an element's value.
        parameters: the operands that it is made of.
        formula: its expression.
        how: class of runtime/cuda/reductions.cuh; empty for an output.
        operand: the output.
        result: in C++, the type of a reduction's value.
        raw: the input that is reduced as it stands.
    """

    name: str
    type: str
    parameters: tuple[Parameter, ...]
    formula: str
    how: str = ""
    operand: Operand | None = None
    result: str = ""
    raw: Operand | None = None

    @property
    def finite(self) -> str:
        """The name of what tells whether a thread's values were all finite; empty for a reduction that does not ask."""
        return finite_name(self.name) if self.how in _OF_FINITE else ""

    @property
    def place(self) -> bool:
        """Whether it is where an extreme is."""
        return self.how in {reduction.cuda for reduction in REDUCTIONS.values() if reduction.place}

    @property
    def state(self) -> str:
        """In C++, what is made of each element: of a reduction, what it goes on with."""
        if self.operand and self.type == CPP[INT]:
            return f"code_t<{self.operand.element}>"
        return f"state_t<{self.how}, {self.type}>" if self.how else self.type


@dataclass(frozen=True)
class Held:
    """A value of an element that several passes use: kept from the first of them on, where registers allow.

    Attributes:
        value: how it is computed.
        first: whether no pass before has computed it.
    """

    value: Value
    first: bool


@dataclass(frozen=True)
class Pass:
    """What is made of each element of a row at once.

    Attributes:
        members: made once a row.
        arguments: what these are made from.
        held: values of an element that the others are made of.
        values: reductions, or outputs.
        early: outputs of the last pass that are known here already: stored here, registers need not hold them.
    """

    members: tuple[Member, ...]
    arguments: tuple[Parameter, ...]
    held: tuple[Held, ...]
    values: tuple[Value, ...]
    early: tuple[Value, ...] = ()

    @property
    def methods(self) -> tuple[Value, ...]:
        """Everything that is computed for each element."""
        return (*(held.value for held in self.held), *self.values, *self.early)

    @property
    def careful(self) -> bool:
        """Whether some of it has quick forms, which do not hold for all numbers."""
        return any("FAST" in value.formula for value in self.methods)

    @property
    def fresh(self) -> tuple[Value, ...]:
        """The held values that this pass is the first to compute."""
        return tuple(held.value for held in self.held if held.first)

    def wanted(self, early: Sequence[Operand]) -> tuple[Value, ...]:
        """Its reductions, or outputs but for those of `early`, which an earlier pass has stored; and its early ones."""
        return (*(value for value in self.values if value.operand not in early), *self.early)

    def taken(self, early: Sequence[Operand]) -> frozenset[str]:
        """The names of the operands, and of the values held by earlier passes, that it needs where all is held."""
        names = {p.name for value in (*self.fresh, *self.wanted(early)) for p in value.parameters}
        return frozenset(names - {value.name for value in self.fresh})


@dataclass(frozen=True)
class Kept:
    """Something that a thread keeps of each of a row's elements from one pass to another, all passes if need be.

    Attributes:
        name: of an input, or of a value that is held.
        element: its type.
        below: the types of what lies below it in the memory of an element, from the bottom on.
    """

    name: str
    element: str
    below: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """A value that a pass is to make of each element: its name, and as in `Value`."""

    name: str
    node: Node
    how: str
    operand: Operand | None


@dataclass(frozen=True)
class RowValue:
    """An output that a row has one of, and the name of its value as it is stored."""

    operand: Operand
    name: str
    type: str
    formula: str


@dataclass(frozen=True)
class Extreme:
    """A reduction to an extreme of an input's elements, which can be found in them as they are stored.

    Attributes:
        name: of the reduction.
        how: class of reductions.cuh that finds it, where what is found is finite if that matters.
        joined: class that joins what was found with the extremes of other elements.
        raw: the input.
    """

    name: str
    how: str
    joined: str
    raw: Operand


@dataclass(frozen=True)
class Reduction:
    """A program whose reductions are of one level, and none of whose outputs has an element for each of a row's that
    depends on them: parts of a row can be reduced apart (templates/reduce.cu.jinja).

    Attributes:
        each: what is made of each element at once: the reductions, and outputs.
        values: the reductions among these.
        outputs: the others.
        used: the names that the rows' own values are made of, beside the reductions.
        extremes: the reductions again, if all of them are extremes of elements and there is nothing else to make.
        beside: inputs that run along rows and along something else, so that rows beside each other may differ in them.
    """

    each: Pass
    values: tuple[Value, ...]
    outputs: tuple[Value, ...]
    used: frozenset[str]
    extremes: tuple[Extreme, ...]
    beside: tuple[Operand, ...]


def finite_name(reduction: str) -> str:
    return reduction.replace("Reduced", "Finite")
