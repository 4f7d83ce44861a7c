"""Memory layouts: views, `out`, aliasing, empty arrays, rank 0 and parameters given as numbers."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import affine_array, lerp, patterns
from oracles.floats import F32
from skuda.errors import InvalidProblem

from .support import assert_codes, assert_floats, floats, pattern

KINDS = {"element": "f32", "scale_element": "f32"}
ROWS, COLUMNS = 6, 10
RNG = np.random.default_rng(11)
X = patterns.sample(RNG, F32, ROWS * COLUMNS).reshape(ROWS, COLUMNS)
SCALE = patterns.sample(RNG, F32, ROWS)
ZERO_POINT = RNG.integers(-20, 20, ROWS)
PROBLEM = (X, SCALE[:, None], ZERO_POINT[:, None], -128, 127)
FAKE = affine_array.fake_quantize(*PROBLEM, **KINDS)
CODE = affine_array.quantize(*PROBLEM, **KINDS)


def padded(backend, array):
    """A view into the middle of a larger buffer, none of whose rows is aligned."""
    return backend.array(np.pad(array, ((1, 1), (1, 2))))[1:-1, 1:-2]


def every_second(backend, array):
    return backend.array(np.repeat(np.repeat(array, 2, 0), 3, 1))[::2, ::3]


def one_element_off(backend, array):
    return backend.array(np.pad(array.ravel(), (1, 0)))[1:].reshape(array.shape)


LAYOUTS = {
    "contiguous": lambda backend, array: backend.array(array),
    "transposed": lambda backend, array: backend.array(array.T).T,
    "padded": padded,
    "every_second": every_second,
    "reversed": lambda backend, array: backend.array(array[::-1, ::-1])[::-1, ::-1],
    "columns_reversed": lambda backend, array: backend.array(array[:, ::-1])[:, ::-1],
    "one_element_off": one_element_off,
}


def parameters(backend):
    return backend.array(floats(SCALE, "f32")), backend.array(ZERO_POINT.astype(np.int32))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_input_layouts(backend, layout):
    x = LAYOUTS[layout](backend, floats(X, "f32"))
    before = backend.numpy(x).copy()
    assert_codes(backend.numpy(skuda.quantize_per_token(x, *parameters(backend))), CODE, "s8")
    assert_floats(backend.numpy(skuda.fake_quantize_per_token(x, *parameters(backend))), FAKE, "f32")
    np.testing.assert_array_equal(backend.numpy(x), before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_output_layouts(backend, layout):
    """A strided `out` gets every element and is returned; nothing between its elements changes."""
    x = backend.array(floats(X, "f32"))
    out = LAYOUTS[layout](backend, np.full((ROWS, COLUMNS), 77, np.float32))
    memory = out if out.base is None else out.base
    assert skuda.fake_quantize_per_token(x, *parameters(backend), out=out) is out
    assert_floats(backend.numpy(out), FAKE, "f32")
    out[...] = 77
    untouched = LAYOUTS[layout](backend, np.full((ROWS, COLUMNS), 77, np.float32))
    expected = untouched if untouched.base is None else untouched.base
    np.testing.assert_array_equal(backend.numpy(memory), backend.numpy(expected))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dequantize_layouts(backend, layout):
    codes = LAYOUTS[layout](backend, CODE.astype(np.int8))
    out = LAYOUTS[layout](backend, np.zeros((ROWS, COLUMNS), np.float32))
    skuda.dequantize_per_token(codes, *parameters(backend), out=out)
    assert_floats(backend.numpy(out), affine_array.dequantize(CODE, *PROBLEM[1:3], **KINDS), "f32")


@pytest.mark.parametrize("width", [9, 10])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_layouts(backend, layout, width):
    """Views of packed bytes, as input and as `out`; rows of odd length keep their own last byte."""
    codes = np.random.default_rng(1).integers(0, 16, (ROWS, width))
    scale, zero_point = backend.array(np.ones(ROWS, np.float32)), backend.array(np.zeros(ROWS, np.int32))
    x = backend.array(codes.astype(np.float32))
    out = LAYOUTS[layout](backend, np.full((ROWS, 5), 0xEE, np.uint8))
    assert skuda.quantize_per_token(x, scale, zero_point, dtype="u4", out=out) is out
    assert_codes(backend.numpy(out), codes, "u4")
    back = skuda.dequantize_per_token(out, scale, zero_point, input_dtype="u4", shape=(ROWS, width))
    assert backend.numpy(back).tolist() == codes.tolist()


def test_strided_parameters(backend):
    x = backend.array(floats(X, "f32"))
    scale = backend.array(np.repeat(floats(SCALE, "f32"), 2)[::-1])[::-2]
    zero_point = backend.array(np.repeat(ZERO_POINT.astype(np.int32), 3))[::3]
    assert_floats(backend.numpy(skuda.fake_quantize_per_token(x, scale, zero_point)), FAKE, "f32")


def test_broadcast_inputs(backend):
    """Axes of stride 0: one row for all, one scale for all, and one element for all."""
    row = backend.xp.broadcast_to(backend.array(floats(X[:1], "f32")), (ROWS, COLUMNS))
    one = backend.xp.broadcast_to(backend.array(floats(SCALE[:1], "f32")), (ROWS,))
    zero_point = backend.array(ZERO_POINT.astype(np.int32))
    actual = skuda.fake_quantize_per_token(row, one, zero_point)
    expected = affine_array.fake_quantize(X[:1], SCALE[0], ZERO_POINT[:, None], -128, 127, **KINDS)
    assert_floats(backend.numpy(actual), expected, "f32")
    element = backend.xp.broadcast_to(backend.array(floats([pattern(3, "f32")], "f32")), (ROWS, COLUMNS))
    other = backend.xp.broadcast_to(backend.array(np.float32(5)), (ROWS, COLUMNS))
    assert backend.numpy(skuda.lerp(element, other, 0.5)).tolist() == [[4.0] * COLUMNS] * ROWS


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_extent_1_axes_have_any_stride(backend, axis):
    """An axis of one element is taken whatever its stride, before, between or after the others."""
    x = backend.array(np.repeat(np.expand_dims(floats(X, "f32"), axis), 4, axis))
    x = x[tuple(slice(2, 3) if i == axis else slice(None) for i in range(3))]
    scale, zero_point = np.float32(0.3), 2
    actual = skuda.fake_quantize_per_tensor(x, backend.array(scale), backend.array(np.int32(zero_point)))
    expected = affine_array.fake_quantize(X, pattern("0.3", "f32"), zero_point, -128, 127, **KINDS)
    assert_floats(backend.numpy(actual), np.expand_dims(expected, axis), "f32")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
@pytest.mark.parametrize("word", ["s8", "u4"])
def test_empty_arrays(backend, shape, word):
    """Nothing to do is no error: the results are empty, of the right shape and type."""
    x = backend.array(np.zeros(shape, np.float16))
    scale = backend.array(np.ones(shape[:-1], np.float32))
    zero_point = backend.array(np.zeros(shape[:-1], np.int32))
    code = backend.numpy(skuda.quantize_per_token(x, scale, zero_point, dtype=word))
    assert_codes(code, np.zeros(shape, np.int64), word)
    fake = backend.numpy(skuda.fake_quantize_per_token(x, scale, zero_point, dtype=word))
    assert_floats(fake, np.zeros(shape, np.uint64), "f16")
    gradient = backend.numpy(skuda.quantize_per_token_backward(x, x, scale, zero_point, dtype=word))
    assert_floats(gradient, np.zeros(shape, np.uint64), "f16")
    for result in skuda.lerp_backward(x, 0.5):
        assert_floats(backend.numpy(result), np.zeros(shape, np.uint64), "f16")


@pytest.mark.parametrize(("word", "byte"), [("s4", 0x0D), ("u4", 0x00)])
def test_rank_0_packed(backend, word, byte):
    """One code in one byte of rank 0, and back."""
    packed = skuda.quantize_per_tensor(backend.array(np.float32(-3)), 1.0, 0, dtype=word)
    stored = backend.numpy(packed)
    assert (stored.shape, stored.dtype, stored.tolist()) == ((), np.uint8, byte)
    back = skuda.dequantize_per_tensor(packed, 1.0, 0, dtype="f32", input_dtype=word, shape=())
    assert backend.numpy(back).tolist() == (-3.0 if word == "s4" else 0.0)


def test_rank_0(backend):
    x = backend.array(np.float32(-7.5))
    assert backend.numpy(skuda.quantize_per_tensor(x, 1.0, 1)).tolist() == -7
    assert backend.numpy(skuda.fake_quantize_per_tensor(x, 1.0, 1)).tolist() == -8.0
    code = backend.array(np.int8(5))
    assert backend.numpy(skuda.dequantize_per_tensor(code, 0.5, 1, dtype="f32")).tolist() == 2.0
    assert backend.numpy(skuda.lerp(x, backend.array(np.float32(0.5)), 0.5)).tolist() == -3.5


@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
def test_numbers_are_the_same_as_arrays_of_one_element(backend, element):
    """A scale given as a number is of the compute type, f32: 0.1 is not rounded to the input's type."""
    bits = np.arange(0x3C00, 0x5000, dtype=np.uint64) << np.uint64(16 if element == "f32" else 0)
    x = backend.array(floats(bits, element))
    kinds = {"element": element, "scale_element": "f32"}
    expected = affine_array.quantize(bits, pattern("0.1", "f32"), 7, 0, 255, **kinds)
    for shape in [(), (1,), (1, 1)]:
        arrays = [backend.array(np.full(shape, value)) for value in (np.float32(0.1), np.int32(7))]
        actual = skuda.quantize_per_tensor(x, *arrays, dtype="u8")
        assert_codes(backend.numpy(actual), expected, "u8", input=backend.numpy(x))
    actual = skuda.quantize_per_tensor(x, float(np.float32(0.1)), 7, dtype="u8")
    assert_codes(backend.numpy(actual), expected, "u8", input=backend.numpy(x))
    assert_codes(backend.numpy(skuda.quantize_per_tensor(x, 0.1, 7, dtype="u8")), expected, "u8")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fake_quantize_in_place(backend, layout):
    x = LAYOUTS[layout](backend, floats(X, "f32"))
    assert skuda.fake_quantize_per_token(x, *parameters(backend), out=x) is x
    assert_floats(backend.numpy(x), FAKE, "f32")


