"""torch's function of an elementwise operation's own name: `torch.log` beside `log`, `functional.elu` beside `elu`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from skuda.bench.suite import Case

_CALLED = {"log_sigmoid": "logsigmoid"}  # by another name
_OTHERWISE = frozenset(("threshold",))  # which torch gives no default


def function_of(case: Case) -> Callable[..., torch.Tensor] | None:
    """What takes the row's inputs as they are; None where torch has no such function, or other parameters.

    The attributes of a row have torch's defaults.
    """
    operation = case.operation
    name = operation.function
    alike = all(operand.dims == operation.space for operand in operation.operands) and len(operation.outputs) == 1
    asked = any(attribute.default is None for attribute in operation.attributes)
    if name in _OTHERWISE or asked or not alike:
        return None
    name = _CALLED.get(name, name)
    return getattr(torch, name, None) or getattr(functional, name, None)
