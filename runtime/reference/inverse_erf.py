"""The inverse of the error function in steps that CPU and GPU have in common, so that both give the same bits.

runtime/cuda/inverse_erf.cuh is the same text in C++. In f64 it is x times a polynomial of x^2 below a half. Beyond, it
is s = sqrt(-log(1 - x^2)) and a polynomial of s, which is small beside it, on pieces. In f32 it is x times a polynomial
of u = log(1 - x^2), one for u down to -5 and one beyond.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.double_double import elementary, hexadecimal, horner, in_f32, pair_root, two_product, two_sum
from skuda.reference.elementary import fma32, polynomial
from skuda.reference.powers import logarithm_pair

_FIRST = hexadecimal("0x1.c5bf891b4ef6bp-1", "-0x1.618f13eb7ca89p-55")  # sqrt(pi) / 2
_NEAR = hexadecimal(
    "0x1.b0803c1fb23f1p-4", "-0x1.2561d4da87355p-4", "0x1.179c4792fa39bp-4", "0x1.ceb2eafb50646p-8",
    "0x1.d18603f8a18bdp-6", "0x1.c21153b6a09fp-6", "0x1.0409196399efep-5", "0x1.2ab26e1d2aa4ep-5",
    "0x1.5eeb83ca0b334p-5", "0x1.a7c8594bb2559p-5", "0x1.0a1318a44513bp-4", "0x1.62847c47c9ef3p-4",
    "0x1.053c2c0ab9261p-3", "0x1.db29fb2fee5e4p-3",
)  # fmt: skip
# By the distance of s from the center of its piece, the highest power first.
_EDGES = np.array([0.95, 1.4, 1.9, 2.5, 3.3, 4.4])
_CENTERS = np.array(hexadecimal(
    "0x1.7ae147ae147aep-1", "0x1.2ccccccccccccp+0", "0x1.a666666666666p+0", "0x1.199999999999ap+1",
    "0x1.7333333333333p+1", "0x1.ecccccccccccdp+1", "0x1.4d70a3d70a3d7p+2",
))  # fmt: skip
_FAR = np.array([
    hexadecimal(
        "0x1.2ebe7acc592efp-22", "0x1.0ebeaace2d8cfp-21", "-0x1.bc85cb9103808p-22", "-0x1.dc88f2548760bp-19",
        "-0x1.90561ba51a3a5p-18", "0x1.73b3c9c738ac5p-18", "0x1.b32a6003e5f56p-15", "0x1.2d8a223717f92p-14",
        "-0x1.e42d4b128aa5ep-14", "-0x1.a30c2a4efa5c5p-11", "-0x1.df986226a3f71p-10", "0x1.0e69454a5a86fp-7",
        "0x1.6447911ddb08cp-6", "-0x1.8dbf51cc061bbp-4", "-0x1.47cb1974bfc7p-4",
    ),
    hexadecimal(
        "-0x1.0bd09d1ad434dp-20", "-0x1.0af9f324e7087p-21", "0x1.04ed11f21ab4cp-18", "0x1.dea92fbc2d0c3p-18",
        "-0x1.1261e7e2c2f85p-17", "-0x1.72a190d11db9dp-15", "-0x1.2305d498e3a9ap-16", "0x1.94426c0dc7377p-13",
        "0x1.6c1b808cb4527p-12", "-0x1.32c56086f62c1p-11", "-0x1.d28ced980e6e8p-9", "0x1.cb07af9d12589p-9",
        "0x1.e771e666e30dbp-6", "-0x1.30259929673c7p-4", "-0x1.e17f8f413c222p-4",
    ),
    hexadecimal(
        "0x1.f680bb16329f5p-20", "0x1.3dd7f88407ba6p-20", "-0x1.f525b130f24e2p-18", "-0x1.c4b4e7fe5388fp-18",
        "0x1.e01765c5025e6p-16", "0x1.1fc21707b8026p-15", "-0x1.de2b21750f6bap-14", "-0x1.67346b3255cadp-13",
        "0x1.07235ef12de12p-11", "0x1.e8203c09ad366p-11", "-0x1.aa045a3c2ec5bp-9", "-0x1.d2bc489205f49p-9",
        "0x1.e5b1f9f788584p-6", "-0x1.7288b008b725p-5", "-0x1.2adb9b85d1e65p-3",
    ),
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


def _far(s, edges, centers, coefficients):
    """What is added to s."""
    piece = np.searchsorted(edges, s, side="right")
    t, p = s - centers[piece], coefficients[0][piece]
    for column in coefficients[1:]:
        p = p * t + column[piece]
    return p


@in_f32(lambda x: _erfinv_f32(x))
@elementary
def erfinv(x, single):
    """The inverse of the error function, of f32 or f64, within 1 unit in the last place; 1 gives inf, beyond NaN; zeros
    keep their sign."""
    size = np.abs(x)
    usual = np.where(size < 1, size, 0.5)
    small, large = np.where(usual < 0.5, usual, 0.25), np.where(usual < 0.5, 0.5, usual)
    square = small * small
    tiny = small < 2.0**-500
    raised = np.where(tiny, small * 2.0**500, small)
    product = two_product(raised, _FIRST[0])
    near = product[0] + (product[1] + raised * (_FIRST[1] + square * horner(_NEAR, square)))
    near = np.where(tiny, near * 2.0**-500, near)
    less, more = 1.0 - large, two_sum(1.0, large)
    share = two_product(less, more[0])
    log = logarithm_pair(share[0], share[1] + less * more[1])
    s = pair_root((-log[0], -log[1]))
    value = np.where(usual < 0.5, near, s[0] + (s[1] + _far(s[0], _EDGES, _CENTERS, _FAR)))
    return np.copysign(np.where(size < 1, value, np.where(size == 1, np.inf, np.nan)), x)


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
