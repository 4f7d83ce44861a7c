"""What a layer of 8-bit codes costs, and codes that several layers share: how often a tensor is quantized."""

from __future__ import annotations

import copy
import gc
import io
import math
import threading
import weakref

import pytest
import torch
from operations import same
from torch.utils._python_dispatch import TorchDispatchMode

import skuda
import skuda.torch.nn as nn
from skuda.torch import linear, patch


class Dispatched(TorchDispatchMode):
    """The names of the operators that run under it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name().partition("::")[2].partition(".")[0])
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "code, steps",
    [
        ("s8", ["dynamic_quantize_per_token", "int8_linear"]),
        ("e4m3", ["dynamic_quantize_fp8_per_token", "unsqueeze", "t", "unsqueeze", "_scaled_mm"]),
    ],
)
def test_a_layer_takes_no_more_steps_than_it_needs(monkeypatch, code, steps):
    """Of a matrix whose extents torch's products take: no view that changes nothing, no cast, no cut."""
    monkeypatch.setattr(linear, "has_scaled_product", lambda device: True)
    layer = nn.Linear8Bit.of(torch.nn.Linear(32, 48).bfloat16(), code)
    x = torch.randn(20, 32).bfloat16()
    with torch.no_grad(), Dispatched() as dispatched:
        layer(x)
    assert dispatched.names == steps
    with torch.no_grad(), Dispatched() as dispatched:
        layer(x[None])
    assert dispatched.names[1:] == ["view", *steps, "view"]  # after `[None]`


