"""Packed 4-bit arrays: two codes a byte, element 2i in the low nibble, the last nibble of an odd row 0."""

from __future__ import annotations

import numpy as np
import pytest

import skuda

from .support import RANGE, assert_floats, pack, pattern, unpack


def test_the_bytes_by_hand(backend):
    x = backend.array(np.array([[1, -1, 7, -8, 3]], dtype=np.float32))
    scale, zero_point = backend.array(np.ones(1, np.float32)), backend.array(np.zeros(1, np.int32))
    signed = skuda.quantize_per_token(x, scale, zero_point, dtype="s4")
    assert backend.numpy(signed).tolist() == [[0xF1, 0x87, 0x03]]
    unsigned = skuda.quantize_per_token(x, scale, backend.array(np.full(1, 8, np.int32)), dtype="u4")
    assert backend.numpy(unsigned).tolist() == [[0x79, 0x0F, 0x0B]]


@pytest.mark.parametrize("word", ["s4", "u4"])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65, 127, 129])
def test_widths(backend, word, width):
    """Codes come back from the bytes, an odd row's last nibble is 0 even where `out` held other bytes."""
    low, high = RANGE[word]
    rng = np.random.default_rng(width)
    codes = rng.integers(low, high + 1, (5, width))
    x = backend.array((codes - 3).astype(np.float16))
    scale, zero_point = backend.array(np.ones(5, np.float16)), backend.array(np.full(5, 3, np.int32))
    out = backend.array(np.full((5, (width + 1) // 2), 0xFF, np.uint8))
    assert skuda.quantize_per_token(x, scale, zero_point, dtype=word, out=out) is out
    np.testing.assert_array_equal(backend.numpy(out), pack(codes))
    np.testing.assert_array_equal(unpack(backend.numpy(out), width, word == "s4"), codes)
    told = {"input_dtype": word, "shape": (5, width)}
    back = skuda.dequantize_per_token(out, scale, zero_point, **told)
    assert_floats(backend.numpy(back), [[pattern(int(c) - 3, "f16") for c in row] for row in codes], "f16")


@pytest.mark.parametrize("word", ["s4", "u4"])
def test_the_padding_nibble_is_not_read(backend, word):
    stored = np.array([[0x21, 0xF3]], dtype=np.uint8)
    scale, zero_point = backend.array(np.ones(1, np.float32)), backend.array(np.zeros(1, np.int32))
    told = {"input_dtype": word, "shape": (1, 3)}
    actual = skuda.dequantize_per_token(backend.array(stored), scale, zero_point, **told)
    assert backend.numpy(actual).tolist() == [[1, 2, 3]]


@pytest.mark.parametrize(("word", "values"), [("s4", [1, -1, -8, 7]), ("u4", [1, 15, 8, 7])])
def test_without_a_shape_every_nibble_counts(backend, word, values):
    stored = backend.array(np.array([0xF1, 0x78], dtype=np.uint8))
    actual = skuda.dequantize_per_tensor(stored, 1.0, 0, dtype="f32", input_dtype=word)
    assert backend.numpy(actual).tolist() == values


def test_bytes_are_u8_unless_said_otherwise(backend):
    stored = backend.array(np.array([0xF1, 0x78], dtype=np.uint8))
    assert backend.numpy(skuda.dequantize_per_tensor(stored, 1.0, 0, dtype="f32")).tolist() == [241, 120]


@pytest.mark.parametrize("word", ["s4", "u4"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_last_axis_is_packed_whatever_the_axis_of_the_parameters(backend, word, axis):
    low, high = RANGE[word]
    shape = (2, 3, 5)
    codes = np.random.default_rng(axis).integers(low, high + 1, shape)
    x = backend.array(codes.astype(np.float32))
    scale = backend.array(np.ones(shape[axis], np.float32))
    zero_point = backend.array(np.zeros(shape[axis], np.int32))
    actual = skuda.quantize_per_channel(x, scale, zero_point, axis=axis, dtype=word)
    np.testing.assert_array_equal(backend.numpy(actual), pack(codes))


@pytest.mark.parametrize("shape", [(5, 2), (5, 5), (4, 3), (15,)])
def test_a_shape_that_the_bytes_cannot_have_is_refused(backend, shape):
    stored = backend.array(np.zeros((5, 2), np.uint8))
    with pytest.raises(skuda.errors.InvalidProblem, match="shape"):
        skuda.dequantize_per_tensor(stored, 1.0, 0, dtype="f32", input_dtype="s4", shape=shape)


@pytest.mark.parametrize("length", [65_536, 66_001, 200_003])
def test_long_rows_of_one_axis(backend, length):
    """Longer than the reference's chunks: every byte is written, and the last nibble of an odd row is 0."""
    codes = np.random.default_rng(length).integers(-8, 8, length)
    packed = backend.numpy(skuda.quantize_per_tensor(backend.array(codes.astype(np.float32)), 1.0, 0, dtype="s4"))
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(-1)
    assert np.array_equal(nibbles[:length], codes & 15)
    assert not nibbles[length:].any()
    back = skuda.dequantize_per_tensor(backend.array(packed), 1.0, 0, input_dtype="s4", shape=(length,))
    assert np.array_equal(backend.numpy(back), codes)
