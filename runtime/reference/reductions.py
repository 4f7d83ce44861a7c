"""Reductions of the CPU reference, in the order of `model.sum_order`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from skuda.model.dtypes import DTYPES
from skuda.model.operation import Types
from skuda.model.sum_order import GROUP, SEGMENT, accumulators, slab


def in_order(
    rows: np.ndarray,
    combine: Callable,
    identity: float | np.ndarray,
    whole: int | None = None,
    group: Callable | None = None,
) -> np.ndarray:
    """A sum or product of each row, in the order of `model.sum_order`.

    Args:
        rows: in the compute type, of shape (..., length).
        combine: np.add or np.multiply.
        identity: what missing elements count as; where they are several values along the first axis, so many.
        whole: the length that the order is that of, where these rows are blocks that the end of an axis cuts short.
        group: what makes one of eight neighbours, along the last axis; a tree of `combine` if it is None.

    Returns:
        Shape (...).
    """
    length = rows.shape[-1]
    lead = rows.shape[:-1]
    nothing = np.reshape(identity, (*np.shape(identity), *[1] * (rows.ndim - 1 if np.ndim(identity) else 0)))
    count = accumulators(length if whole is None else whole)
    segments = []
    for start in range(0, length, SEGMENT):
        part = rows[..., start : start + SEGMENT]
        turns = -(-part.shape[-1] // (count * GROUP))
        dealt = count
        if turns == 1:  # accumulators without a group leave the others' sum as it is, so they take no memory
            dealt = 1 << (-(-part.shape[-1] // GROUP) - 1).bit_length()
        padded = np.full((*lead, turns * dealt * GROUP), nothing, rows.dtype)
        padded[..., : part.shape[-1]] = part
        padded = padded.reshape(*lead, turns, dealt, GROUP)
        groups = _joined(padded, combine) if group is None else group(padded)
        totals = groups[..., 0, :]
        for turn in range(1, turns):
            totals = combine(totals, groups[..., turn, :])
        segments.append(_joined(totals, combine))
    if not segments:
        return np.full(lead, abs(identity), rows.dtype)
    missing = (1 << (len(segments) - 1).bit_length()) - len(segments)
    segments += [np.full((*lead, 1), nothing, rows.dtype)[..., 0]] * missing
    return _joined(np.stack(segments, axis=-1), combine)


def squared_deviations(rows: np.ndarray, whole: int | None = None) -> np.ndarray:
    """The sum of the squared distances of each row's elements from their mean, in one pass in the order of
    `model.sum_order`.

    Args, returns: as `in_order`.
    """
    single = np.stack([np.ones_like(rows), rows, np.zeros_like(rows), np.zeros_like(rows)])
    return in_order(single, _moments_of_both, 0.0, whole, _moments_of_group)[3]


def _moments_of_group(group: np.ndarray) -> np.ndarray:
    """(count, pivot, offset, squares) of eight neighbours, as many as the row has: their number, the first of them, how
    far their mean lies from it, and the sum of their squared distances from the mean."""
    C = group.dtype.type
    counts, pivots = group[0], group[1]
    present, count, pivot = counts != 0, counts.sum(axis=-1, dtype=group.dtype), pivots[..., 0]
    distances = np.where(present, pivots - pivot[..., None], C(0))
    offset = _joined(distances, np.add) / count
    apart = distances - offset[..., None]
    squares = _joined(np.where(present, apart * apart, C(0)), np.add)
    usual, finite = np.isfinite(offset), np.isfinite(pivots).all(axis=-1)
    squares = np.where(usual | (count == 0), squares, np.where(finite, C(np.inf), C(np.nan)))
    return np.stack([count, pivot, np.where(usual, offset, C(0)), squares])


def _moments_of_both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The moments of two parts of a row, the first of which is a (Chan, Golub and LeVeque 1979)."""
    C = a.dtype.type
    count = a[0] + b[0]
    share = np.where(a[0] == b[0], C(0.5), b[0] / np.where(count > 1, count, C(1)))
    apart = (b[1] - a[1]) + (b[2] - a[2])
    offset = a[2] + apart * share
    none, near = a[0] == 0, np.isfinite(offset)
    squares = (a[3] + b[3]) + np.where(near, apart * (apart * (a[0] * share)), C(np.inf))
    joined = np.where(none, b[1:], [a[1], np.where(near, offset, C(0)), squares])
    return np.concatenate([count[None], joined])


