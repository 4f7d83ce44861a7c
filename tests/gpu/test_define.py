"""Operations that a session defines, on the GPU: the bits of the CPU, with gradients, and after a redefinition."""

from __future__ import annotations

import pytest
import torch

import skuda
from skuda.codegen import define
from skuda.launch import registry

SWISH = """
    swish_defined:
      inputs: {x: "T[*n, d]", weight: "T[d]"}
      attrs: {beta: C = 1}
      let: {gate: 1 / (1 + exp(-beta * x))}
      outputs:
        top: f32[*n] = max(abs(x), over=d)
        y: T[*n, d] = x * gate * weight
      backward:
        d_x: T[*n, d] = d_y * weight * gate * (1 + beta * x * (1 - gate))
"""


@pytest.fixture
def x():
    yield torch.randn(64, 257, generator=torch.Generator().manual_seed(1))
    if (made := define._by_name.pop("swish_defined", None)) is not None:
        registry.forget(made.catalog)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bits_and_gradients(x, dtype):
    swish = skuda.define(SWISH)
    weight = torch.linspace(0.5, 2, 257)
    found = []
    for device in ("cpu", "cuda"):
        leaf = x.to(device, dtype, copy=True).requires_grad_()
        made = swish(leaf, weight.to(device, dtype), beta=0.75)
        made.y.float().square().sum().backward()
        found.append([each.cpu() for each in (made.top, made.y, leaf.grad)])
    assert [torch.equal(*pair) for pair in zip(*found)] == [True, True, True]


def test_the_kernel_is_that_of_the_last_definition(x):
    inputs = x.cuda(), torch.ones(257, device="cuda")
    first = skuda.define(SWISH)(*inputs)
    doubled = skuda.define(SWISH.replace("x * gate * weight", "2 * (x * gate * weight)"))
    for _ in range(3):  # what is found for later calls too
        assert torch.equal(doubled(*inputs).y, 2 * first.y)
    compiled = torch.compile(lambda *inputs: doubled(*inputs).y, fullgraph=True)
    assert torch.equal(compiled(*inputs), 2 * first.y)


NORM = """
    norm_derived:
      inputs: {x: "T[*n, d]", weight: "T[d]", bias: "T[d] = 0"}
      let: {centered: "x - mean(x, over=d)"}
      outputs:
        y: T[*n, d] = centered / sqrt(mean(centered * centered, over=d) + 1e-5) * weight + bias
      backward: derived
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_derived_gradients_have_the_bits_of_the_cpu(x, dtype):
    norm = skuda.define(NORM)
    found = []
    for device in ("cpu", "cuda"):
        leaves = [each.to(device, dtype, copy=True).requires_grad_() for each in (x, torch.linspace(0.5, 2, 257))]
        made = norm(*leaves)
        made.backward(torch.ones_like(made).cumsum(0) / 64)
        found.append([each.cpu() for each in (made.detach(), *(leaf.grad for leaf in leaves))])
    registry.forget(define._by_name.pop("norm_derived").catalog)
    assert [torch.equal(*pair) for pair in zip(*found)] == [True, True, True]
