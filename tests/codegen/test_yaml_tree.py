from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skuda.codegen.diagnostics import Diagnostics, Place, split_lines
from skuda.codegen.yaml_tree import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    Mapping,
    Sequence,
    Text,
    carefully_read,
    quickly_read,
    read,
)


def tree(text):
    diagnostics = Diagnostics("ops.yaml", text)
    result = read(text, diagnostics)
    assert diagnostics.render() == ""
    return result


def plain(node):
    """The tree as dicts, lists and texts."""
    if isinstance(node, Mapping):
        return {key.value: plain(value) for key, value in node.entries}
    return [plain(item) for item in node.items] if isinstance(node, Sequence) else node.value


def value(text):
    """The Text after the only key of `text`."""
    [(_, node)] = tree(text).entries
    return node


def mistakes(text):
    """(line:column, marked source, message, help) of each mistake in the report."""
    diagnostics = Diagnostics("ops.yaml", text)
    read(text, diagnostics)
    rows = diagnostics.render().split("\n")[:-1]
    found = []
    for number, row in enumerate(rows):
        if not row.startswith("ops.yaml:"):
            continue
        _, line, column, _, message = row.split(":", 4)
        source, carets = rows[number + 1][5:], rows[number + 2][5:]
        help = rows[number + 3].partition("= help: ")[2] if number + 3 < len(rows) else ""
        marked = source[carets.index("^") : len(carets)]
        found.append((f"{line}:{column}", marked, message.strip(), help))
    return found


def test_the_tree_keeps_order_and_places():
    text = dedent(
        """\
        # a comment
        functions:
          double(x): x + x   # twice
        ops:
          relu: {kind: unary.relu, types: [f32, f16]}
          list:
          - a
          - b: c
        """
    )
    assert tree(text) == Mapping(
        (
            (
                Text("functions", Place(2, 1, 9)),
                Mapping(
                    ((Text("double(x)", Place(3, 3, 9)), Text("x + x", Place(3, 14, 5))),), Place(3, 3, 9)
                ),
            ),
            (
                Text("ops", Place(4, 1, 3)),
                Mapping(
                    (
                        (
                            Text("relu", Place(5, 3, 4)),
                            Mapping(
                                (
                                    (Text("kind", Place(5, 10, 4)), Text("unary.relu", Place(5, 16, 10))),
                                    (
                                        Text("types", Place(5, 28, 5)),
                                        Sequence(
                                            (Text("f32", Place(5, 36, 3)), Text("f16", Place(5, 41, 3))),
                                            Place(5, 35, 10),
                                        ),
                                    ),
                                ),
                                Place(5, 9, 37),
                            ),
                        ),
                        (
                            Text("list", Place(6, 3, 4)),
                            Sequence(
                                (
                                    Text("a", Place(7, 5, 1)),
                                    Mapping(
                                        ((Text("b", Place(8, 5, 1)), Text("c", Place(8, 8, 1))),),
                                        Place(8, 5, 1),
                                    ),
                                ),
                                Place(7, 3, 1),
                            ),
                        ),
                    ),
                    Place(5, 3, 4),
                ),
            ),
        ),
        Place(2, 1, 9),
    )


@pytest.mark.parametrize("word", ["no", "on", "~", "null", "1e-3", "0x10", "12:30", "2024-1-1", ".5"])
def test_a_scalar_stays_what_was_written(word):
    assert plain(tree(f"a: {word}\n{word}: b\n")) == {"a": word, word: "b"}


def test_an_empty_value_is_the_empty_text():
    assert tree("a:\nb: 1").entries[0][1] == Text("", Place(1, 3, 1))


def test_byte_order_mark_and_line_ends_do_not_move_places():
    assert tree("\ufeffa: 1\r\nb: 2\r\n").entries[1] == (Text("b", Place(2, 1)), Text("2", Place(2, 4)))


@pytest.mark.parametrize(
    ("source", "word", "place"),
    [
        ("a: x + alfa * y", "alfa", Place(1, 8, 4)),
        ("a: 'x + alfa * y'", "alfa", Place(1, 9, 4)),
        ('a: "x + alfa * y"', "alfa", Place(1, 9, 4)),
        ("a: 'it''s + alfa'", "alfa", Place(1, 13, 4)),
        ('a: "\\t\\x41\\u0042 + alfa"', "alfa", Place(1, 20, 4)),
        ('a: "\\x41"', "A", Place(1, 5, 4)),
        ("a: x +\n   alfa\n   + y", "alfa", Place(2, 4, 4)),
        ("a: 'x +\n   alfa\n   + y'", "alfa", Place(2, 4, 4)),
        ('a: "x + \\\n   alfa\n\n\n   + y"', "+ y", Place(5, 4, 3)),
        ("a: |\n  x +\n    alfa\n  + y\n", "alfa", Place(3, 5, 4)),
        ("a: >-\n  x +\n  alfa\n\n  + y\n", "+ y", Place(5, 3, 3)),
        ("a: | # comment\n  x\n", "x", Place(2, 3, 1)),
    ],
)
def test_at_gives_the_place_of_a_part(source, word, place):
    text = value(source)
    assert text.at(text.value.index(word), len(word)) == place


