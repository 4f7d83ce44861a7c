"""The functions of skuda on tensors that torch follows: gradients, transforms, modes, compiled and exported ones."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from operations import call_of, plans, same
from torch._dynamo.testing import CompileCounter
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import skuda
import skuda.torch
from oracles.functions import placed as in_domain
from skuda.codegen.intrinsics import DERIVATIVES
from skuda.errors import InvalidProblem, SkudaError, Unsupported
from skuda.frameworks.programs import program_of
from skuda.model.dtypes import DTYPES
from skuda.model.sku import Direction
from skuda.plans import functions
from skuda.torch import operator_of


def rows(*shape, seed=0, **options):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), **options)


def block(x, weight):
    """A few functions in a row, with an optional input that is left out and one that is not."""
    x = skuda.rms_norm(x, weight)
    x = skuda.layer_norm(x, weight) + skuda.rms_norm(x)
    x = skuda.silu_mul(x, skuda.gelu(x))
    x = skuda.fake_quantize_per_tensor(x, 0.1, 3)
    return skuda.softmax(x, axis=-1) * skuda.mean(x, axis=1, keepdims=True)


def chain(x, weight):
    """Functions of skuda alone: Inductor may contract the arithmetic of torch between them."""
    x = skuda.layer_norm(skuda.rms_norm(x, weight), weight)
    return skuda.softmax(skuda.silu_mul(x, skuda.fake_quantize_per_tensor(skuda.gelu(x), 0.1, 3)))


def gradients(function, *inputs):
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    made = function(*leaves)
    made.square().sum().backward()
    return made.detach(), *[leaf.grad for leaf in leaves]


@pytest.mark.turns(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_functions_and_their_gradients(dynamic, backend):
    torch._dynamo.reset()
    program = chain if backend == "inductor" else block
    compiled = torch.compile(program, fullgraph=True, dynamic=dynamic, backend=backend)
    for count in (3, 5):
        x, weight = rows(count, 8), rows(8, seed=1)
        with torch.no_grad():
            assert same(compiled(x, weight), program(x, weight))
        assert same(gradients(compiled, x, weight), gradients(program, x, weight))


@pytest.mark.turns(2)
def test_compiled_without_a_call_before():
    """The first call of a function may be one that is traced, also where torch came after skuda."""
    import subprocess
    import sys

    program = (
        "import skuda; skuda.softmax; import torch;"
        "x = torch.ones(2, 4);"
        "print(torch.compile(lambda x: skuda.softmax(x) * 2, fullgraph=True, backend='aot_eager')(x).tolist())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5]]\n"


def test_eager_calls_do_not_make_compiled_ones_compile_again():
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x: skuda.softmax(x), fullgraph=True, backend=counter)
    for turn in range(3):
        compiled(rows(4, 4))
        skuda.softmax(rows(turn + 2, 3))
        skuda.sum(rows(turn + 2, 3))
    assert counter.frame_count == 1


def test_compiled_into_given_tensors():
    torch._dynamo.reset()

    def run(x, out):
        skuda.softmax(x + 1, out=out)
        return out * 2

    x, out = rows(3, 4), torch.zeros(3, 4)
    assert same(torch.compile(run, fullgraph=True, backend="aot_eager")(x, out), skuda.softmax(x + 1) * 2)
    assert same(out, skuda.softmax(x + 1))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(rows(8, seed=1))

    def forward(self, x):
        return block(x, self.weight)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_saved_and_loaded(tmp_path, strict):
    torch._dynamo.reset()
    model, x = Model(), rows(3, 8)
    rows_of = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: rows_of},), strict=strict)
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for count in (3, 7):
        assert same(loaded(rows(count, 8)).detach(), model(rows(count, 8)).detach())


def test_an_attribute_of_axes_that_differs_between_two_calls():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, axis: skuda.sum(x, axis=axis), fullgraph=True, backend="aot_eager")
    x = rows(4, 4)
    for axis in (0, 1, (0, 1), None, 0):
        assert same(compiled(x, axis), skuda.sum(x, axis=axis))


# ---- gradients ----

STEPS = {"round_to_int"} | {name for name, slopes in DERIVATIVES.items() if not any(slopes)}


def has_derivative(plan) -> bool:
    """Whether an operation declares gradients that are derivatives, from reals to reals.

    What rounds has a straight-through gradient, which is none. Codes, integers and booleans have no neighbours.
    """
    operation, operator = plan.operation, operator_of(plan)
    if operation.direction is not Direction.FORWARD or operator.backward is None:
        return False
    declared = operator.backward.operation.gradients
    followed = [each for each in operation.inputs if declared.get(f"d_{each.name}") is not None]
    words = [operation.word(each, operation.combinations[0]) for each in (*followed, *operation.outputs)]
    steps = STEPS & set().union(*(node.intrinsics() for node in program_of(plan).written_out.values()))
    return bool(followed) and not steps and not any(DTYPES[word].code for word in words)


SMOOTH = [name for name, plan in plans().items() if has_derivative(plan)]


def placed(name: str, value: torch.Tensor) -> torch.Tensor:
    """Values where the function of a name has a derivative."""
    return torch.from_numpy(np.asarray(in_domain(name, value.numpy()))) if value.is_floating_point() else value


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", SMOOTH)
def test_gradcheck_in_f64(name):
    call = call_of(plans()[name], wide=True)
    operator = operator_of(call.plan_class)
    declared = {operand.name[2:] for operand in operator.backward.operation.outputs}
    inputs = [
        placed(name, value).requires_grad_(operand.name in declared)
        for operand, value in zip(operator.operation.inputs, call.inputs, strict=True)
    ]
    rest = [getattr(call, field) for field in call._fields[2:]]
    assert torch.autograd.gradcheck(lambda *given: operator.apply(type(call)(call.plan_class, given, *rest)), inputs)


def test_a_second_derivative_and_a_forward_one_raise():
    x = rows(3, 4, requires_grad=True)
    (first,) = torch.autograd.grad(skuda.softmax(x).square().sum(), x, create_graph=True)
    with pytest.raises(Unsupported, match="softmax_backward: the gradient of a gradient is not declared"):
        torch.autograd.grad(first.sum(), x)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(skuda.softmax, (rows(3, 4),), (rows(3, 4),))
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        skuda.softmax(forward_ad.make_dual(rows(3, 4), rows(3, 4)))


@pytest.mark.parametrize("function", [skuda.exp, skuda.softmax, skuda.neg, skuda.sin, skuda.cumsum])
def test_forward_derivatives_of_gradients_raise(function):
    """Also where no gradient reads the input, whose tangent would be lost."""
    x = rows(4)

    def squares(x):
        return function(x).square().sum()

    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.hessian(squares)(x)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(torch.func.grad(squares), (x,), (x,))


@pytest.mark.parametrize("function", [skuda.exp, skuda.softmax, skuda.neg, skuda.sin, skuda.cumsum, skuda.logsumexp])
def test_a_gradient_is_taken_after_the_transform_that_recorded_it(function):
    x = rows(4)
    value, gradient_of = torch.func.vjp(function, x)
    assert same(gradient_of(torch.ones_like(value))[0], torch.func.grad(lambda x: function(x).sum())(x))


def test_an_output_without_a_gradient_raises_beside_one_that_has_it():
    row = skuda.define(
        name="beside", inputs={"u": "T[n, d]", "c": "T[]"},
        outputs={"first": "T[] = abs(sin(c))", "second": "T[] = mean(exp(u), over=(n, d))"},
    )  # fmt: skip
    u, c = rows(3, 5, requires_grad=True), torch.tensor(0.3, requires_grad=True)
    first, second = row(u, c)
    for output in (first, second):
        with pytest.raises(Unsupported, match="no gradient is declared for c"):
            output.backward(retain_graph=True)
    assert not row(u, c.detach()).first.requires_grad


def test_an_input_without_a_declared_gradient_raises():
    x, scale = rows(3, 4, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    with pytest.raises(Unsupported, match="fake_quantize_per_tensor: no gradient is declared for scale; give scale"):
        skuda.fake_quantize_per_tensor(x, scale, 0).sum().backward()
    skuda.fake_quantize_per_tensor(x, scale.detach(), 0).sum().backward()
    assert same(x.grad, torch.ones(3, 4))


def test_codes_have_no_gradient():
    x = rows(3, 4, requires_grad=True)
    assert not skuda.quantize_per_tensor(x, 0.5, 0).requires_grad
    assert not skuda.quantize_fp8_per_tensor(x, 0.5).requires_grad
    scale, codes = skuda.dynamic_quantize_per_token(x)
    assert scale.requires_grad and not codes.requires_grad
    with pytest.raises(Unsupported, match="dynamic_quantize_per_token: no gradient is declared for input"):
        scale.sum().backward()


def test_out_records_no_gradient():
    x = rows(3, 4, requires_grad=True)
    with pytest.raises(InvalidProblem, match="softmax: out= records no gradient"):
        skuda.softmax(x, out=torch.empty(3, 4))
    with torch.no_grad():
        skuda.softmax(x, out=torch.empty(3, 4))


def test_a_stream_where_torch_follows_is_refused():
    with pytest.raises(InvalidProblem, match="softmax: stream= is given where"):
        skuda.softmax(rows(3, 4, requires_grad=True), stream=0)


def test_gradients_that_lie_otherwise():
    """Expanded, transposed, of no elements."""
    for make in (lambda x: skuda.softmax(x).sum(), lambda x: (skuda.softmax(x).T @ torch.ones(3, 2)).sum()):
        assert same(gradients(make, rows(3, 4))[1].abs() < 1e-6, torch.ones(3, 4, dtype=torch.bool))
    x = torch.ones(0, 4, requires_grad=True)
    skuda.rms_norm(x, torch.ones(4)).sum().backward()
    assert x.grad.shape == (0, 4)


def test_what_is_saved_and_then_written_is_noticed():
    x = rows(3, 4, requires_grad=True)
    y = skuda.softmax(x)
    skuda.gelu(torch.ones(3, 4), out=y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_only_what_a_gradient_reads_is_saved():
    x, weight = rows(3, 4, requires_grad=True), rows(4)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        skuda.softmax(x)
        skuda.rms_norm(x, weight)
        skuda.sum(x)
    assert [each.shape for each in saved] == [(3, 4), (3, 4), (4,)]


def test_threads_of_the_autograd_engine():
    def work(found, seed):
        found[seed] = gradients(block, rows(3, 8, seed=seed), rows(8))

    found = {}
    threads = [threading.Thread(target=work, args=(found, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert same(found[seed], gradients(block, rows(3, 8, seed=seed), rows(8)))


def test_checkpointing_and_hooks():
    x, weight = rows(3, 8), rows(8, seed=1)
    again = lambda x, weight: checkpoint(block, x, weight, use_reentrant=False)  # noqa: E731
    assert same(gradients(again, x, weight), gradients(block, x, weight))
    model, seen = Model(), []
    model.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(parameter.grad.clone()))
    model(x).square().sum().backward()
    assert same(seen[0], gradients(block, x, model.weight)[2])


# ---- transforms and modes ----


def test_function_transforms():
    x, weight = rows(3, 8), rows(8, seed=1)
    run = lambda x: block(x, weight).square().sum()  # noqa: E731
    expected = gradients(block, x, weight)[1]
    assert same(torch.func.grad(run)(x), expected)
    batch = torch.stack([x, x + 1])
    mapped = torch.func.vmap(torch.func.grad(run))(batch)
    assert same(mapped, torch.stack([torch.func.grad(run)(each) for each in batch]))
    jacobian = torch.func.jacrev(lambda x: skuda.softmax(x))(x[0])
    assert torch.allclose(jacobian, torch.func.jacrev(lambda x: torch.softmax(x, -1))(x[0]), atol=1e-6)
    with pytest.raises(Unsupported, match="gradient of a gradient"):
        torch.func.grad(lambda x: torch.func.grad(run)(x).sum())(x)


def test_autocast_widens_what_must_be_alike_and_nothing_else():
    a, b = rows(3, 4), rows(3, 4, seed=1).bfloat16()
    with pytest.raises(SkudaError):
        skuda.silu_mul(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        assert same(skuda.silu_mul(a, b), skuda.silu_mul(a, b.float()))
        assert same(skuda.silu_mul(a.half(), b), skuda.silu_mul(a.half().float(), b.float()))
        assert skuda.softmax(b).dtype == torch.bfloat16
        codes = skuda.quantize_per_tensor(b, torch.tensor(0.5), torch.tensor(0, dtype=torch.int32))
    assert same(codes, skuda.quantize_per_tensor(b, torch.tensor(0.5), torch.tensor(0, dtype=torch.int32)))


def test_modes_see_the_calls():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    for mode in (Functions, Dispatches):
        seen: list[str] = []
        with mode():
            skuda.softmax(torch.ones(2, 3))
        assert "skuda.softmax.default" in seen


def test_fake_tensors_have_the_shapes_of_results():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        scale, codes = skuda.dynamic_quantize_per_token(torch.empty(3, 5), dtype="s4")
    assert (scale.shape, codes.shape, codes.dtype) == ((3,), (3, 3), torch.uint8)


def test_a_direct_call_of_the_operator():
    x = rows(3, 4, requires_grad=True)
    y = torch.ops.skuda.softmax(x)
    assert same(torch.autograd.grad(y.square().sum(), x)[0], gradients(skuda.softmax, x)[1])
    assert same(torch.ops.skuda.sum(x, [0], keepdims=True).detach(), skuda.sum(x.detach(), axis=0, keepdims=True))
    codes = torch.ops.skuda.quantize_per_tensor.Scalar(x, 0.5, 0, None, None, "u8")
    assert same(codes, skuda.quantize_per_tensor(x, 0.5, 0, dtype="u8"))


def test_a_gradient_that_is_another_one():
    x, residual = rows(3, 8, requires_grad=True), rows(3, 8, seed=1, requires_grad=True)
    total, output = skuda.add_rms_norm(x, residual, rows(8))
    (total.sum() + output.square().sum()).backward()
    assert same(x.grad, residual.grad) and x.grad.abs().sum() > 0


def test_an_input_that_is_declared_constant(tmp_path):
    from catalogs import made_catalog

    text = """
