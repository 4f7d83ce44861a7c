"""PyYAML's errors, said again in terms of what the author of a formula most likely did."""

from __future__ import annotations

import re

import yaml

from skuda.codegen.diagnostics import Place

FLOW_HELP = 'quote each value between braces, as in {a: "T[*shape]"}, or give each a line of its own'
INDENT_HELP = "entries that belong together start in the same column"

# What YAML takes a value for that starts with this character.
_MEANING = {
    "*": "a YAML alias",
    "&": "a YAML anchor",
    "!": "a YAML tag",
    "[": "a YAML list",
    "{": "a YAML mapping",
    "'": "a quoted text",
    '"': "a quoted text",
    ">": "a text of several lines",
    "|": "a text of several lines",
    "-": "an item of a list",
    "?": "a key",
}

_ENTRY = re.compile(r"[ ]*(?:- +)*(?P<key>[^\s:#'\"\[{][^:#]*|'[^']*'|\"[^\"]*\"):[ ]+(?P<value>\S.*)")
_NO_SPACE = re.compile(r"[ ]*[\w*]+(?P<colon>:)[^\s:]")


def explain(error: yaml.MarkedYAMLError, lines: list[str]) -> tuple[Place, str, str]:
    """Place, message and help for an error of PyYAML's scanner or parser."""
    problem, mark = error.problem or "", error.problem_mark
    context, context_mark = error.context or "", error.context_mark or mark
    here, there = _place(mark, lines), _place(context_mark, lines)
    if problem.endswith("found '<stream end>'"):
        help = "close it with `]` or `}`; a formula must be quoted"
        return here, "the file ends inside of a list or mapping", help
    if context in ("while parsing a flow mapping", "while parsing a flow sequence"):
        return _flow(problem, here, there, lines)
    if "quoted scalar" in context:
        return _quoted_scalar(problem, here, there, lines)
    if "could not find expected ':'" in problem:
        return _no_colon(there, lines)
    if "mapping values are not allowed" in problem:
        return _mapping_value(here, lines)
    if "cannot start any token" in problem:
        character = _character(here, lines)
        if character == "\t":
            return here, "a tab between two words", "write a space"
        return here, *starts_with(character, lines, here)
    if "scanning a directive" in context:
        return there, "a line that starts with `%` is a YAML directive", "remove the line"
    if "expected <block end>" in problem or "expected '<document start>'" in problem:
        return _misfit(here, lines)
    at = there if "scanning" in context or "undefined tag" in problem else here
    if _character(at, lines) in _MEANING or "expected the node content" in problem:
        return at, *starts_with(_character(at, lines), lines, at)
    return here, f"YAML cannot read this: {problem}", quote_help(lines, here)


def starts_with(character: str, lines: list[str], place: Place) -> tuple[str, str]:
    """Message and help for a value that cannot be read as a text because of its first character."""
    entry = _entry(lines, place)
    is_whole_value = entry is not None and entry.start("value") == place.column - 1
    help = quote_help(lines, place) if is_whole_value else "quote the value"
    if character == "*":
        help += ", or put a type in front, as in T[*shape]"
    if character in _MEANING:
        return f"`{character}` at the start makes this {_MEANING[character]}", help
    return ("a backtick" if character == "`" else f"`{character}`") + " cannot start a value", help


def quote_help(lines: list[str], place: Place) -> str:
    """Advice to quote the value in which `place` is, spelled out if it is short."""
    entry = _entry(lines, place)
    if entry is None or place.column <= entry.start("value"):
        return "quote the value"
    value = re.sub(r"\s+#[^()]*$", "", entry["value"]).rstrip()
    if len(value) > 60:
        return "quote the value"
    return "quote the value: '" + value.replace("'", "''") + "'"


def _flow(problem: str, here: Place, there: Place, lines: list[str]) -> tuple[Place, str, str]:
    opening = _character(there, lines)
    closing = "]" if opening == "[" else "}"
    if here.line != there.line:
        return there, f"this `{opening}` is not closed", f"add the `{closing}`; a formula must be quoted"
    if _character(here, lines) in "[{":
        message = f"`{_character(here, lines)}` inside of a value between `{opening}` and `{closing}`"
        return here, message, FLOW_HELP
    return here, f"expected `,` or `{closing}`", FLOW_HELP


