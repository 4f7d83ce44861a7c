"""The arithmetic behind runtime/cuda/quotient.cuh, proved on small precisions and probed on f32 and f64.

y = RN(1 / s), q0 = RN(x * y), r = RN(x - s * q0), q = RN(q0 + r * y) is claimed to be the IEEE quotient RN(x
/ s); an integer that is read off the quotient of a dividend cut to its bounds' products with s is claimed to be
the clamped rounded quotient; and the quotients that round to an integer within bounds are claimed to be those of
dividends between two thresholds. The arithmetic scales with the precision p, so for small p every pair of
mantissas is tried; nothing here is floating point but the inputs of the f32 probe.
"""

from __future__ import annotations

from fractions import Fraction
from importlib import resources

import numpy as np
import pytest

from oracles.floats_array import shift_to_even


def rounded(numbers: np.ndarray, p: int) -> np.ndarray:
    """Integers below 2^62 rounded to p significant bits, ties to even."""
    size = np.abs(numbers)
    length = np.zeros_like(size)
    rest = size
    for step in (32, 16, 8, 4, 2, 1):
        big = rest >= 1 << step
        length = np.where(big, length + step, length)
        rest = np.where(big, rest >> step, rest)
    drop = np.maximum(length + 1 - p, 0)
    return np.sign(numbers) * (shift_to_even(size, drop) << drop)


def divided(numerator: np.ndarray, denominator: np.ndarray, p: int) -> np.ndarray:
    """The quotient of non-negative integers, rounded to p bits, ties to even. It must be at least 2^(p + 1).
    """
    quotient = numerator // denominator
    return (
        rounded(2 * quotient + (quotient * denominator != numerator), p) // 2
    )  # the low bit says: there is more


