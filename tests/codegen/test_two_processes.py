"""What two processes make of a spec: what one makes."""

from __future__ import annotations

import pytest

from skuda.codegen import render as renderer
from skuda.codegen import spec as specs
from skuda.codegen import two_processes
from skuda.codegen.describe import Described
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


def test_mistakes_of_both_halves_are_reported(two, monkeypatch):
    wrong = SPEC.replace("sin(x)", "sin(alfa)")
    with pytest.raises(SpecError) as found:
        specs.loads(wrong)
    monkeypatch.setattr(two_processes, "_MANY", 100)
    with pytest.raises(SpecError) as of_one:
        specs.loads(wrong)
    assert str(found.value) == str(of_one.value)
    assert "5 errors" in str(found.value)


def test_values_of_another_process_are_those_of_this_one(two):
    """A value keeps what was found of it, such as its hash; another process is not given that."""
    known = ALONE[0].rows[1].forward.written_out
    hashes = {hash(node) for node in known.values()}
    sent = specs.loads(SPEC).rows[1].forward.written_out
    assert sent == known
    assert {hash(node) for node in sent.values()} == hashes


def test_described_rows_render_by_parts():
    spec, files = ALONE
    described = [[Described(each) for each in row.every] for row in spec.rows]
    halves = [renderer._files_of(spec, described, part) for part in (slice(0, None, 2), slice(1, None, 2))]
    assert not halves[0].keys() & halves[1].keys()
    assert (halves[0] | halves[1]).items() <= files.items()
