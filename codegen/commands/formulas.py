"""The formulas of a generated catalog, read back from its NumPy references: what each function call came to.

`skuda show` explains an operation of any catalog that can be imported; its spec need not be there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from textwrap import dedent

from skuda.codegen.intrinsics import INTRINSICS
from skuda.codegen.reductions import REDUCTIONS, SCAN_NAMES

# NumPy's name of an intrinsic -> its name in formulas.
_NAMES = {
    match[1]: name
    for name, row in INTRINSICS.items()
    if (match := re.match(r"([\w.]+)\(", row.numpy)) is not None
}


def expanded(reference, over: str = "") -> dict[str, str]:
    """Each output's formula with the spec's functions written out, as a row would spell it.

    Args:
        reference: the `formula` of a generated plan.
        over: what its reductions are over.
    """
    return {name: ast.unparse(node) for name, node in _nodes(reference, over).items()}


def rules(reference) -> dict[str, str]:
    """What the intrinsics and the reductions (`max over`) of its formulas do with NaN, ties and limits, by name, in the
    tables' order.
    """
    called = {
        " ".join([call.func.id, *[keyword.arg for keyword in call.keywords[1:]], *[k.arg for k in call.keywords[:1]]])
        for node in _nodes(reference).values()
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    table = {name: row.rule for name, row in INTRINSICS.items()}
    table |= {row.heading: row.rule for row in REDUCTIONS.values()}
    return {name: rule for name, rule in table.items() if name in called and rule}


def _nodes(reference, over: str = "") -> Mapping[str, ast.expr]:
    """The formulas: what is computed on the way stands where it is used, unless it is an output."""
    function = ast.parse(dedent(inspect.getsource(reference))).body[0]
    *steps, returned = [line for line in function.body if not isinstance(line, ast.ImportFrom)]
    outputs = {key.value: value for key, value in zip(returned.value.keys, returned.value.values, strict=True)}
    writer = _AsWritten(over)
    written = {}
    for step in steps:
        name, value = step.targets[0].id, writer.visit(step.value)
        if name in outputs:
            written[name] = value
        else:
            writer.known[name] = value
    return {name: written.get(name) or writer.visit(value) for name, value in outputs.items()}


def _is_of_types(argument: ast.expr) -> bool:
    """Whether NumPy's function is told a type that no row spells: the compute type, or what is precise enough."""
    return ast.unparse(argument) == "C" or isinstance(argument, ast.Call) and ast.unparse(argument.func) == "row.word"


class _AsWritten(ast.NodeTransformer):
    """From NumPy's spelling to that of formulas.

    Args:
        over: what reductions are over.
    """

    def __init__(self, over: str):
        self.over = f"({over})" if "," in over else over
        self.known: dict[str, ast.expr] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.known.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if ast.unparse(node) == "row.count":
            return ast.Call(ast.Name("count"), [], [ast.keyword("over", ast.Name(self.over))])
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if name == "C":
            return self.visit(node.args[0])
        if name == "row.stored":
            return self.visit(node.args[0])
        if name.startswith("row."):
            name = name.removeprefix("row.")
            over = ast.keyword("along" if name in SCAN_NAMES else "over", ast.Name(self.over))
            of = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else node.args
            return ast.Call(ast.Name(name), [*map(self.visit, of)], [over, *node.keywords])
        arguments = [self.visit(each) for each in node.args if not _is_of_types(each)]
        return ast.Call(ast.Name(_NAMES.get(name, name)), arguments, [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        node = self.generic_visit(node)
        if isinstance(node.op, (ast.BitAnd, ast.BitOr)):
            return ast.BoolOp(
                ast.And() if isinstance(node.op, ast.BitAnd) else ast.Or(), [node.left, node.right]
            )
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node = self.generic_visit(node)
        return ast.UnaryOp(ast.Not(), node.operand) if isinstance(node.op, ast.Invert) else node
