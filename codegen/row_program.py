"""A program with reductions as the C++ struct that kernels of rows take: its text, piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from skuda.codegen.cuda import ProgramInCuda
from skuda.codegen.cuda_printers import CppPrinter, ElementPrinter, OncePrinter, is_costly, makes_random
from skuda.codegen.intrinsics import RANDOM
from skuda.codegen.lowering import LOWERINGS, Site
from skuda.codegen.nodes import CPP, Node
from skuda.codegen.operators import FUNCTIONS, WRAPPING
from skuda.codegen.program import Program, loaded
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.row_analysis import RowAnalysis
from skuda.codegen.row_passes import LENGTH, Pass, Value
from skuda.codegen.stages import stages
from skuda.codegen.value_names import functions_in
from skuda.model.operation import COMPUTE, Operand
from skuda.schedules.row_variants import cluster_variants

# What a pass has beside the values that a row shares, and the functions that formulas call: no member is called so.
_OWN_NAMES = {"apart", "fast", "of", "element", "held", "shared", "usual", "wanted", "takes_columns"}
_OWN_NAMES |= {"rising", "first", "next"}
_OWN_NAMES |= functions_in([*(row.cuda for row in FUNCTIONS.values()), *(f"{name}(" for name in WRAPPING.values())])
_OWN_NAMES |= functions_in(rule.becomes for rule in LOWERINGS)


@dataclass(frozen=True)
class PickText:
    """The reductions that one element tells, as text: what is read of it, the number of the first pass that knows of
    it, where it is, and what they then are."""

    name: str
    reads: str
    before: int
    index: str
    statements: tuple[str, ...]


@dataclass(frozen=True)
class PassText:
    """A pass as text: what it makes, its constants, its members, the function that computes an element, the conditions
    under which a call wants it, and its columns, if not always, and the value that it is repeated for, with the
    first one and the next one."""

    name: str
    makes: tuple[str, ...]
    constants: tuple[str, ...]
    members: tuple[str, ...]
    initializers: tuple[str, ...]
    fast: str
    apart: str
    types: tuple[str, ...]
    statements: tuple[str, ...]
    values: tuple[str, ...]
    wanted: str
    columns: str
    repeat: tuple[str, str, str] | None

    @property
    def body(self) -> tuple:
        """All but its name."""
        return tuple(value for key, value in vars(self).items() if key != "name")


class RowProgram(ProgramInCuda):
    """What templates/row_program.cu.jinja prints of a program."""

    attributes = ProgramInCuda.attribute_types  # as that template calls it

    def __init__(self, program: Program):
        super().__init__(program)
        row = self.row = RowAnalysis(program)
        self.struct = f"{self.name}_program"
        self._each = {o.name: o.element for o in row.elements} | dict.fromkeys(row.held.values(), "C")
        self._each |= {value.name: CPP.get(value.kind, "C") for value in row.scanned}
        parts = frozenset().union(*[node.parts() for node in program.formulas.values()])
        self._drawn = {part.args[-1].text for part in parts if part.op in RANDOM}  # places of which numbers are drawn
        last = len(row.passes) if row.passes[-1].values else len(row.passes) - 1
        rows = () if self.operation.of_alternative else row.passes[:last]
        self.passes = tuple(self._pass(each, f"Pass{number + 1}") for number, each in enumerate(rows))
        self.empty_pass = bool(rows or row.picks) and last < len(row.passes)
        self.picks = self._picks()
        self.split_pass = self._pass(row.split.whole, "SplitPass") if row.split else None

    @property
    def element_members(self) -> list[str]:
        """The inputs with an element for each of a row's."""
        return [f"{'DrawnPlace' if o.name in self._drawn else self.field(o).type} {o.name}" for o in self.row.elements]

    @property
    def held_members(self) -> list[str]:
        """The values of an element that several passes use."""
        found = [*dict.fromkeys(self.row.held.values(), "C").items()]
        found += [(value.name, CPP.get(value.kind, "C")) for value in self.row.scanned]
        return [f"{type} {_member(name)}" for name, type in found]

    @property
    def shared_members(self) -> list[str]:
        """What a row shares: its length, what it is given, what passes find, the outputs that it has one of."""
        row = self.row
        given = [(self.field(item).type, name) for item, name in row.given.items()]
        made = [value for each in row.passes[:-1] for value in each.values if value.scan is None]
        found = [(CPP.get(each.name.kind, "C"), each.name.text) for each in row.picks]
        found += [(CPP.get(value.kind, "C"), value.name) for value in made]
        found += [("C", each.repeat.name) for each in row.passes if each.repeat]
        flags = [("bool", name) for name in row.finite.values()]
        stored = [(CPP.get(value.node.kind, "C"), value.name) for value in row.row_values]
        return [f"{type} {_member(name)}" for type, name in [("C", LENGTH.text), *given, *found, *flags, *stored]]

    @property
    def inputs(self) -> list[str]:
        """The roles of inputs, in the order of a kernel's arguments."""
        found = [f"PerElement<{self.loaded(o)}>" for o in self.arrays]
        found += [f"{self._role(o)}<{self.loaded(o)}>" for o in self.shared]
        return found + [f"ScalarOf<{self.loaded(o)}>" for o in self.scalars]

    def _role(self, operand: Operand) -> str:
        """The role of an input that elements share."""
        if operand not in self.row.columns:
            return "PerRow"
        return "PerRun" if self.operation.in_runs(operand) else "PerColumn"

    @property
    def outputs(self) -> list[str]:
        """The roles of outputs."""
        stored = {value.operand: _pointer(value.name) for value in self.row.row_values}
        return [
            f"PerRow<{self.loaded(o)}, {stored[o]}>" if o in stored else f"PerElement<{self.loaded(o)}>"
            for o in self.operation.outputs
        ]

    @property
    def stack(self) -> list[str]:
        """How a cluster keeps each input and each value that is held; empty where there is no cluster kernel."""
        if not cluster_variants(self.operation):
            return []
        saved = {each.name: each for each in self.row.saved}
        names = (*(o.name for o in self.arrays), *self.row.held.values())
        elements = [(saved[name].element, *saved[name].below) for name in names]
        return [f"Saved<{', '.join(loaded(self.operation, each) for each in every)}>" for every in elements]

    @property
    def live_bits(self) -> str:
        """How many bits of each element its threads hold in registers: at most, between two passes."""
        found = []
        for arrays, held in self.row.live:
            values = [f"{held} * storage<C>::bits"] if held else []
            found.append(" + ".join([*(f"storage<{o.element}>::bits" for o in arrays), *values]) or "0")
        text = found[0]
        for other in found[1:]:
            text = f"larger({text}, {other})"
        return text

    @property
    def constants(self) -> list[str]:
        """What differs from what most programs have."""
        op = self.operation
        beside = self._mask(o.name for o in self.row.split.beside) if self.row.split else ""
        values = {
            "bool BLOCKS": "true" if op.block else "",
            "bool IN_SLABS": "true" if op.analysis.slabs else "",
            "u32 BESIDE": beside,
            "int COSTLY": str(self.row.costly or ""),
            "int STRIPE": str(op.analysis.stripes or ""),
            "int STAGE": str(op.analysis.stage or ""),
            "int LIVE_BITS": self.live_bits if (self.passes or self.empty_pass) and not self.row.scanned else "",
            "bool LATE_COLUMNS": "true" if self._late_columns else "",
            "bool LONE_FINISH": "true" if self._lone_finish else "",
            "bool LONE_ENDS": "true" if self._lone_ends else "",
        }
        return [f"{name} = {text}" for name, text in values.items() if text]

    @property
    def _late_columns(self) -> bool:
        """Whether no pass that all calls want reads a column in memory."""
        row = self.row
        always = [each for each in row.passes if not each.guards and not row.column_guards(each.made, ())]
        return bool(row.stored_columns) and not row.stored_columns & {n for each in always for n in each.reads}

    @property
    def _lone_finish(self) -> bool:
        """Whether the outputs that a row has one of take some time, and the others know nothing of them."""
        values = self.row.row_values
        costly = self._lone_ends or is_costly(*(each.node for each in values))
        return costly and not self.row.passes[-1].names & {each.name for each in values}

    @property
    def _lone_ends(self) -> bool:
        """Whether there are sums of exponentials, of whose logarithms only outputs that a row has one of know."""
        made = [value for each in self.row.passes for value in each.made]
        ends = {value.name for value in made if value.how == REDUCTIONS["logsumexp"].cuda}
        named = set().union(*(value.node.names() for value in made))
        return bool(ends) and not named & (ends | {each.name for each in self.row.row_values})

    @property
    def finish(self) -> list[str]:
        """The outputs that a row has one of."""
        printer = OncePrinter({}, self.row.chosen)
        return [f"{value.name} = {printer.text(value.node)}" for value in self.row.row_values]

    @property
    def extremes(self) -> list[str]:
        """The reductions, where all are extremes of elements as they are stored."""
        found = self.row.split.extremes if self.row.split else ()
        return [f"Extreme<{e.how}, {e.joined}, {self.arrays.index(e.raw)}>" for e in found]

    @property
    def same_as_split_pass(self) -> str:
        """The pass over rows that is that in parts too; empty where none is."""
        wanted = self.split_pass and self.split_pass.body
        return next((each.name for each in self.passes if each.body == wanted), "")

    def _mask(self, names: Iterable[str]) -> str:
        """The bits of some inputs, in C++; empty where there are none."""
        return _mask([o.name for o in self.row.elements], names)

    def _spine(self, node: Node) -> dict[Node, int]:
        """The choices by what a row shares, between what elements differ in and what they share, around all in which
        they differ: with the former's index. A row that takes the latter computes nothing else."""
        found: dict[Node, int] = {}
        differ = self._each.keys()
        while node.args:
            varying = [index for index, each in enumerate(node.args) if each.names() & differ]
            if len(varying) != 1:
                break
            if node.op == "where" and varying[0] > 0:
                found[node] = varying[0]
            node = node.args[varying[0]]
        return found

    def _without_columns(self, node: Node) -> dict[Node, int]:
        """The choices of a call between what knows columns in memory and what rows share: with the latter's index."""
        if node.op == "where" and node.args[0].names() <= self.row.chosen:
            others = [index for index in (1, 2) if not node.args[index].names() & self._each.keys()]
            if len(others) == 1 and node.args[3 - others[0]].names() & self.row.stored_columns:
                return {node: others[0]}
        found: dict[Node, int] = {}
        for each in node.args:
            found |= self._without_columns(each)
        return found

    def _picks(self) -> tuple[PickText, ...]:
        """Those of one element together."""
        found, printer = [], _PickPrinter()
        for number, (index, each_of) in enumerate(groupby(self.row.picks, lambda each: each.of.index)):
            same, statements, names = [*each_of], [], set()
            for each in same:
                value = "true" if each.of.value is None else printer.text(each.of.value)
                names |= each.of.value.names() if each.of.value else set()
                value = f"picked_sum({value}, shared.count)" if each.of.adds else value
                nothing = "false" if each.of.nothing is None else printer.text(each.of.nothing)
                statements.append(f"{each.name.text} = found ? {value} : {nothing}")
            reads = self._mask(names) or "0"
            before = self._first_pass_of({each.name.text for each in same})
            found.append(PickText(f"Pick{number + 1}", reads, before, printer.text(index), tuple(statements)))
        return tuple(found)

    def _first_pass_of(self, names: set[str]) -> int:
        """The first pass that knows of one of these, or the last one, which values of the row are made beside."""
        passes = self.row.passes if self.passes else self.row.passes[-1:]
        return next((number for number, each in enumerate(passes) if names & each.names), len(passes) - 1)

    def _made(self, value: Value, whole: bool) -> str:
        if value.operand is not None:
            return f"Store<{self.operation.outputs.index(value.operand)}>"
        type = CPP.get(value.node.kind, "C")
        if value.scan is not None:
            options = [str(each).lower() for each in (value.scan.exclusive, value.scan.reverse)]
            return f"Scan<{', '.join((value.how, type, _pointer(value.name, 'Held'), *options))}>"
        flag = _pointer(self.row.finite[value.name]) if value.asks_finite and not whole else ""
        raw = "" if value.raw is None else str(self.arrays.index(value.raw))
        more = [flag or "nullptr"] * bool(flag or raw) + [raw] * bool(raw)
        return f"Reduce<{', '.join((value.how, type, _pointer(value.name), *more))}>"

    def _pass(self, each: Pass, name: str) -> PassText:
        row = self.row
        whole = row.split is not None and each is row.split.whole
        along = () if self.operation.block or whole else self.operation.along
        made = (*each.values, *each.early)
        spine = self._spine(made[0].node) if len(made) == 1 and made[0].operand else {}
        guards = row.column_guards(made, each.held)
        taken_by_fast = spine | (self._without_columns(made[0].node) if len(made) == 1 and guards else {})
        printer = ElementPrinter(
            Site.ROW, self._each, _OWN_NAMES, each.ranges, row.called, along, taken_by_fast, row.chosen,
            not self.operation.analysis.exact,
        )  # fmt: skip
        once = OncePrinter({})
        statements, formulas = [], []
        usual = " && ".join(map(printer.condition, spine))
        for one in each.held:
            text = printer.text(one.value.node)
            known = "HOLDS_ALL" if one.first else "HOLDS_EARLIER"
            wanted = f" && (FAST || ({usual}))" if usual else ""
            statements.append(f"if (KNOWN < {known}{wanted}) {one.value.name} = {text}")
        for value in made:
            narrow = self.narrow(value.operand) if value.operand else None
            formulas.append(printer.stored(value.node, narrow) if value.operand else printer.text(value.node))
        columns = " || ".join(printer.text(guard.wanted, 4) for guard in guards)
        conditions, members = printer.conditions, printer.members
        reads, taken = self._mask(each.reads), self._mask(each.taken(row.early))
        held = [*row.held.values(), *(value.name for value in row.scanned)]
        per_row = {f"shared.{o.name}" for o in row.parameters}
        given = {name for member in members for name in re.findall(r"shared\.\w+", member.value)}
        nodes = [value.node for value in (*made, *(one.value for one in each.held))]
        masks = {
            "bool PER_ROW": "true" if whole and per_row & given else "",
            "u32 READS": reads,
            "u32 TAKES": taken,
            "u32 HELD_FRESH": _mask(held, (value.name for value in each.fresh)),
            "u32 HELD_TAKEN": _mask(held, each.taken(row.early)),
            "bool SOMETIMES": "true" if each.guards else "",
            "bool CAREFUL": "true" if any("FAST" in text for text in (*statements, *formulas)) else "",
            "bool GROUPED": "true" if printer.grouped else "",
            "bool RANDOM": "true" if any(map(makes_random, nodes)) else "",
        }
        return PassText(
            name,
            tuple(self._made(value, whole) for value in made),
            tuple(f"{name} = {text}" for name, text in masks.items() if text),
            tuple(f"{member.type} {member.name}" for member in members),
            tuple(f"{member.name}({member.value})" for member in members),
            " && ".join([*(f"{member.name}.fast" for member in members if member.prepared), *conditions]),
            " && ".join(printer.grouped),
            tuple(CPP.get(value.node.kind, "C") for value in made),
            tuple(statements),
            tuple(formulas),
            " && ".join(sorted(once.text(guard.wanted, 4) for guard in each.guards)),
            columns,
            each.repeat and (each.repeat.name, once.text(each.repeat.start), once.text(each.repeat.next)),
        )


