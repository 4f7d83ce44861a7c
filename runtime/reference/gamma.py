"""The logarithm of the gamma function and its derivative, in steps that CPU and GPU have in common, so that both give
the same bits.

runtime/cuda/gamma.cuh is the same text in C++. From 1 to 2 both are polynomials with their zeros as factors, and steps
by 1 lead there from all that is below 3 in size. From 3 to 10 they are polynomials on pieces, beyond their asymptotic
series, from -3 on down the reflection; next to the first zeros below 0 polynomials by the distance from the zero.
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
    pair_product,
    pair_quotient,
    replaced,
    two_product,
    two_sum,
)
from skuda.reference.fused import fused_horner, pair_step
from skuda.reference.gamma_f32 import digamma_f32, lgamma_f32
from skuda.reference.gamma_zeros import (
    PI,
    STIRLING,
    derivative_near_zeros,
    has_cancelled,
    logarithm_near_zeros,
)
from skuda.reference.powers import logarithm_pair, logarithm_terms
from skuda.reference.trigonometric import cosine_near, sine_near

_EDGES = np.array([3.5, 5.75])  # of the pieces, as distances from 1
_CENTERS = np.array([2.75, 4.625, 7.375])
# Of each piece from 3 to 10: the highest power first, and behind the constant what its rounding lost.
_LOGARITHM = np.array([
    hexadecimal(
        "0x1.ac7f4dc324b26p-35", "-0x1.aeaae4b4477e3p-33", "0x1.7377d06a381e8p-31", "-0x1.7b3b6748ce6c2p-29",
        "0x1.8aac3602e447dp-27", "-0x1.9b1cb6e7e4489p-25", "0x1.b2275724f9f32p-23", "-0x1.d2e1c3bfb139ap-21",
        "0x1.00eecb51eb701p-18", "-0x1.23b5532a4073cp-16", "0x1.59c9bea733e78p-14", "-0x1.b489d105cdcb3p-12",
        "0x1.3039996d27f5cp-9", "-0x1.f96d28c631fbap-7", "0x1.38ab02a5e1607p-3", "0x1.2ebac53262895p+0",
        "0x1.7c9ff21d3df69p+0", "0x1.d7a618f4e9a57p-54",
    ),
    hexadecimal(
        "0x1.60319e5ebc64p-44", "-0x1.0bafe9bcdc725p-41", "0x1.5eb1533f38595p-39", "-0x1.0f8bc3ac17496p-36",
        "0x1.ad2b918029452p-34", "-0x1.542e89f71ab4ep-31", "0x1.11e9e2812421fp-28", "-0x1.c228aee03ca0dp-26",
        "0x1.7b815685ce336p-23", "-0x1.4aea49e1090fap-20", "0x1.2e26525717ad4p-17", "-0x1.26c32786c3ba1p-14",
        "0x1.3e95e998ea5a1p-11", "-0x1.9bfaf7247b7a2p-8", "0x1.8e5bbada46c1cp-4", "0x1.a2bda98c1ee3ap+0",
        "0x1.0a49a664571a8p+2", "0x1.f09cf6f4d0a08p-55",
    ),
    hexadecimal(
        "0x1.550d1830c2a76p-53", "-0x1.861063938d67fp-50", "0x1.860126b8c65dbp-47", "-0x1.c75470fbe5499p-44",
        "0x1.0f1dbf0974d1cp-40", "-0x1.44bd27e3d6538p-37", "0x1.8b9f918e418ep-34", "-0x1.ec74ff3ed8dbap-31",
        "0x1.3adf034781e5ep-27", "-0x1.a10bbd9305002p-24", "0x1.21a24540c60bp-20", "-0x1.ae7b9001ed45dp-17",
        "0x1.6300559077d07p-13", "-0x1.5ed931762deacp-9", "0x1.03b74a78c4449p-4", "0x1.083d0d78f1f45p+1",
        "0x1.29499da80f536p+3", "-0x1.ec6693a931cf2p-51",
    ),
]).T.copy()  # fmt: skip
_DERIVATIVE = np.array([
    hexadecimal(
        "0x1.f1bc0ebab1aa8p-35", "-0x1.d45c84625c61bp-33", "0x1.6a6fb241886f3p-31", "-0x1.560978bd49a0cp-29",
        "0x1.4896862d0d185p-27", "-0x1.376a24f7b6865p-25", "0x1.27e7ba4a3d91dp-23", "-0x1.1a8c80a7629bdp-21",
        "0x1.0f58fb374ae6p-19", "-0x1.069f5887f27ebp-17", "0x1.00eeca789d641p-15", "-0x1.fe7d500e88ef8p-14",
        "0x1.03574efe4fd32p-11", "-0x1.10d622a46268fp-9", "0x1.3039996d27924p-7", "-0x1.7b11de94a5321p-5",
        "0x1.38ab02a5e1608p-2", "0x1.2ebac53262895p+0", "-0x1.664a99e978f64p-56",
    ),
    hexadecimal(
        "0x1.66ae3ef474204p-45", "-0x1.fd6d186874373p-43", "0x1.2aa334f17c0b3p-40", "-0x1.aa65c9d723bb7p-38",
        "0x1.3618d85332f2p-35", "-0x1.bdca0e7af27e2p-33", "0x1.41c6952a6b86ap-30", "-0x1.d39c0057f0f8ep-28",
        "0x1.5664cf6e8531ep-25", "-0x1.fa6e6247529bdp-23", "0x1.7b81556b99cap-20", "-0x1.218cffeafc82ep-17",
        "0x1.c5397b83f7c81p-15", "-0x1.7073f1694a537p-12", "0x1.3e95e998ea084p-9", "-0x1.34fc395b5c6d5p-6",
        "0x1.8e5bbada46c1dp-3", "0x1.a2bda98c1ee3ap+0", "0x1.b053f26e24849p-55",
    ),
    hexadecimal(
        "0x1.32f3b921593afp-55", "-0x1.476c5c2f160c6p-52", "0x1.253c646e26f2p-49", "-0x1.3b0caae619792p-46",
        "0x1.5845ce481dadp-43", "-0x1.751f53a7dad46p-40", "0x1.9693434e3316ep-37", "-0x1.be69d2f0943c8p-34",
        "0x1.ee87ebda8502p-31", "-0x1.15020b8d03167p-27", "0x1.3adf02b241ccep-24", "-0x1.6cea454cf5804p-21",
        "0x1.b27367e1e4d34p-18", "-0x1.0d0d3a018cd51p-14", "0x1.6300559077a16p-11", "-0x1.0722e518a25c1p-7",
        "0x1.03b74a78c4449p-3", "0x1.083d0d78f1f45p+1", "-0x1.ab06ca8e92f3ap-53",
    ),
]).T.copy()  # fmt: skip
# Next to the first zeros below 0: by the distance from the zero, as above, and the zero in two parts.
_LOGARITHM_BESIDE = np.array([
    hexadecimal(
        "0x1.f292389306889p+12", "0x1.1f4cbc5d70168p+12", "0x1.c4af43ce28af2p+10", "0x1.1a8d039dd5847p+10",
        "0x1.a92e2d85d5bb7p+8", "0x1.286fcbf52078ep+8", "0x1.9297ad9da97acp+6", "0x1.48eaa80ac8038p+6",
        "0x1.809f04ee74267p+4", "0x1.8d32f682ad5d6p+4", "0x1.7339fe04b2759p+2", "0x1.1718d7ca09e59p+3",
        "0x1.694a6058a7858p+0", "0x1.36eebb002f55dp+2", "0x1.83fe966af535fp+0", "-0x1.775909a36a6a4p-55",
        "-0x1.3a7fc9600f86cp+1", "-0x1.55f64f98af8dp-55",
    ),
    hexadecimal(
        "-0x1.022cce88e06b9p+26", "0x1.16fd33509a638p+24", "-0x1.16b218e05b185p+22", "0x1.30bc80c93bb29p+20",
        "-0x1.5070070350ed2p+18", "0x1.75855760d099p+16", "-0x1.a2d24784e8b2fp+14", "0x1.dba654bd3e628p+12",
        "-0x1.12239be279627p+11", "0x1.4373f7d1dad15p+9", "-0x1.8588458205bd7p+7", "0x1.f504accc9cc46p+5",
        "-0x1.4185ac30c8bf3p+4", "0x1.3267f3c265a52p+3", "-0x1.ea12da904b18cp+0", "-0x1.220130f99b2cfp-54",
        "-0x1.5fb410a1bd901p+1", "0x1.a19a96d2e6f85p-54",
    ),
    hexadecimal(
        "0x1.16bac543d5d07p+38", "0x1.56f950a3a7c61p+35", "0x1.9fec7522423adp+32", "0x1.02c8212568b4bp+30",
        "0x1.4452185bf9aeap+27", "0x1.99c873dc10f49p+24", "0x1.057f65c1b041fp+22", "0x1.51ea334056a4cp+19",
        "0x1.bb97aa0b738e5p+16", "0x1.293c3f78d4c1ap+14", "0x1.99a6337da39dbp+11", "0x1.267203d776b0cp+9",
        "0x1.c1137124d5c5bp+6", "0x1.9d4d2977150efp+4", "0x1.f20a65f2fac55p+2", "-0x1.1d258e4b0be84p-53",
        "-0x1.9260dbc9e59afp+1", "-0x1.f717cd335a7b3p-53",
    ),
    hexadecimal(
        "-0x1.54956c03f6f11p+63", "0x1.04ea6831d20d6p+59", "-0x1.7f5555d25c3abp+54", "0x1.290cba6c512dap+50",
        "-0x1.cffd143ac256ap+45", "0x1.6d135fa304b3ep+41", "-0x1.2225fdacfaee1p+37", "0x1.d2f76cf0c1592p+32",
        "-0x1.7dbbe0636b695p+28", "0x1.3e8f3aba4dd7bp+24", "-0x1.116f7806d25fep+20", "0x1.e8f829f141961p+15",
        "-0x1.d25359d4b2f38p+11", "0x1.f76deae0436bep+7", "-0x1.4b99d966c5647p+4", "0x1.9cba2450afff3p-50",
        "-0x1.fa471547c2fe5p+1", "-0x1.70d4561291237p-56",
    ),
]).T.copy()  # fmt: skip
_DERIVATIVE_BESIDE = np.array([
    hexadecimal(
        "0x1.0882082756565p+17", "-0x1.0271c3c94798ap+13", "0x1.01bcdf0af6f84p+15", "-0x1.b3b6dbb68da4ap+10",
        "0x1.01556782aaa13p+13", "-0x1.709434fb64dcep+8", "0x1.00f12482f306fp+11", "-0x1.2d820c5f32bd1p+6",
        "0x1.00a29e87bb024p+9", "-0x1.d69d76e6bc723p+3", "0x1.008bfe27eb6d7p+7", "-0x1.6168d467b73ebp+1",
        "0x1.02118e3b13c53p+5", "-0x1.9e6287497864p-1", "0x1.1e12d46d5ae28p+3", "0x1.0cbb010bd488ap-51",
        "-0x1.02172b05ee26p-1", "-0x1.2cd704405bff6p-57",
    ),
    hexadecimal(
        "0x1.a8646300badb3p+19", "-0x1.62bf4d41ce5bfp+18", "0x1.2cf0cf8dbed2ap+17", "-0x1.eea4fc980eda8p+15",
        "0x1.bba368ca08735p+14", "-0x1.61bd01f361639p+13", "0x1.4a0e83c884116p+12", "-0x1.f21ff936128b7p+10",
        "0x1.f3719c2ae4b49p+9", "-0x1.549402ed313f9p+8", "0x1.84e00f75fe97dp+7", "-0x1.b6914540deca7p+5",
        "0x1.3f4b97e4daf9dp+5", "-0x1.f35db31e6a1d4p+2", "0x1.3e20e129a441ep+3", "-0x1.944a31365ee6bp-52",
        "-0x1.92d0cbc289d4ap+0", "-0x1.2262d144a30e4p-56",
    ),
    hexadecimal(
        "0x1.c8c02baeef5aep+21", "-0x1.62f1dbf331849p+20", "0x1.0a67a7d400791p+19", "-0x1.9ce0ee2911c8ep+17",
        "0x1.440641a24c0d5p+16", "-0x1.f2bd8312bef99p+14", "0x1.8b62faa18cca8p+13", "-0x1.2b2c92f91286p+12",
        "0x1.e70574fcb2167p+10", "-0x1.615a45788968ep+9", "0x1.32d7d4249df15p+8", "-0x1.90d084fd9d995p+6",
        "0x1.99bd233efef94p+5", "-0x1.98a9c8ee5f509p+3", "0x1.5b2582701b783p+3", "-0x1.ec1f096d4fce9p-51",
        "-0x1.4e2c19f679e5ap+1", "0x1.c7b999bd14f47p-54",
    ),
    hexadecimal(
        "0x1.45b21a43b69e4p+23", "-0x1.daf525f5c4c31p+21", "0x1.4b558694c4dbp+20", "-0x1.e2cc96ef9c389p+18",
        "0x1.6127a6cdcf36bp+17", "-0x1.00b1303ae44e8p+16", "0x1.78c3991475696p+14", "-0x1.0fe6458e0c464p+13",
        "0x1.94149c687ba55p+11", "-0x1.1d54b28e00e22p+10", "0x1.b860d0e008c05p+8", "-0x1.22e76b78ca974p+7",
        "0x1.f94be5ed016a7p+5", "-0x1.0f036e4ba3313p+4", "0x1.74d47ec7ac492p+3", "0x1.3f8f2b994019ap-52",
        "-0x1.d1514b041b2a8p+1", "0x1.f71449c2a5446p-55",
    ),
]).T.copy()  # fmt: skip
# From 1 to 2 over the distances from zeros, by u - 1/2.
_LOGARITHM_NEAR = hexadecimal(
    "0x1.8ca55ab6b8718p-17", "-0x1.36d84fee907ffp-16", "0x1.c7d009a4fae3ap-17", "-0x1.6880fac68f031p-16",
    "0x1.672b94917149fp-15", "-0x1.1cf3272629995p-14", "0x1.ba26ce28a34bp-14", "-0x1.61854b057e6e9p-13",
    "0x1.1c7b46046a59cp-12", "-0x1.cb502b140a127p-12", "0x1.750aa27fe4301p-11", "-0x1.313e5323120b7p-10",
    "0x1.f814b951d538bp-10", "-0x1.a5035375acabep-9", "0x1.64f0664fb6518p-8", "-0x1.34dbda128eee5p-7",
    "0x1.133423527ae27p-6", "-0x1.007aa83cef9abp-5", "0x1.01af62a2929e1p-4", "-0x1.2aed059bd6085p-3",
)  # fmt: skip
_LOGARITHM_MIDDLE = hexadecimal("0x1.eeb95b094c191p-2", "0x1.346863f58b075p-56")
_DERIVATIVE_NEAR = hexadecimal(
    "-0x1.6b107f71aa124p-13", "0x1.104c9d0897b58p-12", "-0x1.3db05b36d9a48p-13", "0x1.dc8ae08af0fc4p-13",
    "-0x1.f99f529bd0771p-12", "0x1.7b3b41b0b38cdp-11", "-0x1.1002aaf6255f5p-10", "0x1.980fc9c9f0be8p-10",
    "-0x1.33661f9073563p-9", "0x1.cd3e42d157015p-9", "-0x1.5a071c746535bp-8", "0x1.03c00801ba958p-7",
    "-0x1.86355f6f68797p-7", "0x1.256475e5ac975p-6", "-0x1.b9f8b1367959dp-6", "0x1.4de9aa05d3418p-5",
    "-0x1.fb442029cdbf4p-5", "0x1.8512e5905d18p-4", "-0x1.2feeeb98a7cd8p-3", "0x1.eca189b8e6da1p-3",
    "-0x1.b1cb63005ee97p-2",
)  # fmt: skip
_DERIVATIVE_MIDDLE = hexadecimal("0x1.e6f0cbb873617p-1", "-0x1.f789c8f062b61p-55")
_ZERO = hexadecimal("0x1.d8b618d5af8fep-2", "-0x1.1e563779a1f5bp-56")
# By powers of 1 / x^2, from 9 on.
_LOGARITHM_SERIES = hexadecimal(
    "0x1.5bf021843d989p-8", "-0x1.f201587f8597cp-10", "0x1.b93e423d82af7p-11", "-0x1.38136bc9c521p-11",
    "0x1.a01a0194e5371p-11", "-0x1.6c16c16c16344p-9", "0x1.5555555555555p-4",
)  # fmt: skip
_DERIVATIVE_SERIES = hexadecimal(
    "-0x1.4b14e14b8fa7ap-2", "0x1.4c39499fa93d6p-4", "-0x1.5937c8d0685e5p-6", "0x1.f079fed551d1ap-8",
    "-0x1.11110f60d65d9p-8", "0x1.0410410366caap-8", "-0x1.1111111111046p-7", "0x1.5555555555555p-4",
)  # fmt: skip


def _on_pieces(coefficients: np.ndarray, u) -> Pair:
    """log gamma(1 + u) for u from 2 to 9, or its derivative."""
    piece = np.searchsorted(_EDGES, u, side="right")
    t = u - _CENTERS[piece]
    p = coefficients[0][piece]
    for column in coefficients[1:-2]:
        p = p * t + column[piece]
    high, low = fast_two_sum(coefficients[-2][piece], p * t)
    return high, low + coefficients[-1][piece]


def _logarithm_near(u) -> Pair:
    """log gamma(1 + u) for u from 0 to 1."""
    t, less = u - 0.5, fast_two_sum(-1.0, u)
    zeros = two_product(u, less[0])
    value = pair_step(fused_horner(_LOGARITHM_NEAR, t), t, _LOGARITHM_MIDDLE)
    return pair_product((zeros[0], zeros[1] + u * less[1]), value)


def _derivative_near(u) -> Pair:
    """Its derivative."""
    t, less = u - 0.5, two_sum(u, -_ZERO[0])
    value = pair_step(fused_horner(_DERIVATIVE_NEAR, t), t, _DERIVATIVE_MIDDLE)
    return pair_product((less[0], less[1] - _ZERO[1]), value)


def _beside(by: np.ndarray, apart):
    """By how far x is from a zero's first part; the second one counts in the slope too."""
    p = fused_horner(by[:14], apart)
    slope = pair_step(p, apart, (by[14], by[15]))
    product = pair_product(fast_two_sum(apart, -by[17]), (slope[0], slope[1] - by[17] * p))
    return product[0] + product[1]


