"""What calls cost on the CPU: kernels of its C++ compiler beside a copy, NumPy's reference and torch, on all cores.

Callers of a row take turns; each result is a new array, so that its pages are paid for by all of them.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

import skuda
from skuda.cpu import library, workers
from skuda.errors import Unsupported
from skuda.plans import plan, selection

ROUNDS = 9
SIDE = 4096  # rows, and elements of each
_PAUSE = 0.02  # seconds before a call: threads of OpenMP that wait for more work keep a processor busy for a while

Calls = tuple[torch.Tensor, Callable[[], object], Callable[[], object]]


def calls(side: int) -> dict[str, Calls]:
    """By name: what is copied for comparison, our call and torch's."""
    torch.manual_seed(0)
    x, y = torch.randn(side, side), torch.randn(side, side)
    weight, half, share, seed = torch.randn(side), x.bfloat16(), torch.rand(side, side), torch.tensor(0)
    shape, short, column = (side,), x.half(), x[:, :1].contiguous()
    small, column_half = (10 * x).to(torch.int8), column.bfloat16()

    def codes(values, inverse=1 / 0.02):
        return values.mul(inverse).round_().clamp_(-128, 127).to(torch.int8)

    return {
        "add f32": (x, lambda: skuda.add(x, y), lambda: x + y),
        "add f16": (short, lambda: skuda.add(short, short), lambda: short + short),
        "add i8": (small, lambda: skuda.add(small, small), lambda: small + small),
        "add f32, a value a row": (x, lambda: skuda.add(x, column), lambda: x + column),
        "add bf16, a value a row": (half, lambda: skuda.add(half, column_half), lambda: half + column_half),
        "exp f32": (x, lambda: skuda.exp(x), lambda: x.exp()),
        "sin f32": (x, lambda: skuda.sin(x), lambda: x.sin()),
        "log1p f32": (share, lambda: skuda.log1p(share), lambda: share.log1p()),
        "logit f32": (share, lambda: skuda.logit(share), lambda: share.logit()),
        "gelu f32": (x, lambda: skuda.gelu(x), lambda: functional.gelu(x)),
        "gelu bf16": (half, lambda: skuda.gelu(half), lambda: functional.gelu(half)),
        "silu_mul f32": (x, lambda: skuda.silu_mul(x, y), lambda: functional.silu(x) * y),
        "quantize_per_tensor f32": (x, lambda: skuda.quantize_per_tensor(x, 0.02), lambda: codes(x)),
        "gelu_quantize_per_tensor f32": (
            x, lambda: skuda.gelu_quantize_per_tensor(x, 0.02), lambda: codes(functional.gelu(x))
        ),
        "dynamic_quantize_per_token f32": (
            x, lambda: skuda.dynamic_quantize_per_token(x),
            lambda: codes(x, 127 / x.abs().amax(-1, keepdim=True))
        ),
        "cast f32 to e4m3": (x, lambda: skuda.cast(x, dtype="e4m3"), lambda: x.to(torch.float8_e4m3fn)),
        "dropout f32": (x, lambda: skuda.dropout(x, seed, seed, p=0.1), lambda: functional.dropout(x, 0.1)),
        "argmax f32": (x, lambda: skuda.argmax(x, axis=-1), lambda: x.argmax(-1)),
        "sum f32": (x, lambda: skuda.sum(x, axis=-1), lambda: x.sum(-1)),
        "sum of columns f32": (x, lambda: skuda.sum(x, axis=0), lambda: x.sum(0)),
        "softmax f32": (x, lambda: skuda.softmax(x), lambda: x.softmax(-1)),
        "softmax bf16": (half, lambda: skuda.softmax(half), lambda: half.softmax(-1)),
        "softmax of columns f32": (x, lambda: skuda.softmax(x, axis=0), lambda: x.softmax(0)),
        "rms_norm f32": (x, lambda: skuda.rms_norm(x, weight), lambda: functional.rms_norm(x, shape, weight)),
        "layer_norm f32": (
            x, lambda: skuda.layer_norm(x, weight, weight), lambda: functional.layer_norm(x, shape, weight, weight)
        ),
    }  # fmt: skip


def measure(side: int = SIDE, rounds: int = ROUNDS) -> dict[str, Any]:
    """Milliseconds of a call by caller: the median of some rounds.

    Raises:
        Unsupported: there is no C++ compiler.
    """
    if library.compiler() is None:
        raise Unsupported("skuda bench --cpu: kernels on the CPU need a C++ compiler (g++, or what CXX names)")
    torch.set_num_threads(workers.threads())
    rows = []
    for name, (copied, ours, theirs) in calls(side).items():
        callers = {"ours": ours, "torch": theirs, "copy": copied.clone}
        times: dict[str, list[float]] = {caller: [] for caller in callers}
        for turn in range(rounds + 1):
            for caller, call in callers.items():
                took = _milliseconds(call)
                if turn:  # the first one compiles
                    times[caller].append(took)
        rows.append({"name": name, **{caller: statistics.median(found) for caller, found in times.items()}})
        rows[-1]["reference"] = _by_reference(ours)
    machine = {"cpu": _cpu(), "threads": workers.threads(), "torch": torch.__version__, "compiler": library.version()}
    return {"machine": machine, "side": side, "rows": rows}


def text(result: dict[str, Any]) -> str:
    """A table of it."""
    machine = result["machine"]
    lines = [
        f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}, {machine['compiler']}; "
        f"{result['side']} x {result['side']}, milliseconds",
        f"{'':32} {'ours':>8} {'torch':>8} {'of torch':>9} {'copy':>8} {'reference':>10} {'of it':>7}",
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['name']:32} {row['ours']:8.2f} {row['torch']:8.2f} {row['ours'] / row['torch']:8.2f}x "
            f"{row['copy']:8.2f} {row['reference']:10.1f} {row['reference'] / row['ours']:6.0f}x"
        )
    return "\n".join(lines)


def _milliseconds(call: Callable[[], object]) -> float:
    time.sleep(_PAUSE)
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _by_reference(call: Callable[[], object]) -> float:
    least, plan.LEAST_ON_CPU = plan.LEAST_ON_CPU, 1 << 62
    selection.forget()
    try:
        return _milliseconds(call)
    finally:
        plan.LEAST_ON_CPU = least
        selection.forget()


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
