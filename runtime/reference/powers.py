"""Exponentials, logarithms, powers and roots in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/powers.cuh is the same text in C++. f64 is computed in double-double where it matters. f32 is computed in
f64, but for exp2, expm1, logarithms and pow, which are sums of two f32. There rsqrt and cbrt take other steps: of f32
they are correctly rounded. Each result is rounded once at the end.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    Pair,
    elementary,
    fast_two_sum,
    hexadecimal,
    horner,
    in_f32,
    pair_root,
    spread,
    table,
    times_two_to,
    two_product,
    two_sum,
    two_to_the,
)
from skuda.reference.elementary import F32, LOG_F32, fma32, integer, nearest_power, polynomial
from skuda.reference.fused import fused_horner, multiply_add

_EVEN = hexadecimal(
    "0x1.1f7f2df9103bcp-29", "0x1.27e4d4977bfa7p-22", "0x1.a01a01a96153bp-16", "0x1.6c16c16c15d5ap-10",
    "0x1.5555555555556p-5",
)  # fmt: skip
_ODD = hexadecimal(
    "0x1.af5bcd8766ae4p-26", "0x1.71ddfa359fdc7p-19", "0x1.a01a01af0c851p-13", "0x1.111111110f928p-7",
    "0x1.5555555555558p-3",
)  # fmt: skip
# Of f32: (2^f - 1 - c f) / f^2, with c = ln 2 as f32 has it, and (e^r - 1 - r) / r^2.
EXP2_F32 = hexadecimal("0x1.447984p-13", "0x1.5f0b0p-10", "0x1.3b29d0p-7", "0x1.c6af78p-5", "0x1.ebfbe0p-3")
EXPM1_F32 = hexadecimal(
    "0x1.a1a36p-13", "0x1.6d767cp-10", "0x1.11108ep-7", "0x1.5554acp-5", "0x1.555556p-3", "0x1p-1",
)  # fmt: skip
_MINUS_LN2_F32 = tuple(map(np.float32, hexadecimal("-0x1.62e4p-1", "-0x1.7f7d1cp-20")))  # in two parts
# (log(1 + g) - g + g^2 / 2) / g^3; the logarithms of 2 and e to base 2 and 10, in two parts each.
_UNITS_LOG2 = tuple(map(np.float32, hexadecimal("0x1p+0", "0x0p+0", "0x1.715476p+0", "0x1.4ae0cp-26")))
_UNITS_LOG10 = tuple(map(np.float32, hexadecimal("0x1.344p-2", "0x1.3509f8p-18", "0x1.bcb7b2p-2", "-0x1.5b235ep-27")))
_LN2_F32 = np.float32(float.fromhex("0x1.62e43p-1"))
# (log2(m) / s - c0 - c1 s^2) / s^4 for m = (1 + s) / (1 - s); c0 and c1 in two parts each.
LOG2_F32 = hexadecimal("0x1.59fc5p-2", "0x1.a5bb5p-2", "0x1.27770ep-1")
_SERIES_F32 = tuple(
    map(np.float32, hexadecimal("0x1.715476p+1", "0x1.4ae0cp-25", "0x1.ec709ep-1", "-0x1.e2fe02p-28"))
)
_LOG2E = hexadecimal("0x1.71547652b82fep+0", "0x1.777d0ffda0d24p-56")
_LOG10E = hexadecimal("0x1.bcb7b1526e50ep-2", "0x1.95355baaafad3p-57")
_LN2 = hexadecimal("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
_LN2_HIGH = float.fromhex("0x1.62e42fefa38p-1")  # its product with a power of two's exponent is exact
_LN2_NEXT = float.fromhex("0x1.ef35793c76p-45")  # so is this one's
_LN2_REST = float.fromhex("0x1.ef35793c7673p-45")
_LOGARITHM = hexadecimal(
    "0x1.c730d7a0dfe86p-4", "-0x1.0008d8faea61ep-3", "0x1.249248f3691e8p-3", "-0x1.5555553701adbp-3",
    "0x1.9999999999f56p-3", "-0x1.00000000000f9p-2", "0x1.5555555555555p-2",
)  # fmt: skip
_CUBE_ROOT = hexadecimal(
    "0x1.592b3e54fff08p-8", "-0x1.97c4378816e64p-5", "0x1.9b9aa8b78b9edp-3", "-0x1.ddd0e027e358cp-2",
    "0x1.ac2e83234e7c3p-1", "0x1.e53abb8cc458dp-2",
)  # fmt: skip
_ROOTS = np.array(hexadecimal("0x1p+0", "0x1.428a2f98d728bp+0", "0x1.965fea53d6e3dp+0"))

# c near 1 / m for m in 64 steps from 0.707 to 1.414, and -log c in two parts, the first a multiple of 2^-42.
_RECIPROCAL, _LOG_HIGH, _LOG_LOW = table("""
    0x1.68p+0 -0x1.5d1bdbf581p-2 0x1.8d6bdc9c7c238p-44
    0x1.64p+0 -0x1.51aad872ep-2 0x1.f4bd8db0a7cc1p-44
    0x1.608p+0 -0x1.478cd5959bp-2 -0x1.ec89bf0c8d098p-45
    0x1.5c8p+0 -0x1.3bdd24eb15p-2 0x1.257b4970e6ed9p-44
    0x1.59p+0 -0x1.31871c9544p-2 -0x1.84fab94cecfd9p-46
    0x1.558p+0 -0x1.27161913f8p-2 -0x1.4f4f1f61564b4p-44
    0x1.52p+0 -0x1.1c898c169ap-2 0x1.81410e5c62affp-44
    0x1.4e8p+0 -0x1.11e0e2dadap-2 0x1.a47f88fcce5bap-45
    0x1.4bp+0 -0x1.071b85fcd6p-2 0x1.bcb8ba3e01a11p-44
    0x1.478p+0 -0x1.f871b28956p-3 0x1.f75fd6a526efep-44
    0x1.448p+0 -0x1.e598ed5a88p-3 0x1.d134bcf1e98a1p-47
    0x1.418p+0 -0x1.d293581b6cp-3 0x1.83270128aaa5fp-44
    0x1.3ep+0 -0x1.bc286742d8p-3 -0x1.9ac53f39d121cp-44
    0x1.3bp+0 -0x1.a8becfc882p-3 -0x1.e3185cf21b9cfp-44
    0x1.38p+0 -0x1.9525a9cf46p-3 0x1.297137d9f158fp-44
    0x1.35p+0 -0x1.815c0a1436p-3 0x1.02a52f9201ce8p-44
    0x1.32p+0 -0x1.6d60fe719ep-3 0x1.bc6e557134767p-44
    0x1.2f8p+0 -0x1.5c94007598p-3 0x1.a8d948cd23322p-44
    0x1.2c8p+0 -0x1.483bccce6ep-3 -0x1.eea52723f6369p-46
    0x1.2ap+0 -0x1.371fc201e8p-3 -0x1.ee8779b2d8abcp-44
    0x1.27p+0 -0x1.2266f190a6p-3 0x1.4d20ab840e7f6p-45
    0x1.248p+0 -0x1.10f8e42254p-3 0x1.93b3843396307p-45
    0x1.22p+0 -0x1.fec9131dcp-4 0x1.54555d1ae6607p-44
    0x1.1f8p+0 -0x1.db5270187cp-4 -0x1.9277856ae181fp-44
    0x1.1dp+0 -0x1.b78c82bb1p-4 0x1.25ef7bc3987e7p-44
    0x1.1a8p+0 -0x1.9375e55594p-4 -0x1.eddc37380c364p-44
    0x1.18p+0 -0x1.6f0d28ae58p-4 0x1.4b4641b664613p-44
    0x1.158p+0 -0x1.4a50d3aa1cp-4 0x1.f7fe1308973e2p-45
    0x1.138p+0 -0x1.2cb0283f5cp-4 -0x1.e1ee2ca657021p-44
    0x1.11p+0 -0x1.075983599p-4 0x1.b8ecfe4b59987p-44
    0x1.0fp+0 -0x1.d276b8adbp-5 -0x1.6a423c78a64bp-46
    0x1.0c8p+0 -0x1.868a83084p-5 0x1.2623a134ac693p-46
    0x1.0a8p+0 -0x1.494acc34d8p-5 -0x1.11c78a56fd247p-45
    0x1.088p+0 -0x1.0b94f7c198p-5 0x1.e89896f022783p-45
    0x1.06p+0 -0x1.7b91b07d6p-6 0x1.3b955b602ace4p-44
    0x1.04p+0 -0x1.fc0a8b0fcp-7 -0x1.f1e7cf6d3a69cp-50
    0x1.02p+0 -0x1.fe02a6b1p-8 -0x1.9e23f0dda40e4p-46
    0x1p+0 0x0p+0 0x0p+0
    0x1.f8p-1 0x1.020565893p-6 0x1.611d27c8e8417p-44
    0x1.fp-1 0x1.0415d89e78p-5 -0x1.dddc7f461c516p-44
    0x1.e9p-1 0x1.788595a358p-5 -0x1.08b0d083b3a4cp-46
    0x1.e2p-1 0x1.eea31c0068p-5 0x1.c3dd83606d891p-44
    0x1.dbp-1 0x1.333d7f8184p-4 -0x1.692b6a81b8848p-49
    0x1.d4p-1 0x1.700d30aeacp-4 0x1.c1e8da99ded32p-49
    0x1.cep-1 0x1.a4e7640b1cp-4 -0x1.e42b6b94407c8p-47
    0x1.c7p-1 0x1.e3707ee304p-4 0x1.0f684e6766abdp-45
    0x1.c1p-1 0x1.0ce7ecdcccp-3 0x1.4652dabff5447p-46
    0x1.bbp-1 0x1.28753bc11ap-3 0x1.7494e359302e6p-44
    0x1.b5p-1 0x1.4462b9dc9cp-3 -0x1.84858a711b062p-44
    0x1.afp-1 0x1.60b3100b0ap-3 -0x1.71456c988f814p-44
    0x1.aap-1 0x1.7898d85444p-3 0x1.8e67be3dbaf3fp-44
    0x1.a4p-1 0x1.95a5adcf7p-3 0x1.7f22858a0ff6fp-47
    0x1.9fp-1 0x1.ae2ca6f672p-3 0x1.7a8d5ae54f55p-44
    0x1.9ap-1 0x1.c6ffbc6fp-3 0x1.ee138d3a69d43p-44
    0x1.95p-1 0x1.e020cc6236p-3 -0x1.52b00adb91424p-45
    0x1.9p-1 0x1.f991c6cb3cp-3 -0x1.90d04cd7cc834p-44
    0x1.8bp-1 0x1.09aa572e6cp-2 0x1.b50a1e1734342p-44
    0x1.86p-1 0x1.16b5ccbadp-2 -0x1.23299042d74bfp-44
    0x1.82p-1 0x1.214456d0ecp-2 -0x1.caf0428b728a3p-44
    0x1.7dp-1 0x1.2e9e2bce12p-2 0x1.4300c128d1dc2p-45
    0x1.79p-1 0x1.396ce359bcp-2 -0x1.5839c5663663dp-47
    0x1.74p-1 0x1.4718dc271cp-2 0x1.06c18fb4c14c5p-44
    0x1.7p-1 0x1.522ae0738ap-2 0x1.ebe708164c759p-45
    0x1.6cp-1 0x1.5d5bddf596p-2 -0x1.a0b2a08a465dcp-47
