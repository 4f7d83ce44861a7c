"""`skuda quantize` on GPUs: the bytes of the CPU, with one process and with several."""

from __future__ import annotations

import cupy
import pytest
from quantize.sharded import content, sharded

from skuda.checkpoints import load, quantize, weights
from skuda.checkpoints.scheme import ELEMENTS, GRANULARITIES


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_a_gpu_writes_the_bytes_of_the_cpu(tmp_path, monkeypatch, granularity, element):
    sharded(tmp_path / "m")
    scheme = f"{granularity}:{element}"
    for device in ("cpu", "cuda"):
        quantize(tmp_path / "m", tmp_path / device, scheme, group_size=4, device=device)
    assert content(tmp_path / "cpu") == content(tmp_path / "cuda")
    monkeypatch.setattr(weights, "BLOCK", 20)
    quantize(tmp_path / "m", tmp_path / "blocks", scheme, group_size=4, device="cuda")
    assert content(tmp_path / "blocks") == content(tmp_path / "cuda")
    with load(tmp_path / "cuda", "cuda") as there, load(tmp_path / "cpu", "cpu") as here:
        for name in here:
            assert there[name].tobytes() == here[name].tobytes()


def test_processes_with_a_gpu_each_write_the_same_bytes(tmp_path):
    sharded(tmp_path / "m", 6)
    quantize(tmp_path / "m", tmp_path / "cpu", "per_group:u4", device="cpu")
    quantize(tmp_path / "m", tmp_path / "cuda", "per_group:u4", device="cuda", workers=3)
    assert content(tmp_path / "cpu") == content(tmp_path / "cuda")


def test_a_worker_takes_the_gpu_of_its_number():
    count, before = cupy.cuda.runtime.getDeviceCount(), cupy.cuda.Device().id
    try:
        for number in range(2 * count):
            weights.backend("cuda", number)
            assert cupy.cuda.Device().id == number % count
    finally:
        cupy.cuda.Device(before).use()
