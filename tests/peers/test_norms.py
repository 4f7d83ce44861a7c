"""torch's norms on the CPU: without weights and biases, and with f32 weights beside half inputs.

torch adds in another order, so values are near each other and not the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import skuda

from .test_torch import STORAGE, TORCH, to_numpy, to_torch

NEAR = {"f64": 1e-14, "f32": 5e-6, "f16": 2e-3, "bf16": 1.6e-2}
MIXED = [(element, element) for element in TORCH] + [("f16", "f32"), ("bf16", "f32")]
ABSENT = {"rms_norm": ((), ("weight",)), "layer_norm": ((), ("bias",), ("weight", "bias"))}


def torch_norm(name: str, x: torch.Tensor, weight, bias) -> torch.Tensor:
    if name == "layer_norm":
        return functional.layer_norm(x, x.shape[-1:], weight, bias, eps=1e-5)
    if weight is not None and weight.dtype != x.dtype:  # torch multiplies after rounding to the input's type
        return (functional.rms_norm(x.to(weight.dtype), x.shape[-1:], weight, eps=1e-6)).to(x.dtype)
    return functional.rms_norm(x, x.shape[-1:], weight, eps=1e-6)


def near(actual: np.ndarray, expected: torch.Tensor, element: str) -> None:
    expected = to_numpy(expected)
    assert actual.dtype == expected.dtype
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=NEAR[element] * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize(("element", "weight_element"), MIXED)
@pytest.mark.parametrize(("name", "absent"), [(name, each) for name, every in ABSENT.items() for each in every])
def test_forward_and_backward(name, absent, element, weight_element):
    rng = np.random.default_rng(8)
    arrays = {"input": rng.normal(0.5, 2, (7, 130)).astype(STORAGE[element])}
    for parameter in ("weight", "bias")[: 1 if name == "rms_norm" else 2]:
        if parameter not in absent:
            arrays[parameter] = rng.normal(1, 0.3, 130).astype(STORAGE[weight_element])
    tensors = {key: to_torch(array).requires_grad_() for key, array in arrays.items()}
    expected = torch_norm(name, tensors["input"], tensors.get("weight"), tensors.get("bias"))
    actual = getattr(skuda, name)(**arrays)
    near(actual, expected, element)
    gradient = rng.normal(size=(7, 130)).astype(STORAGE[element])
    expected.backward(to_torch(gradient))
    given = {key: array for key, array in arrays.items() if key != "bias"}
    said = {"without": "bias"} if absent == ("bias",) else {}
    found = getattr(skuda, f"{name}_backward")(gradient, **given, **said)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(tensors)
    for (key, tensor), result in zip(tensors.items(), found, strict=True):
        assert result.dtype == arrays[key].dtype
        near(result, tensor.grad, element)  # of mixed types too, no better than what was rounded to the input's type
