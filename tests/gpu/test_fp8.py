"""Floats of 8 bits: what GPUs without their instructions compute is what the instructions give, for every f32; and the
fast forms of quotient.cuh store what the division does, for values around every tie.
"""

from __future__ import annotations

import cupy
import numpy as np
import pytest

from skuda.launch.compiler import compile_cubin

SOURCE = """
#include "lanes.cuh"
#include "quotient.cuh"
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

// A divisor a thread: dividends around its multiples by codes and by what lies between two codes, and others.
template <typename E> __global__ void divided_by(u64* wrong, u32* example) {
  const u32 thread = blockIdx.x * 256 + threadIdx.x, hash = thread * 2654435761u;
  const f32 s = __uint_as_float((67 + thread % 120) << 23 | hash >> 9 | hash << 31);
  const f32 bound = thread % 3 ? Format<E>::highest : widen(E{0x4c});
  const Saturated<f32, E> saturated(s, -bound, bound);
  const Magnitude<f32> magnitude(s, bound);
  u32 found = !saturated.fast || !magnitude.fast;
  const auto check = [&](f32 x) {
    const E fast = narrow_to<E>::from(saturated.template value<true>(x));
    const E slow = narrow_to<E>::from(saturated.template value<false>(x));
    const bool alike = magnitude.template inside<true>(x) == magnitude.template inside<false>(x);
    if (fast.bits != slow.bits || !alike) ++found, *example = __float_as_uint(x);
  };
  for (u32 code = 0; code < 256; ++code) {
    for (int half = 0; half < 2; ++half) {
      const u32 size = code & 127u;
      const f32 value = widen(E{u8(code)}), next = widen(E{u8(size < 126 ? code + 1 : code)});
      const u32 middle = __float_as_uint((half ? 0.5f * (value + next) : value) * s);
      for (u32 bits = middle - 4; bits != middle + 5; ++bits) check(__uint_as_float(bits));
    }
  }
  for (u32 i = 0; i < 512; ++i) check(__uint_as_float(thread * 40503u + i * 8388593u));
  if (found) atomicAdd(wrong, u64(found));
}
"""


_BLOCKS = {"narrowed": 4096, "widened": 1, "divided_by": 480}


@pytest.mark.parametrize("word", ["e4m3", "e5m2"])
@pytest.mark.parametrize("kernel", _BLOCKS)
def test_both_ways_agree(kernel, word):
    entry = f"{kernel}<{word}>"
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    compiled = compile_cubin(SOURCE, "fp8.cu", [entry], arch)
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    wrong, example = cupy.zeros(1, np.uint64), cupy.zeros(1, np.uint32)
    module.get_function(compiled.lowered[entry])((_BLOCKS[kernel],), (256,), (wrong, example))
    assert int(wrong.get()[0]) == 0, f"such as {int(example.get()[0]):#x}"
