"""Which operations lack a hand-written oracle: the functions under `@oracle` of tests/oracles, read, not run.

That an oracle is there says nothing of what it gives: tests/conformance/test_every_operation.py runs each of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from skuda.codegen.diagnostics import closest
from skuda.codegen.program import Row
from skuda.errors import SpecError

# Tables of definitions by name, of which a file of that folder makes oracles, and what stands behind each name.
TABLES = {"FORWARD": "", "BACKWARD": "_backward"}


def complaints(folder: Path, rows: Sequence[Row]) -> list[str]:
    """The operations without an oracle, and the oracles without an operation.

    An oracle has the name of an operation, or the part of it before `_per_...` where several granularities share it;
    that of a backward pass has `_backward` after it; one that is derived by default needs none. What a row is without
    an optional input has the row's oracle, or one of its own.

    Args:
        folder: tests/oracles.
        rows: the operations.

    Raises:
        SpecError: a file there is not Python.
    """
    oracles = dict(_oracles(folder))
    every = {function: _shared(function) for row in rows for function in _functions(row)}
    wanted = {function: names for function, names in every.items() if function not in _by_default(rows)}
    forms = [function for row in rows for form in row.every[1:] for function in _functions(form)]
    found = []
    named = {name for function in (*every, *forms) for name in _shared(function)}
    for name, path in oracles.items():
        if name not in named:
            near = closest(name, named)
            found.append(f"{path}: `{name}` is no operation" + (f"; did you mean `{near}`?" if near else ""))
    for function, names in wanted.items():
        if not oracles.keys() & set(names):
            either = " or ".join(f"`{name}`" for name in dict.fromkeys(names))
            found.append(f"`{function}` has no oracle: write {either} under @oracle in {folder}, by hand")
    return found


def _functions(row: Row) -> list[str]:
    """The functions of a row, forward and backward."""
    return [row.name, *([f"{row.name}_backward"] if row.backward is not None else [])]


def _by_default(rows: Sequence[Row]) -> set[str]:
    """The gradients that nobody wrote: they follow from formulas that have oracles."""
    return {f"{row.name}_backward" for row in rows if row.by_default}


def _shared(function: str) -> tuple[str, str]:
    """The names that an oracle of a function may have: its own, and the one that granularities share."""
    return function, re.sub(r"_per_[a-z]+(?=_without_|_as_|_backward$|$)", "", function)


def _oracles(folder: Path) -> Iterator[tuple[str, Path]]:
    """The functions under `@oracle` or `@oracle(...)`, and the keys of tables of oracles, with their files."""
    for path in sorted(folder.glob("*.py")):
        try:
            body = ast.parse(path.read_text(encoding="utf-8"), str(path)).body
        except (SyntaxError, ValueError) as error:
            raise SpecError(f"{path}: expected a file of Python, but: {error}") from None
        for node in body:
            if isinstance(node, ast.FunctionDef):
                yield from ((_name(node, each), path) for each in node.decorator_list if _is_oracle(each))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
                ending = TABLES.get(getattr(node.target, "id", ""))
                keys = (each.value for each in node.value.keys if isinstance(each, ast.Constant))
                yield from ((f"{key}{ending}", path) for key in keys if ending is not None)


def _name(function: ast.FunctionDef, decorator: ast.expr) -> str:
    """The name of the operation: that of the function, unless `@oracle(name=...)` says another one."""
    given = decorator.keywords if isinstance(decorator, ast.Call) else []
    named = [each.value.value for each in given if each.arg == "name" and isinstance(each.value, ast.Constant)]
    return named[0] if named else function.name


def _is_oracle(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "oracle"
