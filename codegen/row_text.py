"""A program with reductions as the C++ struct that kernels of rows are instantiated with: its text, piece by piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from skuda.codegen.cuda import CppPrinter
from skuda.codegen.nodes import INT, Node
from skuda.codegen.row_cuda import RowProgram
from skuda.codegen.row_printer import RowPrinter
from skuda.codegen.row_values import Pass
from skuda.operation import COUNTED, Operand
from skuda.schedules import cluster_variants


class _Names:
    """C++ of the names in formulas: members of the small structs that a kernel hands to a pass."""

    spelled_names: Mapping[str, str] = {}

    def name(self, node: Node) -> str:
        return self.spelled_names[node.text]


class OncePrinter(_Names, CppPrinter):
    """C++ of what is computed once for a row."""

    def __init__(self, names: Mapping[str, str]):
        self.spelled_names = names


class ElementPrinter(_Names, RowPrinter):
    """C++ of what is computed for each element of a row."""

    usual = "usual"

    def __init__(self, names: Mapping[str, str], each, ranges):
        super().__init__(each, ranges)
        self.spelled_names = names
        self.once = OncePrinter(names)

    def member_name(self, name: str) -> str:
        return name


class RowProgramText(RowProgram):
    """What templates/row_program.cu.jinja prints of a program."""

    def printer(self, each, ranges) -> RowPrinter:
        return ElementPrinter(self.spelled_names, each, ranges)

    def once_printer(self) -> CppPrinter:
        return OncePrinter(self.spelled_names)

    @cached_property
    def spelled_names(self) -> Mapping[str, str]:
        return _Spelling(self)

    def member_of(self, name: str) -> str:
        """How a struct calls a value: `sum`, not `shared.sum`."""
        return self.spelled_names[name].partition(".")[2]

    def cpp(self, element: str) -> str:
        return element

    @property
    def struct(self) -> str:
        return f"{self.name}_program"

    @property
    def elements(self) -> tuple[Operand, ...]:
        """The inputs with an element for each of a row's, as `Element` has them."""
        return (*self.arrays, *self.columns)

    @property
    def element_members(self) -> list[str]:
        return [f"{self._types[o.name].type} {self.member_of(o.name)};" for o in self.elements]

    @property
    def held_members(self) -> list[str]:
        return [f"C {self.member_of(name)};" for name in self.held.values()]

    @property
    def shared_members(self) -> list[str]:
        """What a row shares: its length, what is given, what passes find, the outputs that it has one of."""
        given = [COUNTED, *(o.name for o in (*self.parameters, *self.scalars, *self.values))]
        found = [self._types[value.name] for each in self.passes[:-1] for value in each.values]
        flags = [self._types[value.finite] for each in self.passes[:-1] for value in each.values if value.finite]
        if not self.passes[:-1]:
            found = [self._types[value.name] for value in self.reduction.values]
        all = [*(self._types[name] for name in given), *found, *flags]
        lines = [f"{each.type} {self.member_of(each.name)};" for each in all]
        return [*lines, *(f"{value.type} {self.member_of(value.name)};" for value in self.row_values)]

    @property
    def inputs(self) -> list[str]:
        found = [f"PerElement<{o.element}>" for o in self.arrays]
        found += [f"{'PerColumn' if o in self.columns else 'PerRow'}<{o.element}>" for o in self.shared]
        return found + [f"ScalarOf<{o.element}>" for o in self.scalars]

    @property
    def attributes(self) -> list[str]:
        return ["f64" if self._types[v.name].type == "C" else "i64" for v in self.values]

    @property
    def outputs(self) -> list[str]:
        stored = {value.operand.name: self.member_of(value.name) for value in self.row_values}
        return [
            f"PerRow<{o.element}, &Shared::{stored[o.name]}>" if o.name in stored else f"PerElement<{o.element}>"
            for o in self.operation.outputs
        ]

    @property
    def stack(self) -> list[str]:
        """Of each input and each value that is held: its element, and those that lie below it; of cluster kernels."""
        if not cluster_variants(self.operation):
            return []
        kept = {each.name: each for each in self.kept}
        names = (*(o.name for o in self.arrays), *self.held.values())
        return [f"Kept<{', '.join((kept[name].element, *kept[name].below))}>" for name in names]

    @property
    def live_bits(self) -> str:
        found = []
        for arrays, held in self.live:
            values = [f"{held} * storage<C>::bits"] if held else []
            bits = " + ".join(f"storage<{o.element}>::bits" for o in arrays)
            found.append(" + ".join([bits] * bool(arrays) + values) or "0")
        text = found[0]
        for other in found[1:]:
            text = f"larger({text}, {other})"
        return text

    @property
    def finish(self) -> list[str]:
        return [f"shared.{self.member_of(value.name)} = {value.formula};" for value in self.row_values]

    @property
    def extremes(self) -> list[str]:
        found = self.reduction.extremes if self.reduction else ()
        return [f"Extreme<{e.how}, {e.joined}, {self.arrays.index(e.raw)}>" for e in found]

    @property
    def beside(self) -> str:
        names = {o.name for o in self.reduction.beside} if self.reduction else set()
        return self._bits(names)

    def _bits(self, names: set[str]) -> str:
        return bits([o.name in names for o in self.elements])

    def pass_text(self, each: Pass, name: str) -> PassText:
        makes = []
        for value in each.values:
            if value.operand is not None:
                makes.append(f"Store<{self.operation.outputs.index(value.operand)}>")
                continue
            flag = f"&Shared::{self.member_of(value.finite)}" if value.finite and each in self.passes else "nullptr"
            raw = -1 if value.raw is None else self.arrays.index(value.raw)
            member = f"&Shared::{self.member_of(value.name)}"
            makes.append(f"Reduce<{value.how}, {value.type}, {member}, {flag}, {raw}>")
        makes += [f"Store<{self.operation.outputs.index(value.operand)}>" for value in each.early]
        held = {v.value.name: v for v in each.held}
        reads = {p.name for value in each.methods for p in value.parameters}
        taken = each.taken(self.early)
        statements = []
        for one in each.held:
            known = "HOLDS_ALL" if one.first else "HOLDS_EARLIER"
            target = self.spelled_names[one.value.name]
            statements.append(f"if (KNOWN < {known}) {target} = {one.value.formula};")
        values = (*each.values, *each.early)
        return PassText(
            name,
            makes,
            self._bits(reads),
            self._bits(set(taken)),
            bits([n in held and held[n].first for n in self.held.values()]),
            bits([n in taken for n in self.held.values()]),
            each.careful,
            [f"{m.type} {m.name};" for m in each.members],
            [f"{m.name}({m.value})" for m in each.members],
            bool(each.arguments),
            " && ".join(f"{m.name}.fast" for m in each.members if m.prepared) or "true",
            ", ".join(value.type for value in values),
            statements,
            ", ".join(value.formula for value in values),
        )

    @property
    def pass_texts(self) -> list[PassText]:
        """The passes that make something; none for a program that is reduced in parts alone."""
        if self.operation.of_second:
            return []
        return [self.pass_text(each, f"Pass{i + 1}") for i, each in enumerate(self.passes) if each.values]

    @property
    def in_parts(self) -> PassText | None:
        """The one pass where parts of rows are reduced apart."""
        return self.pass_text(self.reduction.each, "InParts") if self.reduction else None

    @property
    def pass_list(self) -> list[str]:
        names = [each.name for each in self.pass_texts]
        return [*names, "EmptyPass"] if names and not self.passes[-1].values else names


@dataclass(frozen=True)
class PassText:
    """A pass over a row as text."""

    name: str
    makes: list[str]
    reads: str
    takes: str
    held_fresh: str
    held_taken: str
    careful: bool
    members: list[str]
    initializers: list[str]
    constructed: bool
    fast: str
    types: str
    statements: list[str]
    values: str

    @property
    def body(self) -> tuple:
        """All but its name."""
        return tuple(value for key, value in vars(self).items() if key != "name")


def bits(flags) -> str:
    """A mask in C++: the first flag is its lowest bit."""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return f"0b{text or '0'}"


class _Spelling(dict):
    """C++ of each name of a program, made as it is asked for."""

    def __init__(self, program: RowProgramText):
        super().__init__()
        self.program = program

    def __missing__(self, name: str) -> str:
        program = self.program
        elements = {o.name for o in program.elements}
        if name in elements:
            text = f"element.{name}"
        elif name.startswith("Held"):
            text = f"held.{name}"
        elif name.startswith("Stored"):
            values = {f"Stored{i}": o for i, o in enumerate(program.one_a_row)}
            text = f"shared.{values[name].name}"
        elif name == COUNTED:
            text = "shared.count"
        else:
            text = f"shared.{name}"
        self[name] = text
        return text
