"""Calls of kernels of the CPU that take the short way: they refuse, or launch what the full checks launch.

Kernels only write down what they are given, but where a test says that they run.
"""

from __future__ import annotations

import ctypes
from threading import Thread

import ml_dtypes
import numpy as np
import pytest
import torch
from problems import each_type
from test_launch import PLANS, Variations, operands_of, outcome, plan_of
from torch._subclasses.fake_tensor import FakeTensorMode

import skuda
from skuda.arrays import libraries
from skuda.cpu import kernels, library, workers
from skuda.errors import InvalidProblem
from skuda.launch.fast_path import fast_path_of
from skuda.model.sku import BackendKind
from skuda.plans import functions, selection
from skuda.plans import plan as plans
from skuda.plans.plan import _MADE

pytestmark = pytest.mark.skipif(library.compiler() is None, reason="there is no C++ compiler here")
_ROOM = 24 << 20
_MEMORY = np.zeros(_ROOM + 4096, np.uint8)
_START = -_MEMORY.ctypes.data % 4096


def array(pointer: int, shape, storage, device: int = 0, strides=None):
    """A NumPy array at an address within the memory of all; strides in elements. On another device: one that refuses
    writes."""
    storage = np.dtype(storage)
    steps = None if strides is None else [step * storage.itemsize for step in strides]
    found = np.ndarray(shape, storage, _MEMORY, _START + pointer, steps)
    found.flags.writeable = not device
    return found


def tensor(pointer: int, shape, storage, device: int = 0, strides=None):
    """The same as a tensor; on another device: one whose sign waits to be flipped, or none of the CPU."""
    dtype = libraries.torch_dtypes()[np.dtype(storage)]
    if device:
        return torch.empty(shape, dtype=dtype, device="meta")
    return whole(dtype, pointer).as_strided(shape, array(0, shape, np.uint8).strides if strides is None else strides)


