"""How outputs lie where no `out` is given: as the inputs do where these lie alike without gaps, else in C order."""

from __future__ import annotations

import numpy as np
import pytest

import skuda

RNG = np.random.default_rng(5)


def strides(array) -> tuple[int, ...]:
    """In elements."""
    return tuple(step // array.dtype.itemsize for step in array.strides)


def made(backend, shape, order, dtype=np.float32):
    """An array whose axes lie in this order, outermost first."""
    array = RNG.standard_normal([shape[axis] for axis in order]).astype(dtype)
    return backend.array(array).transpose(tuple(order.index(axis) for axis in range(len(order))))


def c_order(shape) -> tuple[int, ...]:
    return strides(np.empty(shape, np.uint8))


ORDERS = [((6, 10), (1, 0)), ((2, 3, 4, 5), (0, 2, 3, 1)), ((3, 4, 5), (2, 1, 0)), ((3, 4, 5), (1, 0, 2)),
          ((2, 3, 2, 3, 4, 2), (5, 0, 4, 1, 3, 2))]  # fmt: skip
PERMUTED = pytest.mark.parametrize("shape, order", ORDERS)


@PERMUTED
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_outputs_lie_as_one_input(backend, shape, order, dtype):
    x = made(backend, shape, order, dtype)
    flat = backend.array(np.ascontiguousarray(backend.numpy(x)))
    for function in (skuda.silu, skuda.exp, skuda.isfinite):
        for _ in range(3):  # the call that repeats one too
            actual = function(x)
            assert strides(actual) == strides(x)
            np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(function(flat)))
            assert strides(function(flat)) == c_order(shape)


@PERMUTED
def test_several_inputs_that_lie_alike_and_unlike(backend, shape, order):
    x, y = made(backend, shape, order), made(backend, shape, order)
    other = backend.array(np.ascontiguousarray(backend.numpy(y)))
    for _ in range(3):
        alike = skuda.lerp(x, y, 0.25)
        assert strides(alike) == strides(x)
        for pair in ((x, other), (other, x)):
            assert strides(skuda.maximum(*pair)) == c_order(shape)
        np.testing.assert_array_equal(backend.numpy(alike), backend.numpy(skuda.lerp(x, other, 0.25)))
    assert strides(skuda.where(backend.xp.signbit(x), x, y)) == strides(x)  # elements of other types


@PERMUTED
def test_gradients_lie_as_what_they_are_of(backend, shape, order):
    x, d = made(backend, shape, order), made(backend, shape, order)
    assert strides(skuda.silu_backward(d, x)) == strides(x)
    flat = backend.array(np.ascontiguousarray(backend.numpy(d)))
    assert strides(skuda.silu_backward(flat, x)) == c_order(shape)
    for gradient in skuda.mul_backward(d, x, x):
        assert strides(gradient) == strides(x)


def test_inputs_that_broadcast(backend):
    x = made(backend, (6, 10), (1, 0))
    row = backend.array(np.ones(10, np.float32))
    for other in (row, row[None], backend.array(np.ones((6, 1), np.float32)), backend.xp.broadcast_to(row, (6, 10))):
        for pair in ((x, other), (other, x)):
            actual = skuda.add(*pair)
            assert strides(actual) == strides(x)
            np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(x) + np.float32(1))
    assert strides(skuda.add(row, backend.array(np.ones((6, 1), np.float32)))) == (10, 1)  # none has all elements
    # One value has no order of its own.
    for other in (1.0, backend.array(np.float32(1)), row[:1], backend.xp.broadcast_to(row[:1], (6, 10))):
        for pair in ((x, other), (other, x)):
            actual = skuda.add(*pair)
            assert strides(actual) == strides(x)
            np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(x) + np.float32(1))


def test_what_has_gaps_or_runs_backwards_gives_c_order(backend):
    square = made(backend, (12, 12), (1, 0))
    for x in (square[:6], square[::2], square[::-1], square[:, ::-1], backend.xp.broadcast_to(square[:, :1], (12, 12))):
        assert strides(skuda.silu(x)) == c_order(x.shape)
    assert strides(skuda.silu(square[:, 3:9])) == (1, 12)  # no gaps, for the outer axis is cut


