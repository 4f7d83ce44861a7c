"""The oracles of operations that create: of each element by its position in row-major order. What was stored says how
many elements there are."""

from __future__ import annotations

import mpmath

from . import floats, spans
from .binding import oracle
from .floats import FORMATS, compute_format, decode, encode, integer
from .of_data import add, mul, wrapped
from .philox import random_bits, random_normal, random_uniform
from .spans import Span, real

ULP = 4  # of random_normal, in the compute type


@oracle
def full(value, *, T):
    return encode(decode(value, FORMATS[T]), FORMATS[T]) if T in FORMATS else value


@oracle(over="n")
def arange(output, start=None, step=None, *, T):
    def element(index: int) -> int:
        if T not in FORMATS:
            return wrapped((start or 0) + (1 if step is None else step) * index, T)
        form = compute_format(T)
        by, to = (floats.integer(each, form) for each in (1, index))
        by = by if step is None else decode(step, FORMATS[T])
        moved = floats.multiply(by, to, form) if step is not None else to
        return encode(moved if start is None else floats.add(decode(start, FORMATS[T]), moved, form), FORMATS[T])

    return [element(index) for index in range(len(output))]


@oracle(over="n")
def linspace(output, start, end, *, T):
    form, last = compute_format(T), len(output) - 1
    first, final = (decode(each, FORMATS[T]) for each in (start, end))
    steps, distance = floats.integer(max(last, 1), form), floats.subtract(final, first, form)
    step = floats.divide(distance, steps, form)
    if distance.kind != "finite":  # a single step is multiplied by 0 alone
        several = floats.integer(max(last, 2), form)
        step = floats.subtract(*[floats.divide(each, several, form) for each in (final, first)], form)

    def element(index: int) -> int:
        ahead = 2 * index < last or last == 0
        moved = floats.multiply(floats.integer(index if ahead else last - index, form), step, form)
        return encode(floats.add(first, moved, form) if ahead else floats.subtract(final, moved, form), FORMATS[T])

    return [element(index) for index in range(len(output))]


@oracle(over=("r", "c"))
def eye(output, diagonal, *, T):
    one = encode(integer(1, FORMATS[T]), FORMATS[T]) if T in FORMATS else 1
    return [[one if c - r == diagonal else 0 for c in range(len(row))] for r, row in enumerate(output)]


@oracle(over="shape")
def rand(output, seed, offset=0, *, T):
    form = compute_format(T)
    numbers = [random_uniform(seed, offset, index, form.word) for index in range(len(output))]
    return [encode(real(each, form), FORMATS[T]) for each in numbers]


@oracle(over="shape")
def randn(output, seed, offset=0, *, T):
    form = compute_format(T)

    def element(index: int) -> Span:
        with mpmath.workprec(300):
            return spans._near(spans._fraction(random_normal(seed, offset, index, form.word)._mpf_), form, ULP)

    return [element(index) for index in range(len(output))]


@oracle(over="shape")
def randint(output, low, high, seed, offset=0, *, T):
    size = min(max(high - low, 0), 2**31 - 1)
    return [wrapped(low + (random_bits(seed, offset, index) * size >> 32), T) for index in range(len(output))]


# ---- of a dimension each ----


@oracle
def outer(a, b, *, T):
    return mul(a, b, T=T)


@oracle
def add_outer(a, b, *, T):
    return add(a, b, T=T)


def _points(row, word: str) -> list[Span]:
    return [spans.point(decode(each, FORMATS[word])) for each in row]


@oracle(over=("r", "c"))
def outer_backward(d_output, a, b, *, T):
    form, a, b = compute_format(T), _points(a, T), _points(b, T)
    g = [_points(row, T) for row in d_output]
    of_rows = [spans.total([spans.multiply(*pair, form) for pair in zip(row, b, strict=True)], form) for row in g]
    columns = [spans.total([spans.multiply(*pair, form) for pair in zip(column, a, strict=True)], form)
               for column in zip(*g, strict=True)]  # fmt: skip
    return of_rows, columns


@oracle(over=("r", "c"))
def add_outer_backward(d_output, *, T):
    form, g = compute_format(T), [_points(row, T) for row in d_output]
    return [spans.total(row, form) for row in g], [spans.total(column, form) for column in zip(*g, strict=True)]
