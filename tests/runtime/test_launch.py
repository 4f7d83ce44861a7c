"""The way of a call from its arguments to a driver that only writes down what it is given.

CuPy's arrays are real, over memory that is not there; torch's are stand-ins that answer as CUDA tensors do.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import pickle
import random
import time
from threading import Thread
from types import SimpleNamespace

import cupy
import numpy as np
import pytest
import torch
from cupy.cuda import MemoryPointer, UnownedMemory
from problems import each_type

import skuda
from skuda.arrays import libraries
from skuda.arrays.views import contiguous_strides, view_of
from skuda.errors import DeviceMismatch, ElementMismatch, InvalidProblem, MisalignedOperand, Unsupported
from skuda.generated import LerpArgs, LerpDescriptor, LerpPlan
from skuda.launch import kernel, registry
from skuda.launch.fast_path import fast_path_of
from skuda.launch.prepared import PreparedLaunch, RunOnce, refuse
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.plans import functions, halves, selection
from skuda.plans.axis_views import chosen, with_axis_views
from skuda.plans.plan import _MADE

PLANS = [
    plan for name in registry.catalogs()[0].modules for plan in registry.catalogs()[0].own_plans(name)
]
SCRATCH = 0x7000_0000_0000  # where a workspace is
STREAM = 0x5000  # the libraries' current stream, plus the device


class Driver:
    """Writes down (device, grid, stream, the struct's bytes) of each launch."""

    CUDADriverError = RuntimeError
    CU_FUNC_ATTRIBUTE_NUM_REGS = CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 0
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 0

    def __init__(self) -> None:
        self.launches: list[tuple] = []
        self.context = 100
        self.delay = 0

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

    def funcSetAttribute(self, function, attribute, value):
        pass

    def launchKernel(self, function, grid, y, z, block, by, bz, shared, stream, parameters, extra):
        if self.delay:  # the driver reads the parameters without holding the interpreter's lock
            time.sleep(self.delay)
        struct = ctypes.c_void_p.from_address(
            parameters
        ).value  # the address after the struct is right after it
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
        cudaDevAttrMaxSharedMemoryPerBlockOptin=97,
        cudaDevAttrMultiProcessorCount=16,
        deviceGetAttribute=lambda attribute, device: {97: 232_448, 16: 132}[attribute],
    )
    device = SimpleNamespace(compute_capability="90")
    cuda = SimpleNamespace(driver=driver, runtime=runtime, Device=lambda ordinal: device)
    monkeypatch.setattr(kernel, "_cupy_cuda", lambda: cuda)
    monkeypatch.setattr(kernel, "cuda_available", lambda: True)
    monkeypatch.setattr(kernel, "cached_cubin", lambda source, name, entry, arch, fresh=False: (b"", entry))
    monkeypatch.setattr(libraries, "_LIBRARIES", {})
    monkeypatch.setattr(
        libraries._CuPy, "current", staticmethod(lambda device: SimpleNamespace(ptr=STREAM + device))
    )
    raw_stream = "_cuda_getCurrentRawStream"
    monkeypatch.setattr(torch._C, raw_stream, lambda device: STREAM + 0x100 + device, raising=False)
    monkeypatch.setattr(torch._C, "_increment_version", increase_versions)
    monkeypatch.setattr(libraries, "_alike_of", alike_of)
    for each, kind in ((libraries._CuPy, array), (libraries._Torch, Tensor)):
        made = lambda self, size, device, stream, kind=kind: kind(SCRATCH, (size,), np.uint8, device)  # noqa: E731
        monkeypatch.setattr(each, "scratch", made)
    monkeypatch.setattr(selection, "_PLANS", {})
    monkeypatch.setattr(functions, "_FAST_PATHS", {})
    monkeypatch.setattr(functions, "_READY", {})
    monkeypatch.setattr(halves, "_READY", {})
    registry.kernel.cache_clear()
    kernel.compute_capability.cache_clear()
    kernel.cluster_shared.cache_clear()
    kernel.multiprocessors.cache_clear()
    yield driver
    registry.kernel.cache_clear()
    kernel.compute_capability.cache_clear()
    kernel.cluster_shared.cache_clear()
    kernel.multiprocessors.cache_clear()


