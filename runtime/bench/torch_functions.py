"""torch's own functions for the catalog's operations, of operands by name, as its users call them.

Most have the operation's name and take its inputs by position, or by name if they are losses; `_OWN` has the others.
What torch has no function for and users compose of two or three is in `few_functions`. Attributes have the row's
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from skuda.bench import few_functions
from skuda.bench.row_formulas import REDUCTIONS, only
from skuda.bench.suite import SMALL, Case, whole_name
from skuda.bench.tensors import dtype_of
from skuda.model.dtypes import DTYPES

Operands = Mapping[str, Any]
Function = Callable[[Operands], object]  # of tensors and numbers by name
Finder = Callable[[Case], Function | None]

_CALLED = {"log_sigmoid": "logsigmoid", "cross_entropy_of_probabilities": "cross_entropy"}  # by another name
_LABEL = "L"  # the letter of labels, which torch takes as 64 bits
_WAITING = ("fake_quantize_per_channel", "fake_quantize_per_token")  # torch asks the GPU about the zero points


def function_of(case: Case) -> Function | None:
    """torch's function for a forward pass; None where it has none."""
    operation = case.operation
    name = whole_name(operation)
    if name in _OWN:
        return partial(_OWN[name], case)
    if operation.category == "scan" and name in REDUCTIONS:
        return partial(_scan, case)
    if name in REDUCTIONS:
        return lambda of: REDUCTIONS[name](_first(case, of), case.reduced)
    if operation.category == "cast" and name != "cast_saturate":
        return lambda of: _first(case, of).to(dtype_of(case.operands[-1].word), copy=True)
    if name in few_functions.COMPOSED:
        return None
    names = [operand.name for operand in operation.inputs]
    called = _CALLED.get(name, name)
    if operation.category == "loss":
        loss = getattr(functional, called, None)
        return loss and (lambda of: loss(**{each: of[each] for each in names}))
    alike = all(operand.dims == operation.space for operand in operation.operands) and len(operation.outputs) == 1
    if not alike or any(attribute.default is None for attribute in operation.attributes):
        return None
    function = getattr(torch, called, None) or getattr(functional, called, None)
    return function and (lambda of: function(*[of[each] for each in names]))


def composed_of(case: Case) -> Function | None:
    """What users of torch compose for a forward pass that it has no function for; None where that is not known here."""
    found = few_functions.COMPOSED.get(whole_name(case.operation))
    return found and partial(found, case)


def call_of(case: Case, of: Operands, find: Finder) -> Callable[[], object] | None:
    """The call of a forward pass on its operands; None where `find` knows none, or a graph is timed and cannot have it.

    Random numbers are such: torch draws them in captures of its own alone.
    """
    function = find(case)
    random = any(operand.name == "seed" for operand in case.operation.inputs)
    if function is None or (random or case.operation.row in _WAITING) and is_captured(case, of):
        return None
    operands = prepared(case, of)
    return lambda: function(operands)


def is_captured(case: Case, of: Operands) -> bool:
    """Whether a row is timed as a graph, which a function that waits for the GPU ends."""
    return case.bytes < SMALL and _last(case, of).is_cuda


def prepared(case: Case, of: Operands) -> Operands:
    """The operands as torch takes them, and what users keep beside them; made before a call."""
    inputs = {operand.name: operand for operand in case.operation.inputs}
    labels = {name: of[name].long() for name, operand in inputs.items() if operand.element == _LABEL}
    operands = {**of, **labels}
    return operands | _PREPARED.get(whole_name(case.operation), lambda case, of: {})(case, operands)


def _first(case: Case, of: Operands) -> torch.Tensor:
    return of[case.operation.inputs[0].name]


def _last(case: Case, of: Operands) -> torch.Tensor:
    """The last output, of which functions take shape, type and device."""
    return of[case.operation.outputs[-1].name]


def _scan(case: Case, of: Operands) -> torch.Tensor:
    """Along an axis of the array as it lies: of another view torch would make a copy."""
    axis = case.attributes.get("axis", -1)
    name = whole_name(case.operation)
    return REDUCTIONS[name](_first(case, of).movedim(-1, axis), (axis,)).movedim(axis, -1)


def _number(case: Case, name: str, of: Operands) -> torch.Tensor:
    """An attribute, or an operand that may be a number, beside the first input."""
    value = of[name] if name in of else case.default(name)
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(value, dtype=dtype_of(case.types["C"]), device=_first(case, of).device)


def _channel(case: Case) -> int:
    """The axis that a row's channels are."""
    return case.axes_of(next(each for each in case.operation.inputs if each.dims and len(each.dims) == 1))[0]


def _by_channel(case: Case, x: torch.Tensor) -> torch.Tensor:
    """A view whose axis 1 is that of channels."""
    axis = _channel(case)
    return x.flatten(0, axis - 1) if axis else x[None]


