"""A program as CUDA: its operands by their roles, and for elementwise programs what each element computes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from skuda.codegen.cuda_printers import ElementPrinter
from skuda.codegen.expr import COMPARE
from skuda.codegen.lowering import Site
from skuda.codegen.nodes import CPP, REAL, Node
from skuda.codegen.operators import WRAPS
from skuda.codegen.printers import spelled_formulas
from skuda.codegen.program import Program, loaded
from skuda.codegen.value_names import with_members
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, COUNTED, Attribute, Operand
from skuda.schedules import abi


@dataclass(frozen=True)
class Parameter:
    """An operand or attribute as a parameter of a C++ function."""

    type: str
    name: str


@dataclass(frozen=True)
class Output:
    """One output's formula, in the function that computes an element."""

    operand: Operand
    type: str
    formula: str


_OWN_NAMES = ("of", "fast", "within", "reads", "element", "shared")  # of an elementwise program, beside its members


class ProgramInCuda:
    """What the templates of elementwise programs and of rows both need to know of a program.

    Attributes:
        operation: the operation.
        name: of the function form; every C++ name of the program starts with it.
        formulas: texts of the row.
        arrays: inputs that are read for each element.
        scalars: inputs that are one value.
        shared: the other inputs, in call order.
        values: attributes that the formulas use, then the number of elements that they count.
    """

    def __init__(self, program: Program):
        op = program.operation
        self.operation = op
        self.name = op.function
        self.formulas = spelled_formulas(program)
        order = abi.order(op)
        self.arrays, self.shared, self.scalars = order.elements, order.shared, order.scalars
        found = {each.name: each for each in (*op.attributes, Attribute(COUNTED, COMPUTE))}
        self.values = tuple(found[name] for name in order.attributes)

    def narrow(self, operand: Operand) -> str | None:
        """The element of an output, where it is a float of 8 bits whatever the types are."""
        words = {self.operation.word(operand, types) for types in self.operation.combinations}
        return operand.element if all(DTYPES[word].narrow_float for word in words) else None

    def loaded(self, operand: Operand) -> str:
        """What kernels load and store the elements of an operand as."""
        if operand in self.operation.positions:
            return "Place"
        return loaded(self.operation, operand.element)

    @property
    def letters(self) -> tuple[str, ...]:
        """Type letters in template order."""
        return self.operation.kernel_letters

    @property
    def compute(self) -> str:
        """The compute type C, in terms of a type letter."""
        op = self.operation
        floats = [letter for letter in op.types if letter in op.kernel_letters and op.in_compute(letter)]
        return f"compute_t<{floats[0]}>" if floats else "f32"

    @property
    def attribute_types(self) -> list[str]:
        """The types of attributes in the kernels' arguments."""
        return ["f64" if self.field(value).type == "C" else "i64" for value in self.values]

    def field(self, item: Operand | Attribute) -> Parameter:
        """An operand or attribute as the methods of a formula take it: widened."""
        element = item.element if isinstance(item, Operand) else item.type
        if self.operation.in_compute(element):
            return Parameter("C", item.name)
        return Parameter("bool" if element == "bool" and isinstance(item, Operand) else "i64", item.name)


class ElementwiseProgram(ProgramInCuda):
    """What templates/elementwise_program.cu.jinja needs to know of one program.

    Attributes:
        parameters: inputs that a run of elements shares.
        members: what a run of elements shares, made once.
        outputs: formulas.
        ranges: conditions on an element under which all its fast forms hold; empty where they always do.
        random: whether it makes random numbers.
        reads: whether elements are read at all, as attributes and positions tell; empty where they do not.
        apart: positions along one axis of which formulas take no more than how far they are apart, to compare it.
    """

    def __init__(self, program: Program):
        super().__init__(program)
        self.parameters = self.shared
        each = {operand.name: operand.element for operand in self.arrays}
        members = {item.name: f"shared.{item.name}" for item in (*self.shared, *self.scalars, *self.values)}
        chosen = [members[item.name] for item in (*self.scalars, *self.values)]
        printer = ElementPrinter(Site.ELEMENTWISE, each, _OWN_NAMES, chosen=chosen)
        count = Node("name", (), REAL, text=f"shared.{COUNTED}")
        in_kernel = with_members(members, count)
        formulas = {name: in_kernel(node) for name, node in program.written_out.items()}
        places = [each for each in self.shared if each in self.operation.positions]
        single = {members[each.name] for each in places if len(each.dims) == 1 and not each.dims[0].many}
        self.apart = single.difference(*(_taken(node, single) for node in formulas.values()))
        self.outputs = tuple(self._output(each, formulas[each.name], printer) for each in self.operation.outputs)
        told = {members[each.name] for each in (*places, *self.values)}
        self.random = "random.cuh" in program.headers
        self.reads = _reads(formulas, {members[each.name] for each in places}, told, printer)
        self.members = printer.members
        self.ranges = tuple(printer.within)

    def _output(self, operand: Operand, node: Node, printer: ElementPrinter) -> Output:
        stored = printer.stored(node, self.narrow(operand))
        return Output(operand.but(element=self.loaded(operand)), CPP.get(node.kind, "C"), stored)

    @property
    def roles(self) -> list[str]:
        """The inputs as their roles, in the order of the kernels' arguments."""
        runs = [(self._role(operand), operand) for operand in self.parameters]
        each = [("PerElement", o) for o in self.arrays], runs, [("ScalarOf", o) for o in self.scalars]
        return [f"{role}<{self.loaded(operand)}>" for found in each for role, operand in found]

    def _role(self, operand: Operand) -> str:
        """The role of an input that elements share."""
        if operand in self.operation.of_rows:
            return "PerRow"
        return "PerBlock" if any(dim.block for dim in operand.dims) else "PerRun"

    @property
    def element_fields(self) -> list[Parameter]:
        """The inputs of an element, as formulas take them."""
        return [*map(self.field, self.arrays)]

    @property
    def shared_fields(self) -> list[Parameter]:
        """What a run shares, as formulas take it."""
        fields = map(self.field, (*self.parameters, *self.scalars, *self.values))
        return [Parameter("SharedPlace", each.name) if f"shared.{each.name}" in self.apart else each for each in fields]


def _taken(node: Node, places: Collection[str]) -> frozenset[str]:
    """The names in a formula outside of distances between places that are compared with something."""
    if node.op == "name":
        return frozenset({node.text})
    args = node.args
    difference = node.op in COMPARE.values() and args[0].op == "-" and args[0].text != WRAPS
    if difference and all(each.op == "name" and each.text in places for each in args[0].args):
        args = args[1:]
    return frozenset().union(*(_taken(each, places) for each in args))


def _reads(formulas: Mapping[str, Node], places: set[str], told: set[str], printer: ElementPrinter) -> str:
    """The condition under which elements are all of a program's only output; empty where there is none.

    Args:
        formulas: of the outputs.
        places: names of positions, of which the condition must have one.
        told: these and attributes, of which it must have no more.
        printer: of the program.
    """
    node, *others = formulas.values()
    if others or node.op != "where" or not node.args[0].names() & places or node.args[0].names() - told:
        return ""
    first, second = map(printer.varies, node.args[1:])
    return "" if first == second else ("" if first else "!") + printer.text(node.args[0], printer.precedence["not"])