""")


# ---- exponentials: e^x = (1 + r + even + odd) 2^power and e^-x = (1 - r + even - odd) 2^-power ----


def _near_zero(r, rest, power):
    """(r, even, odd, power) of x = power ln 2 + r + rest, |r| up to ln(2) / 2."""
    high, low = fast_two_sum(r, rest)
    z = high * high
    even, odd = horner(_EVEN, z), horner(_ODD, z)
    power = np.where(np.isnan(power), 0, power).astype(np.int64)
    return high, 0.5 * z + (z * z * even + low * high), high * z * odd + low, power


def exponential_parts(high, low=0.0):
    """(r, even, odd, power) of x = high + low, |x| up to 1100."""
    power = np.rint(high * _LOG2E[0])
    r, rest = two_sum(high - power * _LN2_HIGH, -(power * _LN2_NEXT))
    return _near_zero(r, rest + low, power)


def _exponential(r, even, odd, power):
    high, low = fast_two_sum(1.0, r)
    return times_two_to(high + (low + (even + odd)), power)


@in_f32(lambda x: _exp2_f32(x))
@elementary
def exp2(x, single):
    """2^x of f32 or f64, within 1 unit in the last place."""
    x = np.clip(x, -1080.0, 1030.0)
    power = np.rint(x)
    part = x - power
    r, rest = two_product(part, _LN2[0])
    return _exponential(*_near_zero(r, rest + part * _LN2[1], power))


@in_f32(lambda x: _expm1_f32(x))
@elementary
def expm1(x, single):
    """e^x - 1 of f32 or f64, within 1 unit in the last place; zeros keep their sign."""
    r, even, odd, power = exponential_parts(np.clip(x, -60.0, 720.0))
    one = two_sum(1.0, -two_to_the(-np.minimum(power, 1000)))
    high, low = two_sum(one[0], r)
    return np.copysign(times_two_to(high + (low + (one[1] + (even + odd))), power), x)


def _exp2_f32(x):
    C = np.float32
    x = np.clip(x, C(-150.5), C(128.5))
    k = (x + C(F32.integer)) - C(F32.integer)
    f = x - k
    near = fma32(f, _LN2_F32, C(1))
    value = near + fma32(f * f, polynomial(EXP2_F32, f), fma32(f, _LN2_F32, C(1) - near))
    k = integer(k)
    return value * np.ldexp(C(1), k >> 1) * np.ldexp(C(1), k - (k >> 1))


def _expm1_f32(x):
    C = np.float32
    t = np.clip(x, C(-17.5), C(89))
    k = nearest_power(t, F32)
    large = fma32(k, _MINUS_LN2_F32[0], t)
    r = fma32(k, _MINUS_LN2_F32[1], large)
    r_rest = fma32(k, _MINUS_LN2_F32[1], large - r)
    half = np.ldexp(C(1), integer(k) - 1)
    one = half - C(0.5)
    near = fma32(half, r, one)
    rest = fma32(half, r, one - near) + ((half - one) - C(0.5))
    value = near + fma32(half, fma32(r * r, polynomial(EXPM1_F32, r), r_rest), rest)
    return np.where(np.abs(x) < C(2.0**-25), x, value + value)


# ---- logarithms ----


def _mantissa(x):
    """(m, power, step): x = m 2^power with m from 0.707 to 1.414, and m's step in the table, for a normal x above 0."""
    bits = x.view(np.int64)
    above = bits - 0x3FE6A00000000000
    power = above >> 52
    return (bits - (power << 52)).view(np.float64), power, above >> 46 & 63


