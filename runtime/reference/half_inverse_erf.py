"""erfinv as precise as f16 and bf16: within 2^-14 and 2^-11 of the value, in f32 steps that CPU and GPU have in common.

runtime/cuda/half_inverse_erf.cuh is the same text in C++.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.elementary import fma32, polynomial
from skuda.reference.half_precision import coefficients

_C = np.float32
_STEP = _C(float.fromhex("-0x1.553ddep-27"))  # of t, by the bits of 1 - x^2

# With 1 - x^2 = m 2^k and m from 1 to 2, t less what the bits of 1 - x^2 have of it, read as one integer, which grows
# nearly as its logarithm does. Within 2^-19 and 2^-16, and the same at both ends. Highest power first.
RESTS = {
    "f16": coefficients("-0x1.ea00e4p-9 0x1.1c4bb4p-5 -0x1.164e74p-3 0x1.2eeb26p-2 -0x1.5d1096p-2 0x1.37601ap+3"),
    "bf16": coefficients("0x1.b20184p-8 -0x1.b09ffap-5 0x1.662994p-3 -0x1.046acp-2 0x1.36986ap+3"),
}
# erfinv(x) / x by t, which goes from -1 to 1 as log(1 - x^2) falls from 0 to that of the last x below 1; that of bf16
# is right at -1. Highest power first.
SHARES = {
    "f16": coefficients(
        "-0x1.d6d36cp-6 0x1.bdbdbep-6 0x1.05e674p-4 -0x1.7cb5cap-4 0x1.bc7b22p-6 0x1.3ed0d2p-7 "
        "-0x1.5b49a2p-5 0x1.0d98ep-3 -0x1.56589p-2 0x1.70edaep+0 0x1.5bd2bep+1"
    ),
    "bf16": coefficients(
        "0x1.53d786p-4 -0x1.7307a2p-4 -0x1.16e1eap-4 0x1.5d96cp-3 -0x1.507544p-2 0x1.6fe3ccp+0 0x1.5bc9f2p+1"
    ),
}


def erfinv(x, T: str):
    """The inverse of erf, of f32. NaN and numbers beyond 1 and -1 give NaN, these two infinities; zeros keep their
    sign."""
    x = np.asarray(x)
    share = fma32(-x, x, _C(1))
    bits = share.view(np.int32)
    m = (bits | 0x3F800000).view(np.float32)  # of a share up to 1
    t = fma32(bits.astype(np.float32), _STEP, polynomial(RESTS[T], m))
    end = np.where(share == 0, _C(np.inf), _C(np.nan))
    return np.where(share > 0, x * polynomial(SHARES[T], t), np.copysign(end, x))
