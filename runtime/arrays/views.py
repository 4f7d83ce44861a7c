"""Arrays of every library as one thing: an address, a shape, strides and an element type.

NumPy, CuPy and torch arrays are read by their own attributes, any other through `__cuda_array_interface__`,
else through DLPack. Nothing is copied and no element is read: a `View` only describes memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np

from skuda.arrays.libraries import (
    CPU,
    READABLE,
    import_cupy,
    library_name,
    torch_storages,
    type_name,
)
from skuda.errors import DeviceMismatch, NotAnArray

_DLPACK_CPU = {1, 3}  # kDLCPU, kDLCUDAHost (pinned)
_DLPACK_CUDA = {2, 13}  # kDLCUDA, kDLCUDAManaged


class View:
    """What a kernel or the reference needs to know of an array.

    Attributes:
        pointer: address of element [0, ..., 0], also where strides are negative.
        shape: extents, in stored elements (a packed 4-bit array counts bytes).
        strides: distances in stored elements, one for each axis.
        storage: NumPy dtype of one stored element; ml_dtypes' for bf16 and fp8, uint8 for packed 4-bit.
        device: CUDA ordinal, or `CPU`.
        contiguous: whether the elements lie in C order without gaps, as NumPy says (extent-1 axes do not
            count, a view without elements is contiguous).
        readonly: whether the array refuses writes.
        owner: the caller's array, kept alive.
        imported: the array that DLPack made of `owner`, kept alive because it holds the memory; else None.
    """

    __slots__ = (
        "pointer", "shape", "strides", "storage", "device", "contiguous", "readonly", "owner", "imported"
    )

    def __init__(self, pointer, shape, strides, storage, device, contiguous, readonly, owner, imported=None):
        self.pointer = pointer
        self.shape = shape
        self.strides = strides
        self.storage = storage
        self.device = device
        self.contiguous = contiguous
        self.readonly = readonly
        self.owner = owner
        self.imported = imported

    def bounds(self) -> tuple[int, int]:
        """Address of the first byte, and of the one past the last; the same for a view without elements."""
        low = self.pointer
        itemsize = self.storage.itemsize
        if self.contiguous:
            return low, low + prod(self.shape) * itemsize
        high = low + itemsize
        for extent, stride in zip(self.shape, self.strides, strict=True):
            if stride > 0:
                high += (extent - 1) * stride * itemsize
            else:
                low += (extent - 1) * stride * itemsize
        return low, high


def view_of(array, name: str) -> View:
    """The view of an array, with no copy.

    A torch tensor's autograd history is ignored.

    A `__cuda_array_interface__` that names a stream is read after that stream's work is done: the call waits
    for it on the CPU, so give no such array while a CUDA graph is being captured (CuPy and torch arrays, and
    those that name no stream, never wait). Its device is what the array's `__dlpack_device__` says, else what
    the CUDA driver says of the address, else (no driver) 0.

    Args:
        array: a NumPy, CuPy or torch array, or one that has `__cuda_array_interface__` or DLPack.
        name: what to call the argument in an error.

    Raises:
        NotAnArray: it is none of these, or one whose memory cannot be described: sparse, quantized, masked,
            lazily negated, on an unknown device, with byte-swapped, structured, complex or object elements.
        MissingDependency: reading it needs CuPy.
    """
    reader = _READERS.get(type(array))
    if reader is None:
        reader = _READERS[type(array)] = _reader_of(type(array))
    return reader(array, name)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distances in elements along the axes of a C-contiguous array."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def with_axes(view: View, axes: tuple[int | None, ...]) -> View:
    """The view with these of its axes, in this order; any other has one element. None: one of one element more."""
    if axes == tuple(range(len(view.shape))):
        return view
    shape = tuple(1 if axis is None else view.shape[axis] for axis in axes)
    return _with(view, shape, tuple(0 if axis is None else view.strides[axis] for axis in axes))


def broadcast_to(view: View, shape: tuple[int, ...]) -> View:
    """The view in a shape that NumPy broadcasts it to: with stride 0 along what it repeats."""
    added = len(shape) - len(view.shape)
    if not added and view.shape == shape:
        return view
    repeated = [own == 1 and extent != 1 for own, extent in zip(view.shape, shape[added:], strict=True)]
    strides = [0 if again else stride for again, stride in zip(repeated, view.strides, strict=True)]
    return _with(view, shape, (0,) * added + tuple(strides))


def halves_of(view: View) -> tuple[View, View]:
    """The first and the second half of a view along its last axis, which has an even extent."""
    *outer, extent = view.shape
    first, second = (_with(view, (*outer, extent // 2), view.strides) for _ in range(2))
    second.pointer += extent // 2 * view.strides[-1] * view.storage.itemsize
    return first, second


def _with(view: View, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """A view of the same memory with another shape and other strides."""
    gapless, step = True, 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        gapless = gapless and (extent == 1 or stride == step)
        step *= extent
    contiguous = gapless or step == 0
    return View(
        view.pointer, shape, strides, view.storage, view.device, contiguous, view.readonly, view.owner, view.imported
    )


def as_numpy(view: View) -> np.ndarray:
    """A CPU view as an array over the same memory, with the same strides; it keeps the owner alive.

    Raises:
        DeviceMismatch: the view is of a GPU's memory.
    """
    if view.device != CPU:
        raise DeviceMismatch(f"an array on CUDA device {view.device} cannot be read by the CPU")
    from skuda.arrays.aliasing import array_at  # no GPU needs it

    itemsize = view.storage.itemsize
    byte_strides = tuple([stride * itemsize for stride in view.strides])
    return array_at(view.pointer, view.shape, byte_strides, itemsize, view.readonly, view).view(view.storage)


_READERS: dict[type, object] = {View: lambda view, _: view}  # type -> reader(array, name) -> View


def _reader_of(cls: type):
    # By name, for importing numpy.ma takes longer than all else of a first call.
    if any(base.__name__ == "MaskedArray" and base.__module__.startswith("numpy.ma") for base in cls.__mro__):
        return _refuse_masked
    readers = {"numpy": _read_numpy, "cupy": _read_cupy, "torch": _read_torch}
    return readers.get(library_name(cls), _read_protocol)


def _refuse_masked(array, name):
    raise NotAnArray(f"{name} is a {type_name(array)}, whose mask no kernel reads; give a plain array")


def _refuse_dtype(name, dtype) -> NotAnArray:
    if isinstance(dtype, np.dtype):
        swapped = READABLE[dtype.newbyteorder("=")]
        dtype = f"byte-swapped {dtype.name}" if swapped else str(dtype)
    return NotAnArray(f"{name} has {dtype} elements, expected native bool, integer or floating-point ones")


def _element_strides(byte_strides, itemsize, contiguous, name) -> tuple[int, ...]:
    if itemsize == 1:
        return byte_strides
    # The stride of a contiguous array's extent-1 axis means nothing; it need not be a whole number.
    if not contiguous and any(stride % itemsize for stride in byte_strides):
        raise NotAnArray(
            f"{name} has strides of {byte_strides} bytes, expected multiples of its {itemsize}-byte elements"
        )
    return tuple([stride // itemsize for stride in byte_strides])


def _read_numpy(array, name) -> View:
    storage = array.dtype
    if not READABLE[storage]:
        raise _refuse_dtype(name, storage)
    contiguous = array.flags.c_contiguous
    pointer, readonly = array.__array_interface__["data"]
    strides = _element_strides(array.strides, storage.itemsize, contiguous, name)
    return View(pointer, array.shape, strides, storage, CPU, contiguous, readonly, array)


def _read_cupy(array, name) -> View:
    storage = array.dtype
    if not READABLE[storage]:
        raise _refuse_dtype(name, storage)
    memory = array.data
    contiguous = array.flags.c_contiguous
    strides = _element_strides(array.strides, storage.itemsize, contiguous, name)
    return View(memory.ptr, array.shape, strides, storage, memory.device_id, contiguous, False, array)


def _read_torch(tensor, name) -> View:
    storage = torch_storages().get(tensor.dtype)
    if storage is None:
        raise _refuse_dtype(name, tensor.dtype)
    if tensor.is_cuda:
        device = tensor.get_device()
    elif tensor.is_cpu:
        device = CPU
    else:
        raise NotAnArray(f"{name} is a torch tensor on device {tensor.device}, expected cpu or cuda")
    try:
        pointer = tensor.data_ptr()
        shape = tuple(tensor.shape)
        strides = tensor.stride()
        contiguous = tensor.is_contiguous()
    except RuntimeError as cause:  # sparse, nested, mkldnn, or inside a function transform
        raise _refuse_torch(tensor, name) from cause
    # A conjugate's imaginary part is a real tensor whose sign waits to be flipped; a fake or wrapped tensor
    # has no memory of its own.
    if tensor.is_neg() or (pointer == 0 and 0 not in shape):
        raise _refuse_torch(tensor, name)
    return View(pointer, shape, strides, storage, device, contiguous, False, tensor)


def _refuse_torch(tensor, name) -> NotAnArray:
    layout = str(tensor.layout)
    if layout != "torch.strided":
        return NotAnArray(f"{name} is a torch tensor of layout {layout}, expected torch.strided")
    if tensor.is_nested:
        return NotAnArray(f"{name} is a nested torch tensor, expected a dense one")
    if tensor.is_neg():
        return NotAnArray(f"{name} is a torch tensor with its negative bit set; give its .resolve_neg()")
    return NotAnArray(f"{name} is a {type_name(tensor)} that has no memory (fake, wrapped or traced)")


def _read_protocol(array, name) -> View:
    # Asked of the array, not of its type: JAX's one array type has the interface only for arrays on a GPU.
    interface = getattr(array, "__cuda_array_interface__", None)
    has_dlpack = hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")
    if interface is None and not has_dlpack:
        raise NotAnArray(
            f"{name} is a {type_name(array)}, expected an array (NumPy, CuPy, torch, DLPack or "
            "__cuda_array_interface__)"
        )
    if interface is None:
        return _read_dlpack(array, name)
    try:
        storage = np.dtype(interface["typestr"])
        if not READABLE[storage] and has_dlpack:
            return _read_dlpack(array, name)  # a typestr cannot spell bf16 or fp8, DLPack can
        return _read_interface(array, interface, storage, name)
    except NotAnArray:
        raise
    except (KeyError, TypeError, ValueError) as cause:
        raise NotAnArray(f"{name} has a malformed __cuda_array_interface__: {cause!r}") from cause


def _read_interface(array, interface, storage, name) -> View:
    if not READABLE[storage]:
        raise _refuse_dtype(name, storage)
    if interface.get("mask") is not None:
        raise NotAnArray(f"{name} has a __cuda_array_interface__ with a mask, which no kernel reads")
    pointer, readonly = interface["data"]
    shape = tuple(interface["shape"])
    byte_strides = interface.get("strides")
    row_major = _row_major(shape)
    if byte_strides is None:
        strides, contiguous = row_major, True
    else:
        axes = list(zip(shape, byte_strides, row_major, strict=True))
        contiguous = 0 in shape or all(n == 1 or step == dense * storage.itemsize for n, step, dense in axes)
        strides = _element_strides(tuple(byte_strides), storage.itemsize, contiguous, name)
    stream = interface.get("stream")
    if stream is not None:
        _wait_for(stream, name)
    device = _ordinal(array, pointer, name)
    return View(pointer, shape, strides, storage, device, contiguous, bool(readonly), array)


def _row_major(shape) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1:]) for axis in range(len(shape)))


def _ordinal(array, pointer, name) -> int:
    """The CUDA device of an address: the interface does not tell."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[1])
    driver = _driver()
    if driver is None or pointer == 0:
        return 0
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, ordinal = driver.cuPointerGetAttribute(attribute, pointer)
    if status != driver.CUresult.CUDA_SUCCESS or ordinal < 0:
        raise NotAnArray(
            f"{name} has a __cuda_array_interface__ at address {pointer:#x}, which is on no CUDA device"
        )
    return ordinal


