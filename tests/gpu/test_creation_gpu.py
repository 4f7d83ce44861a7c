"""Calls without arrays on a GPU: the bits of the CPU, in the library and on the device that they say."""

from __future__ import annotations

import cupy
import numpy as np
import torch

import skuda

CALLS = [
    (skuda.full, {"value": 1.5}), (skuda.full, {"value": 3, "dtype": "u8"}), (skuda.rand, {"seed": 7}),
    (skuda.randn, {"seed": 7, "offset": 1 << 40}), (skuda.randn, {"seed": -1, "dtype": "bf16"}),
    (skuda.arange, {"start": 0.5, "step": 0.1}), (skuda.arange, {}),
]  # fmt: skip


def test_the_bits_are_those_of_the_cpu():
    for function, said in CALLS:
        for length in (1, 1000, (1 << 20) + 3):
            expected = function(length, **said)
            for made in (function(length, device=0, **said), function(length, like=cupy.ones(1), **said)):
                assert isinstance(made, cupy.ndarray)
                assert cupy.asnumpy(made.view(f"u{made.itemsize}")).tobytes() == expected.tobytes(), (function, said)
            for made in (function(length, device="cuda", **said), function(length, like=torch.ones(1).cuda(), **said)):
                assert isinstance(made, torch.Tensor) and made.is_cuda
                assert made.cpu().view(torch.uint8).numpy().tobytes() == expected.tobytes(), (function, said)
    assert np.array_equal(cupy.asnumpy(skuda.eye((70, 300), diagonal=3, device=0)), np.eye(70, 300, 3, np.float32))


def test_a_seed_on_the_device_and_an_array_to_write():
    out = torch.empty(100, 30, device="cuda", dtype=torch.float16).t()
    made = skuda.randn(None, torch.tensor(5, device="cuda"), out=out)
    assert made is out and np.array_equal(out.cpu().numpy(), skuda.randn((30, 100), 5, dtype="f16"))
    compiled = torch.compile(lambda x: x + skuda.randn(x.shape, 5, device="cuda"), fullgraph=True)
    x = torch.zeros(30, 100, device="cuda")
    assert np.array_equal(compiled(x).cpu().numpy(), skuda.randn((30, 100), 5))
