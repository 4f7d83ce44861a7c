"""Modules of skuda's operations, with the arguments and the state of torch.nn's.

Each takes part in autograd, torch.compile, torch.export and autocast as the functions of skuda do. Modules that
torch.nn has are subclasses of torch's: `isinstance` holds, and state_dicts are the same.
"""

from __future__ import annotations

import torch

import skuda
from skuda.errors import InvalidProblem, Unsupported
from skuda.torch.fake_quantize import LSQ, FakeQuantize
from skuda.torch.linear import Codes, Linear8Bit, gated, quantized

__all__ = [
    "GELU", "LSQ", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Codes", "FakeQuantize", "GroupNorm", "InstanceNorm1d",
    "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "Linear8Bit", "RMSNorm", "Softmax", "SwiGLU", "gated", "quantized",
]  # fmt: skip


def _last_axes(module: torch.nn.Module, x: torch.Tensor) -> tuple[int, ...]:
    """The axes of a norm without a weight, which says nowhere else how many there are.

    Raises:
        InvalidProblem: x does not end with `normalized_shape`.
    """
    shape = tuple(module.normalized_shape)
    if tuple(x.shape[-len(shape) :]) != shape:
        raise InvalidProblem(f"{type(module).__name__}: input is {tuple(x.shape)}, expected [..., {str(shape)[1:-1]}]")
    return tuple(range(-len(shape), 0))


class RMSNorm(torch.nn.RMSNorm):
    """`torch.nn.RMSNorm` by `skuda.rms_norm`: [..., *normalized_shape] to the same shape and type.

    The sum, the quotient and the product with the weight are computed in f32 (f64 of f64), and rounded once. Without
    `eps` it is that of the input's type, as torch has it.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eps = self.eps
        if eps is None:  # of integers any: the function refuses them
            eps = torch.finfo(x.dtype).eps if x.is_floating_point() else 0.0
        if self.weight is None:
            return skuda.rms_normalize(x, axis=_last_axes(self, x), eps=eps)
        return skuda.rms_norm(x, self.weight, eps=eps)


class LayerNorm(torch.nn.LayerNorm):
    """`torch.nn.LayerNorm` by `skuda.layer_norm`: [..., *normalized_shape] to the same shape and type."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight is None:
            return skuda.standardize(x, axis=_last_axes(self, x), eps=self.eps)
        if self.bias is None:
            return skuda.layer_norm(x, self.weight, eps=self.eps)
        return skuda.layer_norm(x, self.weight, self.bias, eps=self.eps)


class GroupNorm(torch.nn.GroupNorm):
    """`torch.nn.GroupNorm` by `skuda.group_norm`: [n, num_channels, ...] to the same shape and type.

    Raises:
        InvalidProblem: the input has another shape.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise InvalidProblem(f"GroupNorm: input is {tuple(x.shape)}, expected [n, {self.num_channels}, ...]")
        split = (self.num_groups, self.num_channels // self.num_groups)
        given = [each.unflatten(0, split) for each in (self.weight, self.bias) if each is not None]
        return skuda.group_norm(x.unflatten(1, split), *given, eps=self.eps).flatten(1, 2)


class _BatchNorm:
    """What batch norms of any number of axes share: `skuda.batch_norm_training`, or `skuda.batch_norm` of running
    statistics, which these are of f32 (f64 of f64) for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)
        given = [each for each in (self.weight, self.bias) if each is not None]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        if self.running_mean is None:
            none = torch.zeros(self.num_features, dtype=wide, device=x.device)
            return skuda.batch_norm_training(x, none, none, *given, eps=self.eps).output
        state = self.running_mean.to(wide), self.running_var.to(wide)
        if not self.training:
            return skuda.batch_norm(x, *state, *given, eps=self.eps)
        share = 1 / (float(self.num_batches_tracked) + 1) if self.momentum is None else self.momentum
        made = skuda.batch_norm_training(x, *state, *given, momentum=share, eps=self.eps)
        self.num_batches_tracked.add_(1)
        self.running_mean.copy_(made.new_running_mean)
        self.running_var.copy_(made.new_running_var)
        return made.output


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` by `skuda.batch_norm_training` and `skuda.batch_norm`: [n, c] or [n, c, length]."""


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` by `skuda.batch_norm_training` and `skuda.batch_norm`: [n, c, height, width]."""


class BatchNorm3d(_BatchNorm, torch.nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` by `skuda.batch_norm_training` and `skuda.batch_norm`: [n, c, depth, height, width]."""


