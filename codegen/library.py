"""The text of skuda's own catalog, as it is installed: the functions that every spec may call, and the operations."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def _parts() -> tuple[str, str]:
    """What stands above the operations in skuda's ops.yaml, its lines where they are there, and the operations."""
    text = (resources.files("skuda.codegen") / "ops.yaml").read_text(encoding="utf-8")
    return tuple(re.split(r"^ops:", text, maxsplit=1, flags=re.MULTILINE))


def functions_text() -> str:
    """What stands above the operations in skuda's ops.yaml."""
    return _parts()[0]


def operations_text() -> str:
    """The operations in skuda's ops.yaml."""
    return _parts()[1]
