"""The libraries that arrays come from: how to tell them, what makes their results, which stream they work on.

A library is recognised by the name of its class and imported only when something must be made with it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from skuda.errors import MissingDependency, NotAnArray, NotAStream, shown
from skuda.model.dtypes import DTYPES, OfDtypes, dtype_named

CPU = -1  # device of memory that the CPU reads; a CUDA device is its ordinal

_OTHERS = "uint16 uint64 float8_e4m3fnuz float8_e5m2fnuz".split()  # that are no element types
_NAMES = frozenset([*_OTHERS, *[dtype.name for dtype in DTYPES.values() if not dtype.packed]])
_BYTE = np.dtype(np.uint8)
# Whether a view may have such elements. Byte-swapped dtypes are not equal to those of their names.
READABLE = OfDtypes(lambda storage: (storage.name in _NAMES and storage == dtype_named(storage.name)) or None)
# What CuPy has arrays of: floats of 8 bits travel as bytes there.
_IN_CUPY = OfDtypes(lambda storage: _BYTE if storage.name.startswith("float8") else storage)


def library_name(cls: type) -> str | None:
    """The library ("numpy", "cupy", "torch") whose array type this is or derives from; None for others."""
    known = {("numpy", "ndarray"): "numpy", ("cupy", "ndarray"): "cupy", ("torch", "Tensor"): "torch"}
    names = ((base.__module__, base.__name__) for base in cls.__mro__)
    return next((known[name] for name in names if name in known), None)


def type_name(array) -> str:
    """The full name of an object's type, for messages."""
    cls = type(array)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def import_cupy():
    """CuPy, imported when it is first needed."""
    try:
        import cupy
    except ImportError as cause:
        raise MissingDependency("arrays on a GPU need CuPy: pip install 'skuda[cuda13]'") from cause
    return cupy


def cupy_dtype(storage: np.dtype) -> np.dtype:
    """What CuPy's arrays of an element have as `dtype`: uint8 for floats of 8 bits."""
    return _IN_CUPY[storage]


@cache
def torch_storages() -> dict[object, np.dtype]:
    """torch dtype -> NumPy dtype, as far as this torch knows them."""
    import torch

    return {getattr(torch, name): dtype_named(name) for name in _NAMES if hasattr(torch, name)}


@cache
def torch_dtypes() -> dict[np.dtype, object]:
    """NumPy dtype -> torch dtype."""
    return {storage: dtype for dtype, storage in torch_storages().items()}


def order_in_memory(strides) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of an array from the one of the longest steps on, and where each of its axes is among these."""
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    return tuple(order), tuple([order.index(axis) for axis in range(len(order))])


class Library:
    """The library that a caller's arrays come from, and that results are made with. This base is NumPy's.

    Attributes:
        name: "numpy", "cupy", "torch", or the top-level module of a DLPack array's library ("jax").
    """

    name = "numpy"
    followers: dict[str, Any] = {}  # what asks a framework about a call; nothing follows these arrays

    @staticmethod
    def contiguous_on_cpu(shape, strides, dtype):
        """An uninitialised contiguous array of the library's own on the CPU."""
        return np.empty(shape, dtype)

    def empty(self, shape, storage, device):
        """An uninitialised C-contiguous array on a CUDA ordinal or the CPU, which a plan may write to."""
        return np.empty(shape, storage)

    def permuted(self, shape, strides, storage, device):
        """As `empty`, but not in C order: without gaps, its axes in the order of these strides."""
        order, back = order_in_memory(strides)
        return self.empty(tuple([shape[axis] for axis in order]), storage, device).transpose(back)

    def current_stream(self, device) -> int:
        """Handle of the stream that the library works on now in this thread; 0 for the CPU."""
        return 0

    def scratch(self, size: int, device, stream: int):
        """So many bytes on a CUDA ordinal or the CPU, for what is enqueued on a stream before the array is dropped:
        nothing on another stream gets the memory meanwhile."""
        return np.empty(size, _BYTE)

    def element(self, value: np.ndarray, device, stream: int):
        """The bits of one value in an array of integers on a CUDA ordinal, for what is enqueued as `scratch` says."""
        raise NotImplementedError  # the CPU takes the value

    def wrote(self, arrays):
        """Tells the library that arrays of its own have been written without its knowledge."""

    def follows(self, values) -> bool:
        """Whether the library would have to know of a call with these values: it records gradients, or transforms."""
        return False

    def hand_back(self, array, stream: int = 0):
        """An array made by `empty`, as the caller's kind; what fills it has been given to `stream`."""
        return array