@pytest.mark.parametrize("which", [0, 1])
def test_lerp_in_place(backend, which):
    bits = X, X[::-1]
    rows = zip(*[each.ravel().tolist() for each in bits])
    weight = pattern("0.25", "f32")
    expected = [lerp.lerp(*row, weight, element="f32", weight_element="f32") for row in rows]
    arrays = [backend.array(floats(each, "f32")) for each in bits]
    assert skuda.lerp(*arrays, 0.25, out=arrays[which]) is arrays[which]
    assert_floats(backend.numpy(arrays[which]), np.reshape(expected, X.shape), "f32")


def overlapping(backend):
    """(input, out) that share memory, but not element for element."""
    memory = backend.array(floats(np.resize(X, 120), "f32"))
    yield "shifted", memory[:60].reshape(6, 10), memory[1:61].reshape(6, 10)
    yield "reversed", memory[:60].reshape(6, 10), memory[59::-1].reshape(6, 10)
    yield "row", memory[:60].reshape(6, 10), memory[50:110].reshape(6, 10)
    square = memory[:100].reshape(10, 10)
    yield "transposed", square[:6], square.T[:6]
    wide = memory.reshape(6, 20)
    yield "columns", wide[:, :10], wide[:, 5:15]


@pytest.mark.parametrize("case", ["shifted", "reversed", "row", "transposed", "columns"])
@pytest.mark.parametrize("op", ["fake_quantize_per_token", "lerp"])
def test_partial_overlap_is_refused(backend, op, case):
    x, out = next((x, out) for name, x, out in overlapping(backend) if name == case)
    before = backend.numpy(out).copy()
    others = parameters(backend) if op != "lerp" else (backend.array(np.ones((6, 10), np.float32)), 0.5)
    with pytest.raises(InvalidProblem, match="out"):
        getattr(skuda, op)(x, *others, out=out)
    np.testing.assert_array_equal(backend.numpy(out), before)


