"""Elementary functions in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/elementary.cuh, and erf.cuh for sigmoid and tanh, is the same text in C++: products and sums of two, each
rounded once, and in f32 fused multiply-adds, which are computed here through f64 (a product of two f32 is exact there).
In f64 only exact remainders are fused there; here they are found by splitting the factors.
"""

from __future__ import annotations

import numpy as np

_hex = float.fromhex
_SQRT_HALF = _hex("0x1.6a09e6p-1")
_BELOW_TIES = np.int64(0xFFFFFFF)  # the last 28 bits of an f64


class Exp:
    """e^x = 2^k e^r: r = x - k ln 2, e^r = 1 + r + r^2 P(r) by a near-minimax polynomial P."""

    def __init__(self, low: float, high: float, integer: str, ln2: tuple[str, str], polynomial: tuple[str, ...]):
        self.low, self.high = low, high  # beyond, the result is 0 or infinite
        self.integer = _hex(integer)  # added and subtracted: rounds to an integer
        self.log2e = _hex("0x1.71547652b82fep+0")
        self.ln2 = tuple(map(_hex, ln2))  # the first part times k is exact
        self.polynomial = tuple(map(_hex, polynomial))  # highest power first


F32 = Exp(
    -104.5,
    89.0,
    "0x1.8p23",
    ("0x1.62e4p-1", "0x1.7f7d1cp-20"),
    ("0x1.6d591cp-10", "0x1.1242p-7", "0x1.5554dep-5", "0x1.555486p-3", "0x1p-1"),
)
F64 = Exp(
    -746.0,
    710.0,
    "0x1.8p52",
    ("0x1.62e42fefap-1", "0x1.cf79abc9e3b3ap-40"),
    ("0x1.1f733f411b727p-29", "0x1.af4e5274a366cp-26", "0x1.27e4db47938d1p-22", "0x1.71de01ff19a6bp-19",
     "0x1.a01a01a6e1a43p-16", "0x1.a01a01abf7ed6p-13", "0x1.6c16c16c162c3p-10", "0x1.11111111100bep-7",
     "0x1.5555555555556p-5", "0x1.5555555555557p-3", "0x1p-1"),
)  # fmt: skip


def fma32(a, b, c):
    """a * b + c of f32, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = np.asarray(product + c)
    # What the sum in f64 lost decides ties in f32, all of which end in many zeros, subnormal ones too.
    tie = (total.view(np.int64) & _BELOW_TIES) == 0
    if tie.any():
        product, c = np.broadcast_to(product, total.shape)[tie], np.broadcast_to(c, total.shape)[tie]
        total[tie] = _odd(product, c, total[tie])
    return total.astype(np.float32)


def round_to_odd(a, b):
    """a + b of f64, whose last bit is 1 where it lost something."""
    return _odd(a, b, np.asarray(a + b))


def _odd(product, c, total):
    """A sum in f64 whose last bit is made 1 where it lost something (round to odd)."""
    other = total - product
    lost = (product - (total - other)) + (c - other)
    inexact = (lost != 0) & np.isfinite(total)
    bits = total.view(np.int64) - (inexact & ((lost > 0) != (total > 0)))
    return (bits | inexact).view(np.float64)


def product_rest(a, b, product):
    """What a * b lost where it was rounded, exactly; of f64 by halves of both factors (Dekker 1971)."""
    if product.dtype == np.float32:
        return fma32(a, b, -product)
    (a, a_low), (b, b_low) = _halves(a), _halves(b)
    return (((a * b - product) + a * b_low) + a_low * b) + a_low * b_low


def _halves(x):
    """Two numbers of 26 bits that are x."""
    raised = np.float64(134217729.0) * x
    high = raised - (raised - x)
    return high, x - high


def sum_rest(a, b, total):
    """What a + b lost where it was rounded, exactly."""
    second = total - a
    return (a - (total - second)) + (b - second)


def remainder(n, s, q):
    """n - s q, exact where q is next to n / s."""
    if q.dtype == np.float32:
        return fma32(-s, q, n)
    product = s * q
    return (n - product) - product_rest(s, q, product)


def exp(x):
    """e^x of f32 or f64, within 1 unit in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives inf, -inf gives 0.
    """
    x = np.asarray(x)
    C = x.dtype.type
    by = F32 if C is np.float32 else F64
    y, power = _exp(np.clip(x, C(by.low), C(by.high)), by)
    half = power >> 1
    return y * np.ldexp(C(1), half) * np.ldexp(C(1), power - half)


def step_of(C):
    """a * b + c: rounded once in f32, twice in f64."""
    return fma32 if C is np.float32 else lambda a, b, c: a * b + c


def polynomial(coefficients: tuple[float, ...], x) -> np.ndarray:
    """By Horner's rule, highest power first."""
    C, step = x.dtype.type, step_of(x.dtype.type)
    p = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        p = step(p, x, C(coefficient))
    return p