def array(pointer: int, shape, storage, device: int = 0, strides=None):
    """A CuPy array over memory that nobody may touch; strides in elements."""
    storage = libraries.cupy_dtype(np.dtype(storage))
    itemsize = np.dtype(storage).itemsize
    memory = UnownedMemory(pointer, 1 << 16, None, device)
    if strides is not None:
        strides = tuple(step * itemsize for step in strides)
    return cupy.ndarray(shape, storage, MemoryPointer(memory, 0), strides=strides)


class Tensor:
    """What `skuda` asks of a tensor on a GPU."""

    layout, is_nested, is_cuda, is_cpu, negative, device = torch.strided, False, True, False, False, "xpu"
    requires_grad, version = False, 0

    def __init__(self, pointer: int, shape, storage, device: int = 0, strides=None):
        self.pointer, self.shape, self.device_index = pointer, torch.Size(shape), device
        self.strides = contiguous_strides(shape) if strides is None else tuple(strides)
        self.dtype = libraries.torch_dtypes()[np.dtype(storage)]

    def data_ptr(self):
        if self.layout is not torch.strided:
            raise RuntimeError("no storage")
        return self.pointer

    def stride(self):
        return self.strides

    def get_device(self):
        return self.device_index

    def is_contiguous(self):
        axes = zip(self.shape, self.strides, contiguous_strides(self.shape))
        return 0 in self.shape or all(extent == 1 or step == dense for extent, step, dense in axes)

    def is_neg(self):
        return self.negative


Tensor.__module__ = "torch"


def increase_versions(tensors) -> None:
    """torch's own function knows only its own tensors."""
    for tensor in tensors:
        tensor.version += 1


def alike_of(tensors):
    """As torch's guard, which knows only its own tensors: of anything else it knows nothing."""
    seen = [_seen(each) for each in tensors]
    return lambda *others: [_seen(each) for each in others] == seen


def _seen(tensor) -> tuple:
    own = tensor.shape, tensor.strides, tensor.dtype, tensor.device_index, tensor.is_cuda
    return type(tensor), tensor.requires_grad, tensor.negative, tensor.layout, *own


@pytest.fixture(params=[array, Tensor], ids=["cupy", "torch"])
def make(request):
    return request.param


def plan_of(plan_class, types=None, backend=BackendKind.CUDA):
    operation = plan_class.operation
    sizes = {dim.name: (3, 5) if dim.many else 12 for dim in operation.dims}
    sizes |= {attribute.name: 4 for attribute in operation.attributes if attribute.type == "size"}
    if operation.analysis.over and "inner" in sizes:  # rows of 4-bit codes lie along the last axis
        sizes["inner"] = ()
    types = types or operation.combinations[0]
    elements = {field: types[letter] for letter, field in operation.element_fields.items()}
    return plan_class.select(plan_class.descriptor_type(**sizes, **elements), preference=backend)


def operands_of(plan, make, device: int = 0) -> list:
    """Contiguous arrays, each at an address of its own."""
    return [
        make((index + 1) << 20, shape, DTYPES[word].storage, device)
        for index, (shape, word) in enumerate(zip(plan.stored, plan.words, strict=True))
    ]


_NUMBERS = {"u8": 3, "u32": 3}  # in place of one value


