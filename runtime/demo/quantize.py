"""Quantize one weight: choose its scales and zero points, then call skuda on the GPU or the CPU reference."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import skuda
from skuda.arrays.libraries import import_cupy
from skuda.errors import DeviceMismatch, InvalidProblem
from skuda.launch.kernel import cuda_available
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE, DType

GRANULARITIES = ("per_tensor", "per_channel", "per_token", "per_group")
ELEMENTS = ("s8", "u8", "s4", "u4")
FLOATS = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True)
class Scheme:
    """How a weight is quantized.

    Attributes:
        granularity: which elements share a scale: `per_tensor` all, `per_channel` those of one index of axis
            0, `per_token` one row along the last axis, `per_group` `group_size` neighbours in such a row.
        element: `s8` or `s4` (symmetric, zero point 0), `u8` or `u4` (from the least to the greatest value).
        group_size: elements of a group, per_group only; a row may end in a shorter group.
    """

    granularity: str
    element: str
    group_size: int = 128

    @classmethod
    def parse(cls, text: str, group_size: int = 128) -> Scheme:
        """Read `per_channel:s8`.

        Raises:
            InvalidProblem: no such scheme, or a group size below 1.
        """
        granularity, _, element = text.partition(":")
        if granularity not in GRANULARITIES or element not in ELEMENTS:
            raise InvalidProblem(
                f"unknown scheme `{text}`, expected GRANULARITY:TYPE, where GRANULARITY is one of "
                f"{' '.join(GRANULARITIES)} and TYPE one of {' '.join(ELEMENTS)}"
            )
        if group_size < 1:
            raise InvalidProblem(f"group size is {group_size}, expected 1 or more")
        return cls(granularity, element, group_size)

    def __str__(self) -> str:
        return f"{self.granularity}:{self.element}"

    @property
    def dtype(self) -> DType:
        """The integer type of the codes."""
        return DTYPES[self.element]

    @property
    def symmetric(self) -> bool:
        """Whether every zero point is 0."""
        return self.dtype.signed

    def applies_to(self, array: np.ndarray) -> bool:
        """Whether a tensor is a weight: floating, of two axes or more, with elements. All others are kept."""
        return WORD_OF_STORAGE.get(array.dtype) in FLOATS and array.ndim >= 2 and array.size > 0

    def scale_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a weight's scales and zero points."""
        if self.granularity == "per_tensor":
            return (1,)
        if self.granularity == "per_channel":
            return shape[:1]
        if self.granularity == "per_token":
            return shape[:-1]
        return (*shape[:-1], -(-shape[-1] // self.group_size))

    def code_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a weight's stored codes: 4-bit ones lie two to a byte along the last axis."""
        return (*shape[:-1], -(-shape[-1] // 2)) if self.dtype.packed else shape

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Scales or zero points as an array that broadcasts against the weight."""
        if self.granularity == "per_tensor":
            return parameter
        if self.granularity == "per_channel":
            return parameter.reshape(-1, *(1,) * (len(shape) - 1))
        if self.granularity == "per_token":
            return parameter[..., None]
        return np.repeat(parameter, self.group_size, axis=-1)[..., : shape[-1]]

    def reduce(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        """The maximum or minimum of the elements that share a scale."""
        if self.granularity == "per_tensor":
            return ufunc.reduce(values, axis=None).reshape(1)
        if self.granularity == "per_channel":
            return ufunc.reduce(values.reshape(len(values), -1), axis=1)
        if self.granularity == "per_token":
            return ufunc.reduce(values, axis=-1)
        return ufunc.reduceat(values, np.arange(0, values.shape[-1], self.group_size), axis=-1)

    def keywords(self) -> dict[str, int]:
        """What skuda's functions of this granularity are told beside the arrays."""
        if self.granularity == "per_channel":
            return {"axis": 0}
        return {"group_size": self.group_size} if self.granularity == "per_group" else {}


@dataclass(frozen=True)
class Quantized:
    """A quantized weight.

    Attributes:
        codes: int8 or uint8 of the weight's shape; 4-bit ones packed two to a byte along the last axis.
        scale: f32 (f64 for a f64 weight), of the scheme's scale shape.
        zero_point: i32 of that shape, or None where the scheme is symmetric and all are 0.
        shape: the weight's shape.
        element: the word of the weight's own type, such as `f16`.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray | None
    shape: tuple[int, ...]
    element: str

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points; a stored zero point takes one byte."""
        return (
            self.codes.nbytes + self.scale.nbytes + (0 if self.zero_point is None else self.zero_point.size)
        )


@dataclass(frozen=True)
class Backend:
    """Where skuda runs.

    Attributes:
        name: what to call it in a report.
        upload: NumPy array to one of the backend's.
        download: the way back.
        wait: returns when the work that was started is done.
        compiles: whether the first call of a kernel compiles it.
    """

    name: str
    upload: Callable
    download: Callable
    wait: Callable[[], None]
    compiles: bool


def backend(device: str = "auto") -> Backend:
    """The GPU's or the CPU's backend.

    Args:
        device: `cpu`, `cuda`, or `auto` for the GPU if there is one.

    Raises:
        DeviceMismatch: `cuda` without a GPU that can be used.
    """
    if device == "cpu" or (device == "auto" and not cuda_available()):
        return Backend("CPU reference (NumPy)", np.asarray, np.asarray, lambda: None, compiles=False)
    if not cuda_available():
        raise DeviceMismatch(
            "device cuda: no GPU can be used (`skuda doctor` tells why); expected --device auto or cpu"
        )
    cupy = import_cupy()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    name = properties["name"].decode()
    return Backend(
        name, cupy.asarray, cupy.asnumpy, cupy.cuda.get_current_stream().synchronize, compiles=True
    )


def widened(weight: np.ndarray) -> np.ndarray:
    """A weight in the type that skuda computes in: f64 for f64, else f32. Exact."""
    return weight if weight.dtype == np.float64 else weight.astype(np.float32, copy=False)


def parameters(values: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points of a weight, from its finite values.

    Symmetric: scale = absmax / q_max, zero point 0. Otherwise the range of the codes spans the values and 0,
    which so has a code of its own. All-zero elements get scale 1. A scale is never below the smallest normal
    number, where it would lose the bits that keep the error within half of it.

    Args:
        values: the weight, widened.
        scheme: which elements share a scale, and the type of the codes.

    Returns:
        scale, of the type of `values`, and zero_point, i32, both of the scheme's scale shape.
    """
    finite = np.isfinite(values)
    if not finite.all():
        values = np.where(finite, values, values.dtype.type(0))
    q_max = values.dtype.type(scheme.dtype.highest)
    if scheme.symmetric:
        high = scheme.reduce(np.maximum, np.abs(values))
        low, span = -high, high / q_max
    else:
        low = np.minimum(scheme.reduce(np.minimum, values), 0)
        high = np.maximum(scheme.reduce(np.maximum, values), 0)
        span = high / q_max - low / q_max  # not (high - low) / q_max, whose difference may overflow
    one, least = span.dtype.type(1), np.finfo(span.dtype).tiny
    scale = np.where(low == high, one, np.maximum(span, least))
    if scheme.symmetric:
        return scale, np.zeros(scale.shape, np.int32)
    return scale, np.clip(np.rint(-low / scale), 0, q_max).astype(np.int32)


def quantize(weight: np.ndarray, scheme: Scheme, on: Backend) -> tuple[Quantized, float]:
    """Quantize a weight.

    A value that is not finite follows skuda's rules: NaN takes the code of 0, an infinity the outermost code.

    Args:
        weight: f64, f32, f16 or bf16, two axes or more.
        scheme: how.
        on: where.

    Returns:
        The quantized weight, and the seconds that skuda took, without transfers and compilation.
    """
    scale, zero_point = parameters(widened(weight), scheme)
    function = getattr(skuda, f"quantize_{scheme.granularity}")
    arguments = [on.upload(array) for array in (weight, scale, zero_point)]
    for _ in range(2 if on.compiles else 1):  # the last call counts
        on.wait()
        start = time.perf_counter()
        codes = function(*arguments, dtype=scheme.element, **scheme.keywords())
        on.wait()
    seconds = time.perf_counter() - start
    element = WORD_OF_STORAGE[weight.dtype]
    stored = None if scheme.symmetric else zero_point
    return Quantized(on.download(codes), scale, stored, weight.shape, element), seconds


def dequantize(quantized: Quantized, scheme: Scheme, on: Backend) -> np.ndarray:
    """The weight that the codes stand for, with its shape and type."""
    zero_point = quantized.zero_point
    if zero_point is None:
        zero_point = np.zeros(quantized.scale.shape, np.int32)
    function = getattr(skuda, f"dequantize_{scheme.granularity}")
    packed = {"input_dtype": scheme.element, "shape": quantized.shape} if scheme.dtype.packed else {}
    weight = function(
        *(on.upload(array) for array in (quantized.codes, quantized.scale, zero_point)),
        dtype=quantized.element,
        **packed,
        **scheme.keywords(),
    )
    return on.download(weight)
