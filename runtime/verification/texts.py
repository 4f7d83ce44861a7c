"""What a compiler is given for a kernel, as digests: evidence counts while that is as it was.

A source is compiled for one kernel at a time, with the header of that kernel's schedule and empty ones in place of the
others (`skuda.launch.compiler.needed`). So there are two digests. That of a whole source, with every header that it
includes, names what ran. That of what the kernels of one schedule are given tells whether it still is so for them: a
change of `tile.cuh` says nothing of kernels that hold rows. Lines that are comments are no part of either.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from skuda.launch.compiler import OPTIONS, included, needed
from skuda.launch.registry import source_text
from skuda.schedules.table import SCHEDULES

DIGITS = 16  # hexadecimal ones of what a schedule's kernels are given: it tells texts of one source apart


@cache
def schedule_of(symbol: str) -> str:
    """The schedule of a kernel by the name of its variant: `columns4_unaligned` has one of its own, and `row128x4` that
    of `row`. "stages" launches the kernels of other operations, and has none."""
    name = re.sub(r"\d+(x\d+)?", "", symbol.partition("__")[2])
    known = (each for each in SCHEDULES if name == each or name.startswith(f"{each}_"))
    return max(known, key=len, default=name.partition("_")[0])


def source_of(row: Mapping[str, Any]) -> str:
    """The source of the kernel of a bench's row."""
    return row["operation"].removesuffix("_backward") + ".cu"


@cache
def _code(text: str) -> str:
    """A text without the lines that are comments, such as the one that says what it was generated from."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("//"))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def header_digest(name: str) -> str:
    """What a device header means: its code, that of the headers that it includes, and the compiler's options."""
    return _digest([*map(_code, included(f'#include "{name}"\n').values()), *OPTIONS])


class Texts:
    """The digests of a generated package's sources as they are; each is made when it is first asked for.

    Args:
        package: the folder of the package.
    """

    def __init__(self, package: Path):
        self._package = package
        self._found: dict[tuple[str, str], str | None] = {}

    def whole(self, source: str) -> str | None:
        """What a CUDA source means: its code, its headers' and the compiler's options. None if it is not there."""
        return self._of(source, "")

    def given(self, source: str, schedule: str) -> str | None:
        """What the compiler is given for the kernels of one schedule, those that follow them too. Where it is none of
        the table, that is the whole source. None if the source is not there.
        """
        found = self._of(source, schedule if schedule in SCHEDULES else "")
        return found and found[:DIGITS]

    def _of(self, source: str, schedule: str) -> str | None:
        key = source, schedule
        if key not in self._found:
            try:
                text = source_text(self._package, source)
            except FileNotFoundError:
                self._found[key] = None
            else:
                self._found[key] = _digest(_given(text, schedule) if schedule else [*_whole(text), *OPTIONS])
        return self._found[key]


def _whole(text: str) -> list[str]:
    return [*map(_code, (text, *included(text).values()))]


def _given(text: str, schedule: str) -> list[str]:
    """The texts that the kernels of a schedule are compiled from, each header after its name."""
    parts = [_code(text), *OPTIONS]
    for kernel in (schedule, *SCHEDULES[schedule].then):
        parts += [part for name, header in needed(text, [kernel]).items() for part in (name, _code(header))]
    return parts
