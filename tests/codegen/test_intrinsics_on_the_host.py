"""The CUDA cell of every intrinsic, run on the CPU against the NumPy cell: special values, then random ones.

What is exact, or computed in the same steps everywhere, has the same bits. Of what a library computes, the host's C++
library stands for CUDA's, so its cells show that arguments and overloads are the right ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from catalogs import made_catalog
from distance import distance
from host import emulator
from problems import Call, lay_out, plan_class_of
from test_intrinsics import ELEMENTS, INTRINSICS, SPEC, STORAGE, arguments_of, cells, kinds, operation
from values import UNTOUCHED, run

from oracles.floats import FORMATS
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind

PACKAGE = "skuda_intrinsics_on_the_host"
LIBRARY = 16  # units in the last place between the libraries of C++ and NumPy, at most


def typed_cells() -> list[tuple[str, str, str]]:
    """(intrinsic, kind, element type); a cell without a real has one."""
    found = []
    for name, kind in cells():
        letters = "".join(kinds(INTRINSICS[name], kind))
        found += [(name, kind, element) for element in (ELEMENTS if "r" in letters else ELEMENTS[:1])]
    return found


def call_of(name: str, kind: str, element: str, count: int) -> Call:
    """A call of a cell's operation on contiguous arrays."""
    plan_class = plan_class_of(PACKAGE, operation(name, kind))
    fields = tuple((field, element) for field in plan_class.operation.element_fields.values())
    names = [operand.name for operand in plan_class.operation.operands]
    layouts = tuple((each, lay_out((count,), "plain")) for each in names)
    return Call(plan_class, (("shape", (count,)),), fields, layouts)


def columns_of(name: str, kind: str, element: str) -> list[np.ndarray]:
    arguments, result = kinds(INTRINSICS[name], kind)
    columns = arguments_of(arguments, FORMATS[element])
    if "r" not in arguments + result:
        columns.append(np.ones(columns[0].shape, STORAGE[element]))
    return columns


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """All cells in one library."""
    with made_catalog(tmp_path_factory.mktemp("catalog"), PACKAGE, SPEC):
        yield library(tmp_path_factory.mktemp("host"))


def library(folder) -> emulator.Host:
    skus = [sku for sku in registry.skus() if registry.entry_of(sku).catalog.package == PACKAGE]
    one_each = {registry.entry_of(sku).operation.function: sku for sku in skus if sku.backend is BackendKind.CUDA}
    entries = []
    for cell in typed_cells():
        call = call_of(*cell, len(columns_of(*cell)[0]))
        plan = call.plan(BackendKind.REFERENCE)
        views = call.views(plan)
        entries += [entry for launch, _ in plan.launch_for(views).launches(views, 0) for entry in launch.entries]
    return emulator.Host([*one_each.values()], folder, entries=entries)


@pytest.mark.parametrize("name, kind, element", typed_cells())
def test_the_cuda_cell_does_what_the_numpy_cell_does(host, name, kind, element):
    columns = columns_of(name, kind, element)
    call = call_of(name, kind, element, len(columns[0]))
    plan = call.plan(BackendKind.REFERENCE)
    inputs = dict(zip([operand.name for operand in plan.operation.inputs], columns, strict=True))
    [expected] = run(plan, inputs).values()
    arrays, found = {}, {}
    for operand, word in zip(plan.operation.operands, plan.words, strict=True):
        storage = DTYPES[word].storage
        contents = np.full(len(columns[0]) * storage.itemsize, UNTOUCHED, np.uint8)
        if operand.name in inputs:
            contents = inputs[operand.name].view(np.uint8)
        arrays[operand.name] = contents, storage, dict(call.layouts)[operand.name]
    assert list(host.run(plan, arrays, found)) == []
    [actual], wanted = found.values(), expected.view(np.uint8)
    row = INTRINSICS[name]
    storage = expected.dtype
    if row.exact or row.common:
        wrong = np.flatnonzero((actual != wanted).reshape(-1, storage.itemsize).any(1))
    else:
        away = [distance(a, b, element) for a, b in zip(_each(actual, storage), _each(wanted, storage), strict=True)]
        wrong = np.flatnonzero([steps is None or steps > LIBRARY for steps in away])
    got = actual.view(storage)
    shown = [([column[i] for column in columns], got[i], expected[i]) for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} of {len(got)} differ; (arguments, CUDA's, NumPy's): {shown}"


def _each(memory: np.ndarray, storage: np.dtype) -> np.ndarray:
    return memory.reshape(-1, storage.itemsize)
