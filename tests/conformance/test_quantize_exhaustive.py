"""Every f16 and bf16 input, for every scale below: codes, round trips and both gradients, bit for bit.

The full product is inputs x scales x zero points x integer types. On the reference each (input, scale) pair
meets each integer type with three of the 13 zero points, no two types with the same. A GPU, or
SKUDA_EXHAUSTIVE=1, runs the whole product, and a range narrower than the type's as well.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pytest

import skuda
from oracles import affine_array, floats_array
from oracles.floats import FORMATS

from .support import RANGE, ZERO_POINTS, assert_codes, assert_floats, floats, pattern

# Ordinary scales, scales with many ties (powers of two, small integers), a negative one.
NUMBERS = ["0.1", "0.3", "1/3", "0.011745", "1.999", "65504"]
NUMBERS += ["1", "2", "0.5", "1/1024", "3", "6", "7", "0.75", "-0.5"]


def scale_patterns(element: str) -> np.ndarray:
    """Scales as bit patterns: NUMBERS, subnormals, the largest and smallest, zeros, infinities, NaNs."""
    form = FORMATS[element]
    one, normal = form.bias << form.fraction_bits, form.smallest_normal
    edges = [1, 3, normal - 1, normal, normal + 1, one - 1, one + 1, form.largest]
    nowhere = [0, form.sign, form.infinity, form.infinity | form.sign, form.nan, form.infinity + 1]
    return np.array([pattern(number, element) for number in NUMBERS] + edges + nowhere, dtype=np.uint64)


@dataclass(frozen=True)
class Grid:
    """Every input (columns) with every scale (rows), and what only depends on the two."""

    element: str
    x: np.ndarray  # [65536] patterns
    scale: np.ndarray  # [rows] patterns
    kinds: dict
    steps: np.ndarray  # [rows, 65536] x / scale to the nearest integer
    quotient: np.ndarray  # [rows, 65536] x / scale narrowed to the element type, patterns

    @property
    def inputs(self) -> np.ndarray:
        return np.tile(floats(self.x, self.element), (len(self.scale), 1))

    @property
    def scales(self) -> np.ndarray:
        return floats(self.scale, self.kinds["scale_element"])


@pytest.fixture(
    scope="module",
    params=[("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32")],
    ids=lambda pair: f"{pair[0]}_scale_{pair[1]}",
)
def grid(request):
    element, scale_element = request.param
    kinds = {"element": element, "scale_element": scale_element}
    x = np.arange(1 << 16, dtype=np.uint64)
    scale = scale_patterns(scale_element)
    rows = [affine_array.quotient(x, each, **kinds) for each in scale]  # a row at a time stays in the cache
    return Grid(
        element,
        x,
        scale,
        kinds,
        np.stack([floats_array.to_integers(row) for row in rows]),
        np.stack([floats_array.encode(row, FORMATS[element]) for row in rows]),
    )


# Another order of the columns, so that an output gradient is never its own input; every pattern occurs.
SHUFFLED = np.random.default_rng(0).permutation(1 << 16)


def problems(backend, grid, word):
    """(zero_point [rows], q_min, q_max) for each call that is to be made."""
    turns = len(ZERO_POINTS)
    low, high = RANGE[word]
    whole = backend.name == "cuda" or os.environ.get("SKUDA_EXHAUSTIVE") == "1"
    rows = np.arange(len(grid.scale))
    for turn in range(turns) if whole else range(list(RANGE).index(word), 12, 4):
        zero_point = np.array(ZERO_POINTS)[(rows + turn) % turns].astype(np.int32)
        yield zero_point, low, high
        if whole:
            yield zero_point, low + 1, high - 2


@pytest.mark.turns(4)
@pytest.mark.parametrize("word", RANGE)
def test_quantize(backend, grid, word):
    for zero_point, q_min, q_max in problems(backend, grid, word):
        arrays = [backend.array(each) for each in (grid.inputs, grid.scales, zero_point)]
        actual = skuda.quantize_per_token(*arrays, q_min=q_min, q_max=q_max, dtype=word)
        expected = affine_array.code_of(grid.steps, zero_point[:, None], q_min, q_max)
        assert_codes(backend.numpy(actual), expected, word, **shown(grid, zero_point))


@pytest.mark.turns(4)
@pytest.mark.parametrize("word", RANGE)
def test_fake_quantize(backend, grid, word):
    for zero_point, q_min, q_max in problems(backend, grid, word):
        arrays = [backend.array(each) for each in (grid.inputs, grid.scales, zero_point)]
        actual = skuda.fake_quantize_per_channel(*arrays, axis=0, q_min=q_min, q_max=q_max, dtype=word)
        values = affine_array.dequantize(  # of every code, for each row
            np.arange(q_min, q_max + 1), grid.scale[:, None], zero_point[:, None], **grid.kinds
        )
        code = affine_array.code_of(grid.steps, zero_point[:, None], q_min, q_max)
        expected = np.take_along_axis(values, code - q_min, axis=1)
        assert_floats(backend.numpy(actual), expected, grid.element, **shown(grid, zero_point))


@pytest.mark.turns(4)
@pytest.mark.parametrize("word", RANGE)
def test_quantize_backward(backend, grid, word):
    for zero_point, q_min, q_max in problems(backend, grid, word):
        parameters = [grid.scales[:, None], zero_point[:, None]]
        d_output = grid.inputs[:, SHUFFLED]
        arrays = [backend.array(each) for each in (d_output, grid.inputs, *parameters)]
        kwargs = {"q_min": q_min, "q_max": q_max, "dtype": word}
        actual = skuda.quantize_per_group_backward(*arrays, group_size=1 << 16, **kwargs)
        inside = affine_array.in_range_of(grid.steps, zero_point[:, None], q_min, q_max)
        expected = np.where(inside, grid.quotient[:, SHUFFLED], np.uint64(0))
        assert_floats(backend.numpy(actual), expected, grid.element, d=d_output, **shown(grid, zero_point))


@pytest.mark.turns(4)
@pytest.mark.parametrize("word", RANGE)
def test_fake_quantize_backward(backend, grid, word):
    for zero_point, q_min, q_max in problems(backend, grid, word):
        d_output = grid.inputs[:, SHUFFLED]
        arrays = [backend.array(each) for each in (d_output, grid.inputs, grid.scales, zero_point)]
        actual = skuda.fake_quantize_per_token_backward(*arrays, q_min=q_min, q_max=q_max, dtype=word)
        inside = affine_array.in_range_of(grid.steps, zero_point[:, None], q_min, q_max)
        expected = np.where(inside, affine_array.canonical(grid.x, grid.element)[SHUFFLED], np.uint64(0))
        assert_floats(backend.numpy(actual), expected, grid.element, d=d_output, **shown(grid, zero_point))


def shown(grid, zero_point) -> dict:
    """The inputs that an error message prints."""
    return {"input": grid.inputs, "scale": grid.scales[:, None], "zero_point": zero_point[:, None]}
