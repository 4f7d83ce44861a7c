"""What a call means: types, axes and attributes, found as the function form finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skuda.arrays.views import View, view_of
from skuda.errors import InvalidProblem
from skuda.frameworks.placing import Placing, placing
from skuda.model.descriptor import is_element
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operand, Operation
from skuda.model.records import Record
from skuda.model.sku import Direction
from skuda.plans import functions
from skuda.plans.halves import split
from skuda.plans.plan import Plan


class Meaning(Record):
    """A call of an operation.

    Attributes:
        asked: the operation that was called.
        plan: the plan class that serves it, which may be of a form without some inputs.
        given: the names of the inputs that are there.
        halves: of two inputs that come as one array, the one that is its first half, under whose name it comes, and
            the other one; else empty.
        placing: how the arrays lie.
    """

    asked: Operation
    plan: type[Plan]
    given: tuple[str, ...]
    placing: Placing
    halves: tuple[str, ...] = ()

    @property
    def operation(self) -> Operation:
        """The operation, or its form, that is computed."""
        return self.plan.operation

    @property
    def joins(self) -> bool:
        """Whether it makes the gradient of an array that holds two inputs."""
        return bool(self.halves) and self.operation.direction is Direction.BACKWARD

    def storage(self, operand: Operand) -> np.dtype:
        """The NumPy type of an operand's elements."""
        return DTYPES[self.operation.word(operand, self.placing.words)].storage


def meaning(plan: type[Plan], inputs: Sequence[Any], options: Mapping[str, Any]) -> Meaning:
    """What a call means.

    Args:
        plan: of the operation.
        inputs: arrays or numbers; None for one that is left out; those after the last that is given may be missing.
        options: attributes and options by name.

    Raises:
        InvalidProblem, Unsupported: as the function form would refuse the call.
    """
    asked = plan.operation
    name = asked.function
    if len(inputs) > len(asked.inputs):
        raise InvalidProblem(f"{name}: got {len(inputs)} inputs, expected {len(asked.inputs)} at most")
    values = [*inputs, *[None] * (len(asked.inputs) - len(inputs))]
    known = {*(each.name for each in asked.attributes), *asked.options, *(("without",) if asked.forms else ())}
    known |= {asked.choice.name} if asked.choice else set()
    if unknown := options.keys() - known:
        raise InvalidProblem(f"{name}: got {', '.join(sorted(unknown))}, which it does not take")
    without = options.get("without")
    if asked.choice is not None:
        plan = functions.chosen(plan, options.get(asked.choice.name))
    if asked.optional and (any(value is None for value in values) or without is not None):
        plan, kept, _ = functions.form_of(plan, functions._first_left_out(plan, values, without))
        values = [values[each] for each in kept]
    operation = plan.operation
    halves = _in_one(operation, values)
    for operand, value in zip(operation.inputs, values, strict=True):
        if value is None:
            raise InvalidProblem(f"{name}: {operand.name} is not given, expected an array, or its type and shape")
    chosen = tuple(_default(options.get(each.name, each.default)) for each in operation.attributes)
    dtypes = tuple(options.get(each) for each in operation.asked.values()) or (None,)
    call = functions.Call(
        plan, tuple(values), None, chosen, None, dtypes, options.get("input_dtype"), options.get("shape"),
        options.get("keepdims", False),
    )  # fmt: skip
    given = tuple(operand.name for operand in operation.inputs if operand.name not in halves[1:])
    return Meaning(asked, plan, given, placing(call, _described), halves)


def _in_one(operation: Operation, values: list) -> tuple[str, ...]:
    """`Meaning.halves` of inputs, which become views of both halves.

    Raises:
        InvalidProblem: the array has no halves.
    """
    places = {each.name: place for place, each in enumerate(operation.inputs) if each.name in operation.halves}
    halves = sorted(places, key=lambda name: values[places[name]] is None)
    first, second = (places[name] for name in halves) if halves else (0, 0)
    if not halves or values[first] is None or values[second] is not None:
        return ()
    values[first], values[second] = split(values[first], None, operation.function, halves[0], operation)
    return tuple(halves)


def _default(value: Any) -> Any:
    """A value as the function form passes it on, where a row's own word for a default is None."""
    return None if isinstance(value, str) else value


def _described(value: Any, name: str) -> View | int | float:
    return value if isinstance(value, View) or is_element(value) else view_of(value, name)
