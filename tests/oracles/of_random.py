"""The oracles of operations with random numbers: of each element by its position in row-major order, from philox.py."""

from __future__ import annotations

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
