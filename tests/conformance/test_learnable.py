"""Learnable fake quantization: values and gradients of elements to the bit, those of parameters within their spans."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import skuda
from oracles import learned
from oracles.floats import FORMATS, compute_format

from .support import RANGE, STORAGE, assert_floats, bits_of, floats, pattern
from .test_rows import all_rows, assert_admitted, other_row, random_row, unusual_rows


def check(backend, dy: list[int], row: list[int], scale: int, zero_point: int, element: str, word="s8", factor="1"):
    """One tensor, forward and backward."""
    wide = compute_format(element)
    low, high = RANGE[word]
    x, gradient = (backend.array(floats(each, element)) for each in (row, dy))
    parameters = [backend.array(floats(each, wide.word)) for each in (scale, zero_point)]
    actual = backend.numpy(skuda.learnable_fake_quantize_per_tensor(x, *parameters, dtype=word))
    expected = [learned.fake_quantize(each, scale, zero_point, low, high, element=element) for each in row]
    assert_floats(actual, expected, element)
    results = skuda.learnable_fake_quantize_per_tensor_backward(
        gradient, x, *parameters, grad_factor=float(floats(pattern(factor, wide.word), wide.word)), dtype=word
    )
    d_input, *of_parameters = map(backend.numpy, results)
    bits, *wanted = learned.fake_quantize_backward(
        dy, row, scale, zero_point, low, high, pattern(factor, wide.word), element=element
    )
    assert_floats(d_input, bits, element)
    for got, span in zip(of_parameters, wanted, strict=True):
        assert got.shape == ()
        assert_admitted(got, [span], wide.word, f"{element} {word} {len(row)}")
    return of_parameters


@pytest.mark.parametrize("element", FORMATS)
def test_one_scale_and_zero_point(backend, element):
    wide = compute_format(element).word
    for number, row in enumerate(all_rows(element).values()):
        word = [*RANGE][number % 4]
        scale, zero_point = pattern(("0.1", "0.37", "2", "1.5")[number % 4], wide), pattern("2.5", wide)
        check(backend, other_row(element, len(row)), row, scale, zero_point, element, word)
        check(backend, random_row(element, len(row), 40), row, scale, zero_point, element, word, factor="0.3")


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_unusual_scales_and_zero_points(backend, element):
    form = FORMATS[element]
    row = unusual_rows(element)["inf of both signs"][:12] + [0, form.nan]
    dy = random_row(element, len(row), 41)
    plain = pattern("0.1", element)
    for scale in (0, form.sign, form.infinity, form.nan, 1, form.largest, pattern("-0.5", element)):
        check(backend, dy, row, scale, pattern("3", element), element)
    unusual = (form.nan, form.infinity, form.infinity | form.sign, form.largest)
    for zero_point in (*unusual, *(pattern(each, element) for each in ("-0.5", "0.5", "1.5", "-128.6", "300"))):
        for word in ("s8", "u4"):
            check(backend, dy, row, plain, zero_point, element, word)


@pytest.mark.parametrize(("length", "element"), [(4099, "f16"), (2053, "f32")])
def test_tensors_of_several_parts(backend, length, element):
    wide = compute_format(element).word
    row, dy = (random_row(element, length, seed) for seed in (42, 43))
    check(backend, dy, row, pattern("0.05", wide), pattern("-3", wide), element, "s8", "0.01")


@pytest.mark.parametrize("shape", [(7,), (5, 9), (3, 4, 6), (2, 3, 2, 8), (40, 33), (33, 40)])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_each_channel_has_its_own(backend, element, shape):
    wide = compute_format(element).word
    x, dy = (floats(random_row(element, int(np.prod(shape)), seed), element).reshape(shape) for seed in (44, 45))
    for axis in range(len(shape)):
        count = shape[axis]
        scale = np.random.default_rng(count).uniform(0.02, 0.4, count).astype(STORAGE[wide])
        zero_point = np.linspace(-20, 20, count).astype(STORAGE[wide])
        given = [backend.array(each) for each in (x, scale, zero_point)]
        output = backend.numpy(skuda.learnable_fake_quantize_per_channel(*given, axis=axis))
        of_input, *others = map(
            backend.numpy,
            skuda.learnable_fake_quantize_per_channel_backward(backend.array(dy), *given, axis=axis, grad_factor=0.5),
        )
        for channel in range(count):
            position = (slice(None),) * axis + (channel,)
            row, gradient = (bits_of(each[position], element).reshape(-1).tolist() for each in (x, dy))
            own = [int(bits_of(each[channel : channel + 1], wide)[0]) for each in (scale, zero_point)]
            values = [learned.fake_quantize(each, *own, -128, 127, element=element) for each in row]
            assert_floats(output[position].reshape(-1), values, element)
            half = pattern("0.5", wide)
            bits, *spans = learned.fake_quantize_backward(gradient, row, *own, -128, 127, half, element=element)
            assert_floats(of_input[position].reshape(-1), bits, element)
            for got, span in zip(others, spans, strict=True):
                assert_admitted(got[channel : channel + 1], [span], wide, f"channel {channel} of {shape}")


def test_however_arrays_lie(backend):
    """Views, the gradient written over what it is made of, and the whole give the same bits."""
    rng = np.random.default_rng(46)
    big, dy = (rng.normal(0, 9, (34, 2 * 50)).astype(np.float16) for _ in range(2))
    for axis, count in ((0, 33), (1, 50)):
        scale, zero_point = (backend.array(rng.uniform(0.05, 1, count).astype(np.float32)) for _ in range(2))
        plain = [backend.array(np.ascontiguousarray(each[1:, ::2])) for each in (dy, big)]
        views = [backend.array(each)[1:, ::2] for each in (dy, big)]
        turned = [backend.array(np.ascontiguousarray(each[1:, ::2].T)).T for each in (dy, big)]
        call = skuda.learnable_fake_quantize_per_channel_backward
        expected = [backend.numpy(each) for each in call(*plain, scale, zero_point, axis=axis)]
        for arrays in (views, turned):
            for got, wanted in zip(call(*arrays, scale, zero_point, axis=axis), expected, strict=True):
                np.testing.assert_array_equal(backend.numpy(got), wanted)
        out = (plain[0], backend.array(np.zeros(count, np.float32)), backend.array(np.zeros(count, np.float32)))
        call(*plain, scale, zero_point, axis=axis, out=out)
        for got, wanted in zip(out, expected, strict=True):
            np.testing.assert_array_equal(backend.numpy(got), wanted)


def test_gradients_are_slopes(backend):
    """Of the definition, in 60 digits, with rounding left out of what is derived (straight through): the value in range
    is scale * (x / scale + e) with the rounding error e held, beyond it is (bound - zero point) * scale."""
    rng = np.random.default_rng(47)
    x, dy = rng.normal(0, 4, 40), rng.normal(0, 1, 40)
    scale, zero_point = 0.37, 3.0
    given = [backend.array(np.array(each)) for each in (dy, x, scale, zero_point)]
    results = skuda.learnable_fake_quantize_per_tensor_backward(*given, dtype="s4")
    d_input, d_scale, d_zero_point = map(backend.numpy, results)
    steps = np.rint(x / scale)
    kinds = np.sign(steps - np.clip(steps, -8 - zero_point, 7 - zero_point))
    assert set(kinds) == {-1, 0, 1}
    with mpmath.workdps(60):
        errors = [mpmath.mpf(int(n)) - mpmath.mpf(v) / mpmath.mpf(scale) for n, v in zip(steps, x.tolist())]

        def loss(x, s, z):
            total = mpmath.mpf(0)
            for g, v, error, kind in zip(dy.tolist(), x, errors, kinds, strict=True):
                total += g * (s * (v / s + error) if kind == 0 else s * ((-8 if kind < 0 else 7) - z))
            return total

        point = [mpmath.mpf(each) for each in x.tolist()], mpmath.mpf(scale), mpmath.mpf(zero_point)
        step = mpmath.mpf("1e-20")
        ends = [loss(point[0], point[1] + move, point[2]) for move in (step, -step)]
        assert abs((ends[0] - ends[1]) / (2 * step) - float(d_scale)) < 1e-12
        ends = [loss(point[0], point[1], point[2] + move) for move in (step, -step)]
        assert abs((ends[0] - ends[1]) / (2 * step) - float(d_zero_point)) < 1e-12
        for position in range(len(x)):
            moved = [[v + move * (i == position) for i, v in enumerate(point[0])] for move in (step, -step)]
            slope = (loss(moved[0], *point[1:]) - loss(moved[1], *point[1:])) / (2 * step)
            assert abs(slope - float(d_input[position])) < 1e-14


def test_nan_passes_its_gradient_and_spoils_the_scale_s(backend):
    """Its code is that of 0, which is in range; its distance from that is NaN."""
    x = backend.array(np.array([1, np.nan, 1000], np.float32))
    dy = backend.array(np.array([1, 2, 3], np.float32))
    d_input, d_scale, d_zero_point = skuda.learnable_fake_quantize_per_tensor_backward(dy, x, 0.5, 0.0)
    assert backend.numpy(d_input).tolist() == [1, 2, 0]
    assert np.isnan(backend.numpy(d_scale)) and backend.numpy(d_zero_point) == -1.5


def test_no_elements_have_no_gradient(backend):
    x = backend.array(np.zeros((0, 5), np.float16))
    ones = backend.array(np.ones(5, np.float32))
    d_input, *others = skuda.learnable_fake_quantize_per_channel_backward(x, x, ones, ones, axis=1)
    assert backend.numpy(d_input).shape == (0, 5)
    for each in others:
        assert (backend.numpy(each).view(np.uint32) == 0).all()
