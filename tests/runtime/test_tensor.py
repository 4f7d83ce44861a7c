"""Views of every library's arrays, their aliasing, the families that results come from; no GPU is needed."""

import gc
import itertools
import subprocess
import sys
import types
import warnings
import weakref

import cupy
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from skuda.arrays.aliasing import overlap, overlaps_itself
from skuda.arrays.views import CPU, View, as_numpy, family_of, stream_handle, view_of
from skuda.errors import DeviceMismatch, NotAnArray

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)


def described(view: View) -> tuple:
    return (view.shape, view.strides, view.storage, view.device, view.contiguous, view.readonly)


class DLPackOnly:
    """The least that DLPack asks of an array, over a NumPy one."""

    def __init__(self, array, device=None):
        self.array = array
        self.device = device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


class WithNamespace(DLPackOnly):
    """A DLPack array whose library has `from_dlpack` and `asarray`."""

    def __array__(self, dtype=None, copy=None):
        return self.array

    def __array_namespace__(self):
        return types.SimpleNamespace(
            __name__="lab.numpy",
            from_dlpack=lambda array: WithNamespace(np.from_dlpack(array)),
            asarray=lambda array: WithNamespace(np.array(array)),
        )


class CudaArray:
    """An array on a GPU, as far as an address that nobody reads can be one."""

    def __init__(self, pointer, shape, typestr, device=0, readonly=False, **entries):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (pointer, readonly), "shape": shape, "typestr": typestr, **entries
        }
        self.device = device

    def __dlpack_device__(self):
        return 2, self.device


def cupy_at(pointer, shape, dtype, device=0):
    memory = cupy.cuda.UnownedMemory(pointer, 1 << 20, None, device)
    return cupy.ndarray(shape, dtype, cupy.cuda.MemoryPointer(memory, 0))


# ---------------------------------------------------------------------------------------------------- NumPy


def test_numpy_array():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    view = view_of(array, "input")
    assert described(view) == ((3, 4), (4, 1), np.dtype("f4"), CPU, True, False)
    assert view.pointer == array.ctypes.data
    assert view.owner is array


def test_numpy_strided_views_point_at_their_first_element():
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    transposed, reversed_, sliced = (view_of(v, "v") for v in (array.T, array[::-1, ::-2], array[1:, 2:4]))
    assert (transposed.shape, transposed.strides, transposed.contiguous) == ((6, 4), (1, 6), False)
    assert (reversed_.strides, reversed_.contiguous) == ((-6, -2), False)
    assert reversed_.pointer == array.ctypes.data + 23 * 4
    assert sliced.pointer == array.ctypes.data + 8 * 4


@pytest.mark.parametrize(
    "array, contiguous",
    [
        (np.zeros(()), True),
        (np.zeros((0, 3))[:, ::2], True),
        (np.zeros((5, 1, 3))[:, ::-1], True),
        (np.zeros(4, [("a", "f4"), ("b", "i1")])["a"][:1], True),
        (np.broadcast_to(np.zeros(3), (4, 3)), False),
        (np.zeros((2, 3, 4))[:, :, :1], False),
    ],
    ids=["scalar", "empty", "extent 1", "odd stride of extent 1", "broadcast", "column"],
)
def test_contiguous_is_what_numpy_says(array, contiguous):
    view = view_of(array, "a")
    assert view.contiguous is contiguous is array.flags.c_contiguous
    assert view.shape == array.shape
    assert view.strides == tuple(stride // array.itemsize for stride in array.strides)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int32, np.int64, np.float16, np.float32,
                                   np.float64, BF16, E4M3, E5M2], ids=lambda d: np.dtype(d).name)
def test_numpy_element_types(dtype):
    assert view_of(np.zeros(3, dtype), "a").storage == np.dtype(dtype)


def test_numpy_readonly_and_subclass(tmp_path):
    array = np.zeros(4)
    array.flags.writeable = False
    assert view_of(array, "a").readonly
    mapped = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=(2, 3))
    assert described(view_of(mapped, "a")) == ((2, 3), (3, 1), np.dtype("f4"), CPU, True, False)


