"""Rows that nobody chose: operations, element types and shapes drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skuda.bench import shapes, suite
from skuda.bench.shapes import Layout, Shape
from skuda.bench.suite import Case
from skuda.launch.registry import Catalog
from skuda.model.operation import Operation

_WIDTHS = 6, 18  # as powers of two: 64 to 262144 elements
_ELEMENTS = 12, 26.5  # likewise, of a tensor; both are drawn so that each power of two is as likely
_ROUND = 8  # every other width is a multiple of as many


def cases(
    catalog: Catalog, count: int, seed: int, operations: Sequence[str] = (), elements: Sequence[str] = ()
) -> list[Case]:
    """As many rows of a run; the same ones of a catalog for the same seed.

    A layout, and what else differs between rows, is that of a row of the suite; extents are drawn.

    Args:
        catalog: what to measure.
        count: how many rows.
        seed: of what is drawn.
        operations: names of operations (both directions) or of functions, `*` allowed; all if empty.
        elements: float types; those of models' rows if empty.

    Raises:
        InvalidProblem: a name matches no operation, or no operation has an element type.
    """
    random, found = Random(seed), []
    plans = [
        (plan, fitting)
        for plan in suite.plans_of(catalog, operations, elements)
        if (fitting := _types(plan.operation, elements or shapes.MODEL_ELEMENTS)) and _templates(plan.operation)
    ]
    while plans and len(found) < count:
        plan, types = random.choice(plans)
        shape, attributes = random.choice(_templates(plan.operation))
        extents = _extents(random, max(len(shape.extents), 2), shape.layout is Layout.HEADS)
        case = Case(plan, random.choice(types), Shape(shapes.fitted(extents, plan.operation), shape.layout), attributes)
        if case not in found:
            found.append(case)
    return found


def _types(operation: Operation, words: Sequence[str]) -> list[dict[str, str]]:
    return [types for types in suite.types_of(operation) if types[next(iter(operation.types))] in words]


def _templates(operation: Operation) -> list[tuple[Shape, dict[str, int]]]:
    """Rows of the suite that extents are drawn for."""
    if operation.reduces:
        return [*shapes.reducing(operation)]
    axes = sum(not dim.many for dim in operation.space)
    return [
        (shape, attributes)
        for shape in shapes.of_maps(operation)
        if len(shape.extents) == max(axes, 2) or shape.layout is Layout.HEADS
        for attributes in suite.attributes_of(operation, shape, True)
    ]


def _extents(random: Random, axes: int, heads: bool) -> tuple[int, ...]:
    width = round(2 ** random.uniform(*_WIDTHS))
    if random.random() < 0.5:
        width = -(-width // _ROUND) * _ROUND
    rows = max(1, round(2 ** random.uniform(*_ELEMENTS)) // width)
    if heads:
        batch, many = (min(rows, random.randint(1, most)) for most in (8, 64))
        return batch, many, -(-rows // (batch * many)), width
    return (rows, *(1 for _ in range(axes - 2)), width)