class _CuPy(Library):
    name = "cupy"

    @cached_property
    def current(self):
        """What gives the current stream of a device, as an object with `ptr`."""
        return self._cupy.cuda.get_current_stream

    @cached_property
    def _cupy(self):
        return import_cupy()

    @staticmethod
    def is_contiguous(array) -> bool:
        """Whether an array of its own lies in C order."""
        return array.flags.c_contiguous

    def contiguous(self, shape, strides, dtype):
        """An uninitialised contiguous array on the device that is current."""
        return self._cupy.empty(shape, dtype)

    def empty(self, shape, storage, device):
        if device == CPU:
            return np.empty(shape, storage)
        cupy = self._cupy
        storage = cupy_dtype(storage)
        if cupy.cuda.runtime.getDevice() == device:
            return cupy.empty(shape, storage)
        with cupy.cuda.Device(device):
            return cupy.empty(shape, storage)

    def current_stream(self, device) -> int:
        if device == CPU:
            return 0
        return self.current(device).ptr

    def scratch(self, size: int, device, stream: int):
        if stream == self.current_stream(device):
            return self.empty((size,), np.dtype(np.uint8), device)
        with self._cupy.cuda.Device(device), self._cupy.cuda.Stream.from_external(_Stream(stream)):
            return self.empty((size,), np.dtype(np.uint8), device)

    def element(self, value: np.ndarray, device, stream: int):
        bits = _bits(value)
        with self._cupy.cuda.Device(device), self._cupy.cuda.Stream.from_external(_Stream(stream)):
            return self._cupy.full((), bits.item(), bits.dtype)


def _bits(value: np.ndarray) -> np.ndarray:
    """One value as an integer of as many bits, which every library can fill arrays with."""
    return value.view(f"i{value.itemsize}")


# What asks torch whether something but autograd follows a call, by the names that a fast path calls them by.
WATCHERS = ("dispatch_modes", "function_modes", "transforms", "autocast", "forward")


def _followers(torch) -> dict[str, Any]:
    """What asks torch whether gradients are recorded, and each of WATCHERS; `levels` of forward gradients; what tells
    tensors that are alike, and what stands for that before there are any."""
    level = torch.autograd.forward_ad
    asks = (
        torch._C._len_torch_dispatch_stack,
        torch._C._is_torch_function_mode_enabled,
        torch._C._are_functorch_transforms_active,
        torch._C._is_any_autocast_enabled,
        lambda: level._current_level >= 0,
    )
    own = {"gradients": torch.is_grad_enabled, "levels": level, "alike_of": _alike_of, "unknown": (None, False)}
    return own | dict(zip(WATCHERS, asks, strict=True))


def _alike_of(tensors: tuple) -> Callable[..., bool]:
    """What tells in one step whether other tensors are like these: TorchDynamo's guard of a compiled call.

    They then have the same types, element types, shapes, strides, devices, `requires_grad` and dispatch keys.
    Transforms, inference mode and autocast change those keys. Not each mode does, so modes are asked in every call. It
    takes a quarter of the time of reading all of these in Python.
    """
    import torch

    try:
        shapes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
        guards = torch._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides
        )
        return guards.check if guards.check(*tensors) is True else _differ
    except (AttributeError, TypeError, RuntimeError):  # another torch
        return _differ


def _differ(*tensors) -> bool:
    return False


