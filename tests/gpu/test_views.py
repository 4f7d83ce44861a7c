"""Operations of views as models make them, on the GPU: the bits of the CPU.

Heads beside each other, crops, columns of a wider matrix, channels last, every second element: tests/problems.py has
few calls of operands that lie along so many axes.
"""

from __future__ import annotations

import pytest
import torch

import skuda

VIEWS = {
    "heads": lambda x: x((3, 37, 6, 40)).transpose(1, 2),
    "odd heads": lambda x: x((3, 37, 6, 33)).transpose(1, 2),
    "heads of three": lambda x: x((2, 37, 3, 6, 40))[:, :, 2].transpose(1, 2),
    "crop": lambda x: x((5, 3, 64, 64))[:, :, 7:60, 16:48],
    "odd crop": lambda x: x((5, 3, 64, 64))[:, :, 7:60, 15:50],
    "columns": lambda x: x((67, 600))[:, :300],
    "odd columns": lambda x: x((67, 601))[:, 1:300],
    "few columns": lambda x: x((500, 67))[:, :33],
    "channels last": lambda x: x((3, 40, 9, 17)).permute(0, 2, 3, 1),
    "every second column": lambda x: x((65, 600))[:, ::2],
    "every second row": lambda x: x((90, 264))[::2],
    "of five axes": lambda x: x((4, 3, 5, 6, 16)).permute(0, 2, 1, 3, 4),
    "few rows": lambda x: x((4, 20_000)),
    "few odd rows": lambda x: x((3, 2, 9999)),
}
MAPS = {
    "neg": lambda x: skuda.neg(x),
    "gelu": lambda x: skuda.gelu(x),
    "round_decimals": lambda x: skuda.round_decimals(x, decimals=2),
    "mul": lambda x: skuda.mul(x, x.flip(0)),
    "mul by the last axis": lambda x: skuda.mul(x, x[(0,) * (x.ndim - 1)]),
    "mul by the first axis": lambda x: skuda.mul(x, x[(slice(None), *[slice(1)] * (x.ndim - 1))]),
    "prelu": lambda x: skuda.prelu(x, x[(0, slice(None), *[0] * (x.ndim - 2))].contiguous(), axis=1),
    "cumsum": lambda x: skuda.cumsum(x),
    "softmax": lambda x: skuda.softmax(x),
    "rms_norm": lambda x: skuda.rms_norm(x, x[(0,) * (x.ndim - 1)].contiguous()),
}
REDUCTIONS = ("sum", "mean", "amax", "argmax", "var", "prod", "logsumexp", "count_nonzero")


def alike(found, expected) -> bool:
    """Whether every byte is."""
    return torch.equal(found.cpu().contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def views(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The view on the GPU and on the CPU."""
    seeded = torch.Generator().manual_seed(7)
    made = VIEWS[name](lambda shape: torch.randn(shape, generator=seeded).to(dtype))
    base = made._base if made._base is not None else made
    return base.cuda().as_strided(made.shape, made.stride(), made.storage_offset()), made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("function", MAPS)
def test_maps_and_rows(function, name, dtype):
    ours, expected = map(MAPS[function], views(name, dtype))
    assert ours.is_cuda and alike(ours, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("function", REDUCTIONS)
def test_reductions_over_each_axis(function, name, dtype):
    ours, other = views(name, dtype)
    reduce = getattr(skuda, function)
    assert [
        axis for axis in range(other.ndim) if not alike(reduce(ours, axis=axis), reduce(other, axis=axis))
    ] == []
