"""C++ in lines of a width: long expressions are broken where they are nested least."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from skuda.codegen.cuda import Member, Output, Parameter

WIDTH = 120  # columns
_BREAK = re.compile(r"(?<=,) | (?=(?:[-+*/<>]|[<>=!]=|&&|\|\|) )")


def broken(text: str, indent: int) -> str:
    """A text whose first line is indented already, in as many lines as it needs; those that follow are indented more.

    A line ends behind a comma or before an operator, at the last one of those in the fewest parentheses.
    """
    lines, margin = [], indent
    while margin + len(text) > WIDTH:
        least = max(1, WIDTH // 3 - margin)  # a line that is nearly empty helps nobody
        places = [at for at in _breaks(text) if at[1] <= WIDTH - margin]
        if not places:
            break
        _, end = min([at for at in places if at[1] >= least] or places, key=lambda at: (at[0], -at[1]))
        lines.append(text[:end])
        text, margin = text[end + 1 :], indent + 4
    return f"\n{' ' * (indent + 4)}".join([*lines, text])


def _breaks(text: str) -> Iterator[tuple[int, int]]:
    """(parentheses around it, place) of each blank at which a text may be broken."""
    depth = 0
    blanks = {match.start() for match in _BREAK.finditer(text)}
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if place in blanks:
            yield depth, place


def struct(fields: Sequence[Parameter], name: str) -> str:
    """A struct of some fields, on one line where it fits; neighbours of one type share a declaration."""
    declared = [
        f"{type} {', '.join(field.name for field in some)};" for type, some in groupby(fields, lambda field: field.type)
    ]
    line = f"struct {name} {{ {' '.join(declared)} }};" if declared else f"struct {name} {{}};"
    if len(line) + 2 <= WIDTH:
        return line
    return "\n".join([f"struct {name} {{", *(f"    {broken(each, 4)}" for each in declared), "  };"])


def initializers(members: Sequence[Member]) -> str:
    """How a constructor makes the members, behind its parameters."""
    text = ", ".join(f"{member.name}({member.value})" for member in members)
    return f"      : {broken(text, 8)} {{}}" if len(text) + 11 > WIDTH else f"      : {text} {{}}"


def values(outputs: Sequence[Output]) -> str:
    """The values of outputs in a list, one a line where they do not fit on one."""
    line = ", ".join(output.formula for output in outputs)
    if len(line) + len("    return {};") <= WIDTH:
        return line
    return "".join(f"\n        {broken(f'{output.formula},', 8)}" for output in outputs).removesuffix(",") + "\n    "


def conjunction(conditions: Sequence[str]) -> str:
    """Conditions that all must hold, as the value that a function returns."""
    return broken(" && ".join(conditions), 4 + len("return "))
