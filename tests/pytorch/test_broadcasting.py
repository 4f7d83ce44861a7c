"""Tensors of several shapes, and numbers in their place, where torch follows a call: torch's own expansion gives the
same bits, forward and backward."""

from __future__ import annotations

import pytest
import torch
from operations import call_of, plans, same
from torch._dynamo.testing import CompileCounter

import skuda
import skuda.torch
from skuda.errors import ElementMismatch, InvalidProblem
from skuda.plans.functions import call
from skuda.torch import operator_of

PLANS = [plan for plan in plans().values() if plan.operation.broadcast]
CUTS = (lambda tensor: tensor[..., :1], lambda tensor: tensor[0], lambda tensor: tensor[:1])


def rows(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients(run, tensors, has_gradient=None) -> list:
    """What a function makes, and the gradients of its tensors, or of those that have one."""
    flags = [True] * len(tensors) if has_gradient is None else has_gradient
    leaves = [each.detach().clone().requires_grad_(flag) for each, flag in zip(tensors, flags, strict=True)]
    made = run(leaves)
    made = made if isinstance(made, tuple) else (made,)
    needed = [leaf for leaf in leaves if leaf.requires_grad]
    loss = sum(each.square().sum() for each in made if each.requires_grad)
    found = torch.autograd.grad(loss, needed) if needed else ()
    return [*(each.detach() for each in made), *found]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
def test_gradients_are_those_of_expanded_tensors(plan):
    """Of the function, and of the operator that torch calls."""
    drawn, operator, places = call_of(plan), operator_of(plan), plan.operation.broadcast
    shape = drawn.inputs[places[0]].shape
    tensors = list(drawn.inputs)
    for index, place in enumerate(places):
        tensors[place] = CUTS[index % 3](tensors[place])

    def function(inputs):
        first, *others = drawn.dtypes
        return call(plan, (*inputs, None), drawn.attributes, None, dtype=first, output_dtypes=tuple(others))

    def operated(inputs):
        drawn.inputs = tuple(inputs)
        return operator.overloads[False, False](*operator.values_of(drawn))

    def expanded(inputs):
        return function([each.expand(shape) if at in places else each for at, each in enumerate(inputs)])

    known = operator.backward.operation.gradients if operator.backward else {}
    flags = [known.get(f"d_{operand.name}") is not None for operand in plan.operation.inputs]
    wanted = gradients(expanded, tensors, flags)
    assert len(wanted) == len(plan.operation.outputs) + sum(flags)
    assert same(gradients(function, tensors, flags), wanted)
    assert same(gradients(operated, tensors, flags), wanted)
    with torch.no_grad():
        made = operated(tensors)
        on_meta = operated([each.to("meta") for each in tensors])
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (made, on_meta)), strict=True)
    assert all((left.shape, left.dtype) == (right.shape, right.dtype) for left, right in pairs)


def chain(x, row, column, number):
    x = skuda.where(x > 0, skuda.mul(x, row), torch.ops.skuda.add(row, column))
    return skuda.clamp_tensor(skuda.sub(number, x), column, 2)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(chain, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    fused = skuda.torch.compile(chain, fusible=True, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for count, number in ((3, 0.1), (5, 7.5)):
        tensors = rows(count, 4), rows(4, seed=1), rows(count, 1, seed=2)
        wanted = gradients(lambda each: chain(*each, number), tensors)  # noqa: B023
        assert same(gradients(lambda each: compiled(*each, number), tensors), wanted)  # noqa: B023
        assert same(gradients(lambda each: fused(*each, number), tensors), wanted)  # noqa: B023


def test_a_number_that_changes_does_not_compile_again():
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x, number: skuda.add(x, number), fullgraph=True, backend=counter, dynamic=True)
    for number in (0.5, 1.5, 2.5):
        assert same(compiled(rows(3), number), rows(3) + number)
    assert counter.frame_count <= 2


class Chain(torch.nn.Module):
    def forward(self, x, row, column):
        return chain(x, row, column, 1.5)


@pytest.mark.parametrize("strict", [False, True])
def test_exported_with_a_dimension_that_changes(strict):
    count = torch.export.Dim("count", min=2, max=64)
    shapes = ({0: count}, None, {0: count})
    exported = torch.export.export(Chain(), (rows(3, 4), rows(4), rows(3, 1)), dynamic_shapes=shapes, strict=strict)
    for size in (2, 7):
        tensors = rows(size, 4), rows(4, seed=1), rows(size, 1, seed=2)
        assert same(exported.module()(*tensors), chain(*tensors, 1.5))


@pytest.mark.parametrize("home", [skuda, torch.ops.skuda], ids=["function", "operator"])
def test_vmap(home):
    """Batches of tensors of several ranks, along any of their axes."""
    add = home.add
    matrices, lines = rows(3, 4, 5), rows(5, 2, seed=1)
    for in_dims, tensors in (
        ((1, None), (matrices, lines.T[0])),
        ((None, 1), (matrices[0], lines)),
        ((0, 0), (rows(2, 5), rows(2, 3, 1, seed=1))),
        ((-1, 0), (rows(4, 3), rows(3, 2, 1, seed=1))),
    ):
        wanted = torch.vmap(torch.add, in_dims)(*tensors)
        assert same(torch.vmap(add, in_dims)(*tensors), wanted)
        nested = torch.vmap(torch.vmap(add, in_dims), (None, 0))
        assert same(nested(tensors[0], torch.stack([tensors[1]] * 2)), torch.stack([wanted] * 2))


def test_a_gradient_inside_of_vmap():
    row, matrices = rows(4), rows(3, 2, 4, seed=1)
    for mul in (skuda.mul, torch.ops.skuda.mul):
        slope = torch.func.grad(lambda row, x: mul(mul(x, row), x[:, :1]).sum())  # noqa: B023
        wanted = torch.func.grad(lambda row, x: (x * row * x[:, :1]).sum())
        found = torch.func.vmap(slope, (None, 0))(row, matrices)
        assert torch.allclose(found, torch.func.vmap(wanted, (None, 0))(row, matrices), atol=1e-6)


def test_numbers_beside_tensors_that_torch_follows():
    x = rows(3).half().requires_grad_()
    made = skuda.sub(True, skuda.mul(x, 0.1))
    assert same(made.detach(), 1 - x.detach() * torch.tensor(0.1).half())
    made.sum().backward()
    assert same(x.grad, torch.full((3,), -0.1).half())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = skuda.addcmul(x.detach(), rows(3), 2)  # of f16 and f32
    assert same(wide, x.detach() + rows(3) * 2)
    with pytest.raises(ElementMismatch, match=r"AddPlan: b is 0\.5, expected an integer \(i64\)"):
        torch.func.vmap(lambda each: skuda.add(each, 0.5))(torch.arange(3))
    with pytest.raises(InvalidProblem, match="MulPlan: b has shape .*2.*, expected one that broadcasts with a's"):
        skuda.mul(x, rows(2).half())
    out = torch.empty(3, dtype=torch.float16)
    with torch.no_grad():
        assert skuda.mul(x, 2, out=out) is out
        torch.ops.skuda.add_out(x, out[0].clone(), out)
    assert same(out, x.detach() + x.detach()[0] * 2)
