"""The distance that evidence records, against neighbours that NumPy names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from distance import distance, worse

from skuda.model.dtypes import DTYPES


def apart(one, other, word: str) -> int | None:
    storage = DTYPES[word].storage
    sides = [np.array(side).astype(storage).reshape(-1).view(np.uint8) for side in (one, other)]
    return distance(*sides, word)


@pytest.mark.parametrize("word", ["f64", "f32", "f16", "bf16"])
def test_floats(word):
    storage = DTYPES[word].storage
    one = np.array([1.0, -3.5, 100.0], storage)
    above = np.nextafter(one, storage.type(np.inf))
    assert apart(one, one, word) == 0
    assert apart(one, above, word) == apart(above, one, word) == 1
    assert apart([1.0, 5.0], [np.nextafter(above[0], storage.type(np.inf)), 5.0], word) == 2
    smallest = ml_dtypes.finfo(storage).smallest_subnormal
    assert apart(smallest, -smallest, word) == 2  # across zero
    assert apart(0.0, -0.0, word) == 0
    assert apart(1.0, np.nan, word) is None
    most = (1 << storage.itemsize * 8) - 2 * (1 << ml_dtypes.finfo(storage).nmant)
    assert apart(np.inf, -np.inf, word) == most


@pytest.mark.parametrize(
    ("word", "one", "other", "steps"),
    [("s8", -128, 127, 255), ("u8", 3, 250, 247), ("i32", -(2**31), 5, 2**31 + 5)],
)
def test_integers(word, one, other, steps):
    assert apart([one, 7], [other, 8], word) == steps


@pytest.mark.parametrize(("word", "steps"), [("s4", 15), ("u4", 9)])
def test_packed_codes(word, steps):
    one, other = np.array([0x18, 0x21], np.uint8), np.array([0x17, 0x2A], np.uint8)
    assert distance(one, other, word) == steps


def test_nan_is_the_worst():
    assert (worse(0, 3), worse(None, 3), worse(0, None)) == (3, None, None)