def _usual(x):
    """x where a logarithm is finite, else 1; it is made normal by 2^54, whose exponent is given back."""
    usual = np.where((x > 0) & (x < np.inf), x, 1.0)
    subnormal = usual < 2.0**-1022
    return np.where(subnormal, usual * 2.0**54, usual), np.where(subnormal, -54, 0)


def logarithm_pair(high, low=0.0, raised=0) -> Pair:
    """log((high + low) 2^raised), within 2^-65 of itself, for a normal high above 0; from 2^1000 on low is too
    small to count."""
    m, power, step = _mantissa(high)
    product = two_product(m, _RECIPROCAL[step])  # its first part less 1 is exact
    scaled = low * two_to_the(-np.minimum(power, 1000)) * _RECIPROCAL[step]
    r, rest = fast_two_sum(product[0] - 1.0, product[1] + scaled)
    square = two_product(r, r)
    power = (power + raised).astype(np.float64)
    total = fast_two_sum(power * _LN2_HIGH + _LOG_HIGH[step], r)  # the first is exact
    less = fast_two_sum(total[0], -0.5 * square[0])
    tail = (rest - rest * (r - square[0])) - 0.5 * square[1]
    small = ((total[1] + less[1]) + (power * _LN2_REST + _LOG_LOW[step])) + tail
    return fast_two_sum(less[0], small + r * square[0] * fused_horner(_LOGARITHM, r))


