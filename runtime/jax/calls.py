"""The function form for arrays of JAX: what `skuda.plans.functions` hands over."""

from __future__ import annotations

from collections.abc import Sequence

from skuda.errors import InvalidProblem
from skuda.jax.gradients import with_gradients
from skuda.jax.selection import select
from skuda.plans.plan import Plan


def call(
    plan_class: type[Plan], values: Sequence, attributes: Sequence, out, stream, dtypes, input_dtype, shape, keepdims
):
    """The outputs of a call, some of whose arrays JAX traces.

    Args:
        plan_class, values, attributes, input_dtype, shape, keepdims: as of `skuda.plans.functions.call`.
        out, stream: None: JAX's arrays cannot be written, and XLA says what is launched on which stream.
        dtypes: the element types that the call names, in the order of `Operation.asked`.

    Raises:
        InvalidProblem: there is an `out` or a `stream`, or a shape does not fit.
        SkudaError: what the function form raises.
    """
    for name, value, why in (("out", out, "its arrays cannot be written"), ("stream", stream, "XLA chooses streams")):
        if value is not None:
            raise InvalidProblem(f"{plan_class.__name__}: {name} is given, expected None where JAX traces: {why}")
    program, arrays = select(plan_class, values, attributes, dtypes, input_dtype, shape, keepdims)
    values = [tuple(value) if isinstance(value, list) else value for value in attributes]
    named = zip((attribute.name for attribute in plan_class.operation.attributes), values, strict=True)
    outputs = with_gradients(program, tuple(named), *arrays)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]
