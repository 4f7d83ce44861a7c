"""Rows that the catalog has none like, in every schedule, run on the CPU."""

from __future__ import annotations

import pytest
from problems import calls

from host.own_rows import check_bytes, kernels_of
from skuda.schedules.variant import COLUMNS

ROWS = {
    # Sums of exponentials of rows that lie beside each other, which stripes hold.
    "log_shares": """
        types: {T: [f32, f16, f64]}
        inputs: {x: "T[*n, *d]"}
        attrs: {axis: axes of d = -1}
        outputs:
          y: T[*n, *d] = 2 * x - logsumexp(2 * x, over=d)
        backward: none
    """,
    # What rows and columns have of a stack of matrices, each of which has the same.
    "stacked": """
        types: {T: [f32, f16, s8]}
        inputs: {x: "T[*n, r, c]", low: "T[r]", high: "T[c]"}
        attrs: {shift: i32 = 1}
        outputs:
          y: T[*n, r, c] = where(position(r) > position(c) + shift, max(low, min(x, high)), x)
        backward: none
    """,
    # Reductions across rows, each of which one element tells where a row has no more.
    "shared_gain": """
        types: {T: [f32, f16]}
        inputs: {x: "T[n, *k, d]", gain: "T[d]", offset: "T[*k]"}
        attrs: {factor: C = 0.5}
        outputs:
          y: T[n, *k, d] = x * gain
          total: T[*k, d] = factor * sum(x * gain + offset, over=n)
          extent: C[*k, d] = max(x + offset, over=n) - factor * min(x, over=n)
          product: T[*k, d] = prod(x * offset, over=n)
        backward: none
    """,
}


@pytest.mark.turns(4)
@pytest.mark.parametrize("name", ROWS)
def test_bytes(name, tmp_path):
    check_bytes(name, ROWS[name], tmp_path)


def test_the_schedules_that_are_meant_are_there():
    variants = {sku.variant for sku in kernels_of("log_shares", ROWS["log_shares"])}
    assert any(variant.startswith("stripe") for variant in variants)
    found = [call.geometry() for sku in kernels_of("stacked", ROWS["stacked"]) for call in calls(sku)]
    assert any(geometry.variant is COLUMNS and geometry.strides["low"][-4] for geometry in found)
    symbols = [sku.symbol for sku in kernels_of("shared_gain", ROWS["shared_gain"])]
    assert any("_of_one_" in symbol for symbol in symbols) and any("across" in symbol for symbol in symbols)
