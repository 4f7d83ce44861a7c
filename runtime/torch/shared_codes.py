"""Codes that layers share which get the same tensor one after the other: it is quantized once."""

from __future__ import annotations

import threading
import weakref

import torch
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack


class SharedCodes:
    """The codes of the tensor that some layers were given last.

    A layer takes the codes that another one made of the same tensor object, if nothing has been written to it since:
    that is what its version counter says. Each layer takes them once, so that a second pass quantizes again. Codes are
    dropped when their tensor is, when all layers have had them, and when one of the layers gets another tensor.

    Every layer quantizes for itself where that rule could not be kept or codes could not be read: tensors of
    `torch.inference_mode`, which have no version counter; calls on another stream or thread, or of which one alone is
    captured in a graph; subclasses of tensors, modes and transforms of torch; gradients. What writes to a tensor
    without torch's knowledge between two layers (`x.data`, a kernel of one's own) is not seen, as autograd does not.

    Args:
        layers: how many layers there are. They quantize alike: by the same code, with nothing before it.
    """

    __slots__ = ("_last", "layers")

    def __init__(self, layers: int):
        self.layers, self._last = layers, None

    def codes(self, layer, x: torch.Tensor):
        """What `layer._codes(x)` gives, made by this layer or by another one."""
        moment = _moment(x)
        if moment is None:
            return layer._codes(x)
        last = self._last
        if last is not None and last() is x and last.moment == moment and id(layer) not in last.had:
            last.had.add(id(layer))
            if len(last.had) == self.layers:
                self._last = None
            return last.codes
        self._last = last = None  # before others are made, so that memory is free
        made = _Entry(x, _drop)
        made.codes, made.moment, made.had = layer._codes(x), moment, {id(layer)}
        self._last = made
        return made.codes

    def __reduce__(self):
        return SharedCodes, (self.layers,)  # copies and pickled layers share among themselves, from nothing


class _Entry(weakref.ref):
    """A tensor that lives elsewhere, its codes, when they were made and which layers had them."""

    __slots__ = ("codes", "had", "moment")


def _drop(entry: _Entry) -> None:
    entry.codes = None


def _moment(x: torch.Tensor) -> tuple | None:
    """What must be the same where codes are read as where they were made; None where they cannot be shared."""
    if type(x) is not torch.Tensor or x.is_inference() or (x.requires_grad and torch.is_grad_enabled()):
        return None
    if _len_torch_dispatch_stack() or _are_functorch_transforms_active():
        return None
    moment = x._version, x.data_ptr(), threading.get_ident()
    if x.is_cuda:
        stream = torch._C._cuda_getCurrentRawStream(x.device.index)
        return *moment, stream, torch._C._cuda_isCurrentStreamCapturing()
    return moment if x.device.type == "cpu" else None
