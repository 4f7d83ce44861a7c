"""A row of the bench that fails is in the table, and the run goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from skuda.bench import suite
from skuda.generated import CATALOG

run = pytest.importorskip("skuda.bench.run")  # needs CuPy

CASE = suite.cases(CATALOG, ["gumbel_softmax"])[0]


class Measured:
    """A problem that ran without a fault."""

    def __init__(self, case: suite.Case):
        pass

    def fault(self) -> None:
        return None


def fails(*_):
    raise ValueError("no such thing")


@pytest.mark.parametrize("broken", ["Problem", "served_by", "Bench._measured"])
def test_a_row_that_fails_does_not_end_the_run(monkeypatch, broken):
    monkeypatch.setattr(run, "_fits", lambda size: True)
    monkeypatch.setattr(run, "Problem", Measured)
    monkeypatch.setattr(run, "served_by", lambda problem: SimpleNamespace(symbol="kernel"))
    monkeypatch.setattr(f"skuda.bench.run.{broken}", fails)
    bench = run.Bench.__new__(run.Bench)  # which needs no GPU
    (row, again) = bench.run([CASE, CASE], lambda case: None)
    assert row == again and row["error"] == "ValueError: no such thing"
    assert row["operation"] == "gumbel_softmax" and "ours_us" not in row
