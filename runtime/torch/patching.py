"""`skuda.torch.patch`: modules of a model that skuda has too are replaced by class, and put back."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy
from fnmatch import fnmatchcase

import torch

from skuda.errors import InvalidProblem, shown
from skuda.model.records import Record
from skuda.torch import nn
from skuda.torch.linear import CODES, Linear8Bit
from skuda.torch.shared_codes import SharedCodes

_ROWS, _EPS = 4, 0.05  # of the tensor by which a module is tried, and what it may be off at most
_GATED = ("gate_proj", "up_proj", "down_proj")
# Modules of torch that read the weights of what they have, and do not always call it.
_READERS = torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention
_LIKE = ("norm", "gelu", "softmax", "silu", "swish", "mlp", "linear")  # in names of classes that a report speaks of


class Entry(Record):
    """What became of one module.

    Attributes:
        name: in the model, with dots.
        found: its class.
        became: the class that replaced it; empty where none did.
        reason: why none did.
    """

    name: str
    found: str
    became: str
    reason: str


class Report:
    """What `patch` did; its repr is a table.

    Attributes:
        entries: of the modules that were replaced, and of those that look as if they could be.
    """

    def __init__(self, entries: Sequence[Entry], places: list):
        self.entries = tuple(entries)
        self._places = places  # (parent, name, original, replacement)

    @property
    def replaced(self) -> dict[str, str]:
        """The new class of each module that was replaced, by its name."""
        return {entry.name: entry.became for entry in self.entries if entry.became}

    @property
    def kept(self) -> dict[str, str]:
        """Why a module was not replaced, by its name."""
        return {entry.name: entry.reason for entry in self.entries if not entry.became}

    def undo(self) -> None:
        """Puts the modules back that were replaced. A second call does nothing.

        Raises:
            InvalidProblem: one of them has been replaced since; nothing is put back.
        """
        for parent, name, _, replacement in self._places:
            if parent._modules.get(name) is not replacement:
                raise InvalidProblem(f"undo: {name} of {type(parent).__name__} is no longer what patch put there")
        for parent, name, original, _ in reversed(self._places):
            parent._modules[name] = original
            original.train(parent.training)
        self._places = []

    def forget(self) -> None:
        """Drops the modules that were replaced, with their weights; nothing can be put back then."""
        self._places = []

    def __repr__(self) -> str:
        groups: dict[tuple, list[str]] = {}
        for entry in self.entries:
            groups.setdefault((entry.found, entry.became, entry.reason), []).append(entry.name)
        rows = [("module", "count", "became", "where, or why not")]
        for (found, became, reason), names in groups.items():
            where = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
            rows.append((found, str(len(names)), became or "-", where + (f": {reason}" if reason else "")))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[-1]]) for row in rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def patch(model: torch.nn.Module, *, linear: str | None = None, keep: Sequence[str] = ()) -> Report:
    """Replaces modules of a model by skuda's, in place; they share their parameters with the old ones.

    By class: torch.nn's LayerNorm, RMSNorm, GELU and Softmax. By structure: norms whose class ends with RMSNorm, GELUs
    of transformers, and feed-forward layers of `gate_proj`, `up_proj` and `down_proj`, each if it gives on random
    numbers what skuda's gives. With `linear`, torch.nn.Linear becomes `Linear8Bit`, and the model is for inference.

    Args:
        model: any module. It itself stays; what it has is replaced.
        linear: "s8" or "e4m3".
        keep: names of modules that stay, which may have `*`: ("lm_head", "model.layers.0.*").

    Returns:
        A report of what was replaced, and what not and why. `report.undo()` puts everything back.

    Raises:
        InvalidProblem: `model` is no module, `linear` is no code, or `keep` has something else than names.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidProblem(f"patch: model is {shown(model)}, expected a torch.nn.Module")
    if linear is not None and linear not in CODES:
        raise InvalidProblem(f"patch: linear is {linear!r}, expected one of {', '.join(CODES)}, or None")
    names = [keep] if isinstance(keep, str) or not isinstance(keep, Sequence) else keep
    if other := [name for name in names if not isinstance(name, str)]:
        raise InvalidProblem(f"patch: keep has {shown(other[0])}, expected names of modules")
    work = _Work(linear, tuple(names), _tied(model) if linear else set())
    work.root(model)
    work.within(model, "")
    return Report(work.entries, work.places)


