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

from .cache import cached_cubin
from .errors import MissingDependency

_WORD = 8  # bytes of one parameter slot
_DRIVER_LIBRARY = "nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1"


class Parameters:
    """The arguments of a launch, laid out for the driver once and for all: ONE struct of 8-byte slots.

    The driver copies them during the launch, so one object serves any number of launches, from any thread.

    Args:
        slots: the struct's members in order; an int (a pointer too) becomes int64 or uint64, a float double.

    Attributes:
        address: where the driver finds its `void* kernelParams[1]`.

    Raises:
        struct.error: an int fits neither int64 nor uint64, or a slot is no number.
    """

    __slots__ = ("_memory", "address")

    def __init__(self, slots: Sequence[int | float]) -> None:
        pack_into, memory_of, offset = _layout(tuple(map(type, slots)))
        # The struct, then the array of one pointer to it: one piece of memory, kept alive by one reference.
        self._memory = memory = memory_of()
        base = ctypes.addressof(memory)
        try:
            pack_into(memory, 0, *slots, base)
        except struct.error:  # an unsigned value of the upper half
            pack_into(memory, 0, *map(_signed, slots), base)
        self.address = base + offset


@cache
def _layout(types: tuple[type, ...]) -> tuple[Callable[..., None], type[ctypes.Array], int]:
    """How slots of these Python types are packed. There are few such signatures; each is worked out once."""
    formats = "".join("q" if hasattr(each, "__index__") else "d" for each in types)
    packer = struct.Struct(f"={formats}Q")
    return packer.pack_into, ctypes.c_uint64 * (len(types) + 1), len(types) * _WORD


def _signed(slot: int | float) -> int | float:
    """The int64 of a uint64's bits."""
    if hasattr(slot, "__index__") and 1 << 63 <= int(slot) < 1 << 64:
        return int(slot) - (1 << 64)
    return slot


class Loaded:
    """A kernel in one device's primary context.

    Attributes:
        device: the device's index.
        registers: per thread.
        shared_bytes: static shared memory per block.
        local_bytes: per thread; what it needs beyond its registers.
    """

    def __init__(self, device: int, cubin: bytes, lowered: str) -> None:
        """Load the machine code; the device has to be current."""
        driver = _cupy_cuda().driver
        self.device = device
        self._module = driver.moduleLoadData(cubin)
        self._function = driver.moduleGetFunction(self._module, lowered)
        self._context = driver.ctxGetCurrent()
        self._current_context = driver.ctxGetCurrent
        self._set_context = driver.ctxSetCurrent
        self._launch_kernel = driver.launchKernel
        attribute = driver.funcGetAttribute
        self.registers = attribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, self._function)
        self.shared_bytes = attribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self._function)
        self.local_bytes = attribute(driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, self._function)

    def launch(self, grid: int, block: int, stream: int, parameters: Parameters) -> None:
        """Enqueue the kernel. Nothing here waits for the device, so a CUDA graph can capture it.

        Args:
            grid: blocks, along x.
            block: threads a block, along x.
            stream: a CUstream of this device, as an integer; 0 is the legacy default stream.
            parameters: the kernel's one argument.
        """
        previous = self._current_context()
        elsewhere = previous != self._context
        if elsewhere:
            self._set_context(self._context)
        try:
            self._launch_kernel(self._function, grid, 1, 1, block, 1, 1, 0, stream, parameters.address, 0)
        finally:
            if elsewhere and previous:  # 0: this thread had not used CUDA yet, there is nothing to go back to
                self._set_context(previous)


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
def _cupy_cuda():
    """The module `cupy.cuda` (a failure is not remembered)."""
    try:
        import cupy.cuda
    except ImportError as error:
        raise MissingDependency(
            f"running on a GPU needs CuPy: pip install 'skuda[cuda13]' ({type(error).__name__}: {error})"
        ) from error
    return cupy.cuda
