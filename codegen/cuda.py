"""A program as CUDA: what a run of elements shares, what each element computes, how operands are reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from skuda.codegen.lowering import Lowering, Site, lowered
from skuda.codegen.nodes import CPP, INT, REAL, Node
from skuda.codegen.operators import WRAPPING, WRAPS
from skuda.codegen.printers import Printer, spelled_formulas
from skuda.codegen.program import Program, loaded
from skuda.codegen.reductions import COUNT
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, COUNTED, Attribute, Operand, Operation
from skuda.schedules import abi

_SMALL = 16  # bits of an integer, its sign among them, that is small for RowSteps


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
    """One output's formula, in the function that computes an element."""

    operand: Operand
    type: str
    formula: str


class CppPrinter(Printer):
    """C++ as a formula stands, no rule applies: what is computed once a run."""

    target = "cuda"
    constants = {
        "inf": "__longlong_as_double(0x7ff0000000000000ll)", "-inf": "-__longlong_as_double(0x7ff0000000000000ll)",
        "nan": "__longlong_as_double(0x7fffffffffffffffll)", "-nan": "-__longlong_as_double(0x7fffffffffffffffll)",
    }  # fmt: skip
    spelled = {"and": "&&", "or": "||", "not": "!", "neg": "-"}
    precedence = {**Printer.precedence, "not": 7}

    def number(self, node: Node) -> str:
        return f"{node.text}ll" if node.kind == INT else super().number(node)

    def smallest(self, node: Node) -> str:
        return f"C(::smallest<{node.text}>)"

    def text(self, node: Node, outer: int = 0) -> str:
        return super().text(node, 0 if node.text == WRAPS else outer)  # a call needs no parentheses around it

    def written(self, node: Node, own: int) -> str:
        if node.op == "stored":
            return f"::stored<{node.text}>({self.text(node.args[0])})"
        if node.text == WRAPS:
            return f"{WRAPPING[node.op]}({', '.join(map(self.text, node.args))})"
        return super().written(node, own)


class CudaPrinter(CppPrinter):
    """C++ of what is computed for each element; what a run shares becomes a member.

    Args:
        each: the names that differ between the elements of a run, with their types.
    """

    site = Site.ELEMENTWISE
    usual = ""  # the flag that quick forms clear: elementwise programs have none

    def __init__(self, each: Mapping[str, str]):
        self.each = each
        self.members: dict[tuple, Member] = {}
        self.ranges: dict[str, Node] = {}  # conditions on values of an element under which the fast forms hold
        self.once = CppPrinter()

    def varies(self, node: Node) -> bool:
        """Whether a value differs between the elements of a run."""
        return bool(node.names() & self.each.keys())

    def text(self, node: Node, outer: int = 0) -> str:
        if node.op != "number" and not self.varies(node):
            return self.shared(node)
        rule = lowered(node, self.site, self.varies, self.ranged)
        return super().text(node, outer) if rule is None else self.prepared(*rule)

    def stored(self, node: Node, narrow: str | None) -> str:
        """The text of what an output stores; `narrow`: its element, where that is a float of 8 bits."""
        rule = lowered(node, Site.STORE, self.varies) if narrow else None
        return self.text(node) if rule is None else self.prepared(*rule, narrow)

    def ranged(self, node: Node) -> bool:
        """Whether the range of a value is known."""
        return False

    def shared(self, node: Node) -> str:
        """The member that holds a value which is the same for the whole run."""
        name = f"{node.text}_" if node.op == "name" else f"shared_{len(self.members)}_"
        return self.member((node,), CPP.get(node.kind, "C"), name, self.once.text(node), prepared=False)

    def prepared(self, rule: Lowering, found: dict[str, Node], output: str = "") -> str:
        """What a lowering rule makes of a value; `output`: the element of the output that stores it."""
        words = {f"{name}_type": self.type_of(node) for name, node in found.items()} | {"usual": self.usual}
        if rule.holder:
            words["object"] = self.object(rule, found, words | {"output": output})
        words |= {name: self.text(node) for name, node in found.items() if f"{{{name}}}" in rule.becomes}
        if rule.within:
            self.ranges[rule.within.format(**words)] = found[rule.each[0]]
        return rule.becomes.format(**words)

    def object(self, rule: Lowering, found: dict[str, Node], words: Mapping[str, str]) -> str:
        """The member that a rule wants to be made once."""
        small = all(found[name].bits <= _SMALL for name in rule.once if found[name].kind == INT)
        type = rule.holder.format(**words, small=str(small).lower())
        made_of = (*(found[name] for name in rule.once), *self.known(rule, found))
        taken = sum(key[0].startswith(f"{rule.kind}<") for key in self.members if isinstance(key[0], str))
        stem = "steps_in_range" if rule.ranged else rule.kind.lower()
        name = f"{stem}_" if taken == 0 else f"{stem}_{taken + 1}_"
        arguments = ", ".join(self.once.text(node) for node in made_of)
        return self.member((type, *made_of), type, name, arguments, prepared=True)

    def known(self, rule: Lowering, found: dict[str, Node]) -> tuple[Node, ...]:
        """What an object is told of the range of a value."""
        return ()

    def type_of(self, node: Node) -> str:
        """The element type of an operand; C of what is computed."""
        return self.each.get(node.text, "C") if node.op == "name" else "C"

    def member(self, key: tuple, type: str, name: str, value: str, prepared: bool) -> str:
        if key not in self.members:
            self.members[key] = Member(type, name, value, prepared)
        return self.members[key].name

    @property
    def made_from(self) -> set[str]:
        """The names that the members are made from."""
        return {name for key in self.members for part in key if isinstance(part, Node) for name in part.names()}


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


