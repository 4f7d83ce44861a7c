"""Operators and intrinsics as functions of torch, for `skuda.torch.formulas`, and why one cannot be said.

A function that is exact in the formula language is exact here, as far as torch's own operators are. An integer is an
int64 in two's complement, whose sums and products wrap. No division by 0, no quotient that int64 does not hold and no
shift out of range reaches torch, whose results of these differ between devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from skuda.model.dtypes import DType
from skuda.torch.random_functions import random_bits, stochastic

WHOLE = 2.0**53  # where round_to_int saturates

# Why torch has no function of the same meaning, and of the language's accuracy.
LACKING = {
    "cbrt": "torch has no cube root, and a power of a rounded 1/3 has another value",
    "fma": "torch has no product and sum that are rounded once",
}


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


def floor_quotient(a, b):
    """The quotient toward minus infinity: of integers by zero 0, of reals by zero that of `/`."""
    if not a.is_floating_point():
        # No processor divides the least integer by -1: the quotient is its negative, itself.
        quotient = torch.div(a, _usual_divisor(b), rounding_mode="floor")
        return torch.where(b == 0, torch.zeros_like(b), torch.where(b == -1, -a, quotient))
    rest, plain = torch.fmod(a, b), a / b
    quotient = (a - rest) / b
    quotient = torch.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = torch.floor(quotient)
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    signed = torch.where(quotient == 0, torch.copysign(torch.zeros_like(quotient), plain), whole)
    return torch.where(b == 0, plain, signed)


def modulo(a, b):
    """What the quotient toward minus infinity leaves: of integers by zero 0."""
    return remainder(a, b) if a.is_floating_point() else torch.remainder(a, _usual_divisor(b))


def _usual_divisor(b):
    """A divisor of integers; 1 in place of 0 and -1, which leaves 0 as these do."""
    return torch.where((b == 0) | (b == -1), torch.ones_like(b), b)


def shifted_left(a, by):
    """Shifted to the left in 64 bits; by 64 or more, or by less than none, 0."""
    inside = (by >= 0) & (by < 64)
    shifted = torch.bitwise_left_shift(a, torch.where(inside, by, torch.zeros_like(by)))
    return torch.where(inside, shifted, torch.zeros_like(shifted))


def shifted_right(a, by):
    """The quotient by a power of two toward minus infinity; by 64 or more, or by less than none, 0 or -1."""
    return torch.bitwise_right_shift(a, torch.where((by >= 0) & (by < 64), by, torch.full_like(by, 63)))


def saturate(i, dtype: DType):
    """The nearest integer of a type."""
    return i.clamp(max(dtype.lowest, -(1 << 63)), min(dtype.highest, (1 << 63) - 1))


def wrap(i, dtype: DType):
    """The integer of a type that has the same lowest bits."""
    low = _own_bits(i, dtype)
    return torch.where(low > dtype.highest, low - (1 << dtype.bits), low) if dtype.bits < 64 else low


def popcount(i, dtype: DType):
    """How many of the bits are 1 that a type has."""
    return _ones(_own_bits(i, dtype))


def clz(i, dtype: DType):
    """How many of the bits that a type has are 0 above the first that is 1."""
    low = _own_bits(i, dtype)
    for bits in (1, 2, 4, 8, 16, 32):  # what is below the first 1 becomes 1; of a negative integer, all of it
        low = low | low >> bits
    return dtype.bits - _ones(low)


def _own_bits(i, dtype: DType):
    """The lowest bits, as many as a type has. 64 have a sign."""
    return i & ((1 << dtype.bits) - 1) if dtype.bits < 64 else i


def _ones(i):
    """How many of 64 bits are 1. The masks clear what a shift copies of the sign."""
    for bits in (1, 2, 4, 8, 16, 32):  # neighbouring counts of so many bits are added
        mask = ((1 << 64) - 1) // ((1 << bits) + 1)
        i = (i & mask) + (i >> bits & mask)
    return i


def ndtr(x):
    """The normal distribution below x, also where it is small."""
    return 0.5 * torch.erfc(x * -math.sqrt(0.5))


def gelu_slope(x):
    """The derivative of x ndtr(x)."""
    density = torch.exp(x * x * -0.5) * math.sqrt(0.5 / math.pi)
    return ndtr(x) + weighted(x, density)  # where the density is 0, x may be infinite


def digamma(x):
    """In f64: of f32, torch's has lost its digits next to poles."""
    return torch.digamma(x.double()).to(x.dtype)


