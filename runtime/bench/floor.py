"""What the hardware does at best: a copy of as many bytes, and for reductions a kernel that only reads them."""

from __future__ import annotations

from collections.abc import Callable

import cupy

_BLOCK = 1 << 24
_DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice
_THREADS, _LOADS = 256, 2  # of a block; of 16 bytes each, that a thread has under way at once
_VECTOR = 16

# Nothing is stored for random data, but the compiler cannot know.
_SOURCE = """
extern "C" __global__ void __launch_bounds__(%(threads)d) read(const uint4* __restrict__ source, long long count,
                                                                 unsigned* target) {
  long long at = (long long)blockIdx.x * (%(threads)d * %(loads)d) + threadIdx.x;
  uint4 found[%(loads)d];
#pragma unroll
  for (int k = 0; k < %(loads)d; ++k, at += %(threads)d) found[k] = at < count ? source[at] : uint4{};
  unsigned all = 0;
#pragma unroll
  for (int k = 0; k < %(loads)d; ++k) all |= found[k].x & found[k].y & ~found[k].z & ~found[k].w;
  if (all == 0xffffffffu && target[0] == 1) target[threadIdx.x] = all;
}
"""


class _Random:
    """Random bytes that grow as they are asked for."""

    def __init__(self):
        self._block = cupy.random.randint(0, 256, _BLOCK, dtype=cupy.uint8)
        self.memory = self._block

    def reach(self, size: int) -> None:
        if size > self.memory.size:
            self.memory = None
            self.memory = cupy.empty(size, cupy.uint8)
            for start in range(0, size, _BLOCK):
                part = self.memory[start : start + _BLOCK]
                part[:] = self._block[: part.size]


class Copy:
    """The floor: a device copy of random bytes, which reads half of what a kernel moves and writes half."""

    def __init__(self):
        self._source = _Random()
        self._target = cupy.empty(_BLOCK, cupy.uint8)

    def of(self, moved: int) -> Callable[[], None]:
        """A call that enqueues the copy that moves this many bytes."""
        half = moved // 2
        if half > self._target.size:
            self._target = None
            self._source.reach(half)
            self._target = cupy.empty(half, cupy.uint8)
        target, source = self._target.data.ptr, self._source.memory.data.ptr

        def call() -> None:
            stream = cupy.cuda.get_current_stream().ptr
            cupy.cuda.runtime.memcpyAsync(target, source, half, _DEVICE_TO_DEVICE, stream)

        return call


class Read:
    """The floor of a reduction: a kernel that reads random bytes and keeps nothing.

    Reading is not always faster than copying as many bytes, half read and half written: much of what a copy writes
    still lies in the L2 when it ends, and either evicts what the flush before it wrote. On an H200, 134 MB take 42 us
    to read and 38 to copy, 268 MB 70 and 68, 537 MB 127 and 131. From 2 to 8 loads a thread and 128 to 1024 threads a
    block, nothing changes by more than 1 %.
    """

    def __init__(self, threads: int = _THREADS, loads: int = _LOADS):
        self._source = _Random()
        self._target = cupy.zeros(threads, cupy.uint32)
        self._threads, self._loads = threads, loads
        self._kernel = cupy.RawKernel(_SOURCE % {"threads": threads, "loads": loads}, "read")

    def of(self, moved: int) -> Callable[[], None]:
        """A call that enqueues the kernel on so many bytes, a last few less than a vector aside."""
        self._source.reach(moved)
        count = max(1, moved // _VECTOR)
        grid, block = (-(-count // (self._threads * self._loads)),), (self._threads,)
        arguments = (self._source.memory, cupy.int64(count), self._target)
        return lambda: self._kernel(grid, block, arguments)
