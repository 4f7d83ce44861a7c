"""Mistakes in a spec file: collected, sorted, and printed with the line they stand in.

    ops.yaml:8:39: error: `alfa` is neither an argument nor an intrinsic
     8 |   output: T[*shape] = where(x > 0, x, alfa * expm1(x))
       |                                       ^^^^
       = help: did you mean `alpha`?

A spec file may come from a stranger, so nothing of it reaches the terminal unescaped: not its lines, not the
names that a message repeats.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from skuda.errors import SpecError

WINDOW = 100  # columns of a source line that are shown
SHOWN = 100  # mistakes that are printed in full; the rest is counted
LONGEST = 400  # characters of a message: it may repeat a name, and a name may be as long as its file


@dataclass(frozen=True, order=True)
class Place:
    """A span of one line; line and column count from 1 and in characters, as editors do."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True)
class _Mistake:
    place: Place
    message: str
    help: str | None


class Diagnostics:
    """All mistakes of one file.

    Attributes:
        file_name: as it is to be printed.
        done: what is not done where there is a mistake.
        lines: the file's lines without their ends.
    """

    def __init__(self, file_name: str, text: str, done: str = "written") -> None:
        self.file_name = file_name
        self.done = done
        self.lines = split_lines(text)
        self._mistakes: list[_Mistake] = []

    def error(self, place: Place, message: str, help: str | None = None) -> None:
        """Add a mistake."""
        self._mistakes.append(_Mistake(place, message, help))

    def __len__(self) -> int:
        """How often `error` was called: it grows with each mistake, also with one that is there already."""
        return len(self._mistakes)

    @property
    def first(self) -> tuple[str, str | None] | None:
        """Message and help of the mistake that was reported first; None if there is none."""
        return (self._mistakes[0].message, self._mistakes[0].help) if self._mistakes else None

    def render(self) -> str:
        """All mistakes, sorted by place, each once, then their number; the empty text if there is none."""
        if not self._mistakes:
            return ""
        distinct = {(mistake.place, mistake.message): mistake for mistake in reversed(self._mistakes)}
        mistakes = sorted(reversed(distinct.values()), key=lambda mistake: mistake.place)
        blocks = [self._block(mistake) for mistake in mistakes[:SHOWN]]
        if len(mistakes) > SHOWN:
            blocks.append(f"... and {len(mistakes) - SHOWN} more")
        count = "1 error" if len(mistakes) == 1 else f"{len(mistakes)} errors"
        blocks.append(f"{count} in {escaped(self.file_name)}; nothing was {self.done}")
        return "\n".join(blocks)

    def raise_if_any(self) -> None:
        """Raises: SpecError, with everything that `render` prints, if there is a mistake."""
        if self._mistakes:
            raise SpecError(self.render())

    def _block(self, mistake: _Mistake) -> str:
        place = mistake.place
        rows = [f"{escaped(self.file_name)}:{place.line}:{place.column}: error: {_cut(mistake.message)}"]
        gutter = " " * (len(str(place.line)) + 2)
        if 1 <= place.line <= len(self.lines):
            source, start, length = _excerpt(self.lines[place.line - 1], place)
            rows.append(f" {place.line} | {source}".rstrip())
            rows.append(f"{gutter}| {' ' * start}{'^' * length}")
        if mistake.help is not None:
            rows.append(f"{gutter}= help: {_cut(mistake.help)}")
        return "\n".join(rows)


def split_lines(text: str) -> list[str]:
    """The lines as YAML and editors count them (`str.splitlines` also cuts at form feeds and others)."""
    return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))


def escaped(text: str) -> str:
    """The text with all that could drive a terminal or hide in it escaped; a tab becomes a space."""
    return "".join(map(_shown, text))


def closest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that `word` most likely is a misspelling of, or None."""
    if len(word) > 100:  # difflib is quadratic, and no name is as long
        return None
    pool = sorted(set(choices) - {word})
    for choice in pool:
        if choice.casefold() == word.casefold():
            return choice
    found = difflib.get_close_matches(word, pool, n=1, cutoff=0.66)
    return found[0] if found else None


def suggestion(word: str, choices: Iterable[str], otherwise: str | None = None) -> str | None:
    """The help for a word that nothing is called: the choice that is meant, or else another help."""
    near = closest(word, choices)
    return f"did you mean `{near}`?" if near else otherwise


def _cut(text: str) -> str:
    return escaped(text if len(text) <= LONGEST else text[:LONGEST] + "...")


def _shown(character: str) -> str:
    if character == "\t":
        return " "
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _width(shown: str) -> int:
    """Terminal columns of what `_shown` gave: East Asian characters take two, combining marks none."""
    if len(shown) > 1:
        return len(shown)
    if unicodedata.category(shown) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(shown) in "WF" else 1


def _excerpt(line: str, place: Place) -> tuple[str, int, int]:
    """What of a line is printed, and where its carets start and how many they are, in terminal columns."""
    first = min(max(place.column - 1, 0), len(line))
    last = max(min(first + place.length, len(line)), first)
    low, high = 0, len(line)
    if high > WINDOW:
        low = max(0, min(first - WINDOW // 3, high - WINDOW)) if last > WINDOW else 0
        high = low + WINDOW
        last = min(last, high)
    before, marked = _shown_between(line, low, first), _shown_between(line, first, last)
    left, right = "..." if low else "", "..." if high < len(line) else ""
    source = left + "".join(before + marked + _shown_between(line, last, high)) + right
    return source, len(left) + sum(map(_width, before)), max(1, sum(map(_width, marked)))


def _shown_between(line: str, low: int, high: int) -> list[str]:
    return [_shown(character) for character in line[low:high]]
