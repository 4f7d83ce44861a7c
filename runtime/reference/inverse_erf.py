"""The inverse of the error function in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/inverse_erf.cuh is the same text in C++. erfinv is x times a polynomial of u = log(1 - x^2): in f32 one for
u down to -5 and one beyond, in f64 one down to -5. Beyond that it is s = sqrt(-u) and a polynomial of s, which is small
beside it, on pieces.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import (
    elementary,
    hexadecimal,
    in_f32,
    pair_root,
    replaced,
    two_product,
    two_sum,
)
from skuda.reference.elementary import fma32, polynomial
from skuda.reference.fused import fused_horner, multiply_add, pair_step
from skuda.reference.powers import logarithm_pair, near_logarithm

# erfinv(x) / x by u = log(1 - x^2), down to -5: its value at 0 in two parts, and its slope from there.
_FIRST = hexadecimal("0x1.c5bf891b4ef6ap-1", "0x1.4f38760a41abbp-54")  # the first one even
_NEAR = hexadecimal(
    "-0x1.52f29811dfdbdp-64", "-0x1.2f6c6f517df9p-58", "-0x1.eea37a24865ffp-54", "-0x1.e039b09037967p-50",
    "-0x1.2fa9c6867276bp-46", "-0x1.ff3a3a48fadaap-44", "-0x1.18e9c0d29a421p-41", "-0x1.971873eef3d1cp-40",
    "-0x1.39c2ac3e384e1p-38", "-0x1.91f6f94daddfcp-36", "-0x1.311bb9c36052fp-35", "0x1.1226f06dfc6b9p-31",
    "0x1.8f4c9633b129cp-31", "-0x1.880141f72f0dfp-26", "-0x1.4080413291a18p-25", "0x1.0fcda95996f5ep-20",
    "0x1.0f1e30d02b891p-19", "-0x1.87014ebc042fbp-15", "-0x1.0c86b8606e754p-13", "0x1.3211025df5a02p-9",
    "0x1.7a72e72c1ecbfp-7", "-0x1.db29fb2fee5e4p-3",
)  # fmt: skip
_END = float.fromhex("0x1.b993fe00d5376p-8")  # e^-5
# By the distance of s from the center of its piece, the highest power first.
_EDGES = np.array([2.5, 3.3, 4.4])
_CENTERS = np.array(hexadecimal(
    "0x1.199999999999ap+1", "0x1.7333333333333p+1", "0x1.ecccccccccccdp+1", "0x1.4d70a3d70a3d7p+2",
))  # fmt: skip
_FAR = np.array([
    hexadecimal(
        "-0x1.e57aad3f557e8p-22", "-0x1.2f3c8bd8a9251p-19", "0x1.1535f4873c023p-18", "0x1.a97ed3de99f6ap-18",
        "-0x1.890a2c0411a08p-16", "-0x1.f93aa6d54e18dp-19", "0x1.b9ae5e1143ef6p-14", "-0x1.a1c5e6d8271ffp-14",
        "-0x1.8722f0ee24e52p-12", "0x1.125192875df37p-10", "0x1.87d8af99e4d49p-13", "-0x1.c9507a3c1e175p-8",
        "0x1.4578833cdc9dap-6", "-0x1.1e700127c9516p-6", "-0x1.4d25524d15e05p-3",
    ),
    hexadecimal(
        "-0x1.6e866847bd80bp-23", "0x1.d63fb853fca95p-22", "-0x1.07b07b26057b3p-25", "-0x1.2eb618759eda1p-19",
        "0x1.73d96c75a4894p-18", "-0x1.db4047176f393p-20", "-0x1.9d0c3e8cef82dp-16", "0x1.3d162169cefb7p-14",
        "-0x1.5a4468ccad81dp-14", "-0x1.866dae8c5e7f8p-13", "0x1.467b91fdba052p-10", "-0x1.011c21e9bc176p-8",
        "0x1.046fb91f1a31cp-7", "0x1.36cd5b0a6e2d3p-10", "-0x1.56d1c02bb9e37p-3",
    ),
    hexadecimal(
        "0x1.9abde8f958a46p-28", "-0x1.5eb6b5145e793p-28", "-0x1.06df822a66b92p-25", "0x1.2a58ca5ed886ep-23",
        "-0x1.7a91b2dd8ab3dp-22", "0x1.20cbbfeb19a8ep-21", "0x1.3c30e23766ea1p-23", "-0x1.5442337508481p-18",
        "0x1.bbca92668379dp-16", "-0x1.bbc6ef57ae6aap-14", "0x1.8015f19225c6dp-12", "-0x1.13b311332fb06p-10",
        "0x1.b89cb5b28fa69p-10", "0x1.28c78137ab3a6p-7", "-0x1.4af9e033f6964p-3",
    ),
    hexadecimal(
        "-0x1.ef34f4a63f4bbp-37", "0x1.dd9148b7a6a22p-37", "0x1.f263b931994a4p-34", "-0x1.b91976b4b714dp-31",
        "0x1.3fd0ab65117a1p-28", "-0x1.b848137315103p-26", "0x1.225e6a291cee5p-23", "-0x1.6fba19d0970c3p-21",
        "0x1.bb19cff8b49a6p-19", "-0x1.f04bc3e433b1ep-17", "0x1.e6c63af7cf85bp-15", "-0x1.4da6d5ec81eeep-13",
        "-0x1.0c341d0b1bbb4p-12", "0x1.4ec5477ebc2e6p-7", "-0x1.2efa5d4b895ffp-3",
    ),
]).T.copy()  # fmt: skip
# Of f32: (log(1 + g) - g) / g^2, and the slope of erfinv(x) / x by u = log(1 - x^2), from its value at u = 0 and at -9.
NEAR_ONE_F32 = hexadecimal(
    "0x1.65aa58p-4", "-0x1.27c07p-3", "0x1.32c7b4p-3", "-0x1.52feb8p-3", "0x1.98a65ep-3", "-0x1.000682p-2",
    "0x1.5557acp-2", "-0x1.fffff4p-2",
)  # fmt: skip
ERFINV_F32 = hexadecimal(
    "0x1.2f014cp-27", "0x1.dc13b8p-23", "0x1.0a2b9ap-19", "0x1.0dc8c8p-18", "-0x1.74d1ep-15", "-0x1.0ad652p-13",
    "0x1.31ffaep-9", "0x1.7a6eb4p-7", "-0x1.db2a08p-3",
)  # fmt: skip
ERFINV_END_F32 = hexadecimal(
    "0x1.2cb03cp-39", "0x1.39cc18p-34", "0x1.299222p-30", "0x1.587868p-27", "0x1.d75c28p-25", "-0x1.0b049cp-23",
    "-0x1.4051b4p-17", "-0x1.b37e38p-13", "-0x1.1eb858p-8", "-0x1.55e7bap-3",
)  # fmt: skip
_FIRST_F32 = tuple(map(np.float32, hexadecimal("0x1.c5bf88p-1", "0x1.1b4ef6p-25")))  # erfinv(x) / x at u = 0
_FIRST_END_F32 = tuple(map(np.float32, hexadecimal("0x1.6a9ef8p+1", "0x1.e7ba18p-22")))  # at -9
_LN2_F32 = np.float32(float.fromhex("0x1.62e43p-24"))  # times 2^23, as k is
_END_F32 = np.float32(float.fromhex("0x1.b993fep-8"))  # e^-5


def _far(size):
    """Where 1 - x^2 is below e^-5, and next to 0, where products are raised."""
    raised = size * 2.0**500
    product = two_product(raised, _FIRST[0])
    near = (product[0] + (product[1] + raised * _FIRST[1])) * 2.0**-500
    size = np.where(size < 0.5, 0.999, size)
    less, more = 1.0 - size, two_sum(1.0, size)
    share = two_product(less, more[0])
    log = logarithm_pair(share[0], share[1] + less * more[1])
    s = pair_root((-log[0], -log[1]))
    piece = np.searchsorted(_EDGES, s[0], side="right")
    t, p = s[0] - _CENTERS[piece], _FAR[0][piece]
    for column in _FAR[1:]:
        p = p * t + column[piece]
    return np.where(raised < 2.0**499, near, s[0] + (s[1] + p))


@in_f32(lambda x: _erfinv_f32(x))
@elementary
def erfinv(x, single):
    """The inverse of the error function, of f32 or f64, within 1 unit in the last place; 1 gives inf, beyond NaN; zeros
    keep their sign."""
    size = np.abs(x)
    share = multiply_add(-x, x, 1.0)
    near = (share >= _END) & (size >= 2.0**-500)
    a, share = np.where(near, size, 0.5), np.where(near, share, 0.75)
    u = near_logarithm(share)
    by = pair_step(fused_horner(_NEAR, u[0]), u[0], _FIRST)
    product = two_product(a, by[0])
    value = product[0] + multiply_add(a, multiply_add(-0.24, u[1], by[1]), product[1])
    value = np.where(near, value, np.where(size == 1, np.inf, np.nan))
    return np.copysign(replaced(value, ~near & (size < 1), _far, size), x)


def _erfinv_f32(x):
    C = np.float32
    size = np.abs(x)
    usual = np.where(size < 1, x, C(0))
    share = fma32(-usual, usual, C(1))
    power = (share.view(np.int32) - 0x3F3504F3) & -0x800000
    raised, down = power.astype(C), (0x3F800000 - power).view(C)
    g = fma32(-(usual * down), usual, down - C(1))
    log = fma32(g * g, polynomial(NEAR_ONE_F32, g), g)
    u = fma32(raised, _LN2_F32, log)
    u_rest = fma32(raised, _LN2_F32, -u) + log
    end = share < _END_F32
    start = np.where(end, u + C(9), u)
    p = np.where(end, polynomial(ERFINV_END_F32, start), polynomial(ERFINV_F32, u))
    (first, first_rest), (first_end, end_rest) = _FIRST_F32, _FIRST_END_F32
    first = np.where(end, first_end, first)
    first_rest = fma32(u_rest, np.where(end, C(-0.125), C(-0.24)), np.where(end, end_rest, first_rest))
    value = fma32(p, start, first)
    rest = fma32(p, start, first - value) + first_rest
    value = fma32(usual, value, usual * rest)
    return np.where(size < 1, value, np.where(size == 1, np.copysign(C(np.inf), x), C(np.nan)))
