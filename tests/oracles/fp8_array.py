"""Quantization to floats of 8 bits over whole arrays: the definitions of fp8.py in NumPy integers (floats_array.py).

The functions have the signatures of fp8.py with arrays that broadcast; bit patterns are of any unsigned integer type,
results bit patterns in uint64.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from . import floats_array as arrays
from .affine_array import quotient
from .floats import F64, FORMATS, FP8, compute_format, encode_fraction


def in_range_of(value: arrays.Values, q_max) -> np.ndarray:
    """Whether quotients are no larger than q_max: patterns of positive numbers are in their numbers' order."""
    most = encode_fraction(Fraction(q_max), F64)
    size = arrays.encode(value, F64) & np.uint64(F64.sign - 1)
    return size <= np.uint64(most)


def code_of(value: arrays.Values, q_max, word: str) -> np.ndarray:
    """The codes nearest to quotients."""
    most = np.uint64(encode_fraction(Fraction(q_max), FP8[word]))
    bits = arrays.encode(value, FP8[word])
    size = np.minimum(bits & np.uint64(127), most)
    return np.where(value.kind == arrays.NAN, np.uint64(FP8[word].nan), size | (bits & np.uint64(128)))


def quantize(x, scale, q_max, *, element, scale_element, word) -> np.ndarray:
    return code_of(quotient(x, scale, element=element, scale_element=scale_element), q_max, word)


def in_range(x, scale, q_max, *, element, scale_element) -> np.ndarray:
    return in_range_of(quotient(x, scale, element=element, scale_element=scale_element), q_max)


def quantize_backward(d_output, x, scale, q_max, *, element, scale_element) -> np.ndarray:
    kinds = {"element": element, "scale_element": scale_element}
    gradient = arrays.encode(quotient(d_output, scale, **kinds), FORMATS[element])
    return np.where(in_range(x, scale, q_max, **kinds), gradient, np.uint64(0))


def dequantize(code, scale, *, element, scale_element, word) -> np.ndarray:
    scale = arrays.decode(scale, FORMATS[scale_element])
    product = arrays.multiply(arrays.decode(code, FP8[word]), scale, compute_format(element))
    return arrays.encode(product, FORMATS[element])
