"""Carries a call with tensors through torch, wherever torch has to know of it."""

from __future__ import annotations

import torch

from skuda.arrays.libraries import PLAIN, library_of_plain, plain_library
from skuda.errors import InvalidProblem
from skuda.plans import functions
from skuda.plans.functions import Call, normalized
from skuda.torch.operators import operator_of


def carry(call: Call):
    """A call through torch's dispatcher; NotImplemented where nothing of torch follows it and its tensors are plain."""
    if functions.tracing():
        return operator_of(call.plan_class).apply(normalized(call))
    arrays = [*call.inputs, *(call.out if isinstance(call.out, (tuple, list)) else (call.out,))]
    tensors = [value for value in arrays if isinstance(value, torch.Tensor)]
    if all(type(tensor) in PLAIN or plain_library(type(tensor)) for tensor in tensors):
        if not library_of_plain(torch.Tensor).follows(arrays):
            return NotImplemented
    if call.stream is not None:
        name = f"skuda.{call.plan_class.operation.function}"
        raise InvalidProblem(
            f"{name}: stream= is given where autograd, a transform or a mode of torch follows the call; "
            "use `with torch.cuda.stream(stream):`"
        )
    return operator_of(call.plan_class).apply(normalized(call))


functions.CARRIERS["torch"] = carry
functions.tracing = torch.compiler.is_dynamo_compiling
