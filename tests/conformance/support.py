"""What the conformance tests share: bit patterns, 4-bit packing, granularities, comparisons."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np

from oracles.floats import FORMATS, FP8, encode_fraction
from skuda.model.dtypes import DTYPES

STORAGE = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
STORAGE |= {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
UINT = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64, "e4m3": np.uint8, "e5m2": np.uint8}
_FORMATS = FORMATS | FP8
RANGE = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}

# (element, scale_element): the scale has the input's own type, or f32.
ELEMENTS = [(element, scale) for element in FORMATS for scale in dict.fromkeys((element, "f32"))]

I32_MIN, I32_MAX = -(2**31), 2**31 - 1
# 0, odd, negative, the ends of every integer type; the last four make q - zero_point exceed f32's 24 bits.
ZERO_POINTS = [0, 1, -1, 7, -8, 15, 127, -128, 255, 2**24 + 3, -(2**25) - 5, I32_MAX, I32_MIN]


def plain_type(operation) -> type:
    """The type of NumPy that plain calls of an operation are made in: f32, or that of its first integers.

    Inputs whose element type the table fixes, masks and sums, do not decide it.
    """
    chosen = [operand.element for operand in operation.inputs if operand.element in operation.types]
    return np.float32 if operation.is_float(chosen[0]) else np.int64


def plain_input(operation, operand, values) -> np.ndarray:
    """Values in the type that an input has in a plain call: a mask is of what is positive, labels are not negative."""
    plain = plain_type(operation)
    if operand.element not in operation.types:  # fixed by the table
        fixed = DTYPES[operand.element].storage if operand.element in DTYPES else plain
        return np.asarray(np.greater(values, 0) if operand.element == "bool" else values).astype(fixed)
    if operation.is_float(operand.element) or plain is np.int64:
        return np.asarray(values, plain)
    return np.abs(values).astype(np.int64)


def floats(bits, element: str) -> np.ndarray:
    """The float array of some bit patterns."""
    stored = np.ascontiguousarray(np.asarray(bits, dtype=np.uint64).astype(UINT[element]))
    return stored.view(STORAGE[element]).reshape(np.shape(bits))


def bits_of(array: np.ndarray, element: str) -> np.ndarray:
    """The bit patterns of a float array."""
    assert array.dtype == STORAGE[element], f"the result is {array.dtype}, expected {element}"
    return np.ascontiguousarray(array).view(UINT[element]).reshape(array.shape)


def pattern(number, element: str) -> int:
    """The bit pattern nearest to a number, read exactly: give decimals as text or Fraction."""
    return encode_fraction(Fraction(number), _FORMATS[element])


def pack(codes: np.ndarray) -> np.ndarray:
    """Two codes a byte along the last axis: the even one in the low nibble, padding 0."""
    padded = np.zeros((*codes.shape[:-1], codes.shape[-1] + codes.shape[-1] % 2), dtype=np.int64)
    padded[..., : codes.shape[-1]] = codes & 15
    return (padded[..., 0::2] + 16 * padded[..., 1::2]).astype(np.uint8)


def unpack(stored: np.ndarray, width: int, signed: bool) -> np.ndarray:
    """The first `width` codes along the last axis of packed bytes."""
    nibbles = np.stack([stored & 15, stored >> 4], axis=-1).astype(np.int64)
    codes = nibbles.reshape(*stored.shape[:-1], 2 * stored.shape[-1])[..., :width]
    return np.where(codes > 7, codes - 16, codes) if signed else codes


def stored_codes(codes: np.ndarray, word: str) -> np.ndarray:
    """Codes as the array that holds them."""
    if word in ("s4", "u4"):
        return pack(codes)
    return codes.astype({"s8": np.int8, "u8": np.uint8}[word])


def dequantize_options(shape, word: str) -> dict:
    """What dequantize must be told of packed codes."""
    if word not in ("s4", "u4"):
        return {}
    return {"input_dtype": word, "shape": shape} if shape[-1] % 2 else {"input_dtype": word}


def parameter_shape(granularity: str, shape, axis: int = -1, group_size: int = 1) -> tuple[int, ...]:
    """Shape of scale and zero_point for an input of this shape."""
    if granularity == "per_tensor":
        return ()
    if granularity == "per_channel":
        return (shape[axis],)
    if granularity == "per_token":
        return tuple(shape[:-1])
    groups = list(shape)
    groups[axis] = -(-shape[axis] // group_size)
    return tuple(groups)


def expanded(
    parameter: np.ndarray, granularity: str, shape, axis: int = -1, group_size: int = 1
) -> np.ndarray:
    """A parameter repeated so that every element of the input has its own."""
    if granularity == "per_channel":
        later = len(shape) - 1 - axis % len(shape)
        parameter = parameter.reshape(-1, *[1] * later)
    if granularity == "per_token":
        parameter = parameter[..., np.newaxis]
    if granularity == "per_group":
        parameter = np.take(parameter, np.arange(shape[axis]) // group_size, axis=axis)
    return np.broadcast_to(parameter, shape)


def options(granularity: str, axis: int = -1, group_size: int = 1) -> dict:
    """The keyword arguments that position the parameters."""
    return {
        "per_tensor": {},
        "per_channel": {"axis": axis},
        "per_token": {},
        "per_group": {"axis": axis, "group_size": group_size},
    }[granularity]


def assert_floats(actual: np.ndarray, expected: np.ndarray, element: str, **inputs) -> None:
    """The float array `actual` has exactly the bit patterns `expected`; inputs are shown where it has not."""
    expected = np.asarray(expected, dtype=np.uint64).astype(UINT[element])
    _assert_same(bits_of(actual, element), expected, element, inputs)


def assert_codes(actual: np.ndarray, expected: np.ndarray, word: str, **inputs) -> None:
    """`actual` stores exactly the codes `expected`, with any padding nibble 0."""
    stored = stored_codes(expected, word)
    assert (actual.dtype, actual.shape) == (stored.dtype, stored.shape)
    if np.array_equal(actual, stored):
        return
    if word in ("s4", "u4"):
        codes = unpack(actual, expected.shape[-1], word == "s4")
        _assert_same(codes, expected, word, inputs)
        raise AssertionError("a padding nibble is not 0")
    _assert_same(actual.astype(np.int64), expected, word, inputs)


def _assert_same(actual: np.ndarray, expected: np.ndarray, word: str, inputs: dict) -> None:
    assert actual.shape == expected.shape
    if np.array_equal(actual, expected):
        return
    wrong = np.argwhere(actual != expected)
    lines = [f"{len(wrong)} of {expected.size} elements differ; the first:"]
    for index in map(tuple, wrong[:5].tolist()):
        here = {name: np.broadcast_to(each, expected.shape)[index] for name, each in inputs.items()}
        shown = " ".join(f"{name}={_show(value)}" for name, value in here.items())
        got, want = (_show_bits(each[index], word) for each in (actual, expected))
        lines.append(f"  {list(index)} {shown}: got {got}, expected {want}")
    raise AssertionError("\n".join(lines))


def _show(value) -> str:
    word = next((word for word, storage in STORAGE.items() if np.asarray(value).dtype == storage), None)
    return str(value) if word is None else _show_bits(np.asarray(value).view(UINT[word]), word)


def _show_bits(bits, word: str) -> str:
    if word not in _FORMATS:
        return str(bits)
    with np.errstate(invalid="ignore"):
        return f"{float(floats(bits, word)):.17g} ({int(bits):#0{_FORMATS[word].bits // 4 + 2}x})"
