"""The oracles of special functions and of what moves a float among its neighbours, from mpmath and exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mpmath

from . import spans
from .binding import oracle
from .floats import FORMATS, NAN, Format, Value, compute_format, decode, encode, power_of_two
from .spans import Span, point, real

_PRECISION = 160
_HALF_ROOT_PI = Fraction(0.886226925452758)
_INFINITE = Value("inf")


def _near(x: Value, function: Callable, form: Format, units: int) -> Span:
    """Within so many units in the last place of a function of a finite value."""
    with mpmath.workprec(_PRECISION):
        exact = function(mpmath.mpf(x.signed.numerator) / x.signed.denominator)
    return spans._near(spans._fraction(exact._mpf_), form, units)


def _erfinv(x: Value, form: Format) -> Span:
    if x.kind != "finite" or x.magnitude > 1:
        return point(NAN)
    if x.zero or x.magnitude == 1:
        return point(x if x.zero else Value("inf", x.negative))
    if x.magnitude < power_of_two(-60):  # where mpmath's search for it would take all day
        return _near(x, lambda size: size * mpmath.sqrt(mpmath.pi) / 2, form, 1)
    return _near(x, mpmath.erfinv, form, 1)


def _is_pole(x: Value) -> bool:
    return x.kind == "finite" and x.signed <= 0 and x.magnitude.denominator == 1


def _lgamma(x: Value, form: Format) -> Span:
    if x.kind == "nan":
        return point(NAN)
    if x.kind == "inf" or _is_pole(x):
        return point(_INFINITE)
    if x.signed in (1, 2):
        return point(Value("finite"))
    return _near(x, lambda size: mpmath.re(mpmath.loggamma(size)), form, 2)


def _digamma(x: Value, form: Format) -> Span:
    if x.kind == "nan" or x.kind == "inf":
        return point(x if not x.negative else NAN)
    if _is_pole(x):
        return point(Value("inf", not x.negative) if x.zero else NAN)
    if x.magnitude < power_of_two(-200):  # at 0 it is -1 / x
        return _near(x, lambda size: -1 / size, form, 2)
    return _near(x, mpmath.digamma, form, 2)


@oracle
def erfinv(input, *, T):
    return _erfinv(decode(input, FORMATS[T]), compute_format(T))


@oracle
def erfinv_backward(d_output, input, *, T):
    compute = compute_format(T)
    y = _erfinv(decode(input, FORMATS[T]), compute)
    gradient = spans.multiply(point(real(_HALF_ROOT_PI, compute)), point(decode(d_output, FORMATS[T])), compute)
    return spans.multiply(gradient, spans.exp(spans.multiply(y, y, compute), compute), compute)


@oracle
def lgamma(input, *, T):
    return _lgamma(decode(input, FORMATS[T]), compute_format(T))


@oracle
def lgamma_backward(d_output, input, *, T):
    compute = compute_format(T)
    gradient, x = (decode(each, FORMATS[T]) for each in (d_output, input))
    return spans.multiply(point(gradient), _digamma(x, compute), compute)


@oracle
def digamma(input, *, T):
    return _digamma(decode(input, FORMATS[T]), compute_format(T))


@oracle
def nextafter(a, b, *, T):
    form = FORMATS[T]
    first, second = decode(a, form), decode(b, form)
    if "nan" in (first.kind, second.kind):
        return form.nan
    order = [(-1 if each.negative else 1) * (bits & ~form.sign) for each, bits in ((first, a), (second, b))]
    if order[0] == order[1]:
        return b
    moved = order[0] + (1 if order[1] > order[0] else -1)
    return abs(moved) | (form.sign if moved < 0 or moved == 0 and first.negative else 0)


def _times_power(bits: int, exponent: int, word: str) -> int:
    value = decode(bits, FORMATS[word])
    if value.kind == "finite":
        by = power_of_two(max(min(exponent, 3000), -3000))
        value = Value("finite", value.negative, value.magnitude * by)
    return encode(value, FORMATS[word])


@oracle
def ldexp(input, exponent, *, T, E):
    return _times_power(input, exponent, T)


@oracle
def ldexp_backward(d_output, exponent, *, T, E):
    return _times_power(d_output, exponent, T)
