"""Affine quantization over whole arrays: the definitions of affine.py in NumPy integers (floats_array.py).

The functions have the signatures of affine.py with arrays that broadcast: floating-point arguments are bit
patterns of any unsigned integer type, floating-point results bit patterns in uint64, codes int64.
"""

from __future__ import annotations

import numpy as np

from . import floats_array as arrays
from .floats import FORMATS, compute_format


def quotient(x, scale, *, element: str, scale_element: str) -> arrays.Values:
    """x / scale, rounded to the compute type."""
    return arrays.divide(
        arrays.decode(x, FORMATS[element]),
        arrays.decode(scale, FORMATS[scale_element]),
        compute_format(element),
    )


def steps(x, scale, *, element, scale_element) -> np.ndarray:
    """x / scale to the nearest integer, saturated far outside the reach of any zero point."""
    return arrays.to_integers(quotient(x, scale, element=element, scale_element=scale_element))


def quantize(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> np.ndarray:
    rounded = steps(x, scale, element=element, scale_element=scale_element)
    return code_of(rounded, zero_point, q_min, q_max)


def code_of(rounded, zero_point, q_min, q_max) -> np.ndarray:
    """The code of x, from steps(x, scale)."""
    return np.clip(rounded + np.asarray(zero_point, dtype=np.int64), q_min, q_max)


def in_range(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> np.ndarray:
    rounded = steps(x, scale, element=element, scale_element=scale_element)
    return in_range_of(rounded, zero_point, q_min, q_max)


def in_range_of(rounded, zero_point, q_min, q_max) -> np.ndarray:
    """The straight-through mask, from steps(x, scale)."""
    code = rounded + np.asarray(zero_point, dtype=np.int64)
    return (q_min <= code) & (code <= q_max)


def dequantize(q, scale, zero_point, *, element, scale_element) -> np.ndarray:
    compute = compute_format(element)
    offset = np.asarray(q, dtype=np.int64) - np.asarray(zero_point, dtype=np.int64)
    scale = arrays.decode(scale, FORMATS[scale_element])
    product = arrays.multiply(arrays.from_integers(offset, compute), scale, compute)
    return arrays.encode(product, FORMATS[element])


def fake_quantize(x, scale, zero_point, q_min, q_max, *, element, scale_element) -> np.ndarray:
    kinds = {"element": element, "scale_element": scale_element}
    return dequantize(quantize(x, scale, zero_point, q_min, q_max, **kinds), scale, zero_point, **kinds)


def quantize_backward(d_output, x, scale, zero_point, q_min, q_max, *, element, scale_element) -> np.ndarray:
    kinds = {"element": element, "scale_element": scale_element}
    gradient = arrays.encode(quotient(d_output, scale, **kinds), FORMATS[element])
    return np.where(in_range(x, scale, zero_point, q_min, q_max, **kinds), gradient, np.uint64(0))


def fake_quantize_backward(d_output, x, scale, zero_point, q_min, q_max, *, element, scale_element):
    inside = in_range(x, scale, zero_point, q_min, q_max, element=element, scale_element=scale_element)
    return np.where(inside, canonical(d_output, element), np.uint64(0))


def dequantize_backward(d_output, scale, *, element, scale_element) -> np.ndarray:
    product = arrays.multiply(
        arrays.decode(d_output, FORMATS[element]),
        arrays.decode(scale, FORMATS[scale_element]),
        compute_format(element),
    )
    return arrays.encode(product, FORMATS[element])


def canonical(x, element: str) -> np.ndarray:
    """The same bit patterns with every NaN made canonical."""
    return arrays.encode(arrays.decode(x, FORMATS[element]), FORMATS[element])