ops:
  weighed:
    inputs: {x: "T[*shape]", weight: "T[*shape]"}
    outputs: {y: "T[*shape] = x * weight"}
    backward: {d_x: "T[*shape] = d_y * weight", d_weight: constant}
"""
    x, weight = rows(3, requires_grad=True), rows(3, requires_grad=True)
    with made_catalog(tmp_path, "skuda_weighed", text) as catalog:
        catalog.weighed(x, weight).sum().backward()
    assert same(x.grad, weight.detach()) and weight.grad is None


def test_one_out_for_a_whole_batch_is_refused():
    batch, out = rows(2, 3, 4), torch.empty(3, 4)
    with pytest.raises(InvalidProblem, match="softmax: out= is one array for all of the batch"):
        torch.vmap(lambda x: skuda.softmax(x, out=out))(batch)


HANDED_ON = [name for name, plan in plans().items() if any(map(plan.operation.hands_on, plan.operation.attributes))]


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", HANDED_ON)
def test_an_attribute_that_the_gradient_alone_reads(name):
    """It is said in the call that is recorded: eager, compiled, under a transform, and as an operator."""
    call = call_of(plans()[name])
    operation, inputs = call.plan_class.operation, call.inputs
    attributes = [0.25 if operation.hands_on(each) else value
                  for each, value in zip(operation.attributes, call.attributes, strict=True)]  # fmt: skip
    d_output = torch.linspace(-1, 2, inputs[0].numel()).reshape(inputs[0].shape)
    options = {"dtype": call.dtypes[0]}

    def run(given, values):
        return functions.call(call.plan_class, (*values, None), tuple(given), None, **options)

    def product(*values):
        return (run(attributes, values) * d_output).sum()

    backward = operator_of(call.plan_class).backward.plan_class
    expected = functions.call(backward, (d_output, *inputs, None), tuple(attributes), None, **options)
    others = functions.call(backward, (d_output, *inputs, None), call.attributes, None, **options)
    assert same(expected[0], others[0]) and not same(expected[1], others[1])  # of the input, of the scale
    assert same(run(attributes, inputs), run(call.attributes, inputs))
    leaves = [value.clone().requires_grad_() for value in inputs]
    every = tuple(range(len(leaves)))
    assert same(torch.autograd.grad(product(*leaves), leaves), tuple(expected))
    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    assert same(torch.autograd.grad(compiled(*leaves), leaves), tuple(expected))
    assert same(torch.func.grad(product, every)(*inputs), tuple(expected))
    fused = torch.autograd.grad(skuda.torch.compile(product, fusible=True, backend="aot_eager")(*leaves), leaves)
    assert all(torch.allclose(ours, theirs, rtol=1e-5) for ours, theirs in zip(fused, expected, strict=True))


def test_an_attribute_without_a_default_is_said_in_the_recorded_call():
    slower = skuda.define(name="slower", inputs={"x": "T[*n]"}, attrs={"pace": "C"}, outputs={"y": "T[*n] = -x"},
                          backward={"d_x": "T[*n] = -d_y * pace"})  # fmt: skip
    x = rows(3).requires_grad_()
    slower(x, pace=0.5).sum().backward()
    assert same(x.grad, torch.full((3,), -0.5))
    assert "pace: a number in the compute type, which the gradient of a recorded call is given." in slower.__doc__
    with pytest.raises(TypeError, match="pace"):
        slower(x)


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"value": "a", "like": torch.zeros(2, 4, device="meta")}, "value is a str"),
        ({"shape": (10**30,), "value": torch.tensor(1.0, requires_grad=True)}, "shape"),
        ({"value": 1.0, "dtype": torch.zeros(2), "out": 1j}, "out is a complex"),
        ({"value": torch.tensor(1.0).to_sparse(), "like": torch.zeros(2, 4, device="meta")}, "value"),
    ],
)
def test_what_is_wrong_is_said_where_torch_follows_the_call(arguments, told):
    with pytest.raises(SkudaError, match=told):
        skuda.full(**{"shape": (2, 4), **arguments})


def test_a_number_beside_a_tensor_may_be_too_large():
    with pytest.raises(SkudaError, match="step is .*, which torch.* cannot hold"):
        skuda.arange(4, start=torch.tensor(1, device="meta"), step=10**30)
