"""The function form for arrays of JAX: what `skuda.plans.functions` hands over."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp

from skuda.errors import InvalidProblem
from skuda.jax.gradients import with_gradients
from skuda.jax.selection import select
from skuda.plans.creation import CREATORS
from skuda.plans.functions import CARRIERS, Call
from skuda.plans.halves import PARTS, Parts


def carry(call: Call):
    """The outputs of a call, some of whose arrays JAX traces.

    Raises:
        InvalidProblem: there is an `out` or a `stream`, or a shape does not fit.
        SkudaError: what the function form raises.
    """
    plan_class = call.plan_class
    for name, why in (("out", "its arrays cannot be written"), ("stream", "XLA chooses streams")):
        if getattr(call, name) is not None:
            raise InvalidProblem(f"{plan_class.__name__}: {name} is given, expected None where JAX traces: {why}")
    asked = call.dtypes, call.input_dtype, call.shape, call.keepdims
    program, arrays = select(plan_class, call.inputs, call.attributes, *asked)
    values = [tuple(value) if isinstance(value, list) else value for value in call.attributes]
    named = zip((attribute.name for attribute in plan_class.operation.attributes), values, strict=True)
    outputs = with_gradients(program, tuple(named), *arrays)
    return plan_class.results_type(*outputs) if len(outputs) > 1 else outputs[0]


def create(call: Call, device):
    """What a call creates beside an array of JAX, or of a number that JAX traces.

    Args:
        call: the call.
        device: of the array; none while JAX traces it.
    """
    with jax.default_device(device) if isinstance(device, jax.Device) else nullcontext():
        return carry(call)


CARRIERS["jax"] = carry
CREATORS["jax"] = create
PARTS["jax"] = Parts(
    split=lambda whole: jnp.split(whole, 2, axis=-1),
    join=lambda first, second: jnp.concatenate((first, second), -1),
    follows=lambda inputs, out: True,
)
