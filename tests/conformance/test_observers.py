"""Calibration observers, to the bit: what they make of their state, and the state that is written where it lies."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from oracles import observers
from oracles.floats import FORMATS, compute_format
from skuda.errors import InvalidProblem

from .support import assert_floats, floats, pattern
from .test_rows import all_rows, random_row

NAMES = {"min_max": 2, "absmax": 1, "moving_average": 2}
AVERAGING = "0.01"


def expected(name: str, row: list[int], states: list[int], element: str) -> list[int]:
    wide = compute_format(element).word
    constant = [pattern(AVERAGING, wide)] if name == "moving_average" else []
    found = getattr(observers, name)(row, *states, *constant, element=element)
    return list(found) if isinstance(found, tuple) else [found]


def observed(backend, name: str, granularity: str, x, states, **options) -> list[np.ndarray]:
    found = getattr(skuda, f"observe_{name}_{granularity}")(x, *states, **options)
    return [backend.numpy(each) for each in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_a_tensor(backend, name, element):
    wide = compute_format(element)
    ends = [wide.nan, wide.infinity, wide.infinity | wide.sign, 0, wide.sign, pattern("-1.5", wide.word), wide.largest]
    for number, row in enumerate(all_rows(element).values()):
        for shift in range(len(ends)) if number < 24 else (number % len(ends),):
            states = [ends[(shift + each) % len(ends)] for each in range(NAMES[name])]
            arrays = [backend.array(floats(each, wide.word)) for each in states]
            got = observed(backend, name, "per_tensor", backend.array(floats(row, element)), arrays)
            for mine, bits in zip(got, expected(name, row, states, element), strict=True):
                assert_floats(mine, bits, wide.word)


@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((5, 9), 0), ((5, 9), 1), ((3, 4, 6), 1), ((2, 3000), 0)])
@pytest.mark.parametrize("name", NAMES)
def test_each_channel_has_its_own_state_which_is_updated_where_it_lies(backend, name, shape, axis):
    """Several batches: each call writes the very arrays that it reads."""
    count = shape[axis]
    states = [[FORMATS["f32"].nan] * count for _ in range(NAMES[name])]
    arrays = [backend.array(floats(each, "f32")) for each in states]
    for batch in range(3):
        bits = np.array(random_row("f16", int(np.prod(shape)), 50 + batch)).reshape(shape)
        bits.reshape(-1)[batch::7] = FORMATS["f16"].nan
        bits.reshape(-1)[batch::11] = FORMATS["f16"].infinity
        x = backend.array(floats(bits, "f16"))
        result = getattr(skuda, f"observe_{name}_per_channel")(
            x, *arrays, axis=axis, out=tuple(arrays) if len(arrays) > 1 else arrays[0]
        )
        assert all(a is b for a, b in zip(result if len(arrays) > 1 else (result,), arrays, strict=True))
        rows = np.moveaxis(bits, axis, 0).reshape(count, -1).tolist()
        made = [expected(name, row, [each[i] for each in states], "f16") for i, row in enumerate(rows)]
        states = [list(each) for each in zip(*made, strict=True)]
        for array, wanted in zip(arrays, states, strict=True):
            assert_floats(backend.numpy(array), wanted, "f32")


@pytest.mark.parametrize("length", [1, 20, 900, 5000, 70_003])
def test_one_state_is_updated_where_it_lies(backend, length):
    """By one block and by several; by a plan's short way too, which the second call takes."""
    row = np.random.default_rng(51).normal(0, 3, length).astype(np.float32)
    low, high = (backend.array(np.array(each, np.float32)) for each in (np.inf, -np.inf))
    for part in (row, 2 * row, row, 3 * row):
        skuda.observe_min_max_per_tensor(backend.array(part), low, high, out=(low, high))
    assert backend.numpy(low) == min(row.min(), 3 * row.min())
    assert backend.numpy(high) == max(row.max(), 3 * row.max())


def test_a_pair_may_be_written_the_other_way_round(backend):
    """Both are read before either is written."""
    x = backend.array(np.zeros((4, 3), np.float32))
    low, high = (backend.array(np.array(each, np.float32)) for each in ([-1, -2, -3], [1, 2, 3]))
    skuda.observe_min_max_per_channel(x, low, high, axis=1, out=(high, low))
    assert (backend.numpy(high).tolist(), backend.numpy(low).tolist()) == ([-1, -2, -3], [1, 2, 3])


def test_part_of_a_state_is_not_written_over(backend):
    x = backend.array(np.zeros((4, 3), np.float32))
    memory = backend.array(np.zeros(4, np.float32))
    with pytest.raises(InvalidProblem, match="new_largest overlaps largest; in place, it must be the same array"):
        skuda.observe_absmax_per_channel(x, memory[:3], axis=1, out=memory[1:])


def test_what_every_element_reads_is_not_written_over(backend):
    x = backend.array(np.zeros((4, 3), np.float32))
    scale, zero_point = (backend.array(np.ones(3, np.float32)) for _ in range(2))
    with pytest.raises(InvalidProblem, match="d_scale overlaps scale"):
        skuda.learnable_fake_quantize_per_channel_backward(
            x, x, scale, zero_point, axis=1, out=(backend.array(np.zeros((4, 3), np.float32)), scale, zero_point)
        )


def test_nothing_to_observe_leaves_the_state(backend):
    """As a tensor without finite elements does."""
    for shape in ((0, 3), (3, 0), (0,), (1, 3)):
        x = backend.array(np.full(shape, np.nan, np.float32))
        for name, states in (
            ("min_max", (-2.0, 3.0)), ("min_max", (np.inf, -np.inf)), ("min_max", (np.nan, np.nan)),
            ("moving_average", (-2.0, 3.0)), ("moving_average", (np.inf, -np.inf)), ("absmax", (3.0,)),
            ("absmax", (np.nan,)),
        ):  # fmt: skip
            new = getattr(skuda, f"observe_{name}_per_tensor")(x, *states)
            new = [backend.numpy(each) for each in (new if isinstance(new, tuple) else (new,))]
            expected = list(states)
            if name == "min_max" and np.isnan(states[0]):
                expected = [np.inf, -np.inf]
            elif name == "absmax" and np.isnan(states[0]):
                expected = [0]
            np.testing.assert_array_equal(new, expected, f"{name} {shape}")