def _or_beside(result, x, table: np.ndarray, row):
    """The result, or next to a zero of the table what it gives."""
    near = np.abs(x - table[16][row]) < 0.04
    by = table[:, row[near]]
    result[near] = _beside(by, x[near] - by[16])
    return result


def _steps(x) -> tuple:
    """(u, rest, a, b, c, d): x below 3 in size by u from 0 to 1. log gamma(x) is log gamma(1 + u) less log |a b c d|,
    from 2 on more log a. `rest` is what b and u lost."""
    below, less, second = x < 0, x - 1.0, x + 1.0
    a = np.where(x < 1, x, np.where(x < 2, 1.0, less))
    b, rest = np.where(below, second, 1.0), np.where(below, x - (second - 1.0), 0.0)
    c, d = np.where(x < -1, x + 2.0, 1.0), np.where(x < -2, x + 3.0, 1.0)
    left = np.where(x < -2, d, np.where(x < -1, c, b))
    right = np.where(x < 1, x, np.where(x < 2, less, less - 1.0))
    return np.where(below, left, right), rest, a, b, c, d


def _logarithm_beyond(x, scaled) -> Pair:
    """log gamma(x) for x from 9 on; x is scaled, and so is the result, where it is very large."""
    log, inverse = logarithm_pair(x), 1.0 / x
    less, half = two_sum(log[0], -1.0), two_sum(scaled, -0.5)
    product = pair_product(half, (less[0], less[1] + log[1]))
    total = two_sum(product[0], STIRLING[0])
    rest = inverse * horner(_LOGARITHM_SERIES, inverse * inverse) + STIRLING[1]
    return total[0], total[1] + (product[1] + rest)