class _Work:
    """One call of `patch`: what it found so far."""

    def __init__(self, linear: str | None, keep: tuple[str, ...], tied: set[int]):
        self.linear, self.keep, self.tied = linear, keep, tied
        self.entries: list[Entry] = []
        self.places: list[tuple] = []
        self._made: dict[int, tuple] = {}  # a module may have several places

    def root(self, model: torch.nn.Module) -> None:
        """Says why the model itself stays, if it is such a module."""
        if _speaks_of(model, self.linear):
            new, reason = _replacement(model, self.linear, self.tied)
            if reason := "nothing has it, in which it could be replaced" if new is not None else reason:
                self.entries.append(Entry("", type(model).__name__, "", reason))

    def within(self, model: torch.nn.Module, prefix: str) -> None:
        """Replaces what a module has, then what that has."""
        for key, module in list(model._modules.items()):
            if module is not None:
                self._at(model, key, module, f"{prefix}{key}")
                self.within(model._modules[key], f"{prefix}{key}.")
        self._share(model)

    def _share(self, parent: torch.nn.Module) -> None:
        """Lets new layers of one parent that may get the same tensor share its codes."""
        alike: dict[int, list[Linear8Bit]] = {}
        made = {id(new) for _, _, _, new in self.places}
        for layer in dict.fromkeys(parent._modules.values()):
            if type(layer) is Linear8Bit and id(layer) in made and layer.shared is None:
                alike.setdefault(layer.in_features, []).append(layer)
        for layers in alike.values():
            if len(layers) > 1:
                shared = SharedCodes(len(layers))
                for layer in layers:
                    layer.shared = shared

    def _at(self, parent: torch.nn.Module, key: str, module: torch.nn.Module, name: str) -> None:
        if not _speaks_of(module, self.linear):
            return
        if any(fnmatchcase(name, each) for each in self.keep):
            new, reason = None, "it was asked to stay"
        elif isinstance(parent, _READERS) and isinstance(module, torch.nn.Linear):
            new, reason = None, f"{type(parent).__name__} reads its weight without calling it"
        else:
            if id(module) not in self._made:
                self._made[id(module)] = (*_replacement(module, self.linear, self.tied), module)
            new, reason = self._made[id(module)][:2]
        if new is None and reason is None:
            return
        self.entries.append(Entry(name, type(module).__name__, "" if new is None else type(new).__name__, reason or ""))
        if new is not None:
            self.places.append((parent, key, module, new))
            parent._modules[key] = new


def _speaks_of(module: torch.nn.Module, linear: str | None) -> bool:
    if type(module).__module__ in ("skuda.torch.nn", "skuda.torch.linear"):
        return False
    if isinstance(module, torch.nn.Linear):
        return linear is not None
    return any(word in type(module).__name__.lower() for word in _LIKE) or _is_gated(module)


def _tied(model: torch.nn.Module) -> set[int]:
    """The parameters that more than one module has."""
    seen: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                seen.setdefault(id(parameter), set()).add(id(module))
    return {parameter for parameter, modules in seen.items() if len(modules) > 1}


def _replacement(module: torch.nn.Module, linear: str | None, tied: set[int]) -> tuple:
    """What replaces a module, and why nothing does; None twice where nothing is to be said."""
    name = type(module).__name__
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, each) for each in hooks):
        return None, "it has hooks, which would be lost"
    if torch.nn.utils.parametrize.is_parametrized(module):
        return None, "it is parametrized"
    make = _BY_CLASS.get(type(module))
    if make is not None:
        return _shared(module, make), None
    if type(module) is torch.nn.Linear:
        return _linear(module, linear, tied)
    if name.endswith("RMSNorm"):
        return _tried(module, _rms_norm_of(module), "a weight of one axis and an eps")
    if "gelu" in name.lower() and not list(module.parameters()):
        return _tried(module, [nn.GELU(), nn.GELU("tanh")], "gelu, by erf or by tanh")
    if _is_gated(module):
        made = [nn.SwiGLU.of(module)] if _is_silu(module) else []
        return _tried(module, made, "silu between gate_proj and down_proj")
    known = [each for each in (*_BY_CLASS, torch.nn.Linear) if isinstance(module, each)]
    if known:
        return None, f"a subclass of {known[0].__name__} may compute something else"
    return (None, "skuda.torch.nn has no such module") if not list(module.children()) else (None, None)


