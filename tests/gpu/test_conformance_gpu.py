"""Every CUDA kernel of the catalog against the reference: the same bytes, and nothing written beside them."""

from __future__ import annotations

import pytest
from distance import worse
from problems import calls

from gpu.arrays import Pair
from skuda import dispatch, walk
from skuda.sku import BackendKind
from skuda.tensor import view_of

SKUS = {sku.symbol: sku for sku in dispatch.skus() if sku.backend is BackendKind.CUDA}


@pytest.fixture(autouse=True)
def busy(monkeypatch):
    """Threads take as much of these small arrays as they do of large ones."""
    monkeypatch.setattr(walk, "BUSY", 64)


@pytest.mark.parametrize("symbol", SKUS)
def test_bytes(symbol, record_property):
    sku = SKUS[symbol]
    assert calls(sku), "tests/problems.py knows no call that reaches it"
    record_property("symbol", symbol)
    record_property("cases", len(calls(sku)))
    worst, complaints = 0, []
    for index, call in enumerate(calls(sku)):
        pair = Pair(call, f"{symbol}{index}")
        plan = call.plan(BackendKind.CUDA)
        views = [view_of(array, name) for name, array in pair.arguments(pair.gpu).items()]
        assert plan._geometry(views).variant is dispatch.entry_of(sku).variant
        pair.run(BackendKind.REFERENCE)
        pair.run(BackendKind.CUDA)
        for difference in pair.differences(symbol):
            worst = worse(worst, difference.ulp)
            complaints.append(difference.text)
    record_property("worst_ulp", worst)
    assert not complaints, "\n".join(complaints)


def one_output(sku) -> bool:
    return len(dispatch.entry_of(sku).operation.outputs) == 1


def in_place(symbol: str):
    """A call in which the first input could be the output; None where no call has both in one layout."""
    operation = dispatch.entry_of(SKUS[symbol]).operation
    source = next(o.name for o in operation.inputs if o.dims == operation.space)
    target = operation.outputs[0].name
    same = (c for c in calls(SKUS[symbol]) if dict(c.places)[source] == dict(c.places)[target])
    return next(((call, source, target) for call in same), None)


SOME = [symbol for symbol, sku in SKUS.items() if symbol.startswith(("fake_quantize", "lerp")) and one_output(sku)][::7]
IN_PLACE = {symbol: found for symbol in SOME if (found := in_place(symbol))}


@pytest.mark.parametrize("symbol", IN_PLACE)
def test_in_place(symbol):
    """The output may be the input itself."""
    call, source, target = IN_PLACE[symbol]
    pair = Pair(call, symbol)
    for memory in (pair.cpu, pair.gpu):
        memory[target] = memory[source]
    pair.run(BackendKind.REFERENCE)
    pair.run(BackendKind.CUDA)
    pair.assert_same(symbol)
