"""The CUDA spellings of functions that have the same bits everywhere, compiled for the CPU: NumPy's bits."""

from __future__ import annotations

import numpy as np
import pytest
from function_arguments import arguments

from host.functions import Functions
from skuda.codegen.intrinsics import HALVED, INTRINSICS
from skuda.model.dtypes import DTYPES
from skuda.reference import formulas, half_precision

HALVES = [(name, word) for name in sorted(HALVED) for word in ("f16", "bf16")]
COMMON = [name for name, row in INTRINSICS.items() if row.common and "r" in row.arguments]


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    return Functions(COMMON, tmp_path_factory.mktemp("functions"))


@pytest.mark.parametrize("word", ["f32", "f64"])
@pytest.mark.parametrize("name", COMMON)
def test_bits(functions, name, word):
    arrays = arguments(len(INTRINSICS[name].arguments), {"f32": np.float32, "f64": np.float64}[word], 4_000)
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(formulas, name)(*arrays))
    assert expected.dtype == arrays[0].dtype and np.isfinite(expected).mean() > 0.2
    kind = f"u{expected.itemsize}"
    expected, got = formulas.narrow(expected, word), formulas.narrow(functions(name, *arrays), word)
    wrong = np.flatnonzero(got.view(kind) != expected.view(kind))
    assert not len(wrong), [([each[i] for each in arrays], got[i], expected[i]) for i in wrong[:5]]


@pytest.mark.parametrize("name, word", HALVES)
def test_bits_of_half_precision(functions, name, word):
    """Of every number of the type, and of numbers of f32 between them."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[word].storage).astype(np.float32)
    x = np.concatenate([every, arguments(1, np.float32, 20_000)[0]])
    with np.errstate(all="ignore"):
        expected = getattr(half_precision, name)(x, word)
    assert expected.dtype == np.float32 and np.isfinite(expected).mean() > 0.4
    expected, got = (formulas.narrow(y, "f32") for y in (expected, functions(name, x, precise_as=word)))
    wrong = np.flatnonzero(got.view(np.uint32) != expected.view(np.uint32))
    assert not len(wrong), [(x[i], got[i], expected[i]) for i in wrong[:5]]