def _derivative_beyond(x) -> Pair:
    log, half = logarithm_pair(x), 0.5 / x
    square = (1.0 / x) * (1.0 / x)
    total = two_sum(log[0], -half)
    return total[0], total[1] + (log[1] - square * horner(_DERIVATIVE_SERIES, square))


def _sine_and_cosine(size) -> tuple[Pair, Pair]:
    """Of pi times the distance from the nearest integer."""
    turn = np.abs(size - np.rint(size))
    beyond = turn > 0.25
    short = np.where(beyond, 0.5 - turn, turn)
    angle = two_product(short, PI[0])
    high, low = angle[0], angle[1] + short * PI[1]
    s, c = fast_two_sum(*sine_near(high, low)), fast_two_sum(*cosine_near(high, low))
    sine = np.where(beyond, c[0], s[0]), np.where(beyond, c[1], s[1])
    return sine, (np.where(beyond, s[0], c[0]), np.where(beyond, s[1], c[1]))


def _stepped_lgamma(x, careful: bool):
    """From -6 to -3 log gamma(1 + u) less log |x (x + 1) .. u|, neither of them large."""
    u, product = x, (x, np.zeros_like(x))
    while (below := u < 0).any():
        u = np.where(below, u + 1.0, u)
        more = pair_product(product, (u, 0.0))
        product = np.where(below, more[0], product[0]), np.where(below, more[1], product[1])
    sign = np.where(product[0] < 0, -1.0, 1.0)
    log, value = logarithm_pair(sign * product[0], sign * product[1]), _logarithm_near(u)
    total = two_sum(value[0], -log[0])
    result = total[0] + (total[1] + (value[1] - log[1]))
    cancelled = careful & (np.abs(result) < 2.0**-4)
    result = replaced(result, cancelled & (x < -4), logarithm_near_zeros, x)
    by = _LOGARITHM_BESIDE[:, np.where(x > -3.5, 2, 3)]
    return np.where(cancelled & (x > -4), _beside(by, x - by[16]), result)


