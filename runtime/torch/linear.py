"""A linear layer whose weights and activations are codes of 8 bits."""

from __future__ import annotations

from typing import NamedTuple

import torch

import skuda
from skuda.errors import InvalidProblem

CODES = {"s8": torch.int8, "e4m3": torch.float8_e4m3fn}
# What torch's products of matrices on GPUs take: rows of the first one, and multiples of all other extents.
_LEAST_ROWS = {"s8": 17, "e4m3": 1}
_MULTIPLE = {"s8": 8, "e4m3": 16}
_FUSED = {  # modules in whose kernel codes are made: the operation, and its arguments from the module
    "RMSNorm": lambda module: ("rms_norm", (module.weight,), {"eps": module.eps}),
    "LayerNorm": lambda module: ("layer_norm", (module.weight, module.bias), {"eps": module.eps}),
    "GELU": lambda module: ("gelu_tanh" if module.approximate == "tanh" else "gelu", (), {}),
    "Softmax": lambda module: ("softmax", (), {}),
}


class Codes(NamedTuple):
    """A tensor as codes of 8 bits, with a scale for each row of the last axis.

    Attributes:
        scale: [...], f32.
        values: [..., features], int8 or float8_e4m3fn.
        dtype: of the tensor that they stand for, which a layer's result has.
    """

    scale: torch.Tensor
    values: torch.Tensor
    dtype: torch.dtype


def quantized(x, code: str = "s8", before: torch.nn.Module | str | None = None) -> Codes:
    """The codes of a tensor by dynamic quantization: each row by the scale that its largest magnitude gives.

    Args:
        x: [..., features], f16, bf16 or f32; a tuple of tensors if `before` takes several.
        code: "s8" or "e4m3".
        before: what is to be computed first: a module (skuda's RMSNorm, LayerNorm, GELU and softmax of the last axis
            with s8 are computed in the same kernel, without rounding between), or the name of an operation.

    Raises:
        InvalidProblem: another code, or a tensor of another type.
    """
    if code not in CODES:
        raise InvalidProblem(f"quantized: code is {code!r}, expected one of {', '.join(CODES)}")
    inputs = x if isinstance(x, tuple) else (x,)
    dtype = inputs[0].dtype
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise InvalidProblem(f"quantized: x has {dtype} elements, expected float16, bfloat16 or float32 ones")
    if before is not None:
        fused = _fused(before, inputs) if code == "s8" else None
        if fused is not None:
            return Codes(*fused, dtype)
        inputs = (getattr(skuda, before)(*inputs) if isinstance(before, str) else before(*inputs),)
    if code == "s8":
        return Codes(*skuda.dynamic_quantize_per_token(*inputs, dtype="s8"), dtype)
    return Codes(*skuda.dynamic_quantize_fp8_per_token(*inputs, dtype="e4m3"), dtype)


def _fused(before, inputs: tuple):
    """Scale and codes of what is computed before, in one kernel; None where there is none."""
    if isinstance(before, str):
        name, parameters, options = before, (), {}
    elif type(before).__module__ == "skuda.torch.nn" and type(before).__name__ in _FUSED:
        name, parameters, options = _FUSED[type(before).__name__](before)
    else:
        return None
    if len(getattr(before, "normalized_shape", (1,))) > 1 or getattr(before, "dim", -1) != -1:
        return None  # rows of other axes
    if options.get("eps", 0) is None:
        options["eps"] = torch.finfo(inputs[0].dtype).eps
    while parameters and parameters[-1] is None:
        parameters = parameters[:-1]
    return getattr(skuda, f"{name}_dynamic_quantize")(*inputs, *parameters, **options, dtype="s8")