def logsumexp(rows: np.ndarray, whole: int | None = None) -> np.ndarray:
    """The logarithm of the sum of exponentials of each row's elements, in one pass in the order of `model.sum_order`.

    Args, returns: as `in_order`; -inf of no elements.
    """
    from skuda.reference.elementary import log  # few reductions ask for it

    if not rows.shape[-1]:
        return np.full(rows.shape[:-1], -np.inf, rows.dtype)
    nothing = np.array([-np.inf, 0], rows.dtype)
    single = np.stack([rows, np.ones_like(rows)])
    largest, total = in_order(single, _exponentials_of_both, nothing, whole, _exponentials_of_group)
    share = total / exponentials(largest, _anchor(largest))
    return np.where(np.isfinite(largest), largest + log(share), largest)


_LOG2_E, _LN_2 = np.float32(np.log2(np.e)), np.float32(np.log(2))
_ROUNDS = np.float32(1.5 * 2**23)  # added and taken away again, it leaves an integer
# e^r for |r| up to ln(2) / 2 within 2^-23.1, by powers of r, the highest first.
_POWER = tuple(map(np.float32, (0.008312515, 0.0418902, 0.16667114, 0.4999923, 1, 1)))


def _exponentials_of_group(group: np.ndarray) -> np.ndarray:
    """(largest, sum) of eight neighbours: the largest, and the sum of exponentials of distances from its anchor."""
    values = group[0]
    largest = np.max(values, axis=-1)
    total = _joined(exponentials(values, _anchor(largest)[..., None]), np.add)
    return np.stack([largest, np.where(np.isfinite(largest), total, 0).astype(values.dtype)])


