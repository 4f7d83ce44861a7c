"""The formulas of a generated catalog, read back from its NumPy references: what each function call came to.

`skuda show` explains an operation of any catalog that can be imported; its spec need not be there.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping

from skuda.codegen.intrinsics import INTRINSICS

# NumPy's name of an intrinsic -> its name in formulas.
_NAMES = {
    match[1]: name
    for name, row in INTRINSICS.items()
    if (match := re.match(r"([\w.]+)\(", row.numpy)) is not None
}


def expanded(reference) -> dict[str, str]:
    """Each output's formula with the spec's functions written out, as a row would spell it.

    Args:
        reference: a function of a generated reference module.
    """
    return {name: ast.unparse(node) for name, node in _nodes(reference).items()}


def rules(reference) -> dict[str, str]:
    """What the intrinsics of its formulas do with NaN, ties and limits, by name, in the table's order."""
    called = {
        call.func.id
        for node in _nodes(reference).values()
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    }
    return {name: row.rule for name, row in INTRINSICS.items() if name in called and row.rule}


def _nodes(reference) -> Mapping[str, ast.expr]:
    function = ast.parse(inspect.getsource(reference)).body[0]
    returned = function.body[-1].value
    return {
        key.value: _AsWritten().visit(value)
        for key, value in zip(returned.keys, returned.values, strict=True)
    }


class _AsWritten(ast.NodeTransformer):
    """From NumPy's spelling to that of formulas."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        if name == "C":
            return self.visit(node.args[0])
        node = self.generic_visit(node)
        arguments = [
            argument for argument in node.args if not (isinstance(argument, ast.Name) and argument.id == "C")
        ]
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