class _InstanceNorm:
    """What instance norms of any number of axes share. They keep no running statistics.

    Raises:
        Unsupported: the module has running statistics.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(x)
        if self.track_running_stats:
            raise Unsupported(f"{type(self).__name__}: track_running_stats is True, expected False")
        given = [each for each in (self.weight, self.bias) if each is not None]
        single = x.dim() == self._get_no_batch_dim()
        made = skuda.instance_norm(x[None] if single else x, *given, eps=self.eps)
        return made[0] if single else made


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):
    """`torch.nn.InstanceNorm1d` by `skuda.instance_norm`: [n, c, length] or [c, length]."""


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):
    """`torch.nn.InstanceNorm2d` by `skuda.instance_norm`: [n, c, height, width] or [c, height, width]."""


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):
    """`torch.nn.InstanceNorm3d` by `skuda.instance_norm`: [n, c, depth, height, width], or without n."""


class Softmax(torch.nn.Softmax):
    """`torch.nn.Softmax` by `skuda.softmax`. Without `dim` it is the axis that torch guesses from their number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.dim is not None:
            return skuda.softmax(x, axis=self.dim)
        return skuda.softmax(x, axis=0 if x.ndim in (0, 1, 3) else 1)


class GELU(torch.nn.GELU):
    """`torch.nn.GELU` by `skuda.gelu`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return skuda.gelu(x, approximate=self.approximate)


class SwiGLU(torch.nn.Module):
    """A gated feed-forward layer: `down_proj(silu(gate_proj(x)) * up_proj(x))`.

    The names are those of Llama in transformers, whose state_dict it loads. Where `down_proj` is a `Linear8Bit`, the
    product is quantized in the kernel that makes it; where the others are, x is quantized once for both. Where all are
    of s8 without biases, that kernel reads the sums of both products (`gated`).

    Args:
        in_features: of x and, unless `out_features` is given, of the result.
        hidden_features: between them.
        out_features: of the result.
        bias: of all three layers.
    """

    def __init__(
        self, in_features: int, hidden_features: int, out_features: int | None = None, bias: bool = False,
        device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = torch.nn.Linear(in_features, hidden_features, **made)
        self.up_proj = torch.nn.Linear(in_features, hidden_features, **made)
        self.down_proj = torch.nn.Linear(hidden_features, out_features or in_features, **made)

    @classmethod
    def of(cls, module: torch.nn.Module) -> SwiGLU:
        """Of a module that has `gate_proj`, `up_proj` and `down_proj`, which both then have."""
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)
        made.gate_proj, made.up_proj, made.down_proj = module.gate_proj, module.up_proj, module.down_proj
        return made.train(module.training)

    def forward(self, x: torch.Tensor | Codes) -> torch.Tensor:
        layers, last = (self.gate_proj, self.up_proj), self.down_proj
        codes = {layer.code if isinstance(layer, Linear8Bit) else None for layer in layers}
        if isinstance(x, torch.Tensor) and len(codes) == 1 and None not in codes:
            x = quantized(x, *codes)
        if isinstance(last, Linear8Bit) and not isinstance(x, torch.Tensor) and codes == {last.code}:
            return last(gated(*layers, x))
        gate, up = (layer(x) for layer in layers)
        if isinstance(last, Linear8Bit):
            return last(quantized((gate, up), last.code, before="silu_mul"))
        return last(skuda.silu_mul(gate, up))
