"""Exhausts the shared-divisor division of runtime/cuda/quotient.cuh in f32: all 2^46 pairs of mantissas.

    python tests/gpu/prove_division.py [evidence/division_f32.json]

Within the range where nothing over- or underflows, scaling x or s by a power of two scales every step, so the
2^23 mantissas of x and of s in [1, 2) stand for all values. A quotient q is the correctly rounded one when the
exact remainder x - s q is at most s times half a unit in the last place of q (a tie cannot occur); the check uses
no division.

Then, for each divisor: 0 and infinities have the IEEE quotient too; `inverse` is the correctly rounded 1 / s of
every safe divisor, and for many bounds the thresholds of `Steps` are the last dividends whose rounded IEEE
quotients lie in the bounds, and dividends cut to the bounds give the bounds; quotients are monotone, so that says
it for all dividends. Takes about half a minute on an H200.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import cupy

from skuda.launch.compiler import compile_cubin, headers

SOURCE = """
#include "quotient.cuh"
extern "C" __global__ void prove(u64* wrong, u32 first) {
  const f32 s = __uint_as_float(0x3f800000u | (first + blockIdx.x));
  const Divisor<f32> divisor(s);
  u32 found = 0;
#pragma unroll 8
  for (u32 mantissa = threadIdx.x; mantissa < (1u << 23); mantissa += 1024) {
    const f32 x = __uint_as_float(0x3f800000u | mantissa);
    const f32 q = divisor.refined(x);
    const f32 half_ulp = q >= 1.0f ? 0x1p-24f : 0x1p-25f;
    found += !(fabsf(__fmaf_rn(-s, q, x)) <= s * half_ulp);
  }
  if (found) atomicAdd(wrong, u64(found));
}

__device__ bool inside(f32 x, f32 s, i32 low, i32 high) {
  const i32 q = nearest(divided(x, s));
  return low <= q && q <= high;
}
__device__ u32 wrong_quotient(f32 x, f32 s) {
  return __float_as_uint(Divisor<f32>(s).refined(x)) != __float_as_uint(__fdiv_rn(x, s));
}
__device__ f32 beyond(f32 x) { return __uint_as_float(__float_as_uint(x) + 1); }

extern "C" __global__ void prove_steps(u64* wrong) {
  const u32 mantissa = blockIdx.x * 256 + threadIdx.x;
  u32 found = 0;
  for (i32 exponent = -60; exponent <= 60; ++exponent) {
    const f32 s = __uint_as_float(u32(127 + exponent) << 23 | mantissa);
    if (!safe_divisor(s)) continue;
    found += inverse(s) != __frcp_rn(s) || inverse(-s) != __frcp_rn(-s);
    for (i32 sign = -1; sign <= 1; sign += 2) {
      const f32 infinity = __int_as_float(0x7f800000);
      found += wrong_quotient(0.0f, sign * s) + wrong_quotient(-0.0f, sign * s);
      found += wrong_quotient(infinity, sign * s) + wrong_quotient(-infinity, sign * s);
    }
  }
  for (i32 step = 0; step < 600; ++step) {
    const i32 high = step < 300 ? step : (1 << 22) - (step - 300) * (step - 300), low = -(step * 7 % 300);
    for (i32 sign = -1; sign <= 1; sign += 2) {
      const f32 s = sign * __uint_as_float(0x3f800000u | mantissa);
      const Steps<f32> steps(s, low, high);
      found += !(steps.fast && inside(steps.first, s, low, high) && inside(steps.last, s, low, high));
      found += inside(beyond(steps.first), s, low, high) || inside(beyond(steps.last), s, low, high);
      found += steps.cut_quotient(sign * 3e38f) != high || steps.cut_quotient(-sign * 3e38f) != low;
    }
  }
  if (found) atomicAdd(wrong, u64(found));
}
"""


def main() -> int:
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    compiled = compile_cubin(SOURCE, "prove_division.cu", ["prove", "prove_steps"], arch)
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    kernel = module.get_function("prove")
    wrong = cupy.zeros(1, cupy.uint64)
    start, step = time.perf_counter(), 1 << 19
    for first in range(0, 1 << 23, step):
        kernel((step,), (1024,), (wrong, cupy.uint32(first)))
    module.get_function("prove_steps")((1 << 15,), (256,), (wrong,))
    failures = int(wrong.get()[0])
    record = {
        "what": "RN(q0 + RN(x - s q0) y), y = RN(1/s), q0 = RN(x y), is the correctly rounded x / s in f32, "
        "of 0 and infinities too; "
        "inverse(s) is RN(1/s); the thresholds and cuts of Steps are exact",
        "pairs": 1 << 46,
        "wrong": failures,
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "seconds": round(time.perf_counter() - start, 1),
        "quotient_cuh_bytes": len(headers()["quotient.cuh"]),
    }
    text = json.dumps(record, indent=2) + "\n"
    print(text)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
