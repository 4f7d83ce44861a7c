"""Intrinsics as functions of torch, for `skuda.torch.formulas`, and why one cannot be said.

A function that is exact in the formula language is exact here, as far as torch's own operators are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

WHOLE = 2.0**53  # where round_to_int saturates

# Why torch has no function of the same meaning, and of the language's accuracy.
LACKING = {"cbrt": "torch has no cube root, and a power of a rounded 1/3 has another value"}


def larger(a, b):
    """NaN if either is; the second of equals."""
    return torch.where(_before(a > b, a), a, b)


def smaller(a, b):
    """NaN if either is; the second of equals."""
    return torch.where(_before(a < b, a), a, b)


def _before(better, a):
    return better | a.isnan() if a.is_floating_point() else better


def clamp(x, low, high):
    """min(max(x, low), high); NaN if any is."""
    return smaller(larger(x, low), high)


def weighted(a, b):
    """The product; 0 where the second is 0."""
    return torch.where(b == 0, torch.zeros_like(b), a * b)


def sign(x):
    """1, -1, or x itself where it is a zero or NaN."""
    return torch.where(x > 0, torch.ones_like(x), torch.where(x < 0, -torch.ones_like(x), x))


def round_to_int(x):
    """The nearest integer, ties to even, cut to +-2^53; NaN gives 0."""
    return torch.nan_to_num(x.round(), 0.0, WHOLE, -WHOLE).clamp(-WHOLE, WHOLE).to(torch.int64)


def remainder(a, b):
    """With the sign of the divisor, of zeros too."""
    rest = torch.fmod(a, b)
    moved = torch.where((rest < 0) != (b < 0), rest + b, rest)
    return torch.where(rest != 0, moved, torch.copysign(rest, b))


def ndtr(x):
    """The normal distribution below x, also where it is small."""
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


def gelu_slope(x):
    """The derivative of x ndtr(x)."""
    density = torch.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi)
    return ndtr(x) + weighted(x, density)  # where the density is 0, x may be infinite


FUNCTIONS: dict[str, Callable] = {
    "+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "neg": torch.neg,
    "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
    "where": torch.where, "min": smaller, "max": larger, "clamp": clamp, "weighted": weighted, "sign": sign,
    "fmin": lambda a, b: torch.where((a < b) | b.isnan(), a, b),
    "fmax": lambda a, b: torch.where((a > b) | b.isnan(), a, b),
    "round_even": torch.round, "round_to_int": round_to_int, "remainder": remainder, "ndtr": ndtr,
    "gelu_slope": gelu_slope,
} | {
    name: getattr(torch, name) for name in (
        "abs", "copysign", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "sqrt", "fmod", "exp", "log", "erf",
        "erfc", "sigmoid", "tanh", "exp2", "expm1", "log2", "log10", "log1p", "pow", "rsqrt", "hypot", "sinh", "cosh",
        "asinh", "acosh", "atanh", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    )
}  # fmt: skip