def logarithm_terms(high, low=0.0, raised=0) -> Pair:
    """The same within 2^-59 of itself, in fewer steps; the second part as it comes."""
    m, power, step = _mantissa(high)
    product = two_product(m, _RECIPROCAL[step])
    scaled = low * two_to_the(-np.minimum(power, 1000)) * _RECIPROCAL[step]
    r, rest = fast_two_sum(product[0] - 1.0, product[1] + scaled)
    power = (power + raised).astype(np.float64)
    total = fast_two_sum(power * _LN2_HIGH + _LOG_HIGH[step], r)
    small = (total[1] + rest) + (power * _LN2_REST + _LOG_LOW[step])
    return total[0], small + r * r * (r * fused_horner(_LOGARITHM, r) - 0.5)


def near_logarithm(x) -> Pair:
    """log x of a normal x above 0 to about 2^-60, in fewer steps still."""
    m, power, step = _mantissa(x)
    product = two_product(m, _RECIPROCAL[step])
    r, power = (product[0] - 1.0) + product[1], power.astype(np.float64)
    total = fast_two_sum(power * _LN2_HIGH + _LOG_HIGH[step], r)
    rest = power * _LN2_REST + _LOG_LOW[step]
    curved = multiply_add(r * r, multiply_add(r, fused_horner(_LOGARITHM, r), -0.5), rest)
    return fast_two_sum(total[0], total[1] + curved)


