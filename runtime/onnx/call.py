"""What a call means: types, axes and attributes, found by the plan that would serve it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skuda.arrays.views import View
from skuda.errors import InvalidProblem
from skuda.model.operation import Operation
from skuda.model.records import Record
from skuda.plans import functions
from skuda.plans.axis_views import AxisViewPlan
from skuda.plans.plan import Plan

if TYPE_CHECKING:
    from skuda.codegen.onnx_printer import Placing

_OPTIONS = ("dtype", "input_dtype", "shape", "keepdims", "without")


class Call(Record):
    """A call of an operation.

    Attributes:
        asked: the operation that was called.
        plan: the plan class that serves it, which may be of a form without some inputs.
        given: the names of the inputs that are there.
        placing: how the arrays lie.
    """

    asked: Operation
    plan: type[Plan]
    given: tuple[str, ...]
    placing: Placing

    @property
    def operation(self) -> Operation:
        """The operation, or its form, that is computed."""
        return self.plan.operation


def selected(plan: type[Plan], inputs: Sequence[Any], options: Mapping[str, Any]) -> Call:
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
    attributes = {each.name: options.get(each.name, each.default) for each in asked.attributes}
    outputs = {keyword for keyword in asked.asked.values() if keyword != "dtype"}
    unknown = options.keys() - attributes.keys() - {*_OPTIONS} - outputs
    if unknown:
        raise InvalidProblem(f"{name}: got {', '.join(sorted(unknown))}, which it does not take")
    if asked.optional and (None in [v for v in values if v is None] or options.get("without") is not None):
        form, kept, _ = functions._form(plan, values, options.get("without"))
        plan, values = form, list(kept((*values, None))[:-1])
    operation = plan.operation
    missing = [o.name for o, value in zip(operation.inputs, values, strict=True) if value is None]
    if missing:
        raise InvalidProblem(f"{name}: {missing[0]} is not given, expected an array, or its type and shape")
    chosen = tuple(functions._plain(_default(attributes.get(each.name, each.default))) for each in operation.attributes)
    found = _planned(plan, values, chosen, options)
    return Call(asked, plan, tuple(o.name for o in operation.inputs), _placing(found, values, options.get("shape")))


def _default(value: Any) -> Any:
    """A value as the function form passes it on: its own word for a default is None."""
    return None if isinstance(value, str) else value


def _planned(plan: type[Plan], values: list[Any], attributes: tuple, options: Mapping[str, Any]) -> Any:
    shape = functions._checked_shape(plan, options.get("shape"))
    keepdims = functions._checked_flag(plan, options.get("keepdims", False))
    keywords = list(plan.operation.asked.values())
    dtypes = (options.get("dtype"), *(options.get(each) for each in keywords if each != "dtype"))
    dtypes, input_dtype = functions._checked_words(plan, dtypes, options.get("input_dtype"))
    views = functions._values(plan, values)
    first = next((view for view in views if isinstance(view, View)), None)
    if first is None:
        raise InvalidProblem(f"{plan.operation.function}: expected an array among the inputs, got numbers only")
    return functions._plan(plan, views, first, attributes, dtypes, input_dtype, shape, keepdims)


def _placing(found: Any, values: Sequence[Any], shape: Any) -> Placing:
    """How the arrays of a call lie, as its plan says."""
    made = importlib.import_module("skuda.codegen.onnx_printer").Placing
    viewed = isinstance(found, AxisViewPlan)
    plan: Plan = found.plan if viewed else found
    operation = plan.operation
    counts = {name: len(size) if isinstance(size, tuple) else 1 for name, size in plan.sizes.items()}
    rank = sum(counts[dim.name] for dim in operation.space)
    order: Sequence[int] = range(rank)
    if viewed:
        whole = next(index for index, operand in enumerate(operation.operands) if operand.dims == operation.space)
        order = found._axis_views[whole].axes
    axes, start = {}, 0
    for dim in operation.space:
        axes[dim.name] = tuple(order[start : start + counts[dim.name]])
        start += counts[dim.name]
    ranks = {o.name: len(getattr(value, "shape", ())) for o, value in zip(operation.inputs, values, strict=True)}
    shapes = [shape for shape, _ in found.made]
    ranks |= {o.name: len(each) for o, each in zip(operation.outputs, shapes, strict=True)}
    blocks = {name: size for name, size in plan.sizes.items() if name not in counts or name not in axes}
    return made(rank, axes, ranks, plan.types, {**plan.attributes, **blocks}, shape)
