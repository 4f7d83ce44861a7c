"""Double-double arithmetic: a number is the unevaluated sum of two f64.

runtime/cuda/double_double.cuh is the same text in C++. There the error of a product comes from a fused multiply-add,
here from Veltkamp's splitting; both are exact, so the bits are the same where nothing over- or underflows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np

Pair = tuple  # (high, low): arrays of f64

_SPLIT = float((1 << 27) + 1)


def two_sum(a, b) -> Pair:
    """a + b, and what its rounding lost."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def fast_two_sum(a, b) -> Pair:
    """The same where |a| >= |b|, or a is 0."""
    total = a + b
    return total, b - (total - a)


def two_product(a, b) -> Pair:
    """a * b, and what its rounding lost, where neither over- or underflows."""
    product = a * b
    a_high, b_high = _split(a), _split(b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a):
    """The upper 26 bits of a."""
    spread = a * _SPLIT
    return spread - (spread - a)


def pair_product(a: Pair, b: Pair) -> Pair:
    """a b."""
    product = two_product(a[0], b[0])
    return product[0], product[1] + (a[0] * b[1] + a[1] * b[0])


def pair_quotient(n: Pair, d: Pair) -> Pair:
    """n / d."""
    y = 1.0 / d[0]
    quotient = n[0] * y
    product = two_product(quotient, d[0])
    rest = (((n[0] - product[0]) - product[1]) + n[1]) - quotient * d[1]
    return quotient, rest * y


def pair_root(x: Pair) -> Pair:
    """sqrt(x)."""
    root = np.sqrt(x[0])
    square = two_product(root, root)
    rest = ((x[0] - square[0]) - square[1]) + x[1]
    return root, np.where(root == 0, 0.0, rest * (1.0 / (root + root)))


def two_to_the(k):
    """2^k of int64, where that is a normal number."""
    return ((k + 1023) << 52).view(np.float64)


def times_two_to(y, k):
    """y * 2^k, rounded once where it is subnormal."""
    half = k >> 1
    return y * two_to_the(half) * two_to_the(k - half)


def horner(coefficients: tuple[float, ...], x):
    """A polynomial, the highest power first."""
    p = coefficients[0]
    for coefficient in coefficients[1:]:
        p = p * x + coefficient
    return p


def replaced(result, where, careful, x):
    """A result, computed carefully at some places."""
    if where.any():
        result[where] = careful(x[where])
    return result


def spread(*arrays) -> list[np.ndarray]:
    """`np.broadcast_arrays`, which knows 32 axes, of as many as arrays may have."""
    shapes = [np.shape(array) for array in arrays]
    rank = max(map(len, shapes))
    extents = zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes], strict=True)
    shape = tuple(next((each for each in along if each != 1), 1) for along in extents)
    return [np.broadcast_to(array, shape) for array in arrays]


def hexadecimal(*numbers: str) -> tuple[float, ...]:
    """Numbers from their hexadecimal spelling, which is that of the C++ text."""
    return tuple(map(float.fromhex, numbers))


def table(rows: str) -> tuple[np.ndarray, ...]:
    """The columns of a table of hexadecimal numbers, a row a line."""
    return tuple(np.array([hexadecimal(*row.split()) for row in rows.split("\n") if row.strip()]).T.copy())


def elementary(function: Callable) -> Callable:
    """Makes a function of f32 or f64 arrays, of any shape, from one of f64 arrays with at least one axis.

    Args:
        function: takes the arguments in f64 and `single`, whether the result is rounded to f32 at the end.

    Returns:
        a function that rounds to the arguments' type and raises no warnings.
    """

    @wraps(function)
    def rounded(*arguments):
        arrays = [np.asarray(argument) for argument in arguments]
        dtype = np.result_type(*arrays)
        shape = spread(*arrays)[0].shape
        with np.errstate(all="ignore"):
            wide = [np.atleast_1d(array).astype(np.float64) for array in arrays]
            return np.asarray(function(*wide, dtype == np.float32)).astype(dtype).reshape(shape)

    return rounded


def in_f32(short: Callable) -> Callable:
    """Makes a function that takes f32 another way than `elementary` does, and raises no warnings.

    Args:
        short: what takes arrays of f32, of one shape with at least one axis.
    """

    def chosen(function: Callable) -> Callable:
        @wraps(function)
        def of_either(*arguments):
            arrays = [np.asarray(argument) for argument in arguments]
            if np.result_type(*arrays) != np.float32:
                return function(*arguments)
            arrays = spread(*arrays)
            with np.errstate(all="ignore"):
                value = short(*(np.atleast_1d(array).astype(np.float32, copy=False) for array in arrays))
                return np.asarray(value, np.float32).reshape(arrays[0].shape)

        return of_either

    return chosen
