"""What tells tensors that are like those of an earlier call, in front of a launch that then asks no more of them."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from skuda.arrays.libraries import WATCHERS, library_named


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


class Subclass(torch.Tensor):
    pass


FOLLOWERS = library_named("torch").followers
FIRST, SECOND = torch.rand(4, 6), torch.rand(6)
OTHERS = {
    "shape": torch.rand(4, 7),
    "fewer axes": torch.rand(24),
    "strides": torch.rand(6, 4).T,
    "element type": torch.rand(4, 6, dtype=torch.float64),
    "device": torch.empty(4, 6, device="meta"),
    "requires grad": torch.rand(4, 6, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.rand(4, 6), requires_grad=False),
    "subclass": torch.rand(4, 6).as_subclass(Subclass),
    "negative": torch._neg_view(torch.rand(4, 6)),
    "number": 0.5,
}


def test_torch_tells_tensors_that_are_alike():
    """Where a later torch has no such guard, every call takes the longer way, and this test says so."""
    alike = FOLLOWERS["alike_of"]((FIRST, SECOND))
    assert alike(FIRST, SECOND) is True and alike(torch.rand(4, 6), torch.rand(6)) is True
    assert alike(SECOND, FIRST) is False


@pytest.mark.parametrize("kind", OTHERS)
def test_other_tensors_are_told(kind):
    alike = FOLLOWERS["alike_of"]((FIRST, SECOND))
    assert alike(OTHERS[kind], SECOND) is False


def test_a_tensor_that_became_another_is_told():
    tensor = torch.rand(4, 6)
    alike = FOLLOWERS["alike_of"]((tensor,))
    tensor.data = torch.rand(5, 6)
    assert alike(tensor) is False
    tensor.data = torch.rand(4, 6)
    assert alike(tensor) is True
    tensor.resize_(4, 5)
    assert alike(tensor) is False
    tensor.set_(torch.rand(6, 4).T)
    assert alike(tensor) is False


def test_what_requires_a_gradient_is_told_where_none_is_recorded_too():
    with torch.no_grad():
        alike = FOLLOWERS["alike_of"]((FIRST,))
        assert alike(FIRST) is True and alike(OTHERS["requires grad"]) is False


@pytest.mark.parametrize(
    "context", [Mode, FakeTensorMode, torch.inference_mode, forward_ad.dual_level, torch.no_grad, nullcontext]
)
def test_what_follows_a_call_is_told_by_the_guard_or_asked_in_each_call(context):
    alike, asked = FOLLOWERS["alike_of"]((FIRST,)), [FOLLOWERS[name] for name in WATCHERS]
    with context():
        seen = not alike(FIRST) or any(follows() for follows in asked)
    assert seen is (context not in (torch.no_grad, nullcontext))


def test_transforms_are_told():
    alike, seen = FOLLOWERS["alike_of"]((FIRST,)), []

    def function(tensor):
        seen.append(alike(tensor) or alike(FIRST))
        return tensor.sum()

    torch.vmap(function)(torch.rand(2, 4, 6))
    torch.func.grad(function)(FIRST)
    assert seen == [False, False]


@pytest.mark.parametrize("make", [
    torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc, torch.Tensor.to_mkldnn,
    lambda tensor: tensor.to_sparse_bsr((2, 2)), lambda tensor: tensor.to_sparse_bsc((2, 2)),
    lambda tensor: tensor.to("meta"), lambda tensor: torch._efficientzerotensor(tensor.shape),
    lambda tensor: torch.nested.nested_tensor([tensor]),
])  # fmt: skip
def test_what_the_guard_is_not_asked_of_has_no_pointer_or_is_nested(make):
    """Torch ends the process where a guard is asked of a tensor that has no strides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # layouts in beta
        tensor = make(FIRST)
    try:
        assert tensor.data_ptr() == 0 or tensor.is_nested
    except RuntimeError as error:
        assert "data pointer" in str(error)
