"""The operands of a problem as torch tensors, and the torch types of their elements."""

from __future__ import annotations

import cupy
import torch

from skuda.bench.problem import Problem
from skuda.model.descriptor import is_element
from skuda.model.dtypes import DTYPES


def dtype_of(word: str) -> torch.dtype:
    """The torch type that an element travels as."""
    return getattr(torch, DTYPES[word].storage.name)


def tensor_of(array, word: str) -> torch.Tensor:
    """A tensor over the memory of a CuPy array, of any strides."""
    itemsize = array.dtype.itemsize
    spans = [(extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)]
    raw = torch.as_tensor(cupy.ndarray((sum(spans) + itemsize,), cupy.uint8, array.data), device="cuda")
    strides = [step // itemsize for step in array.strides]
    return raw.view(dtype_of(word)).as_strided(array.shape, strides)


def tensors_of(problem: Problem) -> dict[str, torch.Tensor | int | float]:
    """Each operand of a problem, over the same memory."""
    return {
        placed.operand.name: (
            problem.arrays[placed.operand.name]
            if is_element(problem.arrays[placed.operand.name])
            else tensor_of(problem.arrays[placed.operand.name], placed.word)
        )
        for placed in problem.case.operands
    }


def wide_of(problem: Problem) -> torch.dtype:
    """The compute type."""
    return dtype_of(problem.case.types["C"])


def is_packed(problem: Problem) -> bool:
    """Whether some operand of the problem holds two codes a byte."""
    return any(DTYPES[placed.word].packed for placed in problem.case.operands)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes two to a byte along the last axis, the first of two in the low half."""
    codes = codes.to(torch.int8)
    if codes.shape[-1] % 2:
        codes = torch.nn.functional.pad(codes, (0, 1))
    return ((codes[..., ::2] & 15) | (codes[..., 1::2] << 4)).view(torch.uint8)
