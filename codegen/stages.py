"""A program in stages: programs that are run one after the other, each a kernel's.

A kernel reduces over one thing. What a program reduces over different dimensions, or over all of them and then uses for
each element, is taken apart: values that rows have one of, in the compute type, become outputs of one stage and inputs
of those after it. So do scans from one end where others begin at the other end, or scan what is made of them.

A program of rows may have a multi-kernel form. Where a call names the axes that it reduces, rows may lie along any
of them, and be as long as the whole array: a block that holds a row then reads one element here and one there, or works
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from skuda.codegen.intrinsics import CONVERSIONS, HALVED, QUICKENED
from skuda.codegen.nodes import CPP, INT, REDUCE, Node, Replaced, found_once
from skuda.codegen.picks import picked
from skuda.codegen.program import HANDED_ON, Program, analysed, whole_dims
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.row_analysis import saved_of
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, WIDE, Analysis, Dim, Operand, Operation, Over, Reduced


def is_staged(program: Program) -> bool:
    """Whether a program runs in stages: no block could hold what its reductions are over, and parts of that cannot be
    reduced apart at once."""
    overs = {r.text for node in program.formulas.values() for r in node.reductions()}
    if scans := program.scans:  # kernels of scans take rows that lie in any way
        return len({_reversed(scan) for scan in scans}) > 1 or any(scan.args[0].scans() for scan in scans)
    if len(overs) == 1 and not program.split_reductions:
        over = overs.pop()
        return not _in_rows(program.operation, over)
    return len(overs) > 1


@found_once
def stages(program: Program) -> tuple[Program, ...]:
    """The stages of a program, be they its only form or an alternative; none where it has neither."""
    op = program.operation
    if op.repacked and not op.analysis.stage:
        return (_packing(program),)
    staged = op.analysis.stages or (op.analysis.alternative and not op.analysis.stage)
    found = tuple(_Splitter(program)) if staged else ()
    if not op.analysis.alternative and in_slabs(found):
        rows, sums = found
        found = rows, replace(sums, operation=analysed(sums.operation, slabs=1))
    return found


def only_stage(program: Program) -> Program | None:
    """The stage of a program that takes one alone; None where it takes several."""
    found = [*islice(_Splitter(program), 2)]
    return found[0] if len(found) == 1 else None


def in_slabs(found: Sequence[Program]) -> bool:
    """Whether stages are rows that are written, and sums across these of what is read with them: one kernel may go
    down the rows and do both."""
    if len(found) != 2:
        return False
    rows, sums = (each.operation for each in found)
    over, split = rows.analysis.over, sums.analysis.split
    if not over or over.block or rows.analysis.split or rows.analysis.scans or rows.analysis.repeats or not split:
        return False
    if rows.has_runs:
        return False
    along = tuple(dim for dim in rows.space if dim.name in rows.along)
    outside = tuple(dim for dim in rows.space if dim not in along)
    full = [operand for operand in rows.inputs if operand.dims == rows.space]
    per_row = [operand for operand in (*rows.inputs, *rows.outputs) if operand.dims == outside]
    return (
        bool(outside)
        and rows.space == (*outside, *along)
        and any(operand.dims == rows.space for operand in rows.outputs)
        and all(operand.dims in (rows.space, outside) for operand in rows.outputs)
        and sums.space == rows.space
        and sums.analysis.over == Over(tuple(dim.name for dim in outside))
        and all(each == Reduced("sum", COMPUTE) for each in split)
        and all(operand in (*full, *per_row) for operand in sums.inputs)
        and all(operand.dims == along for operand in sums.outputs)
        and not (sums.attributes or sums.positions or rows.positions or sums.analysis.counted)
        and {*sums.kernel_letters} <= {*rows.kernel_letters}
    )


def alternative_stages(program: Program) -> int:
    """The number of stages of a program's multi-kernel form; 0 where it has none, 1 where codes may have to be
    packed apart.

    It has one if a call names the axes that it reduces, if parts of a row can be reduced apart in each stage but not in
    one kernel; or if neighbours in a row share an operand, and elements are made of values that rows have one of. The
    last stage alone writes: then what may be updated in place is the same in both forms.
    """
    op = program.operation
    named = op.chooses_axes and op.analysis.over == Over((op.axis.axis_of,))
    rows = len(op.space) == 2 and all(dim.many for dim in op.space) and op.analysis.over == Over((op.space[-1].name,))
    if _packs_apart(op):
        return 1
    packed = any(op.may_be_packed(o.element) for o in op.inputs)
    suits = named and rows or op.has_runs
    if not suits or op.analysis.scans or op.analysis.split or op.analysis.chained or packed:
        return 0
    *before, last = _Splitter(replace(program, operation=analysed(op, alternative=1)))
    over, split = last.operation.analysis.over, last.operation.analysis.split
    apart = op.has_runs or all(stage.operation.analysis.split for stage in before)
    apart = apart and (split or not over)
    counts = any(node.counts() for node in last.formulas.values()) and not over
    return len(before) + 1 if before and apart and not counts and last.operation.outputs == op.outputs else 0


def _reversed(scan: Node) -> bool:
    """Whether a scan begins at the end of rows."""
    return REDUCTIONS[scan.op.removeprefix(REDUCE)].reverse


def _packs_apart(op: Operation) -> bool:
    """Whether rows may share the bytes of codes of 4 bits, and there are kernels of them that write 8 bits instead: of
    blocks, and of rows along several axes."""
    several = op.block or len(op.along) > 1 or any(dim.many for dim in op.space if dim.name in op.along)
    packed = [o for o in op.outputs if op.may_be_packed(o.element)]
    inputs = any(op.may_be_packed(o.element) for o in op.inputs)
    return bool(
        several
        and not inputs
        and len(packed) == 1
        and packed[0].dims == op.space
        and WIDE in op.types.get(packed[0].element, ())
    )


def _packing(program: Program) -> Program:
    """The elementwise operation that packs codes of 8 bits."""
    op = program.operation
    output = next(o for o in op.outputs if op.may_be_packed(o.element))
    letter = output.element
    words = tuple(word for word in op.types[letter] if DTYPES[word].packed)
    codes = Operand("codes", WIDE, op.space)
    operation = replace(
        op,
        name=f"{op.name}_stage1",
        types={letter: words},
        inputs=(codes,),
        outputs=(output,),
        positions=(),
        element_fields={letter: op.element_fields[letter]},
        attributes=(),
        requirements=(),
        analysis=Analysis(
            asks_of=op.analysis.asks_of, converts=op.analysis.converts, stage=1, alternative=op.analysis.alternative
        ),
    )
    dims = frozenset(dim.name for dim in op.space)
    formula = Node("name", (), INT, dims, DTYPES[WIDE].bits, codes.name)
    return Program(operation, {output.name: formula}, {output.name: codes.name}, ())


def _in_rows(op: Operation, over: str) -> bool:
    """Whether blocks hold what is reduced: the last axes but not all, blocks, or an axis that the caller names."""
    names = Over.of(over).dims
    last = [dim.name for dim in op.space[len(op.space) - len(names) :]]
    named = {attribute.axis_of for attribute in op.attributes}
    return "/" in over or set(names) <= named or (set(names) == set(last) and len(names) < len(op.space))


def _names_of(dims: Iterable[str]) -> set[str]:
    """The dimensions, blocks along them or not."""
    return {dim.partition("/")[0] for dim in dims}


def _dims_of(reduction: Node, over: str) -> frozenset[str]:
    """The dimensions of what is reduced."""
    return frozenset(_names_of((*reduction.args[0].dims, *Over.of(over).dims)))


class _Splitter:
    """Yields the stages of a program, each as soon as it is known."""

    def __init__(self, program: Program):
        self.program = program
        self.op = program.operation
        alternative = bool(self.op.analysis.alternative)
        self.runs = {o.name for o in self.op.inputs if self.op.in_runs(o)} if alternative else set()
        self.apart = alternative and not self.runs  # whether even what a block could hold is reduced by several
        known = {dim.name for dim in self.op.space}  # which lacks what no operand has together with these
        self.dims = (*self.op.space, *[dim for dim in self.op.dims if dim.name not in known])
        self.called = dict(program.called)
        self.left = dict(program.formulas)  # of outputs that no stage makes yet, in terms of what stages have made
        self.values = 0  # that stages have made
        self.made: list[Operand] = []

    def __iter__(self):
        number = 0
        while self.left:
            number += 1
            yield self._next(number)

    def _next(self, number: int) -> Program:
        """The stage that comes next: elementwise where no reductions are left."""
        waiting = [*dict.fromkeys(r for node in self.left.values() for r in node.reductions())]
        if not waiting:
            return self._stage(number, [*self.left], [])
        if scans := [r for r in waiting if r.is_scan]:
            return self._next_of_scans(number, scans)
        overs = sorted(dict.fromkeys(r.text for r in waiting), key=lambda over: not self._in_rows(over))
        every = [(over, ready) for over in overs if (ready := self._ready(waiting, over))]
        over, ready = next((each for each in every if self._comes_first(waiting, *each)), every[0])
        ready = self._picked_first(waiting, over, ready) or ready
        together = [self._made_of(ready, over)]
        together += [self._made_of(alike, over) for alike in self._alike(ready, over)]  # the smaller ones come first
        outputs, values = next((each for each in together if self._is_even(*each, over)), together[0])
        return self._stage(number, outputs, values)

    def _made_of(self, ready: list[Node], over: str) -> tuple[list[str], list[Node]]:
        """The outputs that a stage makes of reductions over something, and the values that it hands on."""
        full = {o.name for o in self.op.outputs if o.dims == self.op.space}
        rows = self._in_rows(over)
        own = {dim for r in ready for dim in _dims_of(r, over)}
        apart = {o.name for o in self.op.outputs if not self._fits(o, own, {*Over.of(over).dims})}
        outputs = []
        for name in (each for each in self.left if each not in apart):
            needed = self._needed(name)
            whole = rows and not self.left[name].names() & self.runs
            if needed <= set(ready) and (whole or not needed or name not in full):
                outputs.append(name)
        rest = [node for name, node in self.left.items() if name not in outputs]
        return outputs, [*dict.fromkeys(value for node in rest for value in self._values(node, over, ready, own))]

    def _alike(self, ready: list[Node], over: str) -> list[list[Node]]:
        """The reductions that are of elements with the same dimensions; first those of elements with the fewest."""
        found: dict[frozenset[str], list[Node]] = {}
        for r in ready:
            found.setdefault(_dims_of(r, over), []).append(r)
        return sorted(found.values(), key=lambda alike: len(_dims_of(alike[0], over)))

    def _is_even(self, outputs: list[str], values: list[Node], over: str) -> bool:
        """Whether a stage makes something: outputs with elements or one value for each of its rows, and values that it
        hands on with one for each."""
        kept = {dim.name for dim in self._kept([self.left[name] for name in outputs] + values, {*outputs}, over)}
        made = [{dim.name for dim in o.dims} for o in self.op.outputs if o.name in outputs]
        fitting = all(dims in (kept, kept | _names_of(Over.of(over).dims)) for dims in made)
        return bool(outputs or values) and fitting and all(_names_of(node.dims) == kept for node in values)

    def _kept(self, nodes: Iterable[Node], made: set[str], over: str) -> tuple[Dim, ...]:
        """The dimensions of a stage's rows."""
        read = set().union(*(node.names() for node in nodes)) - made
        dims = {dim.name for o in (*self.op.inputs, *self.made) if o.name in read for dim in o.dims}
        reduced = Over.of(over).dims if over else ()
        return tuple(dim for dim in self.dims if dim.name in dims and dim.name not in reduced)

    def _next_of_scans(self, number: int, waiting: list[Node]) -> Program:
        """The stage of the scans from one end that wait for no other: from the end at which less is read."""
        ready = [scan for scan in waiting if not scan.args[0].scans() and not scan.names() & self.left.keys()]
        ends = {end: [scan for scan in ready if _reversed(scan) is end] for end in (False, True)}
        read = {end: len(set().union(*(scan.names() for scan in scans))) for end, scans in ends.items() if scans}
        chosen = ends[min(read, key=lambda end: read[end])]
        outputs = [name for name in self.left if self._needed(name) <= set(chosen)]
        rest = [node for name, node in self.left.items() if name not in outputs]
        values = dict.fromkeys(scan for node in rest for scan in node.scans() if scan in chosen)
        return self._stage(number, outputs, [*values])

    def _in_rows(self, over: str) -> bool:
        return not self.apart and _in_rows(self.op, over)

    def _ready(self, waiting: list[Node], over: str) -> list[Node]:
        """The reductions over something that one stage can make now: in rows, also those inside of each other."""
        ready: list[Node] = []
        rows = self._in_rows(over)
        for r in waiting:  # those inside come first
            inside = set(r.args[0].reductions())
            if r.text == over and not r.names() & self.left.keys() and inside <= set(ready if rows else ()):
                ready.append(r)
        return ready

    def _picked_first(self, waiting: list[Node], over: str, ready: list[Node]) -> list[Node]:
        """Of reductions of rows, those that reductions over something else are of, if all of these pick one element: a
        stage that reads little comes first, and no stage reads rows twice."""
        inner = {each for r in waiting if r.text != over for each in r.args[0].reductions() if each.text == over}
        whole = self._in_rows(over) and all(map(picked, inner))
        return [r for r in ready if r in inner] if whole else []

    def _fits(self, output: Operand, own: set[str], along: set[str]) -> bool:
        """Whether an output can be made beside reductions of elements that have some dimensions: one value for each of
        these, or for each row."""
        dims = {dim.name for dim in output.dims}
        return dims <= own and (not dims & along or output.dims == self.op.space)

    def _comes_first(self, waiting: list[Node], over: str, ready: list[Node]) -> bool:
        """Whether reductions read less than an element for each that there is, and no others over the same wait: so one
        kernel may do what is left."""
        if any(r.text == over and r not in ready for r in waiting):
            return False
        return {dim for r in ready for dim in _dims_of(r, over)} < {dim.name for dim in self.op.space}

    def _needed(self, name: str) -> set[Node]:
        """The reductions that an output waits for, itself or by outputs that it names."""
        node = self.left[name]
        found = set(node.reductions())
        for other in node.names() & self.left.keys():
            found |= self._needed(other)
        return found

    def _values(self, node: Node, over: str, ready: list[Node], own: set[str]) -> Iterable[Node]:
        """The largest parts of a formula that rows have one of, and that can be made of reductions now: they have no
        dimensions but those of what is reduced, and count nothing else."""
        reductions = node.reductions()
        if not reductions:
            return
        along = set(Over.of(over).dims)
        known = set(reductions) <= set(ready) and not node.names() & self.left.keys()
        counted = {dim for each in node.counts() for dim in Over.of(each.text).dims}
        known = known and {dim.partition("/")[0] for dim in node.dims} | counted <= own
        # What some rows share, and no reduction reads, later stages read: rows lie along fewer axes without it.
        dims = set().union(*(each.dims for each in reductions)) - along
        some = {o.name for o in self.op.inputs if {dim.name for dim in o.dims} < dims} & node.names()
        known = known and (self.apart or some <= set().union(*(each.names() for each in reductions)))
        if known and not node.dims & along and node.op not in CONVERSIONS:  # these know the type of an output alone
            yield node
            return
        for argument in node.args:
            yield from self._values(argument, over, ready, own)

    def _stage(self, number: int, outputs: list[str], values: list[Node]) -> Program:
        op = self.op
        formulas = {name: self.left.pop(name) for name in outputs}
        texts = {name: self.program.formula_texts[name] for name in outputs}
        made = [o for o in op.outputs if o.name in outputs]
        overs = {r.text for node in (*formulas.values(), *values) for r in node.reductions()}
        assert len(overs) <= 1
        over = next(iter(overs), "")
        kept = self._kept((*formulas.values(), *values), {*formulas}, over)
        names: dict[Node, Node] = {}
        for node in values:
            name = f"{HANDED_ON}{self.values + len(names)}"
            formulas[name] = node
            own = tuple(dim for dim in self.dims if dim.name in node.dims) if node.is_scan else kept
            made.append(Operand(name, CPP.get(node.kind, COMPUTE), own))
            names[node] = Node("name", (), node.kind, node.dims, node.bits, name)
        used = set().union(*(node.names() for node in formulas.values()))
        read = used - formulas.keys() | self._counted_by(used, over, formulas.values())
        inputs = tuple(o for o in (*op.inputs, *self.made) if o.name in read)
        self.values += len(names)
        called = self.called
        if names:
            handed_on = Replaced(names.get)
            self.left = {name: handed_on(node) for name, node in self.left.items()}
            self.called = {handed_on(node): name for node, name in called.items()}
        self.made += made
        asks_of = set().union(*(node.types() for node in formulas.values()))
        operation = self._operation(number, inputs, tuple(made), used, over, asks_of)
        counts = {count.text for node in formulas.values() for count in node.counts()} - {over}
        converts = any(node.op in CONVERSIONS for node in formulas.values())
        functions = any(node.intrinsics() & HALVED for node in formulas.values())
        operation = analysed(
            operation,
            whole=whole_dims(formulas.values()),
            partial=(),
            counted=Over.of(counts.pop()).dims if len(counts) == 1 else (),
            chained=bool(used & formulas.keys()),
            converts=converts,
            precise_as=op.analysis.precise_as if functions else "",
            exact=op.analysis.exact or not any(node.intrinsics() & QUICKENED for node in formulas.values()),
        )
        stage = Program(operation, formulas, texts, (), called)
        some = stage.of_some if op.analysis.of_some else ""  # else the program says what it is of no elements
        stage = replace(
            stage,
            operation=analysed(
                operation,
                of_some=some,
                split=stage.split_reductions,
                scans=len(stage.scans),
                repeats=stage.repeats,
                draws=stage.draws,
                exponentials=stage.exponentials,
            ),
        )
        stage = replace(stage, operation=analysed(stage.operation, reductions=stage.passed_over))
        return replace(stage, operation=analysed(stage.operation, stack=saved_of(stage)))

    def _counted_by(self, used: set[str], over: str, formulas: Iterable[Node]) -> set[str]:
        """The name of an input with an element for each that there is, where a stage only picks elements of others:
        kernels count their rows by it."""
        if not over or not all(picked(r) for node in formulas for r in node.reductions()):
            return set()
        full = [o.name for o in self.op.inputs if o.dims == self.op.space]
        return set() if used & {*full} else {*full[:1]}

    def _operation(self, number: int, inputs, outputs, used: set[str], over: str, asks_of: set[str]) -> Operation:
        op = self.op
        attributes = tuple(attribute for attribute in op.attributes if attribute.name in used)
        letters = {operand.element for operand in (*inputs, *outputs)} | {attribute.type for attribute in attributes}
        letters |= asks_of
        letters |= {*[letter for letter in op.types if op.is_float(letter)][:1]}  # C follows from it
        letters |= {word for letter in letters & op.types.keys() for word in op.types[letter]}
        return replace(
            op,
            name=f"{op.name}_stage{number}",
            types={letter: words for letter, words in op.types.items() if letter in letters},
            inputs=inputs,
            outputs=outputs,
            positions=tuple(operand for operand in op.positions if operand.name in used),
            element_fields={letter: field for letter, field in op.element_fields.items() if letter in letters},
            attributes=attributes,
            requirements=(),
            optional=(),
            forms=(),
            choice=None,
            same=(),
            analysis=replace(
                op.analysis,
                attributes=tuple(name for name in op.analysis.attributes if name in used),
                over=Over.of(over) if over else None,
                asks_of=tuple(sorted(asks_of)),
                updated=(),
                keeps=(),
                stage=number,
                stages=0,
                slabs=0,
                stripes=0,
                pieces=False,
                alternative=op.analysis.alternative if self.apart else 0,
            ),
        )
