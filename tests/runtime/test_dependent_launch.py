"""Launches that begin before the kernel in front has ended, without a GPU: what the driver is given, and when."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace

import numpy as np
import pytest

import skuda
from skuda.arrays.views import View, contiguous_strides
from skuda.launch import compiler, dependent_launch, registry
from skuda.model.sku import BackendKind
from skuda.schedules.table import SCHEDULES, variant_name


@pytest.fixture
def driver(monkeypatch):
    """A driver of version 13 that notes the launches; `status` is what it answers."""
    fake = SimpleNamespace(calls=[], status=0, version=13000)

    def version(pointer):
        pointer._obj.value = fake.version
        return 0

    def launch(config, function, parameters, extra):
        *sizes, stream, attributes, count = struct.unpack("7I4xQQI4x", config)
        kind, allowed = struct.unpack("i4xi", ctypes.string_at(attributes, 12))
        fake.calls.append((sizes, stream, count, kind, allowed, function, parameters, extra, fake.context))
        return fake.status

    fake.cuDriverGetVersion, fake.cuLaunchKernelEx, fake.context = version, launch, 100
    monkeypatch.setattr(dependent_launch, "_driver", lambda: fake)
    error = SimpleNamespace(CUDADriverError=lambda status: RuntimeError(f"status {status}"))
    monkeypatch.setattr(dependent_launch, "_cupy_cuda", lambda: SimpleNamespace(driver=error))
    monkeypatch.setattr(dependent_launch, "compute_capability", lambda device: f"sm_{device}")
    dependent_launch._known.cache_clear()
    yield fake
    dependent_launch._known.cache_clear()


def loaded(driver, arch: int):
    return SimpleNamespace(
        device=arch,
        function=0xF,
        context=101,
        current_context=lambda: driver.context,
        set_context=lambda context: setattr(driver, "context", context),
        launch="plain",
    )


@pytest.mark.parametrize("before", [101, 100])
def test_the_driver_is_told_that_the_launch_need_not_wait(driver, before):
    driver.context = before
    dependent_launch.launch_of(loaded(driver, 90))(7, 256, 0x5000, 0xABC)
    assert driver.calls == [([7, 1, 1, 256, 1, 1, 0], 0x5000, 1, 6, 1, 0xF, 0xABC, None, 101)]
    assert driver.context == before


def test_older_devices_and_drivers_launch_as_ever(driver):
    assert dependent_launch.launch_of(loaded(driver, 89)) == "plain"
    driver.version = 12030
    dependent_launch._known.cache_clear()
    assert dependent_launch.launch_of(loaded(driver, 90)) == "plain"


def test_a_launch_that_fails_says_so_and_gives_the_context_back(driver):
    driver.status = 1
    with pytest.raises(RuntimeError, match="status 1"):
        dependent_launch.launch_of(loaded(driver, 90))(0, 256, 0, 0xABC)
    assert driver.context == 100


def test_only_kernels_that_wait_are_dependent_launches(monkeypatch):
    from skuda.generated import LayerNormBackwardDescriptor, LayerNormBackwardPlan

    whole = LayerNormBackwardPlan.select(LayerNormBackwardDescriptor(n=(1 << 17,), d=64), None, BackendKind.REFERENCE)
    monkeypatch.setattr(dependent_launch, "launch_of", lambda loaded, of_few=False, shared=0: "dependent")
    kernel = SimpleNamespace(on=lambda device: SimpleNamespace(launch="plain"))
    monkeypatch.setattr(registry, "kernel", lambda *_: kernel)
    found = {}
    for plan in whole._kernels.plans:
        strides = map(contiguous_strides, plan.shapes)
        spaces = zip(plan.shapes, strides, strict=True)
        views = [View(0, *each, np.dtype("f4"), 0, True, False, None) for each in spaces]
        launch = plan.launch_for(views)
        for entry, (kind, *_) in zip(launch.entries, launch.kernels(0), strict=True):
            name = entry.partition("<")[0]
            text = compiler.headers()[SCHEDULES[name].header]
            found[name, plan.operation.analysis.stage] = kind
            assert kind == "plain" or "wait_for_earlier();" in text, name
    assert list(found.values()) == ["plain", "dependent", "dependent"]


def test_kernels_of_few_are_dependent_launches_but_on_the_default_stream(driver, monkeypatch):
    """On the default stream, which no graph captures, the host's time counts."""
    plain = []
    kernel = loaded(driver, 90)
    kernel.launch = lambda *arguments: plain.append(arguments)
    monkeypatch.setattr(registry, "kernel", lambda *_: SimpleNamespace(on=lambda device: kernel))
    bf16 = {"input_element": "bf16", "weight_element": "bf16"}
    few = {
        "vec8_small": (skuda.ExpPlan, {"shape": (64, 64), "element": "bf16"}),
        "few_rows256x1": (skuda.RmsNormPlan, {"n": (64,), "d": (2048,), **bf16}),
        "row32x4_unaligned": (skuda.RmsNormPlan, {"n": (64,), "d": (777,), **bf16}),
        "columns4_small": (skuda.AffinePerChannelPlan, {"outer": (64,), "c": 64, "inner": (), "element": "bf16"}),
        "along": (skuda.SumPlan, {"kept": (), "reduced": (1 << 16,), "element": "bf16"}),
    }
    for name, (plan_class, sizes) in few.items():
        plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
        strides = map(contiguous_strides, plan.shapes)
        spaces = zip(plan.shapes, strides, strict=True)
        views = [View(0, *each, np.dtype("f2"), 0, True, False, None) for each in spaces]
        launch = plan.launch_for(views)
        assert variant_name(plan.operation, plan.types, launch.geometry.variant) == name
        assert "wait_for_earlier();" in compiler.headers()[SCHEDULES[launch.geometry.variant.kernel].header]
        (start, grid, block), *_ = launch.kernels(0)
        before = len(driver.calls)
        start(grid, block, 0, 0xABC)
        assert plain.pop() == (grid, block, 0, 0xABC) and len(driver.calls) == before
        start(grid, block, 0x5000, 0xABC)
        assert not plain and len(driver.calls) == before + 1
