"""Norms, softmax and gated activations as Liger's Triton kernels (PyPI `liger-kernel`), with their gradients.

A gradient is timed as a training step runs it: what its forward pass keeps is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from liger_kernel.ops import fused_add_rms_norm, layer_norm, rms_norm, softmax, swiglu

_AS_LLAMA = 0.0, "llama"  # the weight's offset; a root mean square in f32, the product in the elements' type


def _rms_norm(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    return lambda: rms_norm.rms_norm_forward(of["input"], of["weight"], eps, *_AS_LLAMA, None)[0]


def _rms_norm_backward(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    _, rows, kept, block, warps, mode = rms_norm.rms_norm_forward(of["input"], of["weight"], eps, *_AS_LLAMA, None)
    arguments = of["d_output"], rows, of["weight"], kept, 0.0, mode, block, warps, False, None
    return lambda: rms_norm.rms_norm_backward(*arguments)


def _layer_norm(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    return lambda: layer_norm.layer_norm_forward(of["input"], of["weight"], of["bias"], eps)[0]


def _layer_norm_backward(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    bias = of["weight"].new_zeros(of["weight"].shape)  # of which the gradient reads nothing
    _, rows, mean, kept, *_ = layer_norm.layer_norm_forward(of["input"], of["weight"], bias, eps)
    return lambda: layer_norm.layer_norm_backward(of["d_output"], rows, of["weight"], bias, mean, kept)


def _add_rms_norm(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    def call():
        arguments = of["input"], of["residual"], of["weight"], eps, *_AS_LLAMA
        output, total, *_ = fused_add_rms_norm.fused_add_rms_norm_forward(*arguments)
        return total, output

    return call


def _softmax(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    return lambda: softmax._softmax_forward(of["input"])[0]


def _softmax_backward(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    _, *how = softmax._softmax_forward(of["output"])
    return lambda: softmax._softmax_backward(of["d_output"], of["output"], *how)


def _silu_mul(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    return lambda: swiglu.swiglu_forward(of["gate"], of["up"])[2]


def _silu_mul_backward(of: Mapping[str, Any], eps: float) -> Callable[[], object]:
    gate, up = of["gate"].clone(), of["up"].clone()  # in the place of which it writes the gradients
    return lambda: swiglu.swiglu_backward(gate, up, of["d_output"])


_MAKERS = {
    "rms_norm": _rms_norm,
    "rms_norm_backward": _rms_norm_backward,
    "layer_norm": _layer_norm,
    "layer_norm_backward": _layer_norm_backward,
    "add_rms_norm": _add_rms_norm,
    "softmax": _softmax,
    "softmax_backward": _softmax_backward,
    "silu_mul": _silu_mul,
    "silu_mul_backward": _silu_mul_backward,
}


def call_of(function: str, of: Mapping[str, Any], eps: float) -> Callable[[], object] | None:
    """A call that computes new outputs of an operation, and returns them; None for one that is not here.

    Args:
        function: name of the operation.
        of: torch tensors by operand, of [n, d], contiguous.
        eps: what a normalization adds.
    """
    return _MAKERS[function](of, eps) if function in _MAKERS else None
