"""A call of every operation of a catalog, as NumPy arrays: what the tests of all frameworks run.

Nothing here lists operations: shapes, element types and attributes follow from the declarations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

import numpy as np
from domains import bounds, domain

from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation, packed_shape
from skuda.plans.functions import call
from skuda.plans.plan import Plan

MANY, SINGLE, BLOCK = (4, 6), 8, 4  # extents: even, so that they split over two devices
NARROW = ("f64", "i64")  # types that JAX has only with jax_enable_x64


@dataclass(frozen=True)
class DrawnCall:
    """One call in the function form.

    Attributes:
        plan_class: what is called.
        types: words by type letter.
        sizes: of dimensions and blocks.
        inputs: arrays by name, in call order.
        attributes: all of them, by name, in call order.
        options: keywords beside them: dtype, output_dtypes, input_dtype, shape.
    """

    plan_class: type[Plan]
    types: dict[str, str]
    sizes: dict[str, Any]
    inputs: dict[str, Any]
    attributes: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def operation(self) -> Operation:
        return self.plan_class.operation

    @property
    def words(self) -> dict[str, str]:
        """The element type of each operand."""
        return {operand.name: self.operation.word(operand, self.types) for operand in self.operation.operands}

    def run(self, inputs=None, **changed) -> tuple[np.ndarray, ...]:
        """The outputs; `changed` are fields of this call."""
        other = replace(self, **({"inputs": {**self.inputs, **inputs}} if inputs else {}), **changed)
        values = (*other.inputs.values(), None)
        found = call(self.plan_class, values, tuple(other.attributes.values()), None, **other.options)
        return found if isinstance(found, tuple) else (found,)


def plans(package: str = "skuda.generated") -> list[type[Plan]]:
    """A plan class for each operation, form and direction of a catalog; none of stages."""
    registry.catalogs()
    catalog = registry._CATALOGS[package]
    every = [plan for name in catalog.modules for plan in catalog.plans(name) if plan.operation.is_whole]
    return list({plan.__name__: plan for plan in every}.values())


def types_of(operation: Operation, without: tuple[str, ...] = NARROW) -> list[dict[str, str]]:
    """Few choices of types in which each letter has each of its types."""
    own = operation.types.keys()  # C may be i64 where T is not
    choices = [types for types in operation.combinations if not {types[letter] for letter in own} & {*without}]
    chosen, missing = [], {each for types in choices for each in types.items()}
    while missing:
        chosen.append(max(choices, key=lambda types: len(missing.intersection(types.items()))))
        missing.difference_update(chosen[-1].items())
    return chosen


def draw(plan_class: type[Plan], types: dict[str, str], many=MANY, single=SINGLE, block=BLOCK) -> DrawnCall:
    """A call with usual values: what is float is positive where others share it, and so may be a scale.

    Args:
        plan_class: of the operation.
        types: words by type letter.
        many: extents of the first `*name`, of which others have the last.
        single: extent of other dimensions.
        block: length of blocks.
    """
    operation = plan_class.operation
    rng = np.random.default_rng(crc32(repr((operation.function, sorted(types.items()), many, single)).encode()))
    sizes = sizes_of(operation, many, single, block)
    inputs = {o.name: _elements(rng, operation, o, types, sizes) for o in operation.inputs}
    attributes = {}
    for attribute in operation.attributes:
        if attribute.names_axes:
            attributes[attribute.name] = _axis(operation, attribute, sizes)
        else:
            default = attribute.default if isinstance(attribute.default, (int, float)) else None
            attributes[attribute.name] = {**sizes, **bounds(operation)}.get(attribute.name, default)
    return DrawnCall(plan_class, dict(types), sizes, inputs, attributes, _options(operation, types, sizes))


def sizes_of(operation: Operation, many=MANY, single=SINGLE, block=BLOCK) -> dict[str, Any]:
    """The sizes of dimensions and blocks, as `draw` has them."""
    sizes: dict[str, Any] = {}
    for dim in operation.dims:
        sizes[dim.name] = (many if not sizes else many[-1:]) if dim.many else single
    return sizes | {attribute.name: block for attribute in operation.attributes if attribute.type == "size"}


def _options(operation: Operation, types, sizes) -> dict[str, Any]:
    letters = list(operation.asked)
    options: dict[str, Any] = {}
    if letters:
        options["dtype"] = types[letters[0]]
        options["output_dtypes"] = tuple(types[letter] for letter in letters[1:])
    if operation.told is not None:
        options["input_dtype"] = types[operation.told]
    packed = (o for o in operation.inputs if o.dims == operation.space and DTYPES[operation.word(o, types)].packed)
    if (said := operation.shaped or next(packed, None)) is not None:
        options["shape"] = operation.shape_of(said, sizes)
    return options


def _axis(operation: Operation, attribute, sizes):
    """The axes that a dimension of the space is."""
    position = 0
    for dim in operation.space:
        count = len(sizes[dim.name]) if dim.many else 1
        if dim.name == attribute.axis_of:
            axes = tuple(range(position, position + count))
            return axes[0] if attribute.type == "axis" else axes
        position += count
    raise AssertionError(attribute)


def _elements(rng, operation: Operation, operand, types, sizes) -> np.ndarray:
    word = operation.word(operand, types)
    dtype, shape = DTYPES[word], operation.shape_of(operand, sizes)
    stored = packed_shape(shape, word)
    if dtype.kind == "bool":
        return np.asarray(rng.random(stored) < 0.5)
    if dtype.kind == "int":
        if classes := operation.classes(operand, sizes):
            return np.asarray(rng.integers(-1, classes, stored)).astype(dtype.storage)
        low, high = (0, 255) if dtype.packed else (max(dtype.lowest, -20), min(dtype.highest, 20))
        return np.asarray(rng.integers(low, high + 1, stored)).astype(dtype.storage)
    shared = operand.dims != operation.space
    values = rng.uniform(0.05, 1.5, stored) if shared else rng.normal(0, 2, stored)
    ends = domain(operation.row, operand.name)
    values = values if ends is None else rng.uniform(*ends, stored)
    return np.asarray(values, np.float32).astype(dtype.storage)


def same_bits(actual, expected) -> bool:
    """Whether two arrays have the same element type, shape and bits."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return False
    return np.ascontiguousarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()
