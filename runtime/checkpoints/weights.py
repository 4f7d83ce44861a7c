"""Quantize one weight: choose its scales and zero points, then call skuda on the GPU or the CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import skuda
from skuda.arrays.libraries import import_cupy
from skuda.checkpoints.scheme import Quantized, Scheme
from skuda.errors import DeviceMismatch
from skuda.launch.kernel import cuda_available
from skuda.model.dtypes import WORD_OF_STORAGE

DEVICES = ("auto", "cpu", "cuda")
BLOCK = 1 << 22  # elements of a weight that are quantized at once


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


def backend(device: str = "auto", number: int | None = None) -> Backend:
    """The GPU's or the CPU's backend.

    Args:
        device: `cpu`, `cuda`, or `auto` for the GPU if there is one.
        number: of the worker that asks: the GPU of that number, counted in a circle, becomes the current one. None
            leaves the current one.

    Raises:
        DeviceMismatch: `cuda` without a GPU that can be used.
    """
    if device == "cpu" or (device == "auto" and not cuda_available()):
        return Backend("the CPU", np.asarray, np.asarray, lambda: None, compiles=False)
    if not cuda_available():
        raise DeviceMismatch(
            "device cuda: no GPU can be used (`skuda doctor` tells why); expected --device auto or cpu"
        )
    cupy = import_cupy()
    if number is not None:
        cupy.cuda.Device(number % cupy.cuda.runtime.getDeviceCount()).use()
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    name = properties["name"].decode()
    return Backend(
        name, cupy.asarray, cupy.asnumpy, cupy.cuda.get_current_stream().synchronize, compiles=True
    )


def widened(weight: np.ndarray) -> np.ndarray:
    """A weight in the type that skuda computes in: f64 for f64, else f32. Exact."""
    return weight if weight.dtype == np.float64 else weight.astype(np.float32, copy=False)


def extremes(values: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of those that share a scale, finite ones alone, 0 among them.

    Args:
        values: the weight, widened, or rows of it.
        scheme: which elements share a scale. A symmetric one takes plus and minus the largest magnitude.

    Returns:
        low and high, of the type of `values` and the scheme's scale shape.
    """
    finite = np.isfinite(values)
    if not finite.all():
        values = np.where(finite, values, values.dtype.type(0))
    if scheme.symmetric:
        high = scheme.reduce(np.maximum, np.abs(values))
        return -high, high
    low = np.minimum(scheme.reduce(np.minimum, values), 0)
    return low, np.maximum(scheme.reduce(np.maximum, values), 0)


def parameters(low: np.ndarray, high: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, np.ndarray]:
    """Scales and zero points from the values that the codes span.

    Symmetric: scale = absmax / q_max, zero point 0. Otherwise the range of the codes spans the values and 0,
    which so has a code of its own. All-zero elements get scale 1. A scale is never below the smallest normal
    number, where it would lose the bits that keep the error within half of it.

    Args:
        low, high: what `extremes` gave.
        scheme: the type of the codes.

    Returns:
        scale, of the type of `low`, and zero_point, i32, both of the scheme's scale shape.
    """
    q_max = high.dtype.type(scheme.dtype.highest)
    # Not (high - low) / q_max, whose difference may overflow.
    span = high / q_max if scheme.symmetric else high / q_max - low / q_max
    one, least = span.dtype.type(1), np.finfo(span.dtype).tiny
    scale = np.where(low == high, one, np.maximum(span, least))
    if scheme.symmetric:
        return scale, np.zeros(scale.shape, np.int32)
    return scale, np.clip(np.rint(-low / scale), 0, q_max).astype(np.int32)


@dataclass(frozen=True)
class Block:
    """Some rows of a weight, quantized.

    Attributes:
        first: the first of them, counted as `Scheme.rows_shape` does.
        quantized: their codes, scales and zero points.
        seconds: that skuda took, without transfers and compilation.
    """

    first: int
    quantized: Quantized
    seconds: float


def quantize_rows(
    rows: Callable[[int, int], np.ndarray], shape: tuple[int, ...], scheme: Scheme, on: Backend
) -> Iterator[Block]:
    """Quantize a weight some rows at a time, about `BLOCK` elements, so that no more than these are in memory.

    A value that is not finite follows skuda's rules: NaN takes the code of 0, an infinity the outermost code.

    Args:
        rows: gives the rows from one number to another, f64, f32, f16 or bf16, of shape `scheme.rows_shape(shape)`
            but for the first extent. Of `per_tensor`, called twice for each row.
        shape: the weight's, two axes or more.
        scheme: how.
        on: where.

    Yields:
        The blocks in their order.
    """
    count, *inner = scheme.rows_shape(shape)
    step = max(1, BLOCK // math.prod(inner))
    spans = [(first, min(first + step, count)) for first in range(0, count, step)]
    shared = None
    if scheme.granularity == "per_tensor":
        ends = [extremes(widened(rows(*span)), scheme) for span in spans]
        shared = parameters(np.minimum.reduce([low for low, _ in ends]),
                            np.maximum.reduce([high for _, high in ends]), scheme)  # fmt: skip
    for number, span in enumerate(spans):
        block = rows(*span)
        scale, zero_point = shared or parameters(*extremes(widened(block), scheme), scheme)
        codes, seconds = _codes(block, scale, zero_point, scheme, on, warm=number == 0 and on.compiles)
        stored = None if scheme.symmetric else zero_point
        yield Block(span[0], Quantized(codes, scale, stored, block.shape, WORD_OF_STORAGE[block.dtype]), seconds)


def _codes(
    block: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, scheme: Scheme, on: Backend, warm: bool
) -> tuple[np.ndarray, float]:
    """Codes, and the seconds that they took. `warm`: a first call, which may compile, is made before."""
    function = getattr(skuda, f"quantize_{scheme.granularity}")
    arguments = [on.upload(array) for array in (block, scale, zero_point)]
    for _ in range(2 if warm else 1):  # the last call counts
        on.wait()
        start = time.perf_counter()
        codes = function(*arguments, dtype=scheme.element, **scheme.keywords())
        on.wait()
    seconds = time.perf_counter() - start
    return on.download(codes), seconds


def quantize(weight: np.ndarray, scheme: Scheme, on: Backend) -> tuple[Quantized, float]:
    """Quantize a whole weight, in the blocks of `quantize_rows`.

    Args:
        weight: f64, f32, f16 or bf16, two axes or more.
        scheme: how.
        on: where.

    Returns:
        The quantized weight, and the seconds that skuda took, without transfers and compilation.
    """
    values = weight.reshape(scheme.rows_shape(weight.shape))
    blocks = list(quantize_rows(lambda first, last: values[first:last], weight.shape, scheme, on))
    parts = [block.quantized for block in blocks]

    def joined(arrays: list[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        whole = arrays[0] if arrays[0].shape == shape else np.concatenate(arrays)
        return whole.reshape(shape)

    scales = scheme.scale_shape(weight.shape)
    shared = parts[:1] if scheme.granularity == "per_tensor" else parts
    whole = Quantized(
        joined([part.codes for part in parts], scheme.code_shape(weight.shape)),
        joined([part.scale for part in shared], scales),
        None if scheme.symmetric else joined([part.zero_point for part in shared], scales),
        weight.shape,
        parts[0].element,
    )
    return whole, sum(block.seconds for block in blocks)


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
