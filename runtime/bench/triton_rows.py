"""Softmax, rms_norm, layer_norm and dynamic quantization as hand-written Triton kernels: a program a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import triton
import triton.language as tl
from triton.language.extra import libdevice

MOST = 1 << 16  # columns that a program can hold


@triton.jit
def _row(x, columns, stride, other, BLOCK: tl.constexpr):
    """A program's row in f32, and where its columns are."""
    column = tl.arange(0, BLOCK)
    inside = column < columns
    start = tl.program_id(0).to(tl.int64) * stride
    return tl.load(x + start + column, mask=inside, other=other).to(tl.float32), column, inside


@triton.jit
def _softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    values, column, inside = _row(x, columns, x_stride, -float("inf"), BLOCK)
    raised = tl.exp(values - tl.max(values, 0))
    result = raised / tl.sum(raised, 0)
    tl.store(
        out + tl.program_id(0).to(tl.int64) * out_stride + column, result.to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def _rms_norm(x, weight, out, columns, x_stride, out_stride, eps, BLOCK: tl.constexpr):
    values, column, inside = _row(x, columns, x_stride, 0.0, BLOCK)
    factor = tl.rsqrt(tl.sum(values * values, 0) / columns + eps)
    result = values * factor * tl.load(weight + column, mask=inside).to(tl.float32)
    tl.store(
        out + tl.program_id(0).to(tl.int64) * out_stride + column, result.to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def _layer_norm(x, weight, bias, out, columns, x_stride, out_stride, eps, BLOCK: tl.constexpr):
    values, column, inside = _row(x, columns, x_stride, 0.0, BLOCK)
    centered = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    factor = tl.rsqrt(tl.sum(centered * centered, 0) / columns + eps)
    result = centered * factor * tl.load(weight + column, mask=inside).to(tl.float32)
    result += tl.load(bias + column, mask=inside).to(tl.float32)
    tl.store(
        out + tl.program_id(0).to(tl.int64) * out_stride + column, result.to(out.dtype.element_ty), mask=inside
    )


@triton.jit
def _dynamic_quantize(x, scale, out, columns, x_stride, out_stride, low, high, BLOCK: tl.constexpr):
    values, column, inside = _row(x, columns, x_stride, 0.0, BLOCK)
    most = tl.max(tl.abs(values), 0)
    step = tl.where(most == 0, 1.0, most / high)
    codes = tl.minimum(tl.maximum(libdevice.rint(values / step), low), high)
    row = tl.program_id(0).to(tl.int64)
    tl.store(scale + row, step)
    tl.store(out + row * out_stride + column, codes.to(out.dtype.element_ty), mask=inside)


def launch(kernel, x, *arguments, columns: int) -> None:
    """Runs a kernel of this module on the rows of a torch tensor of [n, d], with stride 1 along d."""
    block = triton.next_power_of_2(columns)
    warps = 1 if block <= 512 else 4 if block <= 2048 else 8 if block <= 4096 else 16 if block <= 16384 else 32
    kernel[(x.shape[0],)](x, *arguments, BLOCK=block, num_warps=warps)


def call_of(function: str, of: Mapping[str, object], eps: float, low: int, high: int) -> Callable[[], object] | None:
    """A call that computes new outputs of an operation, and returns them; None for one that is not here.

    Args:
        function: name of the operation.
        of: torch tensors by operand, of [n, d] with stride 1 along d.
        eps: what a normalization adds.
        low, high: the range of codes.
    """
    import torch

    if function not in ("softmax", "rms_norm", "layer_norm", "dynamic_quantize_per_token"):
        return None
    x, out = of["input"], torch.empty_like(of["output"])
    columns = x.shape[1]
    strides = (columns, x.stride(0), out.stride(0))
    if function == "dynamic_quantize_per_token":
        scale = torch.empty_like(of["scale"])
        kernel, results = _dynamic_quantize, (scale, out)
        arguments = (scale, out, *strides, float(low), float(high))
    else:
        results = out
        kernel, arguments = {
            "softmax": (_softmax, (out, *strides)),
            "rms_norm": (_rms_norm, (of.get("weight"), out, *strides, eps)),
            "layer_norm": (_layer_norm, (of.get("weight"), of.get("bias"), out, *strides, eps)),
        }[function]

    def call():
        launch(kernel, x, *arguments, columns=columns)
        return results

    return call
