"""Kernels on the device: found or compiled, loaded once a device, launched.

The driver is reached through CuPy: whoever has arrays on a GPU has mostly imported it already, and its
wrapper of cuLaunchKernel is a plain C call. It is imported here when the first kernel is loaded.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from skuda.errors import MissingDependency
from skuda.launch.cubin_cache import cached_cubin
from skuda.schedules.variant import CLUSTER_ARCH

_WORD = 8  # bytes of one parameter slot
_address_of = ctypes.addressof
_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14  # the driver's CU_FUNC_ATTRIBUTE_..., which not every CuPy names
_DRIVER_LIBRARY = "nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1"


class Slots:
    """A kernel's one argument, a struct of 8-byte slots, of which most hold the same at every launch.

    Args:
        slots: the struct's members in order: an int (a pointer too) becomes int64 or uint64, a float double;
            the types `int` and `float` stand for members that each launch fills in.

    Attributes:
        blank: what a launch copies, fills in and gives to `pack`.
        positions: where in `blank` the members to fill in are, in order.
        words: at which 8-byte word of the struct the member at each position is.

    Raises:
        struct.error: an int fits neither int64 nor uint64, or a slot is no number.
    """

    __slots__ = ("_memory_of", "_offset", "_pack_into", "blank", "positions", "words")

    def __init__(self, slots: Sequence[int | float | type]) -> None:
        formats = ["="]
        self.blank: list[Any] = []
        self.positions: list[int] = []
        self.words: dict[int, int] = {}
        word = 0
        for varies, run in groupby(slots, lambda slot: slot is int or slot is float):
            if varies:
                for slot in run:
                    formats.append("q" if slot is int else "d")
                    self.positions.append(len(self.blank))
                    self.words[len(self.blank)] = word
                    word += 1
                    self.blank.append(None)
            else:
                same = b"".join(map(_packed, run))
                word += len(same) // _WORD
                formats.append(f"{len(same)}s")
                self.blank.append(same)
        self.blank.append(None)  # the address of the struct
        self._pack_into = struct.Struct("".join(formats) + "Q").pack_into
        self._memory_of = ctypes.c_uint64 * (len(slots) + 1)
        self._offset = len(slots) * _WORD

    def pack(self, filled: list[Any]) -> tuple[ctypes.Array, int]:
        """The struct as the driver wants it, for any number of launches: each copies it.

        Args:
            filled: a copy of `blank` with an int or float in each of `positions`; it is written to.

        Returns:
            The memory, and the address in it of the driver's `void* kernelParams[1]`, good while it lives.

        Raises:
            struct.error: a number does not fit its slot.
        """
        # The struct, then the array of one pointer to it: one piece of memory, kept alive by one reference.
        memory = self._memory_of()
        filled[-1] = base = _address_of(memory)
        self._pack_into(memory, 0, *filled)
        return memory, base + self._offset


def _packed(slot: int | float) -> bytes:
    if not hasattr(slot, "__index__"):
        return struct.pack("=d", slot)
    return struct.pack("=Q" if slot >= 1 << 63 else "=q", slot)


class Loaded:
    """A kernel in one device's primary context.

    Attributes:
        device: the device's index.
        registers: per thread.
        shared_bytes: static shared memory per block.
        local_bytes: per thread; what it needs beyond its registers.
        function, context: the driver's handles.
        current_context, set_context, launch_kernel: the driver's functions, for whoever cannot afford `launch`.
    """

    def __init__(self, device: int, cubin: bytes, lowered: str) -> None:
        """Load the machine code; the device has to be current."""
        driver = _cupy_cuda().driver
        self.device = device
        self._module = driver.moduleLoadData(cubin)
        self.function = driver.moduleGetFunction(self._module, lowered)
        self.context = driver.ctxGetCurrent()
        self.current_context = driver.ctxGetCurrent
        self.set_context = driver.ctxSetCurrent
        self.launch_kernel = driver.launchKernel
        self._shared = 0
        attribute = driver.funcGetAttribute
        self.registers = attribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, self.function)
        self.shared_bytes = attribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self.function)
        self.local_bytes = attribute(driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, self.function)

    def allow_shared(self, size: int) -> None:
        """Prepares the kernel of a cluster, of any number of blocks, for launches with so many bytes of shared memory a
        block, beside what it declares."""
        if size > self._shared:
            driver = _cupy_cuda().driver
            driver.funcSetAttribute(self.function, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size)
            driver.funcSetAttribute(self.function, driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
            driver.funcSetAttribute(self.function, _NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            self._shared = size

    def launch(self, grid: int, block: int, stream: int, parameters: int, shared: int = 0) -> None:
        """Enqueue the kernel. Nothing here waits for the device, so a CUDA graph can capture it.

        Args:
            grid: blocks, along x.
            block: threads a block, along x.
            stream: a CUstream of this device, as an integer; 0 is the legacy default stream.
            parameters: address of the driver's `void* kernelParams[1]`, as `Slots.pack` gives it.
            shared: bytes of shared memory a block, beside what the kernel declares; `allow_shared` comes first.
        """
        in_context(self, self.launch_kernel, self.function, grid, 1, 1, block, 1, 1, shared, stream, parameters, 0)


def in_context(loaded: Loaded, call: Callable[..., Any], *arguments) -> Any:
    """What a call of the driver gives in a kernel's context; afterwards the thread has its own again."""
    previous = loaded.current_context()
    if previous == loaded.context:
        return call(*arguments)
    loaded.set_context(loaded.context)
    try:
        return call(*arguments)
    finally:
        if previous:  # 0: this thread had not used CUDA yet, there is nothing to go back to
            loaded.set_context(previous)


