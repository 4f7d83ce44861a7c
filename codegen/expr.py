"""The expression language: restricted Python expressions, typed, with the dimensions they depend on.

Allowed: names, numbers, `+ - * /`, unary minus, comparisons (chains too), `and or not`, the operators of integers and
booleans (`// % << >> & | ^ ~`), calls to intrinsics and to the functions of the spec. Nothing is ever evaluated, so a
hostile formula can neither run code nor put text into a source: what a printer writes is made from this tree alone.

A value is a real (in the compute type C), an exact integer, or a boolean. An integer beside a real becomes
one (rounded once); nothing else mixes. Integers are exact: the widths are added up, and a formula that could
leave 64 bits is refused, unless it is within `wrap(...)`, which asks for its lowest bits alone. Where T is floats and
integers or booleans, so is C, and a formula has what all of these have.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf

from skuda.codegen import forms
from skuda.codegen.diagnostics import Diagnostics, Place
from skuda.codegen.expr_checks import KIND_NAME, Refused
from skuda.codegen.expr_operators import BITS, OperatorReader
from skuda.codegen.intrinsics import ARGUMENTS, CONSTANTS, CONVERSIONS, INTRINSICS
from skuda.codegen.nodes import BOOL, CHOOSE, DIM, INT, POSITION, REAL, SMALLEST, Function, Node, Scope, promote
from skuda.codegen.operation_formulas import formula_of
from skuda.codegen.operators import FUNCTIONS, KINDS, WRAPPING, WRAPS
from skuda.codegen.reductions import COUNT, REDUCTION_NAMES, SCAN_NAMES
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

_MAX_DEPTH = 100
_MAX_NODES = 5_000
BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_ARGUMENTS = {name: ", ".join(each) for name, each in ARGUMENTS.items()} | {
    name: "x, over=d" for name in REDUCTION_NAMES if name not in INTRINSICS
}
_ARGUMENTS |= {name: f"{arguments}, along=d" for name, arguments in SCAN_NAMES.items()}
_OF_BOOLEANS = {
    "==": "write `(a and b) or not (a or b)`, or `a` for `a == True`",
    "!=": "write `(a or b) and not (a and b)`",
}
COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


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
    except Refused:
        return None
    return value


def parse_alone(text: str, scope: Scope, called: str = "a formula") -> Node:
    """The typed tree of a formula that stands in no spec.

    Args:
        text: the formula.
        scope: what its names mean.
        called: what messages call it.

    Raises:
        SpecError: it has mistakes.
    """
    diagnostics = Diagnostics(called, text)
    tree = parse(Text(text, Place(1, 1)), scope, diagnostics)
    diagnostics.raise_if_any()
    return tree


def _formula_of_operation(name: str) -> str | None:
    """What to write in place of a call of an operation, as a help text."""
    formula = formula_of(name)
    return f"it is an operation, whose formula is `{formula}`" if formula and len(formula) < 100 else None


def negative(number: Node, place: Place) -> Node:
    """A number with the other sign: -0.0 keeps it, the integer 0 has none."""
    text = number.text.removeprefix("-") if number.text.startswith("-") else f"-{number.text}"
    return replace(number, text="0" if text == "-0" else text, place=place)


def _size(node: Node, known: dict[int, int]) -> int:
    """Nodes of the tree as it would be printed: what two places share counts twice, and is counted once."""
    if id(node) not in known:
        known[id(node)] = 1 + sum(_size(argument, known) for argument in node.args)
    return known[id(node)]


class _Reader(OperatorReader):
    """Turns a syntax tree into typed nodes; every mistake is reported at its own place."""

    def value(self, node: ast.expr, depth: int = 0) -> Node:
        self.nodes += 1
        if depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            raise self.refuse(node, "the formula is too deep or too long", "split it with functions")
        if type(node) in REFUSED_NODES:
            what, help = REFUSED_NODES[type(node)]
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
            message = "C may be an integer, as the types of this row allow: this is a real"
            raise self.refuse(node, message, "numbers are integers there")
        return Node("number", (), REAL, text=repr(node.value), place=self.place(node))

    def _Name(self, node: ast.Name, depth: int) -> Node:
        value = self.scope.values.get(node.id)
        if value is not None:
            return value
        self.check_hidden(node)
        if node.id in CONSTANTS:
            self.check_c(node.id, node)
            return Node("number", (), REAL, text=repr(CONSTANTS[node.id]), place=self.place(node))
        if node.id in REDUCTION_NAMES and node.id not in INTRINSICS:
            message = f"`{node.id}` is a function: it needs its arguments"
            raise self.refuse(node, message, f"write `{node.id}(x, over=d)`")
        if node.id in SCAN_NAMES:
            message = f"`{node.id}` is a function: it needs its arguments"
            raise self.refuse(node, message, f"write `{self.spelled(node.id)}`")
        if node.id == COUNT:
            raise self.refuse(node, f"`{COUNT}` is a function: it says what it counts", f"write `{COUNT}(over=d)`")
        if node.id in (*INTRINSICS, *CONVERSIONS, SMALLEST, POSITION) or node.id in self.scope.functions:
            raise self.refuse(
                node, f"`{node.id}` is a function: it needs its arguments", f"write `{node.id}(...)`"
            )
        if self.stack:  # inside a function, unknown names have been reported at the function itself
            raise Refused()
        if node.id in DTYPES or (len(node.id) == 1 and node.id.isupper()):
            help = "reals are computed in C, and rounded once where an output stores them"
            raise self.refuse(node, f"`{node.id}` is a type, which has no value in a formula", help)
        others = [f"`{name}`" for name, value in self.scope.values.items() if value.kind != DIM]
        help = meant(node.id, [*self.scope.values, *CONSTANTS]) or f"there are {', '.join(others)}"
        raise self.refuse(node, f"`{node.id}` is neither an argument nor an intrinsic", help if others else None)

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
            return self.inverted(node, value)
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
        if sign == "/" and (share := self.share(left, right)) is not None:
            return share
        bits = left.bits + right.bits if sign == "*" else max(left.bits, right.bits) + 1
        return self.arithmetic(sign, node, (left, right), bits)

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
        if name in SCAN_NAMES:
            return self.scanned(name, node, depth)
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
        if name == POSITION and name not in self.scope.functions:
            return self.position(node, depth)
        if name == CHOOSE and name not in self.scope.functions:
            return self.chosen(node, depth)
        callable = (*INTRINSICS, *CONVERSIONS, *self.scope.functions)
        if node.keywords and (name in callable or name in REDUCTION_NAMES):
            help = f"it is `{self.spelled(name)}`"
            if over and not (name in self.scope.functions and "d" in self.scope.functions[name].parameters):
                help = f"`over=` belongs to {', '.join([*REDUCTION_NAMES, COUNT])}"
            raise self.refuse(node, f"`{name}` takes its arguments by position", help)
        if name in self.scope.functions:
            return self.expanded(self.scope.functions[name], node, depth)
        if name == SMALLEST:
            self.check_hidden(node.func)
            return self.smallest(node)
        if name in CONVERSIONS:
            return self.converted(name, node, depth)
        if name not in INTRINSICS:
            with suppress(Refused):
                self.all(node.args, depth)
            if name in REDUCTION_NAMES:
                raise self.refuse(node, f"`{name}` says nowhere what it is over", f"write `{name}(x, over=d)`")
            if name in self.scope.values:
                help = f"write `{name} * (...)` for a product"
                raise self.refuse(node.func, f"`{name}` is a value, and no function", help)
            self.check_hidden(node.func)
            if name != "bool" and (name in DTYPES or (len(name) == 1 and name.isupper())):
                help = "reals are computed in C, and rounded once where an output stores them: say its type there"
                raise self.refuse(node.func, f"`{name}` is a type, and no function", help)
            reductions = (*REDUCTION_NAMES, *SCAN_NAMES, COUNT)
            help = meant(name, reductions) if over else None
            help = help or meant(name, ()) or _formula_of_operation(name)
            help = help or meant(name, [*callable, *reductions, SMALLEST, POSITION])
            help = help or "`skuda list --functions` names the catalog's"
            raise self.refuse(node.func, f"`{name}` is neither an intrinsic nor a function", help)
        intrinsic = INTRINSICS[name]
        values = self.all(node.args, depth)
        few = name in ("min", "max") and len(node.args) > 2
        help = f"write `{name}(a, {name}(b, c))`" if few else f"it is `{self.spelled(name)}`"
        help = "for one bound, write `max(x, low)` or `min(x, high)`" if name == "clamp" else help
        self.arity(node, name, len(intrinsic.arguments), help)
        return self.called(name, node, values)

    def chosen(self, node: ast.Call, depth: int) -> Node:
        """`choose(approximate, none=x, tanh=y)`: the formula of the word that is read. The others are read in forms."""
        if not self.scope.choice:
            help = "its attribute has words: `attrs: {approximate: none | tanh = none}`"
            raise self.refuse(node, f"`{CHOOSE}` needs a row that chooses among formulas", help)
        name, words, chosen = self.scope.choice
        of = node.args[0].id if len(node.args) == 1 and isinstance(node.args[0], ast.Name) else None
        said = {keyword.arg: keyword.value for keyword in node.keywords}
        if of != name or [keyword.arg for keyword in node.keywords] != [*words]:
            message = f"`{CHOOSE}` takes `{name}` and a formula for each of its words"
            raise self.refuse(node, message, f"write `{CHOOSE}({name}, {', '.join(f'{word}=...' for word in words)})`")
        (value,) = self.all((said[chosen],), depth)
        return value

    def spelled(self, name: str) -> str:
        """A function as a call spells it."""
        if name in self.scope.functions:
            return self.scope.functions[name].signature
        if name in _ARGUMENTS:
            return f"{name}({_ARGUMENTS[name]})"
        count = 1 if name in CONVERSIONS else len(INTRINSICS[name].arguments) if name in INTRINSICS else 0
        return f"{name}({', '.join('abc'[:count] if count > 1 else ['x'])})"

    def instead_of(self, node: ast.expr) -> str:
        """What to write for a call of something that has no name, such as `np.exp(x)` or `x.sum()`."""
        if not isinstance(node, ast.Attribute):
            return "name one of them"
        if node.attr in SCAN_NAMES:
            return f"write `{self.spelled(node.attr)}`"
        if node.attr in REDUCTION_NAMES and getattr(node.value, "id", None) not in LIBRARIES:
            return f"write `{node.attr}(x, over=d)`"
        if node.attr in INTRINSICS or node.attr in self.scope.functions:
            return f"write `{self.spelled(node.attr)}`"
        if node.attr in REDUCTION_NAMES:
            return f"write `{node.attr}(x, over=d)`"
        return meant(node.attr, [*INTRINSICS, *REDUCTION_NAMES, *self.scope.functions]) or "name one of them"

    def converted(self, name: str, node: ast.Call, depth: int) -> Node:
        """`saturate(i)`, `wrap(i)` and the like; the output whose formula it is says to which type."""
        if CONVERSIONS[name].result == "r":
            help = f"its type is that of the output: `o: bf16[n] = {self.spelled(name)}`"
            self.arity(node, name, len(CONVERSIONS[name].arguments), help)
            return self.called(name, node, self.all(node.args, depth))
        self.arity(node, name, 1, f"its type is that of the output: `o: u8[n] = {name}(i)`")
        self.wraps = name != "saturate"  # the others ask for the lowest bits alone
        (value,) = self.all(node.args, depth)
        if value.kind == REAL:
            help = f"write `{name}(round_to_int(x))`"
            raise self.refuse(node.args[0], f"`{name}` needs an integer, this is a real", help)
        self.want_number(node.args[0], value, f"`{name}`")
        return Node(name, (value,), INT, value.dims, value.bits, place=self.place(node.func))

    def called(self, name: str, node: ast.Call, values: list[Node]) -> Node:
        intrinsic = FUNCTIONS[name]
        if (known := forms.converted(name, values) or forms.alike(name, values)) is not None:
            return known
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
                node, f"`{name}` mixes {' and '.join(sorted(KIND_NAME[kind] for kind in kinds))}", None
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

    def expanded(self, function: Function, node: ast.Call, depth: int) -> Node:
        if function in self.stack:
            message = f"with this call, `{function.name}` calls itself"
            raise self.refuse(node, message, "a formula has no recursion")
        values = self.all(node.args, depth, several=True)
        self.arity(node, function.name, len(function.parameters), f"it is `{function.signature}`")
        tree = parse_syntax(function.body, Diagnostics("", ""))  # its syntax has been checked where it stands
        if tree is None:
            raise Refused()
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
        self.check_c(SMALLEST, node)
        return Node(SMALLEST, (), REAL, text=at.id, place=self.place(node))
