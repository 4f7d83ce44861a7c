"""Every operation on arrays that lie on several devices: the same bits as on one, and no communication where none is
needed, which the compiled program shows."""

from __future__ import annotations

import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import skuda
from skuda.frameworks.batching import leading
from skuda.frameworks.sharding import rule

from ..drawn_calls import same_bits
from ..test_sharding import axes_of
from .support import PLANS, expected, function, one_call

COLLECTIVES = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
every = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)


def mesh(*shape: int, kind=AxisType.Auto):
    names = ("a", "b")[: len(shape)]
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape), devices=jax.devices()[: int(np.prod(shape))])


def placed(array, over, *spec):
    return jax.device_put(array, NamedSharding(over, PartitionSpec(*spec)))


def collectives(call, *arrays) -> set[str]:
    """The kinds of communication in a compiled program."""
    return set(re.findall(COLLECTIVES, jax.jit(call).lower(*arrays).compile().as_text()))


def split(drawn, axes, key, over) -> list:
    """The inputs, those that have a factor split along it."""
    return [
        placed(array, over, *["a" if factor is not None and factor.key == key else None for factor in axes[name]])
        for name, array in drawn.inputs.items()
    ]


@pytest.mark.turns(2)
@every
def test_sharded_is_unsharded(plan):
    drawn, over = one_call(plan), mesh(2)
    axes, whole = axes_of(drawn), expected(drawn.run())
    keys = dict.fromkeys(f.key for o in plan.operation.inputs for f in axes[o.name] if f is not None)
    for key in keys:
        found = rule(plan.operation, axes, key, drawn.sizes)
        size = drawn.sizes[key[0]]
        extent = size[key[1]] if isinstance(size, tuple) else size
        if any(f.key == key and extent // f.unit % 2 for own in axes.values() for f in own if f is not None):
            continue  # no even parts, which JAX wants of what it is given
        arrays = split(drawn, axes, key, over)
        for actual, each in zip(jax.jit(function(drawn))(*arrays), whole, strict=True):
            assert same_bits(actual, each), key
        used = collectives(function(drawn), *arrays)
        if found.splits and not found.partial and extent % (2 * found.multiple) == 0:
            assert not used, key
        elif found.partial and found.partial[0] in ("max", "min", "any", "all"):
            assert used == {"all-reduce"}, key
        else:
            assert used, key


@pytest.mark.turns(2)
@every
def test_shard_map_runs_each_part(plan):
    drawn, over = one_call(plan), mesh(2)
    operation, axes = plan.operation, axes_of(drawn)
    lead = leading(operation)
    if lead is None or not rule(operation, axes, (lead, 0), drawn.sizes).splits:
        return shard_map_of_copies(drawn, over)
    specs = {
        name: PartitionSpec(*["a" if factor is not None and factor.key == (lead, 0) else None for factor in own])
        for name, own in axes.items()
    }
    if "shape" in drawn.options:
        first, *rest = drawn.options["shape"]
        local = function(drawn, options={**drawn.options, "shape": (first // 2, *rest)})
    else:
        local = function(drawn)
    inputs = tuple(specs[operand.name] for operand in operation.inputs)
    outputs = tuple(specs[operand.name] for operand in operation.outputs)
    run = jax.jit(jax.shard_map(local, mesh=over, in_specs=inputs, out_specs=outputs))
    for actual, each in zip(run(*drawn.inputs.values()), expected(drawn.run()), strict=True):
        assert same_bits(actual, each)
    assert not collectives(run, *(placed(a, over, *s) for a, s in zip(drawn.inputs.values(), inputs, strict=True)))


def shard_map_of_copies(drawn, over):
    """Where no array can be split, each device has all of them."""
    everywhere = PartitionSpec()
    run = jax.shard_map(function(drawn), mesh=over, in_specs=everywhere, out_specs=everywhere)
    for actual, each in zip(jax.jit(run)(*drawn.inputs.values()), expected(drawn.run()), strict=True):
        assert same_bits(actual, each)


VALUES = np.random.default_rng(0).normal(0, 1, (8, 16, 64)).astype(np.float32)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_results_lie_as_their_inputs(kind):
    over = mesh(2, 2, kind=kind)
    array = placed(VALUES, over, "a", "b")
    result = jax.jit(skuda.softmax)(array)
    assert same_bits(result, skuda.softmax(VALUES)) and tuple(result.sharding.spec)[:2] == ("a", "b")
    assert not collectives(skuda.softmax, array)
    gradient = jax.jit(jax.grad(lambda x: (skuda.softmax(x) ** 2).sum()))(array)
    assert tuple(gradient.sharding.spec)[:2] == ("a", "b")


def test_arrays_on_several_devices_need_no_jit():
    array = placed(VALUES, mesh(2, 2), "a", None, "b")
    result = skuda.gelu(array)
    assert same_bits(result, skuda.gelu(VALUES)) and result.sharding == array.sharding


def test_extremes_of_parts_keep_nan_and_the_sign_of_zero():
    values = np.array([[-0.0, 0.0], [0.0, -0.0], [np.nan, 1.0], [-np.inf, -3.0], [np.inf, -0.5]], np.float32)
    over = mesh(2)
    for dtype in (np.float32, np.float16):
        for function_ in (skuda.amax, skuda.amin):
            array = placed(values.astype(dtype), over, None, "a")
            result = jax.jit(lambda x, f=function_: f(x, axis=1))(array)
            assert same_bits(result, function_(values.astype(dtype), axis=1)), (dtype, function_)


def test_a_sum_has_the_bits_of_one_device():
    array = placed(VALUES, mesh(4), None, None, "a")
    assert same_bits(jax.jit(lambda x: skuda.sum(x, axis=-1))(array), skuda.sum(VALUES, axis=-1))


def test_gradients_of_parameters_are_summed_over_the_mesh():
    over, weight = mesh(2), np.linspace(0.5, 1.5, 64).astype(np.float32)
    apart = jax.shard_map(
        skuda.rms_norm, mesh=over, in_specs=(PartitionSpec("a"), PartitionSpec()), out_specs=PartitionSpec("a")
    )
    found = jax.grad(lambda x, w: (apart(x, w) ** 2).sum(), argnums=1)(VALUES, weight)
    wanted = jax.grad(lambda x, w: (skuda.rms_norm(x, w) ** 2).sum(), argnums=1)(VALUES, weight)
    assert np.allclose(found, wanted, rtol=1e-5)
