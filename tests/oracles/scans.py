"""The oracles of scans: what a reduction of each prefix of a row may be, in any order. See binding.py.

logcumsumexp joins two values as max + log1p(exp(min - max)). A join is off by at most u of its result and 4 u beside
(those of exp, of log1p and of the difference), u = 2^-p, and hands on at most the larger error of the two. Of n
elements none is in more than n - 1 joins, so the scan is off by at most (n - 1) u (M + 4), M being the largest
magnitude of an element, and log n. Its gradient is a difference of two such scans, from the other end.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath

from . import rows, spans
from .binding import oracle
from .floats import FORMATS, NAN, Value, compute_format, decode
from .of_data import wrapped
from .spans import ANY, Span, point

_PRECISION = 160  # bits in which logarithms are evaluated


def _prefixes(row: list[int], reverse: bool = False, exclusive: bool = False) -> list[list[int]]:
    """Of each element those that its value is made of."""
    count = len(row)
    if reverse:
        return [row[index + exclusive :] for index in range(count)]
    return [row[: index + 1 - exclusive] for index in range(count)]


def _sums(row, word: str, **options) -> list:
    prefixes = _prefixes(row, **options)
    if word not in FORMATS:
        return [wrapped(sum(each), word) for each in prefixes]
    return [rows.total(each, element=word) for each in prefixes]


@oracle(over="d")
def cumsum(input, *, T):
    return _sums(input, T)


@oracle(over="d")
def cumsum_backward(d_output, *, T):
    return _sums(d_output, T, reverse=True)


@oracle(over="d")
def cumsum_reverse(input, *, T):
    return _sums(input, T, reverse=True)


@oracle(over="d")
def cumsum_reverse_backward(d_output, *, T):
    return _sums(d_output, T)


@oracle(over="d")
def cumsum_exclusive(input, *, T):
    return _sums(input, T, exclusive=True)


@oracle(over="d")
def cumsum_exclusive_backward(d_output, *, T):
    return _sums(d_output, T, exclusive=True, reverse=True)


@oracle(over="d")
def cumprod(input, *, T):
    if T in FORMATS:
        return [rows.product(each, element=T) for each in _prefixes(input)]
    found, product = [], 1
    for value in input:
        product *= value
        found.append(wrapped(product, T))
    return found


@oracle(over="d")
def cummax(input, *, T):
    return [rows.largest(each, element=T) if T in FORMATS else max(each) for each in _prefixes(input)]


@oracle(over="d")
def cummin(input, *, T):
    return [rows.smallest(each, element=T) if T in FORMATS else min(each) for each in _prefixes(input)]


@oracle(over="d")
def logcumsumexp(input, *, T):
    return [_log_of_sum([decode(bits, FORMATS[T]) for bits in each], T) for each in _prefixes(input)]


def _log_of_sum(values: list[Value], word: str) -> Span:
    form = compute_format(word)
    if any(value.kind == "nan" for value in values):
        return point(NAN)
    if any(value.kind == "inf" and not value.negative for value in values):
        return point(Value("inf"))
    numbers = [value.signed for value in values if value.kind == "finite"]
    if len(numbers) < 2:
        return point(next((value for value in values if value.kind == "finite"), Value("inf", True)))
    exact, off = _logarithm(numbers, form)
    return spans.within(exact - off, exact + off, form)


def _logarithm(numbers: list[Fraction], form) -> tuple[Fraction, Fraction]:
    """log(sum(e^x)), and how far a scan may be off."""
    highest = max(numbers)
    with mpmath.workprec(_PRECISION):
        total = mpmath.fsum(mpmath.exp(_mpf(max(x - highest, Fraction(-2000)))) for x in numbers)
        exact = highest + _fraction(mpmath.log(total))
    u = Fraction(1, 1 << (form.fraction_bits + 1))
    most = max(abs(x) for x in numbers) + len(numbers).bit_length()
    return exact, (len(numbers) - 1) * u * (most + 4)


@oracle(over="d")
def logcumsumexp_backward(d_output, input, output, *, T):
    form, kinds = compute_format(T), FORMATS[T]
    gradients, x, y = ([decode(bits, kinds) for bits in each] for each in (d_output, input, output))
    found = []
    for index, value in enumerate(x):
        after = list(zip(gradients[index:], y[index:], strict=True))
        if value.kind == "inf" and value.negative:
            found.append(point(Value("finite")))
        elif value.kind != "finite" or any(each.kind != "finite" for pair in after for each in pair):
            found.append(ANY)
        else:
            rising = _risen([(g.signed, y.signed) for g, y in after if g.signed > 0], value.signed, form)
            falling = _risen([(-g.signed, y.signed) for g, y in after if g.signed < 0], value.signed, form)
            if rising is None or falling is None:
                found.append(ANY)
            else:
                found.append(spans.subtract(rising, falling, form))
    return found


def _risen(pairs: list[tuple[Fraction, Fraction]], x: Fraction, form) -> Span | None:
    """e^(x + log(sum(e^(log(g) - y)))) of pairs g, y; None where that may overflow, or be off by a factor."""
    if not pairs:
        return point(Value("finite"))
    u = Fraction(1, 1 << (form.fraction_bits + 1))
    with mpmath.workprec(_PRECISION):
        logs = [_fraction(mpmath.log(_mpf(g))) for g, _ in pairs]
    numbers = [log - y for log, (_, y) in zip(logs, pairs, strict=True)]
    own = max(2 * abs(log) + abs(log - y) for log, (_, y) in zip(logs, pairs, strict=True)) * u * 2
    exact, off = _logarithm(numbers, form)
    off += own + abs(exact + x) * u * 2
    if exact + x > 700 or off > 1:
        return None
    if exact + x < -1100:
        return point(Value("finite"))
    with mpmath.workprec(_PRECISION):
        low, high = (_fraction(mpmath.exp(_mpf(exact + x + side))) for side in (-off, off))
    least = Fraction(2) ** form.unit
    span = spans.within(max(low * (1 - 4 * u) - least, Fraction(0)), high * (1 + 4 * u) + least, form)
    return span if span.finite else None


def _mpf(number: Fraction):
    return mpmath.mpf(number.numerator) / number.denominator


def _fraction(number) -> Fraction:
    sign, mantissa, exponent, _ = number._mpf_
    return (-1 if sign else 1) * int(mantissa) * Fraction(2) ** exponent
