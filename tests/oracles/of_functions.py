"""The oracles of functions of elements, of the definitions of functions.py and the slopes of function_slopes.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from mpmath import mp, mpf

from . import spans
from .binding import oracle
from .floats import FORMATS, Format, Value, compute_format, decode, power_of_two
from .function_slopes import BACKWARD
from .functions import FORWARD, Function
from .spans import ANY, Span, point

PRECISION = 320  # bits in which definitions are evaluated: what cancels leaves enough
NEXT_TO_ZERO = mpf(2) ** -4000  # in place of a zero whose sign matters
UNDERFLOWN = mpf(2) ** -120
# What rows of half types make of functions that are as precise as what they store, by direction.
SHORT_BACKWARD = {
    "celu", "cos", "cosh", "elu", "erfc", "expm1", "log_sigmoid", "mish", "pow", "selu", "sigmoid", "silu", "sin",
    "sinc", "sinh", "softplus", "tanh", "xlogy",
}  # fmt: skip
SHORT_FORWARD = {*SHORT_BACKWARD} | {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "exp", "exp2", "log", "log10", "log1p", "log2", "logit",
    "tan",
}  # fmt: skip
ENDS = 1 << 12  # no format has a number with an exponent beyond


def _taken(bits: int, form: Format, keeps_sign: bool = False) -> mpf:
    return exactly(decode(bits, form), keeps_sign)


def exactly(value: Value, keeps_sign: bool = False) -> mpf:
    """A value as a number of mpmath."""
    if value.kind != "finite":
        return mpf("nan") if value.kind == "nan" else mpf("-inf" if value.negative else "inf")
    if value.zero and keeps_sign:
        return -NEXT_TO_ZERO if value.negative else NEXT_TO_ZERO
    return mpf(value.signed.numerator) / value.signed.denominator


def _fraction(number: mpf) -> Fraction:
    """A finite number exactly; one beyond the ends of all formats as one that is beyond them as well."""
    exponent = mp.mag(number) if number else 0
    if abs(exponent) > ENDS:
        number = mp.sign(number) * mpf(2) ** (ENDS if exponent > 0 else -ENDS)
    sign, mantissa, exponent, _ = number._mpf_
    return (-1 if sign else 1) * int(mantissa) * power_of_two(int(exponent))


def allowed(result, units: float, form: Format, least: Fraction = Fraction(1), part: Fraction | int = 0) -> Span:
    """Where a result may lie that is `units` in the last place, of its largest term, beside the exact one; `least` of
    the least subnormals, if that is more; and `part` of its largest term beside that."""
    result, largest = result if isinstance(result, tuple) else (result, result)
    if isinstance(result, complex | mp.mpc) or mp.isnan(result):
        return point(spans.NAN)
    if mp.isinf(result):
        return point(Value("inf", result < 0))
    exact = _fraction(mpf(result))
    if not exact and not largest:
        return Span(Value("finite", True), spans.ZERO)  # either zero
    if not units:
        return point(spans.rounded(Value("finite", exact < 0, abs(exact)), form))
    size = max(abs(exact), abs(_fraction(mpf(largest))) if mp.isfinite(largest) else 0)
    unit = max(spans.floor_log2(size) - form.fraction_bits, form.unit)
    slack = max(Fraction(units) * power_of_two(unit), least * power_of_two(form.unit))
    slack += size * part
    return spans.within(exact - slack, exact + slack, form)


def evaluated(
    definition: Callable, arguments: dict, units: float, form: Format, part: Fraction | int = 0
) -> Span | int:
    """What a definition allows; anything at a pole. `part`: as of `allowed`."""
    with mp.workprec(PRECISION):
        try:
            result = definition(**arguments)
            return int(result) if isinstance(result, bool) else allowed(result, units, form, part=part)
        except ZeroDivisionError:
            return ANY


def of_gradient(d_output: mpf, slope: Callable, units: float, form: Format, part: Fraction | int = 0) -> Span:
    """What a slope allows; anything at a pole.

    None passes nothing on, and of a sum the largest term counts. Where the slope leaves the range, or nearly vanishes
    beside an infinity, anything may be. Next to the end of the range, a step may leave it. A factor
    that is subnormal on the way is as far off as a subnormal number is.
    """
    with mp.workprec(PRECISION):
        try:
            found = slope()
            if found is None:
                return allowed(mpf(0), units, form)
            terms = found if isinstance(found, tuple) else (found,)
            if any(isinstance(each, mp.mpc) for each in terms):
                return point(spans.NAN)
            size = abs(terms[0])
            if (mp.isinf(d_output) and size < UNDERFLOWN) or mpf(2) ** form.bias < size < mp.inf:
                return ANY
            products = tuple(d_output * each for each in terms)
            factors = [max(1, abs(each)) for each in (d_output, terms[-1]) if mp.isfinite(each)]
            least = _fraction(mp.fprod(factors)) if units else Fraction(1)
            span = allowed(products if len(terms) > 1 else products[0], units, form, least, part)
            beyond = units and span.finite and abs(products[0]) > mpf(2) ** (form.bias - 1)
            return spans.hull([span.low, span.high, Value("inf", products[0] < 0)]) if beyond else span
        except ZeroDivisionError:
            return ANY


def _arguments(parameters, given: dict, form: Format, keeps_sign: bool) -> dict:
    """Operands are of the element type, attributes of the type that formulas are computed in."""
    forms = {name: compute_format(form.word) if each.kind is each.KEYWORD_ONLY else form for name, each in parameters}
    return {name: _taken(given[name], forms[name], keeps_sign) for name in forms}


def _with_signature(function: Callable, name: str, parameters) -> Callable:
    function.__name__ = name
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [inspect.Parameter(each, keyword, default=None) for each in parameters]
    function.__signature__ = inspect.Signature([*own, inspect.Parameter("T", keyword)])
    return function


def _forward(name: str, function: Function) -> Callable:
    parameters = inspect.signature(function.definition).parameters.items()

    def of_element(T, **given):
        form = FORMATS[T]
        arguments = _arguments(parameters, given, form, function.keeps_sign)
        part = spans.HALF.get(T, 0) if name in SHORT_FORWARD else 0
        return evaluated(function.definition, arguments, function.units, compute_format(T), part)

    return _with_signature(of_element, name, dict(parameters))


def _backward(name: str, units: float, slopes: dict[str, Callable]) -> Callable:
    parameters = {of: inspect.signature(slope).parameters.items() for of, slope in slopes.items()}
    named = dict.fromkeys(["d_output", *(each for of in parameters.values() for each, _ in of)])

    def of_element(T, d_output, **given):
        form = FORMATS[T]
        compute, given_gradient, results = compute_format(T), _taken(d_output, form), []
        part = spans.HALF.get(T, 0) if name in SHORT_BACKWARD else 0
        for of, slope in slopes.items():
            arguments = _arguments(parameters[of], given, form, False)
            results.append(of_gradient(given_gradient, partial(slope, **arguments), units, compute, part))
        return tuple(results) if len(results) > 1 else results[0]

    return _with_signature(of_element, f"{name}_backward", named)


for _name, _function in FORWARD.items():
    oracle(_forward(_name, _function))
for _name, (_units, _slopes) in BACKWARD.items():
    oracle(_backward(_name, _units, _slopes if isinstance(_slopes, dict) else {"input": _slopes}))


@oracle
def powi(input, *, exponent, T):
    """A power with a whole exponent, which C rounds; the third one is two products."""
    form = compute_format(T)
    if exponent == 3:
        x = point(decode(input, FORMATS[T]))
        return spans.multiply(spans.multiply(x, x, form), x, form)
    rounded = spans.real(Fraction(exponent), form).signed
    power = lambda: _power(_taken(input, FORMATS[T], True), rounded)  # noqa: E731
    return evaluated(power, {}, 1, form, spans.HALF.get(T, 0))


def _power(base: mpf, exponent: Fraction) -> mpf:
    """C's: of 0 and 1 it is 1, whatever the other one is."""
    if exponent == 0 or base == 1:
        return mpf(1)
    return base ** int(exponent)


@oracle
def powi_backward(d_output, input, *, exponent, T):
    """The gradient of a power of 0 is 0."""
    form = compute_format(T)
    power = spans.real(Fraction(exponent), form).signed
    less = spans.subtract(point(spans.real(power, form)), point(spans.real(1, form)), form).low.signed
    slope = lambda: None if power == 0 else int(power) * _power(_taken(input, FORMATS[T], True), less)  # noqa: E731
    return of_gradient(_taken(d_output, FORMATS[T]), slope, 3, form, spans.HALF.get(T, 0))


@oracle(sharing="weight")
def prelu_backward(d_output, input, weight, *, T):
    """The slope of each element, and for the weight the sum over what is not above 0."""
    form, compute = FORMATS[T], compute_format(T)
    slope, of_input, of_weight = point(decode(weight, form)), [], []
    for gradient, element in zip(d_output, input, strict=True):
        g, x = point(decode(gradient, form)), decode(element, form)
        above = x.kind != "nan" and not x.negative and not x.zero
        of_input.append(g if above else spans.multiply(g, slope, compute))
        of_weight.append(point(spans.ZERO) if above else spans.multiply(g, point(x), compute))
    return of_input, spans.total(of_weight, compute)
