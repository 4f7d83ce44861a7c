"""Launching without a GPU: the parameters' bytes, and the calls to a driver that only writes them down."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from skuda.errors import MissingDependency
from skuda.launch import kernel
from skuda.launch.kernel import Kernel, Loaded, Slots, cluster_shared, compute_capability, cuda_available, device_count


def packed(slots: Slots, *numbers) -> tuple[ctypes.Array, int]:
    """The struct with its blanks filled in."""
    filled = slots.blank.copy()
    for position, number in zip(slots.positions, numbers, strict=True):
        filled[position] = number
    return slots.pack(filled)


def slots_at(address: int, count: int) -> bytes:
    """The struct as the driver reads it, through `void* kernelParams[1]`."""
    struct_address = ctypes.c_void_p.from_address(address).value
    return ctypes.string_at(struct_address, 8 * count)


@pytest.mark.parametrize(
    ("slots", "layout"),
    [
        ([0x7F00_1234_5678, -128, 127, 0.1], "<qqqd"),
        ([-(2**63), 2**63 - 1, -0.0, float("inf")], "<qqdd"),
        ([0.1, 2**64 - 1, -1, 2**63], "<dQqQ"),
        ([np.int64(-5), np.uint64(2**64 - 2), np.float32(0.1), np.float64(0.1), True], "<qQddq"),
        ([1.5], "<d"),
    ],
)
@pytest.mark.parametrize("blanks", [(), (0,), (-1,), "all"])
def test_slots_are_consecutive_words(slots, layout, blanks):
    """Whether a launch fills them in or not."""
    filled = {index % len(slots) for index in (range(len(slots)) if blanks == "all" else blanks)}
    if any(layout[1 + index] == "Q" for index in filled):
        filled = set()  # what is filled in are pointers and numbers, which int64 holds
    template = [
        (float if layout[1 + i] == "d" else int) if i in filled else slot for i, slot in enumerate(slots)
    ]
    memory, address = packed(Slots(template), *(slots[index] for index in sorted(filled)))
    assert slots_at(address, len(slots)) == struct.pack(layout, *slots)
    assert ctypes.addressof(memory) + 8 * len(slots) == address


def test_packed_slots_are_independent_and_outlive_their_numbers():
    slots = Slots([int, 7, float])
    every = [packed(slots, number, float(number)) for number in range(1000)]
    found = [struct.unpack("<qqd", slots_at(address, 3)) for _, address in every]
    assert found == [(n, 7, float(n)) for n in range(1000)]
    assert slots.blank[slots.positions[0]] is None


@pytest.mark.parametrize("slot", [2**64, -(2**63) - 1, "1", None])
def test_slots_refuse_what_fits_no_word(slot):
    with pytest.raises(struct.error):
        Slots([1, slot])
    with pytest.raises(struct.error):
        packed(Slots([1, int]), slot)


class DriverError(RuntimeError):
    pass


class Cuda:
    """`cupy.cuda` with two devices. A device's primary context is its index + 100; 0 is no context yet."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.context = 100
        self.refused: set[bytes] = set()
        self.launch_error: Exception | None = None
        self.driver = SimpleNamespace(
            CUDADriverError=DriverError,
            CU_FUNC_ATTRIBUTE_NUM_REGS=4,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1,
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3,
            ctxGetCurrent=lambda: self.context,
            ctxSetCurrent=self.set_context,
            moduleLoadData=self.load,
            moduleGetFunction=lambda module, name: (module, name),
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=9,
            funcGetAttribute=lambda attribute, function: attribute * 10,
            funcSetAttribute=lambda function, *attribute: self.calls.append(("set", self.context, *attribute)),
            launchKernel=self.launch,
        )
        self.runtime = SimpleNamespace(
            getDevice=lambda: max(self.context - 100, 0),
            setDevice=lambda device: self.set_context(device + 100),
            getDeviceCount=lambda: 2,
            cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
            deviceGetAttribute=lambda attribute, device: {97: (232_448, 101_376)}[attribute][device],
        )
        self.archs = "90", "120"

    def Device(self, device):
        return SimpleNamespace(compute_capability=self.archs[device])

    def set_context(self, context):
        self.context = context

    def load(self, cubin):
        self.calls.append(("load", self.context, cubin))
        if cubin in self.refused:
            raise DriverError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        return self.context

    def launch(self, *arguments):
        self.calls.append(("launch", self.context, *arguments))
        if self.launch_error:
            raise self.launch_error


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(kernel, "_cupy_cuda", lambda: fake)
    compute_capability.cache_clear()
    cluster_shared.cache_clear()
    yield fake
    compute_capability.cache_clear()
    cluster_shared.cache_clear()


@pytest.fixture
def cubins(monkeypatch):
    """Requests to the cache, which answers with the architecture (and whether it had to be made afresh)."""
    requests = []

    def cached_cubin(source, name, entry, arch, *, fresh=False):
        requests.append((source, name, entry, arch, fresh))
        return f"{arch} {fresh}".encode(), f"_Z_{entry}"

    monkeypatch.setattr(kernel, "cached_cubin", cached_cubin)
    return requests


def test_a_kernel_is_loaded_once_a_device_for_its_architecture(cuda, cubins):
    scale = Kernel(lambda: "source", "scale.cu", "scale<f32>")
    first, second = scale.on(0), scale.on(1)
    assert scale.on(0) is first
    assert scale.on(1) is second
    assert cubins == [
        ("source", "scale.cu", "scale<f32>", "sm_90", False),
        ("source", "scale.cu", "scale<f32>", "sm_120", False),
    ]
    assert cuda.calls == [("load", 100, b"sm_90 False"), ("load", 101, b"sm_120 False")]
    assert cuda.context == 100  # the caller's device is current again
    assert (first.device, first.registers, first.shared_bytes, first.local_bytes) == (0, 40, 10, 30)