def mantissas(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Every pair (x, s) of p-bit mantissas."""
    every = np.arange(1 << (p - 1), 1 << p, dtype=np.int64)
    return every[:, None], every[None, :]


@pytest.mark.parametrize("p", range(5, 12))
def test_the_refined_quotient_is_the_ieee_quotient(p):
    x, s = mantissas(p)
    bits = 2 * p - 1
    y = (
        divided(np.int64(1) << (bits + 3), s, p) + 4
    ) >> 3  # exact: a p-bit number above 2^(p + 2) ends in 0s
    assert np.array_equal(y << 3, divided(np.int64(1) << (bits + 3), s, p))
    q0 = rounded(x * y, p)  # in units of 2^-bits
    r = rounded((x << bits) - s * q0, p)
    q = rounded((q0 << bits) + r * y, p)  # in units of 2^(-2 * bits)
    exact = divided(x << (2 * bits), s * np.ones_like(x), p)
    wrong = np.argwhere(q != exact)
    assert not len(wrong), f"x={x[wrong[0][0], 0]} s={s[0, wrong[0][1]]}"
    # The refinement is needed: the first guess alone is not the quotient.
    assert (q0 << bits != exact).any()


def rounded_down(numbers: np.ndarray, p: int) -> np.ndarray:
    """Positive integers rounded to p significant bits, toward 0."""
    drop = np.array([max(0, int(number).bit_length() - p) for number in numbers.flat]).reshape(numbers.shape)
    return numbers >> drop << drop


def last_inside(s: np.ndarray, bound: int, p: int) -> np.ndarray:
    """quotient.cuh's last_inside, in units of 2^-(p + 1)."""
    half = 2 * bound + 1  # h = bound + 1/2, in halves
    half_unit = 1 << (half.bit_length() - 1)  # of h, in units of 2^-(p + 1)
    return rounded_down(s * ((half << p) + (-half_unit if bound % 2 else half_unit)), p)


@pytest.mark.parametrize("p", [5, 6, 7])
def test_the_cut_dividend_gives_the_clamped_integer(p):
    """Steps: bounds within 2^(p - 2) (2^22 in f32), dividends from far below half a step to far beyond the
    bounds.
    """
    x, s = mantissas(p)
    s = s * np.ones_like(x)
    bits, down = 2 * p - 1, p + 4  # dividends are x * 2^(exponent - down), the divisor s
    y = divided(np.int64(1) << (bits + 3), s, p) >> 3
    for low, high in ((-8, 7), (0, 0), (0, 5), (-3, 0), (-(1 << (p - 2)), 1 << (p - 2))):
        least, most = (rounded((bound << down) * s, p) for bound in (low, high))
        first, last = -last_inside(s, -low, p) << 3, last_inside(s, high, p) << 3
        for exponent in range(0, 2 * p + 4):
            for sign in (1, -1):
                dividend = sign * (x << exponent)  # in units of 2^-down
                cut = np.clip(dividend, least, most)
                unit = down + bits
                q0 = rounded(cut * y, p)
                r = rounded((cut << bits) - s * q0, p)  # in units of 2^-(down + bits)
                q = rounded((q0 << bits) + r * y, p)  # in units of 2^-(down + 2 * bits)
                unit += bits
                nearest = np.sign(q) * shift_to_even(np.abs(q), np.int64(unit))
                # The IEEE quotient is rounded to p bits first, and to an integer then.
                quotient = divided((x << exponent) << (2 * bits), s, p)
                ieee = sign * shift_to_even(quotient, np.int64(down + 2 * bits))
                assert np.array_equal(nearest, np.clip(ieee, low, high))
                inside = (first <= dividend) & (dividend <= last)
                assert np.array_equal(inside, (low <= ieee) & (ieee <= high))


def in_halves(numbers: np.ndarray, steps: int, p: int) -> np.ndarray:
    """The p-bit number so many steps from one of 2^(p - 1) .. 2^p, in halves of its units: the binade below has
    steps of half a unit, the one above of two.
    """
    least = 1 << (p - 1)
    place = np.where(numbers == 2 * least, least, numbers - least) + steps  # from the least of its binade on
    fine = np.where(place < 0, 2 * least + place, 2 * (least + place))
    return np.where(place > least, 4 * least + 4 * (place - least), fine)


@pytest.mark.parametrize("p", [7, 8, 9])
def test_an_integer_between_two_products_is_the_rounded_quotient(p):
    """RowSteps: products with what is three units in the last place below and above RN(1 / s) are rounded once."""
    x, s = mantissas(p)
    s = s * np.ones_like(x)
    bits, down = 2 * p - 1, p + 4  # dividends are x * 2^(exponent - down), the divisor s
    y = divided(np.int64(1) << (bits + 3), s, p) >> 3
    below, above = in_halves(y, -3, p), in_halves(y, 3, p)
    assert ((below << (p + 1)) <= (2 * y << (p + 1)) - 3 * y).all()  # by 3 * 2^-(p + 1) at least
    assert ((above << (p + 1)) >= (2 * y << (p + 1)) + 3 * y).all()
    for exponent in range(0, 2 * p + 1, 2):
        dividend = x << exponent
        first, last = (shift_to_even(dividend * each, np.int64(down + bits + 1)) for each in (below, above))
        ieee = shift_to_even(divided(dividend << (2 * bits), s, p), np.int64(down + 2 * bits))
        sure = first == last
        assert np.array_equal(first[sure], ieee[sure])
        assert ((first <= ieee) & (ieee <= last)).all()
        assert sure.any()


def nearest_float(number: Fraction, p: int) -> Fraction:
    """A rational rounded to p significant bits, ties to even."""
    if number == 0:
        return number
    exponent = abs(number).numerator.bit_length() - abs(number).denominator.bit_length() - p
    unit = Fraction(2) ** exponent
    while abs(number) / unit >= 1 << p:
        unit *= 2
    while abs(number) / unit < 1 << (p - 1):
        unit /= 2
    return round(number / unit) * unit


def hard_pairs(p: int, count: int, seed: int) -> list[tuple[int, int]]:
    """Mantissas whose quotient lies as near as can be to the middle of two floats, or to a float.

    x / s is near n / 2^p where n * s = k (mod 2^p) for a small k; odd n are the middles.
    """
    rng = np.random.default_rng(seed)
    pairs = []
    while len(pairs) < count:
        s = int(rng.integers(1 << (p - 1), 1 << p)) | 1
        k = int(rng.integers(1, 6)) * (1 if rng.random() < 0.5 else -1)
        for power in (p - 1, p, p + 1):
            n = k * pow(s, -1, 1 << power) % (1 << power)
            while n < 1 << p:
                n += 1 << power
            x = (n * s - k) >> power
            if 1 << (p - 1) <= x < 1 << p:
                pairs.append((x, s))
    return pairs


@pytest.mark.parametrize("p, count", [(24, 4_000), (53, 4_000)])
def test_hard_quotients_of_f32_and_f64(p, count):
    rng = np.random.default_rng(p)
    pairs = hard_pairs(p, count, seed=p)
    pairs += [tuple(map(int, rng.integers(1 << (p - 1), 1 << p, 2))) for _ in range(count)]
    largest = (1 << p) - 1
    pairs += [(largest, largest - i) for i in range(50)] + [(largest - i, largest) for i in range(50)]
    pairs += [((1 << (p - 1)) + i, largest) for i in range(50)] + [
        (largest - i, (1 << (p - 1)) + 1) for i in range(50)
    ]
    for x, s in pairs:
        y = nearest_float(Fraction(1, s), p)
        q0 = nearest_float(x * y, p)
        r = nearest_float(x - s * q0, p)
        assert nearest_float(q0 + r * y, p) == nearest_float(Fraction(x, s), p), (x, s)


def test_the_limits_leave_room_for_every_step():
    """With divisors and dividends within runtime/cuda/quotient.cuh's limits, no step leaves the normal range.

    The remainder r is a multiple of ulp(s) * ulp(q0) >= 2^(s + q - 2 * (p - 1)), and must not fall below the
    smallest subnormal; r * y is only added to q0, whose half unit it may not change by being rounded before.
    """
    text = (resources.files("skuda") / "cuda" / "quotient.cuh").read_text(encoding="utf-8")
    for name, p, lowest, highest in (("f32", 24, -149, 127), ("f64", 53, -1074, 1023)):
        body = text.split(f"struct limits<{name}>")[1].split("};")[0]
        exponents = {
            word: int(body.split(word)[1].split("0x1p")[1].split(",")[0].split(";")[0].rstrip("f"))
            for word in ("scale_low", "scale_high", "value_low", "value_high")
        }
        assert -exponents["scale_low"] == exponents["scale_high"]
        assert (
            exponents["scale_high"] + 1 - p >= -exponents["scale_high"]
        )  # 1 / s is as far from the ends as s
        quotient_low = exponents["value_low"] - exponents["scale_high"] - 1
        assert exponents["value_high"] - exponents["scale_low"] + 1 < highest
        assert quotient_low >= lowest + p - 1  # the quotient is normal
        # ulp(s) * ulp(q0) >= 2^(value_low - 1 - 2 * (p - 1)), for s * q0 is about x
        assert exponents["value_low"] - 1 - 2 * (p - 1) >= lowest
        # Every f16 but 0 and what is not finite is a dividend of the fast form: 2^-24 to below 2^16.
        assert exponents["value_low"] <= -24 and exponents["value_high"] >= 16


def test_logistic_quotients_of_narrow_dividends_leave_room_for_every_step():
    """quick.cuh's logistic_quotient asks for |u| <= 69 alone: its divisor is 1 .. 2^100, and a dividend is 0 or at
    least f16's 2^-24.
    """
    text = (resources.files("skuda") / "cuda" / "quick.cuh").read_text(encoding="utf-8")
    assert "usual &= absolute(u) <= C(69);" in text
    power = 100
    assert 1 + Fraction(27183, 10000) ** 69 < 2**power
    p, lowest = 24, -149
    assert -power - 1 >= lowest + p - 1  # 1 / s is normal
    assert -24 - power - 1 >= lowest + p - 1  # the quotient is normal
    assert -24 - 1 - 2 * (p - 1) >= lowest  # ulp(s) * ulp(q0), for s * q0 is about x
