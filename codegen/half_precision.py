"""Which rows compute elementary functions as precisely as f16 and bf16 need: those that store no more of them.

The forward formulas decide, and the gradients follow. Each value that is made of a function has to keep its relative
error: through products, quotients, square roots, extremes and choices, and through sums of values of one sign. What may
cancel, and what bends the error otherwise (a logarithm, another function), leaves the row as precise as C.

A row with a choice of precision has a form whose functions are instructions of the GPU, in place of steps that CPU and
GPU have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from skuda.codegen.intrinsics import HALVED, QUICK, QUICKENED
from skuda.codegen.nodes import BOOL, PAIR, REAL, REDUCE, Node
from skuda.codegen.program import Program, Row, analysed
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation

LETTER = "T"


class Known(NamedTuple):
    """What is known of a value.

    Attributes:
        inexact: whether a function is in it.
        negative: whether it may be below 0.
        positive: whether it may be above 0.
    """

    inexact: bool = False
    negative: bool = True
    positive: bool = True


class _Bends(Exception):
    """A step that does not keep the relative error."""


def as_stored(row: Row) -> Row:
    """A row whose functions are as precise as T, in all its forms, if that is enough for what it stores,
    whatever a call chooses."""
    return _marked(row) if all(_is_enough(each.forward) for each in (row, *row.chosen.values())) else row


def by_instructions(row: Row, word: str) -> Row:
    """A row whose form for a word of its choice computes elementary functions by instructions of the GPU. Gradients
    do not: what is in range next to a bound decides whether there is one."""
    if word not in row.chosen:
        return row
    form = row.chosen[word]
    forms = {name: replace(each, forward=_fast(each.forward)) for name, each in form.forms.items()}
    return replace(row, chosen={**row.chosen, word: replace(form, forward=_fast(form.forward), forms=forms)})


def _is_enough(forward: Program) -> bool:
    op = forward.operation
    if not any(DTYPES[word].bits == 16 for word in op.types.get(LETTER, ()) if DTYPES[word].kind == "float"):
        return False
    made = {o: forward.written_out[o.name] for o in op.outputs if forward.written_out[o.name].intrinsics() & HALVED}
    known: dict[Node, Known] = {}
    try:
        for node in made.values():
            _known(node, known)
    except _Bends:
        return False
    codes = any(map(op_codes(op), made))  # what is stored beside them is their scale
    return bool(made) and all(o.element == LETTER or codes and made[o].kind == REAL or op_codes(op)(o) for o in made)


def op_codes(op: Operation):
    """Whether an output holds codes of at most 8 bits, or booleans."""

    def holds(operand: Operand) -> bool:
        return all(op.bits(operand, types) <= 8 for types in op.combinations)

    return holds


def _known(node: Node, known: dict[Node, Known]) -> Known:
    if node not in known:
        known[node] = _found(node, [_known(argument, known) for argument in node.args])
    return known[node]


def _found(node: Node, args: list[Known]) -> Known:
    op = node.op
    inexact = any(each.inexact for each in args)
    if op in HALVED:
        if inexact:
            raise _Bends
        either = op in _OF_EITHER_SIGN or op in _OF_THE_SIGN and args[0].negative
        return Known(True, either, True)
    if op == PAIR and inexact:
        raise _Bends
    if node.kind != REAL:
        return _of_integers(node, inexact)
    if op == "number":
        value = float(node.text)
        return Known(False, not value >= 0, not value <= 0)
    if op in ("+", "-"):
        other = args[1] if op == "+" else _negative(args[1])
        joined = Known(inexact, args[0].negative or other.negative, args[0].positive or other.positive)
        if inexact and joined.negative and joined.positive:
            raise _Bends
        return joined
    if op in ("*", "/", "weighted"):
        if node.args[0] == node.args[1]:
            return Known(inexact, False, True)
        same = [args[0].negative and args[1].negative, args[0].positive and args[1].positive]
        other = [args[0].negative and args[1].positive, args[0].positive and args[1].negative]
        return Known(inexact, any(other), any(same))
    if op in _EXTREMES:
        return _of_extremes(_EXTREMES[op], args)
    if op == "where":
        return Known(inexact, args[1].negative or args[2].negative, args[1].positive or args[2].positive)
    if op == "neg":
        return _negative(args[0])
    if op in ("abs", "sqrt"):
        return Known(inexact, False, True)
    if op in ("stored", *_REDUCED):
        if op == REDUCE + "sum" and inexact and args[0].negative and args[0].positive:
            raise _Bends
        return args[0]
    if inexact:
        raise _Bends
    return Known(False, op not in ("count", "smallest"), True)


# Functions whose values may be below 0; the second ones are only where the argument is.
_OF_EITHER_SIGN = frozenset(("log", "log2", "log10", "logit", "atan2", "sin", "cos", "tan", "sinpi", "cospi"))
_OF_THE_SIGN = frozenset((
    "tanh", "gelu_slope", "pow", "asin", "atan", "expm1", "log1p", "sinh", "asinh", "atanh", "erfinv",
))  # fmt: skip
_EXTREMES = {"max": "max", "fmax": "max", "min": "min", "fmin": "min", "clamp": "clamp"}
_REDUCED = tuple(REDUCE + name for name in ("sum", "max", "min"))
_CHOSEN = frozenset(("round_to_int", "to_real", "saturate", "wrap"))


def _of_integers(node: Node, inexact: bool) -> Known:
    """Of codes, which are integers of a value in C, and of booleans: exact from there on."""
    if inexact and node.kind != BOOL and node.op not in _CHOSEN:
        raise _Bends
    return Known()


def _of_extremes(op: str, args: list[Known]) -> Known:
    if op == "clamp":
        return _of_extremes("min", [_of_extremes("max", args[:2]), args[2]])
    one, other = args
    either = any if op == "min" else all
    inexact = one.inexact or other.inexact
    negative = either((one.negative, other.negative))
    return Known(inexact, negative, (all if op == "min" else any)((one.positive, other.positive)))


def _negative(known: Known) -> Known:
    return Known(known.inexact, known.positive, known.negative)


def _marked(row: Row) -> Row:
    backward = row.backward and _precise(row.backward)
    forms: Mapping[str, Row] = {name: _marked(form) for name, form in row.forms.items()}
    chosen: Mapping[str, Row] = {word: _marked(form) for word, form in row.chosen.items()}
    return replace(row, forward=_precise(row.forward), backward=backward, forms=forms, chosen=chosen)


def _precise(program: Program) -> Program:
    """A program whose functions name T."""
    if not _calls(program, HALVED):
        return program
    program = _spelled(program, lambda node: LETTER if node.op in HALVED else "")
    return replace(program, operation=analysed(program.operation, precise_as=LETTER))


def _fast(program: Program) -> Program:
    """A program whose functions are instructions of the GPU, as precise as T or C, where it has some."""
    if not _calls(program, QUICKENED):
        return program

    def quick(node: Node) -> str:
        return f"{QUICK}<{node.precise_as or COMPUTE}>" if node.op in QUICKENED else node.precise_as

    program = _spelled(program, quick)
    return replace(program, operation=analysed(program.operation, exact=False))


def _calls(program: Program, functions: Set[str]) -> bool:
    return any(node.intrinsics() & functions for node in program.formulas.values())


def _spelled(program: Program, precise_as: Callable[[Node], str]) -> Program:
    """A program whose functions name what they are as precise as."""
    known: dict[Node, Node] = {}

    def marked(node: Node) -> Node:
        if node not in known:
            known[node] = replace(node, args=tuple(map(marked, node.args)), precise_as=precise_as(node))
        return known[node]

    formulas = {name: marked(node) for name, node in program.formulas.items()}
    called = {marked(node): name for node, name in program.called.items()}
    return replace(program, formulas=formulas, called=called)
