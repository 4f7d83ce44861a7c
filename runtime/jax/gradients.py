"""Gradients of calls: the operations that the rows declare, in reverse mode."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import jax

from skuda.jax.primitives import call, differentiable, varying_alike
from skuda.jax.program import Program
from skuda.jax.selection import select
from skuda.jax.undeclared import constant, without_gradient
from skuda.model.sku import Direction
from skuda.plans.plan import Plan

GRADIENT = "d_"  # before the name of an operand whose gradient it is


def backward_of(plan_class: type[Plan]) -> type[Plan] | None:
    """The plan class of the gradients of a forward pass; None where none are declared."""
    operation = plan_class.operation
    if operation.direction is Direction.BACKWARD:
        return None
    return getattr(sys.modules[plan_class.__module__], f"{operation.class_name}BackwardPlan", None)


def with_gradients(program: Program, attributes: tuple[tuple[str, Any], ...], *arrays) -> list:
    """The outputs of a call, whose gradients are those that its row declares.

    Args:
        program: of the call.
        attributes: those of the call, by name.
        arrays: the inputs.
    """
    operation, backward = program.operation, backward_of(program.plan_class)
    words = dict(zip((o.name for o in operation.operands), program.plan.words, strict=True))
    if backward is None or not any(differentiable(words[output.name]) for output in operation.outputs):
        return call(program, *arrays)
    # The gradient of codes is that of nothing which JAX could differentiate.
    made, needed = backward.operation.gradients, _names(backward.operation.inputs)
    given = [name for name in (each.removeprefix(GRADIENT) for each in made) if differentiable(words[name])]
    called, known = f"skuda.{operation.function}", ", ".join(given) or "no input"
    stop = "jax.lax.stop_gradient makes an input a constant"
    guarded = [
        array if GRADIENT + o.name in made and differentiable(words[o.name])
        else constant(array, f"{called} has no gradient for {o.name} ({words[o.name]}), but for {known}; {stop}")
        for o, array in zip(operation.inputs, varying_alike(arrays), strict=True)
    ]  # fmt: skip
    outputs = _differentiable(program, attributes)(*guarded)
    return [
        each if GRADIENT + name in needed or not differentiable(words[name])
        else without_gradient(each, f"{called} has no declared gradient of its output {name}; {stop}")
        for name, each in zip(_names(operation.outputs), outputs, strict=True)
    ]  # fmt: skip


def _names(operands) -> list[str]:
    return [operand.name for operand in operands]


def backward_call(
    program: Program, backward: type[Plan], attributes: tuple[tuple[str, Any], ...], values: dict[str, Any]
) -> tuple:
    """The program of a call's gradients, and its inputs.

    Args:
        program: of the call.
        backward: the plan class of its gradients.
        attributes: those of the call, by name; others of the gradients have their defaults.
        values: the inputs of the gradients by name.
    """
    operation, forward, types = backward.operation, program.operation, program.plan.types
    given = dict(attributes)
    chosen = [
        given.get(each.name, each.default if isinstance(each.default, (int, float)) else None)
        for each in operation.attributes
    ]
    shape = None
    if operation.shaped is not None:
        shape = program.shapes[_names(forward.inputs).index(operation.shaped.name.removeprefix(GRADIENT))]
    selected, arrays = select(
        backward,
        [values[operand.name] for operand in operation.inputs],
        chosen,
        tuple(types.get(letter) for letter in operation.asked),
        types.get(operation.told),
        shape,
    )
    return selected, *arrays


@lru_cache(4096)
def _differentiable(program: Program, attributes: tuple[tuple[str, Any], ...]):
    """The function of a call's arrays, with its gradients."""
    operation, backward = program.operation, backward_of(program.plan_class)
    inputs, outputs = _names(operation.inputs), _names(operation.outputs)
    needed, made = _names(backward.operation.inputs), backward.operation.gradients

    @jax.custom_vjp
    def run(*arrays):
        return tuple(call(program, *arrays))

    def forward(*arrays):
        found = tuple(call(program, *arrays))
        known = dict(zip(inputs, arrays, strict=True)) | dict(zip(outputs, found, strict=True))
        return found, {name: known[name] for name in needed if name in known}

    def reverse(kept, gradients):
        given = {GRADIENT + name: gradient for name, gradient in zip(outputs, gradients, strict=True)}
        found = call(*backward_call(program, backward, attributes, kept | given))
        by_name = {name: None if index is None else found[index] for name, index in made.items()}
        parts = zip(inputs, program.plan.words, program.shapes, program.storages)
        return tuple(
            by_name[GRADIENT + name].reshape(shape).astype(element)
            if by_name.get(GRADIENT + name) is not None and differentiable(word) else None
            for name, word, shape, element in parts
        )  # fmt: skip

    run.defvjp(forward, reverse)
    return run