def test_the_source_is_not_read_before_it_is_needed(cuda, cubins):
    reads = []
    scale = Kernel(lambda: reads.append("read") or "source", "scale.cu", "scale")
    assert reads == []
    scale.on(0)
    scale.on(0)
    assert reads == ["read"]


def test_threads_that_ask_at_once_share_one_load(cuda, cubins):
    def slow_source():
        time.sleep(0.05)
        return "source"

    scale = Kernel(slow_source, "scale.cu", "scale")
    barrier, answers = threading.Barrier(8), []

    def ask():
        barrier.wait()
        answers.append(scale.on(0))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert set(map(id, answers)) == {id(scale.on(0))}
    assert len(cubins) == 1


def test_a_failed_load_is_tried_again_at_the_next_call(cuda, cubins):
    sources = iter([OSError("gone"), "source"])

    def source():
        answer = next(sources)
        if isinstance(answer, OSError):
            raise answer
        return answer

    scale = Kernel(source, "scale.cu", "scale")
    with pytest.raises(OSError, match="gone"):
        scale.on(0)
    assert scale.on(0).registers == 40


def test_machine_code_that_the_driver_refuses_is_made_afresh(cuda, cubins):
    cuda.refused = {b"sm_90 False"}
    Kernel(lambda: "source", "scale.cu", "scale").on(0)
    assert [fresh for *_, fresh in cubins] == [False, True]


def test_a_refusal_of_fresh_machine_code_names_the_kernel_and_restores_the_device(cuda, cubins):
    cuda.refused = {b"sm_120 False", b"sm_120 True"}
    with pytest.raises(DriverError, match="NO_BINARY") as caught:
        Kernel(lambda: "source", "scale.cu", "scale<f32>").on(1)
    assert caught.value.__notes__ == ["loading scale<f32> of scale.cu for sm_120 on device 1"]
    assert cuda.context == 100


@pytest.mark.parametrize(("before", "after"), [(101, 101), (100, 100), (0, 101)])
def test_a_launch_runs_in_its_devices_context_and_gives_the_callers_back(cuda, before, after):
    cuda.context = 101
    loaded = Loaded(1, b"cubin", "_Z_scale")
    cuda.calls.clear()
    cuda.context = before
    _, address = packed(Slots([1, 2.0]))
    loaded.launch(7, 256, 0x5000, address)
    function = (101, "_Z_scale")
    assert cuda.calls == [("launch", 101, function, 7, 1, 1, 256, 1, 1, 0, 0x5000, address, 0)]
    assert cuda.context == after


def test_shared_memory_is_asked_for_once_for_the_largest_launch(cuda):
    loaded = Loaded(0, b"cubin", "_Z_scale")
    cuda.calls.clear()
    for size in (40_000, 30_000, 50_000):
        loaded.allow_shared(size)
    assert [call for call in cuda.calls if call[2] == 8] == [("set", 100, 8, 40_000), ("set", 100, 8, 50_000)]
    loaded.launch(7, 256, 0x5000, 0x6000, 50_000)
    assert cuda.calls[-1] == ("launch", 100, (100, "_Z_scale"), 7, 1, 1, 256, 1, 1, 50_000, 0x5000, 0x6000, 0)


@pytest.mark.parametrize(("archs", "size"), [(("90", "120"), 101_376), (("80", "90"), 0), (("120", "89"), 0)])
def test_clusters_are_of_what_all_devices_have(cuda, archs, size):
    cuda.archs = archs
    assert cluster_shared() == size


def test_a_launch_that_fails_gives_the_callers_context_back(cuda):
    cuda.context = 101
    loaded = Loaded(1, b"cubin", "_Z_scale")
    cuda.context = 100
    cuda.launch_error = DriverError("CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(DriverError):
        loaded.launch(0, 256, 0, packed(Slots([1]))[1])
    assert cuda.context == 100


@pytest.fixture
def availability_unknown():
    cuda_available.cache_clear()
    yield
    cuda_available.cache_clear()


@pytest.mark.parametrize(("count", "expected"), [(0, False), (1, True), (8, True)])
def test_cuda_needs_a_driver_and_a_device(monkeypatch, cuda, availability_unknown, count, expected):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    cuda.runtime.getDeviceCount = lambda: count
    assert cuda_available() is expected


def test_cuda_is_not_available_when_the_runtime_fails(monkeypatch, cuda, availability_unknown):
    def fail():
        raise RuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    cuda.runtime.getDeviceCount = fail
    assert cuda_available() is False


def test_without_a_driver_cupy_is_not_imported():
    code = (
        "import ctypes, sys\n"
        "class NoDriver(ctypes.CDLL):\n"
        "    def __init__(self, name, *rest, **options):\n"
        "        if 'cuda' in str(name): raise OSError(name)\n"
        "        super().__init__(name, *rest, **options)\n"
        "ctypes.CDLL = NoDriver\n"
        "import skuda.launch.kernel\n"
        "print(skuda.launch.kernel.cuda_available(), 'cupy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    "ask",
    [
        device_count,
        lambda: compute_capability(0),
        lambda: Kernel(lambda: "source", "scale.cu", "scale").on(0),
        lambda: Loaded(0, b"cubin", "_Z_scale"),
    ],
)
def test_a_missing_cupy_names_the_extra(monkeypatch, ask):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "cupy.cuda", None)
    kernel._cupy_cuda.cache_clear()
    compute_capability.cache_clear()
    with pytest.raises(MissingDependency, match=r"on a GPU needs CuPy: pip install 'skuda\[cuda13\]'"):
        ask()
