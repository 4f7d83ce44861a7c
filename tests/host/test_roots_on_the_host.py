"""Roots of f32 as the CPU's C++ compiler makes them of powers.cuh: correctly rounded, whatever they start from."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from host.functions import compiled

# A GPU's estimate of 1 / sqrt(x) is some units off where it is a positive number.
TEXT = """
static int units = 0;
inline float estimate(float x) {
  const float y = 1 / std::sqrt(x);
  return x > 0 && x < INFINITY ? __int_as_float(__float_as_int(y) + units) : y;
}
#define rsqrt_approx_f32 estimate
#include "powers.cuh"
extern "C" void inverse_roots(f32* value, const f32* x, long count, int off) {
  units = off;
  for (long i = 0; i < count; ++i) value[i] = inverse_root(x[i]);
}
extern "C" void cube_roots(f32* value, const f32* x, long count) {
  for (long i = 0; i < count; ++i) value[i] = cube_root(x[i]);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return compiled(TEXT, tmp_path_factory.mktemp("roots"))


def numbers() -> np.ndarray:
    """Of every exponent, and those whose inverse roots are closest to the middle of two numbers of f32."""
    drawn = np.random.default_rng(4).integers(0, 0x7F800000, 200_000, dtype=np.uint32).view(np.float32)
    hard = np.array([0x403A18E3, 0x3F8A5C86, 0x3FBA2A39], np.uint32).view(np.float32)
    return np.concatenate([drawn, *(hard * np.float32(4.0**power) for power in range(-70, 63))])


def differ(function, x: np.ndarray, expected: np.ndarray, *more) -> np.ndarray:
    found = np.empty_like(x)
    function(ctypes.c_void_p(found.ctypes.data), ctypes.c_void_p(x.ctypes.data), ctypes.c_long(len(x)), *more)
    return x[found.view(np.uint32) != expected.astype(np.float32).view(np.uint32)]


@pytest.mark.parametrize("off", range(-4, 5))
def test_inverse_roots(library, off):
    x = np.concatenate([numbers(), np.array([0.0, -0.0, np.inf], np.float32)])
    with np.errstate(divide="ignore"):
        expected = 1 / np.sqrt(x.astype(np.float64))
    assert not len(differ(library.inverse_roots, x, expected, ctypes.c_int(off)))


def test_cube_roots(library):
    x = np.concatenate([numbers(), -numbers(), np.array([0.0, -0.0, np.inf, -np.inf], np.float32)])
    assert not len(differ(library.cube_roots, x, np.cbrt(x.astype(np.float64))))
