"""Compiled programs hold what a call is as a text: they run in other processes, and with catalogs of a user's own."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogs import made_catalog

import skuda
from skuda.errors import Unsupported
from skuda.jax.program import Program, program_of
from skuda.jax.selection import select

from ..drawn_calls import draw, plans, same_bits, types_of
from .support import PLANS, function

VALUES = np.random.default_rng(4).normal(0, 2, (4, 6, 8)).astype(np.float32)
SPEC = """
ops:
  squash:
    kind: mine.elementwise
    doc: A value less its excess over a limit.
    types: {T: [f32, f16]}
    inputs: {input: "T[*n, d]", limit: "T[d]"}
    attrs: {steepness: C = 0.5}
    outputs:
      output: T[*n, d] = min(input, limit) * steepness
    backward:
      d_input: T[*n, d] = where(input < limit, d_output * steepness, 0)
  spread:
    kind: mine.row
    doc: The range of a row.
    inputs: {input: "T[*n, d]"}
    outputs:
      low: T[*n] = min(input, over=d)
      high: T[*n] = max(input, over=d)
"""


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
def test_a_text_says_all_of_a_call(plan):
    drawn = draw(plan, types_of(plan.operation)[-1])
    options = drawn.options
    dtypes = (options.get("dtype"), *options.get("output_dtypes", ()))
    program, _ = select(plan, list(drawn.inputs.values()), list(drawn.attributes.values()), dtypes,
                        options.get("input_dtype"), options.get("shape"))  # fmt: skip
    again = Program(program.text)
    assert (again.shapes, again.storages, again.text) == (program.shapes, program.storages, program.text)
    assert again.plan.descriptor == program.plan.descriptor and again.axes == program.axes


def test_an_exported_program_runs_in_another_process(tmp_path):
    def call(x):
        codes, scale = skuda.dynamic_quantize_per_group(skuda.softmax(x, axis=1), group_size=4)[::-1]
        return codes, scale, skuda.sum(x, axis=(0, 2), keepdims=True)

    exported = jax.export.export(jax.jit(call), disabled_checks=[
        jax.export.DisabledSafetyCheck.custom_call("skuda_call")])(jnp.asarray(VALUES))  # fmt: skip
    (tmp_path / "program").write_bytes(exported.serialize())
    np.save(tmp_path / "in.npy", VALUES)
    code = (
        "import jax, numpy as np, skuda.jax\n"
        f"found = jax.export.deserialize(bytearray(open({str(tmp_path / 'program')!r}, 'rb').read()))\n"
        f"outputs = found.call(np.load({str(tmp_path / 'in.npy')!r}))\n"
        f"np.savez({str(tmp_path / 'out.npz')!r}, *outputs)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with np.load(tmp_path / "out.npz") as found:
        for actual, wanted in zip(found.values(), call(VALUES), strict=True):
            assert same_bits(actual, wanted)


@pytest.fixture
def mine(tmp_path):
    with made_catalog(tmp_path, "my_ops_in_jax", SPEC) as catalog:
        yield catalog


def test_operations_of_a_catalog_of_ones_own(mine):
    limit = np.linspace(-1, 1, 8, dtype=np.float32)
    found = jax.jit(lambda x, m: mine.squash(x, m, steepness=0.25))(VALUES, limit)
    assert same_bits(found, mine.squash(VALUES, limit, steepness=0.25))
    gradient = jax.grad(lambda x: mine.squash(x, limit).sum())(jnp.asarray(VALUES))
    assert same_bits(gradient, mine.squash_backward(np.ones_like(VALUES), VALUES, limit))
    with pytest.raises(Unsupported, match="squash has no gradient for limit"):
        jax.grad(lambda m: mine.squash(VALUES, m).sum())(jnp.asarray(limit))
    low, high = jax.vmap(mine.spread)(jnp.asarray(VALUES))
    assert same_bits(low, VALUES.min(-1)) and same_bits(high, VALUES.max(-1))
    for plan in plans("my_ops_in_jax"):
        drawn = draw(plan, types_of(plan.operation)[0])
        for actual, wanted in zip(jax.jit(function(drawn))(*drawn.inputs.values()), drawn.run(), strict=True):
            assert same_bits(actual, wanted)


def test_a_catalog_that_is_made_again_replaces_itself(tmp_path):
    limit, array = np.full(8, 0.5, np.float32), jnp.asarray(VALUES)
    for sign in ("", "-"):
        folder = tmp_path / f"made{len(sign)}"
        folder.mkdir()
        spec = SPEC.replace(" * steepness", f" * ({sign}steepness)")
        with made_catalog(folder, "my_changing_ops", spec) as catalog:
            found = jax.jit(lambda x, made=catalog: made.squash(x, limit))(array)
            gradient = jax.grad(lambda x, made=catalog: made.squash(x, limit).sum())(array)
        factor = -0.5 if sign else 0.5
        assert same_bits(found, np.minimum(VALUES, limit) * np.float32(factor))
        assert same_bits(gradient, np.where(limit > VALUES, np.float32(factor), np.float32(0)))


def test_a_catalog_that_is_not_imported_is_named():
    text = select(skuda.SoftmaxPlan, [VALUES], (-1,))[0].text.replace("skuda.generated", "elsewhere.ops")
    with pytest.raises(Unsupported, match="import elsewhere.ops before it runs"):
        program_of(text)
