"""The logarithm of the gamma function and its derivative below 0 next to a zero, where their terms cancel: pairs in
every step, which know some 100 bits of each term, in steps that CPU and GPU have in common.

runtime/cuda/gamma_zeros.cuh is the same text in C++.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    Pair,
    fast_two_sum,
    hexadecimal,
    pair_product,
    pair_quotient,
    two_product,
    two_sum,
    two_to_the,
)

PI = hexadecimal("0x1.921fb54442d18p+1", "0x1.1a62633145c07p-53")
STIRLING = hexadecimal("0x1.acfe390c97d69p-2", "0x1.3494bc9001442p-56")  # (log(2 pi) - 1) / 2
# Next to zeros: the zero and the slope there, each in two parts, and half the slope's slope.
_LOGARITHM_ZEROS = (
    hexadecimal(
        "-0x1.0284e78599581p+2", "0x1.e78c1e9e43cfep-53", "0x1.aca5cf4921642p+4", "0x1.a46a2e0d8fe1p-51",
        "0x1.44415cd813f8ep+8",
    ),
    hexadecimal(
        "-0x1.3f7577a6eeafdp+2", "0x1.5de5eab7f12cfp-53", "-0x1.d224a3ef9e41fp+6", "-0x1.9be272a13babcp-48",
        "0x1.b533c678a3956p+12",
    ),
    hexadecimal(
        "-0x1.4086a57f0b6d9p+2", "-0x1.95262b72ca9cap-55", "0x1.ed72e0829ae02p+6", "-0x1.fdc1859aea473p-50",
        "0x1.cecc32ec22f9bp+12",
    ),
    hexadecimal(
        "-0x1.7fe92f591f40dp+2", "-0x1.7dd4ed62cbd32p-52", "-0x1.661f6a43a5e12p+9", "-0x1.0c437b83bc0e6p-45",
        "0x1.f79dcb794f26fp+17",
    ),
    hexadecimal(
        "-0x1.8016b25897c8dp+2", "0x1.27e0f49a4ba72p-54", "0x1.69de49e3af2aap+9", "0x1.954b690943b33p-47",
        "0x1.fce23484cfd1p+17",
    ),
)  # fmt: skip
_DERIVATIVE_ZEROS = (
    hexadecimal(
        "-0x1.29cea5c1ccbdp+2", "-0x1.25e92119a56a9p-52", "0x1.8bd4130f4ee75p+3", "0x1.6694df3df9964p-55",
        "-0x1.4a31244049061p+4",
    ),
    hexadecimal(
        "-0x1.6ab2ca18e6ce3p+2", "-0x1.da7ecae62c5bdp-59", "0x1.a0af5c72c8e84p+3", "-0x1.9182932a0c24p-51",
        "-0x1.802c5fd17ebafp+4",
    ),
    hexadecimal(
        "-0x1.ab6b34398a4ffp+2", "0x1.9027e5b26e237p-52", "0x1.b3cda28232d1dp+3", "-0x1.9b5988bba0e08p-51",
        "-0x1.b23832f615893p+4",
    ),
    hexadecimal(
        "-0x1.ec04b952a5368p+2", "-0x1.37a62af51caacp-53", "0x1.c57b9f5a07e4bp+3", "-0x1.684294a03cb36p-51",
        "-0x1.e11ef4f9ada39p+4",
    ),
)  # fmt: skip
_LN2 = hexadecimal("0x1.62e42fefa38p-1", "0x1.ef35793c76p-45", "0x1.cc01f97b57a08p-87")
# B(2k) / (2k), from k = 12 to 1, for the series from 32 on.
_BERNOULLI = (
    (-236364091.0, 65520.0), (77683.0, 276.0), (-174611.0, 6600.0), (43867.0, 14364.0), (-3617.0, 8160.0), (1.0, 12.0),
    (-691.0, 32760.0), (1.0, 132.0), (-1.0, 240.0), (1.0, 252.0), (-1.0, 120.0), (1.0, 12.0),
)  # fmt: skip


def _plus(a: Pair, b: Pair) -> Pair:
    total = two_sum(a[0], b[0])
    return fast_two_sum(total[0], total[1] + (a[1] + b[1]))


def _product(a: Pair, b: Pair) -> Pair:
    return fast_two_sum(*pair_product(a, b))


def _over(a: Pair, b: Pair) -> Pair:
    return fast_two_sum(*pair_quotient(a, b))


def _careful_logarithm(x: Pair) -> Pair:
    """power ln 2 + 2 artanh((m - 1) / (m + 1)) of x = m 2^power."""
    bits = x[0].view(np.int64)
    power = (bits - (0x3FE6A << 44)) >> 52  # of an m from 0.707 to 1.414
    m, low = (bits - (power << 52)).view(np.float64), x[1] * two_to_the(-power)
    s = _over(fast_two_sum(m - 1.0, low), _plus((m, low), (1.0, 0.0)))
    square = _product(s, s)
    p = (0.0, 0.0)
    for k in range(41, 0, -2):
        p = _plus(_product(p, square), pair_quotient((1.0, 0.0), (float(k), 0.0)))
    unit = power.astype(np.float64)
    whole = _plus((unit * _LN2[0], 0.0), (unit * _LN2[1], unit * _LN2[2]))
    return _plus(whole, _product((2.0 * s[0], 2.0 * s[1]), p))


def _careful_series(inverse: Pair, step: float) -> Pair:
    """The sum of B(2k) / (2k (1 + step (k - 1))) / z^2k by 1 / z, for z from 32 on."""
    square = _product(inverse, inverse)
    p = (0.0, 0.0)
    for i, (numerator, denominator) in enumerate(_BERNOULLI):
        divisor = denominator * (1.0 + step * (11 - i))
        p = _plus(_product(p, square), pair_quotient((numerator, 0.0), (divisor, 0.0)))
    return _product(p, square)


def _next_to_zeros(zeros, x, value):
    """What a function below 0 is: by its slope next to a zero of the table, else a value."""
    for zero, zero_low, slope, slope_low, bend in zeros:
        apart = x - zero
        product, distance = two_product(apart, slope), apart - zero_low
        small = distance * (distance * bend + slope_low) - zero_low * slope
        value = np.where(np.abs(apart) < 2.0**-40, product[0] + (product[1] + small), value)
    return value


def _stepped(z: Pair) -> Pair:
    """z + 1."""
    above = two_sum(z[0], 1.0)
    return fast_two_sum(above[0], above[1] + z[1])


def _where(condition, a: Pair, b: Pair) -> Pair:
    return np.where(condition, a[0], b[0]), np.where(condition, a[1], b[1])


def logarithm_near_zeros(x):
    """log gamma(z) for a z = x + n from 32 on less the logarithm of x (x + 1) ... (z - 1)."""
    z, product = (x, np.zeros_like(x)), (np.ones_like(x), np.zeros_like(x))
    while (below := z[0] < 32).any():
        product, z = _where(below, _product(product, z), product), _where(below, _stepped(z), z)
    sign = np.where(product[0] < 0, -1.0, 1.0)
    log, less = _careful_logarithm(z), _careful_logarithm((sign * product[0], sign * product[1]))
    value = _product(_plus(z, (-0.5, 0.0)), _plus(log, (-1.0, 0.0)))
    series = _product(_careful_series(_over((1.0, 0.0), z), 2.0), z)
    value = _plus(_plus(value, _plus(STIRLING, series)), (-less[0], -less[1]))
    return _next_to_zeros(_LOGARITHM_ZEROS, x, value[0] + value[1])


def _careful_cotangent(size) -> Pair:
    """pi / tan(pi size)."""
    angle = _product((size - np.rint(size), 0.0), PI)
    square = _product(angle, angle)
    sine, cosine = (1.0, 0.0), (1.0, 0.0)  # the sine over the angle
    for k in range(34, 0, -2):
        sine = _plus((1.0, 0.0), pair_quotient(_product(sine, square), (-(k * (k + 1.0)), 0.0)))
        cosine = _plus((1.0, 0.0), pair_quotient(_product(cosine, square), (-(k * (k - 1.0)), 0.0)))
    return _over(_product(PI, cosine), _product(sine, angle))


def derivative_near_zeros(x):
    """The derivative at z = n - x from 32 on less the inverses of |x|, |x| + 1 .. z - 1; then the reflection."""
    z, more = (-x, np.zeros_like(x)), (np.zeros_like(x), np.zeros_like(x))
    value = _plus(_careful_cotangent(z[0]), _over((1.0, 0.0), z))
    while (below := z[0] < 32).any():
        more, z = _where(below, _plus(more, _over((-1.0, 0.0), z)), more), _where(below, _stepped(z), z)
    inverse, log = _over((1.0, 0.0), z), _careful_logarithm(z)
    series = _careful_series(inverse, 0.0)
    far = _plus(_plus(log, (-0.5 * inverse[0], -0.5 * inverse[1])), (-series[0], -series[1]))
    value = _plus(_plus(far, more), value)
    return _next_to_zeros(_DERIVATIVE_ZEROS, x, value[0] + value[1])


def has_cancelled(result, term, share):
    """Whether a result is small beside the larger of two terms."""
    return np.abs(result) < share * (1.0 + np.abs(term))
