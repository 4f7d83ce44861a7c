"""Random numbers as functions of torch: `skuda.reference.random` in int64, whose products wrap.

Integers and uniform numbers have the kernels' bits; normal ones are made by torch's logarithm and cosine.
"""

from __future__ import annotations

import math

import torch

from skuda.model.dtypes import DType

_LOWER = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def _words(seed, offset, block):
    """The four words of each block."""
    (a, b), (c, d), keys = ((each & _LOWER, each >> 32 & _LOWER) for each in (block, offset, seed))
    for _ in range(10):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (
            (right >> 32 & _LOWER) ^ b ^ keys[0], right & _LOWER, (left >> 32 & _LOWER) ^ d ^ keys[1], left & _LOWER,
        )  # fmt: skip
        keys = tuple(each + step & _LOWER for each, step in zip(keys, _KEY_STEPS, strict=True))
    return a, b, c, d


def random_bits(seed, offset, index):
    """An integer from 0 on, below 2^32."""
    words, at = _words(seed, offset, index >> 2), index & 3
    lower, upper = torch.where(at == 0, words[0], words[1]), torch.where(at == 2, words[2], words[3])
    return torch.where(at < 2, lower, upper)


def random_uniform(seed, offset, index, C: torch.dtype):
    """From 0 on, below 1, of a compute type."""
    if torch.float32 == C:
        return (random_bits(seed, offset, index) >> 8).to(C) * 2.0**-24
    first, second, third, fourth = _words(seed, offset, index >> 1)
    odd = (index & 1) == 1
    return _upper(torch.where(odd, third, first), torch.where(odd, fourth, second)).to(C) * 2.0**-53


def _upper(low, high):
    """The upper 53 bits of two words."""
    return high << 21 | low >> 11


def random_normal(seed, offset, index, C: torch.dtype):
    """Of the normal distribution, by Box and Muller."""
    single = torch.float32 == C
    first, second, third, fourth = _words(seed, offset, index >> (2 if single else 1))
    if single:
        latter = (index & 2) == 2
        distance, angle = torch.where(latter, third, first), torch.where(latter, fourth, second)
        share, bits = distance.to(C) * 2.0**-32 + 2.0**-33, 32
    else:
        share, angle, bits = (_upper(first, second) + 1).to(C) * 2.0**-53, fourth << 32 | third, 64
    angle = angle - ((index & 1) << (bits - 2))
    quarter = (angle + (1 << (bits - 3))) >> (bits - 2) & 3
    rest = angle - (quarter << (bits - 2))
    if single:  # of 32 bits of two's complement
        rest = (rest + (1 << 31) & _LOWER) - (1 << 31)
    turned = rest.double() * (2 * math.pi * 2.0**-bits)
    size = torch.where((quarter & 1) == 1, torch.sin(turned), torch.cos(turned)).to(C)
    return torch.sqrt(-2 * torch.log(share)) * torch.where((quarter == 1) | (quarter == 2), -size, size)


def stochastic(x, bits, dtype: DType):
    """One of two neighbours of a float type: away from 0 as often as random bits are below the distance gone."""
    size, least = x.abs().double(), math.frexp(dtype.smallest)[1] - 1
    unit = torch.clamp(torch.frexp(size)[1].to(torch.int64) - 1 - dtype.mantissa, min=least)
    steps = _scaled(torch.where(x.isfinite(), size, 0.0), -unit)
    whole = torch.floor(steps)
    above = (bits & _LOWER) < torch.floor((steps - whole) * 2.0**32)
    return torch.where(x.isfinite(), torch.copysign(_scaled(whole + above, unit), x), x).to(x.dtype)


def _scaled(y, power):
    """y * 2^power, exactly where that is a number."""
    half = power >> 1
    for each in (half, power - half):
        y = y * ((each + 1023) << 52).view(torch.float64)
    return y


# These take the compute type, too.
OF_C = {"random_uniform": random_uniform, "random_normal": random_normal}
