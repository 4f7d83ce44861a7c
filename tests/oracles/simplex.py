"""The oracles of sparsemax, by sorting: https://arxiv.org/abs/1602.02068, algorithm 1.

Of distances z from the largest element, in descending order, k are above the threshold t, k being the largest number
for which 1 + k z_k > z_1 + .. + z_k; then t = (z_1 + .. + z_k - 1) / k, exactly.

How far off a threshold may be that is found from below, by steps to (sum of those above - 1) / (their number): a step
is off by the factor r at most, that of the sum, a subtraction and a division; without roundings none is above t. The
last one did not rise from its own t', so t' is less than c/m r |t| below t, where c elements are above t', and m
above t. So c is counted twice, first as all elements.
"""

from __future__ import annotations

from fractions import Fraction

from . import floats, spans
from .binding import oracle
from .floats import FORMATS, NAN, Value, compute_format, decode, integer
from .spans import ZERO, Span, point


@oracle(over="d")
def sparsemax(input, *, T):
    form = compute_format(T)
    row = [decode(bits, FORMATS[T]) for bits in input]
    if any(x.kind == "nan" or (x.kind == "inf" and not x.negative) for x in row) or all(x.kind == "inf" for x in row):
        return [point(NAN)] * len(row)
    largest = max(row, key=spans.order)
    distances = [floats.subtract(x, largest, form) for x in row]
    threshold = _threshold([z.signed for z in distances if z.kind == "finite"], form)
    return [
        spans.cut(spans.subtract(point(z), threshold, form), point(ZERO), point(Value("inf"))) for z in distances
    ]


@oracle(over="d")
def sparsemax_backward(d_output, output, *, T):
    """Where the output is above 0, the gradient less the mean of those there; else 0."""
    form = compute_format(T)
    stored = [decode(bits, FORMATS[T]) for bits in output]
    kept = [y.kind == "inf" and not y.negative or y.kind == "finite" and y.signed > 0 for y in stored]
    gradient = [point(decode(bits, FORMATS[T])) for bits in d_output]
    total = spans.total([g if on else point(ZERO) for g, on in zip(gradient, kept, strict=True)], form)
    mean = spans.divide(total, point(integer(sum(kept), form)), form)
    return [spans.subtract(g, mean, form) if on else point(ZERO) for g, on in zip(gradient, kept, strict=True)]


def _threshold(distances: list[Fraction], form) -> Span:
    """Where it may lie, of finite distances."""
    ordered = sorted(distances, reverse=True)
    total = threshold = Fraction(0)
    above = 0
    for k, z in enumerate(ordered, start=1):
        total += z
        if 1 + k * z > total:
            threshold, above = (total - 1) / k, k
    u = Fraction(1, 1 << (form.fraction_bits + 1))
    additions = min(len(ordered), 20 + ((len(ordered) - 1) // 65536).bit_length())
    factor = (1 + u) ** (additions + 2) - 1
    size, counted = -threshold * factor, len(ordered)
    for _ in range(2):
        below = size * (1 + Fraction(counted, above)) * (1 + factor)
        counted = sum(z > threshold - below for z in ordered)
    return spans.within(threshold - below, threshold + size, form)
