"""Tensors as views without memory, for what follows from shapes and element types alone."""

from __future__ import annotations

import torch

from skuda.arrays.libraries import CPU, torch_storages
from skuda.arrays.views import View, contiguous_strides
from skuda.errors import NotAnArray


def described(value, name: str):
    """A tensor as a view without memory, whose extents may be symbols; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch_storages().get(value.dtype)
    if storage is None:
        raise NotAnArray(f"{name} has {value.dtype} elements, expected bool, integer or floating-point ones")
    shape = tuple(value.shape)
    return View(0, shape, contiguous_strides(shape), storage, CPU, True, False, value)
