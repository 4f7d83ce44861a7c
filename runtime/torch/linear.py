"""A linear layer whose weights and activations are codes of 8 bits."""

from __future__ import annotations

from typing import NamedTuple

import torch

import skuda
from skuda.errors import InvalidProblem
from skuda.generated import CATALOG
from skuda.torch.int8_linear import int8_linear
from skuda.torch.int8_product import int8_product
from skuda.torch.shared_codes import SharedCodes

CODES = {"s8": torch.int8, "e4m3": torch.float8_e4m3fn}
_MULTIPLE = 16  # of the extents along rows and of columns that torch's product of e4m3 takes
_KIND = {"s8": "", "e4m3": "_fp8"}  # in the names of operations that find a scale
_SCALED_SINCE = (8, 9)  # the capability from which torch multiplies floats of 8 bits
_SCALED: dict[torch.device, bool] = {}  # of devices that were asked: asking torch takes microseconds
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)
_FUSED = {  # modules in whose kernel codes are made: the operation, and its arguments from the module
    "RMSNorm": lambda module: ("rms_norm", (module.weight,), {"eps": module.eps}),
    "LayerNorm": lambda module: ("layer_norm", (module.weight, module.bias), {"eps": module.eps}),
    "GELU": lambda module: ("gelu_tanh" if module.approximate == "tanh" else "gelu", (), {}),
    "Softmax": lambda module: ("softmax", (), {}),
}
_ROWS = frozenset(CATALOG.functions())


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
        before: what is to be computed first: a module, or the name of an operation. Skuda's RMSNorm, LayerNorm and
            GELU, of s8 its softmax of the last axis, and what the catalog has with `_dynamic_quantize` or
            `_dynamic_quantize_fp8` after its name, are computed in the same kernel, without rounding between.

    Raises:
        InvalidProblem: another code, or a tensor of another type.
    """
    if code not in CODES:
        raise InvalidProblem(f"quantized: code is {code!r}, expected one of {', '.join(CODES)}")
    inputs = x if isinstance(x, tuple) else (x,)
    dtype = inputs[0].dtype
    if dtype not in _FLOATS:
        raise InvalidProblem(f"quantized: x has {dtype} elements, expected float16, bfloat16 or float32 ones")
    if before is not None:
        fused = _fused(before, inputs, code)
        if fused is not None:
            return Codes(*fused, dtype)
        inputs = (getattr(skuda, before)(*inputs) if isinstance(before, str) else before(*inputs),)
    quantize = skuda.dynamic_quantize_per_token if code == "s8" else skuda.dynamic_quantize_fp8_per_token
    return Codes(*quantize(*inputs, dtype=code), dtype)


def _fused(before, inputs: tuple, code: str):
    """Scale and codes of what is computed before, in one kernel; None where there is none."""
    if isinstance(before, str):
        name, parameters, options = before, (), {}
    elif type(before).__module__ == "skuda.torch.nn" and type(before).__name__ in _FUSED:
        name, parameters, options = _FUSED[type(before).__name__](before)
    else:
        return None
    row = f"{name}_dynamic_quantize{_KIND[code]}"
    if row not in _ROWS:
        return None
    if len(getattr(before, "normalized_shape", (1,))) > 1 or getattr(before, "dim", -1) != -1:
        return None  # rows of other axes
    if options.get("eps", 0) is None:
        options["eps"] = torch.finfo(inputs[0].dtype).eps
    while parameters and parameters[-1] is None:
        parameters = parameters[:-1]
    return getattr(skuda, row)(*inputs, *parameters, **options, dtype=code)


def gated(gate: Linear8Bit, up: Linear8Bit, codes: Codes) -> Codes:
    """The codes of silu(gate(x)) * up(x), of the codes of x: of s8 without biases in one kernel behind both products,
    which rounds nothing between."""
    if gate.code != "s8" or up.code != "s8" or gate.bias is not None or up.bias is not None:
        return quantized((gate(codes), up(codes)), gate.code, before="silu_mul")
    scale, values, dtype = codes
    shape = values.shape
    if values.ndim != 2:
        values, scale = _as_matrix(values), scale.reshape(-1)
    sums = [int8_product(values, layer.weight) for layer in (gate, up)]
    made = skuda.sums_silu_mul_dynamic_quantize(*sums, scale, gate.weight_scale, up.weight_scale)
    if len(shape) == 2:
        return Codes(*made, dtype)
    return Codes(made[0].reshape(shape[:-1]), made[1].reshape(*shape[:-1], gate.out_features), dtype)


class Linear8Bit(torch.nn.Module):
    """`torch.nn.Linear` by codes of 8 bits: weights quantized once by channel, activations by token as they come.

    [..., in_features] to [..., out_features] of the same type; or `Codes`, which several layers may share. The scales
    are f32. Products of s8 codes are summed exactly in i32 (`torch.ops.skuda.int8_product`), and
    `skuda.dequantize_sums` scales the sums and adds the bias (both: `torch.ops.skuda.int8_linear`), so the CPU and a
    GPU give the same bits. Products of e4m3 codes are summed by `torch._scaled_mm` with a scale for each row and
    column, in an order that is the GPU's, and with `fast_accum` in fewer bits than f32; on the CPU, and on GPUs older
    than sm_89, they are summed in f32.

    Layers that `skuda.torch.patch` made of those of one parent quantize a tensor once that they all get.

    It is for inference: codes have no gradient, and a backward pass through it raises. It loads the state_dict of a
    `torch.nn.Linear`, whose weight it then quantizes, and its own. `.to(dtype)` and the like leave codes and scales
    alone.

    Args:
        in_features, out_features, bias, device, dtype: as of torch.nn.Linear; `dtype` is the bias's.
        code: "s8" or "e4m3".
        before: a module that is called first, as of `quantized`.
        fast_accum: of `torch._scaled_mm`.
    """

    shared: SharedCodes | None = None  # what several layers that get one tensor quantize it by

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
        if not isinstance(x, torch.Tensor):
            return self._product(x, x.values.shape)
        shares = self.shared is not None and self.before is None
        if shares and not torch.compiler.is_compiling():  # which merges equal steps itself
            return self._product(self.shared.codes(self, x), x.shape)
        return self._product(self._codes(x), x.shape)

    def _codes(self, x: torch.Tensor) -> Codes:
        """The codes of a tensor, as rows of a matrix where that costs no copy."""
        if self.before is None and x.ndim != 2 and x.is_contiguous():
            x = _as_matrix(x)
        return quantized(x, self.code, self.before)

    def _product(self, codes: Codes, shape: tuple[int, ...]) -> torch.Tensor:
        """The result for codes of a tensor of some shape."""
        scale, values, dtype = codes
        if torch.is_autocast_enabled(values.device.type):
            dtype = torch.get_autocast_dtype(values.device.type)
        if values.ndim != 2:
            values, scale = _as_matrix(values), scale.reshape(-1)
        made = self._of_s8(values, scale, dtype) if self.code == "s8" else self._of_e4m3(values, scale, dtype)
        return made if len(shape) == 2 else made.reshape(*shape[:-1], self.out_features)

    def _of_s8(self, rows: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        bias = self.bias
        if bias is not None and bias.dtype not in (dtype, torch.float32):
            bias = bias.to(dtype)
        return int8_linear(rows, scale, self.weight, self.weight_scale, bias, dtype)

    def _of_e4m3(self, rows: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        scale, weight_scale, bias = scale.unsqueeze(1), self.weight_scale, self.bias
        if not has_scaled_product(rows.device):
            sums = rows.float() @ self.weight.float().t()
        else:
            left, right = self._padded(rows)
            if dtype == torch.bfloat16 and left is rows and right.shape[0] == self.out_features:
                if bias is not None and bias.dtype != dtype:
                    bias = bias.to(dtype)
                return torch._scaled_mm(  # bf16 is the only type that row-wise scales give
                    left, right.t(), scale_a=scale, scale_b=weight_scale.unsqueeze(0), bias=bias, out_dtype=dtype,
                    use_fast_accum=self.fast_accum,
                )  # fmt: skip
            one = torch.ones((), device=rows.device)
            sums = torch._scaled_mm(
                left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=self.fast_accum
            )
            if right.shape[0] != self.out_features or left.shape[0] != rows.shape[0]:
                sums = sums[: rows.shape[0], : self.out_features]
        made = sums * scale * weight_scale
        return (made if bias is None else made + bias).to(dtype)

    def _padded(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes of e4m3 with zeros added to the extents that torch's product takes; themselves where none are added."""
        weight, pad = self.weight, torch.nn.functional.pad
        more, columns = -self.in_features % _MULTIPLE, -self.out_features % _MULTIPLE
        below = int(not rows.shape[0])
        if more or below:  # as bytes, for floats of 8 bits cannot be padded
            rows = pad(rows.view(torch.uint8), (0, more, 0, below)).view(rows.dtype)
        if more or columns:
            weight = pad(weight.view(torch.uint8), (0, more, 0, columns)).view(weight.dtype)
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


def _as_matrix(x: torch.Tensor) -> torch.Tensor:
    """Rows of the last axis."""
    return x.unsqueeze(0) if x.ndim == 1 else x.flatten(0, -2)


def _weight_codes(weight: torch.Tensor, code: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes of a weight of [out_features, in_features], and a scale for each of out_features."""
    made = quantized(weight.detach().contiguous(), code)
    return made.values, made.scale


def has_scaled_product(device: torch.device) -> bool:
    """Whether torch multiplies floats of 8 bits there."""
    if device.type != "cuda":
        return False
    if torch.compiler.is_compiling():  # which asks once
        return torch.cuda.get_device_capability(device) >= _SCALED_SINCE
    found = _SCALED.get(device)
    if found is None:
        found = _SCALED[device] = torch.cuda.get_device_capability(device) >= _SCALED_SINCE
    return found
