"""The names of the package itself: those that an operation cannot have, and modules that an operation is named like."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

# The public names of the package, and of a package that is generated: an operation has another name.
PUBLIC = frozenset(
    ("BackendKind", "KernelSku", "PrecisionGuarantee", "SkudaError", "errors", "generated", "jax", "plans", "reference")
)
# Names of modules that are not public mean nothing to those who call operations, so an operation may have one.
MODULES = frozenset(name.partition(".")[0] for name in os.listdir(os.path.dirname(__file__))) - PUBLIC


class _Both(ModuleType):
    """A module that an operation of the catalog is named like. Called, it is that operation."""

    def __call__(self, *arguments, **options):
        catalog = importlib.import_module("skuda.generated").CATALOG
        return catalog.attribute(self.__name__.rpartition(".")[2])(*arguments, **options)


def also_operation(name: str) -> ModuleType:
    """A module of the package, which from now on can be called as the operation of its name."""
    module = importlib.import_module(f"skuda.{name}")
    module.__class__ = _Both
    return module


def is_operation(module: str) -> bool:
    """Whether the catalog has an operation that is named like a module.

    The import of the catalog asks this too, so the catalog is not imported here.
    """
    from importlib.util import find_spec

    catalog = find_spec("skuda.generated")
    folder = os.path.dirname(catalog.origin) if catalog is not None and catalog.origin else ""
    return os.path.exists(os.path.join(folder, "plans", f"{module}.py"))
