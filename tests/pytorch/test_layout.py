"""Operators make tensors that lie as the functions make them, and their fakes say so: memory format is preserved."""

from __future__ import annotations

import pytest
import torch
from operations import call_of, of_tensors, plans
from torch._subclasses import FakeTensorMode

import skuda
import skuda.torch
from skuda.plans.functions import Call, each_of
from skuda.torch import carry, operator_of

BATCH = torch.nn.functional.batch_norm


def permuted(value):
    """A tensor with the same elements that lies the other way round."""
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return value
    order = tuple(reversed(range(value.ndim)))
    return value.permute(order).contiguous().permute(order)


def of(call: Call, inputs) -> Call:
    rest = (getattr(call, name) for name in call._fields[2:])
    return Call(call.plan_class, tuple(inputs), *rest)


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", of_tensors())
def test_fakes_and_meta_tensors_lie_as_others(name):
    call = call_of(plans()[name])
    for inputs in ([permuted(each) for each in call.inputs], [permuted(call.inputs[0]), *call.inputs[1:]]):
        found = each_of(of(call, inputs).run())
        values = operator_of(call.plan_class)
        as_operator = each_of(values.apply(of(call, inputs)))
        on_meta = each_of(carry(of(call, [each.to("meta") for each in inputs])))
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(each) for each in inputs]
            fake = each_of(values.apply(of(call, fakes)))
        for tensors in zip(found, as_operator, on_meta, fake, strict=True):
            assert len({(each.shape, each.stride()) for each in tensors}) == 1


X = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
LAST = X.to(memory_format=torch.channels_last)


def chain(x):
    each = x.new_ones(x.shape[1])
    return skuda.silu(x), skuda.mul(skuda.exp(x * 2), x).sum((2, 3)), skuda.batch_norm(x, each, each, each, each)


@pytest.mark.parametrize("make", [lambda: LAST, lambda: X, lambda: X.transpose(1, 3), lambda: X.half().mT])
def test_calls_lie_as_torch_s(make):
    x = make()
    assert skuda.silu(x).stride() == torch.nn.functional.silu(x).stride() == x.stride()
    assert skuda.mul(x, 2.0).stride() == (x * 2).stride()
    assert skuda.mul(x, torch.tensor(2.0, dtype=x.dtype)).stride() == x.stride()
    with FakeTensorMode() as mode:
        assert skuda.silu(mode.from_tensor(x)).stride() == x.stride()


@pytest.mark.turns(2)
@pytest.mark.parametrize("compiler", [torch.compile, lambda f, **o: skuda.torch.compile(f, fusible=True, **o)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(compiler, dynamic):
    torch._dynamo.reset()
    compiled = compiler(chain, fullgraph=True, dynamic=dynamic)
    for x in (LAST, torch.cat([LAST, LAST]).to(memory_format=torch.channels_last), X, X.transpose(1, 3)):
        for one, other in zip(compiled(x), chain(x), strict=True):
            assert one.stride() == other.stride()
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("make", [lambda: LAST, lambda: X])
def test_values_of_channels_do_not_decide(make):
    x, each = make(), torch.rand(3, 1, 1)
    mean, var, weight, bias = (torch.rand(3) + 0.5 for _ in range(4))
    assert skuda.add(x, each).stride() == skuda.add(each, x).stride() == (x + each).stride() == x.stride()
    assert skuda.where(x > 0, x, each).stride() == x.stride()
    assert skuda.batch_norm(x, mean, var, weight, bias).stride() == BATCH(x, mean, var, weight, bias).stride()
    trained = skuda.batch_norm_training(x, mean, var, weight, bias)[0]
    assert trained.stride() == BATCH(x, mean, var, weight, bias, True).stride() == x.stride()
    assert skuda.prelu(x, weight).stride() == torch.nn.functional.prelu(x, weight).stride()
    assert skuda.softmax(x, axis=1).is_contiguous()
    assert skuda.layer_norm(x.mT, torch.rand(4), torch.rand(4)).is_contiguous()


def test_gradients():
    for x in (LAST, X):
        x = x.clone().requires_grad_()
        y = skuda.silu(x)
        assert y.stride() == x.stride()
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert gradient.stride() == x.stride()
        torch._dynamo.reset()
        (compiled,) = torch.autograd.grad(torch.compile(skuda.silu)(x), x, torch.ones_like(y))
        assert torch.equal(gradient, compiled)
        y = skuda.batch_norm_training(x, torch.rand(3), torch.rand(3), torch.rand(3), torch.rand(3))[0]
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert gradient.stride() == y.stride() == x.stride()


def test_vmap_and_func():
    batch = torch.stack([LAST, LAST])
    assert torch.equal(torch.vmap(skuda.silu)(batch), skuda.silu(batch))
    gradient = torch.func.grad(lambda x: skuda.silu(x).sum())(LAST)
    assert torch.equal(gradient, torch.func.grad(lambda x: skuda.silu(x).sum())(X))
    assert gradient.stride() == LAST.stride()


def test_an_unknown_extent():
    """Of a tensor whose extents are symbols without a value nothing is asked that these would have to say."""
    @torch.compile(fullgraph=True)
    def function(x):
        return skuda.silu(x.nonzero().float())

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(function(X[0, 0]), skuda.silu(X[0, 0].nonzero().float()))