def _limited(x, value):
    """A logarithm's value, or what it is where x is not above 0 and finite."""
    value = np.where(x > 0, value, np.where(x == 0, -np.inf, np.nan))
    return np.where(np.isfinite(x) | (x < 0), value, x)


def _scaled_logarithm(x, scale: tuple[float, float]):
    usual, raised = _usual(x)
    high, low = logarithm_terms(usual, raised=raised)
    product = two_product(high, scale[0])
    return _limited(x, product[0] + (product[1] + (high * scale[1] + low * scale[0])))


@in_f32(lambda x: _scaled_f32(x, *_UNITS_LOG2))
@elementary
def log2(x, single):
    """The logarithm to base 2 of f32 or f64, within 1 unit in the last place; 0 gives -inf, below 0 NaN."""
    return _scaled_logarithm(x, _LOG2E)


@in_f32(lambda x: _scaled_f32(x, *_UNITS_LOG10))
@elementary
def log10(x, single):
    """The logarithm to base 10 of f32 or f64, within 1 unit in the last place; 0 gives -inf, below 0 NaN."""
    return _scaled_logarithm(x, _LOG10E)


@in_f32(lambda x: _log1p_f32(x))
@elementary
def log1p(x, single):
    """log(1 + x) of f32 or f64, within 1 unit in the last place; -1 gives -inf, below NaN."""
    usual = np.where((x > -1) & (x < np.inf), x, 0.0)
    high, low = logarithm_terms(*two_sum(1.0, usual))
    return np.where(np.abs(x) < 2.0**-54, x, _limited(x + 1.0, high + low))


def _parts_f32(x):
    """(k, m): x = m 2^k with m from 0.707 to 1.414, for a normal x above 0."""
    above = x.view(np.int32) - np.int32(0x3F3504F3)
    return above >> 23, ((above & 0x7FFFFF) + np.int32(0x3F3504F3)).view(np.float32)


