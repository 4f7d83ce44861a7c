"""What a reader of formulas refuses, each mistake at its own place."""

from __future__ import annotations

import ast

from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, Function, Node, Scope, promote
from skuda.codegen.operators import kinds_of_c
from skuda.codegen.reductions import COUNT, REDUCTION_NAMES
from skuda.codegen.syntax import offset_of
from skuda.codegen.yaml_tree import Text

KIND_NAME = {REAL: "a real", INT: "an integer", BOOL: "a boolean", DIM: "a dimension"}


class Refused(Exception):
    """A mistake that has been reported; the formula has no value."""


class Checks:
    """Where a reader is in a formula, and what it refuses there."""

    def __init__(
        self,
        text: Text,
        scope: Scope,
        diagnostics: Diagnostics,
        stack: tuple[Function, ...] = (),
        called_at: Place | None = None,
        entered_at: Place | None = None,
    ):
        self.text = text
        self.scope = scope
        self.diagnostics = diagnostics
        self.stack = stack
        self.called_at = called_at  # inside of a function: the call in the row's formula
        self.entered_at = entered_at  # inside of one of the catalog: the call in the spec, where all is reported
        self.nodes = 0
        self.wraps = False  # whether the lowest 64 bits of an integer are all that is asked for
        self.asked = False  # the same of the call that is read, whose arguments are exact unless it says otherwise

    def refuse(self, node: ast.expr, message: str, help: str | None = None) -> Refused:
        length = max(1, node.end_col_offset - node.col_offset)
        place = self.text.at(offset_of(self.text, node), length) if self.entered_at is None else self.entered_at
        if self.entered_at is not None:
            outer = next(function for function in self.stack if function.library is not None)
            message, help = f"`{outer.signature}` of the catalog: {message}", None
        if self.called_at is not None and self.stack[0].library is None:
            call = f"line {self.called_at.line} calls `{self.stack[0].name}` so"
            help = f"{help}; {call}" if help else call
        self.diagnostics.error(place, message, help)
        return Refused()

    def place(self, node: ast.expr) -> Place:
        if self.entered_at is not None:
            return self.entered_at
        length = len(node.id) if isinstance(node, ast.Name) else 1
        return self.text.at(offset_of(self.text, node), length)

    def check_hidden(self, node: ast.Name) -> None:
        if node.id in self.scope.hidden:
            why = self.scope.hidden[node.id]
            raise Refused() if why is None else self.refuse(node, f"`{node.id}` {why}")

    def arity(self, node: ast.Call, name: str, count: int, help: str | None = None) -> None:
        if len(node.args) != count:
            if name in REDUCTION_NAMES and len(node.args) == 1:
                help = f"for the {name} along a dimension, write `{name}(x, over=d)`"
            raise self.refuse(
                node, f"`{name}` takes {count} argument{'s' * (count != 1)}, got {len(node.args)}", help
            )

    def same_kind(self, left: Node, right: Node) -> tuple[Node, Node]:
        return (promote(left), promote(right)) if REAL in (left.kind, right.kind) else (left, right)

    def want(self, at: ast.expr, value: Node, kind: str, what: str) -> None:
        if value.kind != kind:
            helps = {(REAL, BOOL): "compare it: `x != 0`", (INT, BOOL): "compare it: `i != 0`"}
            helps |= {(REAL, INT): "a real needs no `to_real`" if what == "`to_real`" else "use `round_to_int(x)`"}
            message = f"{what} needs {KIND_NAME[kind]}, this is {KIND_NAME[value.kind]}"
            raise self.refuse(at, message, helps.get((value.kind, kind)))

    def want_number(self, at: ast.expr, value: Node, what: str) -> None:
        if value.kind == BOOL:
            raise self.refuse(at, f"{what} needs a number, this is a boolean", "use `where(condition, 1, 0)`")
        if value.kind == DIM and not value.dims:
            message = f"`{value.text}` is of type size, it has no value in a formula"
            raise self.refuse(at, message, "`d/size` after `over=` is a block of that length")
        if value.kind == DIM:
            help = f"`{COUNT}(over={value.text})` is how many elements it has"
            help += "; an attribute of type `size` is how long its blocks are" if "/" in value.text else ""
            raise self.refuse(at, f"{what} needs a number, this is a dimension", help)

    def check_c(self, op: str, node: ast.expr, kind: str = REAL) -> None:
        """Refuses an operation on values of C that some type which C may be does not have."""
        lacking = sorted(self.scope.computes - kinds_of_c(op)) if kind == REAL else []
        if lacking:
            what = {"float": "a real", "int": "an integer", "bool": "a boolean"}[lacking[0]]
            sign = "unary minus" if op == "neg" else f"`{op}`"
            raise self.refuse(node, f"{sign} has no value where C is {what}, as the types of this row allow")

    def width(self, node: ast.expr, kind: str, bits: int) -> int:
        if kind != INT:
            return 0
        if bits > 64:
            raise self.refuse(
                node,
                f"the integer could need {bits} bits, 64 are held exactly",
                "clamp it first, or use `to_real`",
            )
        return bits
