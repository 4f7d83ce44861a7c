"""Every schedule of every operation is reached by some call, which tests/problems.py knows; one choice of types each,
operations in turns.

tests/gpu asks it of every kernel.
"""

from __future__ import annotations

import re

import pytest
from problems import calls, each_schedule
from values import cases, lacking

from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku

HELD = r"row(\d+x\d|\d+_reread)|few_rows\d+x\d"
# In whole vectors.
PIECES = r"(row\d+x\d|cluster\d+)_pieces(_of_halves)?"
WHOLE = rf"{HELD}|{PIECES}|" + (
    r"along|across\d|cluster\d+|scan\d+(x\d)?|scan_parts|(narrow_)?slab\d+x\d|stripe\d+(_narrow)?"
)
SKUS: dict[str, list[KernelSku]] = {}  # by operation
for each in each_schedule():
    SKUS.setdefault(registry.entry_of(each).operation.name, []).append(each)


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", SKUS)
def test_every_kernel_has_a_call_that_reaches_it(name):
    assert [sku.symbol for sku in SKUS[name] if not calls(sku)] == []


@pytest.mark.turns(8)
@pytest.mark.parametrize("name", SKUS)
def test_the_calls_have_tails(name):
    """At least one of each kernel's calls has a number of elements that no power of two divides; lines
    and rows of whole vectors have none."""
    for sku in SKUS[name]:
        whole = re.fullmatch(WHOLE, sku.variant)
        if whole or sku.variant.endswith("_pitched"):
            continue
        counts = [call.plan(BackendKind.REFERENCE).numel for call in calls(sku)]
        assert not counts or any(count % 2 for count in counts) or sku.layout.name.endswith("PACKED4"), (
            sku.symbol
        )


@pytest.mark.turns(32)
@pytest.mark.parametrize("name", SKUS)
def test_what_the_calls_expect_tells_right_from_wrong(name):
    """Enough of it is neither a limit of codes nor the same everywhere."""
    assert {sku.symbol: found for sku in SKUS[name] if (found := lacking(cases(sku)))} == {}
