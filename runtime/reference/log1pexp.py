"""log(1 + e^x) in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/log1pexp.cuh is the same text in C++. f32 is the sum of max(x, 0) and of a function of e^-|x| whose larger
part is a multiple of it, in two f32.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import elementary, fast_two_sum, hexadecimal, in_f32
from skuda.reference.elementary import F32, exp, fma32, integer, nearest_power, polynomial
from skuda.reference.powers import logarithm_terms

# Of f32: 7/8 (e^r - 1 - r) / r^2; log(1 + u) / (7/8 u) - 1, of 7/8 u - 1/4.
EXP_F32 = hexadecimal("0x1.3cdf54p-10", "0x1.dff218p-8", "0x1.2aadd4p-5", "0x1.2aa9fep-3", "0x1.cp-2")
SHARE_F32 = hexadecimal(
    "0x1.2101d6p-7", "-0x1.d9be68p-6", "0x1.89fbd2p-5", "-0x1.fd18dp-5", "0x1.4005e4p-4", "-0x1.a03b08p-4",
    "0x1.17511cp-3", "-0x1.857a6ep-3", "0x1.206a0ep-2", "-0x1.dca58ep-2", "0x1.5891c8p-8",
)  # fmt: skip
_MINUS_LN2_F32 = tuple(map(np.float32, hexadecimal("-0x1.62e4p-1", "-0x1.7f7d1cp-20")))  # in two parts
_RAISED = 64  # the power of two by which what is added to max(x, 0) is raised until then


@in_f32(lambda x: _log1pexp_f32(x))
@elementary
def log1pexp(x, single):
    """log(1 + e^x) of f32 or f64, within 1.5 units in the last place, 1.2 in f32; subnormal results are rounded once
    more.

    NaN gives NaN, inf gives inf, -inf gives 0.
    """
    high, low = logarithm_terms(*fast_two_sum(1.0, exp(-np.abs(x))))
    return np.maximum(x, 0.0) + (high + low)


def _log1pexp_f32(x):
    C = np.float32
    t = np.maximum(-np.abs(x), C(-104.5))
    k = nearest_power(t, F32)
    large = fma32(k, _MINUS_LN2_F32[0], t)
    r = fma32(k, _MINUS_LN2_F32[1], large)
    near = fma32(large, C(0.875), C(0.875))
    lost = fma32(large, C(0.875), C(0.875) - near)
    more = fma32(r * r, polynomial(EXP_F32, r), fma32(k, C(0.875) * _MINUS_LN2_F32[1], lost))
    high = near + more
    low = (near - high) + more
    raised = np.ldexp(C(1), integer(k) + _RAISED)
    u, u_rest, down = high * raised, low * raised, C(2.0**-_RAISED)
    v = fma32(u, down, C(-0.25))
    small = fma32(u, polynomial(SHARE_F32, v), fma32(C(-0.6) * u_rest, v, u_rest))
    return fma32(u, down, fma32(small, down, np.maximum(x, C(0))))
