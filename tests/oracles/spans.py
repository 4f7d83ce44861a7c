"""Where a computed value may lie: spans whose ends are values of the compute type.

A step that is rounded correctly takes each end to an end, because rounding is monotone: from values that are known
exactly it gives the one result that is right, to the bit. Only two kinds of steps widen a span:

- a sum of n values, whose order is no part of its definition. Between an element and the result lie at most k = 20
  + log2(s) additions, rounded up (3 of neighbours, 7 of groups, 10 of accumulators, then those of s segments
  of 65536), and never more than n - 1. Each is off by at most u = 2^-p of its result (p the bits of a mantissa;
  subnormal sums are exact), so the sum is off by at most ((1 + u)^k - 1) S <= k u / (1 - k u) S, S being the sum of
  the magnitudes. That is about half of the 21 + log2(s) units in the last place of S that `model.sum_order`
  promises. A product of n values has n - 1 roundings in any order, so it is off by a factor of at most
  1 +- n u / (1 - n u).
- exp and log, which are off by at most 1 unit in the last place of the exact value, or of the smallest subnormal
  where that unit is larger; ndtr, the normal distribution below x, sigmoid, and the derivative of x ndtr(x) by at most
  1.5 units. No span of ndtr reaches beyond 0 or 1. In rows that store f16 or bf16 (`stored`), exp, ndtr, sigmoid and
  that derivative are within 2^-14 or 2^-11 of the value beside that.

ANY is the span about which nothing can be said: a sum or product that overflows in one order and not in another,
and what is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import isqrt

import mpmath
from mpmath import libmp

from . import floats
from .floats import NAN, Format, Value, decode, encode, floor_log2, power_of_two, rounded

_PRECISION = 140  # bits in which exp and log are evaluated
_UNITS = Fraction(3, 2)  # in the last place
HALF = {"f16": Fraction(1, 2**14), "bf16": Fraction(1, 2**11)}  # how far off functions of rows of these are
_LEFT = Fraction(1, 2**39)  # as far may ndtr and the slope of gelu be off for f16, which cannot store so little
_FAR = 1200  # |x| from which e^x is 0 or infinite in every format


@dataclass(frozen=True)
class Span:
    """The values from low to high; both ends NaN for a NaN. -0 lies below +0."""

    low: Value
    high: Value

    @property
    def exact(self) -> bool:
        return self.low == self.high

    @property
    def nan(self) -> bool:
        return self.low.kind == "nan"

    @property
    def finite(self) -> bool:
        return self.low.kind == self.high.kind == "finite"


ANY = Span(Value("any"), Value("any"))
ZERO = Value("finite")


def point(value: Value) -> Span:
    return Span(value, value)


def real(number: Fraction | int, form: Format) -> Value:
    """The value of a format that is nearest to a number."""
    return rounded(Value("finite", number < 0, abs(Fraction(number))), form)


def within(low: Fraction, high: Fraction, form: Format) -> Span:
    """The values of a format from one number to another; what is nearest to them where none lies between."""
    ends = []
    for number, up in ((low, True), (high, False)):
        value = real(number, form)
        if value.kind == "finite" and (value.signed < number if up else value.signed > number):
            away = -1 if value.negative else 1  # the next pattern up is of a smaller size below 0
            value = decode(encode(value, form) + (away if up else -away), form)
        ends.append(value)
    return Span(*ends) if order(ends[0]) <= order(ends[1]) else hull(ends)


def order(value: Value) -> tuple:
    """A key by which values are in order, -0 before +0."""
    size = value.signed if value.kind == "finite" else 0
    far = {"finite": 0, "inf": -1 if value.negative else 1}[value.kind]
    return far, size, not value.negative


def hull(values: Iterable[Value]) -> Span:
    """The least span that holds some values: ANY where NaN is one of several."""
    values = list(values)
    if all(value.kind == "nan" for value in values):
        return point(NAN)
    if any(value.kind == "nan" for value in values):
        return ANY
    return Span(min(values, key=order), max(values, key=order))


def lifted(step: Callable[..., Value], *spans: Span) -> Span:
    """A step that is monotone in each argument, over spans."""
    if ANY in spans:
        return ANY
    if all(span.exact for span in spans):
        return point(step(*(span.low for span in spans)))
    ends = [(span.low,) if span.exact else (span.low, span.high) for span in spans]
    return hull(step(*each) for each in product(*ends))


def add(a: Span, b: Span, form: Format) -> Span:
    return lifted(lambda x, y: floats.add(x, y, form), a, b)


def subtract(a: Span, b: Span, form: Format) -> Span:
    return lifted(lambda x, y: floats.subtract(x, y, form), a, b)


def multiply(a: Span, b: Span, form: Format) -> Span:
    for one, other in ((a, b), (b, a)):
        if ANY not in (a, b) and _around_zero(one) and "inf" in (other.low.kind, other.high.kind):
            return ANY  # NaN where the one is 0
    return lifted(lambda x, y: floats.multiply(x, y, form), a, b)


def divide(a: Span, b: Span, form: Format) -> Span:
    if b is not ANY and _around_zero(b):
        return ANY  # by values of both signs, or by zero among others
    return lifted(lambda x, y: floats.divide(x, y, form), a, b)


def _around_zero(a: Span) -> bool:
    """Whether zero is one of several values of a span."""
    return not a.exact and not a.nan and order(a.low)[:2] <= (0, 0) <= order(a.high)[:2]


def negate(a: Span) -> Span:
    return lifted(floats.negate, a)


def magnitude(a: Span) -> Span:
    if a is ANY or a.nan:
        return a
    ends = [Value(end.kind, False, end.magnitude) for end in (a.low, a.high)]
    return hull([*ends, ZERO] if a.low.negative != a.high.negative else ends)


def sqrt(a: Span, form: Format) -> Span:
    return lifted(lambda x: _sqrt(x, form), a)


def _sqrt(x: Value, form: Format) -> Value:
    if x.kind == "nan" or x.zero:
        return x
    if x.negative:
        return NAN
    if x.kind == "inf":
        return x
    shift = 140 - floor_log2(x.magnitude) // 2  # the root has 140 bits before the point
    scaled = x.magnitude * power_of_two(2 * shift)
    whole = scaled.numerator // scaled.denominator
    root = isqrt(whole)
    sticky = Fraction(1, 2) if Fraction(root * root) != scaled else 0
    return rounded(Value("finite", False, (root + sticky) * power_of_two(-shift)), form)


def exp(a: Span, form: Format, stored: str = "") -> Span:
    return _elementary(a, lambda x: _exp(x, form, stored))


def log(a: Span, form: Format) -> Span:
    return _elementary(a, lambda x: _log(x, form))


def ndtr(a: Span, form: Format, stored: str = "") -> Span:
    return _elementary(a, lambda x: _ndtr(x, form, stored))


def gelu_slope(x: Value, form: Format, stored: str = "") -> Span:
    """ndtr(x) + x * e^(-x^2 / 2) / sqrt(2 pi)."""
    if x.kind == "nan":
        return point(NAN)
    if x.kind == "inf" or x.magnitude > 40:
        return point(real(1, form)) if not x.negative else point(Value("finite", True))
    with mpmath.workprec(_PRECISION):
        exactly = mpmath.mpf(x.signed.numerator) / x.signed.denominator
        exact = _fraction((mpmath.ncdf(exactly) + exactly * mpmath.npdf(exactly))._mpf_)
    return _near(exact, form, _UNITS, stored, _LEFT)


def sigmoid(a: Span, form: Format, stored: str = "") -> Span:
    return _elementary(a, lambda x: _sigmoid(x, form, stored))


def _elementary(a: Span, step: Callable[[Value], Span]) -> Span:
    if a is ANY:
        return ANY
    low = step(a.low)
    high = low if a.exact else step(a.high)
    return hull([low.low, low.high, high.low, high.high])


def _exp(x: Value, form: Format, stored: str) -> Span:
    if x.kind == "nan":
        return point(NAN)
    if x.kind == "inf" or x.magnitude > _FAR:
        return point(ZERO if x.negative else Value("inf"))
    if x.zero:
        return _near(Fraction(1), form)
    return _near(_fraction(libmp.mpf_exp(_mpf(x), _PRECISION)), form, 1, stored)


def _log(x: Value, form: Format) -> Span:
    if x.kind == "nan" or x.negative and not x.zero:
        return point(NAN)
    if x.zero or x.kind == "inf":
        return point(Value("inf", x.zero))
    return _near(_fraction(libmp.mpf_log(_mpf(x), _PRECISION)), form)


def _ndtr(x: Value, form: Format, stored: str) -> Span:
    if x.kind == "nan":
        return point(NAN)
    if x.kind == "inf" or x.magnitude > _FAR:
        return point(real(not x.negative, form))
    with mpmath.workprec(_PRECISION):
        exact = _fraction(mpmath.ncdf(mpmath.mpf(x.signed.numerator) / x.signed.denominator)._mpf_)
    near = _near(exact, form, _UNITS, stored, _LEFT)
    one = real(1, form)
    return Span(near.low, one) if order(near.high) > order(one) else near


def _sigmoid(x: Value, form: Format, stored: str) -> Span:
    if x.kind == "nan":
        return point(NAN)
    if x.kind == "inf" or x.magnitude > _FAR:
        return point(real(not x.negative, form))
    with mpmath.workprec(_PRECISION):
        exact = 1 / (1 + mpmath.exp(-mpmath.mpf(x.signed.numerator) / x.signed.denominator))
    return _near(_fraction(exact._mpf_), form, _UNITS, stored)


def _near(
    exact: Fraction, form: Format, units: Fraction | int = 1, stored: str = "", left: Fraction | int = 0
) -> Span:
    """Within 1 unit in the last place, or so many; never beyond zero. Where the row stores `stored`, a half type,
    within its part of the value too, of f16 or `left`."""
    unit = form.unit if exact == 0 else max(floor_log2(abs(exact)) - form.fraction_bits, form.unit)
    slack = units * power_of_two(unit)
    if stored in HALF:
        slack += max(abs(exact) * HALF[stored], left if stored == "f16" else 0)
    low, high = exact - slack, exact + slack
    return within(max(low, 0) if exact > 0 else low, min(high, 0) if exact < 0 else high, form)


def _mpf(x: Value):
    return libmp.from_rational(x.signed.numerator, x.signed.denominator, 1100)


def _fraction(number) -> Fraction:
    sign, mantissa, exponent, _ = number
    return (-1 if sign else 1) * int(mantissa) * power_of_two(exponent)


def largest(spans: Sequence[Span]) -> Span:
    """The largest: NaN if any is NaN."""
    if ANY in spans:
        return ANY
    if any(span.nan for span in spans):
        return point(NAN)
    return Span(max((s.low for s in spans), key=order), max((s.high for s in spans), key=order))


def smallest(spans: Sequence[Span]) -> Span:
    """The smallest: NaN if any is NaN."""
    return negate(largest([negate(span) for span in spans]))


def cut(a: Span, least: Span, most: Span) -> Span:
    """What lies between two others, each of which may be any value of its span; NaN if any is NaN."""
    if ANY in (a, least, most):
        return ANY
    if a.nan or least.nan or most.nan:
        return point(NAN)
    ends = ((a.low, least.low, most.low), (a.high, least.high, most.high))
    return Span(*(min(max(end, low, key=order), high, key=order) for end, low, high in ends))


def total(spans: Sequence[Span], form: Format) -> Span:
    """The sum, in any order that keeps to the bound above; of nothing +0."""
    if ANY in spans:
        return ANY
    if any(span.nan for span in spans):
        return point(NAN)
    if len(spans) == 1:
        return spans[0]
    infinite = {span.low.negative for span in spans if span.exact and span.low.kind == "inf"}
    if len(infinite) == 2:
        return point(NAN)
    u = Fraction(1, 1 << (form.fraction_bits + 1))
    k = min(len(spans) - 1, 20 + ((len(spans) - 1) // 65536).bit_length())
    off = k * u / (1 - k * u)
    size = _sum(max(s.low.magnitude, s.high.magnitude) for s in spans if s.finite)
    overflows = real(size * (1 + off), form).kind == "inf"
    ends_infinite = any(not s.finite and not s.exact for s in spans)
    if infinite:
        return ANY if overflows or ends_infinite else point(Value("inf", infinite.pop()))
    if ends_infinite or overflows:
        if any(span.low.negative for span in spans):
            return ANY
        low = _sum(span.low.magnitude for span in spans if span.low.kind == "finite")
        return Span(real(low * (1 - off), form), Value("inf"))
    if size == 0:
        return point(Value("finite", bool(spans) and all(span.low.negative for span in spans)))
    low, high = _sum(s.low.signed for s in spans), _sum(s.high.signed for s in spans)
    return within(low - off * size, high + off * size, form)


def log_of_exponentials(x: Sequence[Span], form: Format) -> Span:
    """The logarithm of the sum of exponentials; of nothing -inf.

    The sum and what it is divided by are made of exponentials within 2^-21.9 (4.3 u, u = 2^-p); a part may be moved to
    another anchor once, by one more of these, before it counts for nothing; and two or three roundings: 16 u. Where the
    anchor is not 0, distances from it of up to 64 (512 in f64) that count are rounded: 32 u (256 u) more.
    """
    highest = largest(x) if x else point(Value("inf", True))
    if highest.low.kind == "inf" or len(x) == 1:
        return highest
    beside = total([exp(subtract(each, highest, form), form) for each in x], form)
    if beside.finite:
        reach = 32 if form.fraction_bits == 23 else 256
        far = highest.high.signed > reach or highest.low.signed < -reach
        off = Fraction(16 + (reach if far else 0), 1 << (form.fraction_bits + 1))
        beside = within(beside.low.signed * (1 - off), beside.high.signed * (1 + off), form)
    return add(highest, log(beside, form), form)


def _sum(numbers: Iterable[Fraction]) -> Fraction:
    by_denominator: dict[int, int] = {}
    for number in numbers:
        by_denominator[number.denominator] = by_denominator.get(number.denominator, 0) + number.numerator
    return sum((Fraction(*pair[::-1]) for pair in by_denominator.items()), Fraction(0))


def multiplied(values: Sequence[Value], form: Format) -> Span:
    """The product of exact values, in any order; of nothing 1."""
    if any(value.kind == "nan" for value in values):
        return point(NAN)
    if len(values) == 1:
        return point(values[0])
    negative = bool(sum(value.negative for value in values) % 2)
    big = small = Fraction(1)
    for value in values:
        if value.kind == "finite" and not value.zero:
            big, small = big * max(value.magnitude, 1), small * min(value.magnitude, 1)
    u = Fraction(len(values), 1 << (form.fraction_bits + 1))
    off = u / (1 - u)
    may_overflow = real(big * (1 + off), form).kind == "inf"
    may_vanish = small * (1 - off) < decode(form.smallest_normal, form).magnitude
    zero, infinite = any(value.zero for value in values), any(value.kind == "inf" for value in values)
    if zero and infinite:
        return point(NAN)
    if may_overflow or may_vanish:
        return ANY
    if zero or infinite:
        return point(Value("inf", negative) if infinite else Value("finite", negative))
    size = within(big * small * (1 - off), big * small * (1 + off), form)
    return negate(size) if negative else size


def admits(span: Span, bits: int, form: Format) -> bool:
    """Whether a stored bit pattern is that of a value of the span, rounded to the format; NaN is canonical."""
    if span is ANY:
        return True
    if span.nan:
        return bits == form.nan
    value = decode(bits, form)
    if value.kind == "nan":
        return False
    low, high = (decode(encode(end, form), form) for end in (span.low, span.high))
    return order(low) <= order(value) <= order(high)