def test_interleaved_views_do_not_overlap(backend):
    """The even columns as input, the odd ones as `out`: one buffer, no element in common."""
    memory = np.zeros((ROWS, 2 * COLUMNS), np.float32)
    memory[:, ::2] = floats(X, "f32")
    memory = backend.array(memory)
    skuda.fake_quantize_per_token(memory[:, ::2], *parameters(backend), out=memory[:, 1::2])
    assert_floats(backend.numpy(memory[:, 1::2]), FAKE, "f32")


def test_codes_over_their_own_input_are_refused(backend):
    """int8 codes written over the start of the f32 values that they are made from."""
    x = backend.array(floats(X, "f32"))
    out = x.view(np.int8).reshape(-1)[: X.size].reshape(X.shape)
    with pytest.raises(InvalidProblem, match="out"):
        skuda.quantize_per_token(x, *parameters(backend), out=out)
    assert_floats(backend.numpy(x), X, "f32")


def test_out_over_a_parameter_is_refused(backend):
    memory = backend.array(np.ones(ROWS * COLUMNS + ROWS, np.float32))
    out, scale = memory[: ROWS * COLUMNS].reshape(ROWS, COLUMNS), memory[ROWS * COLUMNS - 1 : -1]
    with pytest.raises(InvalidProblem, match="out"):
        skuda.fake_quantize_per_token(backend.array(floats(X, "f32")), scale, parameters(backend)[1], out=out)
    assert backend.numpy(memory).tolist() == [1.0] * memory.size


def test_out_that_overlaps_itself_is_refused(backend):
    """Two rows of `out` in the same memory: which of the two would be the result?"""
    memory = backend.array(np.ones((1, COLUMNS), np.float32))
    strided = backend.xp.lib.stride_tricks.as_strided(memory, (ROWS, COLUMNS), (0, 4))
    with pytest.raises(InvalidProblem, match="out"):
        skuda.fake_quantize_per_token(backend.array(floats(X, "f32")), *parameters(backend), out=strided)
    assert backend.numpy(memory).tolist() == [[1.0] * COLUMNS]