def _near_one_f32(x):
    """(k, g): x = (1 + g) 2^k with 1 + g from 0.707 to 1.414, of 1 where x is not above 0 and finite."""
    C = np.float32
    usual = np.where((x > 0) & (x < np.inf), x, C(1))
    subnormal = usual < C(2.0**-126)
    power, m = _parts_f32(np.where(subnormal, usual * C(2.0**24), usual))
    return (power - np.where(subnormal, 24, 0)).astype(C), m - C(1)


def _scaled_f32(x, unit, unit_rest, scale, scale_rest):
    """k unit + log(1 + g) scale of x = 2^k (1 + g)."""
    C = np.float32
    k, g = _near_one_f32(x)
    square = g * g
    bent = fma32(square * g, polynomial(LOG_F32.polynomial, g), C(-0.5) * square)
    near = g * scale
    near_rest = fma32(C(-0.5) * scale, fma32(g, g, -square), fma32(g, scale, -near))
    small = fma32(bent, scale, fma32(g, scale_rest, fma32(k, unit_rest, near_rest)))
    whole = k * unit
    value = whole + near
    return _limited(x, value + (((whole - value) + near) + small))


def _log1p_f32(x):
    C = np.float32
    usual = np.where((x > -1) & (x < np.inf), x, C(0))
    power, _ = _parts_f32(C(1) + usual)
    k, part, down = power.astype(C), np.ldexp(usual, -power), np.ldexp(C(1), -np.minimum(power, 127)) - C(1)
    g = part + down
    g_rest = part - (g - down)
    square = g * g
    bent = fma32(square * g, polynomial(LOG_F32.polynomial, g), fma32(C(-0.5), square, k * -_MINUS_LN2_F32[1]))
    whole = k * -_MINUS_LN2_F32[0]
    value = whole + g
    return np.where(np.abs(x) < C(2.0**-25), x, _limited(x + C(1), value + (((whole - value) + g) + (bent + g_rest))))


# ---- powers and roots ----


@in_f32(lambda base, exponent: _pow_f32(base, exponent))
@elementary
def pow(base, exponent, single):
    """base^exponent of f32 or f64, within 1 unit in the last place, with the special values of C's pow."""
    base, exponent = spread(base, exponent)
    size = np.abs(base)
    usual, raised = _usual(size)
    high, low = logarithm_pair(usual, raised=raised)
    high = np.where(size == 0, -np.inf, np.where(size < np.inf, high, size))
    by = np.clip(exponent, -(2.0**65), 2.0**65)  # halves of larger ones would overflow
    product = two_product(by, high)
    low = np.where(np.abs(product[0]) < 800, product[1] + by * low, 0.0)
    return _signed(base, exponent, _exponential(*exponential_parts(np.clip(product[0], -800.0, 800.0), low)))


def _signed(base, exponent, value):
    """base^exponent as C's pow has it, by the power of the magnitude."""
    size = np.where(np.abs(base) == 1, base.dtype.type(1), value)
    integral = np.rint(exponent) == exponent
    half = base.dtype.type(0.5) * exponent
    odd = integral & (np.rint(half) != half)
    value = np.where(odd, np.copysign(size, base), size)
    undefined = (base < 0) & (base > -np.inf) & ~integral | np.isnan(base) | np.isnan(exponent)
    return np.where((base == 1) | (exponent == 0), 1.0, np.where(undefined, np.nan, value))


def _pow_f32(base, exponent):
    size = np.abs(base)
    usual = (size > 0) & (size < np.inf) & (np.abs(exponent) < np.inf)
    beyond = np.where((size > 1) == (exponent > 0), np.inf, 0.0)
    return _signed(base, exponent, np.where(usual, _power_f32(size, exponent), beyond))


