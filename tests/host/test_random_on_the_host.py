"""Random words as the CPU's C++ compiler makes them of random.cuh: those of NumPy, for keys and counters of 64 bits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from host.functions import compiled
from skuda.reference import random

TEXT = """
#include "random.cuh"
extern "C" void bits(i64* value, const i64* seed, const i64* offset, const i64* index, long count) {
  for (long i = 0; i < count; ++i) value[i] = random_bits(seed[i], offset[i], index[i]);
}
""" + "".join(f"""
extern "C" void {name}_{word}({word}* value, const i64* seed, const i64* offset, const i64* index, long count) {{
  for (long i = 0; i < count; ++i) value[i] = {name}<{word}>(seed[i], offset[i], index[i]);
}}
""" for name in ("random_uniform", "random_normal") for word in ("f32", "f64"))  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(TEXT, tmp_path_factory.mktemp("random"))


CELLS = [("bits", np.int64)]
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
    expected = random.random_bits(*arguments) if name == "bits" else getattr(random, stem)(*arguments, C)
    np.testing.assert_array_equal(value.view(np.uint8), expected.view(np.uint8))