def _is_pole(x):
    return (x <= 0) & (np.rint(x) == x)


def _far_lgamma(x, careful: bool = True):
    """Of 3 and more in size, of 0 and next to it, of poles and what is no number. careful: also where terms cancel; f32
    has digits to spare there."""
    size = np.abs(x)
    tiny = (size < 1) & (size > 0)
    usual = np.where(tiny | _is_pole(x) | ~np.isfinite(x), 3.5, x)
    a, negative = np.abs(usual), usual < 0
    beyond = a >= np.where(negative, 9.0, 10.0)
    large = ~negative & (a >= 2.0**500)
    from_nine = np.where(beyond, a, 10.0)
    near = _on_pieces(_LOGARITHM, np.where(beyond, 3.5, np.where(negative, a, a - 1.0)))
    far = _logarithm_beyond(from_nine, np.where(large, from_nine * 2.0**-200, from_nine))
    value = np.where(beyond, far[0], near[0]), np.where(beyond, far[1], near[1])
    # Below 0 the logarithm of pi / sin(pi |x|), over |x| from 9 on, less the value.
    sine, _ = _sine_and_cosine(np.where(negative, a, 0.25))
    quotient = pair_quotient(PI, pair_product(sine, (np.where(beyond, a, 1.0), 0.0)))
    log = logarithm_pair(*quotient)
    total = two_sum(-value[0], log[0])
    reflected = total[0] + (total[1] + (log[1] - value[1]))
    cancelled = careful & negative & has_cancelled(reflected, value[0], 0.75)
    reflected = replaced(reflected, cancelled & (usual < -6), logarithm_near_zeros, usual)
    reflected = replaced(reflected, negative & (usual > -6), lambda each: _stepped_lgamma(each, careful), usual)
    result = np.where(negative, reflected, value[0] + value[1])
    result = np.where(large, result * 2.0**200, result)
    subnormal = size < 2.0**-1022
    log = logarithm_pair(
        np.where(tiny, np.where(subnormal, size * 2.0**54, size), 1.0), 0.0, np.where(subnormal, -54, 0)
    )
    result = np.where(tiny, -log[0] - log[1], result)
    return np.where(np.isnan(x), np.nan, np.where(_is_pole(x) | (size == np.inf), np.inf, result))


