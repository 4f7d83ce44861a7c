"""More than 2^31 elements: every index, offset and size is 64 bits wide. Needs about 14 GiB of device memory.
"""

from __future__ import annotations

import cupy
import numpy as np
import pytest

import skuda

COUNT = 2**31 + 2**20 + 3


@pytest.fixture(autouse=True)
def freed():
    yield
    cupy.get_default_memory_pool().free_all_blocks()


def random_bytes(count: int, storage, seed: int):
    """`count` elements of random bits on the device, one buffer of random bytes repeated with a period that
    is odd.
    """
    itemsize = np.dtype(storage).itemsize
    period = (1 << 24) + 11
    tile = cupy.asarray(np.frombuffer(np.random.default_rng(seed).bytes(period * itemsize), storage))
    array = cupy.empty(count, storage)
    for start in range(0, count, period):
        array[start : start + period] = tile[: min(period, count - start)]
    return array


def spots(count: int, length: int = 5_000):
    """Where the end, the middle, and the borders of 2^31 and of 2^31 bytes are looked at."""
    middles = [0, 2**30, 2**31 - length // 2, 2**31, count // 2, count - length]
    return [(max(0, min(start, count - length)), length) for start in middles]


def test_dequantize_per_tensor_u8_to_f16():
    codes = random_bytes(COUNT, np.uint8, seed=1)
    output = cupy.empty(COUNT, np.float16)
    scale = cupy.asarray(np.array(0.0137, np.float16))
    skuda.dequantize_per_tensor(codes, scale, 120, out=output)
    for start, length in spots(COUNT):
        here = slice(start, start + length)
        expected = skuda.dequantize_per_tensor(codes[here].get(), scale.get(), 120)
        np.testing.assert_array_equal(output[here].get().view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("shift", [0, 1])
def test_quantize_per_tensor_f16_to_u8(shift):
    """From an aligned start, and from an odd one."""
    values = random_bytes(COUNT + shift, np.float16, seed=2)[shift:]
    scale = cupy.asarray(np.array(0.37, np.float16))
    output = skuda.quantize_per_tensor(values, scale, 128, dtype="u8")
    assert output.size == COUNT
    for start, length in spots(COUNT):
        here = slice(start, start + length)
        expected = skuda.quantize_per_tensor(values[here].get(), scale.get(), 128, dtype="u8")
        np.testing.assert_array_equal(output[here].get(), expected)


@pytest.mark.parametrize("d", [4096, 4099, 11])
def test_quantize_per_token_f16_to_u8(d):
    """Rows that are a multiple of a vector, odd rows, and more than 2^27 rows with a parameter each."""
    n = COUNT // d + 1
    values = random_bytes(n * d, np.float16, seed=3).reshape(n, d)
    scale = cupy.abs(random_bytes(n, np.float16, seed=4)) + np.float16(0.01)
    zero_point = cupy.arange(n, dtype=np.int32) % 256
    output = skuda.quantize_per_token(values, scale, zero_point, dtype="u8")
    for start, length in spots(n * d):
        rows = slice(start // d, min(n, (start + length) // d + 1))
        expected = skuda.quantize_per_token(
            values[rows].get(), scale[rows].get(), zero_point[rows].get(), dtype="u8"
        )
        np.testing.assert_array_equal(output[rows].get(), expected)


def test_dequantize_per_token_with_strides():
    """Every second row and column of u8 codes: the strided kernel, whose offsets pass 2^31."""
    d, n = 4099, COUNT // 4099 + 1
    codes = random_bytes(n * d, np.uint8, seed=5).reshape(n, d)[::2, ::2]
    scale = cupy.linspace(0.01, 2, codes.shape[0], dtype=np.float32)
    zero_point = cupy.arange(codes.shape[0], dtype=np.int32) % 256
    output = skuda.dequantize_per_token(codes, scale, zero_point, dtype="f16")
    for row in (0, codes.shape[0] // 2, codes.shape[0] - 3):
        rows = slice(row, row + 3)
        expected = skuda.dequantize_per_token(
            codes[rows].get(), scale[rows].get(), zero_point[rows].get(), dtype="f16"
        )
        np.testing.assert_array_equal(output[rows].get().view(np.uint16), expected.view(np.uint16))


def test_packed_codes():
    """2^31 and some 4-bit codes, in half as many bytes."""
    count = COUNT - COUNT % 2
    codes = random_bytes(count // 2, np.uint8, seed=6)
    scale = cupy.asarray(np.array(0.5, np.float16))
    output = skuda.dequantize_per_tensor(codes, scale, -3, input_dtype="s4")
    assert output.shape == (count,)
    for start, length in spots(count, 5_000):
        pairs = slice(start // 2, start // 2 + length // 2)
        expected = skuda.dequantize_per_tensor(codes[pairs].get(), scale.get(), -3, input_dtype="s4")
        here = slice(2 * pairs.start, 2 * pairs.stop)
        np.testing.assert_array_equal(output[here].get().view(np.uint16), expected.view(np.uint16))