def test_at_of_several_lines_ends_with_the_first():
    text = value("a: x +\n   alfa")
    assert text.value == "x + alfa"
    assert text.at(0, 8) == Place(1, 4, 3)


def test_at_outside_of_the_text_is_its_end():
    text = value("a: 'it''s'")
    assert text.at(100, 3) == Place(1, 10, 1)
    assert text.at(-5, 1) == Place(1, 5, 1)


VISIBLE = st.text(st.sampled_from("ab'\"\\ \n#:+漢\t[]{}*&!|>-%@`,?"), max_size=30)


@settings(max_examples=300, deadline=None)
@given(VISIBLE, st.sampled_from([None, "'", '"', "|", ">"]), st.sampled_from([5, 20, 1000]))
@example("a\n b\n\n  c", "|", 1000)
@example("a  b\n\n c", '"', 5)
def test_at_finds_every_visible_character_in_the_source(written, style, width):
    source = yaml.dump({"k": written}, default_style=style, width=width, allow_unicode=True)
    diagnostics = Diagnostics("ops.yaml", source)
    result = read(source, diagnostics)
    if any("tab" in row for row in diagnostics.render().split("\n")):
        return
    text = result.entries[0][1]
    assert text.value == yaml.compose(source).value[0][1].value
    lines = split_lines(source)
    for offset, character in enumerate(text.value):
        place = text.at(offset)
        assert 1 <= place.line <= len(lines)
        if not character.isspace():
            found = lines[place.line - 1][place.column - 1 : place.column - 1 + place.length]
            assert found in (character, "\\" + character, character * 2, "\\"), (source, offset)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # aliases, anchors, tags, merge keys
        (
            "output: *shape",
            [("1:9", "*shape", "`*` at the start makes this a YAML alias",
              "quote the value: '*shape', or put a type in front, as in T[*shape]")],
        ),
        (
            "output: *outer[n]",
            [("1:9", "*", "`*` at the start makes this a YAML alias",
              "quote the value: '*outer[n]', or put a type in front, as in T[*shape]")],
        ),
        (
            "a: &x 1\nb: *x",
            [
                ("1:4", "&x", "`&` at the start makes this a YAML anchor", "quote the value: '&x 1'"),
                ("2:4", "*x", "`*` at the start makes this a YAML alias",
                 "quote the value: '*x', or put a type in front, as in T[*shape]"),
            ],
        ),
        ("a: !x y", [("1:4", "!x", "`!` at the start makes this a YAML tag", "quote the value: '!x y'")]),
        ("a: !x!y z", [("1:4", "!", "`!` at the start makes this a YAML tag", "quote the value: '!x!y z'")]),
        (
            "a: !!python/object/apply:os.system [date]",
            [("1:4", "!!python/object/apply:os.system", "`!` at the start makes this a YAML tag",
              "remove it: anchors and tags are not read")],
        ),
        ("a:\n  <<: {b: 1}", [("2:3", "<<", "merge keys are not read", "write the entries out")]),
        # keys
        (
            "a: 1\nb: 2\na: 3",
            [("3:1", "a", "`a` is there already, on line 1", "remove or rename one of the two")],
        ),
        ("? [a]\n: b", [("1:3", "[a]", "a key must be a text", "quote it if it is meant as a text")]),
        # formulas that are not plain YAML
        (
            "a: x ? b : c",
            [("1:10", ":", "`: ` inside of a value that is not quoted", "quote the value: 'x ? b : c'")],
        ),
        (
            "a: (x # y)",
            [("1:7", "#", "` #` starts a comment, and a parenthesis before it is still open",
              "a comment stands on a line of its own, above the entry")],
        ),
        (
            "a: f(x, # first\n  y)\nb: *c",
            [("1:9", "#", "` #` starts a comment, and a parenthesis before it is still open",
              "a comment stands on a line of its own, above the entry")],
        ),
        (
            "a: [x, y] + 1",
            [("1:11", "+", "the value is complete before this: `[` at its start makes it a YAML list",
              "quote the value: '[x, y] + 1'")],
        ),
        (
            "a: \"x\" + y",
            [("1:8", "+", "the value is complete before this: `\"` at its start makes it a quoted text",
              "quote the value: '\"x\" + y'")],
        ),
        (
            "a: 'it's'",
            [("1:8", "s", "the value is complete before this: `'` at its start makes it a quoted text",
              "write '' for the ' inside")],
        ),
        (
            "a: {x: 1}}",
            [("1:10", "}", "nothing is open for this `}` to close", "quote the value: '{x: 1}}'")],
        ),
        ("a: % x", [("1:4", "%", "`%` cannot start a value", "quote the value: '% x'")]),
        ("a: @x", [("1:4", "@", "`@` cannot start a value", "quote the value: '@x'")]),
        ("a: `x`", [("1:4", "`", "a backtick cannot start a value", "quote the value: '`x`'")]),
        ("a: && b", [("1:4", "&", "`&` at the start makes this a YAML anchor", "quote the value: '&& b'")]),
        ("a: - b", [("1:4", "-", "`-` at the start makes this an item of a list", "quote the value: '- b'")]),
        ("a: ? b", [("1:4", "?", "`?` at the start makes this a key", "quote the value: '? b'")]),
        (
            "a: > 0",
            [("1:4", ">", "`>` at the start makes this a text of several lines", "quote the value: '> 0'")],
        ),
        ("a: ]", [("1:4", "]", "`]` cannot start a value", "quote the value: ']'")]),
        # braces
        (
            "i: {a: T[*s], b: T[n]}",
            [("1:9", "[", "`[` inside of a value between `{` and `}`",
              "quote each value between braces, as in {a: \"T[*shape]\"}, or give each a line of its own")],
        ),
        (
            "i: {a: f(x, y)}",
            [("1:11", ",", "this comma ends the value, and a parenthesis before it is still open",
              "quote each value between braces, as in {a: \"T[*shape]\"}, or give each a line of its own")],
        ),
        ("a: [x\nb: 1", [("1:4", "[", "this `[` is not closed", "add the `]`; a formula must be quoted")]),
        (
            "a: [x,",
            [("1:7", "", "the file ends inside of a list or mapping",
              "close it with `]` or `}`; a formula must be quoted")],
        ),
        # quotes
        (
            "a: 'x\nb: 1",
            [("1:4", "'", "this quote is not closed",
              "add the closing quote; between single quotes, write '' for '")],
        ),
        (
            'a: "\\d"',
            [("1:5", "\\d", "unknown escape in a double-quoted text",
              "between single quotes a `\\` is just itself")],
        ),
        (
            'a: "\\xzz"',
            [("1:5", "\\xzz", "unknown escape in a double-quoted text",
              "between single quotes a `\\` is just itself")],
        ),
        (
            'a: "\\U00110000"',
            [("1:5", "\\U00110000", "this is not the code of a character", "the largest is U+10FFFF")],
        ),
        # indentation and colons
        (
            "a: b\n  c: d",
            [("2:3", "c", "this entry is indented like a part of the value above it",
              "entries that belong together start in the same column")],
        ),
        (
            "a:\n    b: 1\n  c: 2",
            [("3:3", "c", "the indentation of this line fits no line above",
              "entries that belong together start in the same column")],
        ),
        ("a: 1\nb:2\nc: 3", [("2:2", ":", "no space after this `:`", "write `key: value`")]),
        (
            "a: 1\nfoo bar\nc: 3",
            [("2:1", "foo bar", "expected `key: value`, found no `:`",
              "to continue the value of the line above, indent this line deeper than its key")],
        ),
        ("a: b\tc", [("1:5", " ", "a tab between two words", "write a space")]),
        # whole files
        ("", [("1:1", "", "the file is empty", "")]),
        ("# only a comment", [("1:1", "#", "the file is empty", "")]),
        ("- a", [("1:1", "-", "the top level must be a mapping", "write it as lines of `key: value`")]),
        (
            "a: 1\n---\nb: 2",
            [("2:1", "---", "a second document starts here", "remove the `---`: a file is one document")],
        ),
        ("%YAML 1.2\n---\na: 1", [("1:1", "%YAML 1.2", "YAML directives are not read", "remove the line")]),
        ("%x: 1", [("1:1", "%", "a line that starts with `%` is a YAML directive", "remove the line")]),
    ],
)
def test_mistakes(text, expected):
    assert mistakes(text) == expected


