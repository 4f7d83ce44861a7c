"""The expression language: restricted Python expressions, read by `ast`, typed, with the dimensions they depend on.

Allowed: names, numbers, `+ - * /`, unary minus, comparisons (chains too), `and or not`, calls to intrinsics and to the
functions of the spec. Nothing is ever evaluated, so a hostile formula can neither run code nor put text into a source:
what a printer writes is made from this tree alone.

A value is a real (in the compute type C), an exact integer, or a boolean. An integer beside a real becomes one (rounded
once); nothing else mixes. Integers are exact: the widths are added up, and a formula that could leave 64 bits is
refused.
"""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from skuda.codegen.diagnostics import Diagnostics, Place, closest
from skuda.codegen.intrinsics import INSTEAD, INTRINSICS
from skuda.codegen.yaml_tree import Text

REAL, INT, BOOL = "real", "int", "bool"
_KIND_NAME = {REAL: "a real", INT: "an integer", BOOL: "a boolean"}
_MAX_DEPTH = 100
_MAX_NODES = 5_000

IDENTIFIER = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


@dataclass(frozen=True)
class Node:
    """One typed value of a formula.

    Attributes:
        op: "number", "name", an operator (`+`, `neg`, `<=`, `and`, ...), or the name of an intrinsic.
        args: the operands.
        kind: REAL, INT or BOOL.
        dims: names of the dimensions that the value depends on.
        bits: for an integer, how many bits hold it.
        text: the name, or the number as it was written.
        place: where it stands in the spec; no part of its identity.
    """

    op: str
    args: tuple[Node, ...]
    kind: str
    dims: frozenset[str] = frozenset()
    bits: int = 0
    text: str = ""
    place: Place | None = field(default=None, compare=False, repr=False)

    def names(self) -> set[str]:
        """The operands and attributes that the value is made of."""
        if self.op == "name":
            return {self.text}
        return set().union(*(argument.names() for argument in self.args)) if self.args else set()

    def intrinsics(self) -> set[str]:
        """The intrinsics that it calls."""
        own = {self.op} & INTRINSICS.keys()
        return own.union(*(argument.intrinsics() for argument in self.args))


@dataclass(frozen=True)
class Function:
    """A row of `functions:`: a name for a formula, expanded where it is called."""

    name: str
    parameters: tuple[str, ...]
    body: Text


class _Refused(Exception):
    """A mistake that has been reported; the formula has no value."""


_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_REFUSED_OPERATORS: dict[type, tuple[str, str]] = {
    ast.Pow: ("**", "use `pow(a, b)`, or `x * x` for a square"),
    ast.Mod: ("%", "use `fmod` (sign of the dividend) or `remainder` (sign of the divisor)"),
    ast.FloorDiv: ("//", "use `floor(a / b)`"),
    ast.MatMult: ("@", "matrix products are no formula of elements"),
    ast.BitAnd: ("&", "use `and`"),
    ast.BitOr: ("|", "use `or`"),
    ast.BitXor: ("^", "use `pow(a, b)` for a power, `!=` for exclusive or"),
    ast.LShift: ("<<", "multiply by a power of two"),
    ast.RShift: (">>", "divide by a power of two"),
}
_REFUSED_NODES: dict[type, tuple[str, str]] = {  # completes "a formula has no ..."
    ast.Attribute: ("attributes (`a.b`)", "a formula only has names, numbers, operators and calls"),
    ast.Subscript: ("subscripts (`a[i]`)", "an operand stands for its element; name its dimensions where it is declared"),
    ast.Lambda: ("lambdas", "write a function under `functions:`"),
    ast.IfExp: ("`a if c else b`", "use `where(c, a, b)`"),
    ast.NamedExpr: ("`:=`", "write a function under `functions:`"),
    ast.JoinedStr: ("strings", "a formula has numbers only"),
    ast.ListComp: ("comprehensions", "a formula is written for one element, without loops"),
    ast.GeneratorExp: ("comprehensions", "a formula is written for one element, without loops"),
    ast.List: ("lists", "a formula has one value"),
    ast.Tuple: ("tuples", "a formula has one value"),
    ast.Dict: ("dicts", "a formula has one value"),
    ast.Set: ("sets", "a formula has one value"),
    ast.Starred: ("`*arguments`", "name each argument"),
    ast.Await: ("`await`", "a formula only has names, numbers, operators and calls"),
}

