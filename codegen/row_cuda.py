"""A program with reductions as CUDA: passes over a row that a kernel holds, each knowing what those before gave.

Reductions, the row's length and outputs that other formulas name become names of their own, so that the rules
for maps hold: a pass has members that are made once a row, and a method for each value of an element. The names
start with a capital, which no operand's does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from skuda.codegen.cuda import CppPrinter, Parameter, ProgramInCuda, named_count, parameter_of
from skuda.codegen.intrinsics import TRANSCENDENTAL
from skuda.codegen.nodes import CPP, REAL, REDUCE, Node
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.row_printer import RowPrinter, known_ranges
from skuda.codegen.row_values import Extreme, Held, Kept, Pass, Reduction, RowValue, Value, Wanted, finite_name
from skuda.model.operation import COMPUTE, COUNTED, Operand
from skuda.schedules.table import cluster_variants

_COSTLY = 4  # instructions that are worth a register
_EXTREMES = tuple(row.cuda for row in REDUCTIONS.values() if row.of_some)  # nothing has no extreme


class RowProgram(ProgramInCuda):
    """What templates/row.cu.jinja needs to know of one program.

    Attributes:
        columns: inputs that have an element for each place along a row, and are shared by rows.
        parameters: inputs that a row shares.
        passes: over the row, in order; the last one makes the outputs and may have no values.
        early: the outputs that an earlier pass knows.
        row_values: outputs that have one value a row.
        reduction: the program in parts; None where it does not come apart.
    """

    def __init__(self, program: Program):
        super().__init__(program)
        op = program.operation
        self.columns = tuple(o for o in self.shared if op.runs_along(o))
        self.parameters = tuple(o for o in self.shared if o not in self.columns)
        self._each = {operand.name: operand.element for operand in (*self.arrays, *self.columns)}
        self._types = {o.name: parameter_of(op, o) for o in (*op.inputs, *self.values)}
        self._types[COUNTED] = Parameter("C", COUNTED)
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
                    self._types[finite_name(name)] = Parameter("bool", finite_name(name))
        full = [operand for operand in op.outputs if operand.dims == op.space]
        wanted: list[list[Wanted]] = [
            [Wanted(names[r].text, *_reduced(r, names), None) for r in names if levels[r] == level]
            for level in range(1 + max(levels.values()))
        ]
        wanted.append([Wanted(o.name, _named(_as_named(formulas[o.name], o, program), names), "", o) for o in full])
        self.held = self._held(wanted)
        self._types |= {name: Parameter("C", name) for name in self.held.values()}
        self.one_a_row = tuple(operand for operand in op.outputs if operand not in full)
        shared = {operand: _named(formulas[operand.name], names) for operand in self.one_a_row}
        self.row_values, stored = self._row_values(shared)
        wanted[-1] = [replace(each, node=each.node.replaced(stored.get)) for each in wanted[-1]]
        self.early = tuple(each.operand for each in wanted[-1] if each.node in self.held)
        self.passes = tuple(self._pass(each, wanted[:index], wanted[-1]) for index, each in enumerate(wanted))
        self.reduction = None
        if op.reduced:  # values are reduced one by one: what is asked of groups of them is asked of each
            reductions = [Wanted(names[r].text, _named(r.args[0], names), _class_of(r), None) for r in names]
            each = self._pass([*reductions, *wanted[-1]], [], [])
            used = set().union(*(node.names() for node in shared.values())) - {node.text for node in names.values()}
            self.reduction = Reduction(
                each,
                tuple(value for value in each.values if value.operand is None),
                tuple(value for value in each.values if value.operand is not None),
                frozenset(used),
                () if wanted[-1] else self._extremes(names),
                tuple(o for o in self.columns if any(dim.name not in op.along for dim in o.dims)),
            )

    def printer(self, each: Mapping[str, str], ranges: Mapping) -> RowPrinter:
        """What writes a pass."""
        return RowPrinter(each, ranges)

    def once_printer(self) -> CppPrinter:
        """What writes the outputs that a row has one of."""
        return CppPrinter()

    def _extremes(self, names: Mapping[Node, Node]) -> tuple[Extreme, ...]:
        """All reductions as extremes of inputs as they are stored; none if one of them is something else, or one of
        several a place."""
        letters = self.operation.kernel_letters  # the templates ask a type whether its extremes are found so
        arrays = {operand.name: operand for operand in self.arrays if operand.element in letters}
        found = []
        for reduction, name in names.items():
            node, how = _reduced(reduction, names)
            joined = _class_of(reduction)
            chosen = node.op == "where" and node.args[0].op == "isfinite" and node.args[0].args == node.args[1:2]
            if chosen and how in ("Largest", "Smallest"):
                node, how = node.args[1], f"{how}Finite"  # where all are finite, whatever stands for others
            if joined not in _EXTREMES or node.op != "name" or node.text not in arrays:
                return ()
            found.append(Extreme(name.text, how, joined, arrays[node.text]))
        places = [each for each in found if each.joined.endswith("Place")]
        return () if places and len(found) > 1 else tuple(found)

    def _row_values(self, formulas: Mapping[Operand, Node]) -> tuple[tuple[RowValue, ...], dict[Node, Node]]:
        """The outputs that a row has one of, and what stands for them in the formulas of others."""
        values: list[RowValue] = []
        stored: dict[Node, Node] = {}
        for operand, node in formulas.items():
            kind, name = CPP.get(node.kind, "C"), f"Stored{len(values)}"
            whole = Node("stored", (node,), REAL, node.dims, text=operand.element) if node.kind == REAL else node
            values.append(RowValue(operand, name, kind, self.once_printer().text(whole.replaced(stored.get))))
            stored[whole] = Node("name", (), node.kind, node.dims, node.bits, name)
            self._types[name] = Parameter(kind, name)
        return tuple(values), stored

    def _held(self, passes: list[list[Wanted]]) -> dict[Node, str]:
        """Names of the values of an element that several passes would compute, and that cost something."""
        users: dict[Node, set[int]] = {}
        for index, values in enumerate(passes):
            for value in values:
                for part in value.node.parts():
                    if part.kind == REAL and part.args and part.names() & self._each.keys():
                        users.setdefault(part, set()).add(index)
        first = {part: min(passes_of) for part, passes_of in users.items() if len(passes_of) > 1}
        costly = {part for part in first if self._cost(part) >= _COSTLY}
        # So is what an earlier pass has computed of one: the registers are there, and it then takes its place.
        costly |= {part for whole in costly for part in whole.parts() if first.get(part, first[whole]) < first[whole]}
        held: dict[Node, str] = {}

        def outermost(part: Node) -> Node | None:
            if part in costly:
                held.setdefault(part, f"Held{len(held)}")
                return part
            return None

        for values in passes:
            for value in values:
                value.node.replaced(outermost)
        return held

    def _cost(self, node: Node) -> int:
        """Roughly, instructions for an element; what a row shares is free."""
        if not node.names() & self._each.keys():
            return 0
        if node.op == "name":
            return 4 if node.text in {o.name for o in self.columns} else 0
        own = 20 if node.op in TRANSCENDENTAL else 3 if node.op == "stored" else 1
        return own + sum(map(self._cost, node.args))

    @property
    def live(self) -> tuple[tuple[tuple[Operand, ...], int], ...]:
        """Between two passes, of what an element's later ones are made: inputs, and how many values that are held."""
        found = [(self.arrays, 0)]
        for index in range(1, len(self.passes)):
            before = {each.value.name for earlier in self.passes[:index] for each in earlier.held}
            made = set(before)
            names: set[str] = set()
            for each in self.passes[index:]:
                fresh = [held.value for held in each.held if held.value.name not in made]
                late = [value for value in each.values if value.operand not in self.early]
                names |= {p.name for value in (*fresh, *late) for p in value.parameters}
                made |= {value.name for value in fresh}
            found.append((tuple(o for o in self.arrays if o.name in names), len(names & before)))
        return tuple(dict.fromkeys(found))

    @property
    def full_outputs(self) -> list[Operand]:
        """Outputs that have a value for each element of a row."""
        return [operand for operand in self.operation.outputs if operand.dims == self.operation.space]

    @property
    def dear(self) -> int:
        """Values of an element that are held for what they cost: cheap ones give their registers to one of these."""
        return sum(self._cost(part) >= _COSTLY for part in self.held)

    @property
    def kept(self) -> tuple[Kept, ...]:
        """How all that later passes need of an element lies in memory: a stack, from which goes what no later pass
        needs before what a pass holds from then on is put on top. What is needed longest is at the bottom."""
        last = {o.name: -1 for o in self.arrays} | {name: -1 for name in self.held.values()}
        for index, each in enumerate(self.passes):
            last |= {name: index for name in each.taken(self.early) if name in last}
        elements = {o.name: o.element for o in self.arrays}
        stack: list[Kept] = []
        found: list[Kept] = []

        def put(name: str) -> None:
            stack.append(Kept(name, elements.get(name, COMPUTE), tuple(each.element for each in stack)))
            found.append(stack[-1])

        for operand in sorted(self.arrays, key=lambda operand: -last[operand.name]):
            put(operand.name)
        for index, each in enumerate(self.passes):
            for value in each.fresh:
                while stack and last[stack[-1].name] <= index and stack[-1].name not in {v.name for v in each.fresh}:
                    stack.pop()
                put(value.name)
        return tuple(found)

    def _pass(self, wanted: list[Wanted], before: list[list[Wanted]], outputs: list[Wanted]) -> Pass:
        def renamed(node: Node, but: Node | None = None) -> Node:
            def name(part: Node) -> Node | None:
                known = part in self.held and part != but
                return Node("name", (), REAL, part.dims, text=self.held[part]) if known else None

            return node.replaced(name)

        ranges = known_ranges([replace(value, node=renamed(value.node)) for values in before for value in values])
        printer = self.printer(self._each | dict.fromkeys(self.held.values(), "C"), ranges)

        def method(name: str, node: Node, how: str, operand: Operand | None) -> Value:
            elements = [*(o.name for o in (*self.arrays, *self.columns)), *self.held.values()]
            parameters = tuple(self._types[each] for each in elements if each in node.names())
            formula = printer.stored(node, self.narrow(operand)) if operand else printer.text(node)
            result = self._types[name].type if how else ""
            raw = next((o for o in self.arrays if how and node.op == "name" and node.text == o.name), None)
            return Value(name, CPP.get(node.kind, "C"), parameters, formula, how, operand, result, raw)

        here = {part for value in wanted for part in value.node.parts() if part in self.held}
        earlier = {part for values in before for value in values for part in value.node.parts()}
        inner_first = sorted(here, key=lambda part: (len(part.parts()), self.held[part]))
        held = tuple(
            Held(method(self.held[part], renamed(part, but=part), "", None), part not in earlier)
            for part in inner_first
        )
        values = tuple(method(each.name, renamed(each.node), each.how, each.operand) for each in wanted)
        fresh = here - earlier if wanted is not outputs else set()
        early = tuple(method(o.name, renamed(o.node), o.how, o.operand) for o in outputs if o.node in fresh)
        arguments = tuple(parameter for name, parameter in self._types.items() if name in printer.made_from)
        return Pass(tuple(printer.members.values()), arguments, held, values, early)


