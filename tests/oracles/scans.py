"""The oracles of scans: what a reduction of each prefix of a row may be, in any order. See binding.py.

logcumsumexp joins sums e^m (1 + r). A join is off by at most 6 u of 1 + r (those of exp, of the difference, of a sum
and a product or two), u = 2^-p, and hands on at most the larger error of the two. Of n elements none is in more than
n - 1 joins; then come 2 u of the logarithm of 1 + r, which is n at most, and u of the result.

A recurrence joins steps: in a term of n factors are at most 5 n roundings, whatever the order, so the sum is off by at
most 5 n u / (1 - 5 n u) of the sum of the terms' magnitudes. Nothing is said where a product of neighbours may leave
the range, or a number is not finite.
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
    return exact, u * (6 * (len(numbers) - 1) + 2 * len(numbers).bit_length() + abs(exact))


@oracle(over="d")
def logcumsumexp_backward(d_output, input, *, T):
    """e^(x - y) times the gradient and those after it, each times 1 - e^(x - y) of it and of those between."""
    form, kinds = compute_format(T), FORMATS[T]
    gradients, x = ([decode(bits, kinds) for bits in each] for each in (d_output, input))
    u, count = Fraction(1, 1 << (form.fraction_bits + 1)), len(x)
    found: list[Span] = [ANY] * count
    if any(each.kind != "finite" for each in gradients) or any(each.kind == "nan" for each in x):
        return found
    state = size = error = Fraction(0)  # what comes from those after an element; of magnitudes; how far it may be off
    for index in range(count)[::-1]:
        value, numbers = x[index], [each.signed for each in x[: index + 1] if each.kind == "finite"]
        if any(each.kind == "inf" and not each.negative for each in x[: index + 1]):
            if value.kind == "inf" and not value.negative:  # nothing before it counts any more
                state = size = error = Fraction(0)
            continue
        g = gradients[index].signed
        whole, whole_size = g + state, abs(g) + size
        off = error + 3 * u * whole_size
        if value.kind == "inf":
            found[index] = point(Value("finite"))
            state, size, error = whole, whole_size, off
            continue
        exact, far = _logarithm(numbers, form)
        far += 2 * u * abs(value.signed - exact) if len(numbers) > 1 else 0
        with mpmath.workprec(_PRECISION):
            share = _fraction(mpmath.exp(_mpf(max(value.signed - exact, Fraction(-2000)))))
            kept = _fraction(-mpmath.expm1(_mpf(max(value.signed - exact, Fraction(-2000))))) if len(numbers) > 1 else 0
        least, loose = Fraction(2) ** form.unit * 4, share * (2 * far + 4 * u)
        most = share * off + loose * (whole_size + off) + least * (1 + whole_size)
        found[index] = _near(whole * share, most, form)
        error = kept * off + (loose + 4 * u * kept) * (whole_size + off) + least * (1 + whole_size)
        state, size = whole * kept, whole_size * kept
    return found


def _near(number: Fraction, off: Fraction, form) -> Span:
    """A number that may be off, and both zeros if it may be one."""
    span = spans.within(number - off, number + off, form)
    if not span.finite:
        return ANY
    zeros = [Value("finite", True), Value("finite")] if abs(number) <= off else []
    return spans.hull([span.low, span.high, *zeros])


Known = tuple[Fraction, Fraction, int]  # a value, the sum of its terms' magnitudes, the elements that it is made of


def _steps(a: list[Value], b: list[Value], form) -> list[Known | None]:
    """Of y = a * before + b, exactly; None where nothing is said."""
    found: list[Known | None] = []
    state = size = Fraction(0)
    since, known, logs = 0, True, []
    for factor, term in zip(a, b, strict=True):
        if factor.zero:  # what is before is forgotten
            state = size = Fraction(0)
            since, known, logs = 0, True, []
        since += 1
        logs.append(_log2(factor))
        known = known and factor.kind == term.kind == "finite" and _in_range(logs, form)
        if known:
            state, size = factor.signed * state + term.signed, abs(factor.signed) * size + abs(term.signed)
            known = size < Fraction(2) ** (form.highest_exponent - 8)
        found.append((state, size, since) if known else None)
    return found


def _log2(value: Value) -> float:
    return float(mpmath.log(_mpf(value.magnitude), 2)) if value.kind == "finite" and not value.zero else 0.0


def _in_range(logs: list[float], form) -> bool:
    """Whether products of neighbours stay far within the range."""
    low = high = least = most = 0.0  # of products that end here, and of all
    for log in logs:
        low, high = min(low + log, log), max(high + log, log)
        least, most = min(least, low), max(most, high)
    return -least < form.bias / 2 > most


def _products(factors: list[Value], form) -> list[Known | None]:
    """Of each element the product of those before it."""
    found: list[Known | None] = []
    product, logs, known = Fraction(1), [], True
    for index, factor in enumerate(factors):
        found.append((product, abs(product), index) if known else None)
        logs.append(_log2(factor))
        known = known and factor.kind == "finite" and _in_range(logs, form)
        product *= factor.signed if known else 0
    return found


def _gathered(factors: list[Value], gradients: list[Value], form) -> list[Known | None]:
    """Of each element its gradient, and those after it times the factors between."""
    after = [*factors[1:], Value("finite")]  # that of the next one takes to an element
    return _steps(after[::-1], gradients[::-1], form)[::-1]


def _spanned(form, *known: Known | None) -> Span:
    """A product of some values."""
    if None in known:
        return ANY
    value = size = Fraction(1)
    for each in known:
        value, size = value * each[0], size * each[1]
    roundings = sum(each[2] for each in known) * 5
    if roundings == 5:  # an element alone
        return _near(value, Fraction(0), form)
    u = Fraction(1, 1 << (form.fraction_bits + 1))
    lost = roundings * Fraction(2) ** (form.unit + form.bias // 2) * (1 + size)  # where factors are subnormal
    return _near(value, roundings * u / (1 - roundings * u) * size + lost, form)


def _decoded(row, word: str) -> list[Value]:
    return [decode(bits, FORMATS[word]) for bits in row]


@oracle(over="d")
def linear_recurrence(a, b, *, T):
    form = compute_format(T)
    return [_spanned(form, each) for each in _steps(_decoded(a, T), _decoded(b, T), form)]


@oracle(over="d")
def linear_recurrence_backward(d_output, a, b, *, T):
    form = compute_format(T)
    factors, terms, gradients = (_decoded(each, T) for each in (a, b, d_output))
    gathered = _gathered(factors, gradients, form)
    before = [(Fraction(0), Fraction(0), 1), *_steps(factors, terms, form)[:-1]]
    of_factors = [_spanned(form, *each) for each in zip(gathered, before, strict=True)]
    return of_factors, [_spanned(form, each) for each in gathered]


@oracle(over="d")
def cumprod_backward(d_output, input, *, T):
    form = compute_format(T)
    factors, gradients = _decoded(input, T), _decoded(d_output, T)
    gathered = _gathered(factors, gradients, form)
    return [_spanned(form, *each) for each in zip(gathered, _products(factors, form), strict=True)]


def _extreme_backward(d_output, input, output, word: str) -> list[Span]:
    """The gradients from an element that is the extreme on: of equals each, a NaN itself, and no other after one."""
    form = compute_format(word)
    x, y, gradients = (_decoded(each, word) for each in (input, output, d_output))
    same = [(a.kind, a.kind == "inf" and a.negative, a.signed) for a in x]
    best = [(b.kind, b.kind == "inf" and b.negative, b.signed) for b in y]
    hits = [a.kind == "nan" or own == extreme for a, own, extreme in zip(x, same, best, strict=True)]
    found: list[Span] = []
    for index, hit in enumerate(hits):
        end = next((later for later in range(index + 1, len(x)) if hits[later]), len(x))
        run = gradients[index:end]
        if not hit:
            found.append(point(Value("finite")))
        elif any(each.kind != "finite" for each in run):
            found.append(ANY)
        else:
            numbers = [each.signed for each in run]
            found.append(_spanned(form, (sum(numbers), sum(map(abs, numbers)), len(run))))
    return found


@oracle(over="d")
def cummax_backward(d_output, input, output, *, T):
    return _extreme_backward(d_output, input, output, T)


@oracle(over="d")
def cummin_backward(d_output, input, output, *, T):
    return _extreme_backward(d_output, input, output, T)


def _mpf(number: Fraction):
    return mpmath.mpf(number.numerator) / number.denominator


def _fraction(number) -> Fraction:
    sign, mantissa, exponent, _ = number._mpf_
    return (-1 if sign else 1) * int(mantissa) * Fraction(2) ** exponent