# What an author may mean by a character that no formula has.
_MEANT = {
    "#": "a comment stands on a line of its own, above the entry",
    "=": "`==` compares",
    "?": "use `where(condition, a, b)`",
    "!": "use `not`",
    "&": "use `and`",
    "|": "use `or`",
    "\u2212": "write `-`",
    "\u00d7": "write `*`",
    "\u00b7": "write `*`",
    "\u00f7": "write `/`",
    "\u2264": "write `<=`",
    "\u2265": "write `>=`",
    "\u2260": "write `!=`",
    "\u00b2": "write `x * x`",
    "\u221a": "write `sqrt(x)`",
}


class Scope:
    """What the names of a formula mean.

    Args:
        values: the operands and attributes, as name nodes.
        functions: the spec's functions.
        what: "formula of `output`", for messages.
        hidden: names that are declared and have no value here: why, or None if their own mistake has been
            reported.
    """

    def __init__(
        self,
        values: Mapping[str, Node],
        functions: Mapping[str, Function],
        what: str,
        hidden: Mapping[str, str | None] | None = None,
    ):
        self.values = values
        self.functions = functions
        self.what = what
        self.hidden = hidden or {}
        self.used: set[str] = set()


def parse_syntax(text: Text, diagnostics: Diagnostics) -> ast.expr | None:
    """The formula as a syntax tree, or None with a diagnostic where it is no expression."""
    if len(text.value) > 10_000:
        diagnostics.error(text.place, "the formula is longer than 10000 characters")
        return None
    for offset, character in enumerate(text.value):
        if character == "#" or not character.isascii():
            message = f"`{character}` has no meaning in a formula"
            diagnostics.error(text.at(offset), message, _MEANT.get(character))
            return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.value.strip().replace("\n", " "), mode="eval").body
    except SyntaxError as error:
        _not_an_expression(text, error, diagnostics)
    except (ValueError, RecursionError, MemoryError):
        diagnostics.error(text.place, "the formula is too deep or too long", "split it with functions")
    return None


def _not_an_expression(text: Text, error: SyntaxError, diagnostics: Diagnostics) -> None:
    """Reports a syntax error in words of our own, which do not change with the version of Python."""
    value, length = text.value, 1
    offset = len(value) - len(value.lstrip()) + max((error.offset or 1) - 1, 0)
    assigned = re.search(r"(?<![<>=!])=(?!=)", value)
    if assigned and re.search("keyword argument|assignment|meant '=='", error.msg):
        offset = assigned.start()
    sign = value[offset : offset + 1]
    message, help = "", "a formula is one expression of names, numbers, operators and calls"
    if not error.offset or not sign:  # Python's ways to say that the end is too early
        offset = len(value.rstrip()) - 1
        message = "something is missing after this"
    elif "never closed" in error.msg:
        message, help = f"this `{sign}` is not closed", None
    elif "too many" in error.msg:
        message, help = "the formula is too deep or too long", "split it with functions"
    elif "forgot a comma" in error.msg:
        message, length = "a comma or an operator is missing in this", error.end_offset - error.offset
    elif "string" in error.msg:
        message = "a formula has no strings"
    elif "literal" in error.msg:
        message, help = "this is not a number", "write 2, 0.5 or 1e-3, and a product as `2 * x`"
    elif "expected 'else'" in error.msg:
        message, help = "a formula has no `a if c else b`", "use `where(c, a, b)`"
    elif sign in _MEANT or sign in "$`;\\":
        message, help = f"`{sign}` has no meaning in a formula", _MEANT.get(sign, help)
    else:
        word = re.compile(r"\w+|[<>=*/]+|.").match(value, offset).group()
        message, length = f"`{word}` is not expected here", len(word)
    diagnostics.error(text.at(offset, length), message, help)


