"""Formulas as syntax trees: what `ast` reads of a text, and in our own words why it reads nothing."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection

from skuda.codegen.diagnostics import Diagnostics, suggestion
from skuda.codegen.intrinsics import ABSENT, CONSTANTS, CONVERSIONS, INSTEAD, INTRINSICS
from skuda.codegen.nodes import CHOOSE, POSITION, SMALLEST, Function
from skuda.codegen.reductions import COUNT, REDUCTION_NAMES, SCAN_NAMES
from skuda.codegen.yaml_tree import Text

# What an author may mean by a character that no formula has.
_MEANT = {
    "#": "a comment stands on a line of its own, above the entry",
    "=": "`==` compares",
    "<>": "`!=` compares",
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
# Syntax of Python's that no formula has, and what to write instead.
REFUSED_OPERATORS: dict[type, tuple[str, str]] = {
    ast.Pow: ("**", "use `pow(a, b)`, or `x * x` for a square"),
    ast.Mod: ("%", "use `fmod(a, b)` (sign of the dividend) or `remainder(a, b)` (sign of the divisor)"),
    ast.FloorDiv: ("//", "use `floor(a / b)`"),
    ast.MatMult: ("@", "matrix products are no formula of elements"),
    ast.BitAnd: ("&", "use `and`"),
    ast.BitOr: ("|", "use `or`"),
    ast.BitXor: ("^", "use `pow(a, b)` for a power, `(a or b) and not (a and b)` for exclusive or"),
    ast.LShift: ("<<", "multiply by a power of two"),
    ast.RShift: (">>", "use `floor(a / 4)` for two bits"),
}
# The same for two integers.
OF_INTEGERS: dict[type, str] = {ast.Pow: "use `i * i`, or `pow(to_real(a), to_real(b))`"}
LIBRARIES = ("np", "numpy", "math", "torch", "cupy", "cp", "jnp", "F", "tl", "scipy", "special")
REFUSED_NODES: dict[type, tuple[str, str]] = {  # completes "a formula has no ..."
    ast.Attribute: ("attributes (`a.b`)", "a formula only has names, numbers, operators and calls"),
    ast.Subscript: (
        "subscripts (`a[i]`)",
        "an operand stands for its element; name its dimensions where it is declared",
    ),
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
    over = re.search(r"\bover\s*=(?!=)", value)
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
    elif over is not None and "positional argument follows" in error.msg:
        offset = over.start()
        message, length = "an argument comes after this one, which is the last", 4
        help = "write `over=(n, d)` for both dimensions"
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
        message, length, help = f"`{word}` is not expected here", len(word), _MEANT.get(word, help)
    diagnostics.error(text.at(offset, length), message, help)


def check_function(
    function: Function, functions: Collection[str], broken: Collection[str], diagnostics: Diagnostics
) -> None:
    """Reports names in a function's body that mean nothing there, and parameters never used."""
    tree = parse_syntax(function.body, diagnostics)
    if tree is None:
        return
    used = set()
    words = (*INTRINSICS, *CONVERSIONS, *CONSTANTS, *REDUCTION_NAMES, *SCAN_NAMES, COUNT, SMALLEST, POSITION)
    known = [*function.parameters, *functions, *broken, *words]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used.add(node.id)
            if node.id not in known:
                place = function.body.at(offset_of(function.body, node), len(node.id))
                message = f"`{node.id}` is neither a parameter of `{function.name}` nor a function"
                diagnostics.error(place, message, meant(node.id, known))
    for parameter in function.parameters:
        if parameter not in used:
            message = f"`{function.name}` never uses its parameter `{parameter}`"
            diagnostics.error(function.body.place, message, "remove it")


def offset_of(text: Text, node: ast.expr) -> int:
    """Characters before a node in its scalar, which is ASCII and was parsed as one line."""
    return len(text.value) - len(text.value.lstrip()) + node.col_offset


def said_by(text: str, choice: tuple) -> str:
    """A formula's text with the formula of the word that is read in place of each `choose(...)`.

    Args:
        text: of a formula without mistakes, on one line.
        choice: as a Scope has it.
    """
    calls = ast.walk(ast.parse(text, mode="eval")) if choice and CHOOSE in text else ()
    for node in calls:  # outer ones come first
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == CHOOSE:
            value = next(keyword.value for keyword in node.keywords if keyword.arg == choice[2])
            own = text[value.col_offset : value.end_col_offset]
            whole = node.end_col_offset - node.col_offset == len(text.strip())
            own = own if whole or isinstance(value, (ast.Name, ast.Call, ast.Constant)) else f"({own})"
            return said_by(text[: node.col_offset] + own + text[node.end_col_offset :], choice)
    return text


def meant(word: str, choices: Collection[str]) -> str | None:
    """What an author may have meant by a name that nothing has, as a help text."""
    if word in ABSENT or word in INSTEAD:
        return ABSENT.get(word) or f"use {INSTEAD[word]}"
    return suggestion(word, choices)
