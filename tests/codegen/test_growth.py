"""The measurement of a growing catalog, at a small size: it runs, and what it measures grows as the catalog does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from catalogs import own_spec

from skuda.codegen.commands import growth
from skuda.codegen.spec import loads
from skuda.verification.evidence import Records

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    place = importlib.util.spec_from_file_location("growth", REPOSITORY / "tests" / "growth.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_a_grown_spec_is_the_catalogs_rows_again_and_again(script):
    own = own_spec().rows
    rows = loads(script.spec_of(2 * len(own) + 1)).rows
    assert [row.name for row in rows] == [f"{own[i % len(own)].name}_{i // len(own)}" for i in range(len(rows))]
    assert [row.forward.formula_texts for row in rows[: len(own)]] == [row.forward.formula_texts for row in own]


@pytest.mark.turns(16)
def test_it_measures(script):
    pytest.importorskip("setuptools", minversion="77")  # builds the wheels
    result = json.loads(json.dumps(script.run([3, 12], sample=1)))
    small, large = result["catalogs"]
    for name in ("kernels", "generated_bytes", "generated_files", "wheel_bytes"):
        assert 2 * small[name] < large[name] < 8 * small[name]
    assert all(each[name] > 0 for each in result["catalogs"] for name in each)
    assert small["run_kernels"] < large["run_kernels"] < large["kernels"]
    table = list(growth.lines(result))
    assert "| operations | 3 | 12 |" in table
    assert all(line.count("|") == 4 for line in table[2:])


def test_what_was_measured_is_near_linear():
    """The record of `make growth`."""
    measured = Records(REPOSITORY / "generated").growth
    assert measured["project_wheel_bytes"] < 2e6
    first, *_, last = measured["catalogs"]
    times = last["rows"] / first["rows"]
    for name in ("generate_seconds", "generated_bytes", "wheel_bytes", "table_seconds"):
        assert last[name] < 1.2 * times * first[name], name  # linear, or better for what each catalog needs once
