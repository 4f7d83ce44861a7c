"""The logarithm of the gamma function and its derivative, in steps that CPU and GPU have in common, so that both give
the same bits.

runtime/cuda/gamma.cuh is the same text in C++. From 1 to 10 both are polynomials, each on its own piece; those around a
zero have it as a factor. Beyond are their asymptotic series, below 1 a step to the right, below 0 the reflection.
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
    two_product,
    two_sum,
)
from skuda.reference.gamma_f32 import digamma_f32, lgamma_f32
from skuda.reference.gamma_zeros import (
    PI,
    STIRLING,
    derivative_near_zeros,
    has_cancelled,
    logarithm_near_zeros,
    replaced,
)
from skuda.reference.powers import logarithm_pair
from skuda.reference.trigonometric import cosine_near, sine_near

_EDGES = np.array([0.5, 1.0, 2.0, 3.5, 5.75])  # of the pieces, as distances from 1
_CENTERS = np.array([0.25, 0.75, 1.5, 2.75, 4.625, 7.375])
# Of each piece: the highest power first, and behind the constant what its rounding lost. The first three are the
# logarithm over u (u - 1).
_LOGARITHM = np.array([
    hexadecimal(
        "0x1.e22b68bcae7cbp-11", "-0x1.3eeef4eadb456p-10", "0x1.6755695536c14p-10", "-0x1.df7b7c8dcb08ap-10",
        "0x1.44e1d6520afcdp-9", "-0x1.b5c21815c59eep-9", "0x1.28abf8639f74cp-8", "-0x1.954521c43b61ap-8",
        "0x1.1759df544285ep-7", "-0x1.858dc67c49c09p-7", "0x1.13b466d35a91ap-6", "-0x1.8e4684a8434f1p-6",
        "0x1.28367ed88c3a9p-5", "-0x1.ccfde37c04686p-5", "0x1.83575d02c83bep-4", "-0x1.79f9bf0adea8dp-3",
        "0x1.0c58fe25dca2cp-1", "-0x1.7408ca896d44fp-55",
    ),
    hexadecimal(
        "0x1.f98b9e72b500cp-19", "-0x1.d37773f875e6ep-18", "0x1.901e99a0086c8p-17", "-0x1.74d4c371fa69p-16",
        "0x1.5ddb2852886f8p-15", "-0x1.491b660598863p-14", "0x1.37765f53056e9p-13", "-0x1.28f25f46cebb8p-12",
        "0x1.1daed5bb4d2a9p-11", "-0x1.16056279b24e8p-10", "0x1.12aa72f79a449p-9", "-0x1.14f7c58ea8137p-8",
        "0x1.1f9587fa1dab7p-7", "-0x1.382e176f60b21p-6", "0x1.6cb6251711902p-5", "-0x1.e96586307946ep-4",
        "0x1.ccf151e09cde8p-2", "0x1.040bdfa1f2a11p-56",
    ),
    hexadecimal(
        "0x1.b9756a3c95d9ap-27", "-0x1.22d6fdd22620ep-25", "0x1.45cd99744a0fp-24", "-0x1.b0bcc001dae26p-23",
        "0x1.23d8f42f9b7aap-21", "-0x1.87425c30165f5p-20", "0x1.07c6f4719879p-18", "-0x1.666fe83c397adp-17",
        "0x1.eb8f7679dae04p-16", "-0x1.5501ac6d32794p-14", "0x1.e05c3c3939309p-13", "-0x1.59511fff10c94p-11",
        "0x1.feef08b133995p-10", "-0x1.8a722dfc5e8b7p-8", "0x1.462044b0af66fp-6", "-0x1.31d26e932300fp-4",
        "0x1.84afe00cddfdfp-2", "0x1.fd00267b22ff4p-56",
    ),
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
# The first two are the derivative over u - u0, its zero.
_DERIVATIVE = np.array([
    hexadecimal(
        "-0x1.e4da46099718bp-7", "0x1.2f093f560474fp-6", "-0x1.369eb9bbce0adp-6", "0x1.844a5de4088b6p-6",
        "-0x1.ed635b38c45f3p-6", "0x1.34682df0b298cp-5", "-0x1.81585d530e532p-5", "0x1.e1e1fb068b9a8p-5",
        "-0x1.2d68e079d1d33p-4", "0x1.79483b54946f1p-4", "-0x1.d8cb5b94e1805p-4", "0x1.28dfeebc7edc3p-3",
        "-0x1.7653f88cfd9aep-3", "0x1.dbae8a2049471p-3", "-0x1.3303dff259ac6p-2", "0x1.99d8501de709cp-2",
        "-0x1.28888254be33fp-1", "0x1.13236660188ap+0", "0x1.5b67d680a1cacp-55",
    ),
    hexadecimal(
        "-0x1.09b975b0abfe8p-15", "0x1.d10fce83c8982p-15", "-0x1.719f40b617711p-14", "0x1.437fed9bcd95ep-13",
        "-0x1.1c4499d15ea8cp-12", "0x1.f1c6a078fb51ep-12", "-0x1.b3f1c41da7359p-11", "0x1.7e0aae608b763p-10",
        "-0x1.4f1c290f4b4c9p-9", "0x1.2660210dde1c2p-8", "-0x1.0335d25aab73ep-7", "0x1.ca49472248d18p-7",
        "-0x1.97cc6e105fe5dp-6", "0x1.6effaf57e602cp-5", "-0x1.510ab0e548b52p-4", "0x1.41c830a3206e4p-3",
        "-0x1.4e15b17372db3p-2", "0x1.b763ca67112ap-1", "-0x1.05231abb9d97dp-57",
    ),
    hexadecimal(
        "0x1.631998b999cb9p-24", "-0x1.bc4331d5b755p-23", "0x1.c8237f5d7ad8ap-22", "-0x1.1da25ea5c22dfp-20",
        "0x1.6bdd21d1e0e15p-19", "-0x1.c88ea54caa83bp-18", "0x1.1eb450a1c8693p-16", "-0x1.692591f85a2a2p-15",
        "0x1.c872e1d080f68p-14", "-0x1.21de1cbb6fb92p-12", "0x1.72e0083e31eb9p-11", "-0x1.dfdf12a9e0a16p-10",
        "0x1.3bf9d580eca63p-8", "-0x1.ac61ab99aa0c2p-7", "0x1.31b4c4359dfc1p-5", "-0x1.e3bef327df0bbp-4",
        "0x1.f62057f7296c9p-2", "0x1.680425af12b5ep-1", "-0x1.8de5425897876p-58",
    ),
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
    piece = np.searchsorted(_EDGES, u, side="right")
    t = u - _CENTERS[piece]
    p = coefficients[0][piece]
    for column in coefficients[1:-2]:
        p = p * t + column[piece]
    high, low = fast_two_sum(coefficients[-2][piece], p * t)
    return high, low + coefficients[-1][piece]


def _logarithm_one_plus(u) -> Pair:
    """log gamma(1 + u) for u from 0 to 9."""
    value, less = _on_pieces(_LOGARITHM, u), two_sum(u, -1.0)
    zeros = two_product(u, less[0])
    factored = pair_product((zeros[0], zeros[1] + u * less[1]), value)
    return np.where(u < 2, factored[0], value[0]), np.where(u < 2, factored[1], value[1])


def _derivative_one_plus(u) -> Pair:
    """Its derivative."""
    value, less = _on_pieces(_DERIVATIVE, u), two_sum(u, -_ZERO[0])
    factored = pair_product((less[0], less[1] - _ZERO[1]), value)
    return np.where(u < 1, factored[0], value[0]), np.where(u < 1, factored[1], value[1])


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


def _logarithm_cancelled(x):
    """Where terms cancel below -2: up to -3 log gamma(x + 4) less log |x (x + 1) (x + 2) (x + 3)|, neither large."""
    u = np.where(x > -3, x + 3.0, 0.5)
    t = u - 3.0
    product = pair_product(two_product(t, t + 1.0), two_product(-2.0 - t, u))
    log, value = logarithm_pair(*product), _logarithm_one_plus(u)
    total = two_sum(value[0], -log[0])
    result = total[0] + (total[1] + (value[1] - log[1]))
    return replaced(result, ~((x > -3) & (np.abs(result) >= 2.0**-4)), logarithm_near_zeros, x)


def _is_pole(x):
    return (x <= 0) & (np.rint(x) == x)


@in_f32(lambda x: lgamma_f32(x, lambda y: _lgamma(y.astype(np.float64), False).astype(np.float32)))
@elementary
def lgamma(x, single):
    """The logarithm of the gamma function's magnitude, of f32 or f64; poles and infinities give inf.

    Within 2 units in the last place.
    """
    return _lgamma(x, True)


def _lgamma(x, careful: bool):
    """careful: also where terms cancel; f32 has digits to spare there."""
    size = np.abs(x)
    usual = np.where(_is_pole(x) | ~np.isfinite(x), 1.5, x)
    a, above, negative = np.abs(usual), np.where(usual < 1, 0.0, -1.0), usual < 0
    above = np.where(negative, 0.0, above)
    beyond = a >= np.where(negative, 9.0, 10.0)
    large = a >= 2.0**500
    from_nine = np.where(beyond, a, 10.0)
    near = _logarithm_one_plus(np.where(beyond, 0.5, a + above))
    far = _logarithm_beyond(from_nine, np.where(large, from_nine * 2.0**-200, from_nine))
    value = np.where(beyond, far[0], near[0]), np.where(beyond, far[1], near[1])
    # Below 1 less the logarithm of x; below 0 the logarithm of pi / sin(pi |x|), over |x| from 9 on, less the value.
    sine, _ = _sine_and_cosine(np.where(negative, a, 0.25))
    quotient = pair_quotient(PI, pair_product(sine, (np.where(beyond, a, 1.0), 0.0)))
    tiny = a < 2.0**-60
    reflected = negative & ~tiny
    subnormal = a < 2.0**-1022
    small = np.where(subnormal, a * 2.0**54, a)
    log = logarithm_pair(
        np.where(reflected, quotient[0], small), np.where(reflected, quotient[1], 0.0), np.where(subnormal, -54, 0)
    )
    less = np.where(reflected, 1.0, -1.0)
    log = less * log[0], less * log[1]
    value = np.where(reflected, -value[0], value[0]), np.where(reflected, -value[1], value[1])
    total = two_sum(value[0], log[0])
    stepped = total[0] + (total[1] + (value[1] + log[1]))
    cancelled = careful & (usual < -2) & has_cancelled(stepped, value[0], 0.75)
    stepped = replaced(stepped, cancelled, _logarithm_cancelled, usual)
    result = np.where(negative | (usual < 1), stepped, value[0] + value[1])
    result = np.where(tiny, log[0] + log[1], result)
    result = np.where(large & ~negative, result * 2.0**200, result)
    return np.where(np.isnan(x), np.nan, np.where(_is_pole(x) | (size == np.inf), np.inf, result))


@in_f32(lambda x: digamma_f32(x, lambda y: _digamma(y.astype(np.float64), False).astype(np.float32)))
@elementary
def digamma(x, single):
    """The derivative of log gamma, of f32 or f64; 0 gives the infinity of the other sign, other poles and -inf NaN.

    Within 2 units in the last place.
    """
    return _digamma(x, True)


def _digamma(x, careful: bool):
    """careful: as for lgamma."""
    usual = np.where(_is_pole(x) | ~np.isfinite(x), 1.5, x)
    a, negative = np.abs(usual), usual < 0
    beyond = a >= np.where(negative, 9.0, 10.0)
    u = np.where(negative | (usual < 1), a, a - 1.0)
    near, far = _derivative_one_plus(np.where(beyond, 0.5, u)), _derivative_beyond(np.where(beyond, a, 10.0))
    value = np.where(beyond, far[0], near[0]), np.where(beyond, far[1], near[1])
    # Below 1 less 1 / x; below 0 pi / tan(pi |x|) more, and 1 / |x| from 9 on.
    tiny = a < 2.0**-60
    inverse = pair_quotient((1.0, 0.0), (np.where(tiny, 1.0, a), 0.0))
    sine, cosine = _sine_and_cosine(np.where(negative & ~tiny, a, 0.25))
    cotangent = pair_product(PI, pair_quotient(cosine, sine))
    sign = np.where(a - np.rint(a) < 0, -1.0, 1.0)
    share = np.where(negative, 0.0, -1.0) + np.where(negative & beyond, 1.0, 0.0)
    more = two_sum(value[0], np.where(usual < 1, share * inverse[0], 0.0))
    low = more[1] + (value[1] + np.where(usual < 1, share * inverse[1], 0.0))
    turned = two_sum(more[0], np.where(negative, sign * cotangent[0], 0.0))
    result = turned[0] + (turned[1] + (low + np.where(negative, sign * cotangent[1], 0.0)))
    cancelled = careful & negative & ~tiny & has_cancelled(result, more[0], 0.1875)
    result = replaced(result, cancelled, derivative_near_zeros, usual)
    result = np.where(tiny, -1.0 / usual, result)
    at_poles = np.where(x == 0, -np.copysign(np.inf, x), np.where(x == np.inf, np.inf, np.nan))
    return np.where(_is_pole(x) | ~np.isfinite(x), at_poles, result)
