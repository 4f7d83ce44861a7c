"""Calls that create tensors: `skuda.plans.creation` hands them over where a tensor or a device of torch says where."""

from __future__ import annotations

from typing import Any

import torch

from skuda.arrays.libraries import is_tracked, library_named
from skuda.arrays.views import CPU
from skuda.errors import InvalidProblem, shown
from skuda.plans import creation, functions
from skuda.plans.functions import Call, each_of, normalized
from skuda.torch.carrier import is_carried, is_of_schema
from skuda.torch.operators import operator_of, ordinal


def carry(call: Call, device: Any):
    """What a call creates on a device.

    Raises:
        SkudaError: arguments that do not fit; a device that torch does not know.
    """
    name = f"skuda.{call.plan_class.operation.function}"
    operator = operator_of(call.plan_class)
    if functions.tracing():
        if device is None:
            raise InvalidProblem(f"{name}: torch.compile traces it, expected like= or device= to say where it creates")
        return operator.apply(normalized(call), device)
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        expected = 'a torch.device, its text such as "cuda", or the ordinal of a GPU'
        raise InvalidProblem(f"{name}: device is {shown(device)}, expected {expected}") from error
    library = library_named("torch")
    values = [*call.inputs, *each_of(call.out)]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if not all(map(is_carried, values)):
        return creation.made(call, library, CPU)  # which says what is wrong with one
    if not any(map(is_tracked, each_of(call.out))) and (place.type not in ("cpu", "cuda") or library.follows(tensors)):
        if call.stream is not None:
            raise InvalidProblem(f"{name}: stream= is given where torch follows the call; use `with torch.cuda.stream`")
        try:
            return operator.apply(normalized(call), place)
        except (RuntimeError, TypeError, ValueError) as error:
            if is_of_schema(error):
                raise InvalidProblem(f"{name}: {str(error).splitlines()[0]}") from error
            raise
    return creation.made(call, library, ordinal(place))


creation.CREATORS["torch"] = carry
