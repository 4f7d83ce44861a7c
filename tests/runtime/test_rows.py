"""The order of sums, and the reductions of the reference, apart from any operation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from skuda.model.sum_order import GROUP, SEGMENT, accumulators
from skuda.reference.reductions import Rows, exponentials, in_order, logsumexp

LENGTHS = [
    1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 66, 255, 256, 257, 511, 512, 513, 2047, 2048, 2049, 8192, 8193, 16384, 16385,
]  # fmt: skip
TYPES = [np.float32, np.float64]


def bits(values) -> np.ndarray:
    values = np.asarray(values)
    return values.view(np.uint32 if values.dtype == np.float32 else np.uint64)


# ---- the order, once more, as the documentation of skuda.model.sum_order says it ----


def accumulators_of(length: int) -> int:
    for most, count in (
        (128, 4), (256, 8), (512, 16), (1024, 32), (2048, 64), (4096, 128), (8192, 256), (16384, 512),
    ):  # fmt: skip
        if length <= most:
            return count
    return 1024


def tree(values: list, combine, nothing) -> object:
    """Neighbours are joined until one is left; one without a neighbour is joined with nothing."""
    while len(values) > 1:
        values = values + [nothing] * (len(values) % 2)
        values = [combine(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


def slowly(values: list, combine, nothing):
    """A row's sum or product, one step at a time; `nothing` stands for what is missing."""
    if len(values) > 65536:
        parts = [slowly_segment(values[at : at + 65536], combine, nothing, 1024) for at in range(0, len(values), 65536)]
        return tree(parts, combine, nothing)
    return slowly_segment(values, combine, nothing, accumulators_of(len(values)))


def slowly_segment(values: list, combine, nothing, count: int):
    found: list = [None] * count
    for number, at in enumerate(range(0, len(values), 8)):
        group = values[at : at + 8]
        joined = tree(group + [nothing] * (8 - len(group)), combine, nothing)
        here = number % count
        found[here] = joined if found[here] is None else combine(found[here], joined)
    found = [nothing if each is None else each for each in found]
    return tree(found, combine, nothing)


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_order_is_the_one_that_is_written_down(length, C):
    rng = np.random.default_rng(length)
    row = (rng.normal(0, 1, length) * 2.0 ** rng.integers(-10, 10, length)).astype(C)
    near = (1 + rng.normal(0, 0.01, length)).astype(C)
    add, multiply = (lambda a, b: a + b), (lambda a, b: a * b)
    assert bits(in_order(row, np.add, -0.0)) == bits(slowly(list(row), add, C(-0.0)))
    assert bits(in_order(near, np.multiply, 1.0)) == bits(slowly(list(near), multiply, C(1)))


@pytest.mark.parametrize("length", [SEGMENT, SEGMENT + 1, 2 * SEGMENT + 8200, 5 * SEGMENT + 1])
def test_the_order_of_long_rows(length):
    row = np.random.default_rng(length).normal(0, 1, length).astype(np.float32)
    assert bits(in_order(row, np.add, -0.0)) == bits(slowly(list(row), lambda a, b: a + b, np.float32(-0.0)))


def test_the_slow_order_tells_orders_apart():
    """The rows of these tests are such that another order gives other bits: else they would pin nothing."""
    rng = np.random.default_rng(1)
    row = (rng.normal(0, 1, 1000) * 2.0 ** rng.integers(-10, 10, 1000)).astype(np.float32)
    same = bits(in_order(row, np.add, -0.0))
    others = [row[::-1], np.roll(row, 1), np.roll(row, 8), row.reshape(-1, 8).T.reshape(-1), np.roll(row, 4)]
    assert sum(bits(in_order(other, np.add, -0.0)) != same for other in others) >= 3
    assert bits(np.cumsum(row)[-1]) != same


