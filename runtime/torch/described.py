"""Tensors as views without memory, for what follows from shapes and element types alone."""

from __future__ import annotations

import torch

from skuda.arrays.libraries import CPU, torch_storages
from skuda.arrays.views import View, contiguous_strides
from skuda.errors import NotAnArray
from skuda.plans.functions import Call
from skuda.plans.results import strides_by


def described(value, name: str):
    """A tensor as a view without memory, whose extents may be symbols; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = torch_storages().get(value.dtype)
    if storage is None:
        raise NotAnArray(f"{name} has {value.dtype} elements, expected bool, integer or floating-point ones")
    shape = tuple(value.shape)
    return View(0, shape, contiguous_strides(shape), storage, CPU, True, False, value)


def strides_of(call: Call, shapes: list[tuple]) -> list[tuple | None]:
    """Of each output of a call its strides, None where it is C-contiguous: as `plans.functions.run` makes it.

    Args:
        call: with tensors, which may have no memory; strides may be symbols too.
        shapes: of each output.
    """
    tensors = [value for value in call.inputs if isinstance(value, torch.Tensor)]
    known, is_contiguous = bool, torch.Tensor.is_contiguous
    if any(isinstance(each, torch.SymInt) for tensor in tensors for each in (*tensor.shape, *tensor.stride())):
        from torch._prims_common import is_contiguous_or_false as is_contiguous  # which take long to import
        from torch.fx.experimental.symbolic_shapes import guard_or_false as known

    def lying(value, name: str):
        view = described(value, name)
        if isinstance(view, View):
            view.strides, view.contiguous = tuple(value.stride()), is_contiguous(value)
        return view

    if all(map(is_contiguous, tensors)):
        return [None] * len(shapes)
    return strides_by(call, lying, shapes, known)