def whole(dtype, pointer: int):
    return torch.frombuffer(_MEMORY, dtype=dtype, offset=_START + pointer, count=(_ROOM - pointer) // dtype.itemsize)


class Kernels:
    """Writes down (entry, the words of the struct, units) of each launch."""

    def __init__(self) -> None:
        self.launches: list[tuple] = []

    def kernel(self, package: str, source: str, entry: str):
        def run(arguments: int, begin: int, end: int) -> None:
            words, at = [], arguments
            while (word := ctypes.c_uint64.from_address(at).value) != arguments:  # its own address is behind it
                words.append(word)
                at += 8
            self.launches.append((entry, tuple(words), begin, end))

        return run


@pytest.fixture
def driver(monkeypatch):
    found = Kernels()
    monkeypatch.setattr(library, "kernel", found.kernel)
    monkeypatch.setattr(kernels, "ALONE", 1 << 30)
    monkeypatch.setattr(functions, "_FAST_PATHS", {})
    monkeypatch.setattr(functions, "_READY", {})
    monkeypatch.setattr(selection, "_PLANS", {})
    scratch = lambda self, size, device, stream: array(20 << 20, (size,), np.uint8)  # noqa: E731
    monkeypatch.setattr(libraries.Library, "scratch", scratch)
    monkeypatch.setattr(libraries._Torch, "scratch", lambda *of: torch.from_numpy(scratch(*of)))
    return found


@pytest.fixture(params=[array, tensor], ids=["numpy", "torch"])
def make(request):
    return request.param


class OnTheCpu(Variations):
    """Those of tensors are torch's own."""

    def __init__(self, plan, make, seed):
        super().__init__(plan, make, seed)
        for kind in ("layout", "device type"):
            del self.spoil[kind]

    def at(self, index, shape=None, storage=None, pointer=None, device=0, strides=None):
        try:
            return super().at(index, shape, storage, pointer, device, strides)
        except ValueError:  # torch has no tensors at such addresses
            return super().at(index, shape, storage, None, device, strides)

    def torch_s(self, index, name, value, strides=None):
        found = self.at(index, strides=strides)
        if self.make is tensor and name == "requires_grad" and found.is_floating_point():
            return found.requires_grad_()
        if self.make is tensor and name == "negative" and found.is_floating_point():
            return found._neg_view()
        return found


@pytest.mark.turns(12)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_short_way_refuses_or_agrees_with_the_full_check(driver, make, plan_class):
    served, refused = set(), set()
    for types in each_type(plan_class.operation):
        plan = plan_of(plan_class, types, BackendKind.CPU)
        try:
            plain = operands_of(plan, make)
        except KeyError:  # an element that torch has not
            continue
        if isinstance(outcome(driver, plan._execute_checked, plain, None, _MADE), tuple):
            continue  # rows that share bytes, which NumPy computes
        ways = [fast_path_of(plan, tuple(map(type, plain)), libraries.CPU)]
        for kind, values in OnTheCpu(plan, make, f"{plan.name} {types}"):
            full = outcome(driver, plan._execute_checked, values, None, _MADE)
            own = fast_path_of(plan, tuple(map(type, values)), libraries.CPU)
            for fast_path in (*ways, own):
                before = len(driver.launches)
                launched = fast_path(values, None)
                assert driver.launches[before:] == (full if launched else []), kind
                (served if launched else refused).add(kind)
            assert outcome(driver, plan.execute, values) == full, kind
    assert not served or None in served
    assert not served or {"element", "shape", "device"} <= refused


@pytest.fixture
def compiled(monkeypatch):
    """Kernels serve calls of any size, from the first on."""
    monkeypatch.setattr(plans, "LEAST_ON_CPU", 0)
    selection.forget()
    yield
    selection.forget()


def served_at_once(call, monkeypatch):
    """What a call returns that takes no full check any more."""
    for _ in range(3):
        call()
    with monkeypatch.context() as patched:
        patched.setattr("skuda.plans.plan.check", lambda *_: pytest.fail("checked again"))
        return call()


def _tensor(x: np.ndarray) -> torch.Tensor:
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def _array(x) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


@pytest.mark.parametrize("array_of", [np.asarray, _tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_values(compiled, monkeypatch, dtype, array_of):
    """With and without arrays to write to, where they are the inputs too, of several outputs, and of axes."""
    x = np.linspace(-3, 3, 4096).astype(dtype).reshape(64, 64)
    given, out = array_of(x.copy()), array_of(np.zeros_like(x))
    expected = _array(skuda.exp(given)).copy()
    assert np.array_equal(_array(served_at_once(lambda: skuda.exp(given), monkeypatch)), expected)
    assert served_at_once(lambda: skuda.exp(given, out=out), monkeypatch) is out
    assert np.array_equal(_array(out), expected)
    skuda.exp(given, out=given)
    assert np.array_equal(_array(given), expected)
    made = served_at_once(lambda: skuda.dynamic_quantize_per_token(out), monkeypatch)
    again = skuda.dynamic_quantize_per_token(expected)
    assert made._fields == again._fields and type(made) is type(again)
    assert all(np.array_equal(_array(one), other) for one, other in zip(made, again, strict=True))
    rows = served_at_once(lambda: skuda.softmax(out, axis=0), monkeypatch)
    assert np.allclose(_array(rows).astype(float).sum(0), 1, atol=0.02)


def test_what_has_changed_is_noticed(compiled, monkeypatch):
    x = np.ones((64, 64), np.float32)
    out = np.empty_like(x)
    served_at_once(lambda: skuda.neg(x, out=out), monkeypatch)
    assert skuda.neg(x[::2]).shape == (32, 64) and skuda.neg(x.T).dtype == np.float32
    assert skuda.neg(x.astype(np.float64)).dtype == np.float64
    assert skuda.neg(torch.ones(64, 64)).dtype == torch.float32
    readonly = np.empty_like(x)
    readonly.flags.writeable = False
    with pytest.raises(InvalidProblem, match="read-only"):
        skuda.neg(x, out=readonly)
    with pytest.raises(InvalidProblem, match="overlaps"):
        skuda.neg(x[:-1], out=x[1:])
    odd = np.zeros(64 * 64 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(64, 64)
    assert np.array_equal(skuda.neg(odd), -odd)
    masked = np.ma.masked_array(x, x > 0)
    with pytest.raises(skuda.SkudaError, match="mask"):
        skuda.neg(masked)
    with pytest.raises(skuda.SkudaError, match="stream"):
        skuda.neg(x, stream="none")


def test_what_torch_has_to_know_of(compiled):
    x = torch.linspace(-2, 2, 64, requires_grad=True)
    for _ in range(4):
        y = skuda.exp(x)
        assert y.requires_grad
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(gradient, y)
    for _ in range(4):
        assert not skuda.exp(x.detach()).requires_grad
    found = torch.func.grad(lambda each: skuda.exp(each).sum())(x.detach())
    assert torch.equal(found, y)
    rows = x.detach().expand(3, 64).contiguous()
    assert torch.equal(torch.vmap(skuda.exp)(rows), y.expand(3, 64))
    with pytest.raises(NotImplementedError, match="jvp"):  # which nobody has written, and no call leaves out
        torch.func.jvp(skuda.exp, (x.detach(),), (torch.ones(64),))
    with FakeTensorMode():
        assert skuda.exp(torch.ones(64)).shape == (64,)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(skuda.exp(x.detach()), y)
    twice = torch.compile(lambda each: skuda.exp(each) * 2, backend="eager", fullgraph=True)
    assert torch.equal(twice(x.detach()), y * 2)
    out = torch.empty(64)
    versions = []
    for _ in range(4):
        versions.append(out._version)
        skuda.exp(x.detach(), out=out)
    assert versions == sorted({*versions})
    with torch.inference_mode():
        assert torch.equal(skuda.exp(torch.linspace(-2, 2, 64)), y)


def test_threads_have_arguments_of_their_own(compiled):
    arrays = [np.full((64, 64), value, np.float32) for value in range(8)]
    for each in arrays[:3]:
        skuda.square(each)
    wrong = []

    def calls(x: np.ndarray) -> None:
        wrong.extend(1 for _ in range(200) if not (skuda.square(x) == x[0, 0] ** 2).all())

    threads = [Thread(target=calls, args=(each,)) for each in arrays]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.mark.parametrize("shape", [(1 << 15,), (300, 128)])
def test_one_thread_alone_or_all(compiled, monkeypatch, shape):
    """The time of the first share says which."""
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    found = []
    for wake in (0.0, 1e9):
        monkeypatch.setattr(kernels, "WAKE", wake)
        monkeypatch.setattr(workers, "threads", lambda: 3)
        found.append((skuda.tanh(x).tobytes(), skuda.softmax(x).tobytes()))
    assert found[0] == found[1]


def test_the_address_of_an_array():
    x = np.arange(10.0)
    for each in (x, x[3:], x[::-1], x[:0]):
        assert libraries.pointer_of(each) == each.ctypes.data == libraries._pointer_asked(each)