class Kernel:
    """One kernel of one source, loaded on each device when first wanted there. Safe to share between threads.

    Args:
        source: gives the text of the .cu file; called only when a device is new.
        name: what to call the source in messages.
        entry: the NVRTC name expression of the kernel.
    """

    def __init__(self, source: Callable[[], str], name: str, entry: str) -> None:
        self._source = source
        self._name = name
        self._entry = entry
        self._loaded: dict[int, Loaded] = {}
        self._lock = threading.Lock()

    def on(self, device: int) -> Loaded:
        """The kernel ready to launch on a device.

        Raises:
            CompileError: NVRTC refused the source.
            Unsupported: the installed NVRTC does not know the device's architecture.
            MissingDependency: CuPy, or NVRTC for a kernel that is not in the cache, is not installed.
        """
        loaded = self._loaded.get(device)
        if loaded is None:
            with self._lock:
                loaded = self._loaded.get(device)
                if loaded is None:
                    loaded = self._loaded[device] = self._load(device)
        return loaded

    def _load(self, device: int) -> Loaded:
        driver, runtime = _cupy_cuda().driver, _cupy_cuda().runtime
        arch = compute_capability(device)
        source = self._source()
        previous = runtime.getDevice()
        runtime.setDevice(device)
        try:
            try:
                return Loaded(device, *cached_cubin(source, self._name, self._entry, arch))
            except driver.CUDADriverError:
                # The entry was written where the driver is newer, in a home folder that machines share.
                try:
                    return Loaded(device, *cached_cubin(source, self._name, self._entry, arch, fresh=True))
                except driver.CUDADriverError as error:
                    error.add_note(f"loading {self._entry} of {self._name} for {arch} on device {device}")
                    raise
        finally:
            if previous != device:
                runtime.setDevice(previous)


@cache
def cuda_available() -> bool:
    """Whether there are a driver, a device and CuPy. Never raises; imports CuPy only if there is a driver."""
    try:
        ctypes.CDLL(_DRIVER_LIBRARY)
        return device_count() > 0
    except Exception:  # whatever a broken installation raises, its meaning here is no
        return False


def device_count() -> int:
    """How many GPUs this process sees.

    Raises:
        MissingDependency: CuPy is not installed.
        RuntimeError: CuPy's, when there is no usable driver.
    """
    return _cupy_cuda().runtime.getDeviceCount()


@cache
def compute_capability(device: int) -> str:
    """A device's architecture as the compiler spells it, such as `sm_90`."""
    return f"sm_{_cupy_cuda().Device(device).compute_capability}"


@cache
def multiprocessors() -> int:
    """Multiprocessors of the devices of this process: of the one that has fewest.

    Raises:
        MissingDependency: CuPy is not installed.
    """
    runtime = _cupy_cuda().runtime
    each = range(device_count())
    return min(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device) for device in each)


@cache
def cluster_shared() -> int:
    """Bytes of shared memory that a block may have on each device of this process; 0 if some have no clusters.

    Raises:
        MissingDependency: CuPy is not installed.
    """
    runtime = _cupy_cuda().runtime
    devices = range(device_count())
    if any(int(compute_capability(device).removeprefix("sm_")) < CLUSTER_ARCH for device in devices):
        return 0
    return min(runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, each) for each in devices)


@cache
def _cupy_cuda():
    """The module `cupy.cuda` (a failure is not remembered)."""
    try:
        import cupy.cuda
    except ImportError as error:
        raise MissingDependency(
            f"running on a GPU needs CuPy: pip install 'skuda[cuda13]' ({type(error).__name__}: {error})"
        ) from error
    return cupy.cuda