@pytest.mark.turns(2)
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_fast_path_launches_what_the_full_checks_launch(driver, make, plan_class):
    """`View`s always take the full way."""
    for types in plan_class.operation.combinations:
        plan = plan_of(plan_class, types)
        values = operands_of(plan, make)
        for numbers in (False, True):
            if numbers:
                parts = zip(plan.operation.operands, values, plan.words, strict=True)
                values = [
                    _NUMBERS.get(word, 0.1 if DTYPES[word].kind == "float" else -3)
                    if operand.scalar and operand in plan.operation.inputs and word != "bool" else value
                    for operand, value, word in parts
                ]  # fmt: skip
            views = [
                value if isinstance(value, (int, float)) else view_of(value, "operand") for value in values
            ]
            driver.launches.clear()
            plan.execute(views)
            expected = driver.launches.copy()
            fast_path = fast_path_of(plan, tuple(map(type, values)), 0)
            assert fast_path is not refuse and fast_path(values, None)
            assert expected and driver.launches == expected * 2
            if plan.launch_for(views).workspace:
                assert not fast_path(values, None, False)


def test_a_caller_whose_axes_are_elsewhere_has_a_short_way_too(driver, make):
    """The reduced axis first, and kept in the output: the plan has it last."""
    descriptor = skuda.SumDescriptor(kept=(3,), reduced=(12,))
    plan = skuda.SumPlan.select(descriptor, preference=BackendKind.CUDA)
    viewed = with_axis_views(plan, chosen(0, (12, 3), "SumPlan: axis", "input"), True)
    values = [make(1 << 20, (12, 3), np.float32), make(2 << 20, (1, 3), np.float32)]
    viewed.execute(values)
    assert viewed.learn(values) is None
    fast_path = viewed.learn(values)
    assert fast_path is not refuse and fast_path(values, None)
    assert driver.launches[-1] == driver.launches[-2]
    for wrong in ([values[0], make(2 << 20, (3,), np.float32)], [make(1 << 20, (3, 12), np.float32), values[1]]):
        assert not fast_path(wrong, None)
        with pytest.raises(InvalidProblem, match="has shape"):
            viewed.execute(wrong)
    own = [make(1 << 20, (3, 12), np.float32), make(2 << 20, (3,), np.float32)]
    plan.execute(own)
    assert driver.launches[-1] != driver.launches[-2]  # the plan itself takes its own operands as before


class Variations:
    """Operands that are unusual in one or two ways, or look so."""

    NUMBERS = (0.5, -0.0, 1, -3, 2**31, True, np.float32(0.5), np.int32(3), "0.5", None)

    def __init__(self, plan, make, seed):
        self.plan, self.make, self.random = plan, make, random.Random(seed)
        self.storages = [DTYPES[word].storage for word in plan.words]
        self.spoil = {
            "number": lambda index: self.random.choice(self.NUMBERS),
            "element": lambda index: self.at(index, storage=self.random.choice(["f4", "f8", "i4", "u1"])),
            "shape": lambda index: self.at(
                index, self.random.choice([(), (1,), (2,), *plan.stored, (*plan.stored[index], 1)])
            ),
            "strides": lambda index: self.at(
                index, strides=[self.random.choice([step, step, 2 * step, 0]) for step in self.dense(index)]
            ),
            "pointer": lambda index: self.at(index, pointer=self.address(index) + self.random.choice([1, 2, 4, 8, 16])),
            "device": lambda index: self.at(index, device=1),
            "overlap": lambda index: self.at(
                index, pointer=self.address(self.any()) + self.random.choice([-16, 0, 0, 16, 32])
            ),
            "library": lambda index: np.zeros(plan.stored[index], self.storages[index]),
            "view": lambda index: view_of(self.at(index), "operand"),
            "negative": self.negated,
            "layout": lambda index: self.torch_s(index, "layout", torch.sparse_coo),
            "requires grad": lambda index: self.torch_s(index, "requires_grad", True),
            "device type": lambda index: self.torch_s(index, "is_cuda", False),
        }

    def any(self) -> int:
        return self.random.randrange(len(self.storages))

    def address(self, index):
        return (index + 1) << 20

    def dense(self, index):
        return contiguous_strides(self.plan.stored[index])

    def at(self, index, shape=None, storage=None, pointer=None, device=0, strides=None):
        shape = self.plan.stored[index] if shape is None else shape
        storage = self.storages[index] if storage is None else storage
        return self.make(pointer or self.address(index), shape, storage, device, strides)

    def negated(self, index):
        """As the imaginary part of a conjugate: every second number."""
        return self.torch_s(index, "negative", True, strides=[2 * step for step in self.dense(index)])

    def torch_s(self, index, name, value, strides=None):
        tensor = self.at(index, strides=strides)
        if self.make is Tensor:
            setattr(tensor, name, value)
        return tensor

    def __iter__(self):
        inputs = len(self.plan.operation.inputs)
        for kind in (None, *self.spoil):
            for _ in range(6):
                numbers = self.random.random() < 0.5
                values = [
                    self.random.choice([0.5, 3]) if numbers and index < inputs and operand.scalar else self.at(index)
                    for index, operand in enumerate(self.plan.operation.operands)
                ]
                if kind == "device" and self.random.random() < 0.3:
                    values = [
                        self.at(index, device=1) if type(value) not in (int, float) else value
                        for index, value in enumerate(values)
                    ]
                elif kind is not None:
                    for index in {self.any(), self.random.choice([self.any(), -1])} - {-1}:
                        values[index] = self.spoil[kind](index)
                yield kind, values