def _wait_for(stream, name) -> None:
    driver = _driver()
    if driver is None:
        return  # no GPU, so no work that could be pending
    (status,) = driver.cuStreamSynchronize(stream)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise NotAnArray(
            f"{name}: waiting for stream {stream:#x} of its __cuda_array_interface__ failed: {status.name}"
        )


@cache
def _driver():
    """The CUDA driver's module, or None where there is no driver or no GPU."""
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError):
        return None
    return driver if status == driver.CUresult.CUDA_SUCCESS else None


def _read_dlpack(array, name) -> View:
    try:
        kind = int(array.__dlpack_device__()[0])
    except Exception as cause:  # a foreign library may raise anything
        raise NotAnArray(f"{name} is a {type_name(array)} that does not tell its device: {cause}") from cause
    if kind in _DLPACK_CUDA:
        imported = _import_dlpack(import_cupy().from_dlpack, array, name)
        view = _read_cupy(imported, name)
    elif kind in _DLPACK_CPU:
        imported = _import_dlpack(np.from_dlpack, array, name)
        view = _read_numpy(imported, name)
    else:
        raise NotAnArray(f"{name} is a {type_name(array)} on DLPack device type {kind}, expected CPU or CUDA")
    view.owner, view.imported = array, imported
    return view


def _import_dlpack(from_dlpack, array, name):
    try:
        return from_dlpack(array)
    except Exception as cause:
        # NumPy's DLPack knows no bf16, which JAX hands out through __array__. What that returns may be a
        # copy, whose writes the caller would never see: so nobody may write to it.
        if from_dlpack is not np.from_dlpack or not hasattr(array, "__array__"):
            raise NotAnArray(f"{name} is a {type_name(array)} that DLPack cannot import: {cause}") from cause
    imported = np.asarray(array).view()
    imported.flags.writeable = False
    return imported
