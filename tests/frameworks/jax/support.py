"""Drawn calls as functions of JAX arrays."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation
from skuda.plans.functions import call

from ..drawn_calls import NARROW, DrawnCall, draw, plans, types_of

PLANS = plans()


def function(drawn: DrawnCall, **changed):
    """The call as a function of its inputs; gives a tuple. `changed` are fields of the call."""
    attributes = tuple((changed.get("attributes") or drawn.attributes).values())
    options = changed.get("options") or drawn.options

    def run(*arrays):
        found = call(drawn.plan_class, (*arrays, None), attributes, None, **options)
        return tuple(found) if isinstance(found, tuple) else (found,)  # a plain one: specs are matched by type

    return run


def one_call(plan) -> DrawnCall:
    """A call of a plan class, whose element types differ from plan to plan: floats where T may be these."""
    choices = types_of(plan.operation)
    if any(map(plan.operation.is_mixed, plan.operation.types)):
        choices = [types for types in choices if DTYPES[types["T"]].kind == "float"] or choices
    return draw(plan, choices[len(plan.operation.function) % len(choices)])


def takes_64_bits(operation: Operation) -> bool:
    """Whether an input has elements that JAX has only with jax_enable_x64, in every choice of types."""
    choices = types_of(operation)
    return all(any(operation.word(each, types) in NARROW for each in operation.inputs) for types in choices)


def wide_for(request):
    """A context in which JAX has integers of 64 bits where a test's plan takes them whatever its types are, such as a
    seed."""
    called = getattr(request.node, "callspec", None)
    plan = called and called.params.get("plan")
    return jax.enable_x64(plan is not None and takes_64_bits(plan.operation))


def expected(outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """NumPy's results with the elements that JAX has: without jax_enable_x64 no integers of 64 bits."""
    return [np.asarray(each, jax.dtypes.canonicalize_dtype(each.dtype)) for each in outputs]


def differentiable(word: str) -> bool:
    return DTYPES[word].kind == "float" and DTYPES[word].bits > 8
