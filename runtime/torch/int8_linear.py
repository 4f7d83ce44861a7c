"""A linear layer on codes of 8 bits as one operator of a program: `torch.ops.skuda.int8_linear`.

A compiled program calls each operator through torch's dispatcher, which costs the host as much as the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import skuda
from skuda.arrays.libraries import library_of_plain
from skuda.torch.int8_product import int8_product, on_cpu, on_cuda

_TORCH = library_of_plain(torch.Tensor)


def _after(product: Callable) -> Callable[..., torch.Tensor]:
    """The layer by what multiplies its codes."""

    def compute(rows, scale, weight, weight_scale, bias, dtype: torch.dtype) -> torch.Tensor:
        return skuda.dequantize_sums(product(rows, weight), scale, weight_scale, bias, dtype=dtype)

    return compute


def _on_meta(rows, scale, weight, weight_scale, bias, dtype: torch.dtype) -> torch.Tensor:
    return rows.new_empty((rows.shape[0], weight.shape[0]), dtype=dtype)


_operators = torch.library.Library("skuda", "FRAGMENT")
_operators.define(
    "int8_linear(Tensor rows, Tensor scale, Tensor weight, Tensor weight_scale, Tensor? bias, ScalarType dtype)"
    " -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_operators.impl("int8_linear", _after(on_cpu), "CPU")
_operators.impl("int8_linear", _after(on_cuda), "CUDA")
_operators.impl("int8_linear", _on_meta, "Meta")
_after_any = _after(int8_product)
_operator = torch.ops.skuda.int8_linear.default


def int8_linear(
    rows: torch.Tensor, scale: torch.Tensor, weight: torch.Tensor, weight_scale: torch.Tensor,
    bias: torch.Tensor | None, dtype: torch.dtype,
) -> torch.Tensor:  # fmt: skip
    """The codes of some rows times those of a weight, scaled by row and column.

    Args:
        rows: [rows, in_features], int8.
        scale: [rows], f32.
        weight: [out_features, in_features], int8.
        weight_scale: [out_features], f32.
        bias: [out_features], of `dtype` or f32; None for none.
        dtype: torch.float16, torch.bfloat16 or torch.float32.

    Returns:
        [rows, out_features] of `dtype`: `skuda.dequantize_sums` of the exact sums.

    Raises:
        InvalidProblem: the codes are no matrices of int8 with rows of one length, or a scale or the bias does not fit.
    """
    if torch.compiler.is_compiling() or _TORCH.watched():
        return _operator(rows, scale, weight, weight_scale, bias, dtype)
    return _after_any(rows, scale, weight, weight_scale, bias, dtype)
