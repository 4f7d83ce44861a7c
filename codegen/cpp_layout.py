"""Breaks the long lines of generated C++: at commas and operators, where fewest brackets are open."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 120  # columns of a line
_RANKS = {";": -1, ",": 0, ")": 0, "?": 1, ":": 1, "&&": 1, "||": 1, "==": 2, "<": 2, ">": 2, "<=": 2, ">=": 2, "!=": 2}
_RANKS |= {"+": 3, "-": 3, "*": 4, "/": 4, "=": 5, "(": 6}
_DEEPER = {"(": 3, "=": 2}  # where a line ends only for want of a better place: as if so many more brackets were open
_OPERATOR = re.compile(r"(?:(?<=\S)| )(;|,|\)|&&|\|\||==|<=|>=|!=|[?:+\-*/=<>]) ")

_SIGN = re.compile(r"[^\w.]")  # where a bracket may be, or an operator begin


def laid_out(text: str) -> str:
    """A source whose lines have at most 120 columns."""
    return "\n".join(part for line in text.split("\n") for part in _parts(line))


def _parts(line: str) -> Iterator[str]:
    """The lines that a line becomes."""
    indent, code = len(line) - len(line.lstrip()), line.lstrip()
    comment = code.startswith("//")
    more = 2 if code.startswith(": ") else 4
    start = " " * indent + "//   " if comment else " " * (indent + more)
    while len(line) > WIDTH:
        end = _word_end(line, len(start)) if comment else _break(line, len(start))
        if end is None:
            break
        yield line[:end].rstrip()
        line = start + line[end:].lstrip()
    yield line


def _word_end(line: str, least: int) -> int | None:
    """Where a comment goes on in the next line."""
    end = line.rfind(" ", least + 1, WIDTH + 1)
    return end + 1 if end > 0 else None


def _break(line: str, start: int) -> int | None:
    """Where code goes on in the next line, in column `start`: where fewest brackets are open."""
    code = len(line) - len(line.lstrip())
    best = None
    for depth, sign, column in _breaks(line):
        fits = sign == "=" and start + len(line) - column <= WIDTH
        cost = depth + (0 if fits else _DEEPER.get(sign, 0)), _RANKS[sign], -column
        if code + 2 < column <= WIDTH and (best is None or cost < best):
            best = cost
    return None if best is None else -best[2]


def _breaks(line: str) -> Iterator[tuple[int, str, int]]:
    """Everywhere that a line may end, as far as it is wide enough: how many brackets are open, the sign in front, and
    the column."""
    depth = 0
    for column in (sign.start() for sign in _SIGN.finditer(line, 0, WIDTH)):
        if _opens(line, column):
            depth += 1
            yield depth, "(", column + 1
        elif _closes(line, column):
            depth -= 1
        match = _OPERATOR.match(line, column)
        if match is None or (match[1] == ")" and (depth > 0 or not line[match.end()].isalpha())):
            continue
        if match[1] in ";,)" or line[column] == " ":  # else a sign, not an operator between two values
            yield depth, match[1], match.end()


def _opens(line: str, column: int) -> bool:
    """Whether a bracket opens: `<` after a name is one, between spaces it compares."""
    return line[column] in "([{" or (line[column] == "<" and line[column - 1 : column] not in ("", " ", "<"))


def _closes(line: str, column: int) -> bool:
    sign = line[column]
    return sign in ")]}" or (sign == ">" and line[column - 1] not in " -" and line[column + 1 : column + 2] != "=")
