"""`precision="fast"` on a GPU: how far functions are from their values, and that layouts do not matter."""

from __future__ import annotations

import math

import cupy
import numpy as np
import pytest
import torch

import skuda
from skuda.codegen.intrinsics import QUICKENED
from skuda.model.dtypes import DTYPES
from skuda.verification import nearness

VALUES = {
    "exp": np.exp,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "ndtr": np.vectorize(lambda x: math.erfc(-x / 2**0.5) / 2),
}
LEAST = {"f16": 2.0**-14, "bf16": nearness.SMALLEST, "f32": nearness.SMALLEST}  # below, nothing is said


def values(element: str) -> np.ndarray:
    """All values of a type of 16 bits, or many of f32."""
    storage = DTYPES[element].storage
    if storage.itemsize == 2:
        return np.arange(1 << 16, dtype=np.uint16).view(storage)
    return np.random.default_rng(2).normal(0, 20, 1 << 20).astype(np.float32)


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", sorted(QUICKENED))
def test_functions_are_within_their_bounds(name, element):
    """As they are stored: rounding adds less than half a step."""
    function = skuda.define(
        types={"T": [element]}, inputs={"x": "T[*n]"}, attrs={"precision": "precision = exact"},
        outputs={"y": f"T[*n] = {name}(x)"},
    )
    x = values(element)
    x = x[np.isfinite(x.astype(np.float32))]
    bits = torch.from_numpy(x.view(f"i{x.itemsize}").copy()).cuda()
    tensor = bits.view({"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[element])
    made = function(tensor, precision="fast")
    with np.errstate(over="ignore"):
        expected = VALUES[name](x.astype(np.float64))
    said = (expected >= LEAST[element]) & (expected < float(torch.finfo(tensor.dtype).max))
    off = np.abs(made.double().cpu().numpy()[said] - expected[said]) / expected[said]
    allowed = 2.0 ** nearness.BOUNDS[element] + torch.finfo(tensor.dtype).eps / 2
    assert off.max() <= allowed, (x[said][off.argmax()], off.max())
    bent = function(tensor) != made
    assert element == "f32" or 0 < bent.sum() < 0.25 * len(x)  # not the exact form


@pytest.mark.parametrize("element", ["f16", "f32"])
@pytest.mark.parametrize("name", ["gelu_tanh_dynamic_quantize", "gelu_dynamic_quantize", "gelu_dynamic_quantize_fp8"])
def test_layouts_do_not_matter(name, element):
    """Also beside infinities, for which some threads take another way."""
    rng = np.random.default_rng(3)
    x = rng.normal(0, 2, (300, 1031)).astype(DTYPES[element].storage)
    x[rng.random(x.shape) < 0.002] = np.inf
    wide = np.zeros((300, 1100), x.dtype)
    wide[:, 33 : 33 + 1031] = x
    found = []
    for array in (cupy.asarray(x), cupy.asarray(wide)[:, 33 : 33 + 1031], cupy.asarray(x.T.copy()).T):
        made = getattr(skuda, name)(array, precision="fast")
        found.append([cupy.asnumpy(each.view(np.uint8) if each.dtype.itemsize == 1 else each) for each in made])
    for other in found[1:]:
        assert all(one.tobytes() == two.tobytes() for one, two in zip(found[0], other, strict=True))
    exact = getattr(skuda, name)(cupy.asarray(x))
    codes, others = cupy.asnumpy(exact.output.view(np.uint8)), found[0][1].view(np.uint8)
    word = "e4m3" if name.endswith("fp8") else "s8"
    assert nearness.beyond(others, codes, word, element) == 0
    assert np.count_nonzero(codes != others) < 0.01 * codes.size
