"""log(x / (1 - x)) in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/logit.cuh is the same text in C++. f64 is computed in double-double, f32 in sums of two f32.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import elementary, in_f32, pair_quotient, two_sum
from skuda.reference.elementary import fma32
from skuda.reference.hyperbolic import ATANH_F32, EXPONENT, LN2_RAISED, with_powers
from skuda.reference.powers import logarithm_terms

# (2 atanh(q / 2) - q) / q^3 by q^2: the polynomial of atanh.
_TWICE_ATANH = tuple(each * 0.25**power for each, power in zip(ATANH_F32, (4, 3, 2, 1), strict=True))
_TWO_THIRDS = float.fromhex("0x1.5555555555555p-1")


@in_f32(lambda x: _logit_f32(x))
@elementary
def logit(x, single):
    """log(x / (1 - x)) of f32 or f64, within 1 unit in the last place; 0 gives -inf, 1 gives inf, beyond them NaN.

    Of a quotient of pairs; next to a half, where the last digits of such a quotient count, by 2 atanh(2x - 1). A small
    x is raised, so that products are normal numbers.
    """
    usual = np.where((x > 0) & (x < 1), x, 0.25)
    v = usual + usual - 1.0
    near = (v + v) + v * v * v * _TWO_THIRDS
    small = usual < 2.0**-500
    raised = np.where(small, usual * 2.0**600, usual), np.zeros_like(usual)
    high, low = logarithm_terms(*pair_quotient(raised, two_sum(1.0, -usual)), np.where(small, -600, 0))
    value = np.where(np.abs(v) < 2.0**-20, near, high + low)
    return np.where(x == 0, -np.inf, np.where(x == 1, np.inf, np.where((x > 0) & (x < 1), value, np.nan)))


def _logit_f32(x):
    """t is the lesser of x and 1 - x, which is exact where it is; s is the other one. k ln(2) + 2 atanh(n / 2d) is the
    logarithm of s / t, for n = 2 - 2 (2^k + 1) t and d = 1 + (2^k - 1) t. k is about log2(s / t), read from the bits of
    both, and 0 from t = 3/8 on. t is raised by 2^64, so that it is a normal number."""
    C = np.float32
    other = C(1) - x
    t, s = C(2.0**64) * np.minimum(x, other), np.maximum(x, other)
    raised = (s.view(np.int32) - t.view(np.int32) + np.int32(0x20200000)) & EXPONENT
    power, least = (raised + np.int32(0x1F800000)).view(C), C(2.0**-64)
    more = power - least
    n, d = fma32(-fma32(power, C(2), C(2) * least), t, C(2)), fma32(more, t, C(1))
    y = C(1) / d
    q = n * y
    left = fma32(-fma32(more, t, C(1) - d), q, fma32(-d, q, n))
    log = with_powers(raised.astype(C), LN2_RAISED, q, _TWICE_ATANH, left, y)
    value = np.where(t > 0, log, np.where(t == 0, C(np.inf), C(np.nan)))
    return np.copysign(value, x - C(0.5))