def _beside(case: Case, parameter: torch.Tensor) -> torch.Tensor:
    """A parameter of channels that broadcasts with the input."""
    return parameter.reshape(-1, *[1] * (len(case.extents) - 1 - _channel(case)))


def _rms_norm(case: Case, of: Operands) -> torch.Tensor:
    return functional.rms_norm(of["input"], case.extents[-1:], of.get("weight"), case.default("eps"))


def _layer_norm(case: Case, of: Operands) -> torch.Tensor:
    return functional.layer_norm(of["input"], case.extents[-1:], of.get("weight"), of.get("bias"), case.default("eps"))


def _group_norm(case: Case, of: Operands) -> torch.Tensor:
    affine = [of[name].flatten() if name in of else None for name in ("weight", "bias")]
    return functional.group_norm(of["input"].flatten(1, 2), case.extents[1], *affine, case.default("eps"))


def _batch_norm(case: Case, of: Operands, momentum: float | None = None) -> torch.Tensor:
    statistics, affine = (of["running_mean"], of["running_var"]), (of.get("weight"), of.get("bias"))
    training = momentum is not None
    x = _by_channel(case, of["input"])
    return functional.batch_norm(x, *statistics, *affine, training, momentum or 0.0, case.default("eps"))


def _batch_norm_training(case: Case, of: Operands) -> tuple[torch.Tensor | None, ...]:
    """Mean and variance torch keeps to itself; running statistics it updates in place."""
    return _batch_norm(case, of, case.default("momentum")), None, None, of["running_mean"], of["running_var"]


def _widened(case: Case, of: Operands) -> Operands:
    """Parameters of the statistics' type, as mixed precision has them."""
    wide = dtype_of(case.types["C"])
    own = {name: of[name].to(wide) for name in ("weight", "bias") if name in of}
    return own | {name: of[name].clone() for name in ("running_mean", "running_var")}


