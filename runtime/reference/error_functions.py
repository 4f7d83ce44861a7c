"""erf, erfc, the normal distribution and the slope of gelu, in steps that CPU and GPU have in common.

runtime/cuda/erf.cuh is the same text in C++, and says what the steps are for; skuda.reference.elementary has what
they are made of. A name in `..._rest` is what a step lost where it was rounded.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.elementary import (
    F32,
    F64,
    RAISED,
    fma32,
    integer,
    nearest_power,
    polynomial,
    product_rest,
    reduced,
    remainder,
    rise,
    sum_rest,
)
from skuda.reference.fused import fused_horner, multiply_add, pair_step


def _all(*numbers: str) -> tuple[float, ...]:
    return tuple(map(float.fromhex, numbers))


# Polynomials, highest power first.
_ERF = {
    np.float32: _all(
        "0x1.4ece88p-14", "-0x1.a5e1d2p-11", "0x1.544658p-8", "-0x1.b800dp-6", "0x1.ce2d62p-4", "-0x1.81274p-2",
        "0x1.06eba8p-3",
    ),
    np.float64: _all(
        "0x1.5ac6a479a0485p-26", "-0x1.80b874122e7a8p-23", "0x1.be31a32166c8ap-20", "-0x1.f51ea719099fdp-17",
        "0x1.f9a65780aef08p-14", "-0x1.c02dc9456ba92p-11", "0x1.565bcd660ec93p-8", "-0x1.b82ce314320dcp-6",
        "0x1.ce2f21a04703p-4", "-0x1.812746b037a3p-2", "0x1.06eba8214db69p-3",
    ),
}  # fmt: skip
_ERFC = {
    np.float32: _all(
        "-0x1.2a3732p-3", "0x1.d7582ap-2", "-0x1.c83facp-2", "0x1.e3053cp-4", "-0x1.b2483p-4", "0x1.d7204ap-5",
        "0x1.8ed14p-3", "0x1.49f67ap-3", "-0x1.367d4cp-2", "0x1.c8a17ap-5",
    ),
    np.float64: _all(
        "-0x1.9c9477f72286fp-27", "-0x1.006d1aaf9d445p-24", "-0x1.7712464dcf6b9p-26", "0x1.156851fb809cfp-22",
        "-0x1.d1a6fa9849e17p-23", "-0x1.4efe3af05b975p-20", "0x1.1756f32a3b0e6p-18", "0x1.c0fafc4d6fd07p-27",
        "-0x1.1d9e4c28ed95bp-15", "0x1.b03c06a227b67p-14", "-0x1.66bf22382ff7ep-15", "-0x1.c6c54230b3339p-11",
        "0x1.2d5ebeb658c68p-8", "-0x1.f4545ff20514dp-7", "0x1.466a83957eea9p-5", "-0x1.686bb7e27a7ffp-4",
        "0x1.5d01c681858bep-3", "-0x1.2e95cf5dc7cffp-2", "0x1.dc1ab147314b2p-2",
    ),
}  # fmt: skip
# Of f64 the last two, in two parts each.
_ERFC_LAST = (
    _all("-0x1.570d530544eep-1", "0x1.5f63db2c07f02p-52"),
    _all("0x1.c7cea29ceb7ep-1", "-0x1.3f42f008c737fp-50"),
)
_ERF_POWER = _all(
    "0x1.5de5b2p-17", "-0x1.4a1aaep-12", "0x1.d9319cp-9", "-0x1.843504p-6", "0x1.b2d38ap-4", "0x1.4538b2p-1",
    "0x1.0772dcp-3",
)  # fmt: skip
# By x - 1, and the last one in two parts.
_ERF_POWER_F64 = _all(
    "0x1.5efbb68b71fbep-43", "-0x1.71399df8da093p-38", "0x1.5f9d00a2510c7p-34", "-0x1.96504757201bep-31",
    "0x1.401b929f4bba2p-28", "-0x1.697e5fef6359dp-26", "0x1.211a1411d1c84p-24", "-0x1.0e26cb1f578eep-23",
    "-0x1.bd975d2a21722p-24", "0x1.0f00dd264e3adp-19", "-0x1.415d22589ac5dp-17", "0x1.c759f196197ffp-16",
    "-0x1.b8be4e9b88d05p-16", "-0x1.f1b4bb3f98f9ap-13", "0x1.033f699164661p-9", "-0x1.48c9d40c0b1b5p-7",
    "0x1.5477f09cab10dp-5", "0x1.afabc11a28f36p-1", "0x1.51c9b0006c23cp+1",
)  # fmt: skip
_ERF_POWER_LAST = _all("0x1.d97fbf27aa2ap+0", "0x1.0a1a3b5a401b3p-52")
_NDTR_NEAR = _all(
    "0x1.32b775b041602p-21", "0x1.63692772e2a9p-18", "0x1.65a1ae0c3cf7ap-15", "0x1.3ce9ac9d14081p-12",
    "0x1.e42b12d3b857ep-10", "0x1.37403f776c0cp-7", "0x1.46d04297829p-5", "0x1.1058377e2d045p-3",
    "0x1.9884533d43651p-2",
)  # fmt: skip
_NDTR = _all(
    "0x1.982962p-3", "-0x1.2fba76p-1", "0x1.30d3a8p-1", "-0x1.36583p-2", "0x1.1fd9c4p-3", "0x1.1f6144p-4",
    "0x1.2441bcp-5", "-0x1.94a9ccp-4", "-0x1.79ef5ap-2", "0x1.3bde58p-3",
)  # fmt: skip
_SLOPE = {
    np.float32: _all(
        "-0x1.f9a002p-15", "0x1.1f2a6ap-14", "0x1.dd9c5ep-12", "-0x1.0e5abcp-10", "-0x1.3dd368p-10", "0x1.ed50b6p-8",
        "-0x1.87806cp-8", "-0x1.1f39fp-5", "0x1.2ca82p-3", "-0x1.460014p-2", "0x1.6997ccp-6",
    ),
    np.float64: _all(
        "-0x1.3b041867cee1ep-34", "-0x1.65cec54f3ea1ep-31", "-0x1.236c4c2fb3ac7p-29", "-0x1.979a8e1bdd3b5p-30",
        "0x1.054e06f3b58dap-27", "0x1.d4eb5b6e42fe4p-27", "-0x1.989f64c8f29ebp-26", "-0x1.07f2d34915fb7p-24",
        "0x1.f6720d13d3813p-24", "0x1.29baa646d2c23p-22", "-0x1.99cce9e4df14cp-21", "-0x1.276e032846e3ep-20",
        "0x1.87f67b5a6d6bcp-18", "0x1.2fa66f1135867p-22", "-0x1.7890d3626a296p-15", "0x1.8b00b238c8816p-14",
        "0x1.69d85621adfdep-13", "-0x1.c76b58974f954p-10", "0x1.b059ebdd69cdbp-8", "-0x1.2345a094d034ep-6",
        "0x1.3d42d11091024p-5",
    ),
}  # fmt: skip
_SLOPE_LAST = _all("-0x1.2769bc2e743p-4", "-0x1.bcp-50"), _all("0x1.bce75df69b08p-2", "0x1.ap-50")
_SQRT_HALF = _all("0x1.6a09e667f3bcdp-1", "-0x1.bdd3413b26456p-55")
_ZERO_OF_SLOPE = {
    np.float32: _all("0x1.80ead2p-1", "-0x1.a03fd4p-27"),
    np.float64: _all("0x1.80ead197f00b4p-1", "-0x1.13e74c58cada8p-56"),
}


def erfc(x):
    """1 - erf(x) of f32 or f64, within 1 unit in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives 0, -inf gives 2.
    """
    x = np.asarray(x)
    C = x.dtype.type
    size = np.abs(x)
    t = np.minimum(size, C(11 if C is np.float32 else 28))
    square = t * t
    if C is np.float32:
        value = _erfc_f32(t, square) * np.ldexp(C(1), -RAISED[C])
        return np.where(x < 0, C(2) - value, value)
    value = _tail_f64(t, np.zeros_like(t), -square, -product_rest(t, t, square)) * np.ldexp(C(1), -RAISED[C])
    first = 1 - x
    near = first + (((1 - first) - x) - x * fused_horner(_ERF[C], square))
    return np.where(size < 0.65, near, np.where(x < 0, 2 - value, value))


def erf(x):
    """The error function of f32 or f64, within 1 unit in the last place.

    NaN gives NaN, inf gives 1, -inf gives -1; -0 keeps its sign.
    """
    x = np.asarray(x)
    C = x.dtype.type
    if C is np.float64:
        return _erf_f64(x)
    t = np.minimum(np.abs(x), C(4))
    near = fma32(polynomial(_ERF[C], t * t), t, t)
    minus = fma32(-polynomial(_ERF_POWER, t), t, -t)
    k = nearest_power(minus, F32)
    grown, two = rise(reduced(minus, k, F32), F32), np.ldexp(C(1), integer(k))
    return np.copysign(np.where(t < C(0.921875), near, fma32(-two, grown, C(1) - two)), x)


def _erf_f64(x):
    size = np.minimum(np.abs(x), 5.95)
    near = fused_horner(_ERF[np.float64], size * size) * size + size
    t = size - 1
    by, by_rest = pair_step(fused_horner(_ERF_POWER_F64, t), t, _ERF_POWER_LAST)
    k = nearest_power(-by, F64)
    large, small = -by - k * F64.ln2[0], multiply_add(-k, F64.ln2[1], -by_rest)
    r = large + small
    curved = multiply_add(r * r, fused_horner(F64.polynomial, r), (large - r) + small)
    two = np.ldexp(1.0, integer(k))
    value, rest = pair_step(-two, r, (1 - two, 0.0))
    return np.copysign(np.where(size < 0.65, near, value + multiply_add(-two, curved, rest)), x)


def ndtr(x):
    """The normal distribution below x, of f32 or f64: within 1.5 units in the last place; subnormal results are rounded
    once more.

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    t = np.minimum(np.abs(x), C(14.5 if C is np.float32 else 40))
    back = C(-0.5) * t
    minus = back * t
    if C is np.float32:
        value = _ndtr_f32(t, back, minus) * np.ldexp(C(1), -RAISED[C] - 1)
        return np.where(x < 0, value, C(1) - value)
    z = t * _SQRT_HALF[0]
    z_rest = product_rest(t, np.float64(_SQRT_HALF[0]), z) + t * _SQRT_HALF[1]
    value = _tail_f64(z, z_rest, minus, product_rest(back, t, minus)) * np.ldexp(C(1), -RAISED[C] - 1)
    *inner, c0 = _NDTR_NEAR
    bent = x * minus * fused_horner(inner, minus)
    near = (x * c0 + (bent + product_rest(x, np.float64(c0), x * c0))) + 0.5
    return np.where(t < 0.6640625, near, np.where(x < 0, value, 1 - value))


