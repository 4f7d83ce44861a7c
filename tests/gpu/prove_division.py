"""Exhausts the shared-divisor division of runtime/cuda/quotient.cuh in f32: all 2^46 pairs of mantissas.

    python tests/gpu/prove_division.py [evidence/division_f32.json]

Within the range where nothing over- or underflows, scaling x or s by a power of two scales every step, so the
2^23 mantissas of x and of s in [1, 2) stand for all values. A quotient q is the correctly rounded one when the
exact remainder x - s q is at most s times half a unit in the last place of q (a tie cannot occur); the check uses
no division. Takes about half a minute on an H200.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import cupy

from skuda.compile import compile_cubin, headers

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
"""


def main() -> int:
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    compiled = compile_cubin(SOURCE, "prove_division.cu", ["prove"], arch)
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    kernel = module.get_function("prove")
    wrong = cupy.zeros(1, cupy.uint64)
    start, step = time.perf_counter(), 1 << 19
    for first in range(0, 1 << 23, step):
        kernel((step,), (1024,), (wrong, cupy.uint32(first)))
    failures = int(wrong.get()[0])
    record = {
        "what": "RN(q0 + RN(x - s q0) y), y = RN(1/s), q0 = RN(x y), is the correctly rounded x / s in f32",
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