def outcome(driver, execute, *arguments, errors: type = skuda.SkudaError):
    """What was launched, or the error."""
    before = len(driver.launches)
    try:
        execute(*arguments)
    except errors as error:
        assert len(driver.launches) == before
        return type(error), str(error)
    return driver.launches[before:]


@pytest.mark.turns(18)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # 2**31 as f16 is infinity
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_short_way_refuses_or_agrees_with_the_full_check(driver, make, plan_class):
    """By choices of types in which each letter is each of its types: a fast path asks operands one by one."""
    served, refused = set(), set()
    for types in each_type(plan_class.operation):
        plan = plan_of(plan_class, types)
        plain = operands_of(plan, make)
        ways = [fast_path_of(plan, tuple(map(type, plain)), 0)]
        for kind, values in Variations(plan, make, f"{plan.name} {types}"):
            full = outcome(driver, plan._execute_checked, values, None, _MADE)
            own = fast_path_of(plan, tuple(map(type, values)), 0)
            for fast_path in (*ways, own):
                before = len(driver.launches)
                launched = fast_path(values, None)
                assert driver.launches[before:] == (full if launched else []), kind
                (served if launched else refused).add(kind)
            assert outcome(driver, plan.execute, values) == full, kind
    assert {None, "device"} <= served  # all operands may be on another device
    of_two = {"device", "overlap"} if len(plan_class.operation.operands) > 1 else set()
    assert {"element", "shape", "pointer", "library", *of_two} <= refused


def lerp(make, device: int = 0):
    plan = LerpPlan.select(LerpDescriptor(shape=(4, 8)), preference=BackendKind.CUDA)
    return plan, [make(pointer << 12, (4, 8), "f4", device) for pointer in (1, 2, 3)]