@in_f32(lambda x: lgamma_f32(x, lambda y: _far_lgamma(y.astype(np.float64), False).astype(np.float32)))
@elementary
def lgamma(x, single):
    """The logarithm of the gamma function's magnitude, of f32 or f64; poles and infinities give inf.

    Within 2 units in the last place.
    """
    u, rest, a, b, c, d = _steps(np.where(np.abs(x) < 3, x, 1.5))
    one = two_product(a, b)
    product = pair_product((one[0], one[1] + a * rest), two_product(c, d))
    usual = (np.abs(x) < 3) & (np.abs(product[0]) >= 2.0**-1000)
    sign = np.where(product[0] < 0, -1.0, 1.0)
    log = logarithm_terms(np.where(usual, sign * product[0], 1.0), np.where(usual, sign * product[1], 0.0))
    side, value = np.where(x < 2, -1.0, 1.0), _logarithm_near(u)
    total = two_sum(value[0], side * log[0])
    result = total[0] + (total[1] + (value[1] + side * log[1]))
    result = replaced(result, ~usual, _far_lgamma, x)
    return _or_beside(result, x, _LOGARITHM_BESIDE, np.where(x > -2.625, 0, 1))


def _far_digamma(x, careful: bool = True):
    """As `_far_lgamma`."""
    tiny = (np.abs(x) < 1) & (x != 0)
    usual = np.where(tiny | _is_pole(x) | ~np.isfinite(x), 3.5, x)
    a, negative = np.abs(usual), usual < 0
    beyond = a >= np.where(negative, 9.0, 10.0)
    near = _on_pieces(_DERIVATIVE, np.where(beyond, 3.5, np.where(negative, a, a - 1.0)))
    far = _derivative_beyond(np.where(beyond, a, 10.0))
    # Below 0 pi / tan(pi |x|) more, and 1 / |x| from 9 on.
    inverse = pair_quotient((1.0, 0.0), (a, 0.0))
    more = two_sum(far[0], np.where(negative, inverse[0], 0.0))
    low = more[1] + (far[1] + np.where(negative, inverse[1], 0.0))
    value = np.where(beyond, more[0], near[0]), np.where(beyond, low, near[1])
    sine, cosine = _sine_and_cosine(np.where(negative, a, 0.25))
    cotangent = pair_product(PI, pair_quotient(cosine, sine))
    sign = np.where(a - np.rint(a) < 0, -1.0, 1.0)
    turned = two_sum(value[0], sign * cotangent[0])
    reflected = turned[0] + (turned[1] + (value[1] + sign * cotangent[1]))
    cancelled = careful & negative & has_cancelled(reflected, value[0], 0.1875)
    reflected = replaced(reflected, cancelled, derivative_near_zeros, usual)
    result = np.where(tiny, -1.0 / x, np.where(negative, reflected, value[0] + value[1]))
    at_poles = np.where(x == 0, -np.copysign(np.inf, x), np.where(x == np.inf, np.inf, np.nan))
    return np.where(_is_pole(x) | ~np.isfinite(x), at_poles, result)


