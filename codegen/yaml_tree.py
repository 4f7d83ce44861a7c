"""YAML as a tree of texts with their places; nothing is constructed, and no text becomes a number or a bool.

Only the part of YAML that a table of formulas needs: mappings, lists and texts, in one document. Aliases,
anchors, tags and merge keys are refused, so a file is as large as it looks. A scalar stays what was written
(`no`, `1e-3`, `~`): what it means is decided by the field it stands in.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import TypeAlias

import yaml

from skuda.codegen.diagnostics import Diagnostics, Place, split_lines
from skuda.codegen.yaml_mistakes import FLOW_HELP, escape_place, explain, starts_with

MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 50
MAX_MISTAKES = 1000  # then reading stops; no author makes as many


@dataclass(frozen=True)
class Text:
    """A scalar: the text that it stands for, after YAML's quotes, escapes and line folding.

    Attributes:
        spots: (line, column) of each character of `value` and of its end; empty if written as it stands.
    """

    value: str
    place: Place
    spots: tuple[tuple[int, int], ...] = field(default=(), repr=False, compare=False)

    def at(self, offset: int, length: int = 1) -> Place:
        """The place of `value[offset:offset + length]`; of several lines, what stands in the first."""
        if not self.spots:
            return Place(self.place.line, self.place.column + offset, max(length, 1))
        first = min(max(offset, 0), len(self.value))
        line, column = self.spots[first]
        ends = [end for row, end in self.spots[first + 1 : first + length + 1] if row == line]
        return Place(line, column, max([end - column for end in ends], default=1) or 1)


@dataclass(frozen=True)
class Mapping:
    """Entries in the order of the file, each key once; `place` is its first key, or its braces."""

    entries: tuple[tuple[Text, Node], ...]
    place: Place


@dataclass(frozen=True)
class Sequence:
    """Items in the order of the file; `place` is its first dash, or its brackets."""

    items: tuple[Node, ...]
    place: Place


Node: TypeAlias = "Text | Mapping | Sequence"


def read(text: str, diagnostics: Diagnostics) -> Mapping | None:
    """The file's top-level mapping.

    Every mistake goes to `diagnostics`. The result is None when what could be read is not what was meant (an
    alias in place of a formula, a file that YAML cannot read): no mistake is to be said twice in other words.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARACTERS:
        message = f"the file has {len(text)} characters; at most {MAX_CHARACTERS} are read"
        diagnostics.error(Place(1, 1), message)
        return None
    lines = split_lines(text)
    if _has_hidden_characters(lines, diagnostics):
        return None
    return quickly_read(text, lines) or carefully_read(text, lines, diagnostics)


def carefully_read(text: str, lines: list[str], diagnostics: Diagnostics) -> Mapping | None:
    """The same by PyYAML's own reader, of text without hidden characters."""
    reader = _Reader(text, lines, diagnostics, yaml.SafeLoader)
    try:
        return reader.top_level()
    except _Refused:
        return None
    except yaml.MarkedYAMLError as error:
        place, message, help = explain(error, lines)
        if place.line > reader.spoiled_line + 1:  # else it is what a value that was cut off leaves behind
            diagnostics.error(place, message, help)
    except (ValueError, OverflowError):  # PyYAML hands the digits of "\UXXXXXXXX" to chr() as they are
        mark = reader.loader.get_mark()
        place = escape_place(Place(mark.line + 1, mark.column + 1), lines)
        diagnostics.error(place, "this is not the code of a character", "the largest is U+10FFFF")
    return None


def quickly_read(text: str, lines: list[str]) -> Mapping | None:
    """The same by LibYAML, in a third of the time; None where PyYAML comes without it, where there are mistakes, whose
    places and words are those of PyYAML's own reader, or where the two may understand a file in different ways."""
    loader = getattr(yaml, "CSafeLoader", None)
    if loader is None or not _UNDERSTOOD_APART.isdisjoint(text):
        return None
    mistakes = Diagnostics("", "")
    try:
        tree = _QuickReader(text, lines, mistakes, loader).top_level()
    except (_Refused, yaml.YAMLError, ValueError, OverflowError):
        return None
    return None if mistakes else tree


class _Refused(Exception):
    """The mistake is in the diagnostics, and reading on is useless."""


