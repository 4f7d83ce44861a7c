"""The function form under JAX: numbers, left-out inputs, keywords, transforms of transforms, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import skuda
from skuda.arrays.libraries import framework_of
from skuda.errors import ElementMismatch, InvalidProblem, NotAnArray, Unsupported
from skuda.jax.gradients import backward_of
from skuda.plans import functions

from ..drawn_calls import draw, plans, same_bits, types_of

VALUES = np.random.default_rng(1).normal(0, 2, (4, 6, 8)).astype(np.float32)
ARRAY = jnp.asarray(VALUES)


def same_under_jit(call, *arrays) -> None:
    """The call of NumPy arrays gives the bits of the traced call."""
    wanted, actual = call(*arrays), jax.jit(call)(*arrays)
    several = isinstance(wanted, tuple)
    for each, other in zip(wanted if several else (wanted,), actual if several else (actual,), strict=True):
        assert same_bits(other, each)


def test_the_first_lines():
    assert same_bits(jax.jit(skuda.softmax)(ARRAY), skuda.softmax(VALUES))
    assert same_bits(skuda.softmax(ARRAY), skuda.softmax(VALUES))
    gradient = jax.grad(lambda x: (skuda.softmax(x) * x).sum())(ARRAY)
    wanted = jax.grad(lambda x: (jax.nn.softmax(x) * x).sum())(ARRAY)
    assert np.allclose(gradient, wanted, atol=1e-5)


def test_two_inputs_in_one_array():
    for call in (skuda.silu_mul, lambda whole: skuda.glu(up=whole)):
        same_under_jit(call, VALUES)
        same_under_jit(jax.vmap(call), VALUES)
    gradient = jax.jit(jax.grad(lambda whole: skuda.silu_mul(whole).sum()))(ARRAY)
    assert same_bits(gradient, skuda.silu_mul_backward(np.ones((4, 6, 4), np.float32), VALUES))
    same_under_jit(skuda.silu_mul_backward, VALUES[..., :4], VALUES)
    with pytest.raises(InvalidProblem, match=r"gate has shape \(4, 6, 7\), expected gate and up side by side"):
        jax.jit(skuda.silu_mul)(VALUES[..., 1:])


def fused(home, x, row, column):
    """A few functions of arrays of several shapes, and of numbers."""
    x = home.where(x > 0, home.multiply(x, row) if home is jnp else skuda.mul(x, row), 0.0)
    return home.subtract(1, home.add(x, column)) if home is jnp else skuda.sub(1, skuda.add(x, column))


def test_arrays_of_several_shapes_and_numbers():
    arrays = ARRAY, ARRAY[0, 0], ARRAY[:, :1, :1]
    ours, theirs = partial(fused, skuda), partial(fused, jnp)
    assert same_bits(jax.jit(ours)(*arrays), theirs(*arrays))
    assert same_bits(ours(*map(np.asarray, arrays)), theirs(*arrays))
    gradients = [jax.jit(jax.grad(lambda *each: call(*each).sum(), (0, 1, 2)))(*arrays) for call in (ours, theirs)]  # noqa: B023
    for mine, wanted in zip(*gradients, strict=True):
        assert mine.shape == wanted.shape and np.allclose(mine, wanted, rtol=1e-5, atol=1e-5)
    for axes in ((0, None, 0), (1, None, None), (None, 0, None)):
        batched = [jnp.stack([each, each * 2], axis) if axis is not None else each for each, axis in zip(arrays, axes)]
        assert same_bits(jax.jit(jax.vmap(ours, axes))(*batched), jax.vmap(theirs, axes)(*batched))
    half = ARRAY.astype(jnp.float16)
    assert same_bits(jax.jit(skuda.mul)(half, 0.1), half * 0.1)  # a number that JAX traces
    slope = jax.grad(lambda x, number: skuda.mul(x, number).sum(), 1)(ARRAY, 2.0)
    assert np.allclose(slope, VALUES.sum(), rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_operands_of_64_bits_beside_arrays_of_32(wide):
    """Without jax_enable_x64 they travel as 32 bits, and a kernel still reads elements of 64."""
    with jax.enable_x64(wide):
        found = jax.jit(lambda x: skuda.dropout(x, -7, 3, p=0.5))(ARRAY)
        assert same_bits(found, skuda.dropout(VALUES, -7, 3, p=0.5))
        found = jax.jit(lambda x: skuda.where(x > 0, np.full(x.shape, 7), -1))(ARRAY)
    assert (np.asarray(found) == np.where(VALUES > 0, 7, -1)).all()


def test_several_outputs_have_names():
    made = jax.jit(skuda.dynamic_quantize_per_token)(ARRAY)
    assert type(made) is type(skuda.dynamic_quantize_per_token(ARRAY)) is skuda.DynamicQuantizePerTokenResults
    shapes = jax.tree.map(lambda each: each.shape, made)
    assert shapes == skuda.DynamicQuantizePerTokenResults(scale=(4, 6), output=(4, 6, 8))
    assert type(shapes) is type(made)
    assert same_bits(made.output, skuda.dynamic_quantize_per_token(VALUES).output)


def test_an_operation_that_the_session_defines():
    from skuda.launch import registry

    row = """
        scaled_for_jax:
          inputs: {x: "T[*shape]"}
          attrs: {factor: C = 2}
          outputs: {y: "T[*shape] = factor * x"}
          backward: {d_x: "T[*shape] = factor * d_y"}
        """
    for factor in (2, 3):
        scaled = skuda.define(row.replace("= 2", f"= {factor}"))
        assert same_bits(jax.jit(scaled)(ARRAY), factor * VALUES)
        assert same_bits(jax.grad(lambda x, f=scaled: f(x).sum())(ARRAY), np.full_like(VALUES, factor))
        assert same_bits(jax.vmap(scaled)(ARRAY), factor * VALUES)
    registry.forget(scaled.catalog)


def test_a_dimension_of_a_fixed_size():
    from skuda.launch import registry

    turned = skuda.define(
        name="turned_for_jax", inputs={"q": "T[*n, 4]"},
        outputs={"y": "T[*n, 4] = q * to_real(position(4)) - sum(q * q, over=4)"},
    )  # fmt: skip
    q = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = q * np.arange(4) - (q * q).sum(-1, keepdims=True)
    assert same_bits(jax.jit(turned)(q), expected.astype(np.float32))
    assert same_bits(jax.vmap(turned)(jnp.asarray(q)), expected.astype(np.float32))
    assert same_bits(jax.grad(lambda q: turned(q).sum())(jnp.asarray(q)), (np.arange(4) - 8 * q).astype(np.float32))
    with pytest.raises(InvalidProblem, match=r"q has shape \(4, 3\), expected .* dimension 1 must be 4, got 3"):
        jax.jit(turned)(q.reshape(4, 3))
    registry.forget(turned.catalog)


def test_gradients_that_no_row_declares_are_derived():
    from skuda.launch import registry

    gated = skuda.define(
        inputs={"gate": "T[*n, d]", "up": "T[d]"}, outputs={"y": "T[*n] = sum(silu(gate) * up, over=d)"}
    )
    rng = np.random.default_rng(3)
    gate, up = rng.normal(0, 1, (3, 5)).astype(np.float32), rng.normal(0, 1, 5).astype(np.float32)
    found = jax.jit(jax.grad(lambda *arrays: gated(*arrays).sum(), (0, 1)))(gate, up)
    expected = jax.grad(lambda gate, up: (jax.nn.silu(gate) * up).sum(), (0, 1))(gate, up)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    registry.forget(gated.catalog)


def test_the_lines_of_the_page_run():
    page = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    lines = re.search(r"## JAX.*?```python\n(.*?)```", page, re.DOTALL)[1]
    found: dict = {}
    exec(lines, found)
    x = np.asarray(found["x"])
    assert same_bits(found["y"], skuda.softmax(x))
    assert same_bits(found["g"], skuda.rms_norm_backward(skuda.softmax(x), x, None))
    scale, codes = skuda.dynamic_quantize_per_token(x)
    assert same_bits(found["z"][0][:, 0], scale) and same_bits(found["z"][1][:, 0], codes)


def test_partial_sums_are_added_where_a_program_says_so():
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:2]), "x"), jax.sharding.PartitionSpec
    parts = jax.shard_map(
        lambda part: jax.lax.psum(skuda.sum(part, axis=0), "x"), mesh=mesh, in_specs=spec("x"), out_specs=spec()
    )
    halves = [skuda.sum(each, axis=0) for each in np.split(VALUES, 2)]
    assert same_bits(parts(VALUES), halves[0] + halves[1])


def test_numbers_in_place_of_one_value():
    same_under_jit(lambda a, b: skuda.lerp(a, b, 0.3), VALUES, VALUES[::-1].copy())
    same_under_jit(lambda x: skuda.quantize_per_tensor(x, 0.05, 3), VALUES)
    same_under_jit(lambda x: skuda.quantize_per_tensor(x, np.float32(0.05), np.int32(3)), VALUES)
    half = VALUES.astype(np.float16)
    same_under_jit(lambda x: skuda.fake_quantize_per_tensor(x, 0.05), half)


def test_numbers_that_jax_traces():
    """They have a weak type, and count as numbers."""
    half = VALUES.astype(np.float16)
    found = jax.jit(lambda x, scale: skuda.fake_quantize_per_tensor(x, scale))(half, 0.05)
    assert same_bits(found, skuda.fake_quantize_per_tensor(half, 0.05))
    with jax.enable_x64(True):
        found = jax.jit(lambda a, b, w: skuda.lerp(a, b, w))(VALUES, -VALUES, 0.3)
    assert same_bits(found, skuda.lerp(VALUES, -VALUES, 0.3))


def test_the_gradient_of_one_value():
    scale = jnp.float32(0.1)
    loss = jax.grad(lambda s: (skuda.learnable_fake_quantize_per_tensor(ARRAY, s) ** 2).sum())
    output = skuda.learnable_fake_quantize_per_tensor(VALUES, np.float32(0.1))
    wanted = skuda.learnable_fake_quantize_per_tensor_backward(2 * output, VALUES, np.float32(0.1))[1]
    assert same_bits(loss(scale), wanted)
    assert same_bits(loss(scale[None]), np.asarray(wanted)[None])


def test_inputs_that_are_left_out():
    weight = np.linspace(0.5, 1.5, 8, dtype=np.float32)
    for call in (
        lambda x: skuda.rms_norm(x),
        lambda x: skuda.rms_norm(x, None),
        lambda x: skuda.rms_norm(x, 1),
        lambda x: skuda.layer_norm(x, weight),
        lambda x: skuda.layer_norm(x, weight, weight),
        lambda x: skuda.quantize_per_token(x, np.abs(VALUES[..., 0]), None),
    ):
        same_under_jit(call, VALUES)
    assert jax.grad(lambda x: skuda.rms_norm(x).sum())(ARRAY).shape == VALUES.shape


def test_keywords():
    same_under_jit(lambda x: skuda.dynamic_quantize_per_token(x, dtype="s4", scale_dtype="f32"), VALUES)
    same_under_jit(lambda x: skuda.sum(x, axis=(0, 2), keepdims=True), VALUES)
    same_under_jit(lambda x: skuda.softmax(x, axis=(0, 1)), VALUES)
    same_under_jit(lambda x: skuda.softmax(x, axis=[0, np.int64(1)]), VALUES)
    same_under_jit(lambda x: skuda.mean_backward(x, axis=1, shape=(4, 6, 8)), VALUES[:, 0])
    same_under_jit(lambda x: skuda.mean_backward(x, axis=1, shape=(4, 6, 8)), VALUES[:, :1])
    same_under_jit(lambda x: skuda.quantize_per_channel(x, np.full(6, 0.1, np.float32), axis=1, q_max=100), VALUES)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, -1), ()], ids=str)
def test_gradients_of_reductions(axis, keepdims):
    for call in (skuda.sum, skuda.amax, skuda.norm2, skuda.logsumexp):
        found = jax.grad(lambda x, f=call: f(x, axis=axis, keepdims=keepdims).sum())(ARRAY)
        output = call(VALUES, axis=axis)
        backward = getattr(skuda, f"{call.__name__}_backward")
        known = {"d_output": np.ones_like(output), "input": VALUES, "output": output}
        operation = getattr(skuda, f"{call.__name__.capitalize()}BackwardPlan").operation
        names = [operand.name for operand in operation.inputs]
        options = {"shape": VALUES.shape} if call is skuda.sum else {}
        assert same_bits(found, backward(*(known[name] for name in names), axis=axis, **options)), call.__name__


def test_codes_of_four_bits_travel_as_bytes():
    scale = np.abs(VALUES[..., 0]) / 7

    def both(x, s):
        codes = skuda.quantize_per_token(x, s, dtype="s4")
        return codes, skuda.dequantize_per_token(codes, s, input_dtype="s4", dtype="f32")

    same_under_jit(both, VALUES, scale)
    codes = skuda.quantize_per_token(VALUES[..., :7].copy(), scale, dtype="s4")
    odd = {"input_dtype": "s4", "dtype": "f32", "shape": (4, 6, 7)}
    same_under_jit(lambda q, s: skuda.dequantize_per_token(q, s, **odd), codes, scale)


def test_bytes_may_hold_floats_of_eight_bits():
    codes = np.arange(96, dtype=np.uint8).reshape(4, 24)
    wanted = skuda.dequantize_fp8_per_tensor(codes.view(ml_dtypes.float8_e4m3fn), 0.5)
    for array in (codes, codes.view(ml_dtypes.float8_e4m3fn)):
        found = jax.jit(lambda x: skuda.dequantize_fp8_per_tensor(x, 0.5, input_dtype="e4m3"))(array)
        assert same_bits(found, wanted)


def test_arrays_without_elements():
    empty = np.zeros((0, 8), np.float32)
    weight = np.ones(8, np.float32)
    for call in (skuda.softmax, skuda.gelu, lambda x: skuda.sum(x, axis=0), lambda x: skuda.rms_norm(x, weight)):
        same_under_jit(call, empty)
    gradient = jax.grad(lambda w: skuda.rms_norm(jnp.asarray(empty), w).sum())(jnp.ones(8))
    assert same_bits(gradient, np.zeros(8, np.float32))


def test_transforms_of_transforms():
    weight = jnp.linspace(0.5, 1.5, 8)

    def loss(x, w):
        return (skuda.rms_norm(x, w) ** 2).sum()

    gradient = jax.vmap(jax.grad(loss, argnums=1), in_axes=(0, None))(ARRAY, weight)
    assert same_bits(gradient, np.stack([np.asarray(jax.grad(loss, argnums=1)(each, weight)) for each in ARRAY]))
    both = jax.vmap(jax.vmap(skuda.softmax))(ARRAY)
    assert same_bits(both, skuda.softmax(VALUES))
    again = jax.grad(jax.checkpoint(lambda x: loss(x, weight)))(ARRAY)
    assert same_bits(again, jax.grad(lambda x: loss(x, weight))(ARRAY))
    carried, _ = jax.lax.scan(lambda x, _: (skuda.softmax(x), None), ARRAY, length=3)
    assert same_bits(carried, skuda.softmax(skuda.softmax(skuda.softmax(VALUES))))
    jacobian = jax.jacrev(skuda.softmax)(ARRAY[0, 0])
    assert np.allclose(jacobian, jax.jacrev(jax.nn.softmax)(ARRAY[0, 0]), atol=1e-6)


def test_integers_are_as_wide_as_jax_has_them():
    for wide in (False, True, False):
        with jax.enable_x64(wide):
            for call in (skuda.argmax, skuda.count_nonzero):
                found = jax.jit(lambda x, f=call: f(x, axis=-1))(VALUES)
                assert same_bits(found, call(VALUES, axis=-1).astype(np.int64 if wide else np.int32))


def test_programs_run_where_jit_is_disabled():
    with jax.disable_jit():
        assert same_bits(jax.jit(jax.vmap(skuda.softmax))(ARRAY), skuda.softmax(VALUES))
        gradient = jax.grad(lambda x: skuda.gelu(x).sum())(ARRAY)
    assert same_bits(gradient, skuda.gelu_backward(np.ones_like(VALUES), VALUES))


def test_many_threads_call_at_once():
    call = jax.jit(lambda x: skuda.softmax(skuda.gelu(x)))
    wanted = skuda.softmax(skuda.gelu(VALUES))
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: call(ARRAY), range(64)):
            assert same_bits(found, wanted)


def test_an_unused_output_gives_no_gradient():
    total = jax.grad(lambda x: skuda.add_rms_norm(x, jnp.asarray(VALUES))[1].sum())
    found = total(ARRAY)
    zeros = np.zeros_like(VALUES)
    stored = skuda.add_rms_norm(VALUES, VALUES)[0]
    assert same_bits(found, skuda.add_rms_norm_backward(zeros, zeros + 1, None, stored))


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: jax.jvp(f, (ARRAY,), (ARRAY,)),
        lambda f: jax.jacfwd(f)(ARRAY),
        lambda f: jax.jvp(jax.jit(f), (ARRAY,), (ARRAY,)),
    ],
    ids=["jvp", "jacfwd", "jvp of jit"],
)
def test_forward_mode_is_refused(transform):
    with pytest.raises(TypeError, match="forward-mode"):
        transform(skuda.softmax)
    with pytest.raises(Unsupported, match="softmax_backward"):
        transform(lambda x: skuda.softmax_backward(x, x))


def test_gradients_of_gradients_are_refused():
    once = jax.grad(lambda x: (skuda.softmax(x) ** 2).sum())
    with pytest.raises(Unsupported, match="a gradient's own gradient"):
        jax.grad(lambda x: once(x).sum())(ARRAY)
    with pytest.raises(Unsupported, match="softmax_backward"):
        jax.grad(lambda x: skuda.softmax_backward(x, x).sum())(ARRAY)


def test_what_is_refused():
    with pytest.raises(InvalidProblem, match="out is given"):
        jax.jit(lambda x: skuda.softmax(x, out=VALUES.copy()))(ARRAY)
    with pytest.raises(InvalidProblem, match="stream is given"):
        jax.jit(lambda x: skuda.softmax(x, stream=0))(ARRAY)
    with pytest.raises(InvalidProblem, match="b has shape"):
        jax.jit(lambda x: skuda.lerp(x, x[0, :4], 0.5))(ARRAY)
    with pytest.raises(ElementMismatch, match=r"AddPlan: b is 1\.5, expected an integer \(i32\)"):
        jax.jit(lambda x: skuda.add(x, 1.5))(ARRAY.astype(jnp.int32))
    with pytest.raises(Unsupported, match="SoftmaxPlan|softmax"):
        jax.jit(skuda.softmax)(jnp.ones((2, 3), jnp.int32))
    with pytest.raises(ElementMismatch, match="zero_point"):
        jax.jit(lambda x, z: skuda.quantize_per_tensor(x, 0.1, z))(ARRAY, jnp.float32(1))
    with pytest.raises(NotAnArray, match="scale is a list"):
        jax.jit(lambda x: skuda.quantize_per_token(x, [1.0]))(ARRAY)
    with pytest.raises(NotAnArray, match="no kernel reads"):
        jax.jit(skuda.softmax)(jax.random.split(jax.random.key(0), 3))


def test_shapes_that_are_not_known_are_refused():
    shape = jax.export.symbolic_shape("n, 8")
    with pytest.raises(Unsupported, match="known while JAX traces"):
        jax.export.export(jax.jit(skuda.softmax))(jax.ShapeDtypeStruct(shape, jnp.float32))


def test_errors_of_a_call_reach_the_caller(monkeypatch):
    from skuda.jax import handler

    def fails(program, pointers):
        raise ValueError("what went wrong")

    monkeypatch.setattr(handler, "run_on_cpu", fails)
    with pytest.raises(Exception, match="ValueError: what went wrong"):
        jax.jit(lambda x: skuda.gelu(x))(jnp.ones(5)).block_until_ready()


def test_concrete_arrays_do_not_wait_for_jax_to_compile():
    code = (
        "import sys, jax.numpy as jnp, skuda; y = skuda.softmax(jnp.ones((2, 8)));"
        "print(type(y).__module__, 'skuda.jax' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["jaxlib._jax", "False"]


def test_who_takes_an_array(monkeypatch):
    """JAX takes one that lies on a GPU, where the call says neither what to write nor on which stream."""
    assert framework_of(ARRAY, True) is None
    place = SimpleNamespace(device_set=[SimpleNamespace(platform="gpu")])
    monkeypatch.setattr(type(ARRAY), "sharding", place, raising=False)
    assert framework_of(ARRAY, True) == "jax"
    assert framework_of(ARRAY, False) is None
    assert framework_of(VALUES, True) is None


HANDED_ON = [plan for plan in plans() if any(map(plan.operation.hands_on, plan.operation.attributes))]


@pytest.mark.parametrize("plan", HANDED_ON, ids=lambda plan: plan.operation.function)
def test_an_attribute_that_the_gradient_alone_reads(plan):
    """It is said in the call that is differentiated."""
    drawn = draw(plan, types_of(plan.operation)[0])
    operation, inputs = plan.operation, tuple(drawn.inputs.values())
    other = {each.name: 0.25 for each in operation.attributes if operation.hands_on(each)}
    backward = backward_of(plan)

    def gradients(attributes, values):
        def run(*values):
            return functions.call(plan, (*values, None), tuple(attributes.values()), None, dtype=drawn.options["dtype"])

        made, pull = jax.vjp(run, *values)
        return pull(jnp.ones_like(made))

    found = jax.jit(lambda *values: gradients(drawn.attributes | other, values))(*inputs)
    given = (np.ones_like(inputs[0]), *inputs, None)
    attributes = tuple((drawn.attributes | other).values())
    expected = functions.call(backward, given, attributes, None, dtype=drawn.options["dtype"])
    for ours, theirs in zip(found, expected, strict=True):
        assert same_bits(ours, theirs)
    assert not same_bits(found[1], gradients(drawn.attributes, inputs)[1])