class _Torch(Library):
    name = "torch"

    def __init__(self):
        import torch

        self._torch = torch
        # What Triton asks too: a twentieth of the time of torch.cuda.current_stream, which makes an object.
        raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self.current = raw_stream or (lambda device: torch.cuda.current_stream(device).cuda_stream)
        # Autograd refuses to use a tensor that it has saved if the version has changed since.
        self.wrote = torch.autograd.graph.increment_version
        try:  # what that calls, in half of the time
            torch._C._increment_version(())
            self.wrote = torch._C._increment_version
        except (AttributeError, TypeError):
            pass
        self.followers = _followers(torch)
        self._watchers = tuple([self.followers[name] for name in WATCHERS])
        # What Inductor allocates with: a fifth of the time of torch.empty, on the device that is current.
        guards = torch._C._dynamo.guards
        self.contiguous = getattr(guards, "_empty_strided_cuda", partial(self._contiguous, "cuda"))
        self.contiguous_on_cpu = getattr(guards, "_empty_strided_cpu", partial(self._contiguous, "cpu"))

    @staticmethod
    def is_contiguous(array) -> bool:
        try:
            return array.is_contiguous()
        except RuntimeError:  # it has no strides, and the check of operands refuses it
            return True

    def empty(self, shape, storage, device):
        torch = self._torch
        return torch.empty(shape, dtype=torch_dtypes()[storage], device=self._device(device))

    def _device(self, device):
        return self._torch.device("cpu") if device == CPU else self._torch.device("cuda", device)

    def permuted(self, shape, strides, storage, device):
        dtype = torch_dtypes()[storage]
        return self._torch.empty_strided(shape, strides, dtype=dtype, device=self._device(device))

    def _contiguous(self, device, shape, strides, dtype):
        return self._torch.empty_strided(shape, strides, dtype=dtype, device=device)

    def watched(self) -> bool:
        """Whether a mode, a function transform, autocast or forward gradients are active."""
        modes, functions, transforms, autocast, forward = self._watchers
        return modes() or functions() or transforms() or autocast() or forward()

    def follows(self, values) -> bool:
        recorded = self.followers["gradients"]() and self._torch._C._any_requires_grad(*values)
        return recorded or self.watched()

    def current_stream(self, device) -> int:
        if device == CPU:
            return 0
        return self.current(device)

    def scratch(self, size: int, device, stream: int):
        if stream == self.current_stream(device):
            return self.empty((size,), np.dtype(np.uint8), device)
        cuda = self._torch.cuda
        with cuda.stream(cuda.ExternalStream(stream, device=device)):
            return self.empty((size,), np.dtype(np.uint8), device)

    def element(self, value: np.ndarray, device, stream: int):
        cuda, bits = self._torch.cuda, _bits(value)
        current = stream == self.current_stream(device)
        with nullcontext() if current else cuda.stream(cuda.ExternalStream(stream, device=device)):
            dtype = torch_dtypes()[bits.dtype]
            return self._torch.full((), bits.item(), dtype=dtype, device=self._torch.device("cuda", device))


class _Stream:
    """A handle as CuPy takes one in."""

    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


class _DLPack(_CuPy):
    """Results are NumPy's or CuPy's while they are filled, for the caller's may be immutable (JAX's are)."""

    def __init__(self, array):
        if hasattr(array, "__array_namespace__"):
            self._namespace = array.__array_namespace__()
        else:
            self._namespace = sys.modules.get(type(array).__module__.partition(".")[0])
        self.name = getattr(self._namespace, "__name__", type(array).__module__).partition(".")[0]

    def permuted(self, shape, strides, storage, device):
        return self.empty(shape, storage, device)  # what is handed over may have to lie in C order

    def hand_back(self, array, stream: int = 0):
        if not hasattr(self._namespace, "from_dlpack"):
            return array
        if isinstance(array, np.ndarray):
            return self._convert(array)
        # CuPy makes the importer wait for its current stream, so the one that fills the array must be that.
        with self._cupy.cuda.Stream.from_external(_Stream(stream)):
            return self._convert(array)

    def _convert(self, array):
        try:
            return self._namespace.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError):  # NumPy's DLPack knows no bf16
            return self._namespace.asarray(array) if hasattr(self._namespace, "asarray") else array


FRAMEWORKS = ("torch", "jax")  # subpackages of skuda carry calls through these: see `plans.functions.CARRIERS`
_FRAMEWORKS: dict[type, str | None] = {}


def framework_of(value, free: bool) -> str | None:
    """The framework that may have to know of a call with a value; None where the value is viewed.

    JAX takes those that it traces, and arrays on several devices, for these have no memory that could be viewed. It
    also takes arrays on a GPU where it may: results then lie in its own memory, and it has taken most of a GPU's.

    Args:
        value: an input of the call.
        free: whether the call says neither what to write nor on which stream.
    """
    cls = type(value)
    if cls not in _FRAMEWORKS:
        names = {library_name(cls), cls.__module__.partition(".")[0].removesuffix("lib")}
        _FRAMEWORKS[cls] = next((each for each in FRAMEWORKS if each in names), None)
    found = _FRAMEWORKS[cls]
    return None if found == "jax" and not _is_for_jax(value, free) else found


def _is_for_jax(value, free: bool) -> bool:
    jax = sys.modules["jax"]
    if isinstance(value, jax.core.Tracer):
        return True
    devices = value.sharding.device_set if isinstance(value, jax.Array) else ()
    return len(devices) > 1 or (free and any(device.platform != "cpu" for device in devices))


_LIBRARIES: dict[type, Library] = {}


def library_of(array) -> Library:
    """The library that results for this array are allocated in.

    An array that has only `__cuda_array_interface__` gets CuPy's. Other DLPack arrays get results through the
    `from_dlpack` of their `__array_namespace__()`, or of the top-level module of their type; a library
    without one gets NumPy or CuPy arrays.

    Raises:
        NotAnArray: it is not an array.
    """
    library = _LIBRARIES.get(type(array))
    if library is None:
        library = _LIBRARIES[type(array)] = _library(array)
    return library