def _exponentials_of_both(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same of two parts of a row: what each has counts beside the anchor of both."""
    largest = np.maximum(a[0], b[0])
    to = _anchor(largest)
    return np.stack([largest, _moved(a, to) + _moved(b, to)])


def _moved(part: np.ndarray, to: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(part[1] == 0, part[1], part[1] * exponentials(_anchor(part[0]), to))


def _anchor(largest: np.ndarray) -> np.ndarray:
    """What distances are taken from: the multiple of 64, or of 512 in f64, next to the largest element."""
    apart = largest.dtype.type(64 if largest.dtype == np.float32 else 512)
    return np.rint(largest / apart) * apart


def exponentials(values: np.ndarray, to: np.ndarray) -> np.ndarray:
    """The exponentials of distances; below a limit they count as the limit, and so do infinities, which have none."""
    from skuda.reference.elementary import exp, fma32  # few reductions ask for them

    with np.errstate(invalid="ignore"):
        x = np.fmax(values - to, values.dtype.type(-87 if values.dtype == np.float32 else -708))
    if x.dtype == np.float64:
        return exp(x)
    k = fma32(x, _LOG2_E, _ROUNDS) - _ROUNDS
    r = fma32(k, -_LN_2, x)
    power = np.full_like(r, _POWER[0])
    for coefficient in _POWER[1:]:
        power = fma32(power, r, coefficient)
    return np.ldexp(power, np.nan_to_num(k).astype(np.int32))


def in_slabs(rows: np.ndarray, combine: Callable, identity: float) -> np.ndarray:
    """A sum or product of each row, `model.sum_order.slab` elements after each other and then a tree of these.

    Args, returns: as `in_order`.
    """
    length, lead = rows.shape[-1], rows.shape[:-1]
    if not length:
        return np.full(lead, abs(identity), rows.dtype)
    each = slab(length)
    padded = np.full((*lead, (1 << (-(-length // each) - 1).bit_length()) * each), identity, rows.dtype)
    padded[..., :length] = rows
    parts = padded.reshape(*lead, -1, each)
    totals = parts[..., 0]
    for index in range(1, each):
        totals = combine(totals, parts[..., index])
    return _joined(totals, combine)


def _joined(values: np.ndarray, combine: Callable) -> np.ndarray:
    """The last axis, a power of two long, made one by adding neighbours."""
    while values.shape[-1] > 1:
        values = combine(values[..., ::2], values[..., 1::2])
    return values[..., 0]


class Rows:
    """What a generated reference calls: reductions of values over the rows of a chunk.

    Args:
        shape: of the chunk.
        axes: what a row lies along, ascending: its elements are counted in row-major order of these.
        block: length of the blocks along the one axis, or None.
        types: element types by letter.
        C: the compute type.
        slabs: whether sums are those across rows, of slabs.
    """

    def __init__(
        self, shape: tuple[int, ...], axes: Sequence[int], block: int | None, types: Types, C, slabs: bool = False
    ):
        self.shape = shape
        self.axes = axes
        # A block that is longer than its axis is a short one: no memory may follow from its length.
        self.block = block and min(block, max(shape[axes[0]], 1))
        self._types = types
        self._C = C
        self._slabs = slabs

    @property
    def count(self):
        """How many elements a row has, in the compute type, as an array that broadcasts."""
        if self.block is None:
            return self._C(np.prod([self.shape[axis] for axis in self.axes], dtype=np.int64))
        length = self.shape[self.axes[0]]
        starts = np.arange(length) // self.block * self.block
        counts = np.minimum(starts + self.block, length) - starts
        return counts.astype(self._C).reshape([-1 if axis in self.axes else 1 for axis in range(len(self.shape))])

    def sum(self, values):
        """The sum, in that order, of integers exactly; of nothing 0."""
        if np.asarray(values).dtype.kind == "i":
            return self._reduced(values, lambda rows: rows.sum(axis=-1))
        return self._reduced(values, lambda rows: self._in_order(rows, np.add, -0.0))

    def prod(self, values):
        """The product, in that order, of integers in 64 bits; of nothing 1."""
        if np.asarray(values).dtype.kind == "i":
            return self._reduced(values, lambda rows: rows.prod(axis=-1))
        return self._reduced(values, lambda rows: self._in_order(rows, np.multiply, 1.0))

    def _in_order(self, rows: np.ndarray, combine: Callable, identity: float) -> np.ndarray:
        return in_slabs(rows, combine, identity) if self._slabs else in_order(rows, combine, identity, self.block)

    def squared_deviations(self, values):
        """The sum of the squared distances from the mean, in that order; of nothing 0."""
        return self._reduced(values, lambda rows: squared_deviations(rows, self.block))

    def logsumexp(self, values):
        """The logarithm of the sum of exponentials, in that order; of nothing -inf."""
        return self._reduced(values, lambda rows: logsumexp(rows, self.block))

    def max(self, values):
        """The largest; NaN if any is NaN; +0 is above -0; of nothing -inf, or the least integer."""
        return self._reduced(values, lambda rows: _extreme(rows, np.max, np.logical_and))

    def min(self, values):
        """The smallest; NaN if any is NaN; -0 is below +0."""
        return self._reduced(values, lambda rows: _extreme(rows, np.min, np.logical_or))

    def sparsemax_threshold(self, values):
        """The number that the elements above it exceed by 1 in all, of rows whose largest element is 0: by Newton's
        method from -1 on, until it rises no more."""
        return self._reduced(values, self._threshold)

    def _threshold(self, rows: np.ndarray) -> np.ndarray:
        found, rises = np.full(rows.shape[:-1], -1, rows.dtype), np.ones(rows.shape[:-1], bool)
        while rises.any():
            some, value = rows[rises], found[rises]
            above = ~(some <= value[..., None])
            total = self._in_order(np.where(above, some, self._C(0)), np.add, -0.0)
            count = self._in_order(np.where(above, self._C(1), self._C(0)), np.add, -0.0)
            following = (total - self._C(1)) / count
            found[rises] = following
            rises[rises] = following > value
        return found

    def argmax(self, values):
        """The index of the first of the largest in its row; the first NaN if any is NaN."""
        return self._reduced(values, lambda rows: rows.argmax(axis=-1))

    def argmin(self, values):
        """The index of the first of the smallest in its row; the first NaN if any is NaN."""
        return self._reduced(values, lambda rows: rows.argmin(axis=-1))

    def any(self, values):
        """Whether some element is true."""
        return self._reduced(values, lambda rows: rows.any(axis=-1))

    def all(self, values):
        """Whether each element is true."""
        return self._reduced(values, lambda rows: rows.all(axis=-1))

    def cumsum(self, values, exclusive: bool = False, reverse: bool = False):
        """The sum of each element and those before it in its row, in the order of `model.scan_order`."""
        return self._scanned(values, "cumsum", exclusive, reverse)

    def cumprod(self, values, exclusive: bool = False, reverse: bool = False):
        """The product of each element and those before it in its row, in the order of `model.scan_order`."""
        return self._scanned(values, "cumprod", exclusive, reverse)

    def cummax(self, values, exclusive: bool = False, reverse: bool = False):
        """The largest of each element and those before it in its row, in the order of `model.scan_order`."""
        return self._scanned(values, "cummax", exclusive, reverse)

    def cummin(self, values, exclusive: bool = False, reverse: bool = False):
        """The smallest of each element and those before it in its row, in the order of `model.scan_order`."""
        return self._scanned(values, "cummin", exclusive, reverse)

    def logcumsumexp(self, values, exclusive: bool = False, reverse: bool = False):
        """The logarithm of the sum of exponentials of each element and those before it in its row, in that order."""
        return self._scanned(values, "logcumsumexp", exclusive, reverse)

    def stored(self, values, element: str):
        """Values as an output holds them: rounded to its element type, and widened again."""
        dtype = DTYPES[self._types.get(element, element)]
        if dtype.kind != "float":
            return self.wrapped(values, element) if self._C is np.int64 else values
        return dtype.rounded(values).astype(self._C)

    def word(self, letter: str) -> str:
        """The element type of a type letter."""
        return self._types[letter]

    def smallest(self, element: str):
        """The least positive value of an element type, in the compute type."""
        return self._C(DTYPES[self._types.get(element, element)].smallest)

    def saturated(self, values, element: str):
        """Integers as the nearest of an integer type."""
        dtype = DTYPES[self._types.get(element, element)]
        return np.clip(np.asarray(values, np.int64), dtype.lowest, dtype.highest)

    def wrapped(self, values, element: str):
        """The lowest bits of integers, as many as an integer type has: in two's complement where it has a sign."""
        dtype = DTYPES[self._types.get(element, element)]
        above = 64 - dtype.bits
        shifted = np.left_shift(np.asarray(values, np.int64), above)
        return np.right_shift(shifted if dtype.signed else shifted.view(np.uint64), above).astype(np.int64)

    def stochastic(self, values, bits, element: str):
        """Reals as one of their two neighbours of a float type: away from 0 as often as random bits are below their
        distance from the one nearer to 0."""
        dtype, size = DTYPES[self._types.get(element, element)], np.abs(values).astype(np.float64)
        least = np.frexp(np.float64(dtype.smallest))[1] - 1
        unit = np.maximum(np.frexp(size)[1] - 1 - dtype.mantissa, least)  # the exponent of the neighbours' distance
        steps = np.ldexp(np.where(np.isfinite(size), size, 0.0), -unit)
        whole = np.floor(steps)
        above = (np.asarray(bits) & 0xFFFFFFFF) < np.floor((steps - whole) * 2.0**32)
        rounded = np.copysign(np.ldexp(whole + above, unit), values)
        return np.where(np.isfinite(values), rounded, values).astype(self._C)

    def popcount(self, values, element: str):
        """How many of the bits are 1 that an integer type has."""
        own = self._own_bits(values, element)
        for bits, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
            own = (own & np.uint64(mask)) + (own >> np.uint64(bits) & np.uint64(mask))  # counts of twice as many bits
        return (own * np.uint64(0x0101010101010101) >> np.uint64(56)).astype(np.int64)

    def clz(self, values, element: str):
        """How many of the bits that an integer type has are 0 above the first that is 1."""
        own, found = self._own_bits(values, element), np.zeros(np.shape(values), np.int64)
        for bits in (32, 16, 8, 4, 2, 1):  # the first that is 1 is not among the lower half
            above = own >> np.uint64(bits) != 0
            own, found = np.where(above, own >> np.uint64(bits), own), np.where(above, found + bits, found)
        width = DTYPES[self._types.get(element, element)].bits
        return width - found - (own != 0)

    def _own_bits(self, values, element: str) -> np.ndarray:
        """The bits that an integer type has, as unsigned integers."""
        width = DTYPES[self._types.get(element, element)].bits
        return np.asarray(values, np.int64).view(np.uint64) & np.uint64((1 << width) - 1)

    def linear_recurrence(self, pair, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        """`y = a * before + b` of each element's pair (a, b), in the order of `model.scan_order`."""
        full = np.stack([np.broadcast_to(values, self.shape) for values in pair])
        return self._scanned(full, "linear_recurrence", exclusive, reverse)

    def _scanned(self, values, name: str, exclusive: bool, reverse: bool) -> np.ndarray:
        from skuda.reference.scans import scanned

        rank = len(self.shape)
        full = values if np.ndim(values) > rank else np.broadcast_to(values, self.shape)
        pairs, kept = range(full.ndim - rank), [axis for axis in range(rank) if axis not in self.axes]
        order = [*kept, *self.axes]
        moved = full.transpose(*pairs, *(len(pairs) + axis for axis in order))
        lead, shape = moved.shape[: len(pairs) + len(kept)], [self.shape[axis] for axis in order]
        found = scanned(moved.reshape(*lead, prod(shape[len(kept) :])), name, exclusive, reverse)
        return found.reshape(shape).transpose(np.argsort(order))

    def _reduced(self, values, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        full = np.broadcast_to(values, self.shape)
        kept = [axis for axis in range(full.ndim) if axis not in self.axes]
        lead = [full.shape[axis] for axis in kept]
        length = prod(full.shape[axis] for axis in self.axes)
        rows = full.transpose(*kept, *self.axes).reshape(*lead, length)
        if self.block is None:
            return np.expand_dims(reduce(rows), tuple(self.axes))
        whole = length // self.block * self.block
        parts = [reduce(rows[..., :whole].reshape(*rows.shape[:-1], -1, self.block))]
        if whole < length:
            parts.append(reduce(rows[..., whole:])[..., None])
        each = np.concatenate(parts, axis=-1)[..., np.arange(length) // self.block]
        return np.moveaxis(each, -1, self.axes[0])


def _extreme(rows: np.ndarray, reduce: Callable, joined: np.ufunc) -> np.ndarray:
    """np.max or np.min. Where that is a zero, it is -0 if all signs are minus (max), or if any is (min)."""
    if not rows.shape[-1]:
        limits = np.iinfo(rows.dtype) if rows.dtype.kind == "i" else np.finfo(rows.dtype)
        nothing = limits.min if reduce is np.max else limits.max
        return np.full(rows.shape[:-1], nothing * (1 if rows.dtype.kind == "i" else np.inf), rows.dtype)
    value = reduce(rows, axis=-1)
    if rows.dtype.kind != "f" or not np.any(value == 0):
        return value
    minus = joined.reduce(np.signbit(rows), axis=-1)
    return np.where(value == 0, np.where(minus, -np.zeros_like(value), np.zeros_like(value)), value)
