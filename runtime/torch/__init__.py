"""skuda in PyTorch: every operation of every catalog is an operator `torch.ops.skuda.*`.

It is imported when a first tensor comes to a function of skuda, or by `import skuda.torch`. From then on a call with
tensors is an operator's wherever torch has to know of it: gradients are recorded, `torch.func`, `torch.compile`,
`torch.export`, autocast or a mode is active, or a tensor is of a class of its own. Where nothing follows a call it
goes to the kernel at once. Both give the same bits.

`torch.ops.skuda.softmax(x, axis)` takes the arguments of `skuda.softmax` in the order of its schema, and writes a new
tensor; `torch.ops.skuda.softmax_out(x, axis, out)` writes one that it is given.

`skuda.torch.nn` has modules, `skuda.torch.patch(model)` puts them into a model, `skuda.torch.shard()` tells DTensor
how operators are split over devices, and `skuda.torch.compile(model, fusible=True)` lets a compiler fuse operators with
what is around them. These are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module

from skuda.torch import creation as _creation  # noqa: F401
from skuda.torch import halves as _halves  # noqa: F401
from skuda.torch.carrier import carry
from skuda.torch.operators import Operator, operator_of, register_operators

__all__ = ["Operator", "carry", "operator_of", "register_operators"]

_LATER = {"nn": "nn", "patch": "patching", "Report": "patching", "shard": "dtensor",
          "compile": "fusible", "not_fusible": "fusible"}  # fmt: skip  # the module of each name


def __getattr__(name: str):
    if name not in _LATER:
        raise AttributeError(f"module 'skuda.torch' has no attribute {name!r}")
    module = import_module(f"skuda.torch.{_LATER[name]}")
    return module if name == _LATER[name] else getattr(module, name)


register_operators()