def _exp(x, by: Exp) -> tuple[np.ndarray, np.ndarray]:
    """(y, power): e^x = y * 2^power for an x within the bounds."""
    C = x.dtype.type
    k = nearest_power(x, by)
    r = reduced(x, k, by)
    if C is np.float64:
        return rise(r, by) + 1, integer(k)
    return fma32(fma32(polynomial(by.polynomial, r), r, C(1)), r, C(1)), integer(k)


def nearest_power(x, by: Exp):
    """x / ln 2 as an integer."""
    C = x.dtype.type
    return step_of(C)(x, C(by.log2e), C(by.integer)) - C(by.integer)


def reduced(x, k, by: Exp):
    """x - k ln 2."""
    C = x.dtype.type
    return step_of(C)(k, C(-by.ln2[1]), x - k * C(by.ln2[0]))


def rise(r, by: Exp):
    """e^r - 1, rounded so that it never falls while r rises."""
    return step_of(r.dtype.type)(r * r, polynomial(by.polynomial, r), r)


def integer(k) -> np.ndarray:
    """The integer that k is, 0 for NaN."""
    return np.where(np.isnan(k), 0, k).astype(np.int64)


class _Log:
    """log x = k ln 2 + log m with m in [sqrt(1/2), sqrt(2)) and f = m - 1, by a near-minimax polynomial P.

    In f32 log m = f - f^2 / 2 + f^3 P(f). In f64, with s = f / (2 + f), it is f - (f^2 / 2 - s (f^2 / 2 + s^2 P(s^2))),
    the form of fdlibm's log.
    """

    def __init__(self, ln2: tuple[str, str], polynomial: tuple[str, ...]):
        self.ln2 = tuple(map(_hex, ln2))  # the first part times k is exact
        self.polynomial = tuple(map(_hex, polynomial))  # highest power first


LOG_F32 = _Log(
    ("0x1.62e4p-1", "0x1.7f7d1cp-20"),
    ("0x1.1b442ep-4", "-0x1.e2f82p-4", "0x1.e657c8p-4", "-0x1.fb416ap-4", "0x1.23322ep-3", "-0x1.5562eap-3",
     "0x1.99a54cp-3", "-0x1.ffffeep-3", "0x1.555546p-2"),
)  # fmt: skip
_LOG_F64 = _Log(
    ("0x1.62e42feep-1", "0x1.a39ef35793c76p-33"),
    ("0x1.0c0569de6604dp-3", "0x1.0fbe69b2a187bp-3", "0x1.3b1c370092383p-3", "0x1.745cf8fccb602p-3",
     "0x1.c71c72016baf2p-3", "0x1.2492492476c24p-2", "0x1.9999999999a38p-2", "0x1.5555555555555p-1"),
)  # fmt: skip


def log(x):
    """The natural logarithm of f32 or f64, within 0.9 units in the last place.

    NaN gives NaN, 0 gives -inf, below 0 gives NaN, inf gives inf.
    """
    x = np.asarray(x)
    by = LOG_F32 if x.dtype == np.float32 else _LOG_F64
    C = x.dtype.type
    m, k = np.frexp(x)  # m in [1/2, 1)
    low = m < C(_SQRT_HALF)
    f = np.where(low, m + m, m) - C(1)
    power = (k - low).astype(x.dtype)
    if C is np.float32:
        square = f * f
        bent = fma32(square * f, polynomial(by.polynomial, f), fma32(C(-0.5), square, power * C(by.ln2[1])))
        value = fma32(power, C(by.ln2[0]), f + bent)
    else:
        half = C(0.5) * f * f
        s = f / (C(2) + f)
        z = s * s
        p = np.full_like(z, by.polynomial[0])
        for coefficient in by.polynomial[1:]:
            p = p * z + C(coefficient)
        rest = s * (half + z * p) + power * C(by.ln2[1])
        value = power * C(by.ln2[0]) - ((half - rest) - f)
    value = np.where(x == 0, C(-np.inf), np.where(x < 0, C(np.nan), value))
    return np.where(np.isnan(x) | (x == C(np.inf)), x, value)


