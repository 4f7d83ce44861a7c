"""How far two arrays of an element type are apart, in steps from one value of the type to the next."""

from __future__ import annotations

import numpy as np

from skuda.model.dtypes import DTYPES


def distance(actual: np.ndarray, expected: np.ndarray, word: str) -> int | None:
    """The largest distance between elements at the same position; None where one of two that differ is NaN.

    Both zeros of a float type are one value here, so arrays whose bytes differ may have the distance 0.

    Args:
        actual, expected: the same number of bytes each, as uint8.
        word: the element type; of a packed one, two elements share a byte.
    """
    apart = actual != expected
    if DTYPES[word].packed:
        one, other = (_nibbles(side[apart], DTYPES[word].signed) for side in (actual, expected))
    else:
        itemsize = DTYPES[word].storage.itemsize
        elements = np.flatnonzero(apart.reshape(-1, itemsize).any(1))
        one, other = (side.reshape(-1, itemsize)[elements].reshape(-1) for side in (actual, expected))
        if DTYPES[word].kind == "float":
            if any(np.isnan(side.view(DTYPES[word].storage)).any() for side in (one, other)):
                return None
            one, other = (_ordered(side.view(f"i{itemsize}")) for side in (one, other))
        else:
            one, other = (side.view(DTYPES[word].storage).astype(np.int64) for side in (one, other))
    # Modulo 2^64 this is exact, however far apart two 64-bit values are.
    steps = np.maximum(one, other).view(np.uint64) - np.minimum(one, other).view(np.uint64)
    return int(steps.max(initial=0))


def worse(one: int | None, other: int | None) -> int | None:
    """The larger of two distances; None is the largest."""
    return None if one is None or other is None else max(one, other)


def _nibbles(codes: np.ndarray, signed: bool) -> np.ndarray:
    values = np.concatenate([codes & 15, codes >> 4]).astype(np.int64)
    return np.where(values > 7, values - 16, values) if signed else values


def _ordered(bits: np.ndarray) -> np.ndarray:
    """The bits of floats, as signed integers of their width, to integers that count the steps from zero."""
    wide = bits.astype(np.int64)
    magnitude = wide & np.iinfo(bits.dtype).max
    return np.where(wide < 0, -magnitude, magnitude)
