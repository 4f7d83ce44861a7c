"""skuda: a catalog of GPU kernels that is generated from one table of formulas.

`skuda.quantize_per_token(...)` and its siblings are the function form; plans, descriptors and args are in
`skuda.generated`. Array libraries and the CUDA toolchain are imported when they are first needed.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skuda.generated import *  # noqa: F403

__version__ = "0.1.0"

_HOMES = {
    "BackendKind": "model.sku",
    "KernelSku": "model.sku",
    "PrecisionGuarantee": "model.sku",
    "SkudaError": "errors",
}

# The public names of this package, and of one that is generated: an operation has another. Names of modules that are
# not among them are no names of anything to those who call operations.
PUBLIC = frozenset({*_HOMES, "errors", "generated", "plans", "reference"})
MODULES = frozenset(name.partition(".")[0] for name in os.listdir(os.path.dirname(__file__))) - PUBLIC


class _Both(ModuleType):
    """A module that an operation of the catalog is named like. Called, it is that operation."""

    def __call__(self, *arguments, **options):
        catalog = importlib.import_module("skuda.generated").CATALOG
        return catalog.attribute(self.__name__.rpartition(".")[2])(*arguments, **options)


def also_operation(name: str) -> ModuleType:
    """A module of this package, which from now on can be called as the operation of its name."""
    module = importlib.import_module(f"skuda.{name}")
    module.__class__ = _Both
    return module


def _is_operation(module: str) -> bool:
    """Whether the catalog has an operation that is named like a module: its imports ask this too, so it is not imported
    here."""
    from importlib.util import find_spec

    catalog = find_spec("skuda.generated")
    folder = os.path.dirname(catalog.origin) if catalog is not None and catalog.origin else ""
    return os.path.exists(os.path.join(folder, "plans", f"{module}.py"))


def __getattr__(name: str):
    if name in MODULES and _is_operation(name):
        return also_operation(name)
    if name.startswith("_") or name in MODULES or name in PUBLIC - _HOMES.keys():  # a module that is not imported yet
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