def test_every_line_with_a_tab_is_reported():
    help = "YAML indents with spaces only"
    assert mistakes("a:\n\tb: 1\n \tc: 2\n") == [
        ("2:1", " ", "a tab in the indentation", help),
        ("3:2", " ", "a tab in the indentation", help),
    ]


@pytest.mark.parametrize(
    ("character", "shown", "name", "help"),
    [
        ("\x1b", "\\x1b", "U+001B (a control character)", "remove it"),
        ("\x00", "\\x00", "U+0000 (a control character)", "remove it"),
        ("\x85", "\\x85", "U+0085 (a control character)", "remove it"),
        ("\u2028", "\\u2028", "U+2028 (LINE SEPARATOR)", "remove it"),
        ("\u202e", "\\u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)", "remove it"),
        ("\ufeff", "\\ufeff", "U+FEFF (ZERO WIDTH NO-BREAK SPACE)", "remove it"),
        ("\ufffe", "\\ufffe", "U+FFFE (not a character)", "remove it"),
        ("\xa0", "\\xa0", "U+00A0 (NO-BREAK SPACE)", "write a plain space"),
    ],
)
def test_characters_that_cannot_be_seen_are_refused(character, shown, name, help):
    assert mistakes(f"a: x{character}y\nb: 1") == [
        ("1:5", shown, f"the file holds {name}, which cannot be seen", help)
    ]
    escape = f"\\u{ord(character):04x}"
    assert mistakes(f'a: "x{escape}y"') == [
        ("1:6", escape, f"this escape stands for {name}, which cannot be seen", "remove it")
    ]


