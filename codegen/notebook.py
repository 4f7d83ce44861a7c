"""How an operation of the catalog is shown in a notebook: its signature, and its formulas as mathematics."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from skuda.codegen import spec as specs
from skuda.codegen.describe import DescribedProgram
from skuda.codegen.library import functions_text


def markdown(described: DescribedProgram, head: str) -> str:
    """The signature, then each formula; what is displayed stands between `$$`."""
    return "\n\n".join([f"`{head}`", *(f"$${line}$$" for line in described.latex)])


@cache
def of_function(name: str) -> str:
    """The same of a function of skuda's own catalog."""
    described = _described(name.removesuffix("_backward"))[name]
    return markdown(described, f"{name}({described.signature})")


def _described(row: str) -> dict[str, DescribedProgram]:
    """Both directions of a row of the catalog, by the names of their functions; no other row is read."""
    text = (resources.files("skuda.codegen") / "ops.yaml").read_text(encoding="utf-8")
    own = re.search(rf"^  {row}:\n(?:(?:    .*)?\n)*", text, re.MULTILINE)
    (found,) = specs.loads(f"{functions_text()}ops:\n{own[0]}").rows
    return {program.operation.function: DescribedProgram(program) for program in found.programs}