@in_f32(lambda x: digamma_f32(x, lambda y: _digamma(y.astype(np.float64), False).astype(np.float32)))
@elementary
def digamma(x, single):
    """The derivative of log gamma, of f32 or f64; 0 gives the infinity of the other sign, other poles and -inf NaN.

    Within 2 units in the last place.
    """
    return _digamma(x)


def _digamma(x, careful: bool = True):
    """The derivative at 1 + u less the inverses of a, b, c and d, as one quotient; from 2 on more that of a."""
    t = np.where(np.abs(x) < 3, x, 1.5)
    u, rest, a, b, c, d = _steps(t)
    ab, two = two_product(a, b), two_product(c, d)
    one = ab[0], ab[1] + a * rest
    d = pair_product(one, two)
    usual = (np.abs(x) < 3) & (np.abs(d[0]) >= 2.0**-60)
    below, twice = t < 0, t + t
    total = twice + 1.0  # slopes of a b and of c d
    slope = np.where(below, total, np.where(t < 1, 1.0, np.where(t < 2, 0.0, -1.0)))
    slope_rest = np.where(below, twice - (total - 1.0), 0.0)
    other = np.where(t < -2, twice + 5.0, np.where(t < -1, 1.0, 0.0))
    left, right = pair_product((slope, slope_rest), two), pair_product(one, (other, 0.0))
    n = two_sum(left[0], right[0])
    quotient = pair_quotient((n[0], n[1] + (left[1] + right[1])), (np.where(usual, d[0], 1.0), d[1]))
    value = _derivative_near(u)
    more = two_sum(value[0], -quotient[0])
    result = more[0] + (more[1] + ((value[1] + 0.75 * rest) - quotient[1]))
    result = replaced(result, ~usual, lambda each: _far_digamma(each, careful), x)
    row = 0 + (x <= -1) + (x <= -2) + (x <= -3)
    return _or_beside(result, x, _DERIVATIVE_BESIDE, row)
