"""Per-token quantization as a hand-written Triton kernel: a program a row, the row in registers."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _quantize_rows(x, scale, zero_point, out, columns, x_stride, out_stride, low, high, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    values = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    codes = libdevice.rint(values / tl.load(scale + row).to(tl.float32)) + tl.load(zero_point + row)
    codes = tl.minimum(tl.maximum(codes, low), high)
    tl.store(out + row * out_stride + column, codes.to(out.dtype.element_ty), mask=inside)


def quantize_per_token(input, scale, zero_point, out, low: int, high: int) -> None:
    """Quantizes torch tensors.

    Args:
        input: [n, d] of f32, f16 or bf16, stride 1 along d.
        scale: [n], a float type.
        zero_point: [n], int32.
        out: [n, d] of int8 or uint8, stride 1 along d; written.
        low, high: the range of codes.
    """
    rows, columns = input.shape
    block = triton.next_power_of_2(columns)
    warps = 4 if block <= 2048 else 8 if block <= 4096 else 16
    _quantize_rows[(rows,)](
        input, scale, zero_point, out, columns, input.stride(0), out.stride(0), float(low), float(high),
        BLOCK=block, num_warps=warps,
    )  # fmt: skip
