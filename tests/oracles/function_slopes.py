"""The slopes of functions of elements, in mpmath: a gradient is the output's gradient times the slope.

A slope takes the operands that the gradient takes beside `d_output`, among them `output` as it was stored. None stands
for a gradient of 0 whatever the output's is; a pair is a value and the largest of its terms (functions.py).
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

from .functions import _ALPHA, _LAMBDA, INF, NAN, _power, _sine_share, bent, sigmoid


def _passed(condition, slope=1):
    """The slope where a condition holds."""
    return slope if condition else None


def _steep(x):
    """The slope of tanh."""
    return 1 / mp.cosh(x) ** 2 if abs(x) < 1200 else x * 0 if mp.isnan(x) else mpf(0)


def _density(x):
    return 2 / mp.sqrt(mp.pi) * mp.exp(-x * x) if not abs(x) > 1200 else mpf(0)


def of_sigmoid(x):
    return mpf(0) if abs(x) > 1200 else sigmoid(x) * sigmoid(-x)


def _of_silu(x):
    if abs(x) > 1200:
        return mpf(x > 0)
    share, rest = sigmoid(x), sigmoid(-x)
    return share + x * share * rest, max(share, abs(x * share * rest))


def _of_mish(x):
    if abs(x) > 1200:
        return mpf(x > 0)
    share = mp.tanh(mp.log1p(mp.exp(x)))
    bent = x * (1 - share * share) * sigmoid(x)
    return share + bent, max(share, abs(bent))


def _of_sine_share(x):
    if mp.isinf(x) or mp.isnan(x):
        return NAN
    if abs(x) < 1e-20:
        return -mp.pi**2 * x / 3
    terms = mp.cospi(x) / x, _sine_share(x) / x
    return terms[0] - terms[1], max(map(abs, terms)) if abs(x) >= 0.5 else abs(terms[0] - terms[1])


def _of_log_odds(x, eps):
    return _passed(eps < 0 or eps <= x <= 1 - eps, NAN if x < 0 or x > 1 else 1 / (x * (1 - x)) if x * (1 - x) else INF)


def _powered(power):
    return bent(mp.exp(power), power) if mp.isfinite(power) else mp.exp(power)


def _of_soft_part(power, threshold):
    if power > threshold or not mp.isfinite(power):
        return mpf(1) if power > threshold else sigmoid(power)
    return bent(sigmoid(power), min(power, 0))


def _of_base(a, b):
    """A power less one is rounded, which is as if the base's logarithm were."""
    if a < 0 and abs(b) < 1e-6:  # less one, it is rounded to a whole number
        raise ZeroDivisionError
    power = _power(a, b - 1)
    if 1e38 < abs(power) < INF:
        raise ZeroDivisionError
    slope = b * power
    return slope if not mp.isfinite(slope) or a <= 0 else (slope, slope * max(1, abs(b * mp.log(a))))


def _share(part, other):
    """Of a distance, which is rounded much where it is subnormal."""
    if 0 < max(abs(part), abs(other)) < 1e-30:
        raise ZeroDivisionError
    return mpf(0) if part == other == 0 else part / mp.hypot(part, other)


def _angle_part(part, other):
    """A part of the distance is rounded much where it is subnormal."""
    if part == other == 0:
        return mpf(0)
    distance = mp.hypot(part, other)
    return part / distance**2, max(abs(part) / distance, mpf("1e-30")) / distance


def _share_of_sum(a, b, scale=1):
    if a == b or not mp.isfinite(a - b):
        return mpf(1) / 2 if a == b else sigmoid(a - b)
    return bent(sigmoid(scale * (a - b)), scale * (a - b))