RAISED = {np.float32: 64, np.float64: 512}  # e^x times this power of two is a normal number down to where erfc is 0
_LOGISTIC_END = {np.float32: 110.0, np.float64: 760.0}  # e^-x is 0 from here on


def sigmoid(x):
    """1 / (1 + e^-x) of f32 or f64, within 1.5 units in the last place; subnormal results are rounded once more.

    NaN gives NaN, inf gives 1, -inf gives 0.
    """
    x = np.asarray(x)
    C, step = x.dtype.type, step_of(x.dtype.type)
    by, low = F32 if C is np.float32 else F64, np.ldexp(C(1), -RAISED[C])
    minus = -np.minimum(np.abs(x), C(_LOGISTIC_END[C]))
    k = nearest_power(minus, by)
    decay = (rise(reduced(minus, k, by), by) + C(1)) * np.ldexp(C(1), integer(k) + RAISED[C])
    s = step(decay, low, C(1))
    share = _shared_by(np.where(x < 0, decay, C(1)), s, step(decay, low, C(1) - s))
    return share * np.where(x < 0, low, C(1))


_TANH = {
    np.float32: tuple(map(_hex, (
        "0x1.8bbb1ap-7", "0x1.7424e2p-5", "0x1.10bcc2p-3", "0x1.555472p-2", "0x1.55558p-1", "0x1p+0",
    ))),
    np.float64: tuple(map(_hex, (
        "0x1.50aeaa9057a55p-18", "0x1.a978fc1d4449fp-16", "0x1.27fe00525a4d5p-13", "0x1.71de32c987d1cp-11",
        "0x1.a019fb1e08123p-9", "0x1.a01a01bef7ab2p-7", "0x1.6c16c16c86863p-5", "0x1.111111110dcdfp-3",
        "0x1.555555555551ap-2", "0x1.555555555555bp-1", "0x1p+0",
    ))),
}  # fmt: skip
_TANH_END = {np.float32: 9.5, np.float64: 20.0}


def tanh(x):
    """The hyperbolic tangent of f32 or f64, within 1.5 units in the last place.

    NaN gives NaN, inf gives 1, -inf gives -1; -0 keeps its sign.
    """
    x = np.asarray(x)
    C, step = x.dtype.type, step_of(x.dtype.type)
    by = F32 if C is np.float32 else F64
    t = np.minimum(np.abs(x), C(_TANH_END[C]))
    k = (step(t, C(2 * by.log2e), C(-0.25)) + C(by.integer)) - C(by.integer)
    r = step(k, C(-by.ln2[1] / 2), t - k * C(by.ln2[0] / 2))
    p, two = polynomial(_TANH[C], r), np.ldexp(C(1), integer(k))
    if C is np.float32:
        m = fma32(two, fma32(p * r, r, r), fma32(two, C(0.5), C(-0.5)))
        s = m + C(1)
        return np.copysign(_shared_by(m, s, m - (s - C(1))), x)
    more = p * r * r
    near = r + more
    half, grown = (two - 1) * 0.5, two * near
    m = half + grown
    m_rest = sum_rest(half, grown, m) + two * ((r - near) + more)
    s = m + 1
    return np.copysign(_shared_by(m, s, sum_rest(m, 1, s) + m_rest, m_rest), x)


def _shared_by(n, s, rest, n_rest=0.0):
    """(n + n_rest) / (s + rest) to the last digit, where the rest is what a sum lost; f32 has no n_rest."""
    C, step = s.dtype.type, step_of(s.dtype.type)
    y = C(1) / s
    q = n * y
    left = remainder(n, s, q)
    if C is np.float64:
        left = left + n_rest
    return step(step(-rest, q, left), y, q)
