"""`smallest(T)` in formulas of one's own: the least positive value of an element type, on the CPU and in CUDA."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from catalogs import catalog_fixture
from quick_compiler import compile_quickly

from oracles.floats import FORMATS, FP8, decode
from skuda.codegen import spec as specs
from skuda.launch import registry
from skuda.model.sku import BackendKind
from skuda.schedules import table

SPEC = """\
functions:
  at_least(x, least): fmax(x, least)

ops:
  floored:
    types: {T: [f32, f64, f16, bf16], Q: [e4m3, e5m2], S: [C, T]}
    inputs: {x: "T[*n, d]"}
    outputs:
      scale: S[*n, d] = at_least(x, smallest(S))
      code: Q[*n, d] = at_least(x, smallest(Q))
      wide: C[*n, d] = at_least(x, smallest(C))

  counted:
    types: {T: [f32], Q: [s8, u4]}
    inputs: {x: "T[*shape]"}
    attrs: {most: Q = highest(Q)}
    outputs: {y: "T[*shape] = x * to_real(most - smallest(Q)) + smallest(T)"}

  spread:
    types: {T: [f32, f16]}
    inputs: {x: "T[*n, *d]"}
    attrs: {axis: axes of d = -1}
    outputs: {y: "C[*n] = fmax(max(x, over=d) - min(x, over=d), smallest(T))"}
    backward: {d_x: "T[*n, *d] = d_y + smallest(T) + mean(x, over=d)"}
"""

ours = catalog_fixture("own_smallest_catalog", SPEC)


def least(word: str) -> float:
    """The least positive value, by the definition of the format."""
    form = (FORMATS | FP8)[word]
    return float(decode(1, form).magnitude)


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("code", FP8)
def test_the_least_of_each_type(ours, element, code):
    storage = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[element]
    wide = "f64" if element == "f64" else "f32"
    x = np.array([[-1.0, 0.0, 0.5]], storage)
    for scale_word in (element, wide):
        scale, codes, widened = ours.floored(x, dtype=code, scale_dtype=scale_word)
        assert scale.astype(np.float64).tolist() == [[least(scale_word)] * 2 + [0.5]]
        assert codes.astype(np.float64).tolist() == [[least(code)] * 2 + [0.5]]
        assert widened.astype(np.float64).tolist() == [[least(wide)] * 2 + [0.5]]


def test_that_of_an_integer_is_one(ours):
    assert ours.counted(np.array([1.0], np.float32), dtype="s8") == 126
    assert ours.counted(np.array([1.0], np.float32), dtype="u4") == 14
    assert ours.counted(np.array([0.0], np.float32), dtype="u4") == least("f32")


def test_an_operation_that_reduces(ours):
    x = np.full((3, 5), 2.0, np.float16)
    np.testing.assert_array_equal(ours.spread(x), np.full(3, least("f16"), np.float32))
    d_x = ours.spread_backward(np.zeros(3, np.float32), np.zeros((3, 5), np.float16))
    np.testing.assert_array_equal(d_x, np.full((3, 5), least("f16"), np.float16))


@pytest.mark.turns(3)
def test_every_kernel_of_it_compiles(ours):
    kernels = {}
    for sku in registry.skus():
        entry = registry.entry_of(sku)
        of_ours = entry.catalog.package == "own_smallest_catalog" and not entry.operation.of_alternative
        if of_ours and sku.backend is BackendKind.CUDA:
            kernels.setdefault(entry.operation.source, {})[entry.operation.function, entry.variant.kernel] = entry
    assert len(kernels) == 3
    for source, found in kernels.items():
        names = [name for e in found.values() for name in table.entries(e.operation, e.types, e.variant)]
        text = next(iter(found.values())).catalog.source(source)
        assert compile_quickly(text, source, [*dict.fromkeys(names)], "sm_90").log == ""


def test_it_is_asked_of_types():
    row = next(row for row in specs.loads(SPEC).rows if row.name == "floored")
    assert row.forward.operation.analysis.asks_of == ("C", "Q", "S")
    assert set(row.forward.operation.kernel_letters) == {"T", "Q", "S"}
