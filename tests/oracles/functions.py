"""Functions of elements by name, in mpmath: what an operation gives, its gradients, and how far a result may be off.

A definition takes numbers of mpmath, NaN and infinities among them, by the names of operands; the parameters behind a
`*` are attributes. It gives a number; a complex number stands for NaN. A pair of numbers is a value and the largest of
the terms that it is a sum of: where terms cancel, a result may be off by units in the last place of that.

`of_functions.py` makes oracles of these tables, and tests of slopes take the definitions as they are.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from mpmath import mp, mpf

INF, NAN = mpf("inf"), mpf("nan")
_LEAST = mpf(2) ** -3000  # no number of a format is so small


@dataclass(frozen=True)
class Function:
    """A definition and its bound.

    Attributes:
        definition: the function of numbers.
        units: in the last place of the compute type, by which a result may be off; 0 where it is the nearest value.
        domain: of the operands, outside of which the function or its derivative is not a number.
        keeps_sign: whether the sign of a zero matters: a zero is then a number next to 0.
    """

    definition: Callable
    units: float = 1
    domain: tuple[float, float] = (-INF, INF)
    keeps_sign: bool = False


def own(definition: Callable, units: float = 1, domain=(-INF, INF), keeps_sign: bool = False) -> Function:
    named = definition if definition.__name__ == "<lambda>" else lambda input: definition(input)
    return Function(named, units, domain, keeps_sign)


def _finite(x) -> bool:
    return mp.isfinite(x)


def _far(limit_below, function, limit_above, beyond: int = 1200):
    """A function with limits, which it has reached where a number is beyond some size."""

    def of(input):
        if mp.isnan(input):
            return NAN
        return limit_below if input < -beyond else limit_above if input > beyond else function(input)

    return of


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def _cut(x, low, high):
    """min(max(x, low), high); NaN if any is."""
    return NAN if any(map(mp.isnan, (x, low, high))) else min(max(x, low), high)


def _cubic(of_others, small):
    """A function that is lost by rounding next to 0, where it has a simpler form."""
    return lambda input: small(input) if abs(input) < 1e-30 else of_others(input)


def _cube_root(x):
    return mp.cbrt(x) if x >= 0 else -mp.cbrt(-x)


def _sine_share(x):
    """sin(pi x) / (pi x)"""
    return mpf(1) if x == 0 else mp.sinpi(x) / (mp.pi * x)


def _sine_share_slope(x):
    if abs(x) < 1e-20:
        return -mp.pi**2 * x / 3
    terms = mp.cospi(x) / x, _sine_share(x) / x
    return terms[0] - terms[1], max(map(abs, terms)) if abs(x) >= 0.5 else abs(terms[0] - terms[1])


def _whole(function):
    return lambda input: function(input) if _finite(input) else input


def _truncated(x):
    return mp.floor(x) if x > 0 else mp.ceil(x)


def _log_odds(x, eps):
    """The bound 1 - eps is rounded, which moves the logarithm by as much in units of its slope."""
    cut = x if eps < 0 else _cut(x, eps, 1 - eps)
    found = INF if cut == 1 else mp.log(cut / (1 - cut))
    return found if cut == x else (found, max(1 / cut, 1 / (1 - cut), abs(found)))


def bent(exact, power):
    """A value beside e^power of a power that was rounded: its relative error is the power's absolute one."""
    return exact, exact * max(1, abs(power))


def _soft_part(x, beta, threshold):
    power = beta * x
    if power > threshold or power == INF:
        return x
    return bent(mp.log1p(mp.exp(power)) / beta, min(power, 0) if power > -INF else 0)


def _far_below(function):
    """A function that is lost by underflow of a factor alone: its limit at -inf is 0."""
    return lambda input: mpf(0) if input == -INF else input if input == INF else function(input)


def _replaced(input, value, posinf, neginf):
    return value if mp.isnan(input) else input if _finite(input) else posinf if input > 0 else neginf


def _at_step(input, value):
    return value if input == 0 else NAN if mp.isnan(input) else mpf(input > 0)


