"""The GPUs and their driver, asked directly: this must work where CuPy is missing or broken."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_WINDOWS = hasattr(ctypes, "WinDLL")
_DRIVER = "nvcuda.dll" if _WINDOWS else "libcuda.so.1"
_MANAGEMENT = "nvml.dll" if _WINDOWS else "libnvidia-ml.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


@dataclass(frozen=True)
class Gpus:
    """What the driver says.

    Attributes:
        devices: name and architecture of each GPU, such as ("NVIDIA H200", "sm_90").
        driver: version of the driver, such as "580.65.06"; None if it cannot be asked.
        cuda: the newest CUDA that the driver runs, such as "13.0"; None without a driver.
        problem: why there are no devices; None if there are.
    """

    devices: tuple[tuple[str, str], ...]
    driver: str | None
    cuda: str | None
    problem: str | None


def find() -> Gpus:
    """Asks the driver. Never raises."""
    try:
        library = ctypes.CDLL(_DRIVER)
    except OSError:
        return Gpus((), None, None, "no NVIDIA driver")
    version = ctypes.c_int()
    cuda = None
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    status = library.cuInit(0)
    count = ctypes.c_int()
    status = status or library.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        return Gpus((), _driver_version(), cuda, f"the driver reports CUDA error {status}")
    devices = tuple(_device(library, index) for index in range(count.value))
    return Gpus(devices, _driver_version(), cuda, None if devices else "the driver sees none")


def _device(library: ctypes.CDLL, index: int) -> tuple[str, str]:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    library.cuDeviceGet(ctypes.byref(device), index)
    library.cuDeviceGetName(name, len(name), device)
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        numbers.append(value.value)
    return name.value.decode(errors="replace"), f"sm_{numbers[0]}{numbers[1]}"


def _driver_version() -> str | None:
    try:
        library = ctypes.CDLL(_MANAGEMENT)
    except OSError:
        return None
    text = ctypes.create_string_buffer(80)
    if library.nvmlInit_v2() != 0:
        return None
    try:
        return text.value.decode() if library.nvmlSystemGetDriverVersion(text, len(text)) == 0 else None
    finally:
        library.nvmlShutdown()