def test_out_lies_as_it_is_given(backend):
    x = made(backend, (6, 10), (1, 0))
    for out in (backend.xp.empty((6, 10), np.float32), made(backend, (6, 10), (1, 0))):
        before = out.strides
        assert skuda.silu(x, out=out) is out and out.strides == before
        np.testing.assert_array_equal(backend.numpy(out), backend.numpy(skuda.silu(x)))


@pytest.mark.parametrize("shape", [(4, 1, 6), (1, 4, 6), (4, 6, 1), (1, 1, 5), (1, 1, 1)])
def test_axes_of_one_element_do_not_count(backend, shape):
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        x = made(backend, shape, order)
        actual = skuda.silu(x)
        there = [axis for axis in range(3) if shape[axis] != 1]
        assert [strides(actual)[axis] for axis in there] == [strides(x)[axis] for axis in there]
        np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(skuda.silu(x.copy())))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4), (0, 5)])
def test_arrays_of_no_element_and_of_one(backend, shape):
    x = backend.xp.zeros(shape, np.float32).T
    assert skuda.silu(x).shape == x.shape and skuda.silu(x).flags.c_contiguous


@PERMUTED
def test_values_of_channels_do_not_decide(backend, shape, order):
    x, each = made(backend, shape, order), backend.array(np.full(shape[1], 0.5, np.float32))
    flat = backend.array(np.ascontiguousarray(backend.numpy(x)))
    zero = backend.array(np.zeros(shape[1], np.int32))
    for function in (
        lambda x: skuda.quantize_per_channel(x, each, zero, axis=1),
        lambda x: skuda.batch_norm(x, each, each, each, each),
        lambda x: skuda.batch_norm_training(x, each, each, each, each)[0],
        lambda x: skuda.prelu(x, each),
        lambda x: skuda.prelu_backward(x, x, each)[0],
    ):
        for _ in range(3):
            actual = function(x)
            assert strides(actual) == strides(x)
            np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(function(flat)))


def test_outputs_with_other_shapes_rows_and_scans_give_c_order(backend):
    x = made(backend, (6, 10), (1, 0))
    assert strides(skuda.quantize_per_tensor(x, 0.1, 0)) == (1, 6)
    codes = skuda.quantize_per_tensor(x, 0.1, 0, dtype="s4")
    assert strides(codes) == (5, 1)
    assert strides(skuda.dequantize_per_tensor(codes, 0.1, 0, input_dtype="s4")) == (10, 1)
    packed = made(backend, (6, 5), (1, 0), np.uint8)
    assert strides(skuda.dequantize_per_tensor(packed, 0.1, 0, input_dtype="s4")) == (10, 1)
    assert strides(skuda.softmax(x)) == strides(skuda.cumsum(x)) == (10, 1)
    weight = backend.array(np.ones(10, np.float32))
    assert strides(skuda.layer_norm(x, weight, weight)) == strides(skuda.softmax_backward(x, x)) == (10, 1)
    assert strides(skuda.dynamic_quantize_per_token(x).output) == (10, 1)


def test_a_plan_is_kept_for_arrays_that_lie_otherwise(backend):
    """One plan serves both, in any order."""
    flat = backend.array(RNG.standard_normal((8, 8)).astype(np.float32))
    for _ in range(3):
        for x in (flat, flat.T, flat[::-1], flat.T, flat):
            expected = c_order(x.shape) if x is not flat and x.strides[0] < 0 else strides(x)
            actual = skuda.silu(x)
            assert strides(actual) == expected
            np.testing.assert_array_equal(backend.numpy(actual), backend.numpy(skuda.silu(x.copy())))


def test_halves_of_one_array(backend):
    both = made(backend, (6, 10), (1, 0))
    assert strides(skuda.silu_mul(both)) == (1, 6)
    assert strides(skuda.silu_mul(both.copy())) == (5, 1)
