"""skuda: a catalog of GPU kernels that is generated from one table of formulas.

`skuda.quantize_per_token(...)` and its siblings are the function form; plans, descriptors and args are in
`skuda.generated`. Array libraries and the CUDA toolchain are imported when they are first needed.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# The modules of the public names that no catalog has. KernelSku comes with the registry, which reads symbols for it.
_HOMES = {
    "BackendKind": "model.sku",
    "KernelSku": "launch.registry",
    "PrecisionGuarantee": "model.sku",
    "SkudaError": "errors",
    "define": "codegen.define",  # reads rows as the generator does, and imports it
}
_NOTEBOOK = "codegen.notebook"  # shows a function's formulas as mathematics


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"skuda.{_HOMES[name]}"), name)
    from skuda.names import FRAMEWORKS, MODULES, PUBLIC, also_operation, is_operation

    if name in FRAMEWORKS:
        return importlib.import_module(f"skuda.{name}")
    if name in MODULES and is_operation(name):
        return also_operation(name)
    if name.startswith("_") or name in MODULES or name in PUBLIC:  # a module that is not imported yet
        raise AttributeError(f"module 'skuda' has no attribute {name!r}")
    catalog = importlib.import_module("skuda.generated").CATALOG
    try:
        value = catalog.attribute(name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("skuda.generated", "skuda", 1), name=name) from None
    if not isinstance(value, type):
        value._repr_markdown_ = lambda: importlib.import_module(f"skuda.{_NOTEBOOK}").of_function(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What completion shows: every operation, the package's own names, and the public modules that are loaded."""
    from skuda.names import PUBLIC

    own = [name for name in globals() if name.startswith("__") or name in PUBLIC]
    return sorted({*own, *_HOMES, *importlib.import_module("skuda.generated").CATALOG.functions()})
