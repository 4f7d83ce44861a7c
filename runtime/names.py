"""The names of the package itself: those that an operation cannot have, modules that an operation is named like, and
arguments that all functions of operations take."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType

FRAMEWORKS = frozenset(("jax", "onnx", "torch"))  # `skuda.torch` imports what it names
# The public names of the package, and of a package that is generated: an operation has another name.
PUBLIC = FRAMEWORKS | {
    "BackendKind", "KernelSku", "PrecisionGuarantee", "SkudaError", "define",
    "errors", "generated", "plans", "reference",
}  # fmt: skip
# Names of modules that are not public mean nothing to those who call operations, so an operation may have one.
MODULES = frozenset(name.partition(".")[0] for name in os.listdir(os.path.dirname(__file__))) - PUBLIC
# What all functions take, after how many outputs they have. What is told apart is what stands before "written".
OUT = "{} written instead of a new one; may be an input of the same type and shape."
OUT_OF = {False: "an array", True: "a tuple with an array for each output,"}
STREAM = "what to launch on; the current stream of the arrays' library if None."
# What functions take beside that whose inputs are no arrays: name, type, meaning.
PLACED = (
    ("like", "array", "an array in whose library and on whose device the output is made; NumPy if none says where"),
    ("device", "device", 'a torch.device, or its text such as "cuda"; of an array of CuPy the ordinal of a GPU'),
)
SESSION = "skuda.defined"  # below it are the packages of operations that a session defines
_RAISES = "SkudaError: arguments that do not fit; nothing is launched or written then."


def documented(function: Callable) -> Callable:
    """Adds to the docstring of a generated function what all of them take and raise, and imports for its example."""
    text = function.__doc__
    if text is not None:
        indent = "    " if "\n    Args:" in text else ""  # Python 3.13 takes it away
        said, returns = text.rstrip().split(f"\n\n{indent}Returns:\n")
        returns, example, lines = returns.partition(f"\n\n{indent}Example:\n")
        out = OUT.format(OUT_OF[returns.lstrip()[0] == "("])
        line = f"\n{indent}    "
        said += f"{line}out: {out}{line}stream: {STREAM}"
        raises = f"\n\n{indent}Raises:{line}{_RAISES}"
        if example:
            package = function.__module__.rpartition(".plans.")[0].removesuffix(".generated")
            imports = f"{line[1:]}>>> import numpy as np"
            if not package.startswith(SESSION):
                imports += f"{line}>>> from {package} import {function.__name__}"
            example += f"{imports}\n{lines}"
        function.__doc__ = f"{said}\n\n{indent}Returns:\n{returns}{raises}{example}\n{indent}"
    return function


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
