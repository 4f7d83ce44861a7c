"""Random numbers: the known answers of Random123, their distributions, and the same bits in any layout."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import skuda
from oracles import philox
from skuda.errors import SpecError
from skuda.model.dtypes import DTYPES
from skuda.reference import random

# Random123's kat_vectors, the lines `philox4x32 10`: counter, key, words.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
COUNT = 1 << 18
INDEX = np.arange(COUNT)
TYPES = [np.float32, np.float64]


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_known_answers(counter, key, expected):
    found = random.philox(*(tuple(map(np.uint64, words(each))) for each in (counter, key)))
    assert tuple(map(int, found)) == words(expected) == philox.philox(words(counter), words(key))


def test_words_of_the_seed_the_offset_and_the_index():
    """The key is the seed; the counter has a quarter of the index first, then the offset; lower words first."""
    seed, offset, block = 0x0123456789ABCDEF, -5, 0x3333333322222222 >> 2
    expected = philox.philox((block % 2**32, block >> 32, 0xFFFFFFFB, 0xFFFFFFFF), (0x89ABCDEF, 0x01234567))
    found = random.random_bits(seed, offset, 4 * block + np.arange(4))
    assert found.tolist() == list(expected)
    of_ones = words(KNOWN[1][2])
    assert random.random_bits(-1, -1, np.arange(-4, 0)).tolist() == list(of_ones)  # the block before that of 0


def test_bits_of_arrays_of_seeds_and_any_shape():
    whole = random.random_bits(7, 3, INDEX)
    assert whole.dtype == np.int64 and whole.min() >= 0 and whole.max() < 2**32
    np.testing.assert_array_equal(random.random_bits(7, 3, INDEX.reshape(64, -1).T), whole.reshape(64, -1).T)
    np.testing.assert_array_equal(random.random_bits(7, 3, INDEX[::-7]), whole[::-7])
    np.testing.assert_array_equal(random.random_bits(np.full(COUNT, 7), 3, INDEX), whole)
    np.testing.assert_array_equal(random.random_bits(7, np.array([3]), INDEX), whole)
    assert random.random_bits(7, 3, INDEX[5]) == whole[5] and random.random_bits(7, 3, INDEX[:0]).shape == (0,)


@pytest.mark.parametrize("C", TYPES)
def test_uniform_numbers(C):
    """Of a seed: mean, variance, and counts in 256 equal parts within five standard deviations."""
    x = random.random_uniform(1, 0, INDEX, C)
    assert x.dtype == C and x.min() >= 0 and x.max() < 1
    wide = x.astype(np.float64)
    assert abs(wide.mean() - 0.5) < 5 * np.sqrt(1 / 12 / COUNT)
    assert abs(wide.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / COUNT)
    counts = np.bincount((wide * 256).astype(int), minlength=256)
    assert abs(((counts - COUNT / 256) ** 2).sum() / (COUNT / 256) - 255) < 5 * np.sqrt(2 * 255)
    steps = 2.0 ** (24 if C is np.float32 else 53)
    assert (wide * steps == np.floor(wide * steps)).all() and (wide * steps % 2 == 1).any()
    for lag in (1, 2, 4):
        assert abs(np.corrcoef(wide[lag:], wide[:-lag])[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize("C", TYPES)
def test_normal_numbers(C):
    """Moments, counts between quantiles, and no correlation of the two coordinates of a point."""
    x = random.random_normal(2, 9, INDEX, C)
    assert x.dtype == C and np.isfinite(x).all()
    wide = x.astype(np.float64)
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((wide**power).mean() - moment) < 5 * np.sqrt(spread / COUNT)
    inner = [float(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(i) / 64 - 1)) for i in range(1, 64)]
    counts = np.bincount(np.searchsorted(inner, wide), minlength=64)
    assert abs(((counts - COUNT / 64) ** 2).sum() / (COUNT / 64) - 63) < 5 * np.sqrt(2 * 63)
    for pair in ((wide[::2], wide[1::2]), (wide[::2] ** 2, wide[1::2] ** 2), (wide[:-4], wide[4:])):
        assert abs(np.corrcoef(*pair)[0, 1]) < 5 / np.sqrt(COUNT / 2)


@pytest.mark.parametrize("C, word", [(np.float32, "f32"), (np.float64, "f64")])
def test_normal_numbers_are_near_those_of_their_words(C, word):
    found = random.random_normal(11, 5, INDEX[:3000], C)
    with mpmath.workprec(120):
        exact = [philox.random_normal(11, 5, index, word) for index in range(3000)]
        units = [mpmath.mpf(float(np.spacing(np.abs(C(y))))) for y in exact]
        off = [abs(x - y) / unit for x, y, unit in zip(found.tolist(), exact, units, strict=True)]
    assert max(off) <= 4


def test_other_seeds_and_offsets_have_other_numbers():
    numbers = [random.random_bits(seed, offset, INDEX) for seed, offset in ((1, 0), (2, 0), (1, 1), (1, 2**40))]
    for at, first in enumerate(numbers):
        for second in numbers[:at]:
            assert (first == second).mean() < 1e-4


@pytest.fixture(scope="module")
def noise():
    """Numbers by an index that is an input."""
    return skuda.define(
        name="noise", inputs={"index": "i64[*n]", "seed": "i64[]", "offset": "i64[]"},
        types={"T": ["f32", "f64", "f16", "bf16"]},
        outputs={"u": "T[*n] = random_uniform(seed, offset, index)", "g": "T[*n] = random_normal(seed, offset, index)",
                 "bits": "u32[*n] = random_bits(seed, offset, index)"},
    )  # fmt: skip


@pytest.mark.parametrize("word, C", [("f32", np.float32), ("f64", np.float64)])
def test_an_operation_has_the_same_bits_in_any_layout(noise, word, C):
    index = np.arange(6000).reshape(60, 100)
    expected = random.random_uniform(-3, 1 << 50, index, C), random.random_normal(-3, 1 << 50, index, C)
    for given in (index, np.asfortranarray(index), np.repeat(index, 2, 1)[:, ::2]):
        u, g, bits = noise(given, -3, 1 << 50, dtype=word)
        np.testing.assert_array_equal(u, expected[0])
        np.testing.assert_array_equal(g, expected[1])
        np.testing.assert_array_equal(bits, random.random_bits(-3, 1 << 50, index))
    np.testing.assert_array_equal(noise(index[3:], np.array([-3]), np.array(1 << 50), dtype=word)[0], expected[0][3:])


def test_integers_are_known_to_fit_32_bits():
    formula = "random_bits(1, 0, index)"
    with pytest.raises(SpecError, match="the integer may be 0 to 4294967295, i32 holds"):
        skuda.define(name="too_wide", inputs={"index": "i64[*n]"}, outputs={"bits": f"i32[*n] = {formula}"})


def test_a_mask_follows_from_seed_and_offset_in_the_gradient():
    operation = skuda.define(
        name="masked", inputs={"x": "T[*n]", "index": "i64[*n]", "seed": "i64[]", "offset": "i64[]"},
        attrs={"p": "C = 0.5"},
        outputs={"y": "T[*n] = where(random_uniform(seed, offset, index) >= p, x / (1 - p), 0)"},
    )  # fmt: skip
    x, index = np.linspace(1, 2, 4000), np.arange(4000)
    y = operation(x, index, 8, 1, p=0.25)
    kept = y != 0
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4000)
    gradient = operation.backward(np.ones(4000), index, 8, 1, p=0.25)
    np.testing.assert_array_equal(gradient, np.where(kept, 1 / 0.75, 0))


@pytest.fixture(scope="module")
def rounding():
    return skuda.define(
        name="rounding", types={"T": ["f32", "f64"], "Q": ["bf16", "f16", "e4m3", "f32"]},
        inputs={"x": "T[*n]", "bits": "u32[*n]"}, outputs={"y": "Q[*n] = stochastic(x, bits)"},
    )  # fmt: skip


def neighbours(x: float, word: str) -> tuple[Fraction, Fraction, Fraction]:
    """Of a finite value: the one nearer to 0 in a float type, that away from 0, and the distance from the former in
    units of that between them; all of the magnitude, as if the type had no largest value."""
    dtype, size = DTYPES[word], abs(Fraction(x))
    exponent = Fraction(1)
    while size and exponent > size:
        exponent /= 2
    while exponent * 2 <= size:
        exponent *= 2
    unit = max(exponent / 2**dtype.mantissa, Fraction(dtype.smallest))
    whole = size // unit
    return whole * unit, (whole + 1) * unit, size / unit - whole


@pytest.mark.parametrize("word", ["bf16", "f16", "e4m3", "f32"])
@pytest.mark.parametrize("C", TYPES)
def test_stochastic_rounding_takes_a_neighbour_as_its_bits_say(rounding, backend, C, word):
    generator = np.random.default_rng(3)
    finite = [0.0, 1.0, 1.5, 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-149, 3e-41, 65504.0, 65519.0, 448.0, 3.3e38, 2.0**-9]
    x = [*finite, *generator.normal(size=40), *np.exp2(generator.uniform(-140, 120, 40)), *[0.1] * 20]
    x = np.concatenate([x, np.negative(x)]).astype(C)
    bits = generator.integers(0, 2**32, x.size).astype(np.uint32)
    bits[:26] = np.tile([0, 2**32 - 1], 13)
    found = backend.numpy(rounding(backend.array(x), backend.array(bits), dtype=word))
    form = DTYPES[word]
    expected = []
    for value, word_of_bits in zip(x.tolist(), bits.tolist(), strict=True):
        lower, upper, share = neighbours(value, word)
        chosen = upper if word_of_bits < share * 2**32 // 1 else lower
        expected.append(math.copysign(float(chosen) if chosen <= 2 * Fraction(form.highest) else math.inf, value))
    with np.errstate(over="ignore"):
        wanted = form.rounded(np.array(expected)) if form.narrow_float else np.array(expected).astype(form.storage)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))
    special = np.array([np.inf, -np.inf, np.nan], C)
    kept = rounding(special, np.arange(3, dtype=np.uint32), dtype=word).astype(np.float64)
    np.testing.assert_array_equal(kept, form.rounded(special).astype(np.float64))


def test_stochastic_rounding_has_no_bias(rounding):
    """The mean of what random bits give is the value, within five standard deviations."""
    for value, word in ((1.0 + 2.0**-10, "bf16"), (1.0 + 2.0**-13, "f16"), (2.0**-26, "f16"), (-0.3, "bf16")):
        lower, upper, share = neighbours(value, word)
        y = rounding(np.full(COUNT, value, np.float32), random.random_bits(4, 0, INDEX).astype(np.uint32), dtype=word)
        spread = float(upper - lower) * math.sqrt(float(share * (1 - share)) / COUNT)
        assert abs(y.astype(np.float64).mean() - float(np.float32(value))) < 5 * spread + 1e-9


def test_conversions_to_floats_are_refused_elsewhere():
    inputs = {"x": "T[*n]", "bits": "u32[*n]"}
    with pytest.raises(SpecError, match="`stochastic` converts to a float type, `s8.*` holds integers"):
        skuda.define(name="to_codes", inputs=inputs, outputs={"y": "s8[*n] = stochastic(x, bits)"})
    with pytest.raises(SpecError, match="it stands outermost in the output's formula"):
        skuda.define(name="inside", inputs=inputs, outputs={"y": "T[*n] = 2 * stochastic(x, bits)"})
    with pytest.raises(SpecError, match="`stochastic` takes 2 arguments, got 1"):
        skuda.define(name="alone", inputs=inputs, outputs={"y": "T[*n] = stochastic(x)"})
    with pytest.raises(SpecError, match="`stochastic` has no derivative: it gives values of the output's type"):
        skuda.define(name="derived", inputs=inputs, outputs={"y": "T[*n] = stochastic(x, bits)"}, backward="derived")
