"""The way of a call from its arguments to a driver that only writes down what it is given.

CuPy's arrays are real, over memory that is not there; torch's are stand-ins that answer as CUDA tensors do.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import pickle
from math import prod
from types import SimpleNamespace

import cupy
import numpy as np
import pytest
import torch
from cupy.cuda import MemoryPointer, UnownedMemory

import skuda
from skuda import dispatch, family, kernel, ops
from skuda.dtypes import DTYPES
from skuda.errors import DeviceMismatch, ElementMismatch, InvalidProblem, MisalignedOperand, Unsupported
from skuda.generated import LerpArgs, LerpDescriptor, LerpPlan
from skuda.launch import contiguous_strides
from skuda.sku import BackendKind
from skuda.tensor import view_of

PLANS = [
    plan for name in dispatch.catalogs()[0].modules for plan in dispatch.catalogs()[0].module(name).PLANS
]
STREAM = 0x5000  # the libraries' current stream, plus the device


class Driver:
    """Writes down (device, grid, stream, the struct's bytes) of each launch."""

    CUDADriverError = RuntimeError
    CU_FUNC_ATTRIBUTE_NUM_REGS = CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 0

    def __init__(self) -> None:
        self.launches: list[tuple] = []
        self.context = 100

    def ctxGetCurrent(self):
        return self.context

    def ctxSetCurrent(self, context):
        self.context = context

    def moduleLoadData(self, cubin):
        return self.context

    def moduleGetFunction(self, module, name):
        return name

    def funcGetAttribute(self, attribute, function):
        return 0

    def launchKernel(self, function, grid, y, z, block, by, bz, shared, stream, parameters, extra):
        struct = ctypes.c_void_p.from_address(
            parameters
        ).value  # the address behind the struct is right after it
        self.launches.append(
            (self.context - 100, function, grid, stream, ctypes.string_at(struct, parameters - struct))
        )

    @property
    def last(self) -> tuple:
        return self.launches[-1]


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    runtime = SimpleNamespace(
        getDevice=lambda: driver.context - 100,
        setDevice=lambda device: driver.ctxSetCurrent(device + 100),
        getDeviceCount=lambda: 2,
    )
    device = SimpleNamespace(compute_capability="90")
    cuda = SimpleNamespace(driver=driver, runtime=runtime, Device=lambda ordinal: device)
    monkeypatch.setattr(kernel, "_cupy_cuda", lambda: cuda)
    monkeypatch.setattr(kernel, "cuda_available", lambda: True)
    monkeypatch.setattr(kernel, "cached_cubin", lambda source, name, entry, arch, fresh=False: (b"", entry))
    monkeypatch.setattr(family._CuPy, "current_stream", lambda self, device: STREAM + device)
    monkeypatch.setattr(family._Torch, "current_stream", lambda self, device: STREAM + 0x100 + device)
    monkeypatch.setattr(ops, "_PLANS", {})
    dispatch.kernel.cache_clear()
    kernel.compute_capability.cache_clear()
    yield driver
    dispatch.kernel.cache_clear()
    kernel.compute_capability.cache_clear()


def array(pointer: int, shape, storage, device: int = 0):
    """A CuPy array over memory that nobody may touch."""
    memory = UnownedMemory(pointer, prod(shape) * np.dtype(storage).itemsize, None, device)
    return cupy.ndarray(shape, storage, MemoryPointer(memory, 0))


class Tensor:
    """What `skuda` asks of a tensor on a GPU."""

    layout, is_nested, is_cuda, is_cpu, negative = torch.strided, False, True, False, False

    def __init__(self, pointer: int, shape, storage, device: int = 0):
        self.pointer, self.shape, self.device_index = pointer, torch.Size(shape), device
        self.dtype = family.torch_dtypes()[np.dtype(storage)]

    def data_ptr(self):
        return self.pointer

    def stride(self):
        return contiguous_strides(self.shape)

    def get_device(self):
        return self.device_index

    def is_contiguous(self):
        return True

    def is_neg(self):
        return self.negative


Tensor.__module__ = "torch"


@pytest.fixture(params=[array, Tensor], ids=["cupy", "torch"])
def make(request):
    return request.param


def plan_of(plan_class, types=None):
    operation = plan_class.operation
    sizes = {dim.name: (3, 5) if dim.many else 12 for dim in operation.dims}
    sizes |= {attribute.name: 4 for attribute in operation.attributes if attribute.type == "size"}
    types = types or operation.combinations[0]
    elements = {field: types[letter] for letter, field in operation.element_fields.items()}
    return plan_class.select(plan_class.descriptor_type(**sizes, **elements), preference=BackendKind.CUDA)


def operands_of(plan, make, device: int = 0) -> list:
    """Contiguous arrays, each at a place of its own."""
    return [
        make((index + 1) << 20, shape, DTYPES[word].storage, device)
        for index, (shape, word) in enumerate(zip(plan.stored, plan.words, strict=True))
    ]


@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_short_way_launches_what_the_full_checks_launch(driver, make, plan_class):
    """`View`s always take the full way."""
    for types in plan_class.operation.combinations:
        plan = plan_of(plan_class, types)
        values = operands_of(plan, make)
        for numbers in (False, True):
            if numbers:
                kinds = [DTYPES[word].kind for word in plan.words]
                values = [
                    (0.1 if kind == "float" else -3) if operand.scalar else value
                    for operand, value, kind in zip(plan.operation.operands, values, kinds, strict=True)
                ]
            short = plan.execute(values)
            views = [
                value if isinstance(value, (int, float)) else view_of(value, "operand") for value in values
            ]
            assert plan.execute(views) is None
            assert driver.launches[-1] == driver.launches[-2]
            assert plan._common[type(values[-1])].ready(values) is not None
            assert short.plan is plan


def lerp(make, device: int = 0):
    plan = LerpPlan.select(LerpDescriptor(shape=(4, 8)), preference=BackendKind.CUDA)
    return plan, [make(pointer << 12, (4, 8), "f4", device) for pointer in (1, 2, 3)]


def test_arguments_are_checked_once_and_the_stream_is_asked_each_time(driver, make, monkeypatch):
    plan, (a, b, output) = lerp(make, device=1)
    args = LerpArgs(a, b, 0.25, output)
    plan.run(args)
    monkeypatch.setattr(LerpPlan, "execute", lambda *_: pytest.fail("checked again"))
    plan.run(args)
    plan.run(args, stream=0x77)
    current = STREAM + 1 + 0x100 * (make is Tensor)
    assert [launch[3] for launch in driver.launches] == [current, current, 0x77]
    assert len({launch[:3] + launch[4:] for launch in driver.launches}) == 1
    assert driver.last[0] == 1 and driver.context == 100


def test_other_plans_and_copies_check_arguments_anew(driver):
    plan, (a, b, output) = lerp(array)
    args = LerpArgs(a, b, 0.25, output)
    plan.run(args)
    other = LerpPlan.select(LerpDescriptor(shape=(8, 4)), preference=BackendKind.CUDA)
    with pytest.raises(InvalidProblem, match=r"a has shape \(4, 8\), expected .* = \(8, 4\)"):
        other.run(args)
    plan.run(args)
    assert copy.copy(args)._ready is args._ready  # the same arrays
    assert dataclasses.replace(args, weight=0.5).__dict__.keys() == {"a", "b", "weight", "output"}
    assert copy.deepcopy(args._ready) is None
    assert pickle.loads(pickle.dumps(args._ready)) is None


def test_a_tensor_that_has_got_other_memory_is_noticed(driver):
    plan, (a, b, output) = lerp(Tensor)
    args = LerpArgs(a, b, 0.25, output)
    plan.run(args)
    before = driver.last
    a.pointer += 1 << 16
    plan.run(args)
    assert driver.last != before
    plan.run(LerpArgs(a, b, 0.25, output))
    assert driver.launches[-1] == driver.launches[-2]
    output.pointer = a.pointer + 16
    with pytest.raises(InvalidProblem, match="output overlaps a"):
        plan.run(args)
    output.pointer = 0  # its storage was given back
    with pytest.raises(skuda.SkudaError, match="has no memory"):
        plan.run(args)
    assert len(driver.launches) == 3


def test_views_and_foreign_arrays_are_checked_at_each_call(driver):
    plan, (a, b, output) = lerp(array)
    interface = {"shape": a.shape, "typestr": "<f4", "data": (a.data.ptr, False), "version": 3}
    foreign = SimpleNamespace(__cuda_array_interface__=interface, __dlpack_device__=lambda: (2, 0))
    for first in (view_of(a, "a"), foreign):
        args = LerpArgs(first, b, 0.25, output)
        plan.run(args)
        assert not hasattr(args, "_ready")


@pytest.mark.parametrize("distance", [-127, -16, 16, 112])
def test_overlap_is_refused_and_in_place_is_not(driver, make, distance):
    plan, (a, b, _) = lerp(make)
    base = 1 << 12
    plan.run(LerpArgs(a, b, 0.5, make(base, (4, 8), "f4")))
    assert len(driver.launches) == 1
    with pytest.raises((InvalidProblem, MisalignedOperand)):
        plan.run(LerpArgs(a, b, 0.5, make(base + distance, (4, 8), "f4")))
    plan.run(LerpArgs(a, b, 0.5, make(base + 128, (4, 8), "f4")))
    plan.run(LerpArgs(a, b, 0.5, make(base - 128, (4, 8), "f4")))
    assert len(driver.launches) == 3


def test_arguments_that_do_not_fit(driver, make):
    plan, (a, b, output) = lerp(make)
    elsewhere = make(1 << 20, (4, 8), "f4", 1)
    for error, values in [
        (InvalidProblem, (make(1 << 20, (8, 4), "f4"), b, 0.5, output)),
        (InvalidProblem, (a, b, 0.5, make(1 << 20, (4, 7), "f4"))),
        (ElementMismatch, (a, make(1 << 20, (4, 8), "i4"), 0.5, output)),
        (ElementMismatch, (a, b, 0.5, make(1 << 20, (4, 8), "f8"))),
        (DeviceMismatch, (a, elsewhere, 0.5, output)),
        (DeviceMismatch, (a, b, 0.5, elsewhere)),
        (DeviceMismatch, (np.zeros((4, 8), "f4"), b, 0.5, output)),
        (MisalignedOperand, (a, b, 0.5, make((1 << 20) + 2, (4, 8), "f4"))),
        (InvalidProblem, (a, b, make(1 << 20, (2,), "f4"), output)),
        (InvalidProblem, (a, b, make(3 << 12, (), "f4"), output)),
        (skuda.SkudaError, (a, b, "0.5", output)),
        (skuda.SkudaError, (a, 0.5, 0.5, output)),
    ]:
        with pytest.raises(error):
            plan.run(LerpArgs(*values))
    assert driver.launches == []


def test_the_function_form_makes_a_plan_once(driver, make, monkeypatch):
    _, (a, b, output) = lerp(make)
    assert skuda.lerp(a, b, 0.5, out=output) is output
    monkeypatch.setattr(LerpPlan, "select", lambda *_, **__: pytest.fail("selected again"))
    assert skuda.lerp(a, b, 0.5, out=output) is output
    assert driver.launches[0] == driver.launches[1]
    with pytest.raises(InvalidProblem, match="output overlaps b"):
        skuda.lerp(a, b, 0.5, out=make((2 << 12) + 16, (4, 8), "f4"))
    with pytest.raises(InvalidProblem, match="out has 2 arrays"):
        skuda.lerp(a, b, 0.5, out=(output, output))
    assert len(driver.launches) == 2


def test_the_function_form_refuses_what_it_refused_before_a_plan_was_cached(driver, make):
    x, scale = make(1 << 12, (4, 8), "f4"), make(2 << 12, (4,), "f4")
    zero_point, out = make(3 << 12, (4,), "i4"), make(4 << 12, (4, 8), "i1")
    skuda.quantize_per_token(x, scale, zero_point, q_min=-1, q_max=1, out=out)
    for wrong in (1.0, True):
        with pytest.raises(InvalidProblem, match="q_max is"):
            skuda.quantize_per_token(x, scale, zero_point, q_min=-1, q_max=wrong, out=out)
    with pytest.raises(Unsupported):
        skuda.quantize_per_token(x, make(2 << 12, (4,), "f8"), zero_point, q_min=-1, q_max=1, out=out)
