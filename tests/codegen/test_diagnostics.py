import pytest

from skuda.codegen.diagnostics import Diagnostics, Place, closest
from skuda.errors import SpecError

FORMULA = "  output: T[*shape] = where(x > 0, x, alfa * expm1(x))"


def rendered(line, place, message="wrong", help=None):
    diagnostics = Diagnostics("ops.yaml", line)
    diagnostics.error(place, message, help)
    return diagnostics.render()


def quoted(line, place):
    """The two lines of the report that show the source and the carets, without the gutter."""
    _, source, carets, *_ = rendered(line, place).split("\n")
    return source[5:], carets[5:]


def test_a_mistake_is_shown_with_its_line_and_a_caret():
    diagnostics = Diagnostics("ops.yaml", "\n" * 7 + FORMULA + "\n")
    diagnostics.error(
        Place(8, 39, 4), "`alfa` is neither an argument nor an intrinsic", help="did you mean `alpha`?"
    )
    assert diagnostics.render() == (
        "ops.yaml:8:39: error: `alfa` is neither an argument nor an intrinsic\n"
        " 8 |   output: T[*shape] = where(x > 0, x, alfa * expm1(x))\n"
        "   |                                       ^^^^\n"
        "   = help: did you mean `alpha`?\n"
        "1 error in ops.yaml; nothing was written"
    )


def test_mistakes_are_sorted_by_place_and_said_once():
    diagnostics = Diagnostics("ops.yaml", "a: 1\nb: 2\n")
    diagnostics.error(Place(2, 4), "third", help="the first help is kept")
    diagnostics.error(Place(1, 4), "second")
    diagnostics.error(Place(1, 1), "first")
    diagnostics.error(Place(2, 4), "third")
    diagnostics.error(Place(2, 4), "fourth, at the same place")
    assert diagnostics.render() == (
        "ops.yaml:1:1: error: first\n 1 | a: 1\n   | ^\n"
        "ops.yaml:1:4: error: second\n 1 | a: 1\n   |    ^\n"
        "ops.yaml:2:4: error: third\n 2 | b: 2\n   |    ^\n   = help: the first help is kept\n"
        "ops.yaml:2:4: error: fourth, at the same place\n 2 | b: 2\n   |    ^\n"
        "4 errors in ops.yaml; nothing was written"
    )


def test_the_length_grows_with_a_repeated_mistake():
    diagnostics = Diagnostics("ops.yaml", "a: 1")
    for count in (1, 2):
        diagnostics.error(Place(1, 1), "wrong")
        assert len(diagnostics) == count


def test_the_gutter_is_as_wide_as_the_line_number():
    diagnostics = Diagnostics("ops.yaml", "\n" * 122 + "key: value")
    diagnostics.error(Place(123, 6, 5), "wrong", help="so")
    assert diagnostics.render().split("\n")[1:4] == [
        " 123 | key: value",
        "     |      ^^^^^",
        "     = help: so",
    ]


def test_without_a_mistake_nothing_is_raised_or_printed():
    diagnostics = Diagnostics("ops.yaml", "a: 1")
    assert not diagnostics
    assert len(diagnostics) == 0
    assert diagnostics.render() == ""
    diagnostics.raise_if_any()


def test_raise_if_any_carries_the_whole_report():
    diagnostics = Diagnostics("ops.yaml", "a: 1")
    diagnostics.error(Place(1, 1), "wrong")
    assert diagnostics
    with pytest.raises(SpecError) as caught:
        diagnostics.raise_if_any()
    assert str(caught.value) == diagnostics.render()


def test_a_tab_is_one_column():
    assert quoted("\tkey:\tvalue", Place(1, 7, 5)) == (" key: value", "      ^^^^^")


def test_nothing_in_the_file_drives_the_terminal():
    line = "a: \x1b[31mred\x1b[0m \x07 \u202e \x9b2J end"
    source, carets = quoted(line, Place(1, line.index("end") + 1, 3))
    assert source == r"a: \x1b[31mred\x1b[0m \x07 \u202e \x9b2J end"
    assert carets == " " * source.index("end") + "^^^"


def test_nothing_in_a_message_drives_the_terminal():
    diagnostics = Diagnostics("ops\x1b.yaml", "a: 1")
    diagnostics.error(Place(1, 1), "`\x1b[2J` is unknown", help="did you\nmean `\x00`?")
    assert diagnostics.render() == (
        "ops\\x1b.yaml:1:1: error: `\\x1b[2J` is unknown\n"
        " 1 | a: 1\n"
        "   | ^\n"
        "   = help: did you\\nmean `\\x00`?\n"
        "1 error in ops\\x1b.yaml; nothing was written"
    )


def test_wide_and_combining_characters_keep_the_caret_in_its_column():
    # Two CJK characters take four columns, an e and its combining accent one.
    assert quoted("漢字 e\u0301 x", Place(1, 7)) == ("漢字 e\u0301 x", " " * 7 + "^")


@pytest.mark.parametrize("column", [1, 40, 150, 299])
def test_a_long_line_is_cut_around_the_caret(column):
    line = "".join(f"<{n:03}>" for n in range(60))
    source, carets = quoted(line, Place(1, column, 2))
    assert len(source) <= 106
    assert source.startswith("...") == (column > 100)
    assert source.endswith("...") == (column < 250)
    start = carets.index("^")
    assert carets == " " * start + "^^"
    assert source[start : start + 2] == line[column - 1 : column + 1]


def test_carets_end_with_the_line():
    assert quoted("abc", Place(1, 2, 50)) == ("abc", " ^^")
    assert quoted("abc", Place(1, 4, 1)) == ("abc", "   ^")


def test_a_place_outside_of_the_file_is_printed_without_a_line():
    assert rendered("a", Place(9, 1), help="so") == (
        "ops.yaml:9:1: error: wrong\n   = help: so\n1 error in ops.yaml; nothing was written"
    )


def test_lines_end_as_editors_count_them():
    diagnostics = Diagnostics("ops.yaml", "a\r\nb\rc\x0cd\u2028e\nf")
    assert diagnostics.lines == ["a", "b", "c\x0cd\u2028e", "f"]


def test_a_flood_of_mistakes_is_counted_and_cut():
    diagnostics = Diagnostics("ops.yaml", "x\n" * 250)
    for line in range(1, 251):
        diagnostics.error(Place(line, 1), "wrong")
    report = diagnostics.render().split("\n")
    assert report[-2:] == ["... and 150 more", "250 errors in ops.yaml; nothing was written"]
    assert sum("error: wrong" in row for row in report) == 100


def test_a_message_that_repeats_an_endless_name_is_cut():
    first = rendered("a", Place(1, 1), message="x" * 100_000).split("\n")[0]
    assert first == "ops.yaml:1:1: error: " + "x" * 400 + "..."


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("alfa", "alpha"),
        ("round_evn", "round_even"),
        ("ALPHA", "alpha"),
        ("F32", "f32"),
        ("zebra", None),
        ("x", None),
        ("", None),
        ("alpha" * 100, None),
    ],
)
def test_closest(word, found):
    assert closest(word, ["beta", "alpha", "round_even", "f32"]) == found


def test_closest_is_never_the_word_itself():
    assert closest("alpha", iter(["alpha"])) is None