def _quoted_scalar(problem: str, here: Place, there: Place, lines: list[str]) -> tuple[Place, str, str]:
    if "unknown escape" in problem or "hexadecimal" in problem:
        help = "between single quotes a `\\` is just itself"
        return escape_place(here, lines), "unknown escape in a double-quoted text", help
    return there, "this quote is not closed", "add the closing quote; between single quotes, write '' for '"


def _no_colon(place: Place, lines: list[str]) -> tuple[Place, str, str]:
    """A line that should be an entry and has no `: `."""
    line = lines[place.line - 1]
    if match := _NO_SPACE.match(line):
        return Place(place.line, match.start("colon") + 1), "no space after this `:`", "write `key: value`"
    help = "to continue the value of the line above, indent this line deeper than its key"
    return Place(place.line, place.column, len(line.strip())), "expected `key: value`, found no `:`", help


def _mapping_value(place: Place, lines: list[str]) -> tuple[Place, str, str]:
    """A `: ` where no key can be: inside of a formula, or in a line with the wrong indentation."""
    line = lines[place.line - 1]
    entry = _entry(lines, place)
    if entry and entry.start("value") < place.column - 1:
        if entry["value"][0] in "'\"":
            return _misfit(place, lines)
        return place, "`: ` inside of a value that is not quoted", quote_help(lines, place)
    indent = len(line) - len(line.lstrip())
    above = next((n for n in range(place.line - 1, 0, -1) if lines[n - 1].split("#")[0].strip()), None)
    if above is not None:
        before = lines[above - 1]
        is_sibling = len(before) - len(before.lstrip()) == indent
        if is_sibling and not re.search(r":(\s|$)", before):
            return _no_colon(Place(above, indent + 1), lines)
    message = "this entry is indented like a part of the value above it"
    return Place(place.line, indent + 1, place.column - 1 - indent), message, INDENT_HELP


def _misfit(place: Place, lines: list[str]) -> tuple[Place, str, str]:
    """Something that follows a complete value, or a line whose indentation belongs to no line above."""
    line = lines[place.line - 1]
    if not line[: place.column - 1].strip(" "):
        return place, "the indentation of this line fits no line above", INDENT_HELP
    if _character(place, lines) in ("}", "]"):
        message = f"nothing is open for this `{_character(place, lines)}` to close"
        return place, message, quote_help(lines, place)
    entry = _entry(lines, place)
    if entry and entry["value"][0] in _MEANING:
        first = entry["value"][0]
        message = f"the value is complete before this: `{first}` at its start makes it {_MEANING[first]}"
        if first in "'\"" and entry["value"].endswith(first):
            help = "write '' for the ' inside" if first == "'" else 'write \\" for the " inside'
            return place, message, help
        return place, message, quote_help(lines, place)
    return place, "expected the end of the line", quote_help(lines, place)


def escape_place(inside: Place, lines: list[str]) -> Place:
    """The place of a double-quoted escape from one inside of it."""
    line = lines[inside.line - 1]
    backslash = line.rfind("\\", 0, inside.column)
    digits = {"x": 2, "u": 4, "U": 8}.get(line[backslash + 1 : backslash + 2], 0)
    return Place(inside.line, backslash + 1, 2 + digits)


def _entry(lines: list[str], place: Place) -> re.Match[str] | None:
    """The key and the value that start in this line; not sought in lines that nobody wrote by hand."""
    line = lines[place.line - 1]
    return _ENTRY.match(line) if len(line) < 1000 else None


def _character(place: Place, lines: list[str]) -> str:
    return lines[place.line - 1][place.column - 1 : place.column]


def _place(mark: yaml.Mark, lines: list[str]) -> Place:
    """A mark at the very end of the file is moved back to the last character."""
    if mark.line < len(lines):
        return Place(mark.line + 1, mark.column + 1)
    return Place(len(lines), len(lines[-1]) + 1)