def test_calls_of_several_threads_do_not_share_parameters(driver):
    plan, (a, b, output) = lerp(array)
    others = [array(pointer << 12, (4, 8), "f4") for pointer in range(4, 12)]
    for other in others:
        plan._execute_checked((other, b, 0.5, output), None)
    expected, driver.launches = driver.launches, []
    fast_path = fast_path_of(plan, (cupy.ndarray, cupy.ndarray, float, cupy.ndarray), 0)
    driver.delay = 0.01
    threads = [Thread(target=fast_path, args=((other, b, 0.5, output), None)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(driver.launches) == sorted(expected)


def test_arguments_that_are_run_again_are_kept_from_the_second_time_on(driver, make, monkeypatch):
    plan, (a, b, output) = lerp(make)
    for _ in range(2):
        args = LerpArgs(a, b, 0.25, output)
        plan.run(args)
        assert type(args._ready) is PreparedLaunch  # as it was checked in full
    args = LerpArgs(a, b, 0.25, output)
    plan.run(args)
    assert type(args._ready) is RunOnce
    plan.run(args)
    assert type(args._ready) is PreparedLaunch
    monkeypatch.setattr("skuda.plans.plan.check", lambda *_: pytest.fail("checked again"))
    plan._fast_path = lambda *_: pytest.fail("checked again")
    plan.run(args)
    assert len(driver.launches) == 5 and len(set(driver.launches)) == 1


def test_arguments_are_checked_once_and_the_stream_is_asked_each_time(driver, make, monkeypatch):
    plan, (a, b, output) = lerp(make, device=1)
    args = LerpArgs(a, b, 0.25, output)
    plan.run(args)
    monkeypatch.setattr("skuda.plans.plan.check", lambda *_: pytest.fail("checked again"))
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
    assert dataclasses.replace(args, weight=0.5)._ready is None
    with pytest.raises(AttributeError, match="weight"):
        args.weight = 0.5
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
        assert args._ready is None


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


def test_several_outputs_have_names_however_often_a_call_is_made(driver, monkeypatch):
    """By the full check, by the fast path, and by what serves a call that repeats one."""
    pointers = iter(range(8 << 12, 1 << 20, 1 << 12))
    dtypes: list[np.dtype] = []

    def new(shape, storage):
        dtypes.append(np.dtype(storage))
        return array(next(pointers), shape, storage)

    monkeypatch.setattr(libraries._CuPy, "empty", lambda self, shape, storage, device: new(shape, storage))
    monkeypatch.setattr(libraries._CuPy, "contiguous", lambda self, shape, strides, dtype: new(shape, dtype))
    x = array(1 << 12, (4, 8), "f4")
    for _ in range(6):
        made = skuda.dynamic_quantize_per_token(x)
        assert type(made) is skuda.DynamicQuantizePerTokenResults
        assert (made.scale.shape, made.output.shape) == ((4,), (4, 8))
    assert skuda.DynamicQuantizePerTokenPlan in functions._READY
    assert dtypes == [np.dtype(np.float32), np.dtype(np.int8)] * 6
    monkeypatch.setattr(functions, "_call_anew", lambda *_: pytest.fail("checked in full"))
    for out in (made, tuple(made)):
        assert skuda.dynamic_quantize_per_token(x, out=out) is out
    assert len(driver.launches) == 8


@pytest.mark.parametrize("width", [16, 24, 5])  # halves that are aligned alike, and that are not
@pytest.mark.parametrize("first", ["gate", "up"])
def test_halves_of_an_array_have_the_short_way(driver, monkeypatch, width, first):
    """With the bytes of launches that the full check makes, forward and backward, with several outputs too."""
    pointers = iter(range(64 << 16, 1 << 30, 1 << 16))
    new = lambda shape, storage: array(next(pointers), shape, storage)  # noqa: E731
    monkeypatch.setattr(libraries._CuPy, "empty", lambda self, shape, storage, device: new(shape, storage))
    monkeypatch.setattr(libraries._CuPy, "contiguous", lambda self, shape, strides, dtype: new(shape, dtype))
    whole, other = (array(each << 16, (6, 2 * width), "f4") for each in (1, 2))
    gradient, joined = array(3 << 16, (6, width), "f4"), array(4 << 16, (6, 2 * width), "f4")
    out = array(5 << 16, (6, width), "f4")
    codes = array(6 << 16, (6,), "f4"), array(7 << 16, (6, width), "i1")
    calls = [
        lambda each: skuda.silu_mul(**{first: each}, out=out),
        lambda each: skuda.silu_mul_backward(gradient, **{first: each}, out=joined),
        lambda each: skuda.silu_mul_backward(gradient, **{first: each}, out=each),  # in place
        lambda each: skuda.silu_mul_dynamic_quantize(**{first: each}, out=codes),
    ]
    for call in calls:
        halves._READY.clear()
        for each in (whole, whole, whole, other, whole):
            call(each)
        assert len(halves._READY) == 1
        with monkeypatch.context() as patched:
            patched.setattr(functions, "_run", lambda *_, **__: pytest.fail("checked in full"))
            for each in (other, whole):
                call(each)
        full, short = driver.launches[-7:-5], driver.launches[-1]
        assert full[0] == full[1] == short == driver.launches[-3]
        assert driver.launches[-2] == driver.launches[-4] != short
    made = skuda.silu_mul_backward(gradient, **{first: whole})
    assert made.shape == whole.shape and skuda.silu_mul(**{first: whole}).shape == gradient.shape
    count = len(driver.launches)
    with pytest.raises(InvalidProblem, match="overlaps"):
        skuda.silu_mul(**{first: whole}, out=array((1 << 16) + 16 * width, (6, width), "f4"))
    with pytest.raises(InvalidProblem, match="overlaps"):
        skuda.silu_mul_backward(gradient, **{first: whole}, out=array(3 << 16, (6, 2 * width), "f4"))
    with pytest.raises(InvalidProblem, match="out has shape"):
        skuda.silu_mul_backward(gradient, **{first: whole}, out=joined[:, 1:])
    assert len(driver.launches) == count
    strided = array(8 << 16, (6, 2 * width), "f4", strides=(2 * width + 4, 1))
    assert skuda.silu_mul(**{first: strided}).shape == gradient.shape


def test_the_function_form_refuses_what_it_refused_before_a_plan_was_cached(driver, make):
    x, scale = make(1 << 12, (4, 8), "f4"), make(2 << 12, (4,), "f4")
    zero_point, out = make(3 << 12, (4,), "i4"), make(4 << 12, (4, 8), "i1")
    skuda.quantize_per_token(x, scale, zero_point, q_min=-1, q_max=1, out=out)
    for wrong in (1.0, True):
        with pytest.raises(InvalidProblem, match="q_max is"):
            skuda.quantize_per_token(x, scale, zero_point, q_min=-1, q_max=wrong, out=out)
    with pytest.raises(Unsupported):
        skuda.quantize_per_token(x, make(2 << 12, (4,), "f8"), zero_point, q_min=-1, q_max=1, out=out)


def test_torch_is_told_what_was_written(driver, monkeypatch):
    """By every way of a call: the full check, the fast path, arguments that are kept, the function form."""
    plan, (a, b, output) = lerp(Tensor)
    ways = set()
    for _ in range(4):
        args = LerpArgs(a, b, 0.25, output)
        for _ in range(3):
            before = output.version
            plan.run(args)
            assert output.version == before + 1
            ways.add(type(args._ready))
    assert ways == {PreparedLaunch, RunOnce}
    before = output.version
    for times in range(1, 5):
        assert skuda.lerp(a, b, 0.25, out=output) is output
        assert output.version == before + times
    assert a.version == b.version == 0


@pytest.mark.parametrize("recorded", [True, False])
def test_an_output_that_requires_grad_is_written_only_where_nothing_is_recorded(driver, recorded):
    plan, (a, b, output) = lerp(Tensor)
    for _ in range(3):
        plan.run(LerpArgs(a, b, 0.25, output))
    output.requires_grad, before = True, len(driver.launches)
    with torch.set_grad_enabled(recorded):
        for call in (lambda: plan.run(LerpArgs(a, b, 0.25, output)), lambda: skuda.lerp(a, b, 0.25, out=output)):
            if recorded:
                with pytest.raises(InvalidProblem, match="^LerpPlan: output requires grad, and autograd would not see"):
                    call()
            else:
                call()
    assert len(driver.launches) == before + (0 if recorded else 2)


@pytest.mark.parametrize("name", ["Lerp", "QuantizePerToken", "DynamicQuantizePerToken"])
def test_calls_that_repeat_do_what_a_first_call_does(driver, make, name):
    """Whatever the operands were before, and whether torch has told them alike or not."""
    plan = plan_of(getattr(skuda, f"{name}Plan"))
    function, inputs = getattr(skuda, plan.operation.function), len(plan.operation.inputs)
    plain, refused = operands_of(plan, make), set()

    def called(values):
        """An error may be torch's, which is asked for memory and knows of no GPU."""
        out = values[inputs] if len(values) == inputs + 1 else tuple(values[inputs:])
        return outcome(driver, lambda: function(*values[:inputs], out=out), errors=Exception)

    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            for kind, values in Variations(plan, make, name):
                for cache in (functions._READY, functions._FAST_PATHS, selection._PLANS):
                    cache.clear()
                anew = called(values)
                for before in (plain, plain, plain, values, values, plain):
                    called(before)
                assert type(plan) in functions._READY
                again = called(values)
                asked_for_memory = kind == "number" and type(anew) is type(again) is tuple
                assert again == anew or asked_for_memory, kind
                refused |= {kind} if type(anew) is tuple else set()
    assert {"element", "shape", "overlap"} <= refused


def test_signed_zeros_and_tuples_have_short_ways_of_their_own(driver, make):
    """0.0 equals -0.0 and (1,) equals (True,), so a plain look-up would find the other's plan."""
    x, d_output = make(1 << 16, (4, 8), "f4"), make(2 << 16, (4, 8), "f4")
    out = tuple(make(pointer << 16, shape, "f4") for pointer, shape in ((3, (4, 8)), (4, ()), (5, ())))
    launched = {}
    for _ in range(3):
        for factor in (0.0, -0.0):
            skuda.learnable_fake_quantize_per_tensor_backward(d_output, x, 0.3, 0.0, grad_factor=factor, out=out)
            launched.setdefault(str(factor), set()).add(driver.launches[-1][-1])
    assert not launched["0.0"] & launched["-0.0"]
    sums = make(6 << 16, (4,), "f4")
    for _ in range(3):
        skuda.sum(x, axis=(1,), out=sums)
    for axis in ((True,), (1.0,)):
        with pytest.raises(InvalidProblem, match="axis is .*, expected an integer"):
            skuda.sum(x, axis=axis, out=sums)


def test_parameters_that_keep_axes_have_the_short_way(driver, make, monkeypatch):
    plan = skuda.QuantizePerTokenPlan.select(skuda.QuantizePerTokenDescriptor(n=4, d=8), None, BackendKind.CUDA)
    x, out = make(1 << 16, (4, 8), "f4"), make(4 << 16, (4, 8), "i1")
    flat, kept = (
        [x, make(2 << 16, shape, "f4"), make(3 << 16, shape, "i4"), out] for shape in ((4,), (4, 1))
    )
    for _ in range(2):
        plan.execute(flat)
    monkeypatch.setattr("skuda.plans.plan.check", lambda *_: pytest.fail("checked in full"))
    plan.execute(kept)
    assert len(driver.launches) == 3 and len(set(driver.launches)) == 1


@pytest.mark.parametrize("group_size", [13, 2**31, 2**63 - 1])
@pytest.mark.parametrize("name", ["QuantizePerGroup", "DynamicQuantizePerGroup", "DequantizePerGroupBackward"])
def test_a_group_longer_than_its_axis_is_launched_as_one_of_that_length(driver, name, group_size):
    plan_class = next(plan for plan in PLANS if plan.operation.class_name == name)
    for each in (12, group_size):
        descriptor = plan_class.descriptor_type(outer=(3,), d=12, inner=(), group_size=each)
        plan = plan_class.select(descriptor, preference=BackendKind.CUDA)
        plan.execute(operands_of(plan, array))
    assert driver.launches[0] == driver.launches[1]


def test_a_plan_of_one_backend_serves_no_arrays_of_the_other(driver):
    """Of the same shapes and types: plans are kept by where the operands are, too."""
    here = [np.full(100, value, np.float32) for value in (1, 3)]
    there = [array(0x100000 * number, (100,), np.float32) for number in (1, 2, 3)]
    for times in (1, 2, 3):
        assert (skuda.lerp(*here, 0.5) == 2).all()
        skuda.lerp(*there[:2], 0.5, out=there[2])
        assert len(driver.launches) == times
