"""The four granularities are one formula: each against the oracle, parameters repeated for every element."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import affine_array, patterns
from oracles.floats import FORMATS

from .support import (
    ELEMENTS,
    RANGE,
    ZERO_POINTS,
    assert_codes,
    assert_floats,
    bits_of,
    dequantize_options,
    expanded,
    floats,
    options,
    parameter_shape,
    stored_codes,
)

SHAPES = [(1,), (37,), (5, 1), (6, 19), (3, 4, 10), (2, 3, 4, 5), (2, 1, 3, 2, 7)]


def placements():
    """(granularity, shape, axis, group size): every rank and axis, groups ragged, of 1, beyond the axis."""
    for shape in SHAPES:
        yield "per_tensor", shape, -1, 1
        yield "per_token", shape, -1, 1
        for axis in range(len(shape)):
            extent = shape[axis]
            yield "per_channel", shape, axis - len(shape) * (axis % 2), 1
            for group_size in sorted({1, 2, 3, max(extent - 1, 1), extent, extent + 5}):
                yield "per_group", shape, axis - len(shape) * (group_size % 2), group_size


PLACEMENTS = list(placements())
WORDS = list(RANGE)


def name(placement) -> str:
    granularity, shape, axis, group_size = placement
    return f"{granularity}-{'x'.join(map(str, shape))}" + {
        "per_channel": f"-axis{axis}",
        "per_group": f"-axis{axis}-group{group_size}",
    }.get(granularity, "")


@pytest.mark.parametrize("placement", PLACEMENTS, ids=name)
def test_granularity(backend, placement):
    granularity, shape, axis, group_size = placement
    turn = PLACEMENTS.index(placement)
    # Every placement once, the element and integer types taking turns: what they do is tested elsewhere.
    element, scale_element = ELEMENTS[turn % len(ELEMENTS)]
    word = WORDS[turn // 3 % len(WORDS)]
    rng = np.random.default_rng(turn)
    kinds = {"element": element, "scale_element": scale_element}
    x = patterns.sample(rng, FORMATS[element], int(np.prod(shape))).reshape(shape)
    d_output = rng.permutation(x.ravel()).reshape(shape)
    of_parameters = parameter_shape(granularity, shape, axis, group_size)
    count = int(np.prod(of_parameters))
    scale = patterns.sample(rng, FORMATS[scale_element], count).reshape(of_parameters)
    near, far = rng.integers(-20, 20, count), rng.choice(ZERO_POINTS, count)
    zero_point = np.where(rng.random(count) < 0.7, near, far).astype(np.int32).reshape(of_parameters)

    position = options(granularity, axis, group_size)
    each_scale = expanded(scale, granularity, shape, axis, group_size)
    each_zero_point = expanded(zero_point, granularity, shape, axis, group_size)
    problem = (x, each_scale, each_zero_point, *RANGE[word])
    arrays = [floats(x, element), floats(scale, scale_element), zero_point]
    shown = {"input": arrays[0], "scale": floats(each_scale, scale_element), "zero_point": each_zero_point}
    given = [backend.array(array) for array in arrays]
    gradient = backend.array(floats(d_output, element))

    def call(op, *arguments, **kwargs):
        return backend.numpy(getattr(skuda, op.format(granularity))(*arguments, **position, **kwargs))

    code = affine_array.quantize(*problem, **kinds)
    assert_codes(call("quantize_{}", *given, dtype=word), code, word, **shown)
    assert_floats(
        call("fake_quantize_{}", *given, dtype=word),
        affine_array.fake_quantize(*problem, **kinds),
        element,
        **shown,
    )
    assert_floats(
        call("quantize_{}_backward", gradient, *given, dtype=word),
        affine_array.quantize_backward(d_output, *problem, **kinds),
        element,
        **shown,
    )
    assert_floats(
        call("fake_quantize_{}_backward", gradient, *given, dtype=word),
        affine_array.fake_quantize_backward(d_output, *problem, **kinds),
        element,
        **shown,
    )
    codes = backend.array(stored_codes(code, word))
    assert_floats(
        call("dequantize_{}", codes, *given[1:], dtype=element, **dequantize_options(shape, word)),
        affine_array.dequantize(code, each_scale, each_zero_point, **kinds),
        element,
        code=code,
        **shown,
    )
    assert_floats(
        call("dequantize_{}_backward", gradient, given[1]),
        affine_array.dequantize_backward(d_output, each_scale, **kinds),
        element,
        **shown,
    )


@pytest.mark.parametrize("op", ["quantize", "fake_quantize"])
@pytest.mark.parametrize("word", ["s8", "u4"])
def test_one_parameter_means_the_same_at_every_granularity(backend, op, word):
    shape, element = (4, 6, 10), "bf16"
    rng = np.random.default_rng(7)
    x = backend.array(floats(patterns.sample(rng, FORMATS[element], 240).reshape(shape), element))
    scale, zero_point = np.float32(0.037), np.int32(5)
    whole = getattr(skuda, f"{op}_per_tensor")(x, backend.array(scale), backend.array(zero_point), dtype=word)
    whole = backend.numpy(whole)
    for granularity, axis, group_size in [("per_token", -1, 1), ("per_channel", 1, 1), ("per_group", 0, 3)]:
        of_parameters = parameter_shape(granularity, shape, axis, group_size)
        parameters = [backend.array(np.full(of_parameters, value)) for value in (scale, zero_point)]
        position = options(granularity, axis, group_size)
        actual = backend.numpy(getattr(skuda, f"{op}_{granularity}")(x, *parameters, **position, dtype=word))
        if op == "quantize":
            np.testing.assert_array_equal(actual, whole)
        else:
            assert_floats(actual, bits_of(whole, element), element)
