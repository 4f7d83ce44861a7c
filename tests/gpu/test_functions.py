"""Functions that have the same bits everywhere: what the GPU computes has the bits of the NumPy reference."""

from __future__ import annotations

import cupy
import numpy as np
import pytest
from catalogs import made_catalog
from function_arguments import arguments

from skuda.codegen.intrinsics import INTRINSICS
from skuda.reference import formulas

COMMON = [name for name, row in INTRINSICS.items() if row.common and set(row.arguments) == {"r"} == {row.result}]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    spec = "ops:\n"
    for name in COMMON:
        letters = "ab"[: len(INTRINSICS[name].arguments)]
        inputs = ", ".join(f"{letter}: 'T[*shape]'" for letter in letters)
        formula = f"'T[*shape] = {name}({', '.join(letters)})'"
        spec += f"  try_{name}:\n    types: {{T: [f32, f64]}}\n"
        spec += f"    inputs: {{{inputs}}}\n    outputs: {{y: {formula}}}\n"
    with made_catalog(tmp_path_factory.mktemp("functions"), "skuda_functions_under_test", spec) as module:
        yield module


@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.parametrize("name", COMMON)
def test_bits(catalog, name, word):
    arrays = arguments(len(INTRINSICS[name].arguments), {"f32": np.float32, "f64": np.float64}[word], 200_000)
    with np.errstate(all="ignore"):
        expected = formulas.narrow(getattr(formulas, name)(*arrays), word)
    got = getattr(catalog, f"try_{name}")(*map(cupy.asarray, arrays)).get()
    kind = f"u{expected.itemsize}"
    wrong = np.flatnonzero(got.view(kind) != expected.view(kind))
    assert not len(wrong), [([each[i] for each in arrays], got[i], expected[i]) for i in wrong[:5]]
