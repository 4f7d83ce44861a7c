"""Formulas of the catalog's operations, for those who call one in a formula."""

from __future__ import annotations

import re

from skuda.codegen.diagnostics import Diagnostics
from skuda.codegen.library import operations_text
from skuda.codegen.yaml_tree import Mapping, Text, read


def formula_of(name: str) -> str | None:
    """The formula of an operation of the catalog, if it has one output and no names of its own; None of others."""
    row = re.search(rf"^  {re.escape(name)}:\n(?:(?:    .*)?\n)+", operations_text(), re.MULTILINE)
    tree = read(row[0], Diagnostics("ops.yaml", row[0])) if row is not None else None
    fields = _entries(tree.entries[0][1]) if tree is not None else {}
    outputs = [*_entries(fields.get("outputs")).values()]
    if len(outputs) != 1 or "let" in fields or not isinstance(outputs[0], Text):
        return None
    return " ".join(outputs[0].value.partition(" = ")[2].split()) or None


def _entries(node: object) -> dict[str, object]:
    """The entries of a mapping; none of what is no mapping, where the table has a mistake."""
    return {key.value: value for key, value in node.entries} if isinstance(node, Mapping) else {}