def _shared(module: torch.nn.Module, made: type[torch.nn.Module]) -> torch.nn.Module:
    """A module of a subclass, with the same parameters and attributes."""
    new = made.__new__(made)
    new.__dict__ = {
        name: value.copy() if isinstance(value, dict) else value for name, value in module.__dict__.items()
    }
    return new


_BY_CLASS = {
    torch.nn.LayerNorm: nn.LayerNorm,
    torch.nn.RMSNorm: nn.RMSNorm,
    torch.nn.GELU: nn.GELU,
    torch.nn.Softmax: nn.Softmax,
}

def _linear(module: torch.nn.Linear, code: str, tied: set[int]) -> tuple:
    if id(module.weight) in tied:
        return None, "its weight is another module's too"
    if module.weight.is_meta or not module.weight.is_floating_point():
        return None, "its weight has no elements yet, or is no float"
    if module.weight.dtype == torch.float64:
        return None, "its weight is float64"
    return nn.Linear8Bit.of(module, code), None


def _rms_norm_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """What a norm may be, by its weight and its eps."""
    parameters = dict(module.named_parameters())
    names = [name for name in ("variance_epsilon", "eps", "epsilon") if hasattr(module, name)]
    eps = getattr(module, names[0]) if names else None
    if list(parameters) != ["weight"] or parameters["weight"].ndim != 1 or not isinstance(eps, float):
        return []
    made = nn.RMSNorm(len(module.weight), eps=eps, device="meta")
    made.weight = module.weight
    return [made.train(module.training)]


def _is_gated(module: torch.nn.Module) -> bool:
    return all(isinstance(getattr(module, each, None), torch.nn.Module) for each in _GATED)


def _is_silu(module: torch.nn.Module) -> bool:
    inside = [each for name, each in module.named_children() if name not in _GATED]
    return len(inside) == 1 and type(inside[0]).__name__ in ("SiLU", "SiLUActivation") and not module._parameters


@torch.no_grad()
def _tried(module: torch.nn.Module, candidates: list[torch.nn.Module], expected: str) -> tuple:
    """The candidate that gives what a module gives on random numbers."""
    if not candidates:
        return None, f"it has not {expected}"
    if any(parameter.is_meta for parameter in module.parameters()):
        return None, "its weight has no elements yet, so it cannot be tried"
    if untried := _untried(module):
        return None, untried
    weight = next(module.parameters(), torch.empty(16))
    linear = getattr(module, "gate_proj", None)
    width = weight.shape[-1] if linear is None else getattr(linear, "in_features", weight.shape[-1])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_ROWS, width, generator=generator).to(weight.device, weight.dtype)
    try:
        wanted = copy(module)(x)  # what it sets on itself, it sets on the copy
        for new in candidates:
            found = new(x)
            if found.shape == wanted.shape and found.dtype == wanted.dtype:
                off = (found.float() - wanted.float()).abs().max()
                if off <= _EPS * wanted.float().abs().max().clamp_min(1e-30) / (1 if _coarse(x) else 1000):
                    return new, None
    except Exception as error:  # whatever a module of others raises on such a tensor
        return None, f"it cannot be tried: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    return None, f"on random numbers it gives something else than {type(candidates[0]).__name__}"


def _untried(module: torch.nn.Module) -> str:
    """What a trial with one tensor would not show of a module; empty if it shows all."""
    names = [*inspect.signature(module.forward).parameters]
    if len(names) != 1:
        return f"its forward takes {', '.join(names) or 'nothing'}, expected one tensor"
    if next(module.buffers(), None) is not None:
        return "it has buffers, which would be lost"
    if not _is_gated(module) and (inside := next(module.children(), None)) is not None:
        return f"it has a {type(inside).__name__}, which would be lost"
    return ""


def _coarse(x: torch.Tensor) -> bool:
    return x.element_size() < 4
