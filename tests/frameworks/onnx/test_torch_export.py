"""`torch.onnx.export` of models that use skuda's operators."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from calls import draw, near, run, same
from test_operations import EXACT, PLANS

import skuda
import skuda.torch
from skuda.arrays.libraries import torch_dtypes
from skuda.onnx import translation_table

OPSET = 21
PARTS = 6


def exported(model, inputs, opset=OPSET, **options):
    """The model of ONNX that a model becomes; `opset` None leaves it to the exporter."""
    table = translation_table() if opset is None else translation_table(opset)
    program = torch.onnx.export(
        model, inputs, dynamo=True, opset_version=opset, custom_translation_table=table, verbose=False, **options
    )
    return program.model_proto


class Block(torch.nn.Module):
    """A linear layer of 8-bit codes between two norms."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.rand(32, generator=generator))
        self.matrix = torch.nn.Parameter(torch.randn(32, 16, generator=generator) / 6)

    def forward(self, x):
        normal = skuda.rms_norm(x, self.weight)
        scale, codes = skuda.dynamic_quantize_per_token(normal, dtype="s8")
        y = skuda.dequantize_per_token(codes, scale, dtype="f32") @ self.matrix
        return codes, skuda.softmax(y, axis=-1), skuda.layer_norm(y), skuda.sum(y, axis=1, keepdims=True)


@pytest.mark.parametrize("opset", [None, OPSET])
def test_a_model_with_a_batch_of_any_size(opset):
    model, x = Block().eval(), torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    made = exported(model, (x,), opset, dynamic_shapes=({0: "batch"},))
    for count in (4, 7):
        x = torch.randn(count, 32, generator=torch.Generator().manual_seed(count))
        ours = [each.detach().numpy() for each in model(x)]
        theirs = run(made, [x.numpy()])
        for one, other in zip(ours, theirs, strict=True):
            assert near(one, other, False).all()
        assert np.array_equal(ours[0], theirs[0])


class Broadcast(torch.nn.Module):
    """Functions and operators of tensors of several shapes, and of numbers."""

    def forward(self, x, row, column):
        x = skuda.sub(1.5, torch.ops.skuda.mul(x, row))
        return torch.ops.skuda.addcmul(column, row, skuda.maximum(x, column))


def test_tensors_of_several_shapes_and_numbers():
    inputs = torch.randn(4, 3), torch.randn(3), torch.randn(4, 1)
    made = exported(Broadcast().eval(), inputs, dynamic_shapes=({0: "batch"}, None, {0: "batch"}))
    for count in (1, 7):
        inputs = torch.randn(count, 3), torch.randn(3), torch.randn(count, 1)
        (found,) = run(made, [each.numpy() for each in inputs])
        assert same(Broadcast()(*inputs).numpy(), found).all()


class Creates(torch.nn.Module):
    """Calls without arrays: of a shape that is known, and of an input's."""

    def forward(self, x):
        steps = skuda.linspace(x.shape[1], 0.0, 1.0, device="cpu", dtype="f32")
        steps = steps + skuda.arange(4, 0.5, like=x, dtype="f32")
        drawn = skuda.rand(x.shape, seed=3, like=x, dtype="f32") + skuda.full((4,), 1.5, like=x)
        return x @ skuda.eye((4, 4), like=x, dtype="f32") + steps, drawn


def test_calls_without_arrays():
    made = exported(Creates().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "batch"},))
    for count in (2, 7):
        x = torch.randn(count, 4)
        for ours, theirs in zip(Creates()(x), run(made, [x.numpy()]), strict=True):
            assert np.allclose(ours, theirs, rtol=1e-6, atol=1e-7)


class Calls(torch.nn.Module):
    """Calls of many operations."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, *tensors):
        tensors, made = list(tensors), []
        for call in self.calls:
            inputs, tensors = tensors[: len(call.inputs)], tensors[len(call.inputs) :]
            found = getattr(skuda, call.function)(*inputs, **call.options)
            made += found if isinstance(found, tuple) else [found]
        return tuple(made)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation(part):
    of_tensors = [name for name, plan in PLANS.items() if not plan.operation.creates]
    names = sorted(of_tensors)[part::PARTS]
    calls = [draw(PLANS[name], PLANS[name].operation.combinations[0], 4) for name in names]
    inputs = [np.asarray(each) for call in calls for each in call.inputs]
    found = iter(run(exported(Calls(calls).eval(), tuple(map(tensor_of, inputs))), inputs))
    for call in calls:
        for ours in call.ours():
            theirs = next(found)
            alike = same(ours, theirs) if call.function in EXACT else near(ours, theirs, False)
            assert alike.all(), (call.function, ours, theirs)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor with the elements of an array."""
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(np.array(array))
    name = {each.name: dtype for each, dtype in torch_dtypes().items()}[array.dtype.name]
    return torch.from_numpy(np.array(array).view({1: np.uint8, 2: np.int16}[array.itemsize])).view(name)