def test_numbers_of_accumulators():
    assert GROUP == 8 and SEGMENT == 65536
    for length in (*LENGTHS, SEGMENT, SEGMENT + 1, 1 << 20):
        assert accumulators(length) == accumulators_of(length)
        assert accumulators(length) * 8 * (8 if length > 16384 else 4) >= min(length, SEGMENT)  # few groups each


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("length", [1, 5, 64, 65, 1000, 8193, 65537, 200_000])
def test_a_sum_is_within_its_bound(length, C):
    """21 + log2(segments) units in the last place of the sum of magnitudes; math.fsum rounds an exact sum once."""
    rng = np.random.default_rng(length)
    plain = rng.normal(0, 1, length).astype(C)
    cancelling = np.concatenate([plain[: length // 2], -plain[: length // 2], plain[:1]])
    rng.shuffle(cancelling)
    wide = (plain * 2.0 ** rng.integers(-60, 60, length)).astype(C)
    ones = np.ones(length, C)
    ones[0] = 2 / np.finfo(C).eps  # beside it a one is half a unit
    for row in (plain, np.abs(plain), cancelling, wide, ones):
        exact, size = math.fsum(row.tolist()), math.fsum(np.abs(row).tolist())
        off = Fraction(float(in_order(row, np.add, -0.0))) - Fraction(exact)
        unit = Fraction(float(np.spacing(C(size))))
        assert abs(off) <= (21 + ((len(row) - 1) // SEGMENT).bit_length()) * unit


@pytest.mark.parametrize("C", TYPES)
@pytest.mark.parametrize("length", [1, 2, 8, 9, 64, 65, 500, 1000])
def test_what_is_missing_changes_no_bit(length, C):
    """A sum of minus zeros is -0, one +0 makes it +0, and infinities and NaN go through; a product likewise."""
    minus = np.full(length, -0.0, C)
    assert np.signbit(in_order(minus, np.add, -0.0))
    for position in {0, length // 2, length - 1}:
        row = minus.copy()
        row[position] = 0.0
        total = in_order(row, np.add, -0.0)
        assert total == 0 and not np.signbit(total)
        for value in (np.inf, -np.inf, 1.5, np.finfo(C).smallest_subnormal, np.finfo(C).max, -np.finfo(C).max):
            row = minus.copy()
            row[position] = value
            assert in_order(row, np.add, -0.0) == C(value)
            ones = np.ones(length, C)
            ones[position] = value
            assert in_order(ones, np.multiply, 1.0) == C(value)
        row[position] = np.nan
        assert np.isnan(in_order(row, np.add, -0.0))


@pytest.mark.parametrize("C", TYPES)
def test_a_row_has_its_sum_wherever_it_lies(C):
    rows = np.random.default_rng(3).normal(size=(3, 4, 777)).astype(C)
    whole = in_order(rows, np.add, -0.0)
    assert whole.shape == (3, 4) and whole.dtype == C
    for index in np.ndindex(3, 4):
        assert bits(whole[index]) == bits(in_order(rows[index], np.add, -0.0))
    assert (bits(in_order(rows[::-1, :, :], np.add, -0.0)) == bits(whole[::-1])).all()


@pytest.mark.parametrize(("low", "high", "bound"), [(-32, 32, -21.9), (-87, -32, -21.2)])
def test_exponentials_of_distances_are_within_their_bound(low, high, bound):
    """As docs/numerics.md states it: of such sums are made."""
    x = np.linspace(low, high, 1_000_003).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    off = np.abs(exponentials(x, np.float32(0)) / exact - 1).max()
    assert 2.0 ** (bound - 0.4) < off <= 2.0**bound


@pytest.mark.parametrize(("C", "half"), [(np.float32, 32), (np.float64, 256)])
def test_distances_from_an_anchor_that_is_not_0_are_rounded(C, half):
    """Elements on the other side of what the anchor serves count, and their distances have one bit less than they."""
    anchor, u, most = C(2 * half), np.finfo(C).eps / 2, 0.0
    for near in (C(half - 0.01), np.nextafter(C(half - 0.01), C(half))):  # one of these has an odd last bit
        row = np.full(4096, near, C)
        row[::8] = half + 0.01
        exact = np.exp(row.astype(np.longdouble) - anchor).sum()
        most = max(most, abs(exponentials(row, anchor).astype(np.longdouble).sum() / exact - 1) / u)
        exact = np.logaddexp.reduce(row.astype(np.longdouble))
        assert abs(logsumexp(row[None])[0] - exact) <= (16 + half) * u + np.spacing(C(exact))
    assert 16 < most <= 16 + half


def test_the_limit_of_exponentials_is_what_lies_below_it():
    least = exponentials(np.float32([-87]), np.float32(0))
    below = exponentials(np.float32([-87.5, -1e30, -np.inf]), np.float32(0))
    assert (bits(below) == bits(least)).all()


def test_nothing():
    empty = np.zeros((2, 0), np.float32)
    assert bits(in_order(empty, np.add, -0.0)).tolist() == [0, 0]
    assert in_order(empty, np.multiply, 1.0).tolist() == [1, 1]


# ---- Rows ----


def rows_of(shape, axes, block=None, C=np.float32) -> Rows:
    return Rows(shape, axes, block, {"T": "f16", "C": "f32"}, C)


NAN, INF = np.nan, np.inf
EXTREMES = [  # row, largest, smallest
    ([1, 3, 2], 3, 1),
    ([-1.0, -0.0], -0.0, -1.0),
    ([0.0, -0.0], 0.0, -0.0),
    ([-0.0, 0.0], 0.0, -0.0),
    ([-0.0, -0.0], -0.0, -0.0),
    ([0.0, 0.0], 0.0, 0.0),
    ([-0.0, 5, 0.0], 5, -0.0),
    ([-5, 0.0, -0.0], 0.0, -5),
    ([-0.0, 5.0], 5.0, -0.0),
    ([NAN, 1, 2], NAN, NAN),
    ([1, 2, NAN], NAN, NAN),
    ([INF, NAN], NAN, NAN),
    ([INF, -INF, 0], INF, -INF),
    ([-INF], -INF, -INF),
    ([1e-45, 0.0], 1e-45, 0.0),
]


@pytest.mark.parametrize(("row", "largest", "smallest"), EXTREMES)
@pytest.mark.parametrize("C", TYPES)
def test_zeros_and_nan_of_extremes(row, largest, smallest, C):
    for order in (row, row[::-1]):
        values = np.array([order], C)
        reduced = rows_of((1, len(row)), range(1, 2), C=C)
        for got, expected in ((reduced.max(values), largest), (reduced.min(values), smallest)):
            assert got.shape == (1, 1) and got.dtype == C
            if np.isnan(expected):
                assert np.isnan(got).all()
            else:
                assert got.item() == C(expected) and np.signbit(got.item()) == np.signbit(expected)


def test_extremes_of_integers_and_booleans():
    whole = rows_of((2, 3), range(1, 2))
    integers = np.array([[1, 0, -(2**62)], [0, 0, 0]])
    assert whole.max(integers).tolist() == [[1], [0]] and whole.max(integers).dtype == np.int64
    assert whole.min(integers).tolist() == [[-(2**62)], [0]]
    booleans = np.array([[True, False, True], [True, True, True]])
    assert whole.any(booleans).tolist() == [[True], [True]]
    assert whole.all(booleans).tolist() == [[False], [True]]
    assert whole.any(~booleans).tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("shape", "axes", "block"),
    [
        ((4, 9), range(1, 2), None), ((4, 9), range(0, 1), None), ((2, 3, 5), range(1, 2), None),
        ((2, 3, 5), range(1, 3), None), ((2, 3, 5), range(0, 3), None), ((4, 9), range(1, 2), 4),
        ((4, 9), range(1, 2), 3), ((4, 9), range(1, 2), 20), ((9, 4), range(0, 1), 2), ((2, 7, 3), range(1, 2), 5),
        ((4, 9), range(1, 2), 1),
    ],
)  # fmt: skip
def test_each_row_and_block_is_its_own(shape, axes, block):
    values = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    reduced = rows_of(shape, axes, block)
    for name, alone in (("sum", lambda r: in_order(r, np.add, -0.0)), ("max", np.max), ("prod", np.prod)):
        got = np.broadcast_to(getattr(reduced, name)(values), shape)
        counts = np.broadcast_to(reduced.count, shape)
        for index in np.ndindex(shape):
            position = list(index)
            for axis in axes:
                start = index[axis] // block * block if block else 0
                position[axis] = slice(start, start + block if block else None)
            row = values[tuple(position)].reshape(-1)
            assert counts[index] == row.size
            if name == "prod":
                assert got[index] == pytest.approx(alone(row), rel=1e-5)
            else:
                assert bits(got[index]) == bits(np.float32(alone(row)))


def test_what_is_shared_along_a_row_is_reduced_as_if_it_were_written_out():
    shape = (3, 100)
    reduced = rows_of(shape, range(1, 2))
    column = np.random.default_rng(6).normal(size=(3, 1)).astype(np.float32)
    written = np.broadcast_to(column, shape)
    assert (bits(reduced.sum(column)) == bits(reduced.sum(written.copy()))).all()
    assert reduced.sum(np.float32(0.1)).shape == (3, 1)


def test_stored_is_rounded_to_the_output_s_type():
    reduced = rows_of((2, 3), range(1, 2))
    values = np.array([1 + 2.0**-11, 1 + 2.0**-10, 70000, 1e-9, -0.0, np.nan], np.float32)
    with np.errstate(over="ignore"):
        stored = reduced.stored(values, "T")
    assert stored.dtype == np.float32
    assert stored[:5].tolist() == [1, 1 + 2.0**-10, INF, 0, 0] and np.isnan(stored[5])
    assert reduced.stored(values[:2], "C").tolist() == values[:2].tolist()
    codes = np.array([1, 2])
    assert reduced.stored(codes, "s8") is codes