def test_a_device_is_asked_once_what_it_can_do(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: asked.append(device) or (9, device.index))
    monkeypatch.setattr(linear, "_SCALED", {})
    devices = [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert [linear.has_scaled_product(device) for device in devices * 3] == [True] * 6
    assert asked == devices and not linear.has_scaled_product(torch.device("cpu"))


# ---- codes that layers share ----


class Attention(torch.nn.Module):
    """Three layers of one tensor, and one of as many features behind them."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (torch.nn.Linear(24, 24) for _ in range(4))

    def forward(self, x):
        return self.out(self.query(x) * torch.sigmoid(self.key(x)) + self.value(x))


@pytest.fixture
def counted(monkeypatch):
    """The tensors that layers quantize."""
    found, quantized = [], linear.quantized

    def noted(x, *rest):
        found.append(x)
        return quantized(x, *rest)

    monkeypatch.setattr(linear, "quantized", noted)
    return found


def model_of(code: str = "s8", **options):
    torch.manual_seed(0)
    model = Attention().eval()
    patch(model, linear=code, **options)
    return model


def alone(model: Attention) -> Attention:
    """The same layers, each of which quantizes for itself."""
    model = copy.deepcopy(model)
    for layer in model.children():
        layer.shared = None
    return model


@pytest.mark.parametrize("shape", [(5, 24), (2, 3, 24), (24,)])
@pytest.mark.parametrize("code", ["s8", "e4m3"])
@torch.no_grad()
def test_a_tensor_is_quantized_once(counted, code, shape):
    model, x = model_of(code), torch.randn(shape)
    counted.clear()
    found = model(x)
    assert len(counted) == 2  # of three layers, and of the one behind
    model(x)
    assert len(counted) == 4  # a second pass begins again
    assert same(found, alone(model)(x)) and len(counted) == 8


@torch.no_grad()
def test_what_was_written_since_is_quantized_again(counted):
    model, x = model_of(), torch.randn(5, 24)
    plain = alone(model)
    counted.clear()
    model.query(x)
    x.add_(1)
    assert same(model.key(x), plain.key(x)) and len(counted) == 3
    x[0].mul_(2)  # by a view
    assert same(model.value(x), plain.value(x)) and len(counted) == 5
    other = torch.randn(5, 24)
    model.query(x)
    x.data = other
    assert same(model.key(x), plain.key(x)) and len(counted) == 7
    assert same(model.value(other), plain.value(other)) and len(counted) == 9  # another tensor of the same memory


@torch.no_grad()
def test_each_layer_takes_codes_once(counted):
    """What is written without a version, such as by a kernel of the caller's, is seen by the next pass."""
    model, x = model_of(), torch.randn(5, 24)
    counted.clear()
    model(x)
    x.numpy()[:] = 1
    assert same(model(x), alone(model)(x))
    model.key(x)
    model.key(x)
    assert len(counted) == 10


def test_in_inference_mode_each_layer_quantizes_its_tensor(counted):
    """Its tensors say nothing of what was written to them; others do there too."""
    model = model_of()
    plain = alone(model)
    with torch.inference_mode():
        x = torch.randn(5, 24)
        model.query(x)
        x.add_(1)
        assert same(model.key(x), plain.key(x))
    x = torch.randn(5, 24)
    with torch.inference_mode():
        counted.clear()
        model.query(x), model.key(x)
        assert len(counted) == 1
        x.add_(1)
        assert same(model.value(x), plain.value(x)) and len(counted) == 3


@pytest.mark.parametrize("kept", [False, True])
@torch.no_grad()
def test_no_codes_are_kept(kept):
    """They go with their tensor, or when all layers have had them, or when another tensor comes."""
    model, x = model_of(), torch.randn(5, 24)
    codes = model.query.shared.codes(model.query, x)
    values = weakref.ref(codes.values)
    del codes
    assert values() is not None
    if not kept:
        del x
    else:
        for layer in (model.key, model.value):
            layer(x)
            assert values() is not None
        model.out(x)
    gc.collect()
    assert values() is None
    first, second = torch.randn(5, 24), torch.randn(5, 24)
    values = weakref.ref(model.query.shared.codes(model.query, first).values)
    model.query(second)
    assert values() is None


@torch.no_grad()
def test_threads_do_not_share(counted):
    model, x = model_of(), torch.randn(5, 24)
    counted.clear()
    model.query(x)
    thread = threading.Thread(target=torch.no_grad()(model.key), args=(x,))
    thread.start()
    thread.join()
    assert len(counted) == 2


@torch.no_grad()
def test_threads_that_run_one_model():
    model, x = model_of(), torch.randn(5, 24)
    wanted, wrong = alone(model)(x), []

    def run():
        with torch.no_grad():
            wrong.extend(not same(model(x), wanted) for _ in range(30))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 90


def test_gradients_and_transforms_do_not_share(counted):
    model, x = model_of(), torch.randn(5, 24, requires_grad=True)
    with torch.no_grad():
        model.query(x)
    counted.clear()
    with pytest.raises(skuda.errors.Unsupported, match="no gradient is declared"):
        model.key(x).sum().backward()
    assert len(counted) == 1
    with torch.no_grad():
        counted.clear()
        torch.func.vmap(lambda row: model.query(row) + model.key(row))(x)
        assert len(counted) == 2
        with Dispatched():
            model.query(x), model.key(x)
        assert len(counted) == 4


@torch.no_grad()
def test_compiled_layers_do_not_share():
    torch._dynamo.reset()
    model, x = model_of(), torch.randn(5, 24)
    wanted = alone(model)(x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    model.query(x)  # a graph must not read what was made outside of it
    x.numpy()[:] *= -1
    assert same(compiled(x), alone(model)(x)) and not same(compiled(x), wanted)


@torch.no_grad()
def test_copies_share_among_themselves(counted):
    model, file, x = model_of(), io.BytesIO(), torch.randn(5, 24)
    model.query(x)
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        shared = {id(layer.shared) for layer in other.children()}
        assert len(shared) == 1 and shared != {id(model.query.shared)}
        counted.clear()
        assert same(other(x), model(x)) and len(counted) == 4


@torch.no_grad()
def test_layers_that_quantize_unlike_do_not_share(counted):
    """Another number of features, another code, a layer that stays, something before it, codes of one's own."""
    model = model_of(keep=("out",))
    assert {layer.shared.layers for layer in (model.query, model.key, model.value)} == {3}
    other = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.Linear(40, 24), torch.nn.Sequential(model.query))
    patch(other, linear="e4m3")
    assert other[0].shared is other[1].shared is None and other[2][0].shared is model.query.shared
    x = torch.randn(5, 24)
    model.key.before = nn.GELU()
    counted.clear()
    model.query(x)
    assert same(model.key(x), alone(model).key(x)) and len(counted) == 3
    codes = nn.quantized(x)
    assert same(model.value(codes), alone(model).value(x)) and math.prod(codes.scale.shape) == 5
