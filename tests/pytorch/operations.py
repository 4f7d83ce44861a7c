"""For each operation a call with tensors, made from its declaration: small, and the same each time."""

from __future__ import annotations

from functools import cache

import torch
from domains import bounds, domain

from skuda.arrays.libraries import torch_dtypes
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, packed_shape
from skuda.plans.functions import Call
from skuda.plans.plan import Plan

MANY = ((2, 3), (5,))  # of the first `*name` and of those after it
SINGLE, BLOCK = 6, 3


@cache
def plans() -> dict[str, type[Plan]]:
    """The plan of each operation, both directions and forms, by its function's name."""
    catalog = registry.catalogs()[0]
    found = [plan for name in catalog.modules for plan in catalog.plans(name) if plan.operation.is_whole]
    return {plan.operation.function: plan for plan in found}


def of_tensors() -> dict[str, type[Plan]]:
    """Those of operations that take tensors."""
    return {name: plan for name, plan in plans().items() if not plan.operation.creates}


def sizes_of(operation) -> dict:
    """An extent for each dimension, and a length for each kind of block."""
    many = iter((*MANY, *MANY))
    sizes = {dim.name: next(many) if dim.many else SINGLE for dim in operation.dims}
    return sizes | {attribute.name: BLOCK for attribute in operation.attributes if attribute.type == "size"}


def attribute_values(operation, sizes) -> tuple:
    """Of each attribute: what places the axes so that the arrays have `sizes`, a bound, else its default."""
    found = []
    for attribute in operation.attributes:
        value = bounds(operation).get(attribute.name)
        if attribute.type == "size":
            value = BLOCK
        elif attribute.names_axes:
            space = next(o.dims for o in operation.operands if any(d.name == attribute.axis_of for d in o.dims))
            before = sum(
                len(sizes[dim.name]) if dim.many else 1
                for dim in space[: [dim.name for dim in space].index(attribute.axis_of)]
            )
            value = before
            if attribute.type == "axes":
                value = tuple(range(before, before + len(sizes[attribute.axis_of])))
        found.append(value)
    return tuple(found)


def draw(generator, operation, operand, word: str, sizes) -> torch.Tensor:
    """Elements of an input: scales are positive, codes and zero points small, labels those of classes."""
    dtype = torch_dtypes()[DTYPES[word].storage]
    stored = packed_shape(operation.shape_of(operand, sizes), word)
    if DTYPES[word].kind != "float":
        classes = operation.classes(operand, sizes)
        low, high = (0, classes or 16) if classes or dtype == torch.uint8 else (-5, 6)
        return torch.randint(low, high, stored, generator=generator, dtype=torch.int64).to(dtype)
    values = torch.randn(stored, generator=generator, dtype=torch.float64)
    if operand.name in ("scale", "weight"):
        values = values.abs() + 0.5
    ends = domain(operation.row, operand.name)
    if ends is not None:
        values = ends[0] + (ends[1] - ends[0]) * torch.rand(stored, generator=generator, dtype=torch.float64)
    return values.to(dtype)


def call_of(plan_class: type[Plan], wide: bool = False, seed: int = 0) -> Call:
    """A call of an operation with tensors on the CPU.

    Args:
        wide: whether floats are f64.
    """
    operation = plan_class.operation
    generator = torch.Generator().manual_seed(seed)
    wanted = "f64" if wide else "f32"
    fitting = [types for types in operation.combinations if types[COMPUTE] == wanted]
    fitting = fitting or [operation.combinations[0]]  # of integers alone there is no such
    # For f64 as many operands as there are: a result of fewer bits has no slope that differences show.
    types = max(fitting, key=lambda types: [*types.values()].count(wanted)) if wide else fitting[0]
    sizes = sizes_of(operation)
    inputs = [
        draw(generator, operation, operand, operation.word(operand, types), sizes)
        for operand in operation.inputs
    ]
    asked = tuple(types[letter] for letter in operation.asked) or (None,)
    shape = None if operation.shaped is None else operation.shape_of(operation.shaped, sizes)
    attributes = attribute_values(operation, sizes)
    return Call(plan_class, tuple(inputs), None, attributes, None, asked, None, shape, False)


def same(left, right) -> bool:
    """Whether two results have the same types, shapes and bits."""
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if left is None or right is None:
        return left is right
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (left, right)))
