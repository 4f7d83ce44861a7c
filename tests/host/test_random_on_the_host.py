"""Random words as the CPU's C++ compiler makes them of random.cuh: those of NumPy, for keys and counters of 64 bits,
and for neighbours wherever they begin."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from host.functions import compiled
from skuda.reference import random
from skuda.reference.reductions import Rows

TEXT = """
#include "random.cuh"
extern "C" void bits(i64* value, const i64* seed, const i64* offset, const i64* index, long count) {
  for (long i = 0; i < count; ++i) value[i] = random_bits(seed[i], offset[i], index[i]);
}
extern "C" void bits_beside(i64* value, const i64* seed, const i64* offset, const i64* index, long count) {
  for (long i = 0; i < count; ++i)
    value[i] = random_bits(seed[i], offset[i], DrawnPlace(index[i] - i % 8, i32(i % 8)));
}
""" + "".join(f"""
extern "C" void {name}_{word}({word}* value, const i64* seed, const i64* offset, const i64* index, long count) {{
  for (long i = 0; i < count; ++i) value[i] = {name}<{word}>(seed[i], offset[i], index[i]);
}}
""" for name in ("random_uniform", "random_normal") for word in ("f32", "f64"))  # fmt: skip
TEXT += "".join(f"""
extern "C" void reached_{C}(bool* value, {C} p, const i64* index, long count) {{
  const LeastShare<{C}> least(p);
  for (long i = 0; i < count; ++i) value[i] = least.reached_by(7, 1ll << 40, index[i]);
}}
""" for C in ("f32", "f64"))  # fmt: skip
TEXT += """
extern "C" void portion(i64* value, i64 size, const i64* index, long count) {
  const Portion portion(size);
  for (long i = 0; i < count; ++i) value[i] = portion.of(7, 1ll << 40, index[i]);
}
"""
WORDS = ["bf16", "f16", "e4m3", "e8m0", "f32"]
TEXT += "".join(f"""
extern "C" void stochastic_{word}_{C}({C}* value, const {C}* x, const i64* bits, long count) {{
  for (long i = 0; i < count; ++i) value[i] = stochastic<{word}>(x[i], bits[i]);
}}
""" for word in WORDS for C in ("f32", "f64"))  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(TEXT, tmp_path_factory.mktemp("random"))


CELLS = [("bits", np.int64), ("bits_beside", np.int64)]
CELLS += [(f"{name}_f32", np.float32) for name in ("random_uniform", "random_normal")]
CELLS += [(f"{name}_f64", np.float64) for name in ("random_uniform", "random_normal")]


@pytest.mark.parametrize("name, C", CELLS)
def test_numbers(library, name, C):
    generator = np.random.default_rng(1)
    arguments = [generator.integers(-(2**63), 2**63 - 1, 20_000, endpoint=True) for _ in range(3)]
    value = np.empty(20_000, C)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (value, *arguments)]
    getattr(library, name)(*pointers, ctypes.c_long(20_000))
    stem = name.rpartition("_")[0]
    expected = random.random_bits(*arguments) if "bits" in name else getattr(random, stem)(*arguments, C)
    np.testing.assert_array_equal(value.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("C", [np.float32, np.float64])
def test_numbers_are_compared_as_integers(library, C):
    """With any number: those that are drawn, their neighbours, what none reaches and what all do, and NaN."""
    index = np.arange(2000)
    drawn = random.random_uniform(7, 1 << 40, index, C)
    some = [*drawn[:50], *np.nextafter(drawn[:50], C(2)), *np.nextafter(drawn[:50], C(-1))]
    reached = getattr(library, "reached_f32" if C is np.float32 else "reached_f64")
    real = ctypes.c_float if C is np.float32 else ctypes.c_double
    some += [-np.inf, -1.0, -0.0, 0.0, 5e-324, 1e-9, 0.1, 0.5, 1 - 2.0**-24, 1 - 2.0**-53, 1.0, 2.0, np.inf, np.nan]
    for p in some:
        value = np.empty(index.size, bool)
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (value, index)]
        reached(pointers[0], real(p), pointers[1], ctypes.c_long(index.size))
        np.testing.assert_array_equal(value, drawn >= C(p), str(p))


@pytest.mark.parametrize("size", [-(2**40), -1, 0, 1, 2, 3, 1000, 2**16 + 1, 2**31 - 2, 2**31 - 1, 2**31, 2**40])
def test_portions_of_a_size(library, size):
    index = np.arange(2000)
    value = np.empty(index.size, np.int64)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (value, index)]
    library.portion(pointers[0], ctypes.c_int64(size), pointers[1], ctypes.c_long(index.size))
    words = random.random_bits(7, 1 << 40, index)
    np.testing.assert_array_equal(value, [int(word) * min(max(size, 0), 2**31 - 1) >> 32 for word in words])


@pytest.mark.parametrize("C", [np.float32, np.float64])
@pytest.mark.parametrize("word", WORDS)
def test_stochastic_rounding(library, word, C):
    generator, name = np.random.default_rng(2), {np.float32: "f32", np.float64: "f64"}[C]
    kind = f"i{np.dtype(C).itemsize}"
    x = generator.integers(np.iinfo(kind).min, np.iinfo(kind).max, 20_000, kind, endpoint=True).view(C)
    x[:2000] = np.exp2(generator.uniform(-160, 10, 2000))
    bits = generator.integers(0, 2**32, x.size)
    value = np.empty_like(x)
    pointers = [ctypes.c_void_p(each.ctypes.data) for each in (value, x, bits)]
    getattr(library, f"stochastic_{word}_{name}")(*pointers, ctypes.c_long(x.size))
    with np.errstate(all="ignore"):
        expected = Rows(x.shape, (), None, {}, C).stochastic(x, bits, word)
    kept = ~np.isnan(x)
    np.testing.assert_array_equal(value[kept].view(np.uint8), expected[kept].view(np.uint8))
    assert np.isnan(value[~kept]).all() and np.isnan(expected[~kept]).all()
