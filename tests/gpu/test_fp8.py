"""Floats of 8 bits: what GPUs without their instructions compute is what the instructions give, for every f32."""

from __future__ import annotations

import cupy
import numpy as np
import pytest

from skuda.compile import compile_cubin

SOURCE = """
#include "lanes.cuh"
template <typename E> __global__ void narrowed(u64* wrong, u32* example) {
  u32 found = 0;
  for (u64 bits = blockIdx.x * 256 + threadIdx.x; bits < (1ull << 32); bits += u64(gridDim.x) * 256) {
    const f32 x = __uint_as_float(u32(bits)), other = __uint_as_float(u32(bits) * 2654435761u);
    const u32 pair = narrow_pair<E>(x, other);
    if (pair != (nearest_code<E>(x) | nearest_code<E>(other) << 8)) {
      ++found;
      *example = u32(bits);
    }
  }
  if (found) atomicAdd(wrong, u64(found));
}
template <typename E> __global__ void widened(u64* wrong, u32* example) {
  const u32 code = threadIdx.x, pair = code | (255 - code) << 8;
  const f32 value = value_of_code(E{u8(code)}), high = value_of_code(E{u8(255 - code)});
  const u32 bits = __float_as_uint(value);
  if (__float_as_uint(widen(E{u8(code)})) != bits || __float_as_uint(widen_of(E{}, pair, false)) != bits ||
      __float_as_uint(widen_of(E{}, pair, true)) != __float_as_uint(high)) {
    atomicAdd(wrong, 1ull);
    *example = code;
  }
}
"""


@pytest.mark.parametrize("word", ["e4m3", "e5m2"])
@pytest.mark.parametrize("kernel", ["narrowed", "widened"])
def test_instructions_and_integers_agree(kernel, word):
    entry = f"{kernel}<{word}>"
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    compiled = compile_cubin(SOURCE, "fp8.cu", [entry], arch)
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    wrong, example = cupy.zeros(1, np.uint64), cupy.zeros(1, np.uint32)
    module.get_function(compiled.lowered[entry])((4096 if kernel == "narrowed" else 1,), (256,), (wrong, example))
    assert int(wrong.get()[0]) == 0, f"such as {int(example.get()[0]):#x}"