@pytest.mark.parametrize(
    "array, message",
    [
        (np.zeros(2, np.dtype("f4").newbyteorder()), "x has byte-swapped float32 elements, expected native"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "x has .*'a'.* elements"),
        (np.zeros(2, object), "x has object elements"),
        (np.zeros(2, np.complex64), "x has complex64 elements"),
        (np.zeros(2, "M8[s]"), r"x has datetime64\[s\] elements"),
        (np.zeros(2, "S3"), r"x has \|S3 elements"),
        (np.ma.masked_array([1.0, 2.0], [0, 1]), "x is a numpy.ma.MaskedArray, whose mask no kernel reads"),
        (np.zeros(4, [("a", "f4"), ("b", "i1")])["a"], r"x has strides of \(5,\) bytes, .* 4-byte elements"),
        ([1.0, 2.0], "x is a list, expected an array"),
        (None, "x is a NoneType, expected an array"),
        (np.float32(1), "x is a numpy.float32, expected an array"),
        (np.ndarray, "x is a type"),
    ],
    ids=["swapped", "structured", "object", "complex", "datetime", "bytes", "masked", "field", "list", "None",
         "number", "class"],
)
def test_refused(array, message):
    with pytest.raises(NotAnArray, match=f"^{message}"):
        view_of(array, "x")


# ---------------------------------------------------------------------------------------------------- torch


def test_torch_tensor():
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    view = view_of(tensor, "input")
    assert described(view) == ((4, 6), (6, 1), np.dtype("f4"), CPU, True, False)
    assert type(view.shape) is tuple
    assert view.pointer == tensor.data_ptr()
    part = view_of(tensor[1:, 2:].T, "part")
    assert described(part) == ((4, 3), (1, 6), np.dtype("f4"), CPU, False, False)
    assert part.pointer == tensor.data_ptr() + 8 * 4


@pytest.mark.parametrize(
    "name, dtype",
    [("bool", np.bool_), ("uint8", np.uint8), ("int8", np.int8), ("int32", np.int32), ("int64", np.int64),
     ("float16", np.float16), ("bfloat16", BF16), ("float32", np.float32), ("float64", np.float64),
     ("float8_e4m3fn", E4M3), ("float8_e5m2", E5M2)],
)
def test_torch_element_types_and_results(name, dtype):
    tensor = torch.zeros(3, dtype=getattr(torch, name))
    view = view_of(tensor, "a")
    assert view.storage == np.dtype(dtype)
    made = family_of(tensor).empty((2, 3), view.storage, CPU)
    assert (made.dtype, tuple(made.shape), made.device.type) == (tensor.dtype, (2, 3), "cpu")


def test_torch_autograd_is_ignored_and_parameters_are_tensors():
    weight = torch.nn.Parameter(torch.ones(2, 2))
    assert described(view_of(weight, "w")) == ((2, 2), (2, 1), np.dtype("f4"), CPU, True, False)
    assert described(view_of(weight * 2, "w")) == ((2, 2), (2, 1), np.dtype("f4"), CPU, True, False)


def test_torch_empty_tensor_has_no_address_and_is_no_error():
    view = view_of(torch.zeros(0, 4), "a")
    assert (view.shape, view.contiguous) == ((0, 4), True)
    assert as_numpy(view).shape == (0, 4)


