"""A program as CUDA: what a run of elements shares, what each element computes, how operands are reached."""

from __future__ import annotations

from dataclasses import dataclass

from skuda.codegen.lowering import Lowering, lowered
from skuda.codegen.nodes import BOOL, INT, Node
from skuda.codegen.printers import Printer
from skuda.codegen.program import Program
from skuda.dtypes import DTYPES
from skuda.operation import Attribute, Operand, Operation

CPP = {INT: "i64", BOOL: "bool"}


@dataclass(frozen=True)
class Member:
    """A value that a run of elements shares: made once, used by each."""

    type: str
    name: str
    value: str
    prepared: bool


@dataclass(frozen=True)
class Parameter:
    """An operand or attribute as a parameter of a C++ function."""

    type: str
    name: str


@dataclass(frozen=True)
class Output:
    """One output's formula as a C++ method."""

    operand: Operand
    type: str
    parameters: tuple[Parameter, ...]
    formula: str


class CppPrinter(Printer):
    """C++ as a formula stands, no rule applies: what is computed once a run."""

    target = "cuda"
    spelled = {"and": "&&", "or": "||", "not": "!", "neg": "-"}
    precedence = {**Printer.precedence, "not": 7}

    def number(self, node: Node) -> str:
        return f"{node.text}ll" if node.kind == INT else super().number(node)

    def written(self, node: Node, own: int) -> str:
        if node.op == "stored":
            return f"::stored<{node.text}>({self.text(node.args[0])})"
        return super().written(node, own)


class CudaPrinter(CppPrinter):
    """C++ of what is computed for each element; what a run shares becomes a member."""

    def __init__(self, each: set[str]):
        self.each = each
        self.members: dict[tuple, Member] = {}
        self.once = CppPrinter()

    def varies(self, node: Node) -> bool:
        """Whether a value differs between the elements of a run."""
        return bool(node.names() & self.each)

    def text(self, node: Node, outer: int = 0) -> str:
        if node.op != "number" and not self.varies(node):
            return self.shared(node)
        rule = lowered(node, self.varies)
        return super().text(node, outer) if rule is None else self.prepared(*rule)

    def shared(self, node: Node) -> str:
        """The member that holds a value which is the same for the whole run."""
        name = f"{node.text}_" if node.op == "name" else f"shared_{len(self.members)}_"
        return self.member((node,), CPP.get(node.kind, "C"), name, self.once.text(node), prepared=False)

    def prepared(self, rule: Lowering, found: dict[str, Node]) -> str:
        """The call that a lowering rule makes of a value."""
        once = tuple(found[name] for name in rule.once)
        stem = rule.holder.lower()
        taken = sum(key[0] == rule.holder for key in self.members)
        name = f"{stem}_" if taken == 0 else f"{stem}_{taken + 1}_"
        arguments = ", ".join(self.once.text(node) for node in once)
        member = self.member((rule.holder, *once), f"{rule.holder}<C>", name, arguments, prepared=True)
        return f"{member}.template {rule.method}<FAST>({self.text(found[rule.each])})"

    def member(self, key: tuple, type: str, name: str, value: str, prepared: bool) -> str:
        if key not in self.members:
            self.members[key] = Member(type, name, value, prepared)
        return self.members[key].name

    @property
    def made_from(self) -> set[str]:
        """The names that the members are made from."""
        return {name for key in self.members for part in key if isinstance(part, Node) for name in part.names()}


class ProgramInCuda:
    """What the templates of maps and of rows both need to know of a program.

    Attributes:
        operation: the operation.
        name: of the function form; every C++ name of the program starts with it.
        formulas: texts of the row.
        arrays: inputs that are read for each element.
        scalars: inputs that are one value.
        shared: the other inputs, in call order.
        values: attributes that the formulas use.
        reduction: how a program with reductions comes apart; None where it does not.
    """

    reduction = None

    def __init__(self, program: Program):
        op = program.operation
        self.operation = op
        self.name = op.function
        self.formulas = program.formula_texts
        self.arrays = tuple(o for o in op.inputs if o.dims == op.space)
        self.scalars = tuple(o for o in op.inputs if o.scalar)
        self.shared = tuple(o for o in op.inputs if o not in self.arrays and o not in self.scalars)
        self.values = tuple(a for a in op.attributes if a.name in op.formula_attributes)

    @property
    def letters(self) -> tuple[str, ...]:
        """Type letters in template order."""
        return self.operation.kernel_letters

    @property
    def compute(self) -> str:
        """The compute type C, in terms of a type letter."""
        op = self.operation
        letters = [o.element for o in (*op.outputs, *op.inputs) if o.element in op.types]
        floats = [letter for letter in letters if _is_float(op, letter)]
        primary = [letter for letter in floats if letter != "S"] or floats
        return f"compute_t<{primary[0]}>" if primary else "f32"


class CudaProgram(ProgramInCuda):
    """What templates/map/ needs to know of one program.

    Attributes:
        members: what a run of elements shares.
        shared_parameters: what the members are made from.
        outputs: formulas, one method each.
        parameters: inputs that a run of elements shares.
    """

    def __init__(self, program: Program):
        super().__init__(program)
        op = program.operation
        self.parameters = self.shared
        printer = CudaPrinter({operand.name for operand in self.arrays})
        written_out = program.written_out
        formulas = [(operand, written_out[operand.name]) for operand in op.outputs]
        self.outputs = tuple(
            Output(
                operand,
                CPP.get(node.kind, "C"),
                tuple(self.parameter(array) for array in self.arrays if array.name in node.names()),
                printer.text(node),
            )
            for operand, node in formulas
        )
        self.members = tuple(printer.members.values())
        self.shared_parameters = tuple(
            self.parameter(item)
            for item in (*self.parameters, *self.scalars, *self.values)
            if item.name in printer.made_from
        )

    def parameter(self, item: Operand | Attribute) -> Parameter:
        """As the formula's methods take it: widened."""
        return parameter_of(self.operation, item)


def parameter_of(op: Operation, item: Operand | Attribute) -> Parameter:
    """An operand or attribute as the methods of a formula take it: widened."""
    element = item.element if isinstance(item, Operand) else item.type
    if element == "C":
        return Parameter("C", item.name)
    if element in op.types:
        return Parameter("C" if _is_float(op, element) else "i64", item.name)
    kind = {"f": "C", "b": "bool" if element == "bool" else "C"}.get(element[0], "i64")
    return Parameter(kind, item.name)


def _is_float(op: Operation, letter: str) -> bool:
    word = op.types[letter][0]
    while word in op.types:
        word = op.types[word][0]
    return DTYPES[word].kind == "float"