def library_of_plain(cls: type) -> Library:
    """The library of a class that `plain_library` knows."""
    library = _LIBRARIES.get(cls)
    if library is None:
        library = _LIBRARIES[cls] = library_named(plain_library(cls))
    return library


def library_named(name: str) -> Library:
    """NumPy, CuPy or torch, where no array shows which: "numpy", "cupy" or "torch"."""
    return {"numpy": Library, "cupy": _CuPy, "torch": _Torch}[name]()


_KNOWN = {
    ("numpy", "ndarray"): "numpy",
    ("cupy", "ndarray"): "cupy",
    ("torch", "Tensor"): "torch",
    ("torch.nn.parameter", "Parameter"): "torch",
}
PLAIN: dict[type, str] = {}  # the classes that `plain_library` has found to be plain, and their libraries


def plain_library(cls: type) -> str | None:
    """ "numpy", "cupy" or "torch" for their own array classes, whose behaviour is known; None for others, derived ones
    too."""
    library = PLAIN.get(cls)
    if library is None:
        library = _KNOWN.get((cls.__module__, cls.__name__))
        if library is not None:
            PLAIN[cls] = library
    return library


def _library(array) -> Library:
    known = library_name(type(array))
    if known is not None:
        return library_named(known)
    if hasattr(array, "__dlpack__"):
        return _DLPack(array)
    if hasattr(array, "__cuda_array_interface__"):
        return _CuPy()
    raise NotAnArray(f"a {type_name(array)} is not an array")


# What a library's arrays of an element have as `dtype`.
dtype_of: dict[str, Callable[[np.dtype], Any]] = {
    "numpy": lambda storage: storage,
    "cupy": cupy_dtype,
    "torch": lambda storage: torch_dtypes()[storage],
}

_address_at = ctypes.c_size_t.from_address
_BEFORE_DATA = object.__basicsize__  # NumPy's C interface has an array's address behind the head of the object


def _pointer_in(array: np.ndarray) -> int:
    return _address_at(id(array) + _BEFORE_DATA).value


def _pointer_asked(array: np.ndarray) -> int:
    return array.ctypes.data


def _reader_of_pointers() -> Callable[[np.ndarray], int]:
    sample = np.empty(1)
    known = sys.implementation.name == "cpython" and _pointer_in(sample) == _pointer_asked(sample)
    return _pointer_in if known else _pointer_asked


# The address of a NumPy array's elements. Where it is known to lie, reading it takes a fifth of the time of asking.
pointer_of = _reader_of_pointers()

# The device of a plain array or tensor, by its library.
device_of: dict[str, Callable[[Any], int]] = {
    "numpy": lambda array: CPU,
    "cupy": lambda array: array.data.device_id,
    "torch": lambda tensor: tensor.get_device(),
}


def mark_written(arrays) -> None:
    """Tells torch which of some arrays are tensors that have been written: their versions increase."""
    tensors = [array for array in arrays if (PLAIN.get(type(array)) or library_name(type(array))) == "torch"]
    if tensors:
        library_of(tensors[0]).wrote(tensors)


def is_tracked(array) -> bool:
    """Whether it is a torch tensor that autograd follows now: what is written to it would make gradients wrong."""
    if getattr(array, "requires_grad", False) is not True or library_name(type(array)) != "torch":
        return False
    return sys.modules["torch"].is_grad_enabled()


def stream_handle(stream) -> int:
    """The CUDA handle of a stream: an integer is one already.

    Args:
        stream: an integer, an object with `__cuda_stream__()` (cuda.core, CuPy 14, torch), `.cuda_stream`
            (torch) or `.ptr` (CuPy).

    Raises:
        NotAStream: it is none of these.
    """
    if isinstance(stream, (int, np.integer)) and not isinstance(stream, bool):
        if not -(1 << 63) <= stream < 1 << 64:
            raise NotAStream(f"stream is {shown(stream)}, expected a CUDA stream's handle, an integer of 64 bits")
        return int(stream)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        try:
            version, handle = protocol()
            handle = int(handle)
        except Exception as cause:  # a class itself, or what a foreign library raises
            raise NotAStream(f"stream is a {type_name(stream)} whose __cuda_stream__ fails: {cause!r}") from cause
        if version != 0:
            raise NotAStream(f"stream is a {type_name(stream)}, __cuda_stream__ version {version}, expected 0")
        return handle
    for attribute in ("cuda_stream", "ptr"):
        handle = getattr(stream, attribute, None)
        if isinstance(handle, int):
            return handle
    raise NotAStream(
        f"stream is a {type_name(stream)}, expected a CUDA stream: an integer handle, an object with "
        "__cuda_stream__, or a CuPy or torch stream"
    )
