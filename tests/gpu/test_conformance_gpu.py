"""CUDA kernels of the catalog against the reference: the same bytes, and nothing written beside them.

Which kernels, skuda.verification.coverage says: a covering set and the turn of the commit; with --all every one.
conftest.py has the options, and writes what was found into evidence/.
"""

from __future__ import annotations

import pytest
from distance import worse
from values import Case, cases, lacking

from gpu.arrays import Pair
from gpu.conftest import chosen
from skuda.arrays.views import view_of
from skuda.codegen.commands import carry
from skuda.launch import kernel, registry
from skuda.model.sku import BackendKind, KernelSku
from skuda.schedules import strided

SKUS = {sku.symbol: sku for sku in registry.skus() if sku.backend is BackendKind.CUDA}


@pytest.fixture(autouse=True)
def busy(monkeypatch):
    """Threads take as much of these small arrays as they do of large ones."""
    monkeypatch.setattr(strided, "BUSY", 64)


def family(sku: KernelSku) -> str:
    """Kernels that one worker takes (`--dist loadgroup`): they share the search for calls, and what is expected."""
    found = registry.entry_of(sku)
    bits = [found.operation.bits(operand, found.types) for operand in found.operation.operands]
    return "-".join(map(str, (found.operation.function, *bits)))


def pytest_generate_tests(metafunc):
    if metafunc.definition.originalname == "test_bytes":
        symbols = chosen(metafunc.config)
        groups = [pytest.mark.xdist_group(family(SKUS[symbol])) for symbol in symbols]
        metafunc.parametrize("symbol", [pytest.param(each, marks=mark) for each, mark in zip(symbols, groups)])


def test_bytes(symbol, record_property):
    sku = SKUS[symbol]
    found = cases(sku)
    assert found, "tests/problems.py knows no call that reaches it"
    record_property("symbol", symbol)
    record_property("cases", len(found))
    worst, finite, complaints = 0, 0, []
    for case in found:
        pair = Pair(case)
        plan = case.call.plan(BackendKind.CUDA)
        views = [view_of(array, name) for name, array in pair.arguments().items()]
        assert plan._geometry(views).variant is registry.entry_of(sku).variant
        pair.run()
        finite += pair.finite
        for difference in pair.differences(symbol):
            worst = worse(worst, difference.ulp)
            complaints.append(difference.text)
    for name, value in (("worst_ulp", worst), ("finite", finite), ("bit_equal", not complaints)):
        record_property(name, value)
    record_property("code", code_of(sku))
    assert not complaints, "\n".join(complaints)
    assert lacking(found) == []


def code_of(sku: KernelSku) -> str:
    """The digest of the machine code that ran; "" where that is other kernels' alone."""
    found = registry.entry_of(sku)
    return carry.code_of(found, found.catalog, kernel.compute_capability(0))


def one_output(sku) -> bool:
    return len(registry.entry_of(sku).operation.outputs) == 1


def in_place(symbol: str) -> tuple[Case, str, str] | None:
    """A case in which the first input could be the output; None where no call has both in one layout."""
    operation = registry.entry_of(SKUS[symbol]).operation
    source = next(o.name for o in operation.inputs if o.dims == operation.space)
    target = operation.outputs[0].name
    alike = (case for case in cases(SKUS[symbol]) if dict(case.call.layouts)[source] == dict(case.call.layouts)[target])
    return next(((case, source, target) for case in alike), None)


SOME = [symbol for symbol, sku in SKUS.items() if symbol.startswith(("fake_quantize", "lerp")) and one_output(sku)][::7]
IN_PLACE = {symbol: found for symbol in SOME if (found := in_place(symbol))}


@pytest.mark.parametrize("symbol", IN_PLACE)
def test_in_place(symbol):
    """The output may be the input itself."""
    case, source, target = IN_PLACE[symbol]
    pair = Pair(case)
    pair.in_place(source, target)
    pair.run()
    pair.assert_same(symbol)