def _power_f32(base, exponent):
    """The magnitude of a power, of a positive finite base, by its logarithm in two parts."""
    C = np.float32
    c0, c0_rest, c1, c1_rest = _SERIES_F32
    k, g = _near_one_f32(base)
    y = C(1) / (C(2) + g)
    s = g * y
    s_rest = y * fma32(-s, g, fma32(C(-2), s, g))
    z = s * s
    z_rest = fma32(s, s, -z)
    by = fma32(z, c1, c0)
    lost = fma32(z_rest, c1, fma32(z, c1, c0 - by)) + c0_rest
    by_rest = fma32(z, fma32(z, polynomial(LOG2_F32, z), c1_rest), lost)
    near = s * by
    near_rest = fma32(s, by_rest, fma32(s_rest, fma32(z, c0, c0), fma32(s, by, -near)))
    log = k + near
    log_rest = ((k - log) + near) + near_rest
    whole = exponent * log
    rest = np.where(np.abs(whole) < C(151), fma32(exponent, log_rest, fma32(exponent, log, -whole)), C(0))
    t = np.clip(whole, C(-150.5), C(128.5))
    k = (t + C(F32.integer)) - C(F32.integer)
    part = t - k
    f = part + rest
    one = fma32(part, _LN2_F32, C(1))
    one_rest = fma32(part, _LN2_F32, C(1) - one)
    value = one + fma32(f * f, polynomial(EXP2_F32, f), fma32(rest, _LN2_F32, one_rest))
    k = integer(k)
    return value * np.ldexp(C(1), k >> 1) * np.ldexp(C(1), k - (k >> 1))


@elementary
def rsqrt(x, single):
    """1 / sqrt(x) of f32, correctly rounded, or f64, within 1 unit in the last place; 0 gives an infinity of its sign,
    below 0 NaN."""
    if single:
        return 1.0 / np.sqrt(x)
    scale = np.where(x < 2.0**-700, 2.0**200, np.where(x > 2.0**700, 2.0**-200, 1.0))
    root = pair_root((x * scale * scale, 0.0))
    inverse = 1.0 / root[0]
    product = two_product(inverse, root[0])
    rest = ((1.0 - product[0]) - product[1]) - inverse * root[1]
    value = (inverse + inverse * rest) * scale
    return np.where((x > 0) & (x < np.inf), value, inverse)


@elementary
def cbrt(x, single):
    """The cube root of f32, correctly rounded, or f64, within 1 unit in the last place; zeros and infinities are their
    own."""
    size = np.abs(x)
    subnormal = size < 2.0**-1022
    bits = np.where(subnormal, size * 2.0**54, size).view(np.int64)
    power = (bits >> 52) - np.where(subnormal, 1023 + 54, 1023)
    third = (power + 3072) // 3 - 1024
    step = power - 3 * third
    m = (bits & 0xFFFFFFFFFFFFF | 0x3FF0000000000000).view(np.float64)
    of = m * two_to_the(step)
    first = horner(_CUBE_ROOT, m) * _ROOTS[step]
    cube = first * first * first
    root = first * ((cube + 2.0 * of) / (2.0 * cube + of))  # by a step of Halley
    square = two_product(root, root)
    third_power = two_product(square[0], root)
    rest = ((of - third_power[0]) - third_power[1]) - square[1] * root
    root = root + rest / (3.0 * square[0])
    return np.where((x == 0) | ~np.isfinite(x), x, np.copysign(root * two_to_the(third), x))


@elementary
def hypot(x, y, single):
    """sqrt(x^2 + y^2) of f32 or f64, within 1 unit in the last place; infinite if either is infinite, else NaN if
    either is NaN."""
    if single:
        value = np.sqrt(x * x + y * y)
    else:
        most, least = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
        scale = np.where(most > 2.0**500, 2.0**-700, np.where(most < 2.0**-400, 2.0**700, 1.0))
        a, b = two_product(most * scale, most * scale), two_product(least * scale, least * scale)
        total = fast_two_sum(a[0], b[0])
        root = pair_root((total[0], total[1] + (a[1] + b[1])))
        value = np.where(least >= most * 2.0**-60, (root[0] + root[1]) * (1.0 / scale), most)
    return np.where(np.isinf(x) | np.isinf(y), np.inf, value)
