"""How long a call takes, on a GPU or a CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

# How a module is called: as it is, compiled, and compiled to be one CUDA graph, which costs the host next to nothing.
WAYS = {
    "eager": lambda module: module,
    "compiled": lambda module: torch.compile(module, dynamic=False),
    "graph": lambda module: torch.compile(module, dynamic=False, mode="reduce-overhead"),
}


def milliseconds(call: Callable[[], object], device: str, least: float = 0.15) -> float:
    """The median over calls for `least` seconds, 5 calls at least, after two that are not counted.

    On a GPU each is the time from its first kernel's start to its last one's end, as events say, with what the host
    keeps it waiting for.
    """
    for _ in range(2):
        call()
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize()
    times, begun = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begun < least:
        if cuda:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call()
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last))
        else:
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)
