"""Forms of sums across rows for rows of one element: gradients of a batch of one.

The sum of one element is that element, as are its product and its extremes. So what a program does that only reduces
across rows is elementwise, of operands without the dimensions that it reduces: its kernel takes no accumulators and
joins nothing. Of a program in stages that reduces rows too, one kernel of rows is left.
"""

from __future__ import annotations

from dataclasses import replace

from skuda.codegen.nodes import REAL, REDUCE, Node, Replaced, found_once
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.stages import only_stage, stages
from skuda.model.operation import COMPUTE, Analysis, Direction, Operand, Operation, Over

OF_ONE = "_of_one"  # what the names of such operations end with


@found_once
def of_one(program: Program) -> Program | None:
    """The form of a program for rows of one element; None where it has none.

    Rows have to lie across: those that lie along the last axes have a kernel of rows.
    """
    if program.operation.analysis.stages:
        return _in_one_stage(program)
    return _elementwise(program) if _has_form(program) else None


def _in_one_stage(program: Program) -> Program | None:
    """The form of a gradient in stages, where one stage is left without its sums across rows. What these made has their
    dimensions, of one element."""
    op = program.operation
    if op.direction is not Direction.BACKWARD:  # a loss of one row is no work that waits for launches
        return None
    across = {each for node in program.formulas.values() for each in node.reductions() if _is_across(op, each)}
    gone = {dim for each in across for dim in Over.of(each.text).dims}
    counted = {dim for node in program.formulas.values() for each in node.counts() for dim in Over.of(each.text).dims}
    if not across or gone & counted:
        return None

    def without(node: Node) -> Node | None:
        if node in across:
            return shortened(node.args[0])
        args = tuple(map(shortened, node.args))
        return replace(node, args=args, dims=node.dims | gone & frozenset().union(*[each.dims for each in args]))

    shortened = Replaced(without)
    formulas = {name: shortened(node) for name, node in program.formulas.items()}
    made = {name: {*node.dims} for name, node in formulas.items()}
    outputs = [
        each.but(dims=tuple([dim for dim in op.space if dim in each.dims or dim.name in made[each.name]]))
        for each in op.outputs
    ]
    left = only_stage(replace(program, operation=op.but(outputs=tuple(outputs)), formulas=formulas, called={}))
    if left is None or left.operation.inputs != op.inputs:
        return None
    form = left.operation
    operation = _named(form, form.analysis.but(stage=0, of_one=tuple(sorted(gone))), op)
    texts = {name: text for name, text in left.formula_texts.items() if formulas[name] == program.formulas[name]}
    return replace(left, operation=operation, formula_texts=texts)


def _is_across(op: Operation, reduction: Node) -> bool:
    """Whether one element tells what is reduced, and not along the last axes."""
    over, how = Over.of(reduction.text), REDUCTIONS[reduction.op.removeprefix(REDUCE)]
    last = {dim.name for dim in op.space[len(op.space) - len(over.dims) :]}
    return reduction.kind == REAL and not over.block and how.is_its_one_element and {*over.dims} != last


def _named(form: Operation, analysis: Analysis, op: Operation) -> Operation:
    """The operation that a form of another one is."""
    nothing = dict.fromkeys(("requirements", "optional", "forms", "same", "halves"), ())
    return form.but(name=op.name + OF_ONE, choice=None, analysis=analysis, **nothing)


def _elementwise(program: Program) -> Program:
    """The form of a program that only reduces across rows."""
    op = program.operation
    gone = {*op.along}

    def operand(each: Operand) -> Operand:
        return each.but(dims=tuple(dim for dim in each.dims if dim.name not in gone))

    def without(node: Node) -> Node | None:
        if node.op.startswith(REDUCE):
            return shortened(node.args[0])
        if not node.dims & gone:
            return None
        args = tuple(map(shortened, node.args))
        return replace(node, args=args, dims=node.dims - gone)

    shortened = Replaced(without)
    form = op.but(
        inputs=tuple(map(operand, op.inputs)),
        outputs=tuple(map(operand, op.outputs)),
        attributes=tuple(each for each in op.attributes if each.name in op.analysis.attributes),
    )
    analysis = Analysis(
        exact=op.analysis.exact,
        attributes=op.analysis.attributes,
        asks_of=op.analysis.asks_of,
        chained=op.analysis.chained,
        converts=op.analysis.converts,
        precise_as=op.analysis.precise_as,
        draws=op.analysis.draws,
        stage=op.analysis.stage,
        of_one=op.along,
    )
    formulas = {name: shortened(node) for name, node in program.formulas.items()}
    called = {shortened(node): name for node, name in program.called.items() if not node.reductions()}
    return Program(_named(form, analysis, op), formulas, {}, (), called)


def serving(program: Program) -> tuple[tuple[Program, Program | None], ...]:
    """The programs that serve a program's calls, its stages and itself, each with its form for rows of one element.
    Where the whole has one, no call needs those of its stages."""
    form = of_one(program)
    return (*[(stage, None if form else of_one(stage)) for stage in stages(program)], (program, form))


def parts(program: Program) -> tuple[Program, ...]:
    """The programs that serve a program's calls beside its own kernels: its stages, and forms for rows of one element,
    each before that of which it is one."""
    found = [each for pair in serving(program) for each in reversed(pair) if each]
    return tuple(found[:-1])


def _has_form(program: Program) -> bool:
    """Whether elements across which a program reduces are of its rows alone, and one of them tells its results."""
    op = program.operation
    kept = [dim for dim in op.space if dim.name not in op.along]
    last = {dim.name for dim in op.space[len(kept) :]}
    return (
        bool(kept)
        and {*op.along} != last
        and not op.of_alternative
        and not op.positions
        and not any(node.counts() for node in program.formulas.values())
        and bool(op.analysis.split)
        and all(each.element == COMPUTE and REDUCTIONS[each.how].is_its_one_element for each in op.analysis.split)
    )