class Linear8Bit(torch.nn.Module):
    """`torch.nn.Linear` by codes of 8 bits: weights quantized once by channel, activations by token as they come.

    [..., in_features] to [..., out_features] of the same type; or `Codes`, which several layers may share. The scales
    are f32. Products of s8 codes are summed exactly in i32 (`torch._int_mm`), and `skuda.dequantize_sums` scales the
    sums and adds the bias: all but `torch._int_mm` is skuda's, so the CPU and a GPU give the same bits. Products of
    e4m3 codes are summed by `torch._scaled_mm` with a scale for each row and column, in an order that is the GPU's, and
    with `fast_accum` in fewer bits than f32; on the CPU, and on GPUs older than sm_89, they are summed in f32.

    It is for inference: codes have no gradient, and a backward pass through it raises. It loads the state_dict of a
    `torch.nn.Linear`, whose weight it then quantizes, and its own. `.to(dtype)` and the like leave codes and scales
    alone.

    Args:
        in_features, out_features, bias, device, dtype: as of torch.nn.Linear; `dtype` is the bias's.
        code: "s8" or "e4m3".
        before: a module that is called first, as of `quantized`.
        fast_accum: of `torch._scaled_mm`.
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None, *,
        code: str = "s8", before: torch.nn.Module | None = None, fast_accum: bool = True,
    ):  # fmt: skip
        super().__init__()
        if code not in CODES:
            raise InvalidProblem(f"Linear8Bit: code is {code!r}, expected one of {', '.join(CODES)}")
        self.in_features, self.out_features = in_features, out_features
        self.code, self.before, self.fast_accum = code, before, fast_accum
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=CODES[code], device=device))
        self.register_buffer("weight_scale", torch.ones(out_features, dtype=torch.float32, device=device))
        self.bias = None
        if bias:
            zeros = torch.zeros(out_features, dtype=dtype, device=device)
            self.bias = torch.nn.Parameter(zeros, requires_grad=False)

    @classmethod
    def of(cls, linear: torch.nn.Linear, code: str = "s8", before=None, fast_accum: bool = True) -> Linear8Bit:
        """Of a linear layer, whose weight is quantized and whose bias is shared."""
        made = cls(
            linear.in_features, linear.out_features, False, linear.weight.device,
            code=code, before=before, fast_accum=fast_accum,
        )  # fmt: skip
        made.weight, made.weight_scale = _weight_codes(linear.weight, code)
        made.bias = linear.bias
        return made.train(linear.training)

    def forward(self, x: torch.Tensor | Codes) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            x = quantized(x, self.code, self.before)
        dtype = x.dtype
        if torch.is_autocast_enabled(x.values.device.type):
            dtype = torch.get_autocast_dtype(x.values.device.type)
        rows = x.values.reshape(-1, self.in_features)
        scale = x.scale.reshape(-1)
        made = self._of_s8(rows, scale, dtype) if self.code == "s8" else self._of_e4m3(rows, scale, dtype)
        return made.reshape(*x.values.shape[:-1], self.out_features)

    def _of_s8(self, rows: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        left, right = self._padded(rows, torch.int8)
        sums = torch._int_mm(left, right.t())[: rows.shape[0], : self.out_features]
        if self.bias is None:
            return skuda.dequantize_sums(sums, scale, self.weight_scale, dtype=dtype)
        bias = self.bias if self.bias.dtype in (dtype, torch.float32) else self.bias.to(dtype)
        return skuda.dequantize_sums(sums, scale, self.weight_scale, bias, dtype=dtype)

    def _of_e4m3(self, rows: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not has_scaled_product(rows.device):
            sums = rows.float() @ self.weight.float().t()
        else:
            left, right = self._padded(rows, torch.uint8)
            as_they_are = left.shape == rows.shape and right.shape == self.weight.shape
            if dtype == torch.bfloat16 and as_they_are:  # the only type that row-wise scales give
                return torch._scaled_mm(
                    left, right.t(), scale_a=scale[:, None], scale_b=self.weight_scale[None],
                    bias=None if self.bias is None else self.bias.to(dtype),
                    out_dtype=dtype, use_fast_accum=self.fast_accum,
                )  # fmt: skip
            one = torch.ones((), device=rows.device)
            sums = torch._scaled_mm(
                left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=self.fast_accum
            )[: rows.shape[0], : self.out_features]
        made = sums * scale[:, None] * self.weight_scale
        return (made if self.bias is None else made + self.bias).to(dtype)

    def _padded(self, rows: torch.Tensor, bits: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Both operands with zeros added to the extents that torch's product takes; themselves where nothing is added.

        Args:
            bits: a type of as many bits as a code, which can be padded.
        """
        weight, multiple, least = self.weight, _MULTIPLE[self.code], _LEAST_ROWS[self.code]
        if takes_any_extent(weight.device):
            return rows, weight
        more = -self.in_features % multiple
        below, columns = max(0, least - rows.shape[0]), -self.out_features % multiple
        if more or below:
            rows = torch.nn.functional.pad(rows.view(bits), (0, more, 0, below)).view(rows.dtype)
        if more or columns:
            weight = torch.nn.functional.pad(weight.view(bits), (0, more, 0, columns)).view(weight.dtype)
        return rows, weight

    def _apply(self, function, recurse: bool = True):
        kept = {name: getattr(self, name) for name in ("weight", "weight_scale")}
        super()._apply(function, recurse)
        for name, value in kept.items():  # a cast would change codes
            moved = getattr(self, name)
            if moved.dtype != value.dtype:
                setattr(self, name, value.to(moved.device))
        return self

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        weight = state_dict.get(f"{prefix}weight")
        if weight is not None and weight.dtype != CODES[self.code] and f"{prefix}weight_scale" not in state_dict:
            codes, scale = _weight_codes(weight.to(self.weight.device), self.code)
            state_dict |= {f"{prefix}weight": codes, f"{prefix}weight_scale": scale}
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"code={self.code!r}"
        )


def _weight_codes(weight: torch.Tensor, code: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of a weight of [out_features, in_features], and a scale for each of out_features."""
    made = quantized(weight.detach().contiguous(), code)
    return made.values, made.scale


def has_scaled_product(device: torch.device) -> bool:
    """Whether torch multiplies floats of 8 bits there."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def takes_any_extent(device: torch.device) -> bool:
    """Whether torch's products of codes take matrices of all sizes there."""
    return device.type == "cpu"
