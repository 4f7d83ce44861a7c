"""How far results of a row with `precision="fast"` may be from the reference's (docs/numerics.md)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from skuda.model.dtypes import DTYPES

# Of a float that is stored: relative to it, as a power of 2, by the type T of elements, or a step of its own type where
# that is more. Of codes: neighbours of their type.
BOUNDS = {"f16": -12, "bf16": -9, "f32": -15, "f64": -50}
STEPS = 1
SMALLEST = 2.0**-100  # smaller scales, and codes by such, may be anything: instructions have 0 for subnormal numbers


def beyond(actual: np.ndarray, expected: np.ndarray, word: str, element: str) -> int:
    """How many elements are further from the reference's than that.

    Args:
        actual, expected: bytes of elements.
        word: their type.
        element: the type T of the operation.
    """
    one, other = (_ordered(each, word) for each in (actual, expected))
    dtype = DTYPES[word]
    if dtype.kind == "float" and dtype.bits > 8:
        step = 2.0 ** -ml_dtypes.finfo(dtype.storage).nmant
        with np.errstate(invalid="ignore"):
            near = np.abs(one - other) <= np.abs(other) * max(2.0 ** BOUNDS[element], step)
        return int(np.count_nonzero(~(near | (one == other) | (np.isnan(one) & np.isnan(other)))))
    return int(np.count_nonzero(np.abs(one - other) > STEPS))


def _ordered(contents: np.ndarray, word: str) -> np.ndarray:
    """Values of floats; of codes integers that count neighbours."""
    dtype = DTYPES[word]
    if dtype.kind == "float" and dtype.bits > 8:
        return contents.view(dtype.storage).astype(np.float64)
    codes = contents.view(np.uint8).astype(np.int64)
    if dtype.packed:
        codes = np.stack([codes & 15, codes >> 4], -1)
    if dtype.kind == "float":  # a sign and a magnitude
        sign = 1 << (dtype.bits - 1)
        return np.where(codes & sign, -(codes & (sign - 1)), codes)
    return np.where(codes > dtype.highest, codes - (1 << dtype.bits), codes)
