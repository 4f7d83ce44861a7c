"""Plans that need scratch memory: what is launched in which order, what of it is asked for, and what is refused.

The driver only writes down what it is given (test_launch.py).
"""

from __future__ import annotations

import numpy as np
import pytest
import test_launch
from problems import kernel_of
from test_launch import STREAM, array

import skuda
from skuda.arrays import libraries
from skuda.errors import BufferTooSmall, DeviceMismatch, InvalidProblem, MisalignedOperand
from skuda.generated import (
    DynamicQuantizePerTensorArgs,
    DynamicQuantizePerTensorDescriptor,
    DynamicQuantizePerTensorPlan,
    SumArgs,
    SumDescriptor,
    SumPlan,
)
from skuda.model.sku import BackendKind

driver = test_launch.driver
SHAPE = (30, 1000)
INPUT, OUTPUT, SCALE, WORKSPACE = 0x100000, 0x200000, 0x300000, 0x400000


def total(device: int = 0):
    plan = SumPlan.select(SumDescriptor(kept=(), reduced=SHAPE))
    return plan, SumArgs(array(INPUT, SHAPE, np.float32, device), array(OUTPUT, (), np.float32, device))


def quantized():
    plan = DynamicQuantizePerTensorPlan.select(DynamicQuantizePerTensorDescriptor(shape=SHAPE))
    operands = array(INPUT, SHAPE, np.float32), array(SCALE, (), np.float32), array(OUTPUT, SHAPE, np.int8)
    return plan, DynamicQuantizePerTensorArgs(*operands)


def workspace_of(plan, pointer: int = WORKSPACE, less: int = 0, device: int = 0):
    return array(pointer, (plan.workspace_size - less,), np.uint8, device)


def kernels(driver) -> list[str]:
    return ["_".join(kernel_of(launch[1])) for launch in driver.launches]


@pytest.mark.parametrize("device", [0, 1])
def test_parts_and_what_joins_them(driver, device):
    plan, args = total(device)
    workspace = workspace_of(plan, device=device)
    for times in (1, 2, 3):  # the second run of the same arguments is not checked
        plan.run(args, workspace=workspace)
        assert kernels(driver) == ["sum_along", "sum_finish"] * times
    first, *others = driver.launches[0][4], *(each[4] for each in driver.launches[1:])
    assert all(each == first for each in others)  # one struct for both kernels
    assert int.from_bytes(first[-8:], "little") == WORKSPACE
    assert {launch[3] for launch in driver.launches} == {STREAM + device}
    other = workspace_of(plan, WORKSPACE + 4096, device=device)
    plan.run(args, workspace=other, stream=77)
    assert int.from_bytes(driver.last[4][-8:], "little") == WORKSPACE + 4096
    assert [launch[3] for launch in driver.launches[-2:]] == [77, 77]


def test_stages_follow_each_other(driver):
    plan, args = quantized()
    for times in (1, 2):
        plan.run(args, workspace=workspace_of(plan))
        stages = ["stage1_along", "stage1_finish", "stage2_vec"]
        assert kernels(driver) == [f"dynamic_quantize_per_tensor_{stage}" for stage in stages] * times
    assert plan.sku.symbol == "dynamic_quantize_per_tensor_f32_s8__stages"


def test_a_function_makes_its_own(driver, monkeypatch):
    asked = []

    def scratch(self, size, device, stream):
        asked.append((size, device, stream))
        return array(WORKSPACE, (size,), np.uint8, device)

    monkeypatch.setattr(libraries._CuPy, "scratch", scratch)
    monkeypatch.setattr(libraries._CuPy, "empty", lambda self, *of: array(OUTPUT, *of))

    def contiguous(self, shape, strides, dtype):  # of a call that repeats one
        return scratch(self, *shape, 0, STREAM) if dtype == np.uint8 else array(OUTPUT, shape, dtype)

    monkeypatch.setattr(libraries._CuPy, "contiguous", contiguous)
    plan, _ = total()
    for stream, handle in ((None, STREAM), (9, 9)):
        for _ in range(3):
            skuda.sum(array(INPUT, SHAPE, np.float32), stream=stream)
            assert 0 < asked[-1][0] <= plan.workspace_size and asked[-1][1:] == (0, handle)
            assert driver.last[3] == handle and int.from_bytes(driver.last[4][-8:], "little") == WORKSPACE
    assert len(asked) == 6


def test_what_is_no_workspace(driver):
    plan, args = total()
    size = plan.workspace_size
    assert size > 0
    for workspace, error, message in (
        (None, BufferTooSmall, f"SumPlan: there is no workspace, expected at least {size} bytes"),
        (workspace_of(plan, less=1), BufferTooSmall, f"workspace has {size - 1} bytes, expected at least {size}"),
        (workspace_of(plan, device=1), DeviceMismatch, "workspace is on CUDA device 1, expected CUDA device 0"),
        (workspace_of(plan, WORKSPACE + 8), MisalignedOperand, "workspace starts at 0x400008, expected a multiple"),
        (workspace_of(plan, INPUT + 4096), InvalidProblem, "workspace overlaps input"),
        (workspace_of(plan, OUTPUT), InvalidProblem, "workspace overlaps output"),
        (array(WORKSPACE, (2 * size,), np.uint8, strides=(2,)), InvalidProblem, "workspace has gaps"),
    ):
        with pytest.raises(error, match=message):
            plan.run(args, workspace=workspace)
    assert driver.launches == []


def test_the_cpu_needs_none():
    plan = SumPlan.select(SumDescriptor(kept=(), reduced=SHAPE), preference=BackendKind.REFERENCE)
    output = np.empty((), np.float32)
    plan.run(SumArgs(np.ones(SHAPE, np.float32), output))
    assert plan.workspace_size == 0 and output == 30_000
