"""What a program with reductions does to a row, as typed objects: no text of any target.

A kernel passes over the elements of a row several times. Each pass makes reductions, or outputs, of what the passes
before it have found. Formulas name four things: operands, by their names; what a row has one of, as `shared.sum`; and
values of an element that several passes use, as `held.normal`. No operand has a dot in its name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from skuda.codegen.conditions import Guard, guards_of
from skuda.codegen.expr import parse_alone
from skuda.codegen.intrinsics import TRANSCENDENTAL
from skuda.codegen.lowering import Site, lowered
from skuda.codegen.nodes import BOOL, REAL, REDUCE, Node, Replaced, Scope
from skuda.codegen.picks import picks_of
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS, Repeated, Scan
from skuda.codegen.row_passes import (
    INDEX_CLASSES,
    LENGTH,
    OF_FINITE,
    Extreme,
    HeldValue,
    Pass,
    Pick,
    Range,
    Repeat,
    RowValue,
    Saved,
    Split,
    Value,
)
from skuda.codegen.value_names import UniqueNames, default_name, with_members
from skuda.model.operation import COMPUTE, COUNTED, Attribute, Operand
from skuda.model.sum_order import PARTED
from skuda.schedules import abi
from skuda.schedules.row_variants import cluster_variants
from skuda.schedules.stripe_variants import MOST_STATES

_COSTLY = 4  # instructions that are worth a register
_EXTREMES = tuple(row.cuda for row in REDUCTIONS.values() if row.of_some)  # nothing has no extreme
HELD = "held."  # before the names of values of an element that passes hand on


@dataclass
class _Found:
    """What the analysis of one program has named so far."""

    reductions: dict[Node, Node] = field(default_factory=dict)  # names that stand for them
    levels: dict[Node, int] = field(default_factory=dict)  # 1 + how many others one waits for
    finite: dict[str, str] = field(default_factory=dict)  # names of flags, by names of reductions


class Wanted(NamedTuple):
    """What a pass is to make, with what holds where a call wants it, and what it is repeated for."""

    makes: list[Value]
    under: frozenset[Guard] = frozenset()
    repeat: Repeat | None = None


class RowAnalysis:
    """A program with reductions over one thing.

    Attributes:
        arrays: inputs that are read for each element.
        columns: inputs that have an element for each along a row, and are shared by rows.
        parameters: inputs that a row shares.
        scalars: inputs that are one value.
        values: attributes that the formulas use.
        given: what a row is given, with the names of these values.
        chosen: those of these names that are the same for all rows of a call.
        finite: the names of what tells whether values were finite, by names of reductions.
        called: names that the spec gives values.
        held: the values of an element that several passes use, with their names.
        scanned: the scans: Values whose names are those of `held.` members that the kernel sets.
        row_values: outputs that have one value a row.
        early: the outputs that an earlier pass knows.
        picks: the reductions that one element tells.
        passes: over the row, in order; the last one makes the outputs and may have no values.
        split: the program in parts; None where it does not come apart.
    """

    def __init__(self, program: Program):
        op = program.operation
        self.operation = op
        order = abi.order(op)
        self.arrays, self.scalars = order.elements, order.scalars
        self.columns = tuple(o for o in order.shared if op.runs_along(o))
        self.parameters = tuple(o for o in order.shared if o not in self.columns)
        counted = (Attribute(COUNTED, COMPUTE),) if op.analysis.counted else ()
        self.values = (*(a for a in op.attributes if a.name in op.analysis.attributes), *counted)
        self.elements = (*self.arrays, *self.columns)
        self._operands = frozenset(operand.name for operand in self.elements)
        self._names = UniqueNames(("count",))
        self.given: dict[Operand | Attribute, str] = {
            item: f"shared.{self._names.new(item.name)}" for item in (*self.parameters, *self.scalars, *self.values)
        }
        self.chosen = {name for item, name in self.given.items() if item in (*self.scalars, *self.values)}
        self.full_outputs = tuple(o for o in op.outputs if o.dims == op.space)
        one_a_row = [o for o in op.outputs if o not in self.full_outputs]
        stored_names = {o: f"shared.{self._names.new(o.name)}" for o in one_a_row}
        self._found = _Found()
        self._program = program
        given = {item.name: name for item, name in self.given.items()}
        with_given = with_members(given, LENGTH, str(op.analysis.over))
        formulas = {name: with_given(node) for name, node in program.written_out.items()}
        self.called = {with_given(node): name for node, name in program.called_written_out.items()}
        reductions = dict.fromkeys(reduction for node in formulas.values() for reduction in node.reductions())
        picks = picks_of(op, reductions)
        for reduction in reductions:
            self._name(reduction, picks)
        names = self._found.reductions
        self.picks = tuple(Pick(names[reduction], each) for reduction, each in picks.items())
        self._guards = self._found_guards(formulas)
        self.finite = self._found.finite
        self._named = Replaced(lambda node: names.get(node) if node.reductions() else node)
        self.called = {self._named(node): name for node, name in self.called.items()}
        *reducing, last = self._wanted(formulas)
        self.held = self._held([each.makes for each in (*reducing, last) if not each.under])
        self.scanned = tuple(value for each in reducing for value in each.makes if value.name.startswith(HELD))
        shared = {operand: self._named(formulas[operand.name]) for operand in one_a_row}
        self.row_values, stored = self._row_values(shared, stored_names)
        if stored:
            as_stored = Replaced(stored.get)
            last = last._replace(makes=[replace(each, node=as_stored(each.node)) for each in last.makes])
            self.called = {as_stored(node): name for node, name in self.called.items()} | self.called
        self.early = tuple(each.operand for each in last.makes if each.node in self.held)
        passes, before = [], []
        for each in (*reducing, last):
            passes.append(replace(self._pass(each.makes, before, last.makes, each.under), repeat=each.repeat))
            if not each.under:
                before = [*before, each.makes]
        self.passes = tuple(passes)
        self.split = self._split(last.makes) if op.analysis.split else None

    @property
    def stored_columns(self) -> set[str]:
        """The names of the columns that are in memory."""
        return {o.name for o in self.columns} - {o.name for o in self.operation.positions}

    def column_guards(self, made: Collection[Value], held: Collection[HeldValue]) -> list[Guard]:
        """What of the choices of a call lets outputs know columns in memory, if each use of one is behind such; else
        nothing. What is stored alone is looked at: reductions have passes of their own."""
        nodes = [value.node for value in made]
        everywhere = any(each.value.node.names() & self.stored_columns for each in held)
        if everywhere or any(value.how or value.scan for value in made):
            return []
        found: dict[Guard, None] = {}

        def behind(node: Node) -> bool:
            if not node.names() & self.stored_columns:
                return True
            if node.op != "where" or not node.args[0].names() <= self.chosen or not node.args[0].names():
                return node.op != "name" and all(map(behind, node.args))
            for each, holds in zip(node.args[1:], (True, False), strict=True):
                if each.names() & self.stored_columns:
                    found[Guard(node.args[0], holds)] = None
            return True

        return [*found] if all(map(behind, nodes)) else []

    def _found_guards(self, formulas: Mapping[str, Node]) -> dict[Node, frozenset[Guard]]:
        """The reductions that only some calls want, unless other kernels make them too.

        The first pass brings a row, so one of its reductions is always made: where none is always wanted, the one of
        the fewest functions.
        """
        if self.operation.analysis.split or self.operation.analysis.scans:
            return {}
        found = guards_of(formulas.values(), lambda node: node.names() <= self.chosen and not node.counts())
        first = [each for each, level in self._found.levels.items() if level == 0]
        if first and all(each in found for each in first):
            del found[min(first, key=lambda each: sum(part.op in TRANSCENDENTAL for part in each.parts()))]
        return found

    def _name(self, reduction: Node, picks: Collection[Node]) -> None:
        """Gives a reduction a name: the spec's, or the field's word for it."""
        names, levels = self._found.reductions, self._found.levels
        if reduction in names:
            return
        _, how = _reduced(reduction)
        gives_index = how in INDEX_CLASSES
        word = reduction.op.removeprefix(REDUCE) if gives_index else default_name(how)
        row = REDUCTIONS[reduction.op.removeprefix(REDUCE)]
        if isinstance(row, Repeated):
            word = row.name.rpartition("_")[2]
        if isinstance(row, Scan):
            word = row.function
            name = HELD + self._names.new(self.called.get(reduction, word))
        else:
            name = f"shared.{self._names.new(self.called.get(reduction, word))}"
        names[reduction] = Node("name", (), reduction.kind, reduction.dims, reduction.bits, name)
        inner = [levels[r] for each in reduction.args for r in each.reductions()]
        levels[reduction] = -1 if reduction in picks else 1 + max(inner, default=-1)
        if how in OF_FINITE:
            self._found.finite[name] = f"shared.{self._names.new('all_finite')}"

    def _wanted(self, formulas: Mapping[str, Node]) -> list[Wanted]:
        """What passes are to make: reductions level by level, of each those that only some calls want behind the
        others, and those of repeated passes last; then the outputs."""
        names, levels = self._found.reductions, self._found.levels
        found: dict[tuple[int, frozenset[Guard], str], list[Value]] = {}
        repeats: dict[str, Repeat] = {}
        for reduction, level in levels.items():
            under = self._guards.get(reduction, frozenset())
            row = REDUCTIONS[reduction.op.removeprefix(REDUCE)]
            if isinstance(row, Repeated):
                name = names[reduction]
                found[level, under, name.text], repeats[name.text] = self._repeated(row, name, reduction.args[0])
                continue
            node, how = _reduced(reduction)
            scan = row if isinstance(row, Scan) else None
            value = Value(names[reduction].text, self._named(node), how, None, reduction.kind, scan=scan)
            if level >= 0:
                found.setdefault((level, under, ""), []).append(value)
        order = sorted(found, key=lambda each: (each[0], bool(each[1]), each[2]))
        wanted = [Wanted(found[each], each[1], repeats.get(each[2])) for each in order]
        outputs = [Value(o.name, self._named(self._as_named(formulas[o.name], o)), "", o) for o in self.full_outputs]
        return [*wanted, Wanted(outputs)]

    def _repeated(self, row: Repeated, name: Node, of: Node) -> tuple[list[Value], Repeat]:
        """What a repeated pass reduces for a value, and how that follows."""
        element = {"x": self._named(of), "y": name}
        sums = [Node("name", (), REAL, text=f"shared.{self._names.new(default_name('Sum'))}") for _ in row.sums]
        values = [
            Value(each.text, parse_alone(text, Scope(element, {})), "Sum", None, REAL)
            for each, text in zip(sums, row.sums, strict=True)
        ]
        made = dict(zip("ab", sums))
        return values, Repeat(name.text, parse_alone(row.start, Scope({}, {})), parse_alone(row.next, Scope(made, {})))

    def _as_named(self, node: Node, operand: Operand) -> Node:
        """An output as the formulas that name it see it, which is stored as the same bits and may be held already."""
        if operand.name in self._program.named and node.kind == REAL:
            return Node("stored", (node,), REAL, node.dims, text=operand.element)
        return node

    def _split(self, outputs: list[Value]) -> Split:
        """Values are reduced one by one: what is asked of groups of them is asked of each."""
        names = self._found.reductions
        reductions = [Value(n.text, self._named(r.args[0]), _class_of(r), None, r.kind) for r, n in names.items()]
        return Split(
            self._pass([*reductions, *outputs], [], []),
            () if outputs else self._extremes(),
            tuple(o for o in self.columns if any(dim.name not in self.operation.along for dim in o.dims)),
        )

    def _extremes(self) -> tuple[Extreme, ...]:
        """All reductions as extremes of inputs as they are stored; none if one of them is something else, or if
        there are several and one gives an index."""
        letters = self.operation.kernel_letters  # kernels ask a type whether its extremes are found so
        arrays = {operand.name: operand for operand in self.arrays if operand.element in letters}
        found = []
        for reduction in self._found.reductions:
            rule = lowered(reduction, Site.EXTREME)
            how, node = (rule[0].becomes, rule[1]["x"]) if rule else (_class_of(reduction), reduction.args[0])
            joined = _class_of(reduction)
            if joined not in _EXTREMES or node.op != "name" or node.text not in arrays:
                return ()
            found.append(Extreme(how, joined, arrays[node.text]))
        indices = [each for each in found if each.joined in INDEX_CLASSES]
        return () if indices and len(found) > 1 else tuple(found)

    def _row_values(
        self, formulas: Mapping[Operand, Node], names: Mapping[Operand, str]
    ) -> tuple[tuple[RowValue, ...], dict[Node, Node]]:
        """The outputs that a row has one of, and what stands for them in the formulas of others."""
        values: list[RowValue] = []
        stored: dict[Node, Node] = {}
        for operand, node in formulas.items():
            whole = Node("stored", (node,), REAL, node.dims, text=operand.element) if node.kind == REAL else node
            values.append(RowValue(operand, names[operand], whole.replaced(stored.get)))
            stored[whole] = Node("name", (), node.kind, node.dims, node.bits, names[operand])
        return tuple(values), stored

    def _held(self, passes: list[list[Value]]) -> dict[Node, str]:
        """Names of the values of an element that several passes would compute, and that cost something."""
        users: dict[Node, set[int]] = {}
        for index, values in enumerate(passes):
            for value in values:
                for part in value.node.parts():
                    if part.kind == REAL and part.args and part.names() & self._operands:
                        users.setdefault(part, set()).add(index)
        first = {part: min(passes_of) for part, passes_of in users.items() if len(passes_of) > 1}
        costly = {part for part in first if self._cost(part) >= _COSTLY}
        # So is what an earlier pass has computed of one: the registers are there, and it then takes its place.
        costly |= {part for whole in costly for part in whole.parts() if first.get(part, first[whole]) < first[whole]}
        held: dict[Node, str] = {}
        taken = {value.name.removeprefix(HELD) for values in passes for value in values}
        names = UniqueNames(taken)

        def outermost(part: Node) -> Node | None:
            if part in costly:
                if part not in held:
                    held[part] = f"held.{names.new(self.called.get(part, default_name(part.op)))}"
                return part
            return None

        for values in passes:
            for value in values:
                value.node.replaced(outermost)
        return held

    def _cost(self, node: Node) -> int:
        """Roughly, instructions for an element; what a row shares is free."""
        if not node.names() & self._operands:
            return 0
        if node.op == "name":
            return 4 if node.text in {o.name for o in self.columns if o not in self.operation.positions} else 0
        own = 20 if node.op in TRANSCENDENTAL else 3 if node.op == "stored" else 1
        return own + sum(map(self._cost, node.args))

    @property
    def costly(self) -> int:
        """Values of an element that are held for what they cost: cheap ones give their registers to one of these."""
        return sum(self._cost(part) >= _COSTLY for part in self.held)

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
                names |= {name for value in (*fresh, *late) for name in value.node.names()}
                made |= {value.name for value in fresh}
            found.append((tuple(o for o in self.arrays if o.name in names), len(names & before)))
        return tuple(dict.fromkeys(found))

    @property
    def saved(self) -> tuple[Saved, ...]:
        """How all that later passes need of an element lies in memory: a stack, from which goes what no later pass
        needs before what a pass holds from then on is put on top. What is needed longest is at the bottom."""
        last = {o.name: -1 for o in self.arrays} | {name: -1 for name in self.held.values()}
        for index, each in enumerate(self.passes):
            last |= {name: index for name in each.taken(self.early) if name in last}
        elements = {o.name: o.element for o in self.arrays}
        stack: list[Saved] = []
        found: list[Saved] = []

        def put(name: str) -> None:
            stack.append(Saved(name, elements.get(name, COMPUTE), tuple(each.element for each in stack)))
            found.append(stack[-1])

        for operand in sorted(self.arrays, key=lambda operand: -last[operand.name]):
            put(operand.name)
        for index, each in enumerate(self.passes):
            for value in each.fresh:
                while stack and last[stack[-1].name] <= index and stack[-1].name not in {v.name for v in each.fresh}:
                    stack.pop()
                put(value.name)
        return tuple(found)

    def _pass(
        self,
        wanted: list[Value],
        before: list[list[Value]],
        outputs: list[Value],
        guards: frozenset[Guard] = frozenset(),
    ) -> Pass:
        earlier = {part for values in before for each in values for part in each.node.parts()}
        named = {part: name for part, name in self.held.items() if not guards or part in earlier}

        def name(part: Node) -> Node | None:
            return Node("name", (), REAL, part.dims, text=named[part]) if part in named else None

        renamed = Replaced(name) if named else Replaced(lambda node: node)

        def value(each: Value) -> Value:
            node = renamed(each.node)
            raw = next((o for o in self.arrays if each.how and node.op == "name" and node.text == o.name), None)
            return replace(each, node=node, raw=raw)

        here = {part for each in wanted for part in each.node.parts() if part in named}
        order = [*self.held]
        held = tuple(
            HeldValue(Value(self.held[part], part.of(tuple(map(renamed, part.args)))), part not in earlier)
            for part in sorted(here, key=lambda part: (len(part.parts()), order.index(part)))
        )
        fresh = here - earlier if wanted is not outputs else set()
        early = tuple(value(each) for each in outputs if each.node in fresh)
        ranges = self._ranges([replace(each, node=renamed(each.node)) for values in before for each in values])
        return Pass(held, tuple(map(value, wanted)), early, ranges, self._operands, guards)

    def _ranges(self, reduced: Sequence[Value]) -> dict[Node, Range]:
        """What reductions tell of the values that they are of."""
        by_class = {(value.how, value.node): value.name for value in reduced}
        found: dict[Node, Range] = {}

        def name(text: str, kind: str = REAL) -> Node:
            return Node("name", (), kind, text=text)

        for (how, node), reduction in by_class.items():
            finite = name(self.finite.get(reduction, ""), BOOL)
            if how == "LargestMagnitude":
                found[node] = Range(Node("neg", (name(reduction),), REAL), name(reduction), finite)
            smallest = by_class.get(("SmallestFinite", node))
            if how == "LargestFinite" and smallest:
                both = Node("and", (name(self.finite[smallest], BOOL), finite), BOOL)
                found[node] = Range(name(smallest), name(reduction), both)
        return found


def saved_of(program: Program) -> tuple[tuple[str, ...], ...]:
    """`Analysis.stack` of a program with reductions over one thing."""
    if not cluster_variants(program.operation):
        return ()
    row = RowAnalysis(program)
    return tuple((*each.below, each.element) for each in row.saved) if row.held else ()


def stripes_of(program: Program) -> int:
    """`Analysis.stripes` of a program with reductions over one thing."""
    row = _held_anyhow(program)
    if row is None:
        return 0
    passes = [[value for value in each.values if value.how] for each in row.passes]
    if any(value.kind != REAL or value.gives_index for values in passes for value in values):
        return 0
    several = {REDUCTIONS[name].cuda: count for name, count in PARTED.items()}
    states = max(sum(several.get(value.how, 1) for value in values) for values in passes)
    return states if states <= MOST_STATES else 0


def in_pieces(program: Program) -> bool:
    """`Analysis.pieces` of a program in stages."""
    return not program.operation.analysis.slabs and _held_anyhow(program) is not None


def _held_anyhow(program: Program) -> RowAnalysis | None:
    """The rows of a program, where one kernel may hold rows that do not lie along the last axis, in place of several
    kernels: operands have an element for each of the space, or one for each row."""
    op, analysis = program.operation, program.operation.analysis
    several = analysis.stages or (analysis.alternative and not op.repacked)
    if not several or not analysis.over or op.block or op.positions:
        return None
    kept = tuple(dim for dim in op.space if dim.name not in op.along)
    arrays = [operand for operand in op.operands if not operand.scalar]
    if not kept or any(operand.dims not in (op.space, kept) for operand in arrays):
        return None
    row = RowAnalysis(program)
    return None if row.picks or row.scanned or any(each.repeat for each in row.passes) else row


def _class_of(reduction: Node) -> str:
    return REDUCTIONS[reduction.op.removeprefix(REDUCE)].cuda


def _reduced(reduction: Node) -> tuple[Node, str]:
    """What a reduction is of, and its class of runtime/cuda/reductions.cuh."""
    rule = lowered(reduction, Site.REDUCTION)
    return (rule[1]["x"], rule[0].becomes) if rule else (reduction.args[0], _class_of(reduction))