def fake_tensor():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.zeros(3)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: torch.eye(3).to_sparse(), "x is a torch tensor of layout torch.sparse_coo"),
        (lambda: torch.eye(3).to_sparse_csr(), "x is a torch tensor of layout torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]), "x is a nested torch tensor"),
        (lambda: torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8), "x has torch.qint8 el"),
        (lambda: torch.zeros(3, device="meta"), "x is a torch tensor on device meta, expected cpu or cuda"),
        (lambda: torch.zeros(3, dtype=torch.complex64).conj(), "x has torch.complex64 elements"),
        (lambda: torch.zeros(3, dtype=torch.complex64).conj().imag, "x is a torch tensor with its neg"),
        (lambda: torch._efficientzerotensor(3), "x is a torch.Tensor that has no memory"),
        (fake_tensor, "x is a torch._subclasses.fake_tensor.FakeTensor that has no memory"),
    ],
    ids=["sparse", "csr", "nested", "quantized", "meta", "conjugate", "negative", "zero", "fake"],
)
def test_torch_tensors_without_plain_memory_are_refused(make, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototype features of torch
        tensor = make()
        with pytest.raises(NotAnArray, match=f"^{message}"):
            view_of(tensor, "x")


def test_torch_function_transforms_are_refused():
    def read(row):
        with pytest.raises(NotAnArray, match="^x is a torch.Tensor that has no memory"):
            view_of(row, "x")
        return row

    torch.func.vmap(read)(torch.zeros(2, 3))


# ------------------------------------------------------------------------------------- CuPy and interfaces


def test_cupy_array():
    array = cupy_at(0x10000, (4, 6), np.float16, device=1)
    assert described(view_of(array, "a")) == ((4, 6), (6, 1), np.dtype("f2"), 1, True, False)
    assert view_of(array, "a").pointer == 0x10000
    part = view_of(array[::-1, 1::2], "a")
    assert described(part) == ((4, 3), (-6, 2), np.dtype("f2"), 1, False, False)
    assert part.pointer == 0x10000 + 2 * (18 + 1)
    assert view_of(cupy_at(0x10000, (4,), BF16), "a").storage == BF16


def test_cuda_array_interface():
    array = CudaArray(0x7F0000000000, (3, 4), "<f2", device=2)
    view = view_of(array, "a")
    assert described(view) == ((3, 4), (4, 1), np.dtype("f2"), 2, True, False)
    assert (view.pointer, view.owner) == (0x7F0000000000, array)


@pytest.mark.parametrize(
    "shape, byte_strides",
    [
        ((3, 4), (16, 4)),
        ((3, 4), (4, 12)),
        ((3, 4), (-16, 8)),
        ((1, 4), (2, 4)),
        ((0, 4), (8, 8)),
        ((3, 1, 2), (8, 99, 4)),
    ],
)
def test_cuda_array_interface_strides(shape, byte_strides):
    view = view_of(CudaArray(0x1000, shape, "<f4", strides=byte_strides, readonly=True), "a")
    memory = as_strided(np.zeros(1, "f4"), shape, byte_strides)  # NumPy's word on contiguity; never read
    assert view.contiguous is memory.flags.c_contiguous
    assert view.strides == tuple(stride // 4 for stride in byte_strides)
    assert view.readonly is True


def test_elements_that_an_interface_cannot_name_are_read_through_dlpack():
    array = DLPackOnly(np.arange(3, dtype=np.int16))
    array.__cuda_array_interface__ = {"version": 3, "data": (0x1000, False), "shape": (3,), "typestr": "<V2"}
    view = view_of(array, "a")
    assert (view.storage, view.pointer) == (np.dtype("i2"), array.array.ctypes.data)


@pytest.mark.parametrize(
    "array, message",
    [
        (CudaArray(0x1000, (3,), "<V2"), "x has .*V2.* elements"),
        (CudaArray(0x1000, (3,), ">f4"), "x has byte-swapped float32 elements"),
        (CudaArray(0x1000, (3,), "<f4", mask=CudaArray(0x2000, (3,), "|b1")), "x has .* with a mask"),
        (CudaArray(0x1000, (3,), "<f4", strides=(6,)), r"x has strides of \(6,\) bytes"),
        (CudaArray(0x1000, (3, 4), "<f4", strides=(4,)), "x has a malformed .*: ValueError"),
        (CudaArray(0x1000, (3,), "nonsense"), "x has a malformed __cuda_array_interface__: TypeError"),
        (CudaArray(0x1000, None, "<f4"), "x has a malformed __cuda_array_interface__: TypeError"),
    ],
    ids=["void", "swapped", "mask", "strides", "rank", "typestr", "shape"],
)
def test_cuda_array_interface_refused(array, message):
    with pytest.raises(NotAnArray, match=f"^{message}"):
        view_of(array, "x")


# --------------------------------------------------------------------------------------------------- DLPack


def test_dlpack_array():
    array = np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2]
    foreign = DLPackOnly(array)
    view = view_of(foreign, "a")
    assert described(view) == ((3, 2), (4, 2), np.dtype("i2"), CPU, False, False)
    assert (view.pointer, view.owner) == (array.ctypes.data, foreign)


def test_dlpack_readonly_is_kept():
    array = np.zeros(3)
    array.flags.writeable = False
    assert view_of(DLPackOnly(array), "a").readonly


def test_what_dlpack_cannot_say_is_read_through_array_and_readonly():
    array = np.ones(3, BF16)
    view = view_of(WithNamespace(array), "a")
    assert described(view) == ((3,), (1,), BF16, CPU, True, True)
    assert view.pointer == array.ctypes.data
    assert array.flags.writeable
    with pytest.raises(NotAnArray, match="^a is a .*DLPackOnly that DLPack cannot import"):
        view_of(DLPackOnly(array), "a")


def test_dlpack_on_another_device_is_refused():
    with pytest.raises(NotAnArray, match="^a is a .*DLPackOnly on DLPack device type 8, expected"):
        view_of(DLPackOnly(np.zeros(3), device=(8, 0)), "a")


class Exporter:
    """Hands out memory that only the DLPack capsule holds."""

    def __init__(self):
        self.exported = None

    def __dlpack__(self, **options):
        array = np.arange(3.0).view(Watched)
        self.exported = weakref.ref(array)
        return array.__dlpack__(**options)

    def __dlpack_device__(self):
        return 1, 0


class Watched(np.ndarray):
    """An array that a weak reference can watch."""


def test_views_and_their_arrays_keep_imported_memory_alive():
    exporter = Exporter()
    view = view_of(exporter, "a")
    array = as_numpy(view)
    del view
    gc.collect()
    assert exporter.exported() is not None
    assert array.tolist() == [0.0, 1.0, 2.0]
    del array
    gc.collect()
    assert exporter.exported() is None


# ------------------------------------------------------------------------------------------------- as_numpy


@pytest.mark.parametrize(
    "index", [np.s_[:], np.s_[::-1], np.s_[:, ::-2], np.s_[1:3, 2:], np.s_[..., None, 1], np.s_[2, 3]]
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, BF16], ids=lambda d: np.dtype(d).name)
def test_as_numpy_is_the_same_memory(index, dtype):
    array = np.arange(20).reshape(4, 5).astype(dtype)
    part = np.asarray(array[index]) if array[index].ndim else array[2:3, 3:4].reshape(())
    result = as_numpy(view_of(part, "a"))
    assert (result.dtype, result.shape) == (part.dtype, part.shape)
    assert np.array_equal(result, part)
    result[...] = 77
    assert (part.astype(np.float64) == 77).all()
    assert (array.astype(np.float64) == 77).sum() == part.size


