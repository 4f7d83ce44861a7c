"""How much there is in the catalogs, by category: `skuda list --summary`, and the page of operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from skuda.model.operation import Operation

HEADS = ("CATEGORY", "ROWS", "KINDS", "PLANS", "TYPES", "KERNELS")
EXPLANATION = (
    "ROWS: rows of the table. KINDS: the same, counting rows that differ only in granularity once. PLANS: one for each "
    "direction of a row. TYPES: choices of element types. KERNELS: what `skuda list --skus` lists."
)


def summary(rows: Sequence[Sequence[Operation]], kernels: Mapping[int, Sequence]) -> list[tuple[str, ...]]:
    """A line for each category and one for all.

    Args:
        rows: the operations of each row, the forward one first.
        kernels: those of each operation, by its id.
    """
    categories: dict[str, list[Sequence[Operation]]] = {}
    for row in rows:
        categories.setdefault(row[0].category, []).append(row)
    return [_line(name, of_name, kernels) for name, of_name in (*categories.items(), ("all", rows))]


def _line(name: str, rows: Sequence[Sequence[Operation]], kernels: Mapping[int, Sequence]) -> tuple[str, ...]:
    kinds = {re.sub(r"_per_[a-z]+", "", row[0].name) for row in rows}
    plans = [operation for row in rows for operation in row if operation.name == row[0].name]
    plans = {operation.function for operation in plans if operation.is_whole}
    types = sum(len(row[0].combinations) for row in rows)
    made = sum(len(kernels[id(operation)]) for row in rows for operation in row)
    return (name, *map(str, (len(rows), len(kinds), len(plans), types, made)))
