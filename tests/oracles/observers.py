"""What calibration observers make of their state and a row, from their definitions: exact, to the bit.

Rows, states and the averaging constant are bit patterns, the last two of the compute type.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .floats import FORMATS, Value, add, compute_format, decode, encode, multiply, subtract
from .spans import order


def _finite(row: Sequence[int], element: str) -> list[Value]:
    return [value for value in (decode(each, FORMATS[element]) for each in row) if value.kind == "finite"]


def _extremes(row: Sequence[int], element: str) -> tuple[Value, Value]:
    """The least and the greatest finite value, -0 below +0; +inf and -inf where there is none."""
    values = _finite(row, element)
    return min(values, key=order, default=Value("inf")), max(values, key=order, default=Value("inf", True))


def _beyond(state: Value, seen: Value, sign: int) -> Value:
    """The state where it lies beyond what is seen, in the sense of a sign; zeros of both signs are equal."""
    if state.kind == "nan":
        return seen
    own, other = order(state)[:2], order(seen)[:2]
    return state if (own > other if sign > 0 else own < other) else seen


def min_max(row, low: int, high: int, *, element) -> tuple[int, int]:
    """The least and the greatest of the state and the finite values; a NaN in either is none."""
    compute = compute_format(element)
    least, greatest = _extremes(row, element)
    states = decode(low, compute), decode(high, compute)
    return encode(_beyond(states[0], least, -1), compute), encode(_beyond(states[1], greatest, 1), compute)


def absmax(row, largest: int, *, element) -> int:
    """The largest of the state and the magnitudes of the finite values, 0 among them."""
    compute = compute_format(element)
    size = max((value.magnitude for value in _finite(row, element)), default=Fraction(0))
    return encode(_beyond(decode(largest, compute), Value("finite", False, size), 1), compute)


def moving_average(row, low: int, high: int, averaging: int, *, element) -> tuple[int, int]:
    """state + averaging * (seen - state), each step rounded, of the least and of the greatest finite value; what is
    seen where the state is not finite, and the state where no value is."""
    compute = compute_format(element)
    ends = []
    for bits, seen in zip((low, high), _extremes(row, element), strict=True):
        state = decode(bits, compute)
        if seen.kind == "finite" and state.kind == "finite":
            move = multiply(decode(averaging, compute), subtract(seen, state, compute), compute)
            seen = add(state, move, compute)
        elif seen.kind != "finite":
            seen = state
        ends.append(encode(seen, compute))
    return ends[0], ends[1]
