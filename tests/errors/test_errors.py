"""Mistakes that people make in a spec file, and every word of what they are told.

A case is cases/NAME.yaml with cases/NAME.txt, the whole message. `make golden` writes the messages anew; read
their diff before you keep it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skuda.codegen.spec import load, loads
from skuda.errors import SpecError
from skuda.model.dtypes import DTYPES

CASES = sorted(Path(__file__).with_name("cases").glob("*.yaml"))
SPEC = Path(__file__).parents[2] / "ops.yaml"


def report(path: Path) -> str:
    """What `skuda check` prints for a spec file; the empty text for one without mistakes. The list of all element types
    has a name: a new type changes no message.
    """
    try:
        load(path)
    except SpecError as error:
        return str(error).replace(" ".join(DTYPES), "{all}") + "\n"
    return ""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_whole_message(path):
    assert report(path) == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_mistake_has_a_place_and_the_last_line_counts_them(path):
    *rows, last, _ = report(path).split("\n")
    heads = [row for row in rows if row.startswith(f"{path.name}:")]
    places = [tuple(map(int, row.split(":")[1:3])) for row in heads]
    assert places == sorted(places)
    count = "1 error" if len(heads) == 1 else f"{len(heads)} errors"
    assert last == f"{count} in {path.name}; nothing was written"
    assert all(row.isprintable() for row in rows)


def test_each_message_has_its_case():
    texts = sorted(path.stem for path in CASES[0].parent.glob("*.txt"))
    assert texts == [path.stem for path in CASES]


def test_a_missing_file(tmp_path):
    with pytest.raises(SpecError, match=r"absent\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "absent.yaml")


def test_a_folder(tmp_path):
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_text_that_is_not_utf_8(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("doc: gr\u00fc\u00dfe".encode("latin-1"))
    with pytest.raises(SpecError, match=r"latin\.yaml: expected UTF-8 text, byte 7 is not"):
        load(path)


@pytest.mark.parametrize(
    "formula", ["(" * 300 + "x" + ")" * 300, "-" * 9000 + "x", "x + " * 1500 + "x", "x" * 10_001]
)
def test_formulas_without_end(formula):
    text = f"ops:\n  scaled:\n    inputs: {{x: 'T[n]'}}\n    outputs:\n      y: T[n] = {formula}\n"
    with pytest.raises(SpecError, match="the formula is (too deep or too long|longer than 10000 characters)"):
        loads(text)


# From here on: whatever is written, there is a message or a spec, and never another exception.

WORDS = st.sampled_from(
    """x n alpha y 1 2.5 1e999 0x 07 + - * / ** % ( ) [ ] , . : := = == < <= != and or not if else for in
    lambda where max clamp abs round_to_int exp twice ' " # \\ ; ! ? @ ` $ { } None True ... \u00d7 \u221a
    __import__""".split()
)
FORMULA = """\
functions:
  twice(x): {function}
ops:
  scaled:
    inputs:
      x: T[*shape]
      n: i32[*shape]
      alpha: C[]
    outputs:
      y: |-
        T[*shape] = {formula}
"""


def check(text: str) -> None:
    try:
        loads(text)
    except SpecError as error:
        assert re.search(r"\d+ errors? in ops\.yaml; nothing was written\Z", str(error))
        assert all(row.isprintable() for row in str(error).split("\n"))


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=12), st.lists(WORDS, max_size=5))
def test_any_formula(words, function):
    check(FORMULA.format(function=" ".join(["x", *function]), formula=" ".join(words)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_to_the_catalog(data):
    lines = SPEC.read_text(encoding="utf-8").split("\n")[20:75]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        cut = data.draw(st.integers(0, len(line)))
        damage = data.draw(st.sampled_from(["delete", "repeat", "cut", "indent", "insert", "swap"]))
        if damage == "delete":
            lines[at] = ""
        elif damage == "repeat":
            lines.insert(at, line)
        elif damage == "cut":
            lines[at] = line[:cut]
        elif damage == "indent":
            lines[at] = data.draw(st.sampled_from(["  ", "\t", "- "])) + line
        elif damage == "insert":
            lines[at] = line[:cut] + data.draw(WORDS) + line[cut:]
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], line
    check("\n".join(lines))
