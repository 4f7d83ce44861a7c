"""Which operations have a hand-written oracle: `COVERED` of tests/oracles/__init__.py, read, not run."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from skuda.codegen.diagnostics import closest
from skuda.codegen.program import Row
from skuda.errors import SpecError


def complaints(folder: Path, rows: Sequence[Row]) -> list[str]:
    """What is wrong with the coverage of a spec.

    `COVERED` maps "module.function" to the operations whose oracle that function is. A row with a backward
    pass needs "module.function_backward" beside it.

    Args:
        folder: tests/oracles.
        rows: the operations.

    Raises:
        SpecError: there is no such table in the folder.
    """
    path = folder / "__init__.py"
    table = _covered(path)
    found = []
    by_name = {row.name: row for row in rows}
    covering = {name: oracle for oracle, names in table.items() for name in names}
    for oracle, names in table.items():
        module, _, function = oracle.partition(".")
        defined = _functions(folder / f"{module}.py")
        wanted = [function]
        if any(name in by_name and by_name[name].backward is not None for name in names):
            wanted.append(f"{function}_backward")
        found += [f"{path}: {module}.py has no function `{name}`" for name in wanted if name not in defined]
        for name in names:
            if name not in by_name:
                near = closest(name, by_name)
                found.append(
                    f"{path}: `{name}` is no operation" + (f"; did you mean `{near}`?" if near else "")
                )
    for name in by_name:
        if name not in covering:
            found.append(
                f"`{name}` has no oracle: write one in {folder}, by hand, and name it in COVERED ({path})"
            )
    return found


def _covered(path: Path) -> dict[str, tuple[str, ...]]:
    for node in _body(path):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if any(isinstance(target, ast.Name) and target.id == "COVERED" for target in targets):
            return ast.literal_eval(node.value)
    raise SpecError(f"{path} has no table COVERED: it maps oracles to the operations that they cover")


def _functions(path: Path) -> set[str]:
    return {node.name for node in _body(path) if isinstance(node, ast.FunctionDef)}


def _body(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text(encoding="utf-8"), str(path)).body if path.exists() else []