def check_function(function: Function, functions: Collection[str], diagnostics: Diagnostics) -> None:
    """Reports names of a function's body that are neither parameters nor callable, and parameters never used."""
    tree = parse_syntax(function.body, diagnostics)
    if tree is None:
        return
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used.add(node.id)
            if node.id not in function.parameters and node.id not in functions and node.id not in INTRINSICS:
                place = function.body.at(_offset(function.body, node), len(node.id))
                known = [*function.parameters, *functions, *INTRINSICS]
                diagnostics.error(
                    place, f"`{node.id}` is neither a parameter of `{function.name}` nor a function", _meant(node.id, known)
                )
    for parameter in function.parameters:
        if parameter not in used:
            diagnostics.error(function.body.place, f"`{function.name}` never uses its parameter `{parameter}`", "remove it")


def parse(text: Text, scope: Scope, diagnostics: Diagnostics) -> Node | None:
    """The typed tree of a formula; None where it has mistakes, each of which has been reported."""
    tree = parse_syntax(text, diagnostics)
    if tree is None:
        return None
    reader = _Reader(text, scope, diagnostics)
    try:
        value = reader.value(tree)
        if _size(value, {}) > _MAX_NODES:
            message = "the formula is too long with its functions written out"
            raise reader.refuse(tree, message, "call fewer of them")
    except _Refused:
        return None
    return value


def _size(node: Node, known: dict[int, int]) -> int:
    """Nodes of the tree as it would be printed: what two places share counts twice, and is counted once."""
    if id(node) not in known:
        known[id(node)] = 1 + sum(_size(argument, known) for argument in node.args)
    return known[id(node)]


def promote(node: Node) -> Node:
    """An integer as a real, rounded once; anything else as it is."""
    if node.kind != INT:
        return node
    if node.op == "number":
        return Node("number", (), REAL, text=node.text, place=node.place)
    return Node("to_real", (node,), REAL, node.dims, place=node.place)


def _offset(text: Text, node: ast.expr) -> int:
    """Characters before a node in its scalar, which is ASCII and was parsed as one line."""
    return len(text.value) - len(text.value.lstrip()) + node.col_offset


def _meant(word: str, choices) -> str | None:
    if word in INSTEAD:
        return f"use {INSTEAD[word]}"
    near = closest(word, choices)
    return f"did you mean `{near}`?" if near else None


