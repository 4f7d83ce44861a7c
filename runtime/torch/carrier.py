"""Carries a call with tensors through torch, wherever torch has to know of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

import torch

from skuda.arrays.libraries import PLAIN, is_tracked, library_of_plain, plain_library, torch_storages
from skuda.errors import DeviceMismatch, InvalidProblem, SkudaError
from skuda.launch.prepared import Repeated
from skuda.model.descriptor import is_number
from skuda.plans import functions
from skuda.plans.functions import Call, each_of, normalized
from skuda.plans.halves import PARTS, Parts
from skuda.plans.results import made_by
from skuda.torch import broadcasting
from skuda.torch.broadcasting import expanded
from skuda.torch.described import described
from skuda.torch.halves import halves, joined
from skuda.torch.operators import operator_of


def carry(call: Call):
    """A call through torch's dispatcher; NotImplemented where nothing of torch follows it and its tensors are plain.

    Raises:
        SkudaError: arguments that do not fit, or a stream: torch's own is the one of what it follows.
    """
    if functions.tracing():
        operator = operator_of(call.plan_class)
        return operator.apply(normalized(expanded(operator, call)))
    if not follows(call.inputs, call.out, call.plan_class.operation.broadcast):
        return NotImplemented
    tensors = [value for value in (*call.inputs, *each_of(call.out)) if isinstance(value, torch.Tensor)]
    library, plain = library_of_plain(torch.Tensor), _are_plain(tensors)
    if not plain and any(type(tensor).__name__ == "DTensor" for tensor in tensors):
        import_module("skuda.torch.dtensor").shard()  # and a process without DTensor imports none of it
    name = f"skuda.{call.plan_class.operation.function}"
    if call.stream is not None:
        raise InvalidProblem(
            f"{name}: stream= is given where autograd, a transform or a mode of torch follows the call; "
            "use `with torch.cuda.stream(stream):`"
        )
    if any(tensor.is_meta for tensor in tensors) and not all(tensor.is_meta for tensor in tensors):
        on = ", ".join(str(tensor.device) for tensor in tensors)
        raise DeviceMismatch(f"{name}: tensors are on {on}, expected all on meta or none")
    operator = operator_of(call.plan_class)
    call = normalized(expanded(operator, call))
    if not torch._C._is_any_autocast_enabled():  # which makes types fit
        made_by(call, described)  # the errors of a call that nothing follows
    try:
        if plain and call.out is None and not library.watched():  # autograd alone has to know
            return record(call.plan_class, (*call.inputs, None), Repeated(call.attributes, call.options))
        return operator.apply(call)
    except (RuntimeError, TypeError, ValueError) as error:
        if not is_of_schema(error):
            raise
        with torch.no_grad():
            call.run()  # which says what is wrong with an argument
        raise InvalidProblem(f"{name}: {str(error).splitlines()[0]}") from error


def is_of_schema(error: Exception) -> bool:
    """Whether torch says that an argument is none that an operator takes."""
    return not isinstance(error, SkudaError) and str(error).startswith("skuda::")


def follows(inputs: Sequence, out: Any, broadcast: Collection[int] = ()) -> bool:
    """Whether torch has to know of a call, and an operator can take its arguments.

    Args:
        inputs, out: of the call.
        broadcast: which inputs may be numbers of any kind.
    """
    arrays, outs = [*inputs, *each_of(out)], each_of(out)
    exact = [value for at, value in enumerate(arrays) if at not in broadcast or not broadcasting.is_number(value)]
    if any(map(is_tracked, outs)) or not all(map(is_carried, exact)):
        return False  # and the full check says why
    plain = _are_plain([value for value in arrays if isinstance(value, torch.Tensor)])
    return not plain or library_of_plain(torch.Tensor).follows(arrays)


def _are_plain(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether they are torch's own, with memory: those on `meta` have shapes and types alone."""
    return all((type(tensor) in PLAIN or plain_library(type(tensor))) and not tensor.is_meta for tensor in tensors)


def is_carried(value) -> bool:
    """Whether an operator can take it: a strided tensor, a number, or no `out`."""
    if isinstance(value, torch.Tensor):
        dense = value.layout is torch.strided and not value.is_nested
        return dense and not value.is_quantized and value.dtype in torch_storages()
    return value is None or is_number(value)


def record(plan_class, values: tuple, repeated: Repeated) -> Any:
    """A call that nothing but autograd follows, recorded without torch's dispatcher."""
    operator = operator_of(plan_class)
    made = operator.gradient.function.apply(None, repeated, *values[:-1])
    return made if operator.results is None else operator.results(*made)


functions.CARRIERS["torch"] = carry
PARTS["torch"] = Parts(halves, joined, follows)
functions.tracing = torch.compiler.is_dynamo_compiling
functions.RECORDERS["torch"] = record
