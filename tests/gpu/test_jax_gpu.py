"""JAX programs on a GPU: XLA's stream and buffers, workspaces, command buffers, several devices.

The expected bits are those of the reference on NumPy arrays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from frameworks.drawn_calls import draw, plans, same_bits, sizes_of, types_of
from frameworks.jax.support import differentiable, expected, function, wide_for
from jax.sharding import NamedSharding, PartitionSpec

import skuda
from skuda.model.sku import Direction

PLANS = [plan for plan in plans() if plan.operation.analysis.exact]  # others have not the bits: test_precision.py
every = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
# Rows of a few elements and rows that several blocks take, beside each other and apart.
EXTENTS = [((6, 2056), 264), ((40, 52), 264), ((3, 70_003), 1), ((1000, 500), 2), ((300, 1100), 3), ((3, 130), 17)]
SIZES = [{"many": many, "single": single, "block": 24} for many, single in EXTENTS]
MOST = 1 << 20  # elements


@pytest.fixture(autouse=True)
def precision(request):
    """Enables integers of 64 bits for an operation that takes them whatever its types are."""
    with wide_for(request):
        yield


def test_jax_has_a_gpu():
    assert jax.default_backend() == "gpu"


def fitting(plan) -> list[dict]:
    """The sizes at which a call has not too many elements."""
    operation = plan.operation

    def count(sizes):
        return prod(np.concatenate([np.atleast_1d(sizes[dim.name]) for dim in operation.space] or [[1]]).tolist())

    return [each for each in SIZES if count(sizes_of(operation, **each)) <= MOST]


@every
def test_jit_gives_the_bits_of_the_reference(plan):
    for types in types_of(plan.operation):
        for sizes in ({}, *fitting(plan)[:1]):
            drawn = draw(plan, types, **sizes)
            outputs = jax.jit(function(drawn))(*map(jnp.asarray, drawn.inputs.values()))
            for actual, each in zip(outputs, expected(drawn.run()), strict=True):
                assert same_bits(actual, each), (types, sizes)


@pytest.mark.parametrize(
    "plan", [plan for plan in PLANS if not plan.operation.creates], ids=lambda plan: plan.operation.function
)
def test_concrete_arrays_give_the_same_bits(plan):
    drawn = draw(plan, types_of(plan.operation)[0])
    outputs = drawn.run({name: jnp.asarray(array) for name, array in drawn.inputs.items()})
    for actual, each in zip(outputs, expected(drawn.run()), strict=True):
        assert same_bits(actual, each)


def with_workspace() -> list:
    """Calls whose plan wants scratch memory."""
    found = []
    for plan in PLANS:
        types = types_of(plan.operation)[0]
        for sizes in fitting(plan):
            fields = sizes_of(plan.operation, **sizes)
            fields |= {field: types[letter] for letter, field in plan.operation.element_fields.items()}
            if plan.select(plan.descriptor_type(**fields)).workspace_size:
                found.append(pytest.param(plan, types, sizes, id=f"{plan.operation.function}-{sizes['many']}"))
                break
    return found


@pytest.mark.parametrize(("plan", "types", "sizes"), with_workspace())
def test_a_workspace_is_a_buffer_of_xla(plan, types, sizes):
    drawn = draw(plan, types, **sizes)
    call = jax.jit(function(drawn))
    arrays = list(map(jnp.asarray, drawn.inputs.values()))
    assert "ui8>" in call.lower(*arrays).as_text()
    wanted = expected(drawn.run())
    for _ in range(3):
        for actual, each in zip(call(*arrays), wanted, strict=True):
            assert same_bits(actual, each)


@pytest.mark.parametrize(
    "plan",
    [plan for plan in PLANS if plan.operation.direction is Direction.FORWARD and len(plan.operation.inputs) == 1],
    ids=lambda plan: plan.operation.function,
)
def test_gradients_are_those_of_the_cpu(plan):
    drawn = draw(plan, types_of(plan.operation)[0])
    backward = [each for each in PLANS if each.operation.function == f"{plan.operation.function}_backward"]
    words = [drawn.words[operand.name] for operand in plan.operation.operands]
    if not backward or not all(map(differentiable, words)):
        return

    def loss(*arrays):
        return sum(each.astype(jnp.float32).sum() for each in function(drawn)(*arrays))

    arrays = list(drawn.inputs.values())
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = np.asarray(jax.grad(loss)(*arrays))
    assert same_bits(jax.jit(jax.grad(loss))(*map(jnp.asarray, arrays)), wanted)


GRAPHS = """
import json, sys
import jax, jax.numpy as jnp, numpy as np, skuda
from skuda.jax import handler

calls = []
run = handler.run_on_gpu
handler.run_on_gpu = lambda *arguments: (calls.append(1), run(*arguments))
values = np.random.default_rng(0).normal(0, 1, (64, 1031)).astype(np.float32)
weight = np.ones(1031, np.float32)

def step(x, w):
    for _ in range(4):
        x = skuda.softmax(skuda.rms_norm(x, w) + x)
    return x

call = jax.jit(step)
x, w = jnp.asarray(values), jnp.asarray(weight)
call(x, w).block_until_ready()
counts = []
for _ in range(20):
    before = len(calls)
    result = call(x, w).block_until_ready()
    counts.append(len(calls) - before)
wanted = values
for _ in range(4):
    wanted = skuda.softmax(skuda.rms_norm(wanted, weight) + wanted)
print(json.dumps({"counts": counts, "same": bool(np.array_equal(np.asarray(result), wanted))}))
"""


def test_a_command_buffer_replays_the_calls():
    """XLA captures a program of small steps, whose addresses it gives again: then no Python runs."""
    flags = "--xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL --xla_gpu_graph_min_graph_size=1"
    environment = os.environ | {"XLA_FLAGS": flags}
    said = subprocess.run([sys.executable, "-c", GRAPHS], capture_output=True, text=True, env=environment)
    assert said.returncode == 0, said.stderr[-2000:]
    found = json.loads(said.stdout.splitlines()[-1])
    assert found["same"] and min(found["counts"]) == 0, found


def test_streams_keep_their_order():
    """Results of our kernels go into XLA's own and back."""
    values = np.random.default_rng(3).normal(0, 1, (256, 4096)).astype(np.float32)

    def steps(x):
        for _ in range(8):
            x = skuda.softmax(jnp.roll(x, 1, axis=0) * 2.0) + x[::-1] * 0.5
        return x

    first = jax.jit(steps)(jnp.asarray(values))
    for _ in range(10):
        assert same_bits(jax.jit(steps)(jnp.asarray(values)), first)


def test_several_devices_compute_their_parts():
    count = len(jax.devices())
    mesh = jax.make_mesh((count,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    values = np.random.default_rng(5).normal(0, 1, (8 * count, 1031)).astype(np.float32)
    array = jax.device_put(values, NamedSharding(mesh, PartitionSpec("a")))
    call = jax.jit(skuda.softmax)
    assert same_bits(call(array), skuda.softmax(values))
    assert "all-gather" not in call.lower(array).compile().as_text()
    assert same_bits(jax.jit(lambda x: skuda.amax(x, axis=0))(array), skuda.amax(values, axis=0))
