"""Samples of torch's own operator database through our functions on tensors, forward and backward.

Every sample agrees, or differs for a reason that `operator_differences` states for its operation.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from operator_database import counted, entries, page
from operator_differences import DIFFERENCES

DOCS = Path(__file__).parents[2] / "docs" / "frameworks.md"


@pytest.mark.turns(36)
@pytest.mark.parametrize("name", entries())
def test_samples_agree(name):
    """Or the reasons found are those that are stated: no other one, and each of them."""
    found = counted(name)
    stated = {reason for reason, (operations, _) in DIFFERENCES.items() if name in operations}
    assert set(found.differ) == stated, found.shown
    assert found.agree or stated


def test_stated_differences_are_of_operations_compared():
    assert {name for operations, _ in DIFFERENCES.values() for name in operations} <= set(entries())


def test_the_page_names_them():
    assert page(DIFFERENCES) in DOCS.read_text(encoding="utf-8")
