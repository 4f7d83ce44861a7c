"""Inputs of several shapes, and numbers in their place, as views of one shape: `Operation.broadcast` says which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skuda.arrays.libraries import CPU, library_of
from skuda.arrays.views import View, broadcast_to, view_of
from skuda.errors import InvalidProblem, NotAnArray
from skuda.model.descriptor import as_element
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation
from skuda.model.shapes import broadcast_shape
from skuda.plans.axis_views import AxisViewPlan
from skuda.plans.plan import Plan


def shape_of_all(operation: Operation, shapes: Sequence[tuple | None], name: str) -> tuple:
    """The shape that inputs broadcast to.

    Args:
        operation: whose inputs.
        shapes: of each input; None of a number, or of what does not broadcast. Extents may be symbols.
        name: what an error calls the plan.

    Raises:
        InvalidProblem: two shapes do not fit each other.
        NotAnArray: all are numbers.
    """
    names = {index: operation.inputs[index].name for index in operation.broadcast}
    known = [(each, shapes[index]) for index, each in names.items() if shapes[index] is not None]
    if not known:
        raise NotAnArray(f"{name}: expected an array among {' and '.join(names.values())}, got numbers only")
    found = broadcast_shape([shape for _, shape in known])
    if found is None:
        for index, (other, shape) in enumerate(known):
            for first, wanted in known[:index]:
                if broadcast_shape([wanted, shape]) is None:
                    raise InvalidProblem(
                        f"{name}: {other} has shape {shape}, expected one that broadcasts with {first}'s {wanted}"
                    )
    return found


def broadcast(operation: Operation, views: Sequence, name: str) -> list:
    """The inputs, those that broadcast as views of one shape; numbers stay numbers.

    Args and errors: as of `shape_of_all`; `views` are the inputs as views and numbers.
    """
    found = list(views)
    shape = shape_of_all(operation, [getattr(view, "shape", None) for view in views], name)
    for index in operation.broadcast:
        if isinstance(views[index], View):
            found[index] = broadcast_to(views[index], shape)
    return found


def with_elements(plan: Plan | AxisViewPlan, views: Sequence, first: View, stream) -> list:
    """The inputs that `broadcast` made, with views of an element in place of numbers that broadcast.

    Args:
        plan: that serves the call: it says each element's type.
        first: the first array: elements lie on its device, in an array of its library.
        stream: what the call launches on, as `Plan.run` takes it.

    Raises:
        SkudaError: a number that its type does not hold.
    """
    of_operands = plan.plan if isinstance(plan, AxisViewPlan) else plan
    operation, found = of_operands.operation, list(views)
    shape = next(views[index].shape for index in operation.broadcast if isinstance(views[index], View))
    for index in operation.broadcast:
        if not isinstance(views[index], View):
            called = f"{of_operands.name}: {operation.inputs[index].name}"
            element = element_of(views[index], of_operands.words[index], called)
            if first.device != CPU:
                element = library_of(first.owner).element(element, first.device, of_operands.stream_of(first, stream))
            view = view_of(element, called)
            view.storage = DTYPES[of_operands.words[index]].storage
            found[index] = broadcast_to(view, shape)
    return found


def element_of(value, word: str, called: str) -> np.ndarray:
    """A number as an array without axes of some element type; raises what `as_element` does."""
    return np.array(as_element(value, word, called), DTYPES[word].storage)
