"""Gradients of operators: as the rows of the table declare them, and an error where none is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C import (
    _after_autograd_keyset,
    _any_requires_grad,
    _are_functorch_transforms_active,
    _AutoDispatchBelowAutograd,
)

from skuda.errors import InvalidProblem, Unsupported

if TYPE_CHECKING:
    from skuda.torch.operators import Operator

# What autograd itself makes of a function on one level: an operator's kernel runs below torch.func, which has
# unwrapped that level's tensors already.
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.function import _SingleLevelFunction

_GRADIENT = "d_"  # before the name of what an operand is the gradient of
_DIFFERENTIABLE = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))


def kernel(operator: Operator, numbers: bool, out: bool) -> Callable:
    """What runs at the Autograd key of an operator: it records the gradient, and goes on below."""
    if out:

        def refuse(keyset, *values):
            if torch.is_grad_enabled() and _any_requires_grad(*values):
                raise InvalidProblem(
                    f"skuda.{operator.operation.function}: out= records no gradient, but an array requires grad; "
                    "call it without out=, or under torch.no_grad()"
                )
            with _AutoDispatchBelowAutograd():
                return operator.overloads[numbers, True].redispatch(keyset & _after_autograd_keyset, *values)

        return refuse

    function = _function_of(operator)

    def record(keyset, *values):
        transformed = _are_functorch_transforms_active()

        def below(*inner):
            # What autograd calls records nothing; an outer transform of torch.func has to.
            with _AutoDispatchBelowAutograd(), torch.set_grad_enabled(transformed or torch.is_grad_enabled()):
                return operator.overloads[numbers, False].redispatch(keyset & _after_autograd_keyset, *inner)

        with enable_single_level_autograd_function():
            return function.apply(below, *operator.filled(values))

    return record


def _function_of(operator: Operator) -> type[_SingleLevelFunction]:
    """The autograd function of an operator. It takes what computes the outputs, then the operator's arguments."""

    def forward(ctx, compute, *values):
        made = compute(*values)
        outputs = made if isinstance(made, tuple) else (made,)
        fixed = [output for output in outputs if output.dtype not in _DIFFERENTIABLE]
        ctx.mark_non_differentiable(*fixed)
        save(ctx, operator, values, outputs)
        return made

    def backward(ctx, *gradients):
        return (None, *gradients_of(ctx, operator, gradients))

    name = f"Skuda{operator.operation.class_name}"
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (_SingleLevelFunction,), {**methods, "__doc__": f"{operator.operation.function}, recorded."})


def save(ctx, operator: Operator, values: tuple, outputs: tuple) -> None:
    """Keeps what the gradient's formulas name, and no more."""
    call = operator.call_of(values)
    operands = {operand.name: value for operand, value in zip(operator.operation.inputs, call.inputs, strict=True)}
    operands |= {operand.name: value for operand, value in zip(operator.operation.outputs, outputs, strict=True)}
    named = _read_by(operator.backward)
    tensors = {name: value for name, value in operands.items() if name in named and isinstance(value, torch.Tensor)}
    ctx.kept = tuple(tensors)
    ctx.save_for_backward(*tensors.values())
    ctx.numbers = {name: operands[name] for name in named if name in operands and name not in tensors}
    ctx.said = {attribute.name: value for attribute, value in zip(operator.operation.attributes, call.attributes)}
    ctx.said |= operator.options_of(call)
    ctx.shapes = {name: value.shape for name, value in operands.items() if isinstance(value, torch.Tensor)}


def _read_by(backward: Operator | None) -> list[str]:
    """The operands of a forward pass that a backward pass reads."""
    if backward is None:
        return []
    return [operand.name for operand in backward.operation.inputs if not operand.name.startswith(_GRADIENT)]


def gradients_of(ctx, operator: Operator, gradients: tuple) -> tuple:
    """The gradients of an operator's arguments, None where there is nothing to differentiate.

    Raises:
        Unsupported: one is wanted that no row declares.
    """
    operation, backward = operator.operation, operator.backward
    made = {} if backward is None else {operand.name: None for operand in backward.operation.outputs}
    wanted = dict(zip((argument.name for argument in operator.arguments), ctx.needs_input_grad[1:], strict=True))
    missing = [name for name, needed in wanted.items() if needed and _GRADIENT + name not in made]
    if missing:
        raise Unsupported(_undeclared(operator, missing))
    operands = dict(zip(ctx.kept, ctx.saved_tensors, strict=True)) | ctx.numbers
    operands |= {
        _GRADIENT + operand.name: gradient for operand, gradient in zip(operation.outputs, gradients, strict=True)
    }
    said = ctx.said
    if (shaped := backward.operation.shaped) is not None:  # its dimensions are those of an input of the forward pass
        said = said | {"shape": tuple(ctx.shapes[shaped.name.removeprefix(_GRADIENT)])}
    outputs = backward.apply(backward.call_by_name({**said, **operands}))
    made = dict(zip(made, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))
    found: list[Any] = []
    for argument in operator.arguments:
        gradient = made.get(_GRADIENT + argument.name) if wanted[argument.name] else None
        if gradient is not None and gradient.shape != ctx.shapes[argument.name]:
            gradient = gradient.reshape(ctx.shapes[argument.name])  # one value, as the caller gave it
        found.append(gradient)
    return tuple(found)


def _undeclared(operator: Operator, missing: list[str]) -> str:
    name = f"skuda.{operator.operation.function}"
    if operator.operation.direction.value == "backward":
        return f"{name}: the gradient of a gradient is not declared; call backward without create_graph"
    names = ", ".join(missing)
    return f"{name}: no gradient is declared for {names}; give {names} detached, or without requires_grad"