def gelu_slope(x):
    """The derivative of x ndtr(x), of f32 or f64: within 1.5 units in the last place, next to its zero too; subnormal
    results are rounded once more.

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    t = np.minimum(np.abs(x), C(16 if C is np.float32 else 40))
    below = _slope_f32(t) if C is np.float32 else _slope_f64(t)
    return np.where(x < 0, below, C(1) - below)


def _last_step(p, q, c0: float):
    """c0 + q p of f32, and what that lost."""
    value = fma32(p, q, np.float32(c0))
    return value, fma32(p, q, np.float32(c0) - value)


def _off(t, c: float, s, y):
    """What s = t + c and y = 1 / s lost, relative to s."""
    C = t.dtype.type
    return fma32(-(t - (s - C(c))), y, remainder(C(1), s, y))


def _raised(k):
    """2^k, raised."""
    C = k.dtype.type
    return np.ldexp(C(1), integer(k) + RAISED[C])


def _reduced(minus, k, more):
    """minus + more - k ln 2, as a large and a small part."""
    return fma32(k, np.float32(-F32.ln2[0]), minus), fma32(k, np.float32(-F32.ln2[1]), more)


def _share(back):
    """2 / (t + 2) and 1 less that, by back = -t / 2, and what they lost."""
    C = np.float32
    q = C(1) - C(1) / (C(1) - back)
    y = C(1) - q
    return y, q, fma32(back, y, q)


def _erfc_f32(t, square):
    """erfc(t), raised."""
    C = np.float32
    y, q, off = _share(C(-0.5) * t)
    minus = fma32(C(-1.3125), q, -square)
    minus_rest = fma32(C(-1.3125), q, -square - minus)
    more = fma32(off, fma32(C(-1.25), q, C(2.25676)), -product_rest(t, t, square))
    k = nearest_power(minus, F32)
    large, rest = _reduced(minus, k, more)
    return _times_exponential_f32(y, large, fma32(polynomial(_ERFC[C], q), q, rest + minus_rest)) * _raised(k)


def _times_exponential_f32(y, large, small):
    """y e^(large + small)."""
    r = large + small
    curved = fma32(r * r, polynomial(F32.polynomial, r), small)
    value = fma32(y, large, y)
    return value + fma32(y, curved, fma32(y, large, y - value))


def _tail_f64(z, z_rest, minus, more):
    """erfc(z + z_rest) from 0.46 on, raised, where minus + more is -(z + z_rest)^2."""
    s = z + 4
    y = 1 / s
    q = float.fromhex("0x1.7ep-1") - 8 * y
    first, second = _ERFC_LAST
    p1, p1_rest = pair_step(fused_horner(_ERFC[np.float64], q), q, first)
    smooth, lost = pair_step(p1, q, second)
    g = smooth * y
    g_rest = multiply_add(multiply_add(p1_rest, q, lost), y, product_rest(smooth, y, g))
    off = multiply_add(-((z - (s - 4)) + z_rest), y, remainder(1, s, y))
    varied = multiply_add(multiply_add(0.9226, q, -1.1542), q, 1.5377)
    return _times_exponential(g, g_rest, minus, multiply_add(off, varied, more))


def _times_exponential(g, g_rest, minus, more):
    """(g + g_rest) e^(minus + more), raised; |more| is far below 1."""
    k = nearest_power(minus, F64)
    large, small = minus - k * F64.ln2[0], multiply_add(-k, F64.ln2[1], more)
    r = large + small
    r_rest = (large - r) + small
    curved = multiply_add(r * r, fused_horner(F64.polynomial, r), r_rest)
    value, rest = pair_step(g, r, (g, 0.0))
    return (value + multiply_add(g, curved, multiply_add(g_rest, r + curved, g_rest) + rest)) * _raised(k)


def _ndtr_f32(t, back, minus):
    """2 ndtr(-t), raised."""
    C = np.float32
    y, q, off = _share(back)
    p = polynomial(_NDTR, q)
    more = fma32(off, fma32(C(-0.477), q, C(1.59577)), product_rest(back, t, minus))
    k = nearest_power(fma32(p, q, fma32(C(-0.75), q, minus)), F32)
    large, rest = _reduced(minus, k, more)
    return _times_exponential_f32(y, fma32(C(-0.75), q, large), fma32(p, q, rest)) * _raised(k)


def _slope_f32(t):
    C = np.float32
    back = C(-0.5) * t
    minus = back * t
    s = t + C(4)
    y = C(1) / s
    q = fma32(C(-8), y, C(1.375))
    *inner, c0 = _SLOPE[C]
    smooth, smooth_rest = _last_step(polynomial(tuple(inner), q), q, c0)
    varied = fma32(fma32(C(0.3706), q, C(-0.7445)), q, C(0.4453))
    more = fma32(_off(t, 4, s, y), varied, product_rest(back, t, minus))
    k = nearest_power(minus + smooth, F32)
    large, small = _reduced(minus, k, more)
    r = large + (smooth + (small + smooth_rest))
    zero, zero_rest = map(C, _ZERO_OF_SLOPE[C])
    g = zero - t
    g_rest = sum_rest(zero, -t, g) + zero_rest
    square, p = r * r, polynomial(F32.polynomial, r)
    grown = fma32(square, p, r)
    value = g + fma32(g, r, fma32(g * square, p, fma32(g_rest, grown, g_rest)))
    return value * _raised(k) * np.ldexp(C(1), -RAISED[C] - 1)


def _slope_f64(t):
    back = -0.5 * t
    minus = back * t
    s = t + 4
    y = 1 / s
    q = float.fromhex("0x1.5cp-1") - 8 * y
    first, second = _SLOPE_LAST
    p1, p1_rest = pair_step(fused_horner(_SLOPE[np.float64], q), q, first)
    smooth, smooth_rest = pair_step(p1, q, second)
    zero, zero_rest = _ZERO_OF_SLOPE[np.float64]
    start = zero - t
    start_rest = sum_rest(zero, -t, start) + zero_rest
    g = smooth * start
    lost = multiply_add(smooth, start_rest, product_rest(smooth, start, g))
    g_rest = multiply_add(multiply_add(p1_rest, q, smooth_rest), start, lost)
    off = multiply_add(-(t - (s - 4)), y, remainder(1, s, y))
    varied = multiply_add(multiply_add(0.3235, q, -0.2889), q, 0.0996)
    more = multiply_add(off, varied, product_rest(back, t, minus))
    return _times_exponential(g, g_rest, minus, more) * np.ldexp(1.0, -RAISED[np.float64])
