"""Which tests a run takes: all that have no turns, and of the others those whose turn it is.

`@pytest.mark.turns(4)` is for tests of one function that differ in their parameters, each of which costs much, four
times as much as one with `turns(1)` may. There are THINNED times as many turns, of which a run takes one. As for the
evidence of GPUs (skuda.verification.coverage) the hash of the commit says which turn, and a checksum of its parameters
in which a test is, so that the runs of many commits take every test, and tests of the same thing, which share what they
prepare, come together; tests that say `of="a name"` all have one turn. `--all` takes all, and so does a test's own name
(`file.py::test`).
"""

from __future__ import annotations

import subprocess
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from skuda.launch import registry
from skuda.verification import coverage, evidence

FOLDER = Path(__file__).parent
THINNED = 7  # so that a run takes less than ten minutes on two cores


@cache
def commit() -> str:
    """The hash of the commit that is run; of a tree without one that of what was generated."""
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=FOLDER, capture_output=True, text=True)
    if said.returncode == 0:
        return said.stdout.strip()
    package = evidence.package_of(registry.catalogs()[0])
    return sha256((package / "MANIFEST").read_bytes()).hexdigest()


def turn(config: pytest.Config, count: int) -> int:
    """The turn that a run takes, of some."""
    asked = config.getoption("--turn", default=None)
    return coverage.turn_of(commit(), count) if asked is None else asked % count


def every(config: pytest.Config) -> bool:
    """Whether a run takes everything."""
    return config.getoption("--all", default=False) or any("::" in each for each in config.args)


def divided(config: pytest.Config, items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that a run takes, and those that wait for their turn."""
    taken, waiting = [], []
    for item in items:
        mark = item.get_closest_marker("turns")
        count = mark.args[0] * THINNED if mark and not every(config) else 1
        of = (mark.kwargs.get("of") if mark else None) or parameters(item)
        (taken if coverage.group_of(of, count) == turn(config, count) else waiting).append(item)
    return taken, waiting


def parameters(item: pytest.Item) -> str:
    """What tells a test from the others of its function; of one that has no parameters its name."""
    called = getattr(item, "callspec", None)
    return called.id if called else item.name
