"""The expression language: restricted Python expressions, typed, with the dimensions they depend on.

Allowed: names, numbers, `+ - * /`, unary minus, comparisons (chains too), `and or not`, the operators of integers and
booleans (`// % << >> & | ^ ~`), calls to intrinsics and to the functions of the spec. Nothing is ever evaluated, so a hostile formula can neither run code nor put
text into a source: what a printer writes is made from this tree alone.

A value is a real (in the compute type C), an exact integer, or a boolean. An integer beside a real becomes
one (rounded once); nothing else mixes. Integers are exact: the widths are added up, and a formula that could
leave 64 bits is refused, unless it is within `wrap(...)`, which asks for its lowest bits alone. Where the types of a row
make C a float for some calls and an integer or boolean for others, a formula has what all of these have.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf

from skuda.codegen import forms
from skuda.codegen.diagnostics import Diagnostics, Place, suggestion
from skuda.codegen.intrinsics import CONSTANTS, CONVERSIONS, INTRINSICS
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, REDUCE, SMALLEST, Function, Node, Scope, promote
from skuda.codegen.operators import KINDS, OPERATORS, WRAPPING, WRAPS, bits_of, is_ring, kinds_of_c
from skuda.codegen.reductions import COUNT, LENGTH_BITS, MEAN, REDUCTION_NAMES, REDUCTIONS
from skuda.codegen.syntax import (
    LIBRARIES,
    OF_INTEGERS,
    REFUSED_NODES,
    REFUSED_OPERATORS,
    meant,
    offset_of,
    parse_syntax,
)
from skuda.codegen.yaml_tree import Text
from skuda.model.dtypes import DTYPES

_KIND_NAME = {REAL: "a real", INT: "an integer", BOOL: "a boolean", DIM: "a dimension"}
_MAX_DEPTH = 100
_MAX_NODES = 5_000
BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
BITS = {ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>"}
BITS |= {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_ARGUMENTS = {"where": "condition, a, b", "clamp": "x, low, high"} | {
    name: "x, over=d" for name in REDUCTION_NAMES if name not in INTRINSICS
}
_OVER = "name dimensions of the inputs, or blocks of one: `over=d`, `over=(n, d)`, `over=d/group_size`"
_OF_BOOLEANS = {
    "==": "write `(a and b) or not (a or b)`, or `a` for `a == True`",
    "!=": "write `(a or b) and not (a and b)`",
}
COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class _Refused(Exception):
    """A mistake that has been reported; the formula has no value."""


def parse(text: Text, scope: Scope, diagnostics: Diagnostics) -> Node | None:
    """The typed tree of a formula; None where it has mistakes, each of which has been reported."""
    tree = parse_syntax(text, diagnostics)
    if tree is None:
        return None
    reader = _Reader(text, scope, diagnostics)
    try:
        value = reader.value(tree)
        if value.kind == DIM:
            reader.want_number(tree, value, "a formula")
        if _size(value, {}) > _MAX_NODES:
            message = "the formula is too long with its functions written out"
            raise reader.refuse(tree, message, "call fewer of them")
        for part in set().union(*(argument.parts() for argument in value.args)):
            if part.op in CONVERSIONS:
                message = f"`{part.op}` converts what an output stores: it stands outermost in the output's formula"
                diagnostics.error(part.place, message, f"write `output: Q[n] = {part.op}(...)`, around all of it")
                return None
    except _Refused:
        return None
    return value


def negative(number: Node, place: Place) -> Node:
    """A number with the other sign: -0.0 keeps it, the integer 0 has none."""
    text = number.text.removeprefix("-") if number.text.startswith("-") else f"-{number.text}"
    return replace(number, text="0" if text == "-0" else text, place=place)


def _size(node: Node, known: dict[int, int]) -> int:
    """Nodes of the tree as it would be printed: what two places share counts twice, and is counted once."""
    if id(node) not in known:
        known[id(node)] = 1 + sum(_size(argument, known) for argument in node.args)
    return known[id(node)]


class _Reader:
    """Turns a syntax tree into typed nodes; every mistake is reported at its own place."""

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

    def refuse(self, node: ast.expr, message: str, help: str | None = None) -> _Refused:
        length = max(1, node.end_col_offset - node.col_offset)
        place = self.text.at(offset_of(self.text, node), length) if self.entered_at is None else self.entered_at
        if self.entered_at is not None:
            outer = next(function for function in self.stack if function.library is not None)
            message, help = f"`{outer.signature}` of the catalog: {message}", None
        if self.called_at is not None and self.stack[0].library is None:
            call = f"line {self.called_at.line} calls `{self.stack[0].name}` so"
            help = f"{help}; {call}" if help else call
        self.diagnostics.error(place, message, help)
        return _Refused()

    def value(self, node: ast.expr, depth: int = 0) -> Node:
        self.nodes += 1
        if depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            raise self.refuse(node, "the formula is too deep or too long", "split it with functions")
        for kind, (what, help) in REFUSED_NODES.items():
            if isinstance(node, kind):
                of_library = isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in LIBRARIES
                help = f"write `{node.attr}` alone" if of_library and node.attr in CONSTANTS else help
                raise self.refuse(node, f"a formula has no {what}", help)
        reader: Callable[[ast.expr, int], Node] | None = getattr(self, f"_{type(node).__name__}", None)
        if reader is None:
            raise self.refuse(
                node,
                "this is not part of the formula language",
                "use names, numbers, + - * /, comparisons and calls",
            )
        if not isinstance(node, (ast.Compare, ast.BoolOp, ast.Call)):
            return reader(node, depth + 1)
        outer, asked = self.wraps, self.asked
        self.wraps, self.asked = False, outer
        try:
            return reader(node, depth + 1)
        finally:
            self.wraps, self.asked = outer, asked

    def place(self, node: ast.expr) -> Place:
        if self.entered_at is not None:
            return self.entered_at
        length = len(node.id) if isinstance(node, ast.Name) else 1
        return self.text.at(offset_of(self.text, node), length)

    def all(self, nodes, depth: int, several: bool = False) -> list[Node]:
        """Every operand, so that the mistakes of all of them are reported in one run; `several`: a tuple of dimensions
        may be one."""
        values, refused = [], None
        for node in nodes:
            try:
                dims = several and isinstance(node, (ast.Tuple, ast.List))
                values.append(self.dimensions(node, depth) if dims else self.value(node, depth))
            except _Refused as error:
                refused = error
        if refused is not None:
            raise refused
        return values

    def _Constant(self, node: ast.Constant, depth: int) -> Node:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            names = {bool: f"`{node.value}`", str: "strings", bytes: "strings", complex: "complex numbers"}
            what = names.get(type(node.value), f"`{'...' if node.value is ... else node.value}`")
            raise self.refuse(node, f"a formula has no {what}", "it has numbers and comparisons")
        if isinstance(node.value, int):
            if node.value.bit_length() > 53:
                raise self.refuse(node, "integers in a formula are at most 53 bits wide")
            bits = node.value.bit_length() + 1
            return Node("number", (), INT, bits=bits, text=str(node.value), place=self.place(node))
        if node.value == inf:
            raise self.refuse(node, "the number does not fit a double")
        if self.scope.computes != {"float"}:
            raise self.refuse(node, "C may be an integer, as the types of this row allow: this is a real", "write 2")
        return Node("number", (), REAL, text=repr(node.value), place=self.place(node))

    def _Name(self, node: ast.Name, depth: int) -> Node:
        value = self.scope.values.get(node.id)
        if value is not None:
            return value
        self.check_hidden(node)
        if node.id in CONSTANTS:
            self.check_c(node.id, node, REAL)
            return Node("number", (), REAL, text=repr(CONSTANTS[node.id]), place=self.place(node))
        if node.id in REDUCTION_NAMES and node.id not in INTRINSICS:
            message = f"`{node.id}` is a function: it needs its arguments"
            raise self.refuse(node, message, f"write `{node.id}(x, over=d)`")
        if node.id == COUNT:
            raise self.refuse(node, f"`{COUNT}` is a function: it says what it counts", f"write `{COUNT}(over=d)`")
        if node.id in (*INTRINSICS, *CONVERSIONS, SMALLEST) or node.id in self.scope.functions:
            raise self.refuse(
                node, f"`{node.id}` is a function: it needs its arguments", f"write `{node.id}(...)`"
            )
        if self.stack:  # inside a function, unknown names have been reported at the function itself
            raise _Refused()
        if node.id in DTYPES or (len(node.id) == 1 and node.id.isupper()):
            help = "reals are computed in C, and rounded once where an output stores them"
            raise self.refuse(node, f"`{node.id}` is a type, which has no value in a formula", help)
        others = [f"`{name}`" for name, value in self.scope.values.items() if value.kind != DIM]
        help = meant(node.id, [*self.scope.values, *CONSTANTS]) or f"there are {', '.join(others)}"
        raise self.refuse(node, f"`{node.id}` is neither an argument nor an intrinsic", help if others else None)

    def check_hidden(self, node: ast.Name) -> None:
        if node.id in self.scope.hidden:
            why = self.scope.hidden[node.id]
            raise _Refused() if why is None else self.refuse(node, f"`{node.id}` {why}")

    def _UnaryOp(self, node: ast.UnaryOp, depth: int) -> Node:
        value = self.value(node.operand, depth)
        if isinstance(node.op, ast.Not):
            self.want(node.operand, value, BOOL, "`not`")
            return Node("not", (value,), BOOL, value.dims, place=self.place(node))
        if isinstance(node.op, ast.USub):
            self.want_number(node.operand, value, "unary minus")
            if value.op == "number":
                return negative(value, self.place(node))
            return self.arithmetic("neg", node, (value,), value.bits + 1)
        if isinstance(node.op, ast.Invert) and (value.kind in KINDS["~"] or self.scope.computes != {"float"}):
            self.want_operands("~", node, (value,))
            return Node("~", (value,), value.kind, value.dims, value.bits, place=self.place(node))
        help = "leave it out" if isinstance(node.op, ast.UAdd) else "use `not`"
        raise self.refuse(node, "this operator is not part of the formula language", help)

    def _BinOp(self, node: ast.BinOp, depth: int) -> Node:
        if type(node.op) in BITS:
            return self.operated(BITS[type(node.op)], node, depth)
        if type(node.op) in REFUSED_OPERATORS:
            sign, help = REFUSED_OPERATORS[type(node.op)]
            kinds = {value.kind for value in self.all((node.left, node.right), depth)}
            help = OF_INTEGERS.get(type(node.op), help) if kinds == {INT} else help
            raise self.refuse(node, f"`{sign}` is not part of the formula language", help)
        sign = BINARY[type(node.op)]
        if sign == "/" and (blocks := self.blocks(node)) is not None:
            return blocks
        left, right = self.wrapping(sign, (node.left, node.right), depth)
        if sign == "/" and left.kind == DIM and left.dims:
            name = left.text.partition("/")[0]
            message = f"blocks of `{name}` are `{name}/size` with an attribute of type size"
            raise self.refuse(node, message, "such as `attrs: {group_size: size}`; a dimension is no number")
        self.want_number(node.left, left, f"`{sign}`")
        self.want_number(node.right, right, f"`{sign}`")
        if sign == "/" and left.kind == right.kind == INT:
            if not any(part.names() or part.reductions() for part in (left, right)):  # of numbers alone
                left, right = promote(left), promote(right)
            else:
                help = "write `to_real(a) / to_real(b)`, or `round_to_int(floor(to_real(a) / to_real(b)))`"
                raise self.refuse(node, "`/` of two integers has no exact integer value", help)
        left, right = self.same_kind(left, right)
        if (operand := forms.unchanged(sign, left, right)) is not None:
            return operand
        bits = left.bits + right.bits if sign == "*" else max(left.bits, right.bits) + 1
        return self.arithmetic(sign, node, (left, right), bits)

    def operated(self, sign: str, node: ast.BinOp, depth: int) -> Node:
        """An operator of integers and booleans; `//` and `%` of reals too where C may be an integer."""
        values = self.wrapping(sign, (node.left, node.right), depth)
        kinds = {value.kind for value in values}
        if REAL in kinds and BOOL not in kinds and DIM not in kinds and self.scope.computes == {"float"}:
            of, help = REFUSED_OPERATORS[type(node.op)]
            raise self.refuse(node, f"`{of}` is not part of the formula language", help)
        self.want_operands(sign, node, values)
        left, right = self.same_kind(*values)
        bits = bits_of(sign, left.bits, right.bits)
        if sign == "<<" and left.kind == INT and not self.wraps:
            raise self.refuse(node, "nothing bounds what is shifted to the left", "write `wrap(...)` around the formula")
        bits = 0 if left.kind != INT else min(bits, 64) if is_ring(sign) else self.width(node, INT, bits)
        return Node(sign, (left, right), left.kind, left.dims | right.dims, bits, place=self.place(node))

    def arithmetic(self, sign: str, node: ast.expr, values: tuple[Node, ...], bits: int) -> Node:
        """A sum, difference, product or negative: exact, or of 64 bits where these are all that is asked for."""
        kind = values[0].kind
        self.check_c(sign, node, kind)
        wraps = (kind == INT and bits > 64 and self.wraps) or (kind == REAL and "int" in self.scope.computes)
        bits = 64 if wraps and kind == INT else self.width(node, kind, bits)
        dims = frozenset().union(*(value.dims for value in values))
        return Node(sign, values, kind, dims, bits, WRAPS if wraps and sign in WRAPPING else "", self.place(node))

    def wrapping(self, sign: str, nodes: tuple[ast.expr, ...], depth: int) -> list[Node]:
        """The operands of an operator, the lowest bits of which may be all that is asked for, as of its result."""
        outer, self.wraps = self.wraps, self.wraps and is_ring(sign)
        try:
            return self.all(nodes, depth)
        finally:
            self.wraps = outer

    def want_operands(self, sign: str, node: ast.expr, values) -> None:
        """Refuses operands that an operator of integers and booleans does not take."""
        kinds = {value.kind for value in values}
        taken = kinds if len(kinds) == 1 else kinds - {INT}  # an integer becomes a value of C beside one
        if len(taken) == 1 and (taken <= {*KINDS[sign]} or taken == {REAL}):
            return self.check_c(sign, node, *taken)
        wanted = " or ".join(_KIND_NAME[kind] + "s" for kind in KINDS[sign]).replace("an ", "").replace("a ", "")
        found = " and ".join(sorted(_KIND_NAME[kind] for kind in kinds))
        raise self.refuse(node, f"`{sign}` needs {wanted}, this is {found}")

    def check_c(self, op: str, node: ast.expr, kind: str) -> None:
        """Refuses an operation on values of C that some type which C may be does not have."""
        lacking = sorted(self.scope.computes - kinds_of_c(op)) if kind == REAL else []
        if lacking:
            what = {"float": "a real", "int": "an integer", "bool": "a boolean"}[lacking[0]]
            sign = "unary minus" if op == "neg" else f"`{op}`"
            raise self.refuse(node, f"{sign} has no value where C is {what}, as the types of this row allow")

    def _Compare(self, node: ast.Compare, depth: int) -> Node:
        operands = [node.left, *node.comparators]
        values = self.all(operands, depth)
        parts = []
        for operator, left, right, at in zip(node.ops, values, values[1:], node.comparators, strict=False):
            sign = COMPARE.get(type(operator))
            if sign is None:
                raise self.refuse(node, "only < <= > >= == != compare", None)
            self.check_c(sign, node, left.kind)
            if sign in _OF_BOOLEANS and left.kind == right.kind == BOOL:
                raise self.refuse(node, f"`{sign}` compares numbers, these are booleans", _OF_BOOLEANS[sign])
            self.want_number(operands[0], left, f"`{sign}`")
            self.want_number(at, right, f"`{sign}`")
            if {left.kind, right.kind} == {REAL, INT} and "number" not in (left.op, right.op):
                raise self.refuse(
                    node,
                    f"`{sign}` compares a real with an integer",
                    "compare in one kind: `to_real(i)` or `round_to_int(x)`",
                )
            left, right = self.same_kind(left, right)
            parts.append(Node(sign, (left, right), BOOL, left.dims | right.dims, place=self.place(node)))
        return self.joined("and", parts, node)

    def _BoolOp(self, node: ast.BoolOp, depth: int) -> Node:
        sign = "and" if isinstance(node.op, ast.And) else "or"
        values = self.all(node.values, depth)
        for at, value in zip(node.values, values, strict=True):
            self.want(at, value, BOOL, f"`{sign}`")
        return self.joined(sign, values, node)

    def joined(self, sign: str, values: list[Node], node: ast.expr) -> Node:
        result = values[0]
        for value in values[1:]:
            result = Node(sign, (result, value), BOOL, result.dims | value.dims, place=self.place(node))
        return result

    def _Call(self, node: ast.Call, depth: int) -> Node:
        if not isinstance(node.func, ast.Name):
            raise self.refuse(node.func, "only intrinsics and functions can be called", self.instead_of(node.func))
        name = node.func.id
        over = [keyword.value for keyword in node.keywords if keyword.arg == "over"]
        if over and len(over) == len(node.keywords) == 1 and name in REDUCTION_NAMES:
            return self.reduced(name, node, over[0], depth)
        if name == COUNT and name not in self.scope.functions:
            return self.counted(node, over, depth)
        if node.keywords and name in REDUCTION_NAMES:
            other = next((keyword.arg or "**" for keyword in node.keywords if keyword.arg != "over"), "over")
            help = f"write `{name}(x, over=d)`"
            if not over and [keyword.arg for keyword in node.keywords] == [other]:
                at = node.keywords[0].value
                value = self.scope.values.get(at.id) if isinstance(at, ast.Name) else None
                help = f"write `over={at.id}`" if value is not None and value.kind == DIM else help
            raise self.refuse(node, f"`{name}` has no argument `{other}`", help)
        callable = (*INTRINSICS, *CONVERSIONS, *self.scope.functions)
        if node.keywords and (name in callable or name in REDUCTION_NAMES):
            help = f"it is `{self.spelled(name)}`"
            help = f"`over=` belongs to {', '.join([*REDUCTION_NAMES, COUNT])}" if over else help
            raise self.refuse(node, f"`{name}` takes its arguments by position", help)
        if name in self.scope.functions:
            return self.expanded(self.scope.functions[name], node, depth)
        if name == SMALLEST:
            self.check_hidden(node.func)
            return self.smallest(node)
        if name in CONVERSIONS:
            return self.converted(name, node, depth)
        if name not in INTRINSICS:
            with suppress(_Refused):
                self.all(node.args, depth)
            if name in REDUCTION_NAMES:
                raise self.refuse(node, f"`{name}` says nowhere what it is over", f"write `{name}(x, over=d)`")
            self.check_hidden(node.func)
            if name != "bool" and (name in DTYPES or (len(name) == 1 and name.isupper())):
                help = "reals are computed in C, and rounded once where an output stores them: say its type there"
                raise self.refuse(node.func, f"`{name}` is a type, and no function", help)
            reductions = (*REDUCTION_NAMES, COUNT)
            help = meant(name, reductions) if over else None
            help = help or meant(name, [*callable, *reductions, SMALLEST])
            help = help or "`skuda list --functions` names the catalog's"
            raise self.refuse(node.func, f"`{name}` is neither an intrinsic nor a function", help)
        intrinsic = INTRINSICS[name]
        values = self.all(node.args, depth)
        few = name in ("min", "max") and len(node.args) > 2
        help = f"write `{name}(a, {name}(b, c))`" if few else f"it is `{self.spelled(name)}`"
        help = "for one bound, write `max(x, low)` or `min(x, high)`" if name == "clamp" else help
        self.arity(node, name, len(intrinsic.arguments), help)
        return self.called(name, node, values)

    def spelled(self, name: str) -> str:
        """A function as a call spells it."""
        if name in self.scope.functions:
            return self.scope.functions[name].signature
        if name in _ARGUMENTS:
            return f"{name}({_ARGUMENTS[name]})"
        count = 1 if name in CONVERSIONS else len(INTRINSICS[name].arguments) if name in INTRINSICS else 0
        return f"{name}({', '.join(['ab'[i] for i in range(count)] if count > 1 else ['x'])})"

    def instead_of(self, node: ast.expr) -> str:
        """What to write for a call of something that has no name, such as `np.exp(x)` or `x.sum()`."""
        if not isinstance(node, ast.Attribute):
            return "name one of them"
        if node.attr in REDUCTION_NAMES and getattr(node.value, "id", None) not in LIBRARIES:
            return f"write `{node.attr}(x, over=d)`"
        if node.attr in INTRINSICS or node.attr in self.scope.functions:
            return f"write `{self.spelled(node.attr)}`"
        if node.attr in REDUCTION_NAMES:
            return f"write `{node.attr}(x, over=d)`"
        return meant(node.attr, [*INTRINSICS, *REDUCTION_NAMES, *self.scope.functions]) or "name one of them"

    def converted(self, name: str, node: ast.Call, depth: int) -> Node:
        """`saturate(i)` or `wrap(i)`; the output whose formula it is says to which type."""
        self.arity(node, name, 1, f"its type is that of the output: `o: u8[n] = {name}(i)`")
        self.wraps = name != "saturate"  # the others ask for the lowest bits alone
        (value,) = self.all(node.args, depth)
        if value.kind == REAL:
            help = f"write `{name}(round_to_int(x))`"
            raise self.refuse(node.args[0], f"`{name}` needs an integer, this is a real", help)
        self.want_number(node.args[0], value, f"`{name}`")
        return Node(name, (value,), INT, value.dims, value.bits, place=self.place(node.func))

    def called(self, name: str, node: ast.Call, values: list[Node]) -> Node:
        intrinsic = INTRINSICS[name]
        if (real := forms.converted(name, values)) is not None:
            return real
        for at, value in zip(node.args, values, strict=True):
            if value.kind == DIM:
                self.want_number(at, value, f"`{name}`")
        shared = [value for value, letter in zip(values, intrinsic.arguments, strict=True) if letter in "nx"]
        kinds = {value.kind for value in shared}
        if kinds == {REAL, INT}:
            values = [
                promote(value) if letter in "nx" else value
                for value, letter in zip(values, intrinsic.arguments, strict=True)
            ]
            kinds = {REAL}
        elif len(kinds) > 1:
            raise self.refuse(
                node, f"`{name}` mixes {' and '.join(sorted(_KIND_NAME[kind] for kind in kinds))}", None
            )
        typed = []
        for value, letter, at in zip(values, intrinsic.arguments, node.args, strict=True):
            if letter == "r":
                self.want_number(at, value, f"`{name}`")
                value = promote(value)
            elif letter == "n":
                self.want_number(at, value, f"`{name}`")
            elif letter in "ib":
                self.want(at, value, {"i": INT, "b": BOOL}[letter], f"`{name}`")
            typed.append(value)
        kind = {"r": REAL, "i": INT, "b": BOOL}.get(intrinsic.result) or kinds.pop()
        self.check_c(name, node, REAL if REAL in {value.kind for value in typed} else kind)
        wraps = name in WRAPPING and kind == REAL and "int" in self.scope.computes
        bits = intrinsic.bits or max(value.bits for value in typed)
        if name == "abs" and kind == INT:  # the least has no counterpart
            bits = self.width(node, kind, bits + 1)
        if name == "clamp" and kind == INT:  # the bounds bound it; the value itself may be wider
            bits = max(typed[1].bits, typed[2].bits)
        dims = frozenset().union(*(value.dims for value in typed))
        bits, text = bits if kind == INT else 0, WRAPS if wraps else ""
        return Node(name, tuple(typed), kind, dims, bits, text, self.place(node))

    def arity(self, node: ast.Call, name: str, count: int, help: str | None = None) -> None:
        if len(node.args) != count:
            if name in REDUCTION_NAMES and len(node.args) == 1:
                help = f"for the {name} along a dimension, write `{name}(x, over=d)`"
            raise self.refuse(
                node, f"`{name}` takes {count} argument{'s' * (count != 1)}, got {len(node.args)}", help
            )

    def expanded(self, function: Function, node: ast.Call, depth: int) -> Node:
        if function in self.stack:
            message = f"with this call, `{function.name}` calls itself"
            raise self.refuse(node, message, "a formula has no recursion")
        values = self.all(node.args, depth, several=True)
        self.arity(node, function.name, len(function.parameters), f"it is `{function.signature}`")
        tree = parse_syntax(function.body, Diagnostics("", ""))  # its syntax has been checked where it stands
        if tree is None:
            raise _Refused()
        values = dict(zip(function.parameters, values, strict=True))
        functions = self.scope.functions if function.library is None else function.library
        computes = self.scope.computes
        scope = Scope(values, functions, dims=self.scope.dims, called=self.scope.called, computes=computes)
        call = self.text.at(offset_of(self.text, node), max(1, node.end_col_offset - node.col_offset))
        entered = self.entered_at or (None if function.library is None else call)
        stack, place = (*self.stack, function), self.called_at or self.place(node)
        inner = _Reader(function.body, scope, self.diagnostics, stack, place, entered)
        inner.nodes, inner.wraps = self.nodes, self.asked
        result = inner.value(tree, depth)
        self.nodes = inner.nodes
        if result.args:
            self.scope.called[result] = function.name  # the outermost of those that give it
        return result

    def blocks(self, node: ast.BinOp) -> Node | None:
        """`d/group_size`: the blocks along a dimension; None for a quotient."""
        if not isinstance(node.left, ast.Name) or not isinstance(node.right, ast.Name):
            return None
        dim, size = (self.scope.values.get(name.id) for name in (node.left, node.right))
        if dim is None or dim.kind != DIM or len(dim.dims) != 1 or "/" in dim.text:
            return None
        if size is None or size.kind != DIM or size.dims:
            return None
        return Node("name", (), DIM, dim.dims, text=f"{dim.text}/{size.text}", place=self.place(node))

    def dimensions(self, node: ast.Tuple | ast.List, depth: int) -> Node:
        """`(n, d)`: several dimensions at once, whatever the order in which they are named."""
        each = self.all(node.elts, depth)
        names = set().union(*(value.dims for value in each))
        for at, value in zip(node.elts, each, strict=True):
            if value.kind != DIM or not value.dims:
                raise self.refuse(at, "several values stand together only where they are dimensions", _OVER)
            if "/" in value.text:
                raise self.refuse(at, "blocks are along one dimension", f"write `over={value.text}`")
        if not names or len(names) < sum(len(value.dims) for value in each):
            raise self.refuse(node, "a dimension is named twice" if names else "no dimension is named", _OVER)
        text = ", ".join(name for name in self.scope.dims if name in names)
        return Node("name", (), DIM, frozenset(names), text=text, place=self.place(node))

    def reduced(self, name: str, node: ast.Call, over: ast.expr, depth: int) -> Node:
        """A reduction: its value no longer depends on what it is over; over blocks, it is the same in each."""
        self.arity(node, name, 1)
        self.check_over(over)
        reduction = REDUCTIONS["sum" if name == MEAN else name]
        self.wraps = self.asked and reduction.of_lowest_bits
        value, dim = self.all((node.args[0], over), depth, several=True)
        self.want_dimension(over, dim, value)
        self.check_c(name, node, value.kind)
        kinds = (REAL,) if name == MEAN else reduction.kinds
        if value.kind not in kinds:
            wanted = " or ".join(_KIND_NAME[kind] for kind in kinds)
            message = f"`{name}` needs {wanted}, this is {_KIND_NAME[value.kind]}"
            raise self.refuse(node.args[0], message, self.instead(node.args[0], value, kinds))
        blocks = {dim.text} if "/" in dim.text else set()
        parts = {entry for entry in value.dims if entry.partition("/")[0] in dim.dims}
        lacking = dim.dims - (parts if blocks else {entry.partition("/")[0] for entry in parts})
        if lacking:
            message = f"what is reduced does not depend on {', '.join(f'`{name}`' for name in sorted(lacking))}"
            raise self.refuse(node, message, "reduce an expression over operands that have the dimension")
        dims = value.dims - parts | blocks
        place = self.place(node)
        kind = INT if reduction.gives_index else value.kind
        bits = value.bits + reduction.wider
        bits = LENGTH_BITS + 1 if reduction.gives_index else min(bits, 64) if self.wraps else self.width(node, kind, bits)
        bits = bits if kind == INT else 0
        total = Node(REDUCE + reduction.name, (value,), kind, dims, bits, dim.text, place)
        if name != MEAN:
            return total
        count = Node(COUNT, (), REAL, text=dim.text, place=place)
        return Node("/", (total, count), REAL, dims, place=place)

    def counted(self, node: ast.Call, over: list[ast.expr], depth: int) -> Node:
        """`count(over=d)`: how many elements a row has, as a real."""
        if node.args or len(over) != len(node.keywords) or len(over) != 1:
            of_dim = bool(over) or not any(value.kind == DIM for value in self.all(node.args, depth, several=True))
            help = "how many elements are such is `sum(where(condition, 1, 0), over=d)`"
            help = help if node.args and of_dim else f"write `{COUNT}(over=d)`"
            raise self.refuse(node, f"`{COUNT}` takes `over=` alone", help)
        self.check_c(COUNT, node, REAL)
        self.check_over(over[0])
        (dim,) = self.all(over, depth, several=True)
        self.want_dimension(over[0], dim, None)
        return Node(COUNT, (), REAL, text=dim.text, place=self.place(node))

    def smallest(self, node: ast.Call) -> Node:
        """`smallest(S)`: the least positive value of a type."""
        self.arity(node, SMALLEST, 1)
        (at,) = node.args
        kinds = {letter: kind for letter, kind in self.scope.types.items() if kind != BOOL}
        if not isinstance(at, ast.Name) or at.id not in kinds:
            help = f"types of numbers here: {', '.join(kinds)}" if kinds else "formulas of arrays name them"
            raise self.refuse(at, f"`{SMALLEST}` needs a type of the row", help)
        if kinds[at.id] == INT:
            return Node("number", (), INT, bits=2, text="1", place=self.place(node))
        self.check_c(SMALLEST, node, REAL)
        return Node(SMALLEST, (), REAL, text=at.id, place=self.place(node))

    def want_dimension(self, over: ast.expr, dim: Node, reduced: Node | None) -> None:
        if dim.kind == DIM and dim.dims:
            return
        help = _OVER
        if isinstance(over, ast.Name) and reduced is not None and over.id in reduced.dims and not self.stack:
            help = f"`{over.id}` is an operand here; rename it, or the dimension"
        raise self.refuse(over, "`over=` needs a dimension", help)

    def check_over(self, over: ast.expr) -> None:
        """Refuses what no formula has after `over=`, in words about dimensions."""
        dims = [name for name, value in self.scope.values.items() if value.kind == DIM and value.dims]
        if isinstance(over, ast.Name) and not self.stack and over.id not in self.scope.values:
            self.check_hidden(over)
            help = suggestion(over.id, dims, f"dimensions: {', '.join(dims)}")
            raise self.refuse(over, f"no input has the dimension `{over.id}`", help)
        if isinstance(over, (ast.Tuple, ast.List)):
            for each in over.elts:
                self.check_over(each)
        if isinstance(over, ast.Constant) and isinstance(over.value, str):
            raise self.refuse(over, "`over=` needs a dimension", "write `over=d`, without quotes")

    def instead(self, at: ast.expr, value: Node, kinds: tuple[str, ...]) -> str | None:
        """How a value becomes one that the reduction takes, as a help text."""
        if value.kind == BOOL:  # a product takes reals, a sum integers too
            return f"use `where(condition, {'1, 0' if INT in kinds else '1.0, 0.0'})`"
        start = offset_of(self.text, at)
        source = " ".join(self.text.value[start : start + at.end_col_offset - at.col_offset].split())
        if value.kind == INT and BOOL not in kinds:
            return f"write `to_real({source if len(source) <= 40 else 'i'})`"
        return f"write `{source if len(source) <= 40 else 'x'} != 0`" if value.kind != DIM else None

    def same_kind(self, left: Node, right: Node) -> tuple[Node, Node]:
        return (promote(left), promote(right)) if REAL in (left.kind, right.kind) else (left, right)

    def want(self, at: ast.expr, value: Node, kind: str, what: str) -> None:
        if value.kind != kind:
            helps = {(REAL, BOOL): "compare it: `x != 0`", (INT, BOOL): "compare it: `i != 0`"}
            helps |= {(REAL, INT): "a real needs no `to_real`" if what == "`to_real`" else "use `round_to_int(x)`"}
            message = f"{what} needs {_KIND_NAME[kind]}, this is {_KIND_NAME[value.kind]}"
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
