"""Every operation of the catalog and every gradient under jit, grad and vmap: the bits that NumPy arrays give."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from skuda.errors import Unsupported
from skuda.model.dtypes import DTYPES
from skuda.model.sku import Direction

from ..drawn_calls import NARROW, draw, same_bits, types_of
from .support import PLANS, differentiable, expected, function, one_call

every = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
forward = pytest.mark.parametrize(
    "plan",
    [plan for plan in PLANS if plan.operation.direction is Direction.FORWARD],
    ids=lambda plan: plan.operation.function,
)
SIZE = 3  # of a batch


@every
def test_jit_gives_what_arrays_give(plan):
    for types in types_of(plan.operation):
        drawn = draw(plan, types)
        outputs = jax.jit(function(drawn))(*drawn.inputs.values())
        for actual, each in zip(outputs, expected(drawn.run()), strict=True):
            assert same_bits(actual, each), types


@pytest.mark.turns(2)
@every
def test_jit_gives_what_arrays_give_in_64_bits(plan):
    """In the element types that JAX has with jax_enable_x64 alone."""
    choices, own = types_of(plan.operation, without=()), plan.operation.types.keys()  # C may be i64 where T is not
    with jax.enable_x64(True):
        for word in NARROW:
            for types in [types for types in choices if word in {types[letter] for letter in own}][:1]:
                drawn = draw(plan, types)
                outputs = jax.jit(function(drawn))(*drawn.inputs.values())
                for actual, each in zip(outputs, drawn.run(), strict=True):
                    assert same_bits(actual, each), types


def backward_of(plan):
    """The plan class of the declared gradients; None where there are none."""
    function = f"{plan.operation.function}_backward"
    return next((each for each in PLANS if each.operation.function == function), None)


def declared(drawn) -> set[str]:
    """The inputs that have a declared gradient, where an output has one too; codes have none."""
    if not differentiates(drawn):
        return set()
    gradients = backward_of(drawn.plan_class).operation.gradients
    made = {name.removeprefix("d_") for name, index in gradients.items() if index is not None}
    return {name for name in made if differentiable(drawn.words[name])}


def differentiates(drawn) -> bool:
    """Whether there are declared gradients of an output that has one."""
    words = [drawn.words[output.name] for output in drawn.operation.outputs]
    return backward_of(drawn.plan_class) is not None and any(map(differentiable, words))


@forward
def test_gradients_are_those_that_are_declared(plan):
    drawn = one_call(plan)
    known = declared(drawn)
    if not differentiates(drawn):
        return refuses_or_is_constant(plan)
    if not known:  # of codes alone
        return
    names = [name for name in drawn.inputs if name in known]

    backward = backward_of(plan)
    read = {operand.name for operand in backward.operation.inputs}
    kept = [f"d_{o.name}" in read for o in plan.operation.outputs]  # what no gradient reads is no part of a loss

    def loss_of(*arrays):
        inputs = drawn.inputs | dict(zip(names, arrays, strict=True))
        made = function(drawn)(*inputs.values())
        return tuple(each if of_loss else jax.lax.stop_gradient(each) for each, of_loss in zip(made, kept))

    outputs, pull = jax.vjp(jax.jit(loss_of), *(jnp.asarray(drawn.inputs[name]) for name in names))
    rng = np.random.default_rng(3)
    cotangents = tuple(
        np.asarray(rng.normal(0, 1, each.shape), np.float32).astype(each.dtype)
        if jnp.issubdtype(each.dtype, jnp.floating)
        else np.zeros(each.shape, jax.dtypes.float0)
        for each in outputs
    )
    found = pull(cotangents)
    values = drawn.inputs | dict(zip((o.name for o in plan.operation.outputs), map(np.asarray, outputs), strict=True))
    values |= {f"d_{o.name}": each for o, each in zip(plan.operation.outputs, cotangents, strict=True)}
    gradient = draw(backward, drawn.types)
    inputs = {name: values[name] for name in gradient.inputs}
    attributes = {name: drawn.attributes.get(name, value) for name, value in gradient.attributes.items()}
    made = gradient.run(inputs, attributes=attributes)
    given = backward.operation.gradients.items()
    wanted = {name.removeprefix("d_"): made[index] for name, index in given if index is not None}
    for name, actual in zip(names, found, strict=True):
        assert same_bits(actual, wanted[name]), name


def refuses_or_is_constant(plan):
    """Without a declared gradient: codes have none, anything else is refused."""
    drawn = one_call(plan)
    floats = [name for name, word in drawn.words.items() if name in drawn.inputs and differentiable(word)]

    def total(array):
        outputs = function(drawn)(*(drawn.inputs | {floats[0]: array}).values())
        return sum(each.astype(jnp.float32).sum() for each in outputs)

    if not floats:
        return
    array = jnp.asarray(drawn.inputs[floats[0]])
    if any(differentiable(drawn.words[output.name]) for output in plan.operation.outputs):
        with pytest.raises(Unsupported, match=plan.operation.function):
            jax.grad(total)(array)
    else:
        assert not jax.grad(total)(array).any()


@forward
def test_an_input_without_a_gradient_is_refused(plan):
    drawn = one_call(plan)
    known = declared(drawn)
    for name in drawn.inputs:
        is_float = DTYPES[drawn.words[name]].kind == "float"
        if not is_float or name in known or not differentiates(drawn):
            continue
        if f"d_{name}" in backward_of(plan).operation.gradients:  # constant
            continue

        def total(array, name=name):
            outputs = function(drawn)(*(drawn.inputs | {name: array}).values())
            return sum(each.astype(jnp.float32).sum() for each in outputs)

        with pytest.raises(Unsupported, match=f"no gradient for {name}"):
            jax.grad(total)(jnp.asarray(drawn.inputs[name]))
        stopped = jax.grad(lambda array, total=total: total(jax.lax.stop_gradient(array)))
        assert not stopped(jnp.asarray(drawn.inputs[name])).any()


@pytest.mark.turns(2)
@every
def test_vmap_gives_what_a_loop_gives(plan):
    drawn = one_call(plan)
    names = list(drawn.inputs)
    batches = [set(names), *({name} for name in names if len(names) > 1)] if names else []
    for batched in batches:
        stacked = {
            name: np.stack([np.roll(array.reshape(-1), entry).reshape(array.shape) for entry in range(SIZE)], -1)
            for name, array in drawn.inputs.items()
            if name in batched
        }
        axes = tuple(-1 if name in batched else None for name in names)
        inputs = drawn.inputs | stacked
        outputs = jax.jit(jax.vmap(function(drawn), in_axes=axes))(*inputs.values())
        each = [drawn.run({name: array[..., entry] for name, array in stacked.items()}) for entry in range(SIZE)]
        for position, output in enumerate(outputs):
            wanted = expected([np.stack([entry[position] for entry in each])])[0]
            assert same_bits(of_one_nan(output), of_one_nan(wanted)), (batched, position)


def of_one_nan(array) -> np.ndarray:
    """The elements with the same bits for each NaN: on a CPU, XLA joins arrays of bf16 by way of f32."""
    array = np.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return array
    return np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