class _Reader:
    """Turns a syntax tree into typed nodes; every mistake is reported at its own place."""

    def __init__(
        self,
        text: Text,
        scope: Scope,
        diagnostics: Diagnostics,
        stack: tuple[str, ...] = (),
        called_at: Place | None = None,
    ):
        self.text = text
        self.scope = scope
        self.diagnostics = diagnostics
        self.stack = stack
        self.called_at = called_at  # inside of a function: the call in the row's formula
        self.nodes = 0

    def refuse(self, node: ast.expr, message: str, help: str | None = None) -> _Refused:
        if self.called_at is not None:
            call = f"line {self.called_at.line} calls `{self.stack[0]}` so"
            help = f"{help}; {call}" if help else call
        length = max(1, node.end_col_offset - node.col_offset)
        self.diagnostics.error(self.text.at(_offset(self.text, node), length), message, help)
        return _Refused()

    def value(self, node: ast.expr, depth: int = 0) -> Node:
        self.nodes += 1
        if depth > _MAX_DEPTH or self.nodes > _MAX_NODES:
            raise self.refuse(node, "the formula is too deep or too long", "split it with functions")
        for kind, (what, help) in _REFUSED_NODES.items():
            if isinstance(node, kind):
                raise self.refuse(node, f"a formula has no {what}", help)
        reader: Callable[[ast.expr, int], Node] | None = getattr(self, f"_{type(node).__name__}", None)
        if reader is None:
            raise self.refuse(
                node, "this is not part of the formula language", "use names, numbers, + - * /, comparisons and calls"
            )
        return reader(node, depth + 1)

    def place(self, node: ast.expr) -> Place:
        return self.text.at(_offset(self.text, node))

    def all(self, nodes, depth: int) -> list[Node]:
        """Every operand, so that the mistakes of all of them are reported in one run."""
        values, refused = [], None
        for node in nodes:
            try:
                values.append(self.value(node, depth))
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
            return Node("number", (), INT, bits=node.value.bit_length() + 1, text=str(node.value), place=self.place(node))
        if node.value in (float("inf"),):
            raise self.refuse(node, "the number does not fit a double")
        return Node("number", (), REAL, text=repr(node.value), place=self.place(node))

    def _Name(self, node: ast.Name, depth: int) -> Node:
        value = self.scope.values.get(node.id)
        if value is not None:
            self.scope.used.add(node.id)
            return value
        self.check_hidden(node)
        if node.id in INTRINSICS or node.id in self.scope.functions:
            raise self.refuse(node, f"`{node.id}` is a function: it needs its arguments", f"write `{node.id}(...)`")
        if self.stack:  # inside a function, unknown names have been reported at the function itself
            raise _Refused()
        raise self.refuse(
            node, f"`{node.id}` is neither an argument nor an intrinsic", _meant(node.id, self.scope.values)
        )

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
            return Node("neg", (value,), value.kind, value.dims, self.width(node, value.kind, value.bits + 1), place=self.place(node))
        raise self.refuse(node, "this operator is not part of the formula language", "use unary minus or `not`")

    def _BinOp(self, node: ast.BinOp, depth: int) -> Node:
        if type(node.op) in _REFUSED_OPERATORS:
            sign, help = _REFUSED_OPERATORS[type(node.op)]
            raise self.refuse(node, f"`{sign}` is not part of the formula language", help)
        sign = _BINARY[type(node.op)]
        left, right = self.all((node.left, node.right), depth)
        self.want_number(node.left, left, f"`{sign}`")
        self.want_number(node.right, right, f"`{sign}`")
        if sign == "/" and left.kind == right.kind == INT:
            if left.op == "number" and right.op == "number":
                left, right = promote(left), promote(right)
            else:
                raise self.refuse(
                    node, "`/` of two integers has no exact integer value", "write `to_real(a) / to_real(b)`"
                )
        left, right = self.same_kind(left, right)
        bits = left.bits + right.bits if sign == "*" else max(left.bits, right.bits) + 1
        return Node(
            sign, (left, right), left.kind, left.dims | right.dims, self.width(node, left.kind, bits), place=self.place(node)
        )

    def _Compare(self, node: ast.Compare, depth: int) -> Node:
        operands = [node.left, *node.comparators]
        values = self.all(operands, depth)
        parts = []
        for operator, left, right, at in zip(node.ops, values, values[1:], node.comparators, strict=False):
            sign = _COMPARE.get(type(operator))
            if sign is None:
                raise self.refuse(node, "only < <= > >= == != compare", None)
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
            raise self.refuse(node.func, "only intrinsics and functions can be called", "name one of them")
        name = node.func.id
        if node.keywords:
            raise self.refuse(node, f"`{name}` takes its arguments by position", None)
        if name in self.scope.functions:
            return self.expanded(self.scope.functions[name], node, depth)
        if name not in INTRINSICS:
            with suppress(_Refused):
                self.all(node.args, depth)
            self.check_hidden(node.func)
            raise self.refuse(
                node.func,
                f"`{name}` is neither an intrinsic nor a function of this spec",
                _meant(name, [*INTRINSICS, *self.scope.functions]),
            )
        intrinsic = INTRINSICS[name]
        values = self.all(node.args, depth)
        self.arity(node, name, len(intrinsic.arguments))
        return self.called(name, node, values)

    def called(self, name: str, node: ast.Call, values: list[Node]) -> Node:
        intrinsic = INTRINSICS[name]
        shared = [value for value, letter in zip(values, intrinsic.arguments, strict=True) if letter in "nx"]
        kinds = {value.kind for value in shared}
        if kinds == {REAL, INT}:
            values = [
                promote(value) if letter in "nx" else value
                for value, letter in zip(values, intrinsic.arguments, strict=True)
            ]
            kinds = {REAL}
        elif len(kinds) > 1:
            raise self.refuse(node, f"`{name}` mixes {' and '.join(sorted(_KIND_NAME[kind] for kind in kinds))}", None)
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
        bits = intrinsic.bits or max(value.bits for value in typed)
        if name == "clamp" and kind == INT:  # the bounds bound it; the value itself may be wider
            bits = max(typed[1].bits, typed[2].bits)
        dims = frozenset().union(*(value.dims for value in typed))
        return Node(name, tuple(typed), kind, dims, bits if kind == INT else 0, place=self.place(node))

    def arity(self, node: ast.Call, name: str, count: int) -> None:
        if len(node.args) != count:
            raise self.refuse(
                node, f"`{name}` takes {count} argument{'s' * (count != 1)}, got {len(node.args)}", None
            )

    def expanded(self, function: Function, node: ast.Call, depth: int) -> Node:
        if function.name in self.stack:
            message = f"with this call, `{function.name}` calls itself"
            raise self.refuse(node, message, "a formula has no recursion")
        values = self.all(node.args, depth)
        self.arity(node, function.name, len(function.parameters))
        tree = parse_syntax(function.body, Diagnostics("", ""))  # its syntax has been checked where it stands
        if tree is None:
            raise _Refused()
        scope = Scope(dict(zip(function.parameters, values, strict=True)), self.scope.functions, f"`{function.name}`")
        place = self.called_at or self.place(node)
        inner = _Reader(function.body, scope, self.diagnostics, (*self.stack, function.name), place)
        inner.nodes = self.nodes
        result = inner.value(tree, depth)
        self.nodes = inner.nodes
        return result

    def same_kind(self, left: Node, right: Node) -> tuple[Node, Node]:
        return (promote(left), promote(right)) if REAL in (left.kind, right.kind) else (left, right)

    def want(self, at: ast.expr, value: Node, kind: str, what: str) -> None:
        if value.kind != kind:
            raise self.refuse(at, f"{what} needs {_KIND_NAME[kind]}, this is {_KIND_NAME[value.kind]}", None)

    def want_number(self, at: ast.expr, value: Node, what: str) -> None:
        if value.kind == BOOL:
            raise self.refuse(at, f"{what} needs a number, this is a boolean", "use `where(condition, 1, 0)`")

    def width(self, node: ast.expr, kind: str, bits: int) -> int:
        if kind != INT:
            return 0
        if bits > 64:
            raise self.refuse(
                node, f"the integer could need {bits} bits, 64 are held exactly", "clamp it first, or use `to_real`"
            )
        return bits