class SlabProgram:
    """What templates/source.cu.jinja prints of a program in two stages that one kernel may do: rows, and sums across
    them.

    Attributes:
        operation: of the whole.
        rows, sums: its stages.
        elements: the members of the sums' Element, in terms of an element of a row and of what the row shares.
        bounds: the extremes of the first pass that only bound another value of the row.
    """

    def __init__(self, program: Program):
        self.operation = program.operation
        self.struct = f"{self.operation.function}_program"
        self.rows, self.sums = (RowProgram(stage) for stage in stages(program))
        names = {o: f"element.{o.name}" for o in self.rows.row.elements} | self.rows.row.given
        names |= {value.operand: value.name for value in self.rows.row.row_values}
        self.elements = [names[operand] for operand in self.sums.row.elements]
        self.bounds = _bounds(self.rows.row)

    @property
    def finish(self) -> list[str]:
        """The values that a row has one of: those that no memory holds as they are, and not as they would be stored."""
        row, printer = self.rows.row, OncePrinter({}, self.rows.row.chosen)
        inside = {o for o in self.rows.operation.outputs if o.element == COMPUTE} - {*self.operation.outputs}
        nodes = {value.name: value.node.args[0] if value.operand in inside else value.node for value in row.row_values}
        return [f"{name} = {printer.text(node)}" for name, node in nodes.items()]

    @property
    def bound_makes(self) -> str:
        """Those of the first pass, as bits in C++: the first that it makes is the lowest one."""
        return f"0x{sum(1 << index for bound in self.bounds for index in bound.makes):x}"

    @property
    def letters(self) -> tuple[str, ...]:
        """Type letters in template order."""
        return self.operation.kernel_letters


