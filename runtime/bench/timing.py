"""How a kernel is timed: CUDA events, a flushed L2, candidates in turn, the median.

Everything is enqueued on the legacy default stream, where CuPy, torch and Triton work unless told otherwise. What takes
a few microseconds is timed as a graph of many calls: between two events a copy of 1.5 us reads 5.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

FLUSH_BYTES = 256 << 20  # written before each timed run, so that no candidate finds its inputs in the L2
_FLUSHES = 2  # at least, of every candidate: one copy of 16 rows took 4.99 us after one flush and 4.51 us after two
_WARM_UPS = 2
_SLOW = 1e-3  # seconds; what takes longer is timed in every third round only
_FLUSH_SECONDS = 50e-6  # less than any GPU needs for a flush


def _torch_stream(handle: int):
    """Within, torch works on a stream, if there is torch."""
    try:
        import torch
    except ImportError:
        return nullcontext()
    return torch.cuda.stream(torch.cuda.ExternalStream(handle))


@dataclass(frozen=True)
class Timed:
    """What one candidate took.

    Attributes:
        us: median of the runs, in microseconds.
        runs: how many there were.
    """

    us: float
    runs: int


class Timer:
    """Times calls that enqueue work on the current device.

    Args:
        rounds: timed runs of each candidate.
    """

    def __init__(self, rounds: int):
        import cupy

        self._cuda = cupy.cuda
        self._rounds = rounds
        self._memory = cupy.empty(FLUSH_BYTES, dtype=cupy.uint8)
        self._events: list = []

    def _flush(self, times: int) -> None:
        for _ in range(times):
            self._cuda.runtime.memsetAsync(self._memory.data.ptr, 1, FLUSH_BYTES, 0)

    def _event(self, index: int):
        while len(self._events) <= index:
            self._events.append(self._cuda.Event())
        return self._events[index]

    def measure(self, candidates: Mapping[str, Callable[[], object]], calls: int = 1) -> dict[str, Timed]:
        """Times each candidate `rounds` times; each round runs all of them, every other round in reverse.

        A candidate that takes longer than 1 ms is run in every third round only.

        Args:
            candidates: by name.
            calls: that a candidate makes, if it is a graph of several.
        """
        plans = {name: self._plan(call) for name, call in candidates.items()}
        pairs: dict[str, list] = {name: [] for name in candidates}
        used = 0
        for index in range(self._rounds):
            names = list(candidates) if index % 2 == 0 else list(reversed(candidates))
            for name in names:
                flushes, every = plans[name]
                if index % every:
                    continue
                start, end = self._event(used), self._event(used + 1)
                used += 2
                self._flush(flushes)
                start.record()
                candidates[name]()
                end.record()
                pairs[name].append((start, end))
        self._cuda.runtime.deviceSynchronize()
        elapsed = self._cuda.get_elapsed_time
        times = {name: [elapsed(*pair) * 1e3 for pair in timed] for name, timed in pairs.items()}
        return {name: Timed(statistics.median(each) / calls, len(each)) for name, each in times.items()}

    def graph_of(self, call: Callable[[], object], calls: int) -> Callable[[], object]:
        """What enqueues several calls at once; all but the first find their inputs in the L2."""
        stream = self._cuda.Stream(non_blocking=True)
        with stream, _torch_stream(stream.ptr):
            call()  # what it allocates, the capture finds again
            stream.synchronize()
            stream.begin_capture()
            try:
                for _ in range(calls):
                    call()
            finally:
                graph = stream.end_capture()
        return graph.launch

    def _plan(self, call: Callable[[], object]) -> tuple[int, int]:
        """How many flushes keep the GPU busy until a call is enqueued whole, and in which rounds to time it.

        A call of many kernels may cost the host more than one flush takes; the GPU would wait while timed.
        """
        for _ in range(_WARM_UPS):
            call()
        self._cuda.runtime.deviceSynchronize()
        begun = time.perf_counter()
        call()
        enqueued = time.perf_counter() - begun
        self._cuda.runtime.deviceSynchronize()
        took = time.perf_counter() - begun
        return max(_FLUSHES, 1 + int(1.5 * enqueued / _FLUSH_SECONDS)), 3 if took > _SLOW else 1
