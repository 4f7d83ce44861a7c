"""skuda: a catalog of GPU kernels that is generated from one table of formulas.

`skuda.quantize_per_token(...)` and its siblings are the function form; plans, descriptors and args are in
`skuda.generated`. Array libraries and the CUDA toolchain are imported when they are first needed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skuda.generated import *  # noqa: F403

__version__ = "0.1.0"

_HOMES = {
    "BackendKind": "sku",
    "KernelSku": "sku",
    "PrecisionGuarantee": "sku",
    "SkudaError": "errors",
}


MODULES = frozenset(name.partition(".")[0] for name in os.listdir(os.path.dirname(__file__)))


def __getattr__(name: str):
    if name.startswith("_") or name in MODULES:  # a module that nobody has imported yet is no operation
        raise AttributeError(f"module 'skuda' has no attribute {name!r}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"skuda.{_HOMES[name]}"), name)
    catalog = importlib.import_module("skuda.generated").CATALOG
    try:
        value = catalog.attribute(name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("skuda.generated", "skuda", 1), name=name) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *importlib.import_module("skuda.generated").CATALOG.modules})
