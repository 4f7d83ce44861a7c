"""torch's own gradients: autograd's backward pass of the function that serves the forward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch

from skuda.bench.problem import WEIGHT, Problem
from skuda.bench.suite import Case, Placed
from skuda.bench.tensors import dtype_of
from skuda.bench.torch_functions import Finder, Operands, is_captured, prepared
from skuda.model.dtypes import DTYPES

_GRADIENT = "d_"  # before the name of what a gradient is of

_WAITING = ("prod", "cumprod")  # torch asks the GPU whether there are zeros

# What a backward pass reads of the forward pass that torch's function does not return, of the input and the other axes.
_KEPT = {"mean": torch.mean, "variance": partial(torch.var, correction=0)}


def forward_of(case: Case) -> Case:
    """The row of the forward pass, of the same shape."""
    name = case.plan_class.__name__.removesuffix("BackwardPlan")
    plan_class = getattr(sys.modules[case.plan_class.__module__], f"{name}Plan")
    return Case(plan_class, case.types, case.shape, case.attributes)


def call_of(problem: Problem, tensors: Operands, find: Finder) -> Callable[[], object] | None:
    """The call of a backward pass; None where torch has no forward pass, or no gradient for each of the row's.

    What the row reads of the forward pass is made that of torch's. A graph can capture the call: the forward pass
    has run before on the stream that is current, where autograd then works too.
    """
    case = problem.case
    forward = forward_of(case)
    function = find(forward)
    if function is None or case.operation.row in _WAITING and is_captured(case, tensors):
        return None
    inputs = {placed.operand.name: placed for placed in forward.operands if placed.operand in forward.operation.inputs}
    outputs = [operand.name for operand in forward.operation.outputs]
    device = next(each.device for each in tensors.values() if isinstance(each, torch.Tensor))
    of = {name: tensors[name] if name in tensors else _made(placed, device) for name, placed in inputs.items()}
    passes: dict[int, tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]] = {}

    def recorded() -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
        """The results by name, and the inputs that the row takes gradients of: autograd keeps the stream on which one
        is first used, so each pass has its own."""
        own = {**tensors, **of}
        wanted = [_leaf(own, operand.name.removeprefix(_GRADIENT)) for operand in case.operation.outputs]
        results = function(prepared(forward, own))
        return dict(zip(outputs, results if isinstance(results, tuple) else (results,), strict=True)), wanted

    def of_stream() -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        stream = _stream(device)
        if stream not in passes:
            results, wanted = recorded()
            passes[stream] = *_derived(results, tensors), wanted
        return passes[stream]

    def call() -> tuple[torch.Tensor, ...]:
        derived, given, wanted = of_stream()
        found = torch.autograd.grad(derived, wanted, given, retain_graph=True)
        return tuple(_written(each, given) for each in found)

    if not all(_is_differentiable(each) for each in of_stream()[0]):
        return None
    _agree(problem, tensors, of, lambda: recorded()[0])
    return call


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream().cuda_stream if device.type == "cuda" else 0


def _is_differentiable(result: torch.Tensor) -> bool:
    return result.requires_grad and not result.grad_fn.name().endswith("NotImplemented")


def _made(placed: Placed, device: torch.device) -> torch.Tensor | float | int:
    """An input that the backward pass does not read: random."""
    dtype = dtype_of(placed.word)
    if placed.operand.scalar:
        return WEIGHT if DTYPES[placed.word].kind == "float" else 0
    empty = torch.empty_strided(placed.shape, placed.strides, dtype=dtype, device=device)
    return empty.normal_() if dtype.is_floating_point else empty.random_(0, 2)


def _leaf(of: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The input of that name, over the same memory, whose gradient is recorded from now on."""
    of[name] = of[name].detach().requires_grad_()
    return of[name]


def _derived(results: dict[str, torch.Tensor], tensors: Operands) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results of which the row takes gradients, and these."""
    found = [(y, tensors[_GRADIENT + name]) for name, y in results.items() if _GRADIENT + name in tensors]
    given = [g.reshape(y.shape) if isinstance(g, torch.Tensor) else torch.full_like(y, g) for y, g in found]
    return [y for y, _ in found], given


def _written(gradient: torch.Tensor, given: list[torch.Tensor]) -> torch.Tensor:
    """What autograd hands on as it came, or as a view of that, written out, as the row does."""
    memory = gradient.untyped_storage().data_ptr()
    return gradient.clone() if any(each.untyped_storage().data_ptr() == memory for each in given) else gradient


def _agree(problem: Problem, tensors: Operands, of: Operands, recorded: Callable[[], dict[str, torch.Tensor]]) -> None:
    """Gives the row the results of the forward pass that it reads, and runs it on these."""
    made = {operand.name for operand in forward_of(problem.case).operation.outputs}
    read = [operand.name for operand in problem.case.operation.inputs if operand.name in made]
    if not read:
        return
    results = recorded()
    for name in read:
        row, result = tensors[name], results[name]
        if result is None:
            result = _KEPT[name](of["input"].to(row.dtype), problem.case.reduced)
        row.copy_(result.detach().reshape(row.shape))
    problem.run()
