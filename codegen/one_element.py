"""Forms of sums across rows for rows of one element: gradients of what a batch of one shares.

The sum of one element is that element, as are its product and its extremes. So what such a program does is elementwise,
of operands without the dimensions that it reduces, and a kernel of elements does it: it takes no accumulators and joins
nothing.
"""

from __future__ import annotations

from dataclasses import replace

from skuda.codegen.nodes import REDUCE, Node, Replaced, found_once
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS
from skuda.codegen.stages import stages
from skuda.model.operation import COMPUTE, Analysis, Operand

OF_ONE = "_of_one"  # what the names of such operations end with


@found_once
def of_one(program: Program) -> Program | None:
    """The form of a program for rows of one element; None where it has none.

    Rows have to lie across: those that lie along the last axes have a kernel of rows.
    """
    op = program.operation
    if not _has_form(program):
        return None
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
    operation = op.but(
        name=op.name + OF_ONE,
        inputs=tuple(map(operand, op.inputs)),
        outputs=tuple(map(operand, op.outputs)),
        attributes=tuple(each for each in op.attributes if each.name in op.analysis.attributes),
        requirements=(),
        optional=(),
        forms=(),
        choice=None,
        same=(),
        halves=(),
        analysis=Analysis(
            exact=op.analysis.exact,
            attributes=op.analysis.attributes,
            asks_of=op.analysis.asks_of,
            chained=op.analysis.chained,
            converts=op.analysis.converts,
            precise_as=op.analysis.precise_as,
            stage=op.analysis.stage,
            of_one=True,
        ),
    )
    formulas = {name: shortened(node) for name, node in program.formulas.items()}
    called = {shortened(node): name for node, name in program.called.items() if not node.reductions()}
    return Program(operation, formulas, {}, (), called)


def parts(program: Program) -> tuple[Program, ...]:
    """The programs that serve a program's calls beside its own kernels: its stages, and forms for rows of one element,
    each before that of which it is one."""
    found: list[Program] = []
    for each in (*stages(program), program):
        form = of_one(each)
        found += [form] if form else []
        found.append(each)
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

