"""What skuda's own catalog says, as it is installed: the functions that every spec may call, and formulas."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from skuda.codegen.diagnostics import Diagnostics
from skuda.codegen.yaml_tree import read


@cache
def _parts() -> tuple[str, str]:
    """What stands above the operations in skuda's ops.yaml, its lines where they are there, and the operations."""
    text = (resources.files("skuda.codegen") / "ops.yaml").read_text(encoding="utf-8")
    return tuple(re.split(r"^ops:", text, maxsplit=1, flags=re.MULTILINE))


def functions_text() -> str:
    """What stands above the operations in skuda's ops.yaml."""
    return _parts()[0]


def formula_of(name: str) -> str | None:
    """The formula of an operation of the catalog, if it has one output and no names of its own; None of others."""
    row = re.search(rf"^  {re.escape(name)}:\n(?:(?:    .*)?\n)+", _parts()[1], re.MULTILINE)
    tree = read(row[0], Diagnostics("ops.yaml", row[0])) if row is not None else None
    fields = {key.value: value for key, value in tree.entries[0][1].entries} if tree is not None else {}
    outputs = fields["outputs"].entries if "outputs" in fields and "let" not in fields else ()
    return " ".join(outputs[0][1].value.partition(" = ")[2].split()) or None if len(outputs) == 1 else None