def _angle(a, b):
    """Of the point (b, a). Zeros have the sign of a number next to 0; infinities have angles of C's table."""
    if mp.isnan(a) or mp.isnan(b):
        return NAN
    if mp.isinf(a) or mp.isinf(b):
        return mp.nint(math.atan2(a, b) * 4 / math.pi) * mp.pi / 4
    if abs(a) < _LEAST and abs(b) < _LEAST:
        return mpf(0) if b > 0 else mp.sign(a) * mp.pi
    return mp.atan2(a, b)


def _power(a, b):
    """With C's special values."""
    if b == 0 or a == 1:
        return mpf(1)
    if a == 0 or not (mp.isfinite(a) and mp.isfinite(b)):
        return mpf(math.pow(a, b) if a or b > 0 else INF)
    return mp.power(a, b)


def _distance(a, b):
    return INF if mp.isinf(a) or mp.isinf(b) else mp.hypot(a, b)


def _log_of_sum(a, b, base=None):
    """The larger one is a term of it."""
    if mp.isnan(a) or mp.isnan(b) or mp.isinf(max(a, b)):
        return a + b if mp.isnan(a + b) and (mp.isnan(a) or mp.isnan(b)) else max(a, b)
    rest = mp.log1p((mp.power(base, -abs(a - b)) if base else mp.exp(-abs(a - b))) if mp.isfinite(a - b) else mpf(0))
    largest, rest = max(a, b), rest / mp.log(base) if base else rest
    return largest + rest, max(abs(largest + rest), abs(largest), rest)


