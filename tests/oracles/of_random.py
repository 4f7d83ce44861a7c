"""The oracles of operations with random numbers: of each element by its position in row-major order, from philox.py.

What gumbel_softmax makes of its numbers are spans, as those of softmax.
"""

from __future__ import annotations

from . import spans
from .binding import oracle
from .floats import (
    FORMATS,
    FP8,
    Value,
    compute_format,
    decode,
    divide,
    encode,
    floor_log2,
    integer,
    power_of_two,
    subtract,
)
from .philox import random_bits, random_uniform
from .spans import ANY, Span, point, real


def _dropped_out(elements, seed: int, offset: int, p: int, word: str) -> list[int]:
    compute = compute_format(word)
    least = decode(p, compute)
    kept = subtract(integer(1, compute), least, compute)

    def stored(index: int, element: int) -> int:
        if random_uniform(seed, offset, index, compute.word) < least.signed:
            return 0
        return encode(divide(decode(element, FORMATS[word]), kept, compute), FORMATS[word])

    return [stored(index, element) for index, element in enumerate(elements)]


@oracle(over="shape")
def dropout(input, seed, offset, *, p, T):
    return _dropped_out(input, seed, offset, p, T)


@oracle(over="shape")
def dropout_backward(d_output, seed, offset, *, p, T):
    return _dropped_out(d_output, seed, offset, p, T)


@oracle(over="shape")
def bernoulli(input, seed, offset, *, T):
    def is_one(index: int, element: int) -> bool:
        value = decode(element, FORMATS[T])
        number = random_uniform(seed, offset, index, compute_format(T).word)
        return number < value.signed if value.kind == "finite" else value.kind == "inf" and not value.negative

    return [encode(integer(is_one(*each), FORMATS[T]), FORMATS[T]) for each in enumerate(input)]


@oracle(over="shape")
def stochastic_round(input, seed, offset, *, T, Q):
    form = (FORMATS | FP8)[Q]

    def stored(index: int, element: int) -> int:
        value = decode(element, FORMATS[T])
        if value.kind != "finite" or value.zero:
            return encode(value, form)
        unit = power_of_two(max(floor_log2(value.magnitude) - form.fraction_bits, form.unit))
        whole, rest = divmod(value.magnitude, unit)
        above = random_bits(seed, offset, index) < rest / unit * 2**32 // 1
        return encode(Value("finite", value.negative, (whole + above) * unit), form)

    return [stored(*each) for each in enumerate(input)]


def _noisy_softmax(row, first: int, seed: int, offset: int, tau: int, word: str) -> list[Span]:
    """e^(y - max) / sum of y = (x - log(-log(u))) / tau, u being the random numbers from the first one on."""
    form = compute_format(word)
    divisor, values = point(decode(tau, form)), []
    for index, element in enumerate(row):
        number = point(real(random_uniform(seed, offset, first + index, form.word), form))
        noise = spans.negate(spans.log(spans.negate(spans.log(number, form)), form))
        total = spans.add(point(decode(element, FORMATS[word])), noise, form)
        values.append(spans.divide(total, divisor, form))
    highest = spans.largest(values)
    raised = [spans.exp(spans.subtract(each, highest, form), form) for each in values]
    share = spans.divide(point(integer(1, form)), spans.total(raised, form), form)
    return [spans.multiply(each, share, form) for each in raised]


def _hardened(soft: list[Span], word: str) -> list[Span]:
    """1 at the largest, 0 elsewhere; anything where spans do not say which that is."""
    if any(each is ANY or each.nan for each in soft):
        return [ANY] * len(soft)
    found = []
    for index, each in enumerate(soft):
        others = [other for place, other in enumerate(soft) if place != index]
        is_largest = all(spans.order(other.high) < spans.order(each.low) for other in others)
        may_be = all(spans.order(other.low) <= spans.order(each.high) for other in others)
        found.append(ANY if may_be and not is_largest else point(integer(is_largest, compute_format(word))))
    return found


@oracle(over=("n", "d"))
def gumbel_softmax(input, seed, offset, *, tau, hard, T):
    rows = [_noisy_softmax(row, n * len(row), seed, offset, tau, T) for n, row in enumerate(input)]
    return [_hardened(row, T) for row in rows] if hard else rows


@oracle(over=("n", "d"))
def gumbel_softmax_backward(d_output, input, output, seed, offset, *, tau, hard, T):
    """y (g - sum(y g)) / tau, where y is the softmax: the output, unless that is hard."""
    form, found = compute_format(T), []
    divisor = point(decode(tau, form))
    for n, (gradient, row, made) in enumerate(zip(d_output, input, output, strict=True)):
        soft = [point(decode(each, FORMATS[T])) for each in made]
        if hard:
            soft = _noisy_softmax(row, n * len(row), seed, offset, tau, T)
        g = [point(decode(each, FORMATS[T])) for each in gradient]
        total = spans.total([spans.multiply(*pair, form) for pair in zip(soft, g, strict=True)], form)
        slopes = [spans.multiply(y, spans.subtract(each, total, form), form) for y, each in zip(soft, g, strict=True)]
        found.append([spans.divide(each, divisor, form) for each in slopes])
    return found
