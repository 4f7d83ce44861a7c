"""Which elementwise operations take so many steps that a GPU had better look results up, or blocks had better go on.

A number of 16 bits has 65,536 values. An operation of one such operand writes the results of all of them to a table
once, and finds those of its elements there: the same bits in as many steps whatever the formula.
"""

from __future__ import annotations

from dataclasses import replace

from skuda.codegen.intrinsics import INTRINSICS
from skuda.codegen.lowering import is_sure
from skuda.codegen.program import Program, Row, analysed
from skuda.model.operation import Operation

_QUICK = frozenset(("rsqrt", "exp2"))  # at most 20 instructions in f32, which take no longer than a GPU's memory
_WAITED_FOR = frozenset(("acosh", "asinh", "erfc", "log1p", "ndtr"))  # 40 to 60 instructions in f32, no branches
_LONG = frozenset(("logit",))  # its short form for 16 bits takes more than 40
_LONGEST = frozenset(("lgamma", "digamma"))  # hundreds: a table pays for a quarter of the elements


def with_tables(row: Row) -> Row:
    """A row whose operations say whether results may be looked up, in all its forms."""
    backward = row.backward and _told(row.backward)
    forms = {name: with_tables(form) for name, form in row.forms.items()}
    chosen = {word: with_tables(form) for word, form in row.chosen.items()}
    return replace(row, forward=_told(row.forward), backward=backward, forms=forms, chosen=chosen)


def _of_one_element(op: Operation) -> bool:
    """Whether each result of an operation is one of one element."""
    of_one = [operand.dims for operand in op.operands if not operand.scalar] == [op.space, op.space]
    return of_one and len(op.outputs) == 1 and not (op.positions or op.analysis.over or op.analysis.counted)


def _told(program: Program) -> Program:
    op = program.operation
    if not _of_one_element(op):
        return program
    functions = set().union(*(node.intrinsics() for node in program.written_out.values()))
    tabled = _is_long(program) * (4 if functions & _LONGEST else 1)
    return replace(program, operation=analysed(op, tabled=tabled, long=bool(functions & _WAITED_FOR)))


def _is_long(program: Program) -> bool:
    """Whether a formula has a function of elements in common steps without a short form for 16 bits, or with a long
    one, or such a function and a division by what elements make that has to be checked: then a GPU's memory waits for
    its arithmetic."""
    each = {operand.name for operand in program.operation.inputs if not operand.scalar}
    parts = {part for node in program.written_out.values() for part in node.parts() if part.names() & each}
    common = [part for part in parts if part.op in INTRINSICS and INTRINSICS[part.op].common]
    functions = [part for part in common if part.op not in _QUICK]
    divided = any(part.op == "/" and part.args[1].names() & each and not is_sure(part) for part in parts)
    return bool(functions) and (divided or any(not part.precise_as or part.op in _LONG for part in functions))
