"""Launches that begin before the kernel in front of them has ended: programmatic dependent launch.

Their blocks are placed and their parameters read while the kernel in front still runs; they wait for its end, and for
what it wrote, in `griddepcontrol.wait` (dependent_launch.cuh). That saves most of the time between two kernels of a
stream. CuPy has no call for it, so the driver is called through ctypes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from functools import cache, partial

from skuda.launch.kernel import _DRIVER_LIBRARY, Loaded, _cupy_cuda, compute_capability, in_context

_FIRST_ARCH = 90
_FIRST_DRIVER = 12040  # whose graphs capture such launches
_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_CONFIG = struct.Struct("7I4xQQI4x")  # CUlaunchConfig: grid, block, shared memory, stream, attributes and their count
_ATTRIBUTE = struct.Struct("i4xi60x")  # CUlaunchAttribute: which, and its value
_MOST_CONFIGS = 64  # of a kernel


def launch_of(loaded: Loaded, of_few: bool = False, shared: int = 0) -> Callable[[int, int, int, int], None]:
    """How to launch a kernel after the one that a stream was given last: `loaded.launch`, or the same earlier.

    Args:
        of_few: as of `Launch`: on the default stream, `loaded.launch`, which takes the host less time.
        shared: bytes of shared memory a block, beside what the kernel declares.
    """
    if not _known() or int(compute_capability(loaded.device).removeprefix("sm_")) < _FIRST_ARCH:
        return partial(loaded.launch, shared=shared) if shared else loaded.launch
    found = _DependentLaunch(loaded, shared)
    return found.launch_of_few if of_few else found.launch


class _DependentLaunch:
    """A kernel that waits for the one in front of it by itself."""

    def __init__(self, loaded: Loaded, shared: int) -> None:
        self._loaded, self._shared = loaded, shared
        self._plain = partial(loaded.launch, shared=shared) if shared else loaded.launch
        self._call = _driver().cuLaunchKernelEx
        self._attribute = ctypes.create_string_buffer(_ATTRIBUTE.pack(_SERIALIZATION, 1), _ATTRIBUTE.size)
        self._attributes = ctypes.addressof(self._attribute)
        self._configs: dict[tuple[int, int, int], bytes] = {}

    def launch(self, grid: int, block: int, stream: int, parameters: int) -> None:
        """As `Loaded.launch`."""
        loaded = self._loaded
        config = self._configs.get((grid, block, stream)) or self._config(grid, block, stream)
        status = in_context(loaded, self._call, config, loaded.function, parameters, None)
        if status:
            raise _cupy_cuda().driver.CUDADriverError(status)

    def launch_of_few(self, grid: int, block: int, stream: int, parameters: int) -> None:
        """The same but on the default stream."""
        (self.launch if stream else self._plain)(grid, block, stream, parameters)

    def _config(self, grid: int, block: int, stream: int) -> bytes:
        """A CUlaunchConfig. Calls on one stream find it again; streams come and go."""
        if len(self._configs) >= _MOST_CONFIGS:
            self._configs.clear()
        made = _CONFIG.pack(grid, 1, 1, block, 1, 1, self._shared, stream, self._attributes, 1)
        self._configs[grid, block, stream] = made
        return made


@cache
def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL(_DRIVER_LIBRARY)
    driver.cuLaunchKernelEx.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return driver


@cache
def _known() -> bool:
    """Whether there is a driver that is recent enough."""
    version = ctypes.c_int()
    try:
        _driver()
    except (OSError, AttributeError):  # none, or one of before CUDA 11.8
        return False
    return not _driver().cuDriverGetVersion(ctypes.byref(version)) and version.value >= _FIRST_DRIVER
