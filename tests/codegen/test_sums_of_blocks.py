"""Sums and products over blocks of which an axis cuts the last one short: kernels have the reference's order."""

from __future__ import annotations

import pytest
from host import emulator

import skuda
from skuda.launch import registry
from skuda.model.sku import BackendKind


@pytest.mark.turns(6)
@pytest.mark.parametrize("formula", ["sum(x * w, over=d/size)", "prod(x + w, over=d/size)", "mean(x * w, over=d/size)"])
def test_every_schedule_has_the_bits_of_the_reference(formula, tmp_path):
    row = skuda.define(
        inputs={"x": "T[*n, d]", "w": "T[*n, d]"},
        attrs={"size": "size"},
        outputs={"y": f"T[*n, d/size] = {formula}"},
        backward="none",
    )
    found = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog is row.catalog and sku.backend is BackendKind.CUDA:
            found.setdefault(entry.variant, sku)
    assert found
    host = emulator.Host([*found.values()], tmp_path)
    assert [fault for sku in found.values() for fault in host.faults(sku)] == []
