"""Named tuples of several outputs in torch: its compiler, its transforms, its trees and its exported programs."""

from __future__ import annotations

import io

import pytest
import torch
from torch.utils import _pytree as pytree

import skuda

NAMED = skuda.LayerNormDynamicQuantizeResults


def quantized(x: torch.Tensor):
    return skuda.layer_norm_dynamic_quantize(x)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0))


def test_eager_compiled_and_mapped_calls_return_the_class(x):
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
    expected = quantized(x)
    for made in (expected, compiled(x), torch.func.vmap(quantized)(x)):
        assert type(made) is NAMED
        torch.testing.assert_close(tuple(made), tuple(expected), rtol=0, atol=0)


def test_names_are_read_within_a_compiled_function(x):
    def scales(x):
        scale, output = made = quantized(x)
        return made.scale * 2, made.output, scale, output[..., :1]

    compiled = torch.compile(scales, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), scales(x), rtol=0, atol=0)


def test_a_gradient_goes_through_a_name(x):
    weight = torch.ones(8, requires_grad=True)
    x.requires_grad_()
    made = skuda.add_rms_norm(x, x.detach(), weight)
    assert type(made) is skuda.AddRmsNormResults
    made.output.square().sum().backward()
    by_position = torch.autograd.grad(skuda.add_rms_norm(x, x.detach(), weight)[-1].square().sum(), (x, weight))
    torch.testing.assert_close((x.grad, weight.grad), by_position, rtol=0, atol=0)

    def loss(x):
        return skuda.add_rms_norm(x, x.detach(), weight.detach()).output.square().sum()

    torch.testing.assert_close(torch.func.grad(loss)(x.detach()), x.grad, rtol=0, atol=0)


def test_a_tree_has_each_output_as_a_leaf(x):
    shapes = pytree.tree_map(lambda leaf: tuple(leaf.shape), quantized(x))
    assert shapes == NAMED(scale=(3, 4), output=(3, 4, 8)) and type(shapes) is NAMED


def test_an_exported_program_keeps_the_class(x):
    class Model(torch.nn.Module):
        def forward(self, x):
            return quantized(x)

    file = io.BytesIO()
    torch.export.save(torch.export.export(Model(), (x,)), file)
    file.seek(0)
    made = torch.export.load(file).module()(x)
    assert type(made) is NAMED
    torch.testing.assert_close(made, quantized(x), rtol=0, atol=0)