def test_as_numpy_of_torch_bf16_that_requires_grad():
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3).requires_grad_()
    array = as_numpy(view_of(tensor.T, "a"))
    assert array.dtype == BF16
    assert array.astype(np.float32).tolist() == [[0, 3], [1, 4], [2, 5]]
    array[0, 1] = 9
    assert tensor[1, 0].item() == 9


def test_as_numpy_keeps_readonly_and_refuses_a_gpu():
    array = np.zeros(3)
    array.flags.writeable = False
    assert not as_numpy(view_of(array, "a")).flags.writeable
    with pytest.raises(DeviceMismatch, match="CUDA device 1 cannot be read by the CPU"):
        as_numpy(view_of(cupy_at(0x1000, (3,), "f4", device=1), "a"))


# -------------------------------------------------------------------------------------------------- overlap


MEMORY = np.zeros(64, np.float32)


@pytest.mark.parametrize(
    "a, b, expected",
    [
        (MEMORY[:32], MEMORY[32:], False),
        (MEMORY[:33], MEMORY[32:], True),
        (MEMORY[::2], MEMORY[1::2], False),
        (MEMORY[::2], MEMORY[2::2], True),
        (MEMORY[:-1], MEMORY[1:], True),
        (MEMORY, MEMORY[::-1], True),
        (MEMORY[::-2], MEMORY[::2], False),
        (MEMORY[::-2], MEMORY[1::2], True),
        (MEMORY[31::-1], MEMORY[32:], False),
        (MEMORY.reshape(8, 8)[:, :4], MEMORY.reshape(8, 8)[:, 4:], False),
        (MEMORY.reshape(8, 8)[:, :5], MEMORY.reshape(8, 8)[:, 4:], True),
        (MEMORY.reshape(8, 8)[:4, :4].T, MEMORY.reshape(8, 8)[3:, 3:], True),
        (MEMORY[::3], MEMORY[1::6], False),
        (MEMORY[:0], MEMORY, False),
        (MEMORY, MEMORY.reshape(8, 8)[2:2], False),
        (MEMORY[5], MEMORY[4:6], False),
        (MEMORY[5:6].reshape(()), MEMORY[4:6], True),
        (MEMORY.view(np.uint8)[3:4], MEMORY[:1], True),
        (MEMORY.view(np.uint8)[4:5], MEMORY[:1], False),
        (np.broadcast_to(MEMORY[3], (2, 2)), np.broadcast_to(MEMORY[4:5], (3, 3)), False),
        (np.broadcast_to(MEMORY[4:5], (2, 2)), np.broadcast_to(MEMORY[4:5], (3, 3)), True),
    ],
)
def test_overlap(a, b, expected):
    a, b = view_of(np.asarray(a), "a"), view_of(np.asarray(b), "b")
    assert overlap(a, b) is expected
    assert overlap(b, a) is expected


