"""Modules for training with quantization: what a value loses in its code, with gradients that pass."""

from __future__ import annotations

import math

import torch

import skuda
from skuda.errors import InvalidProblem


def code_range(dtype) -> tuple[int, int]:
    """The least and the greatest code of a type: "s8", "u4", torch.int8, torch.int4, torchao's INT4, or a number of
    bits, which are signed.

    Raises:
        InvalidProblem: it is none, or has more than 8 bits.
    """
    text = f"s{dtype}" if isinstance(dtype, int) else str(dtype).rpartition(".")[2].lower()
    text = text.replace("uint", "u").replace("int", "s")
    if text[:1] in ("s", "u") and text[1:].isdigit() and 2 <= int(text[1:]) <= 8:
        bits = int(text[1:])
        return (0, 2**bits - 1) if text[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    raise InvalidProblem(f"dtype is {dtype!r}, expected an integer type of 2 to 8 bits, such as torch.int8 or 's4'")


def _granularity(given, group_size: int | None) -> tuple[str, int | None]:
    """A granularity as the end of an operation's name, and the size of groups."""
    name = given if isinstance(given, str) else type(given).__name__
    found = {
        "per_tensor": "per_tensor", "PerTensor": "per_tensor", "per_token": "per_token", "PerToken": "per_token",
        "PerRow": "per_token", "per_channel": "per_channel", "PerAxis": "per_channel",
        "per_group": "per_group", "PerGroup": "per_group", "NoneType": "per_group" if group_size else None,
    }.get(name)  # fmt: skip
    size = group_size or getattr(given, "group_size", None)
    if found is None or (found == "per_group") != (size is not None) or getattr(given, "axis", 0) != 0:
        raise InvalidProblem(
            f"FakeQuantize: granularity is {given!r} with group_size {group_size}, expected 'per_tensor', 'per_token', "
            "'per_channel' (of axis 0), 'per_group' with a group_size, or an object of torchao that says one of them"
        )
    return found, size


class FakeQuantize(torch.nn.Module):
    """What is left of a tensor after quantization and dequantization, to the same shape and type.

    The arguments are those of torchao's IntxFakeQuantizeConfig. The gradient passes where a code is in range, and is 0
    elsewhere; scale and zero point take no part in it. They are computed in each call, or with `is_dynamic=False` in
    the first one, and are kept then.

    Args:
        dtype: of the codes: torch.int8, torch.int4, "s8", "u4", ..., or a number of bits.
        granularity: "per_tensor", "per_token", "per_channel" (of axis 0), "per_group" along the last axis, or torchao's
            object.
        mapping_type: torchao's, or its name; symmetric unless it says asymmetric.
        scale_precision: torch.float32.
        zero_point_precision: torch.int32.
        is_dynamic: whether each call has a scale of its own.
        range_learning: not here; see `LSQ`.
        group_size: of "per_group".
        is_symmetric: in place of `mapping_type`.

    Raises:
        InvalidProblem: what no operation has.
    """

    def __init__(
        self, dtype, granularity=None, mapping_type=None, scale_precision=torch.float32,
        zero_point_precision=torch.int32, zero_point_domain=None, is_dynamic: bool = True,
        range_learning: bool = False, eps: float | None = None, *, group_size: int | None = None,
        is_symmetric: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.q_min, self.q_max = code_range(dtype)
        self.granularity, self.group_size = _granularity(granularity, group_size)
        says_asymmetric = "ASYMMETRIC" in str(mapping_type).upper()
        self.is_symmetric = not says_asymmetric if is_symmetric is None else is_symmetric
        fixed = {
            "scale_precision": (scale_precision, torch.float32), "eps": (eps, None),
            "zero_point_precision": (zero_point_precision, torch.int32), "range_learning": (range_learning, False),
        }  # fmt: skip
        for name, (given, expected) in fixed.items():
            if given != expected:
                more = " (skuda.torch.nn.LSQ learns it)" if name == "range_learning" else ""
                raise InvalidProblem(f"FakeQuantize: {name} is {given}, expected {expected}{more}")
        if self.is_symmetric and self.q_min == 0:
            raise InvalidProblem("FakeQuantize: codes without a sign are asymmetric, but is_symmetric is True")
        self.is_dynamic = is_dynamic
        self.register_buffer("scale", None)
        self.register_buffer("zero_point", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, zero_point = self.scale, self.zero_point
        if scale is None:
            scale, zero_point = self.parameters_of(x.detach())
            if not self.is_dynamic:
                self.scale, self.zero_point = scale, zero_point
        function = getattr(skuda, f"fake_quantize_{self.granularity}")
        options = self._options() | {"q_min": self.q_min, "q_max": self.q_max, "dtype": self._word()}
        if zero_point is None:
            return function(x, scale, **options)
        return function(x, scale, zero_point, **options)

    def parameters_of(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The scale, and of asymmetric codes the zero point, that a tensor gives."""
        kind = "" if self.is_symmetric else "asymmetric_"
        function = getattr(skuda, f"dynamic_quantize_{kind}{self.granularity}")
        made = function(x, q_min=self.q_min, q_max=self.q_max, dtype=self._word(), **self._options())
        return (made[0], None) if self.is_symmetric else (made[0], made[1])

    def _word(self) -> str:
        """A type that holds the codes."""
        return "u8" if self.q_min == 0 else "s8"

    def _options(self) -> dict[str, int]:
        return {
            "per_group": {"group_size": self.group_size, "axis": -1}, "per_channel": {"axis": 0},
        }.get(self.granularity, {})  # fmt: skip

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("scale", "zero_point"):  # which are None until a first call
            if (value := state_dict.get(f"{prefix}{name}")) is not None and getattr(self, name) is None:
                setattr(self, name, torch.empty_like(value))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        kind = "symmetric" if self.is_symmetric else "asymmetric"
        return f"{self.granularity}, {kind}, codes {self.q_min} to {self.q_max}, is_dynamic={self.is_dynamic}"


class _Slowed(torch.autograd.Function):
    """A value as it is, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(ctx, value: torch.Tensor, factor: float):
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient: torch.Tensor):
        return gradient * ctx.factor, None


def _is_number(value) -> bool:
    """Whether a length, or what follows from it, has a value: a compiled program may be one for all lengths."""
    if not torch.compiler.is_compiling():
        return True
    from torch.fx.experimental.symbolic_shapes import has_static_value  # which takes long to import

    return has_static_value(value)


def _wide(parameter: torch.Tensor) -> torch.Tensor:
    """What is learned in f32 at least, as operations take it: a module may be rounded to a half type."""
    return parameter.float() if parameter.element_size() == 2 else parameter


class LSQ(torch.nn.Module):
    """Fake quantization by a scale that is learned (learned step size quantization), to the same shape and type.

    The first call sets the scale to 2 mean(|x|) / sqrt(q_max), of the tensor or of each channel. Its gradient is
    multiplied by 1 / sqrt(n q_max), where n elements share it, so that it learns at the pace of weights. A step may
    make a scale negative or 0; the least that is used is `eps`.

    FSDP would lose the scale that a first call sets: call the module before it is sharded, with the same batch in each
    process, or load a state.

    Args:
        dtype: of the codes: a number of bits (signed), or as of `FakeQuantize`.
        channels: how many scales there are; one for the tensor if None. `scale` and `zero_point` have shape [channels],
            or [1].
        axis: along which channels lie.
        zero_point: whether a zero point is learned too; it begins at 0.
        grad_scaling: whether the gradients are multiplied so.
        eps: the least scale.

    Raises:
        InvalidProblem: in a first call whose parameters FSDP has sharded.
    """

    def __init__(
        self, dtype=8, channels: int | None = None, axis: int = 0, zero_point: bool = False, grad_scaling: bool = True,
        eps: float = 1e-8, device=None,
    ):  # fmt: skip
        super().__init__()
        self.q_min, self.q_max = code_range(dtype)
        self.channels, self.axis, self.grad_scaling, self.eps = channels, axis, grad_scaling, eps
        shape = (1 if channels is None else channels,)  # not (), of which FSDP makes no parts
        self.scale = torch.nn.Parameter(torch.ones(shape, device=device))
        self.zero_point = torch.nn.Parameter(torch.zeros(shape, device=device)) if zero_point else None
        self.register_buffer("initialized", torch.tensor(False, device=device))
        self._begun = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self._begun:
            self._begin(x.detach())
        shared = x.numel() // (self.channels or 1)
        factor = 1 / math.sqrt(max(shared, 1) * self.q_max) if self.grad_scaling else 1.0
        options = {"q_min": self.q_min, "q_max": self.q_max, "dtype": "u8" if self.q_min == 0 else "s8"}
        scale, zero_point = self.scale, self.zero_point
        if _is_number(shared):
            options["grad_factor"] = factor
        else:  # an attribute would make a program for each length
            scale = _Slowed.apply(scale, factor)
            zero_point = None if zero_point is None else _Slowed.apply(zero_point, factor)
        learned = [torch.clamp_min(_wide(scale), self.eps), *([] if zero_point is None else [_wide(zero_point)])]
        if self.channels is None:
            return skuda.learnable_fake_quantize_per_tensor(x, *learned, **options)
        return skuda.learnable_fake_quantize_per_channel(x, *learned, axis=self.axis, **options)

    @torch.no_grad()
    def _begin(self, x: torch.Tensor) -> None:
        """The first scale, unless a state_dict had one."""
        if not bool(self.initialized):
            if getattr(self, "_is_fsdp_managed_module", False):  # parameters are gathered copies, dropped afterwards
                raise InvalidProblem(
                    "LSQ: a first call sets the scale, which FSDP would lose; expected a call before the module is "
                    "sharded, with the same batch in each process, or a state that is loaded"
                )
            axes = [axis for axis in range(x.ndim) if self.channels is None or axis != self.axis % x.ndim]
            mean = x.abs().float().mean(dim=axes) if axes else x.abs().float()
            self.scale.copy_(torch.clamp_min(2 * mean / math.sqrt(self.q_max), self.eps))
            self.initialized.fill_(True)
        self._begun = True

    def extra_repr(self) -> str:
        which = "per_tensor" if self.channels is None else f"per_channel of axis {self.axis}"
        return f"{which}, codes {self.q_min} to {self.q_max}, zero_point={self.zero_point is not None}"