def log1pexp(x):
    """log(1 + e^x); torch's softplus is x itself above a threshold."""
    return torch.logaddexp(x, torch.zeros_like(x))


def sinpi(x):
    """sin(pi x), by what an even number leaves, which is exact."""
    rest = x - 2 * torch.round(0.5 * x)
    whole = torch.round(rest)
    value = torch.sin((rest - whole) * math.pi)
    return torch.where(whole != 0, -value, value)


def cospi(x):
    """cos(pi x), the sine of what is left to a half."""
    rest = x - 2 * torch.round(0.5 * x)
    whole = torch.round(rest)
    value = torch.sin((0.5 - (rest - whole).abs()) * math.pi)
    return torch.where(whole != 0, -value, value)


def logit(x):
    """log(x / (1 - x)); torch's has lost its digits near a half."""
    return torch.where((x > 0.25) & (x < 0.75), 2 * torch.atanh(2 * x - 1), torch.logit(x))


def ldexp(x, i):
    """x * 2^i: in f64, in steps after which 53 bits are left, so that the last one alone rounds."""
    y, power = x.double(), i.clamp(-2200, 2200)
    for _ in range(2):
        step = torch.where(power > 1023, 1023, torch.where(power < -1022, -969, 0))
        y, power = y * _power_of_two(step), power - step
    return (y * _power_of_two(power.clamp(-1022, 1023))).to(x.dtype)


def _power_of_two(power):
    return (power.to(torch.int64) + 1023 << 52).view(torch.float64)


FUNCTIONS: dict[str, Callable] = {
    "+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "neg": torch.neg,
    "//": floor_quotient, "%": modulo, "<<": shifted_left, ">>": shifted_right,
    "&": torch.bitwise_and, "|": torch.bitwise_or, "^": torch.bitwise_xor, "~": torch.bitwise_not,
    "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge, "==": torch.eq, "!=": torch.ne,
    "and": torch.logical_and, "or": torch.logical_or, "not": torch.logical_not,
    "where": torch.where, "min": smaller, "max": larger, "clamp": clamp, "weighted": weighted, "sign": sign,
    "fmin": lambda a, b: torch.where((a < b) | b.isnan(), a, b),
    "fmax": lambda a, b: torch.where((a > b) | b.isnan(), a, b),
    "round_even": torch.round, "round_to_int": round_to_int, "remainder": remainder, "ndtr": ndtr,
    "gelu_slope": gelu_slope, "random_bits": random_bits, "ldexp": ldexp,
    "digamma": digamma, "log1pexp": log1pexp, "logit": logit, "sinpi": sinpi, "cospi": cospi,
} | {
    name: getattr(torch, name) for name in (
        "abs", "copysign", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "sqrt", "fmod", "exp", "log", "erf",
        "erfc", "sigmoid", "tanh", "exp2", "expm1", "log2", "log10", "log1p", "pow", "rsqrt", "hypot", "sinh", "cosh",
        "asinh", "acosh", "atanh", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "erfinv", "lgamma",
        "nextafter",
    )
}  # fmt: skip
# The functions that take the type of the output, too.
CONVERSIONS: dict[str, Callable] = {"saturate": saturate, "wrap": wrap, "popcount": popcount, "clz": clz,
                                    "stochastic": stochastic}  # fmt: skip