def check_identifier(text: Text, what: str, diagnostics: Diagnostics) -> bool:
    """Whether a name can be an operand's, attribute's or function's in every target; reports why not."""
    if not check_spelling(text, what, diagnostics):
        return False
    if is_reserved(text.value):
        diagnostics.error(text.place, f"{what} `{text.value}` is a reserved word", "choose another name")
        return False
    return True


def check_spelling(text: Text, what: str, diagnostics: Diagnostics) -> bool:
    """Whether a text has the form of a name; reports why not."""
    word = text.value
    if IDENTIFIER.fullmatch(word) and len(word) <= 64:
        return True
    help = "use a-z, 0-9 and single _ between them, 64 at most"
    diagnostics.error(text.place, f"{what} {_quoted(word)} is not a name", help)
    return False


def is_reserved(word: str) -> bool:
    """Whether a word means something in a target."""
    return word in RESERVED or keyword.iskeyword(word)


def _quoted(word: str) -> str:
    return "`" + (word if len(word) <= 40 else word[:37] + "...") + "`"


# Words of C++ and of the generated sources that a name must not be; Python's own are in `keyword`. A name of the
# templates' own ends in _, which no operand's does.
RESERVED = frozenset(
    """alignas alignof asm auto bool case catch char class const constexpr continue default delete do double else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new noexcept nullptr operator
    private protected public register requires return short signed sizeof static struct switch template this throw true
    try typedef typeid typename union unsigned using virtual void volatile while
    and_eq bitand bitor compl not_eq or_eq xor xor_eq
    concept consteval constinit decltype co_await co_return co_yield const_cast dynamic_cast reinterpret_cast static_cast static_assert thread_local linux unix
    f64 f32 f16 bf16 e4m3 e5m2 s8 u8 s4 u4 i32 i64 self
    call dtype input_dtype np out reference shape stream""".split()
) | frozenset(
    word for row in INTRINSICS.values() for text in (row.cuda, row.numpy) for word in re.findall(r"[a-z_]\w*", text)
)