class _Reader:
    """Builds the tree from PyYAML's events: as its composer does, but it sees aliases, anchors and tags."""

    def __init__(self, text: str, lines: list[str], diagnostics: Diagnostics, loader: type[yaml.SafeLoader]) -> None:
        self.text = text
        self.lines = lines
        self.diagnostics = diagnostics
        self.loader = loader(text)
        self.faithful = True  # whether the tree is what the author meant, as far as YAML can tell
        self.spoiled_line = -1  # the last line where it is not

    def top_level(self) -> Mapping | None:
        self.loader.get_event()
        start = self.loader.get_event()
        if isinstance(start, yaml.StreamEndEvent):
            self.refuse(Place(1, 1), "the file is empty")
        if start.version or start.tags:
            place = self.place(start.start_mark, start.end_mark)
            self.diagnostics.error(place, "YAML directives are not read", "remove the line")
        node = self.node(depth=0, in_flow=False)
        self.loader.get_event()
        further = self.loader.get_event()
        if isinstance(further, yaml.DocumentStartEvent):
            place = self.place(further.start_mark, further.end_mark)
            self.refuse(place, "a second document starts here", "remove the `---`: a file is one document")
        if isinstance(node, Mapping):
            return node if self.faithful else None
        if isinstance(node, Text) and not node.value:
            self.refuse(Place(1, 1), "the file is empty")
        self.refuse(node.place, "the top level must be a mapping", "write it as lines of `key: value`")

    def node(self, depth: int, in_flow: bool) -> Node:
        event = self.loader.get_event()
        place = self.place(event.start_mark, event.end_mark)
        if isinstance(event, yaml.AliasEvent):
            self.spoil(place, *starts_with("*", self.lines, place))
            return Text(self.raw(event), place)
        if event.anchor is not None or event.tag is not None:
            self.refuse_property(event)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event, place, in_flow)
        if depth == MAX_DEPTH:
            self.refuse(place, f"this is nested more than {MAX_DEPTH} levels deep")
        in_flow = in_flow or event.flow_style
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not self.loader.check_event(yaml.SequenceEndEvent):
                items.append(self.node(depth + 1, in_flow))
            return Sequence(tuple(items), self.span(event))
        return self.mapping(event, depth, in_flow)

    def mapping(self, event: yaml.MappingStartEvent, depth: int, in_flow: bool) -> Mapping:
        entries: dict[str, tuple[Text, Node]] = {}
        first_key: Place | None = None
        while not self.loader.check_event(yaml.MappingEndEvent):
            is_plain = not getattr(self.loader.peek_event(), "style", None)  # LibYAML's is ""
            key = self.node(depth + 1, in_flow)
            value = self.node(depth + 1, in_flow)
            first_key = first_key or key.place
            if not isinstance(key, Text):
                self.diagnostics.error(key.place, "a key must be a text", "quote it if it is meant as a text")
            elif is_plain and key.value == "<<":
                self.diagnostics.error(key.place, "merge keys are not read", "write the entries out")
            elif key.value in entries:
                line = entries[key.value][0].place.line
                message = f"`{key.value}` is there already, on line {line}"
                self.diagnostics.error(key.place, message, "remove or rename one of the two")
            else:
                entries[key.value] = key, value
        place = self.span(event)
        return Mapping(tuple(entries.values()), place if event.flow_style else first_key or place)

    def scalar(self, event: yaml.ScalarEvent, place: Place, in_flow: bool) -> Text:
        text = Text(event.value, place, self.spots(event))
        if not event.style:
            self.refuse_cut_value(event, in_flow)
        for offset, character in enumerate(event.value):
            if character not in "\n\t" and _is_hidden(character):
                message = f"this escape stands for {_name(character)}, which cannot be seen"
                self.diagnostics.error(text.at(offset), message, "remove it")
        return text

    def refuse_cut_value(self, event: yaml.ScalarEvent, in_flow: bool) -> None:
        """A formula that YAML ended inside of its parentheses: at ` #`, or at a comma between braces."""
        if not _is_open(event.value):
            return
        line, row = self.lines[event.end_mark.line], event.end_mark.line + 1
        column = re.compile(" *").match(line, event.end_mark.column).end()
        place_of_rest = Place(row, column + 1)
        if line.startswith("#", column):
            message = "` #` starts a comment, and a parenthesis before it is still open"
            self.spoil(place_of_rest, message, "a comment stands on a line of its own, above the entry")
        elif in_flow and line.startswith(",", column):
            message = "this comma ends the value, and a parenthesis before it is still open"
            self.spoil(place_of_rest, message, FLOW_HELP)

    def refuse_property(self, event: yaml.NodeEvent) -> None:
        """An anchor or a tag; the value after it is read on."""
        mark = event.start_mark
        written = re.compile(r"\S*").match(self.lines[mark.line], mark.column).group()
        place = Place(mark.line + 1, mark.column + 1, max(len(written), 1))
        message, help = starts_with(written[:1], self.lines, place)
        is_meant = isinstance(event, yaml.CollectionStartEvent) or written.startswith("!!")
        self.spoil(place, message, "remove it: anchors and tags are not read" if is_meant else help)

    def spoil(self, place: Place, message: str, help: str) -> None:
        self.faithful = False
        self.spoiled_line = place.line
        self.diagnostics.error(place, message, help)
        if len(self.diagnostics) > MAX_MISTAKES:
            raise _Refused

    def refuse(self, place: Place, message: str, help: str | None = None) -> None:
        self.diagnostics.error(place, message, help)
        raise _Refused

    def raw(self, event: yaml.Event) -> str:
        return self.text[event.start_mark.index : event.end_mark.index]

    def place(self, start: yaml.Mark, end: yaml.Mark) -> Place:
        """From start to end; of several lines, what stands in the first."""
        last = end.column if end.line == start.line else len(self.lines[start.line].rstrip())
        return Place(start.line + 1, start.column + 1, max(last - start.column, 1))

    def span(self, start: yaml.CollectionStartEvent) -> Place:
        """The place of a collection, whose end event is next."""
        end = self.loader.get_event().end_mark
        return self.place(start.start_mark, end if start.flow_style else start.end_mark)

    def spots(self, event: yaml.ScalarEvent) -> tuple[tuple[int, int], ...]:
        raw = self.raw(event)
        if raw == event.value:
            return ()
        is_block = event.style in ("|", ">")
        indices = _block_indices(raw, event.value) if is_block else _flow_indices(raw, event.style)
        if len(indices) != len(event.value) + 1:
            return tuple([(event.start_mark.line + 1, event.start_mark.column + 1)] * (len(event.value) + 1))
        line, start = event.start_mark.line + 1, -event.start_mark.column
        spots, breaks = [], list(_BREAK.finditer(raw))[::-1]
        for index in indices:
            while breaks and breaks[-1].end() <= index:
                line, start = line + 1, breaks.pop().end()
            spots.append((line, index - start + 1))
        return tuple(spots)


