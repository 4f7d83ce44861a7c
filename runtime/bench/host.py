"""What one call costs the host: a tiny tensor, so that the GPU is never what is waited for.

Each batch enqueues calls and is timed without the synchronisation that follows; callers take turns batch by
batch.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy

import skuda
from skuda.bench.problem import WEIGHT
from skuda.bench.targets import C_LOOP, COLD, OURS, THEIRS, TORCH, WARM
from skuda.generated import LerpArgs, LerpDescriptor, LerpPlan

BATCH, ROUNDS = 100, 60
_PROCESSES = 5
# The kernel takes a struct of as many bytes as lerp's, and does nothing with it.
_SOURCE = """
#include <cuda_runtime.h>
#include <chrono>
struct Slots { long long word[12]; };
__global__ void touch(Slots s) { if (s.word[0] == 1) *(long long*)s.word[1] = 1; }
extern "C" double launches(void* stream, int n) {
  Slots s = {};
  auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < n; ++k) touch<<<1, 128, 0, (cudaStream_t)stream>>>(s);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
"""

# CuPy has made the device's context before the clock starts. skuda's modules are bytecode, as in an installed package,
# also where this checkout has none: Python looks for it in the folder that is given.
_FIRST_CALL = """
import sys, time, cupy
a = cupy.zeros(8, cupy.float32); b = cupy.ones(8, cupy.float32); cupy.cuda.Device().synchronize()
sys.pycache_prefix, sys.dont_write_bytecode = sys.argv[1], False
start = time.perf_counter()
import skuda
lerp = skuda.lerp
imported = time.perf_counter()
lerp(a, b, 0.5); cupy.cuda.Device().synchronize()
print((time.perf_counter() - start) * 1e3, (imported - start) * 1e3)
"""


def measure() -> dict[str, Any]:
    """Microseconds a call by caller, milliseconds of first calls, and why a caller is missing."""
    missing: dict[str, str] = {}
    callers = {**_c_loop(missing), **_ours(), **_torch(missing)}
    for batch in callers.values():
        batch()
        cupy.cuda.runtime.deviceSynchronize()
    times: dict[str, list[float]] = {name: [] for name in callers}
    for _ in range(ROUNDS):
        for name, batch in callers.items():
            times[name].append(batch() / BATCH * 1e6)
            cupy.cuda.runtime.deviceSynchronize()
    return {
        "calls": BATCH * ROUNDS,
        "us": {name: round(statistics.median(each), 3) for name, each in times.items()},
        **_first_calls(),
        "missing": missing,
    }


def _loop(call: Callable[[], object]) -> Callable[[], float]:
    def batch() -> float:
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        return time.perf_counter() - start

    return batch


def _ours() -> dict[str, Callable[[], float]]:
    a, b = cupy.random.random(8, dtype=cupy.float32), cupy.random.random(8, dtype=cupy.float32)
    out = cupy.empty_like(a)
    plan = LerpPlan.select(LerpDescriptor(shape=8))
    args = LerpArgs(a=a, b=b, weight=WEIGHT, output=out)
    return {
        "plan.run, prebuilt args": _loop(lambda: plan.run(args)),
        "plan.run, fresh args": _loop(lambda: plan.run(LerpArgs(a=a, b=b, weight=WEIGHT, output=out))),
        "skuda.lerp(out=), CuPy": _loop(lambda: skuda.lerp(a, b, WEIGHT, out=out)),
        "skuda.lerp, CuPy": _loop(lambda: skuda.lerp(a, b, WEIGHT)),
    }


def _torch(missing: dict[str, str]) -> dict[str, Callable[[], float]]:
    try:
        import torch
    except ImportError:
        missing[TORCH] = "no torch"
        return {}
    if not torch.cuda.is_available():
        missing[TORCH] = "torch has no CUDA"
        return {}
    from skuda.bench.host_torch import pairs

    a, b = torch.rand(8, device="cuda"), torch.rand(8, device="cuda")
    out = torch.empty_like(a)
    scale, zero_point = 0.02, 3
    beside: dict[str, Callable[[], float]] = {}
    for name, (theirs, ours) in pairs().items():
        beside |= {THEIRS.format(name): _loop(theirs), OURS.format(name): _loop(ours)}
    return {
        **beside,
        "skuda.lerp(out=), torch": _loop(lambda: skuda.lerp(a, b, WEIGHT, out=out)),
        "skuda.lerp, torch": _loop(lambda: skuda.lerp(a, b, WEIGHT)),
        TORCH: _loop(lambda: torch.lerp(a, b, WEIGHT, out=out)),
        "torch.lerp": _loop(lambda: torch.lerp(a, b, WEIGHT)),
        "skuda.fake_quantize_per_tensor, torch": _loop(lambda: skuda.fake_quantize_per_tensor(a, scale, zero_point)),
        "torch.fake_quantize_per_tensor_affine": _loop(
            lambda: torch.fake_quantize_per_tensor_affine(a, scale, zero_point, -128, 127)
        ),
    }


def _c_loop(missing: dict[str, str]) -> dict[str, Callable[[], float]]:
    """The launch loop in C, compiled here; it needs nvcc."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        missing[C_LOOP] = "no nvcc"
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "loop.cu", Path(folder) / "loop.so"
        source.write_text(_SOURCE)
        command = [nvcc, "-O2", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o", library, source]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            missing[C_LOOP] = f"nvcc failed: {done.stderr.strip()[:200]}"
            return {}
        launches = ctypes.CDLL(str(library)).launches
    launches.restype, launches.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_int]
    return {C_LOOP: lambda: launches(None, BATCH)}


def _first_calls() -> dict[str, dict[str, float]]:
    """Medians over new processes that have imported CuPy: importing skuda, selecting, loading, one launch."""
    times: dict[str, list[list[float]]] = {COLD: [], WARM: []}
    with tempfile.TemporaryDirectory() as bytecode:
        _first_call(bytecode, bytecode)
        for _ in range(_PROCESSES):
            with tempfile.TemporaryDirectory() as cache:
                for each in times.values():  # the cold one fills the cache of the warm one
                    each.append(_first_call(bytecode, cache))
    whole, imports = (
        {name: round(statistics.median(each[which] for each in processes), 1) for name, processes in times.items()}
        for which in (0, 1)
    )
    return {"first_call_ms": whole, "first_call_import_ms": imports}


def _first_call(bytecode: str, cache: str) -> list[float]:
    """Milliseconds of the first call in a new process, import included; of the import alone."""
    environment = {**os.environ, "SKUDA_CACHE_DIR": cache}
    command = [sys.executable, "-c", _FIRST_CALL, bytecode]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [float(each) for each in done.stdout.split()]
