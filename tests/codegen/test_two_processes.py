"""What two processes make of a spec: what one makes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from skuda.codegen import render as renderer
from skuda.codegen import spec as specs
from skuda.codegen import two_processes
from skuda.errors import SpecError

ROW = """\
  {name}:
    kind: test.{name}
    doc: A test.
    inputs: {{x: 'T[*shape]'}}
    outputs: {{y: 'T[*shape] = sin(x)'}}
"""
SPEC = "ops:\n" + "".join(ROW.format(name=f"sine_{number}") for number in range(1, 6))


@pytest.fixture
def two(monkeypatch):
    """So few rows are enough for two processes, and it does not matter which threads pytest has."""
    monkeypatch.setattr(two_processes, "_MANY", 2)
    monkeypatch.setattr(two_processes.sys, "platform", "linux")
    monkeypatch.setattr(two_processes.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(two_processes.threading, "active_count", lambda: 1)


@pytest.fixture
def without_another(two, monkeypatch):
    """The other process ends before it has sent anything."""
    monkeypatch.setattr(two_processes, "_send", lambda sender, work: sender.close())


def _files(text: str) -> tuple[specs.Spec, dict[str, str]]:
    spec = specs.loads(text)
    return spec, renderer.render(spec)


ALONE = _files(SPEC)


def test_halves_are_every_second_one(two):
    assert two_processes.in_halves(5, lambda part: list(range(5))[part]) == ([0, 2, 4], [1, 3])


def test_what_goes_wrong_here_ends_the_other_process(two):
    def work(part):
        if part.start == 0:
            raise ValueError("here")
        return "x" * (1 << 20)  # more than a pipe holds

    others = {*multiprocessing.active_children()}
    with pytest.raises(ValueError, match="here"):
        two_processes.in_halves(5, work)
    assert {*multiprocessing.active_children()} <= others


def test_few_rows_are_not_worth_it(two):
    assert two_processes.in_halves(2, lambda part: part) is None


def test_a_process_with_threads_does_not_start_another(two, monkeypatch):
    monkeypatch.setattr(two_processes.threading, "active_count", lambda: 2)
    assert two_processes.in_halves(5, lambda part: part) is None


def test_two_processes_read_and_render_what_one_does(two):
    spec, files = _files(SPEC)
    assert files == ALONE[1]
    assert spec == ALONE[0]
    assert [row.name for row in spec.rows] == [f"sine_{number}" for number in range(1, 6)]
    assert {"cuda/sine_1.cu", "cuda/sine_2.cu", "plans/sine_5.py"} < files.keys()


def test_what_another_process_does_not_give_is_made_by_this_one(without_another):
    assert _files(SPEC)[1] == ALONE[1]


WRONG = {
    "in both halves": SPEC.replace("sin(x)", "sin(alfa)"),
    "in one": SPEC.replace("  sine_2:\n    kind: test", "  sine_2:\n    kin: test"),
    "a name twice": SPEC.replace("sine_4", "sine_1"),
    "a name twice, with a comment": SPEC.replace("sine_4:", "sine_1:  # one"),
    "a class twice": SPEC.replace("  sine_4:", "  sine__1:"),
    "no YAML": SPEC.replace("{x: 'T[*shape]'}", "{x: 'T[*shape]'", 1),
    "a quote that is not closed": SPEC.replace("doc: A test.", "doc: 'A test.", 1),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_mistakes_are_told_as_by_one_process(two, monkeypatch, text):
    with pytest.raises(SpecError) as found:
        specs.loads(text)
    monkeypatch.setattr(two_processes, "_MANY", 100)
    with pytest.raises(SpecError) as of_one:
        specs.loads(text)
    assert str(found.value) == str(of_one.value)


LAID_OUT = {
    "as the catalog is": ("functions:\n  one(x): x + 1\n\n" + SPEC, True),
    "with comments": (SPEC.replace("  sine_2", "# two\n\n  # the second\n  sine_2") + "\n# the end\n", True),
    "with a comment in a row": (SPEC.replace("    doc: A test.", "  # sine_9:\n    doc: A test.  # a test"), True),
    "with a text of several lines": (SPEC.replace("doc: A test.", "doc: >-\n      A test,\n      of two lines."), True),
    "with a comment behind a name": (SPEC.replace("  sine_3:", "  sine_3:  # three"), False),
    "functions last": (SPEC + "functions:\n  one(x): x + 1\n", False),
    "lines that end otherwise": (SPEC.replace("\n", "\r\n"), False),
}


@pytest.mark.parametrize("text, by_two", LAID_OUT.values(), ids=LAID_OUT)
def test_a_spec_is_read_in_halves_where_it_is_laid_out_as_the_catalog(two, monkeypatch, text, by_two):
    assert (specs._read_in_halves(text, "ops.yaml") is not None) == by_two
    found = specs.loads(text)
    monkeypatch.setattr(two_processes, "_MANY", 100)
    assert found == specs.loads(text)
    assert [row.source for row in found.rows] == [row.source for row in specs.loads(text).rows]


def test_the_catalog_is_read_in_halves(two):
    text = (Path(__file__).parents[2] / "ops.yaml").read_text(encoding="utf-8")
    rows, functions = specs._read_in_halves(text, "ops.yaml")
    assert len(rows) > 200 and functions


def test_values_of_another_process_are_those_of_this_one(two):
    """A value keeps what was found of it, such as its hash; another process is not given that."""
    known = ALONE[0].rows[1].forward.written_out
    hashes = {hash(node) for node in known.values()}
    sent = specs.loads(SPEC).rows[1].forward.written_out
    assert sent == known
    assert {hash(node) for node in sent.values()} == hashes


def test_halves_are_put_together_in_order():
    assert two_processes.interleaved("ace", "bd") == list("abcde")
    assert two_processes.interleaved("a", "") == ["a"]
