"""Whether one module can stand for another: both have the same parts, and give the same on random numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from inspect import Parameter, signature

import torch

_ROWS, _EPS = 4, 0.05  # of a tensor by which a module is tried, and what it may be off at most
_SCALES = (1.0, 100.0, 1e-3)  # of such tensors: what is cut off shows in large ones, an eps in small ones
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
_STATE = ("get_extra_state", "set_extra_state", "_save_to_state_dict", "_load_from_state_dict")


def hooked(module: torch.nn.Module) -> str | None:
    """What an object of a class was given beside its class's methods, as a reason to leave it."""
    if any(getattr(module, each, None) for each in _HOOKS):
        return "it has hooks, which would be lost"
    if "forward" in vars(module):
        return "its forward was replaced, which would be lost"
    return None


def more_than(module: torch.nn.Module, parameters: Collection[str], children: int = 0) -> str | None:
    """What a module has that its replacement has not, as a reason to leave it; None where it has nothing.

    Args:
        parameters: which ones the replacement has, of the module itself.
        children: how many modules inside it the replacement keeps or does the work of.
    """
    buffers = [name for name, each in module._buffers.items() if each is not None]
    others = [name for name, each in module._parameters.items() if each is not None and name not in parameters]
    inside = [name for name, each in module._modules.items() if each is not None]
    for kind, names in (("a buffer", buffers), ("a parameter", others)):
        if names:
            return f"it has {kind} {names[0]}, which would be lost"
    if len(inside) > children:
        return f"it has modules inside, {', '.join(inside)}, of which some would be lost"
    own = [each for each in _STATE if getattr(type(module), each) is not getattr(torch.nn.Module, each)]
    return f"it has a {own[0]} of its own, which would be lost" if own else None


def not_of_one_input(module: torch.nn.Module) -> str | None:
    """Why a call may have other arguments than one tensor, as a reason to leave the module."""
    inputs = list(signature(type(module).forward).parameters.values())[1:]
    if len(inputs) == 1 and inputs[0].kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        return None
    return f"its forward takes ({', '.join(map(str, inputs))}), expected one input"


@torch.no_grad()
def tried(module: torch.nn.Module, candidates: Sequence[torch.nn.Module], width: int) -> tuple:
    """The candidate that gives what a module gives on random numbers, or why there is none.

    Copies are tried, so that neither the module nor its hooks notice. They share its parameters, which may be large.
    """
    parameters = list(module.parameters())
    like = parameters[0] if parameters else torch.empty(0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, width, generator=generator).to(like.device, like.dtype)
    try:
        first, *others = deepcopy([module, *candidates], {id(each): each for each in parameters})
        for inside in (each for copied in (first, *others) for each in copied.modules()):
            for hooks in _HOOKS:
                getattr(inside, hooks, {}).clear()
        left = list(zip(candidates, others, strict=True))
        for training in (True, False):  # a dropout shows in training alone
            for scale in _SCALES:
                wanted = _given(first, x * scale, training)
                if wanted.isfinite().all():
                    left = [each for each in left if _alike(_given(each[1], x * scale, training), wanted)]
    except Exception as error:  # whatever a module of others raises on a copy, or on such a tensor
        return None, f"it cannot be tried: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    if left:
        return left[0][0], None
    return None, f"on random numbers it gives something else than {type(candidates[0]).__name__}"


def _given(module: torch.nn.Module, x: torch.Tensor, training: bool) -> torch.Tensor:
    """What a module gives, with the same random numbers inside at each call."""
    with _seeded(x.device):
        return module.train(training)(x.clone())


@contextmanager
def _seeded(device: torch.device) -> Iterator[None]:
    """Random numbers of the CPU and of one GPU begin anew within, and go on after it as if nothing had been drawn."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(0)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(0)
        yield


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    most = _EPS if wanted.element_size() < 4 else _EPS / 1000
    off = (found.float() - wanted.float()).abs().max()
    return bool(off <= most * wanted.float().abs().max().clamp_min(1e-30))
