"""The text of the functions that every spec may call: those of skuda's own catalog, as it is installed."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def functions_text() -> str:
    """What stands above the operations in skuda's ops.yaml, its lines where they are there."""
    text = (resources.files("skuda.codegen") / "ops.yaml").read_text(encoding="utf-8")
    return re.split(r"^ops:", text, maxsplit=1, flags=re.MULTILINE)[0]