_LAMBDA, _ALPHA = mpf("1.0507009873554804934193349852946"), mpf("1.6732632423543772848170429916717")
FORWARD: dict[str, Function] = {
    "reciprocal": own(lambda input: 1 / input, 0, (0, INF), keeps_sign=True),
    "square": own(lambda input: input**2, 0),
    "cube": own(lambda input: input**3, 1.5),
    "sqrt": own(mp.sqrt, 0, (0, INF)),
    "rsqrt": own(lambda input: -INF if -_LEAST < input < 0 else 1 / mp.sqrt(input), 1, (0, INF), keeps_sign=True),
    "cbrt": own(_cube_root),
    "exp": own(mp.exp),
    "exp2": own(lambda input: mp.power(2, input)),
    "expm1": own(mp.expm1),
    "log": own(mp.log, 1, (0, INF)),
    "log2": own(lambda input: mp.log(input, 2), 1, (0, INF)),
    "log10": own(mp.log10, 1, (0, INF)),
    "log1p": own(lambda input: -INF if input == -1 else mp.log1p(input), 1, (-1, INF)),
    "sin": own(mp.sin),
    "cos": own(mp.cos),
    "tan": own(mp.tan),
    "asin": own(mp.asin, 1, (-1, 1)),
    "acos": own(mp.acos, 1, (-1, 1)),
    "atan": own(mp.atan),
    "sinh": own(mp.sinh),
    "cosh": own(mp.cosh),
    "tanh": own(mp.tanh, 1.5),
    "asinh": own(mp.asinh),
    "acosh": own(mp.acosh, 1, (1, INF)),
    "atanh": own(lambda input: input * INF if abs(input) == 1 else mp.atanh(input), 1, (-1, 1)),
    "sinc": own(lambda input: _sine_share(input) if _finite(input) else NAN, 4),
    "deg2rad": own(mp.radians, 1.5),
    "rad2deg": own(mp.degrees, 1.5),
    "floor": own(_whole(mp.floor), 0),
    "ceil": own(_whole(mp.ceil), 0),
    "round": own(_whole(mp.nint), 0),
    "trunc": own(_whole(_truncated), 0),
    "frac": own(lambda input: input - _truncated(input) if _finite(input) else NAN, 0),
    "erf": own(_far(mpf(-1), mp.erf, mpf(1))),
    "erfc": own(_far(mpf(2), mp.erfc, mpf(0))),
    "isnan": own(lambda input: mp.isnan(input)),
    "isinf": own(lambda input: mp.isinf(input)),
    "isfinite": own(lambda input: mp.isfinite(input)),
    "nan_to_num": own(lambda input, *, value, posinf, neginf: _replaced(input, value, posinf, neginf), 0),
    "step": own(lambda input, *, value: _at_step(input, value), 0),
    "relu": own(lambda input: _cut(input, 0, INF), 0),
    "relu6": own(lambda input: _cut(input, 0, 6), 0),
    "leaky_relu": own(lambda input, *, negative_slope: input if input > 0 else input * negative_slope, 0),
    "prelu": own(lambda input, weight: input if input > 0 else input * weight, 0),
    "threshold": own(lambda input, *, threshold, value: value if input <= threshold else input, 0),
    "hardtanh": own(lambda input, *, min_val, max_val: _cut(input, min_val, max_val), 0),
    "hardsigmoid": own(lambda input: _cut(input + 3, 0, 6) / 6, 1.5),
    "hardswish": own(lambda input: mpf(0) if input <= -3 else input if input >= 3 else input * (input + 3) / 6, 2),
    "hardshrink": own(lambda input, *, lambd: mpf(0) if -lambd <= input <= lambd else input, 0),
    "softshrink": own(
        lambda input, *, lambd: input - lambd if input > lambd else input + lambd if input < -lambd else input * 0, 0
    ),
    "sigmoid": own(sigmoid, 1.5),
    "log_sigmoid": own(lambda input: input if input == -INF else -mp.log1p(mp.exp(-input)), 2),
    "logit": own(lambda input, *, eps: _log_odds(input, eps), 3, (0, 1)),
    "softplus": own(lambda input, *, beta, threshold: _soft_part(input, beta, threshold), 4),
    "softsign": own(lambda input: mp.sign(input) if mp.isinf(input) else input / (1 + abs(input)), 1.5),
    "tanhshrink": own(_cubic(lambda x: x - mp.tanh(x), lambda x: x**3 / 3), 4),
    "silu": own(_far_below(lambda x: x * sigmoid(x)), 4),
    "mish": own(_far_below(lambda x: x * mp.tanh(mp.log1p(mp.exp(x)))), 6),
    "elu": own(lambda input, *, alpha: input if input > 0 else alpha * mp.expm1(input), 2),
    "celu": own(lambda input, *, alpha: input if input > 0 else alpha * mp.expm1(input / alpha), 3),
    "pow": own(lambda a, b: _power(a, b), 1, (0, INF)),
    "atan2": own(lambda a, b: _angle(a, b), keeps_sign=True),
    "hypot": own(lambda a, b: _distance(a, b)),
    "xlogy": own(lambda a, b: mpf(0) if a == 0 and not mp.isnan(b) else a * mp.log(b), 2, (0, INF)),
    "logaddexp": own(lambda a, b: _log_of_sum(a, b), 3),
    "logaddexp2": own(lambda a, b: _log_of_sum(a, b, 2), 4),
    "selu": own(lambda input: _LAMBDA * (input if input > 0 else _ALPHA * mp.expm1(input)), 3),
}


_DOMAINS = {"erfinv": (-1, 1), "lgamma": (0, INF)}  # of functions with oracles of their own


def placed(name: str, values):
    """Numbers where the function of a name, and its derivative, are numbers; another name's stay."""
    low, high = map(float, FORWARD[name].domain if name in FORWARD else _DOMAINS.get(name, (-INF, INF)))
    if low == -INF:
        return values
    return low + abs(values) + 0.3 if high == INF else low + (high - low) * (0.5 + np.arctan(values) / np.pi)


def defined(name: str, attributes: dict) -> Callable:
    """The definition of a name, of arrays of numbers, with some attributes."""
    function = FORWARD[name].definition
    wanted = inspect.signature(function).parameters
    own = {each: mpf(attributes[each]) for each in attributes if each in wanted}

    def of_element(*operands, names):
        result = function(**dict(zip(names, operands, strict=True)), **own)
        return result[0] if isinstance(result, tuple) else result

    return lambda **operands: np.vectorize(partial(of_element, names=[*operands]), otypes=[object])(*operands.values())