@dataclass(frozen=True)
class BoundText:
    """Two extremes of elements that nothing but one clamp takes, as text: which the first pass makes them, their
    names, and the value that is cut to them."""

    makes: tuple[int, int]
    extremes: tuple[str, str]
    value: str


def _bounds(row: RowAnalysis) -> tuple[BoundText, ...]:
    """The extremes of a row's first pass that only bound a mean, or another value that knows no element."""
    first, *others = row.passes
    if first.guards:
        return ()
    made = {value.name: index for index, value in enumerate(first.values)}
    nodes = {value.node for each in others for value in each.made} | {each.node for each in row.row_values}
    parts = frozenset().union(*(node.parts() for node in nodes))
    elements = {o.name for o in row.elements} | {*row.held.values()}
    found = {}
    for part in parts:
        ends = [each.text for each in part.args[1:]] if part.op == "clamp" else []
        hows = [first.values[made[name]].how if name in made else "" for name in ends]
        if hows == ["Smallest", "Largest"] and not part.names() & elements:
            value = OncePrinter({}).text(part.args[0])
            found[tuple(ends)] = BoundText((made[ends[0]], made[ends[1]]), tuple(ends), value)
    taken = [each.text for part in parts if part.op != "clamp" for each in part.args]
    taken += [part.args[0].text for part in parts if part.op == "clamp"] + [node.text for node in nodes]
    return tuple(bound for ends, bound in sorted(found.items()) if not {*ends} & {*taken})


class _PickPrinter(CppPrinter):
    """C++ of an element that is picked, and of what its row is given."""

    def name(self, node: Node) -> str:
        return node.text if "." in node.text else f"element.{node.text}"


def _member(name: str) -> str:
    """`sum` of `shared.sum`."""
    return name.partition(".")[2]


def _pointer(name: str, struct: str = "Shared") -> str:
    return f"&{struct}::{_member(name)}"


def _mask(all: list[str], chosen: Iterable[str]) -> str:
    """Which of some names are chosen, as bits in C++: the first name is the lowest one. Empty where none is."""
    names = {*chosen}
    text = "".join("1" if name in names else "0" for name in reversed(all))
    return f"0b{text}" if "1" in text else ""