def test_overlap_needs_one_device_and_no_memory():
    here, there = (view_of(CudaArray(0x7F0000000000, (8,), "<f4", device=n), "a") for n in (0, 1))
    assert overlap(here, here)
    assert not overlap(here, there)
    odd = view_of(CudaArray(0x7F0000000004, (4,), "<f4", strides=(8,)), "odd")
    even = view_of(CudaArray(0x7F0000000000, (4,), "<f4", strides=(8,)), "even")
    assert not overlap(odd, even)
    assert overlap(odd, here)


def test_overlap_that_is_too_hard_to_decide_is_overlap():
    hard = (1049, 1049, 1049)
    a = CudaArray(1 << 40, hard, "|u1", strides=(36674, 61119, 85569))
    b = CudaArray((1 << 40) + 64023025, (1049, 1049, 1), "|u1", strides=(12223, 12224, 1))
    assert overlap(view_of(a, "a"), view_of(b, "b"))


def test_overlap_of_a_broadcast_larger_than_any_array():
    wide = CudaArray(0x1000, (1 << 40, 1 << 40, 4), "<f4", strides=(0, 0, 8))
    between = CudaArray(0x1004, (4,), "<f4", strides=(8,))
    assert not overlap(view_of(wide, "a"), view_of(between, "b"))


@pytest.mark.parametrize(
    "shape, strides, expected",
    [
        ((4, 4), (4, 1), False),
        ((4, 4), (1, 4), False),
        ((4, 4), (-5, 1), False),
        ((4, 3), (8, -2), False),
        ((4, 4), (0, 1), True),
        ((1, 4), (0, 1), False),
        ((4, 4), (3, 1), True),
        ((4, 4), (1, 1), True),
        ((4, 4), (1, -1), True),
        ((3, 2), (2, 3), False),
        ((4, 2), (2, 3), False),
        ((4, 3), (2, 3), True),
        ((0, 4), (0, 0), False),
        ((), (), False),
    ],
)
def test_overlaps_itself(shape, strides, expected):
    array = CudaArray(0x10000, shape, "<f2", strides=tuple(2 * stride for stride in strides))
    assert overlaps_itself(view_of(array, "a")) is expected


axes = st.lists(st.tuples(st.integers(0, 4), st.integers(-7, 7)), min_size=1, max_size=3)


def addresses(view: View) -> list[int]:
    return [
        view.pointer + 2 * sum(i * stride for i, stride in zip(index, view.strides, strict=True))
        for index in itertools.product(*map(range, view.shape))
    ]