def test_other_scripts_are_text():
    assert plain(tree("doc: 漢字 é 🙂")) == {"doc": "漢字 é 🙂"}


def test_mistakes_that_leave_the_tree_whole_let_the_reader_go_on():
    text = "a: 1\na: 2\nb: 3"
    diagnostics = Diagnostics("ops.yaml", text)
    assert plain(read(text, diagnostics)) == {"a": "1", "b": "3"}
    assert len(diagnostics) == 1


def test_a_tree_that_is_not_what_was_meant_is_not_returned():
    for text in ["a: *x", "a: !t x", "a: (x # y)", "a: {b: f(x, y)}", "a: x: y"]:
        diagnostics = Diagnostics("ops.yaml", text)
        assert read(text, diagnostics) is None
        assert diagnostics


def test_limits():
    assert plain(tree("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)))
    assert mistakes("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH) == [
        (f"1:{MAX_DEPTH + 3}", "[", "this is nested more than 50 levels deep", "")
    ]
    assert mistakes("- " * 100_000)[0][2] == "this is nested more than 50 levels deep"
    long = "a: " + "x" * MAX_CHARACTERS
    assert mistakes(long)[0][2] == f"the file has {len(long)} characters; at most {MAX_CHARACTERS} are read"


def test_a_flood_of_aliases_ends_soon():
    text = "a: [" + "*x," * 100_000 + "]"
    diagnostics = Diagnostics("ops.yaml", text)
    assert read(text, diagnostics) is None
    assert len(diagnostics) == 1001


@settings(max_examples=500, deadline=None)
@given(st.text(st.sampled_from("ab:# \n\t'\"\\[]{}*&!|>-%@`,?<x0\r\u202e\x1b"), max_size=40))
def test_any_text_gives_a_tree_or_a_mistake(text):
    diagnostics = Diagnostics("ops.yaml", text)
    result = read(text, diagnostics)
    assert result is not None or diagnostics
    report = diagnostics.render()
    assert report.replace("\n", "").isprintable()
    assert text.strip() or diagnostics


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_unicode_gives_a_tree_or_a_mistake(text):
    diagnostics = Diagnostics("ops.yaml", text)
    assert read(text, diagnostics) is not None or diagnostics
    assert all(row.isprintable() for row in diagnostics.render().split("\n"))


def placed(node):
    """The tree as tuples, with all places."""
    if isinstance(node, Mapping):
        return node.place, [(placed(key), placed(value)) for key, value in node.entries]
    if isinstance(node, Sequence):
        return node.place, [placed(item) for item in node.items]
    return node.value, node.place, node.spots


def both_read_alike(text):
    """What LibYAML reads is what PyYAML reads, without a mistake; whether LibYAML reads it."""
    lines, diagnostics = split_lines(text), Diagnostics("ops.yaml", text)
    quick = quickly_read(text, lines)
    if quick is not None:
        careful = carefully_read(text, lines, diagnostics)
        assert not diagnostics and placed(quick) == placed(careful)
    return quick is not None


SPEC = (Path(__file__).parents[2] / "ops.yaml").read_text(encoding="utf-8")


def test_the_catalog_is_read_quickly():
    assert both_read_alike(SPEC)


@pytest.mark.parametrize(
    "text",
    ["k: {a: ,'b'}", "k\tl: 1", "? k", "k: >#b\n  c", "k: f(a, #b)", "{k: f(b, c: d}", "k: &a b", "a: 1\na: 2", "k["],
)
def test_what_may_be_read_in_two_ways_is_read_carefully(text):
    assert quickly_read(text, split_lines(text)) is None


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, SPEC.count("\n") - 12),
    st.lists(st.tuples(st.integers(0, 400), st.text("ab:# \n\t'\"\\[]{}()*&!|>-%@`,?<~0", max_size=2)), max_size=3),
)
def test_other_specs_are_read_alike(first, changes):
    text = "\n".join(SPEC.split("\n")[first : first + 12])
    for at, put in changes:
        text = text[:at] + put + text[at + 1 :]
    both_read_alike(text)
