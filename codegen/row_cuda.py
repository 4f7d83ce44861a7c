"""A program with reductions as CUDA: passes over a row that a kernel holds, each of which knows what those before it found.

Reductions, the row's length and outputs that other formulas name become names of their own, so that the rules
for maps hold: a pass has members that are made once a row, and a method for each value of an element. The names
start with a capital, which no operand's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skuda.codegen.cuda import CPP, CppPrinter, CudaPrinter, Member, Parameter, compute_of, parameter_of
from skuda.codegen.nodes import REAL, REDUCE, Node
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS
from skuda.operation import Operand

COUNT = "Count"


@dataclass(frozen=True)
class Value:
    """One value of an element of a row, as a method of its pass.

    Attributes:
        name: of a reduction (`Reduced0`), or of an output.
        type: in C++.
        parameters: the operands that it is made of.
        formula: its expression.
        how: class of runtime/cuda/reduce.cuh; empty for an output.
        operand: the output.
    """

    name: str
    type: str
    parameters: tuple[Parameter, ...]
    formula: str
    how: str = ""
    operand: Operand | None = None


@dataclass(frozen=True)
class Pass:
    """What is made of each element of a row at once.

    Attributes:
        members: made once a row.
        arguments: what these are made from.
        values: methods.
    """

    members: tuple[Member, ...]
    arguments: tuple[Parameter, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class RowValue:
    """An output that a row has one of."""

    operand: Operand
    type: str
    formula: str


class RowProgram:
    """What templates/row.cu.jinja needs to know of one program.

    Attributes:
        operation: the operation.
        name: of the function form; every C++ name of the program starts with it.
        formulas: texts of the row.
        arrays: inputs that are read for each element.
        columns: inputs that have an element for each place along a row, and are shared by rows.
        parameters: inputs that a row shares.
        shared: both of these, in call order.
        scalars: inputs that are one value.
        values: attributes that the formulas use.
        passes: over the row, in order; the last one makes the outputs and may have no values.
        row_values: outputs that have one value a row.
    """

    def __init__(self, program: Program):
        op = program.operation
        along = op.over.partition("/")[0]
        self.operation = op
        self.name = op.function
        self.formulas = program.formula_texts
        self.arrays = tuple(o for o in op.inputs if o.dims == op.space)
        self.scalars = tuple(o for o in op.inputs if o.scalar)
        rest = [o for o in op.inputs if o not in self.arrays and o not in self.scalars]
        self.columns = tuple(o for o in rest if any(d.name == along and not d.block for d in o.dims))
        self.parameters = tuple(o for o in rest if o not in self.columns)
        self.shared = tuple(rest)
        self.values = tuple(a for a in op.attributes if a.name in op.formula_attributes)
        self._each = {operand.name for operand in (*self.arrays, *self.columns)}
        self._types = {o.name: parameter_of(op, o) for o in (*op.inputs, *self.values)}
        self._types[COUNT] = Parameter("C", COUNT)
        names: dict[Node, Node] = {}
        levels: dict[Node, int] = {}
        formulas = program.written_out
        for node in formulas.values():
            for reduction in node.reductions():
                if reduction not in names:
                    name = f"Reduced{len(names)}"
                    names[reduction] = Node("name", (), reduction.kind, reduction.dims, reduction.bits, name)
                    inner = (levels[each] for argument in reduction.args for each in argument.reductions())
                    levels[reduction] = 1 + max(inner, default=-1)
                    self._types[name] = Parameter(CPP.get(reduction.kind, "C"), name)
        self.passes = tuple(
            self._pass({
                names[reduction].text: (_named(reduction.args[0], names), reduction.op.removeprefix(REDUCE), None)
                for reduction in names
                if levels[reduction] == level
            })
            for level in range(1 + max(levels.values()))
        )
        full = [operand for operand in op.outputs if operand.dims == op.space]
        self.passes += (self._pass({o.name: (_named(formulas[o.name], names), "", o) for o in full}),)
        self.row_values = tuple(
            RowValue(o, CPP.get(formulas[o.name].kind, "C"), CppPrinter().text(_named(formulas[o.name], names)))
            for o in op.outputs
            if o not in full
        )

    @property
    def letters(self) -> tuple[str, ...]:
        """Type letters in template order."""
        return self.operation.kernel_letters

    @property
    def compute(self) -> str:
        """The compute type C, in terms of a type letter."""
        return compute_of(self.operation)

    def _pass(self, wanted: Mapping[str, tuple[Node, str, Operand | None]]) -> Pass:
        printer = CudaPrinter(self._each)
        values = []
        for name, (node, how, operand) in wanted.items():
            elements = [o for o in (*self.arrays, *self.columns) if o.name in node.names()]
            values.append(
                Value(
                    name,
                    CPP.get(node.kind, "C"),
                    tuple(self._types[o.name] for o in elements),
                    printer.text(node),
                    REDUCTIONS[how].cuda if how else "",
                    operand,
                )
            )
        shared = [part for key in printer.members for part in key if isinstance(part, Node)]
        made_from = {name for node in shared for name in node.names()}
        arguments = tuple(parameter for name, parameter in self._types.items() if name in made_from)
        return Pass(tuple(printer.members.values()), arguments, tuple(values))


def _named(node: Node, names: Mapping[Node, Node]) -> Node:
    """A value in which reductions and the row's length are names."""
    count = Node("name", (), REAL, text=COUNT)
    return node.replaced(lambda each: count if each.op == "count" else names.get(each))