# Units in the last place by which gradients may be off, and slopes by the name of the operand that they are of.
BACKWARD: dict[str, tuple[float, Callable | dict[str, Callable]]] = {
    "reciprocal": (2, lambda input: -1 / input**2),
    "square": (1, lambda input: 2 * input),
    "cube": (2, lambda input: 3 * input**2),
    "sqrt": (2, lambda input: 1 / (2 * mp.sqrt(input))),
    "rsqrt": (4, lambda input: -1 / (2 * input * mp.sqrt(input))),
    "cbrt": (3, lambda output: 1 / (3 * output**2)),
    "exp": (1, lambda output: output),
    "exp2": (2, lambda output: mp.log(2) * output),
    "expm1": (2, lambda input: mp.exp(input)),
    "log": (1, lambda input: 1 / input),
    "log2": (2, lambda input: 1 / (input * mp.log(2))),
    "log10": (2, lambda input: 1 / (input * mp.log(10))),
    "log1p": (2, lambda input: 1 / (1 + input)),
    "sin": (2, lambda input: mp.cos(input)),
    "cos": (2, lambda input: -mp.sin(input)),
    "tan": (3, lambda output: 1 + output**2),
    "asin": (3, lambda input: 1 / mp.sqrt(1 - input * input)),
    "acos": (3, lambda input: -1 / mp.sqrt(1 - input * input)),
    "atan": (4, lambda input: 1 / (1 + input * input)),
    "sinh": (2, lambda input: mp.cosh(input)),
    "cosh": (2, lambda input: mp.sinh(input)),
    "tanh": (6, lambda input: _steep(input)),
    "asinh": (2, lambda input: 1 / mp.sqrt(1 + input * input)),
    "acosh": (4, lambda input: 1 / (mp.sqrt(input - 1) * mp.sqrt(input + 1)) if input >= 1 else NAN),
    "atanh": (3, lambda input: 1 / (1 - input * input)),
    "sinc": (8, lambda input: _of_sine_share(input)),
    "deg2rad": (2, lambda: mp.pi / 180),
    "rad2deg": (2, lambda: 180 / mp.pi),
    "floor": (0, lambda: None),
    "ceil": (0, lambda: None),
    "round": (0, lambda: None),
    "trunc": (0, lambda: None),
    "step": (0, lambda: None),
    "frac": (0, lambda: mpf(1)),
    "erf": (6, lambda input: _density(input)),
    "erfc": (6, lambda input: -_density(input)),
    "nan_to_num": (0, lambda input: _passed(mp.isfinite(input))),
    "relu": (0, lambda input: _passed(input > 0)),
    "relu6": (0, lambda input: _passed(0 < input < 6)),
    "leaky_relu": (0, lambda input, *, negative_slope: mpf(1) if input > 0 else negative_slope),
    "threshold": (0, lambda input, *, threshold: _passed(not input <= threshold)),
    "hardtanh": (0, lambda input, *, min_val, max_val: _passed(min_val < input < max_val)),
    "hardsigmoid": (1, lambda input: _passed(-3 < input < 3, mpf(1) / 6)),
    "hardswish": (3, lambda input: _passed(not input <= -3, input / 3 + mpf(1) / 2 if input < 3 else mpf(1))),
    "hardshrink": (0, lambda input, *, lambd: _passed(not -lambd <= input <= lambd)),
    "softshrink": (0, lambda input, *, lambd: _passed(not -lambd <= input <= lambd)),
    "sigmoid": (6, lambda input: of_sigmoid(input)),
    "log_sigmoid": (2, lambda input: sigmoid(-input)),
    "logit": (3, lambda input, *, eps: _of_log_odds(input, eps)),
    "softplus": (4, lambda input, *, beta, threshold: _of_soft_part(beta * input, threshold)),
    "softsign": (3, lambda input: 1 / (1 + abs(input)) ** 2),
    "tanhshrink": (5, lambda input: mp.tanh(input) ** 2),
    "silu": (8, lambda input: _of_silu(input)),
    "mish": (12, lambda input: _of_mish(input)),
    "elu": (3, lambda input, *, alpha: mpf(1) if input > 0 else alpha * mp.exp(input)),
    "celu": (3, lambda input, *, alpha: mpf(1) if input > 0 else _powered(input / alpha)),
    "selu": (3, lambda input: _LAMBDA * (1 if input > 0 else _ALPHA * mp.exp(input))),
    "pow": (
        3,
        {
            "a": lambda a, b: _passed(b != 0, _of_base(a, b)),
            "b": lambda a, b: _passed(not (a == 0 and b >= 0), _power(a, b) * mp.log(a)),
        },
    ),
    "atan2": (4, {"a": lambda a, b: _angle_part(b, a), "b": lambda a, b: _angle_part(-a, b)}),
    "hypot": (3, {"a": lambda a, b: _share(a, b), "b": lambda a, b: _share(b, a)}),
    "xlogy": (2, {"a": lambda a, b: _passed(not (a == 0 and b <= 0), mp.log(b)), "b": lambda a, b: a / b}),
    "logaddexp": (3, {"a": lambda a, b: _share_of_sum(a, b), "b": lambda a, b: _share_of_sum(b, a)}),
    "logaddexp2": (
        4,
        {"a": lambda a, b: _share_of_sum(a, b, mp.log(2)), "b": lambda a, b: _share_of_sum(b, a, mp.log(2))},
    ),
}