class _QuickReader(_Reader):
    """Refuses what LibYAML and PyYAML may see differently."""

    def scalar(self, event: yaml.ScalarEvent, place: Place, in_flow: bool) -> Text:
        if event.style in ("|", ">") or not (event.value or event.style):
            raise _Refused  # where nothing begins is told apart, and what a block may begin with
        return super().scalar(event, place, in_flow)

    def refuse_cut_value(self, event: yaml.ScalarEvent, in_flow: bool) -> None:
        if _is_open(event.value):
            raise _Refused


def _is_open(value: str) -> bool:
    """Whether more brackets open than close."""
    return sum(map(value.count, "([{")) > sum(map(value.count, ")]}"))


# Tabs within texts, keys by `?`, ends of lines that are no `\n`.
_UNDERSTOOD_APART = frozenset("\t?\r\x85\u2028\u2029")
_BREAK = re.compile(r"\r\n|\r|\n")
_FOLD = re.compile(r"[ \t]*[\r\n]\s*")
_ESCAPE = re.compile(r"\\(?:x.{2}|u.{4}|U.{8}|(?P<joined>[\r\n]\s*)|.)", re.DOTALL)


def _flow_indices(raw: str, style: str | None) -> list[int]:
    """For each character of a plain or quoted scalar, where in the source it comes from; and the end's."""
    index, end = (1, len(raw) - 1) if style else (0, len(raw))
    indices = []
    while index < end:
        if fold := _FOLD.match(raw, index, end):
            # One line end is read as a space; of several, all but the first are kept.
            indices += [index] * max(len(_BREAK.findall(fold.group())) - 1, 1)
            index = fold.end()
        elif style == '"' and (escape := _ESCAPE.match(raw, index, end)):
            joined = escape["joined"]
            indices += [index] * (1 if joined is None else len(_BREAK.findall(joined)) - 1)
            index = escape.end()
        else:
            indices.append(index)
            index += 2 if style == "'" and raw.startswith("''", index) else 1
    return [*indices, end]


def _block_indices(raw: str, value: str) -> list[int]:
    """The same for a `|` or `>` scalar: it changes only white space, so the rest is found again in order."""
    header = _BREAK.search(raw)
    index = header.end() if header else len(raw)
    indices = []
    for character in value:
        if not character.isspace():
            index = max(raw.find(character, index), index)
        indices.append(min(index, len(raw)))
        if raw.startswith(character, index):
            index += 1
    return [*indices, min(index, len(raw))]


def _has_hidden_characters(lines: list[str], diagnostics: Diagnostics) -> bool:
    """Reports tabs in the indentation and characters that cannot be seen, one a line."""
    before = len(diagnostics)
    for number, line in enumerate(lines, 1):
        if line.isprintable():
            continue
        tab = line.find("\t", 0, len(line) - len(line.lstrip(" \t")))
        if tab >= 0:
            place = Place(number, tab + 1)
            diagnostics.error(place, "a tab in the indentation", "YAML indents with spaces only")
        for column, character in enumerate(line, 1):
            if character != "\t" and _is_hidden(character):
                message = f"the file holds {_name(character)}, which cannot be seen"
                is_space = unicodedata.category(character) == "Zs"
                diagnostics.error(
                    Place(number, column), message, "write a plain space" if is_space else "remove it"
                )
                break
    return len(diagnostics) > before


def _is_hidden(character: str) -> bool:
    """Controls, formatting (as for writing right to left), surrogates, and spaces but the plain one."""
    if character.isprintable():
        return False
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs") or character in "\ufffe\uffff"


def _name(character: str) -> str:
    unnamed = {"Cc": "a control character", "Cs": "half of a surrogate pair"}
    name = unicodedata.name(character, unnamed.get(unicodedata.category(character), "not a character"))
    return f"U+{ord(character):04X} ({name})"
