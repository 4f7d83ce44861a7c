"""skuda in PyTorch: every operation of every catalog is an operator `torch.ops.skuda.*`.

It is imported when a first tensor comes to a function of skuda, or by `import skuda.torch`. From then on a call with
tensors is an operator's wherever torch has to know of it: gradients are recorded, `torch.func`, `torch.compile`,
`torch.export`, autocast or a mode is active, or a tensor is of a class of its own. Where nothing follows a call it
goes to the kernel at once. Both give the same bits.

`torch.ops.skuda.softmax(x, axis)` takes the arguments of `skuda.softmax` in the order of its schema, and writes a new
tensor; `torch.ops.skuda.softmax_out(x, axis, out)` writes one that it is given.
"""

from __future__ import annotations

from skuda.torch.carrier import carry
from skuda.torch.operators import Operator, operator_of, register_operators

__all__ = ["Operator", "carry", "operator_of", "register_operators"]

register_operators()
