"""Every CUDA kernel of the catalog is reached by some call; tests/problems.py knows one, and the GPU tests
run it.
"""

from __future__ import annotations

import re

from problems import calls

from skuda import dispatch
from skuda.sku import BackendKind

SKUS = [sku for sku in dispatch.skus() if sku.backend is BackendKind.CUDA]


def test_every_kernel_has_a_call_that_reaches_it():
    assert [sku.symbol for sku in SKUS if not calls(sku)] == []


def test_the_calls_have_tails():
    """At least one of each kernel's calls has a number of elements that no power of two divides; lines
    and rows of whole vectors have none."""
    for sku in SKUS:
        whole = re.fullmatch(r"row(\d+x\d|\d+_reread)|along|across\d", sku.variant)
        if whole or sku.variant.endswith("_pitched"):
            continue
        counts = [call.plan(BackendKind.REFERENCE).numel for call in calls(sku)]
        assert not counts or any(count % 2 for count in counts) or sku.layout.name.endswith("PACKED4"), (
            sku.symbol
        )