def _observed(case: Case, of: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    axis = {} if len(case.reduced) == len(case.extents) else {"dim": only(case.reduced)}
    return torch.aminmax(of["input"], **axis)


def _min_max(case: Case, of: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = _observed(case, of)
    return torch.fmin(of["low"], low), torch.fmax(of["high"], high)


def _moving_average(case: Case, of: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    seen, averaging = zip((of["low"], of["high"]), _observed(case, of), strict=True), case.default("averaging")
    return tuple(torch.lerp(state, found.to(state.dtype), averaging) for state, found in seen)


def _absmax(case: Case, of: Operands) -> torch.Tensor:
    return torch.fmax(of["largest"], torch.linalg.vector_norm(of["input"], torch.inf, case.reduced))


def _states(case: Case, of: Operands) -> Operands:
    return {operand.name: _number(case, operand.name, of) for operand in case.operation.inputs[1:]}


def _codes(case: Case) -> tuple[int, int]:
    codes = DTYPES[case.types["Q"]]
    return codes.lowest, codes.highest


def _with_zero_point(case: Case, of: Operands) -> Operands:
    """Where there is none, it is 0: of each scale, or a number beside one."""
    if "zero_point" in of:
        return {}
    scale = of["scale"]
    return {"zero_point": torch.zeros_like(scale, dtype=torch.int32) if isinstance(scale, torch.Tensor) else 0}


def _fake_quantize(case: Case, of: Operands) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(of["input"], of["scale"], of["zero_point"], *_codes(case))


def _fake_quantize_channels(case: Case, of: Operands) -> torch.Tensor:
    parameters = of["scale"].float(), of["zero_point"]  # the only type that torch takes
    return torch.fake_quantize_per_channel_affine(of["input"], *parameters, _channel(case), *_codes(case))


def _cross_entropy_and_gradient(case: Case, of: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    loss = functional.cross_entropy(of["leaf"], of["target"], of.get("weight"), reduction="none")
    return loss.detach(), torch.autograd.grad(loss, of["leaf"], of["ones"])[0]


def _recorded(case: Case, of: Operands) -> Operands:
    leaf = of["input"].detach().requires_grad_()
    return {"leaf": leaf, "ones": leaf.new_ones(leaf.shape[:-1])}


def _arange(case: Case, of: Operands) -> torch.Tensor:
    out, start, step = of["output"], of.get("start", 0), of.get("step", 1)
    end = start + step * (out.numel() if isinstance(step, int) else out.numel() - 0.5)
    return torch.arange(start, end, step, dtype=out.dtype, device=out.device)


def _linspace(case: Case, of: Operands) -> torch.Tensor:
    out = of["output"]
    return torch.linspace(of["start"], of["end"], out.numel(), dtype=out.dtype, device=out.device)


def _clamp(case: Case, of: Operands) -> torch.Tensor:
    bounds = {attribute.name: attribute.default for attribute in case.operation.attributes}
    return torch.clamp(of["input"], bounds.get("low"), bounds.get("high"))


_OWN: dict[str, Callable[[Case, Operands], object]] = {
    "lerp_tensor": lambda case, of: torch.lerp(of["a"], of["b"], of["weight"]),
    "lerp": lambda case, of: torch.lerp(of["a"], of["b"], of["weight"]),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "clamp_tensor": lambda case, of: torch.clamp(of["input"], of["low"], of["high"]),
    "fma": lambda case, of: torch.addcmul(of["c"], of["a"], of["b"]),
    "cube": lambda case, of: torch.pow(of["input"], 3),
    "powi": lambda case, of: torch.pow(of["input"], case.default("exponent")),
    "round_decimals": lambda case, of: torch.round(of["input"], decimals=case.default("decimals")),
    "step": lambda case, of: torch.heaviside(of["input"], of["value"]),
    "threshold": lambda case, of: functional.threshold(of["input"], case.default("threshold"), case.default("value")),
    "prelu": lambda case, of: functional.prelu(_by_channel(case, of["input"]), of["weight"]),
    "affine": lambda case, of: torch.addcmul(of["shift"], of["input"], of["scale"]),
    "affine_per_channel": lambda case, of: torch.addcmul(
        _beside(case, of["shift"]), of["input"], _beside(case, of["scale"])
    ),
    "gelu_tanh": lambda case, of: functional.gelu(of["input"], approximate="tanh"),
    "glu": lambda case, of: functional.glu(of["both"], -1),
    "outer": lambda case, of: torch.mul(of["a"][..., None], of["b"][..., None, :]),
    "add_outer": lambda case, of: torch.add(of["a"][..., None], of["b"][..., None, :]),
    "one_hot": lambda case, of: functional.one_hot(of["target"], case.extents[-1]).to(of["output"].dtype),
    "full": lambda case, of: torch.full_like(of["output"], of["value"]),
    "arange": _arange,
    "linspace": _linspace,
    "eye": lambda case, of: torch.eye(*case.extents, dtype=of["output"].dtype, device=of["output"].device),
    "rand": lambda case, of: torch.rand_like(of["output"]),
    "randn": lambda case, of: torch.randn_like(of["output"]),
    "randint": lambda case, of: torch.randint_like(of["output"], of["low"], max(of["high"], of["low"] + 1)),
    "bernoulli": lambda case, of: torch.bernoulli(of["input"]),
    "dropout": lambda case, of: functional.dropout(of["input"], case.default("p")),
    "gumbel_softmax": lambda case, of: functional.gumbel_softmax(of["input"], case.default("tau"), dim=-1),
    "rms_norm": _rms_norm,
    "rms_normalize": _rms_norm,
    "layer_norm": _layer_norm,
    "standardize": _layer_norm,
    "instance_norm": lambda case, of: functional.instance_norm(
        of["input"], weight=of.get("weight"), bias=of.get("bias"), eps=case.default("eps")
    ),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "batch_norm_training": _batch_norm_training,
    "l2_normalize": lambda case, of: functional.normalize(of["input"], dim=-1, eps=case.default("eps")),
    "softmax": lambda case, of: torch.softmax(of["input"], -1),
    "log_softmax": lambda case, of: torch.log_softmax(of["input"], -1),
    "cross_entropy_and_gradient": _cross_entropy_and_gradient,
    "sum_of_integers": lambda case, of: of["input"].sum(case.reduced),
    "prod_of_integers": lambda case, of: of["input"].prod(only(case.reduced)),
    **{f"observe_min_max_per_{each}": _min_max for each in ("tensor", "channel")},
    **{f"observe_moving_average_per_{each}": _moving_average for each in ("tensor", "channel")},
    **{f"observe_absmax_per_{each}": _absmax for each in ("tensor", "channel")},
    "fake_quantize_per_tensor": _fake_quantize,
    "fake_quantize_per_channel": _fake_quantize_channels,
    "fake_quantize_per_token": _fake_quantize_channels,
}


_PREPARED: dict[str, Callable[[Case, Operands], Operands]] = {
    "affine": lambda case, of: {name: _number(case, name, of) for name in ("scale", "shift")},
    "step": lambda case, of: {"value": of["input"].new_full((), case.default("value"))},
    "glu": lambda case, of: {"both": torch.cat((of["up"], of["gate"]), -1)},
    "batch_norm": _widened,
    "batch_norm_training": _widened,
    "cross_entropy_and_gradient": _recorded,
    **{f"fake_quantize_per_{each}": _with_zero_point for each in ("tensor", "channel", "token")},
    **few_functions.PREPARED,
    **{
        f"observe_{what}_per_{each}": _states
        for what in ("min_max", "moving_average", "absmax")
        for each in ("tensor", "channel")
    },
}