@settings(max_examples=300, deadline=None)
@given(axes, axes, st.integers(-20, 20))
def test_aliasing_agrees_with_listing_every_element(first, second, offset):
    a, b = (
        view_of(CudaArray(address, [n for n, _ in axes], "<f2", strides=[2 * s for _, s in axes]), "a")
        for address, axes in ((0x10000, first), (0x10000 + 2 * offset, second))
    )
    assert overlap(a, b) is bool(set(addresses(a)) & set(addresses(b)))
    assert overlaps_itself(a) is (len(set(addresses(a))) < len(addresses(a)))


# ----------------------------------------------------------------------------------------- families, streams


@pytest.mark.parametrize(
    "array, name",
    [
        (np.zeros(1), "numpy"),
        (np.zeros(1).view(np.memmap), "numpy"),
        (torch.zeros(1), "torch"),
        (torch.nn.Parameter(torch.zeros(1)), "torch"),
        (cupy_at(0x1000, (1,), "f4"), "cupy"),
        (CudaArray(0x1000, (1,), "<f4"), "cupy"),
        (WithNamespace(np.zeros(1)), "lab"),
        (DLPackOnly(np.zeros(1)), __name__.partition(".")[0]),
    ],
    ids=["numpy", "memmap", "torch", "parameter", "cupy", "interface", "namespace", "dlpack"],
)
def test_family_makes_writable_results_on_the_cpu(array, name):
    family = family_of(array)
    assert family.name == name
    assert family.current_stream(CPU) == 0
    view = view_of(family.empty((2, 3), BF16, CPU), "result")
    assert described(view) == ((2, 3), (3, 1), BF16, CPU, True, False)


def test_family_is_the_same_object_each_time():
    assert family_of(np.zeros(1)) is family_of(np.zeros(2))


def test_family_of_something_else():
    with pytest.raises(NotAnArray, match="^a list is not an array"):
        family_of([1.0])


def test_results_are_handed_back_as_the_callers_kind():
    for array in (np.zeros(2), torch.zeros(2), DLPackOnly(np.zeros(2))):
        made = family_of(array).empty((2,), np.dtype("f4"), CPU)
        assert family_of(array).hand_back(made) is made
    foreign = family_of(WithNamespace(np.zeros(2)))
    made = foreign.empty((2,), np.dtype("f4"), CPU)
    made[:] = 5
    back = foreign.hand_back(made)
    assert type(back) is WithNamespace
    assert np.shares_memory(back.array, made)


def test_results_that_dlpack_cannot_carry_are_handed_back_through_asarray():
    back = family_of(WithNamespace(np.zeros(2))).hand_back(np.ones(2, BF16))
    assert type(back) is WithNamespace
    assert (back.array.dtype, back.array.tolist()) == (BF16, [1, 1])


class Protocol:
    def __init__(self, version):
        self.version = version

    def __cuda_stream__(self):
        return self.version, 0xABC


@pytest.mark.parametrize(
    "stream, handle",
    [
        (0, 0),
        (np.uint64(7), 7),
        (Protocol(0), 0xABC),
        (types.SimpleNamespace(cuda_stream=5), 5),
        (types.SimpleNamespace(ptr=6), 6),
        (cupy.cuda.Stream.ptds, 2),
    ],
    ids=["integer", "numpy", "protocol", "torch", "ptr", "cupy"],
)
def test_stream_handle(stream, handle):
    assert stream_handle(stream) == handle


@pytest.mark.parametrize(
    "stream, message",
    [
        (None, "stream is a NoneType, expected a CUDA stream"),
        (True, "stream is a bool, expected a CUDA stream"),
        ("0", "stream is a str, expected a CUDA stream"),
        (Protocol(1), "stream is a .*Protocol, __cuda_stream__ version 1, expected 0"),
    ],
    ids=["None", "bool", "text", "version"],
)
def test_stream_handle_refused(stream, message):
    with pytest.raises(TypeError, match=f"^{message}"):
        stream_handle(stream)


def test_reading_numpy_imports_neither_torch_nor_cupy():
    program = (
        "import sys, numpy as np; from skuda.arrays.views import as_numpy, family_of, view_of;"
        "view = view_of(np.zeros(2), 'a'); as_numpy(view);"
        "family_of(view.owner).empty((2,), view.storage, -1);"
        "print(sorted({'torch', 'cupy', 'cuda'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
