"""Positions in every schedule, run on the CPU: of one dimension, of several and of any number of axes, however operands
lie."""

from __future__ import annotations

import re

import pytest
from problems import candidates, served
from values import Case, cases

import skuda
from host import emulator
from skuda.launch import registry
from skuda.model.sku import BackendKind
from skuda.schedules.variant import COLUMNS

ROWS = {
    "counted": """
        types: {T: f32}
        inputs: {input: "T[*shape]"}
        outputs: {output: "T[*shape] = input + to_real(position(shape) % 8191)"}
    """,
    "counted_in_channels": """
        types: {T: f32}
        inputs: {input: "T[*outer, c, *inner]", scale: "T[c]"}
        attrs: {axis: axis of c = -1}
        outputs: {output: "T[*outer, c, *inner] = input * scale + to_real(position((outer, c, inner)) % 8191)"}
    """,
    "counted_in_groups": """
        types: {T: f32}
        inputs: {input: "T[*n, d]", scale: "T[*n, d/block]"}
        attrs: {block: size}
        outputs: {output: "T[*n, d] = input * scale + to_real(position(n) % 5 + position((n, d)) % 8191)"}
    """,
    "read_where_apart": """
        types: {T: f32}
        inputs: {input: "T[*n, r, c]", scale: "T[c]"}
        outputs:
          output: T[*n, r, c] = where(position(r) - position(c) >= -2 and position(c) != 7, 0, input * scale)
    """,
    "counted_in_rows": """
        types: {T: f32}
        inputs: {input: "T[*n, *d]"}
        attrs: {axis: axes of d = -1}
        outputs:
          output: T[*n, *d] = input + to_real(position((n, d)) % 61) * max(input * to_real(position(d) % 7), over=d)
    """,
    "counted_sums": """
        types: {T: f32}
        inputs: {input: "T[*n, *d]"}
        attrs: {axis: axes of d = -1}
        outputs:
          output: T[*n] = sum(input * to_real(position(d) % 7 + position((n, d)) % 5), over=d) + to_real(position(n))
    """,
}


@pytest.fixture(scope="module", params=ROWS)
def kernels(request):
    """The kernels of a row, one of each name without its numbers."""
    operation = skuda.define(ROWS[request.param], name=request.param)
    package = operation.catalog.package
    found = {}
    for sku in registry.skus():
        own = sku.backend is BackendKind.CUDA and registry.entry_of(sku).catalog.package == package
        if own and "backward" not in sku.symbol and emulator.emulated(sku):
            found.setdefault(re.sub(r"\d+", "", sku.variant), sku)
    return list(found.values())


@pytest.mark.turns(3)
def test_bytes(kernels, tmp_path):
    host = emulator.Host(kernels, tmp_path)
    assert [sku.symbol for sku in kernels if not cases(sku)] == []
    assert [fault for sku in kernels for fault in host.faults(sku)] == []


@pytest.mark.parametrize("symbol", ["triu_f32__columns4", "tril_f16__columns8", "triu_s8__columns16"])
def test_places_of_a_transposed_table(symbol, tmp_path):
    """Its columns are what rows were: both places are found in vectors, and what one leaves out is not read."""
    sku = next(each for each in registry.skus() if each.symbol == symbol)
    calls = [call for call in candidates(sku, False, "permuted") if served(call) is COLUMNS][:4]
    host = emulator.Host([sku], tmp_path)
    assert len(calls) == 4
    for call in calls:
        assert list(host._faults(sku, call, Case(call).problem())) == []