def kept_of(program: Program) -> tuple[tuple[str, ...], ...]:
    """`Operation.kept` of a program with reductions over one thing."""
    if not cluster_variants(program.operation):
        return ()
    row = RowProgram(program)
    return tuple((*each.below, each.element) for each in row.kept) if row.held else ()


def _as_named(node: Node, operand: Operand, program: Program) -> Node:
    """An output as the formulas that name it see it, which is stored as the same bits and may be held already."""
    if operand.name in program.named and node.kind == REAL:
        return Node("stored", (node,), REAL, node.dims, text=operand.element)
    return node


def _class_of(reduction: Node) -> str:
    return REDUCTIONS[reduction.op.removeprefix(REDUCE)].cuda


def _reduced(reduction: Node, names: Mapping[Node, Node]) -> tuple[Node, str]:
    """What a reduction is of, and its class of runtime/cuda/reductions.cuh.

    Extremes of what is finite ask whether elements are finite group by group.
    """
    node, how = reduction.args[0], _class_of(reduction)
    if how in ("Largest", "Smallest") and node.op == "where" and node.args[0].op == "isfinite":
        (x,), chosen, other = node.args[0].args, *node.args[1:]
        zero = other.op == "number" and float(other.text) == 0 and not other.text.startswith("-")
        if zero and how == "Largest" and chosen == Node("abs", (x,), REAL, x.dims):
            return _named(x, names), "LargestMagnitude"
        if zero and chosen == x:
            return _named(x, names), f"{how}Finite"
    return _named(node, names), how


def _named(node: Node, names: Mapping[Node, Node]) -> Node:
    """A value in which reductions and the row's length are names."""
    return named_count(node.replaced(names.get))