class SharedPrinter(CppPrinter):
    """C++ of what a run of elements shares, in the constructor of a program."""

    def name(self, node: Node) -> str:
        return f"shared.{node.text}"


class ElementPrinter(CudaPrinter):
    """C++ of what each element computes, in the struct of a program: its inputs are members of `element`, what a run
    shares is members of the program.

    Args:
        each: as in CudaPrinter.
    """

    def __init__(self, each: Mapping[str, str]):
        super().__init__(each)
        self.once = SharedPrinter()

    def name(self, node: Node) -> str:
        return f"element.{node.text}"

    def shared(self, node: Node) -> str:
        stem = node.text if node.op == "name" else "shared_value"
        return self.member((node,), CPP.get(node.kind, "C"), stem, self.once.text(node), prepared=False)

    def member(self, key: tuple, type: str, name: str, value: str, prepared: bool) -> str:
        """As in CudaPrinter, under a name that no other member has."""
        taken = {*OWN_NAMES, *(member.name for member in self.members.values())}
        stem = name.rstrip("_")
        names = (stem if number == 1 else f"{stem}_{number}" for number in count(1))
        return super().member(key, type, next(name for name in names if name not in taken), value, prepared)


OWN_NAMES = frozenset(("of", "fast", "within", "element", "shared"))  # what a program has beside its operands


class ElementwiseProgram(ProgramInCuda):
    """What templates/elementwise_program.cu.jinja needs to know of one program.

    Attributes:
        parameters: inputs that a run of elements shares.
        members: what a run of elements shares, made once.
        outputs: formulas.
        ranges: conditions on an element under which all its fast forms hold; empty where they always do.
    """

    def __init__(self, program: Program):
        super().__init__(program)
        self.parameters = self.shared
        printer = ElementPrinter({operand.name: operand.element for operand in self.arrays})
        written_out = program.written_out
        formulas = [(operand, named_count(written_out[operand.name])) for operand in self.operation.outputs]
        self.outputs = tuple(
            Output(replace(operand, element=self.loaded(operand)), CPP.get(node.kind, "C"), printer.stored(node, self.narrow(operand)))
            for operand, node in formulas
        )
        self.members = tuple(printer.members.values())
        self.ranges = tuple(printer.ranges)

    @property
    def roles(self) -> list[str]:
        """The inputs as their roles, in the order of the kernels' arguments."""
        runs = [("PerBlock" if any(dim.block for dim in o.dims) else "PerRun", o) for o in self.parameters]
        each = [("PerElement", o) for o in self.arrays], runs, [("ScalarOf", o) for o in self.scalars]
        return [f"{role}<{self.loaded(operand)}>" for found in each for role, operand in found]

    @property
    def attribute_types(self) -> list[str]:
        """The types of attributes in the kernels' arguments."""
        return ["f64" if self.field(value).type == "C" else "i64" for value in self.values]

    @property
    def element_fields(self) -> list[Parameter]:
        """The inputs of an element, as formulas take them."""
        return [*map(self.field, self.arrays)]

    @property
    def shared_fields(self) -> list[Parameter]:
        """What a run shares, as formulas take it."""
        return [*map(self.field, (*self.parameters, *self.scalars, *self.values))]

    def field(self, item: Operand | Attribute) -> Parameter:
        """As formulas take it: widened."""
        return parameter_of(self.operation, item)


def named_count(node: Node) -> Node:
    """A value in which a number of elements is a name."""
    count = Node("name", (), REAL, text=COUNTED)
    return node.replaced(lambda each: count if each.op == COUNT else None)


def parameter_of(op: Operation, item: Operand | Attribute) -> Parameter:
    """An operand or attribute as the methods of a formula take it: widened."""
    element = item.element if isinstance(item, Operand) else item.type
    if op.in_compute(element):
        return Parameter("C", item.name)
    return Parameter("bool" if element == "bool" else "i64", item.name)
