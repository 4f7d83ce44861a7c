"""Random numbers without a state, by Philox 4x32-10 (Salmon et al. 2011): a number follows from a seed, an offset and
the index of its element.

runtime/cuda/random.cuh is the same text in C++.
"""

from __future__ import annotations

import numpy as np

from skuda.reference.elementary import fma32, log

_LOWER = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def philox(counter, key):
    """The four random words of counters.

    Args:
        counter: four arrays of words of 32 bits, as uint64.
        key: two of them.

    Returns:
        Four arrays of uint64, each below 2^32.
    """
    a, b, c, d = counter
    keys = key
    for _ in range(_ROUNDS):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (right >> _HALF) ^ b ^ keys[0], right & _LOWER
        c, d = (left >> _HALF) ^ d ^ keys[1], left & _LOWER
        keys = tuple((each + np.uint64(step)) & _LOWER for each, step in zip(keys, _KEY_STEPS, strict=True))
    return a, b, c, d


def _halves(integer):
    """The two words of an int64, the lower one first."""
    bits = np.asarray(integer, np.int64).view(np.uint64)
    return bits & _LOWER, bits >> _HALF


def _blocks(seed, offset, block):
    """The words of the block that each element is in; neighbours in one block share its computation."""
    if np.size(seed) > 1 or np.size(offset) > 1 or np.size(block) < 2:
        return philox((*_halves(block), *_halves(offset)), _halves(seed))
    row = np.ravel(block)
    begins = np.concatenate([[True], row[1:] != row[:-1]])
    words = philox((*_halves(row[begins]), *_halves(np.ravel(offset))), _halves(np.ravel(seed)))
    of = np.cumsum(begins) - 1
    return tuple(word[of].reshape(np.shape(block)) for word in words)


def random_bits(seed, offset, index):
    """An integer from 0 on, below 2^32, for each index."""
    index = np.asarray(index)
    words, at = _blocks(seed, offset, index >> 2), index & 3
    lower, upper = np.where(at == 0, words[0], words[1]), np.where(at == 2, words[2], words[3])
    return np.where(at < 2, lower, upper).astype(np.int64)


def random_uniform(seed, offset, index, C):
    """A real from 0 on, below 1, for each index: a multiple of 2^-24 in f32, of 2^-53 in f64."""
    if C is np.float32:
        return (random_bits(seed, offset, index) >> 8).astype(C) * C(2.0**-24)
    index = np.asarray(index)
    first, second, third, fourth = _blocks(seed, offset, index >> 1)
    odd = (index & 1) == 1
    words = _two_words(np.where(odd, third, first), np.where(odd, fourth, second))
    return (words >> np.uint64(11)).astype(C) * C(2.0**-53)


def _two_words(low, high):
    return high << _HALF | low


_SINE = {
    np.float32: ("-0x1.2d9302p+6", "0x1.465e92p+6", "-0x1.4abbbap+5", "0x1.921fb6p+2"),
    np.float64: (
        "-0x1.6c58cc33d59e2p-1", "0x1.e8eec79c5f321p+1", "-0x1.e3074b42c3fdbp+3", "0x1.50783485c2d68p+5",
        "-0x1.32d2cce62abbdp+6", "0x1.466bc6775aad9p+6", "-0x1.4abbce625be53p+5", "0x1.921fb54442d18p+2",
    ),
}  # fmt: skip
_COSINE = {
    np.float32: ("0x1.d99f54p+5", "-0x1.55c4eap+6", "0x1.03c1dap+6", "-0x1.3bd3ccp+4", "0x1p+0"),
    np.float64: (
        "-0x1.b2586b69e2c0bp+0", "0x1.f9cc15d54fc27p+2", "-0x1.a6d1ec3d49c6ep+4", "0x1.e1f5068303f71p+5",
        "-0x1.55d3c7e3c8d5cp+6", "0x1.03c1f081b5aaap+6", "-0x1.3bd3cc9be45dep+4", "0x1p+0",
    ),
}  # fmt: skip


def _polynomial(coefficients, z, C):
    p = np.full_like(z, float.fromhex(coefficients[0]))
    for coefficient in map(float.fromhex, coefficients[1:]):
        p = fma32(p, z, C(coefficient)) if C is np.float32 else p * z + coefficient
    return p


def _cosine_of_turns(angle, bits: int, C):
    """The cosine of an angle, which is a share of a full turn in units of 2^-bits."""
    word = {32: np.uint32, 64: np.uint64}[bits]
    angle = angle.astype(word)
    quarter = (angle + word(1 << (bits - 3))) >> word(bits - 2)
    rest = (angle - (quarter << word(bits - 2))).view(f"i{bits // 8}")
    r = rest.astype(C) * C(2.0**-bits)
    z = r * r
    size = np.where(quarter & word(1) == 1, _polynomial(_SINE[C], z, C) * r, _polynomial(_COSINE[C], z, C))
    return np.where((quarter == 1) | (quarter == 2), -size, size)


_SQUARE = ("-0x1.65c784p-3", "0x1.2504a8p-2", "-0x1.318528p-2", "0x1.535d2ep-2", "-0x1.98d2c0p-2", "0x1.00049ap-1",
           "-0x1.5556f4p-1", "0x1.fffffap-1")  # fmt: skip


def _distance32(u):
    """sqrt(-2 log(u)) of a share u from 2^-33 to 1: u = (1 + f) 2^k, -2 log(1 + f) = f^2 P(f) - 2 f."""
    bits, C = u.view(np.int32), np.float32
    power = (bits - np.int32(0x3F3504F3)) & np.int32(-0x800000)  # 2^23 k
    f = (bits - power).view(C) - C(1)
    rest = fma32(f * f, _polynomial(_SQUARE, f, C), C(-2) * f)
    return np.sqrt(fma32(power.astype(C), C(float.fromhex("-0x1.62e43p-23")), rest))


def random_normal(seed, offset, index, C):
    """A real of the normal distribution for each index, by Box and Muller: two neighbours are a point of the plane."""
    index = np.asarray(index)
    single = C is np.float32
    first, second, third, fourth = _blocks(seed, offset, index >> (2 if single else 1))
    if single:
        latter, bits = (index & 2) == 2, 32
        distance, angle = np.where(latter, third, first), np.where(latter, fourth, second)
        size = _distance32(distance.astype(C) * C(2.0**-32) + C(2.0**-33))
    else:
        distance, angle, bits = _two_words(first, second), _two_words(third, fourth), 64
        size = np.sqrt(C(-2) * log(((distance >> np.uint64(11)) + np.uint64(1)).astype(C) * C(2.0**-53)))
    angle = angle - (np.asarray(index & 1).astype(np.uint64) << np.uint64(bits - 2))
    return size * _cosine_of_turns(angle, bits, C)
