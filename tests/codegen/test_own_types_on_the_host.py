"""Kernels that store and read small floats, run on the CPU: the bits of the reference, by each schedule."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from catalogs import catalog_fixture
from host import emulator
from problems import Call, lay_out, plan_class_of
from small_float_calls import SPEC, STORES, patterns
from values import UNTOUCHED, run

from oracles.floats import FORMATS
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind, KernelSku

PACKAGE = "own_types_on_the_host"
pytestmark = pytest.mark.turns(4, of=PACKAGE)  # they share a library that takes long to compile

catalog = catalog_fixture(PACKAGE, SPEC)


def call_of(name: str, element: str) -> Call:
    """A store of all patterns of an element type, as contiguous arrays."""
    plan_class = plan_class_of(PACKAGE, name)
    count = len(patterns(STORES[name], element))
    stored = -(-count // 2) if DTYPES[STORES[name]].packed else count
    layouts = (("input", lay_out((count,), "plain")), ("output", lay_out((stored,), "plain")))
    letter = plan_class.operation.inputs[0].element
    return Call(
        plan_class, (("d", (count,)),), ((plan_class.operation.element_fields[letter], element),), layouts
    )


@pytest.fixture(scope="module")
def skus(catalog) -> list[KernelSku]:
    """A kernel of each operation and schedule."""
    found = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        if entry.catalog.package == PACKAGE and sku.backend is BackendKind.CUDA:
            found.setdefault((entry.operation.name, entry.variant), sku)
    return [*found.values()]


@pytest.fixture(scope="module")
def host(skus, tmp_path_factory):
    """These kernels, and those of the stores, in one library."""
    entries = [entry for sku in skus for entry in emulator.entries_of(sku)]
    for name, element in product(STORES, FORMATS):
        call = call_of(name, element)
        plan = call.plan(BackendKind.REFERENCE)
        entries += plan.launch_for(call.views(plan)).entries
    return emulator.Host(skus, tmp_path_factory.mktemp("host"), entries=[*dict.fromkeys(entries)])


def test_each_schedule_gives_the_bits_of_the_reference(host, skus):
    assert len({registry.entry_of(sku).variant for sku in skus}) >= 6
    assert [fault for sku in skus for fault in host.faults(sku)] == []


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", STORES)
def test_a_store_gives_the_bits_of_the_reference(host, name, element):
    call = call_of(name, element)
    plan = call.plan(BackendKind.REFERENCE)
    bits = patterns(STORES[name], element)
    [expected] = run(plan, {"input": bits.view(DTYPES[element].storage)}).values()
    contents = bits.view(np.uint8), np.full(expected.nbytes, UNTOUCHED, np.uint8)
    arrays = {
        operand: (memory, DTYPES[word].storage, at)
        for (operand, at), word, memory in zip(call.layouts, plan.words, contents, strict=True)
    }
    found = {}
    assert list(host.run(plan, arrays, found)) == []
    np.testing.assert_array_equal(found["output"], expected.view(np.uint8))
