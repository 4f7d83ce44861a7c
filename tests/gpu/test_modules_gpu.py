"""Modules of skuda.torch.nn on a GPU: layers of 8-bit codes beside the CPU's, padded and not, eager and compiled."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import skuda
import skuda.torch.nn as nn
from skuda.torch import int8_product as int8_products
from skuda.torch import linear
from skuda.torch.int8_product import int8_product
from skuda.torch.linear import has_scaled_product

SHAPES = [  # rows, features before and after: what torch's products take, and what has to be padded
    (32, 64, 128), (1, 64, 128), (17, 64, 128), (16, 64, 128), (33, 20, 50), (0, 64, 128), (300, 384, 1536),
]  # fmt: skip


def layer_of(inputs: int, outputs: int, code: str, dtype, bias: bool = True):
    torch.manual_seed(0)
    linear = torch.nn.Linear(inputs, outputs, bias=bias).to(dtype)
    with torch.no_grad():
        linear.weight.copy_(torch.randn(outputs, inputs) / math.sqrt(inputs))
    return nn.Linear8Bit.of(linear, code)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows, inputs, outputs", SHAPES)
def test_s8_has_the_bits_of_the_cpu(rows, inputs, outputs, dtype, bias):
    layer, x = layer_of(inputs, outputs, "s8", dtype, bias), torch.randn(rows, inputs).to(dtype)
    with torch.no_grad():
        wanted, found = layer(x), layer.cuda()(x.cuda()).cpu()
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows, inputs, outputs", SHAPES)
def test_e4m3_is_near_the_cpu(rows, inputs, outputs, dtype, bias):
    layer, x = layer_of(inputs, outputs, "e4m3", dtype, bias), torch.randn(rows, inputs).to(dtype)
    with torch.no_grad():
        wanted, found = layer(x), layer.cuda()(x.cuda()).cpu()
    assert has_scaled_product(torch.device("cuda")) == (torch.cuda.get_device_capability() >= (8, 9))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if rows:
        bound = 0.02 * wanted.double().abs().max()  # sums of fewer bits, and a rounding to bf16
        assert (found.double() - wanted.double()).abs().max() <= bound


@pytest.mark.parametrize("code", ["s8", "e4m3"])
def test_compiled(code):
    torch._dynamo.reset()
    layer = layer_of(64, 128, code, torch.bfloat16).cuda()
    layer.before = nn.RMSNorm(64).cuda().bfloat16()
    compiled = torch.compile(layer, fullgraph=True)
    with torch.no_grad():
        for rows in (32, 5):
            x = torch.randn(rows, 64, device="cuda").bfloat16()
            assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize("name, rest", [("RMSNorm", (64,)), ("LayerNorm", (64,)), ("GELU", ()), ("GELU", ("tanh",))])
@pytest.mark.parametrize("code", ["s8", "e4m3"])
def test_codes_of_what_is_before_have_the_bits_of_the_cpu(code, name, rest):
    before, x = getattr(nn, name)(*rest).bfloat16(), torch.randn(33, 64).bfloat16()
    with torch.no_grad():
        wanted, found = nn.quantized(x, code, before), nn.quantized(x.cuda(), code, before.cuda())
    assert torch.equal(found.scale.cpu(), wanted.scale)
    assert torch.equal(found.values.cpu().view(torch.int8), wanted.values.view(torch.int8))


# ---- codes that layers share ----


class Read(torch.nn.Module):
    """Two layers of one tensor."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(64, 64, bias=False).bfloat16() for _ in range(2))

    def forward(self, x):
        return self.first(x), self.second(x)


def shared_layers(code: str) -> tuple[Read, Read]:
    """Layers that share codes, and the same ones that do not."""
    torch.manual_seed(0)
    model = Read().cuda()
    skuda.torch.patch(model, linear=code)
    alone = copy.deepcopy(model)
    alone.first.shared = alone.second.shared = None
    return model, alone


def same(found, wanted) -> bool:
    return all(torch.equal(first, second) for first, second in zip(found, wanted, strict=True))


@pytest.mark.parametrize("code", ["s8", "e4m3"])
@torch.no_grad()
def test_codes_are_shared_on_one_stream(monkeypatch, code):
    model, alone = shared_layers(code)
    x, made, quantized = torch.randn(32, 64, device="cuda").bfloat16(), [], linear.quantized
    wanted = alone(x)
    monkeypatch.setattr(linear, "quantized", lambda *given: made.append(given) or quantized(*given))
    assert same(model(x), wanted) and len(made) == 1
    first = model.first(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        second = model.second(x)
    torch.cuda.current_stream().wait_stream(side)
    assert same((first, second), wanted) and len(made) == 3  # the stream beside waits for no codes


@pytest.mark.parametrize("code", ["s8", "e4m3"])
@torch.no_grad()
def test_a_graph_makes_its_own_codes(code):
    """Also where the same layers were called with the same tensor before, and one alone was last."""
    model, alone = shared_layers(code)
    x, side = torch.randn(32, 64, device="cuda").bfloat16(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
        model.first(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        second, first = model.second(x), model.first(x)
    for _ in range(2):
        x.copy_(torch.randn(32, 64))
        graph.replay()
        assert same((first, second), alone(x))


def test_lsq_learns_as_on_the_cpu():
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        module, x = nn.LSQ(4, channels=6), torch.randn(6, 500)
        module(x)
        module, x = module.to(device), x.to(device).requires_grad_()
        module(x).square().sum().backward()
        results.append((x.grad.cpu(), module.scale.grad.cpu()))
    assert all(torch.equal(first, second) for first, second in zip(*results))


def test_a_patched_model():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 128), torch.nn.LayerNorm(128), torch.nn.GELU(), torch.nn.Softmax(-1)
    model, x = torch.nn.Sequential(*layers).cuda(), torch.randn(9, 64, device="cuda")
    wanted = model(x)
    report = skuda.torch.patch(model, linear="s8")
    assert len(report.replaced) == 4 and not report.kept
    assert torch.allclose(model(x), wanted, atol=1e-2)
    report.undo()
    assert torch.equal(model(x), wanted)


@pytest.mark.parametrize("sizes", [(1, 3, 5), (1, 64, 128), (16, 64, 128), (33, 20, 52), (0, 4, 4), (1024, 4096, 512)])
def test_products_of_integers_are_exact(sizes):
    """By cuBLASLt where it takes the sizes, else padded."""
    left, right = (torch.randint(-128, 128, (each, sizes[2]), dtype=torch.int8) for each in sizes[:2])
    found = int8_product(left.cuda(), right.cuda())
    assert torch.equal(found.cpu(), int8_product(left, right))
    at = left.cuda()[:, 1:] if sizes[2] > 4 else left.cuda()  # begins and lies in another way
    part = right[:, : at.shape[1]]
    assert torch.equal(int8_product(at, part.cuda()).cpu(), int8_product(at.cpu(), part))
    graph, wanted = torch.cuda.CUDAGraph(), int8_product(right, left)
    left, right = left.cuda(), right.cuda()
    with torch.cuda.graph(graph):
        captured = int8_product(right, left)  # new sizes, first met here
    graph.replay()
    assert torch.equal(captured.cpu(), wanted)


def test_a_product_that_cublaslt_refuses_as_it_runs(monkeypatch):
    left, right = (torch.randint(-128, 128, (64, 32), dtype=torch.int8) for _ in range(2))
    monkeypatch.setattr(int8_products._Product, "__call__", lambda *arguments: False)
    assert torch.equal(int8_product(left.cuda(), right.cuda()).cpu(), int8_product(left, right))
