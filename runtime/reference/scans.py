"""Scans of the CPU reference, in the order of `model.scan_order`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skuda.model.scan_order import SEGMENT_TILES, TILE_WARPS, WARP_GROUPS
from skuda.model.sum_order import GROUP
from skuda.reference.elementary import exp
from skuda.reference.fused import fma


class Join(NamedTuple):
    """What a scan joins values by.

    Attributes:
        of: two values as one, the earlier one first.
        nothing: changes no bit of what it is joined with: the limits of a type as "least" and "greatest"; of pairs two.
        empty: the value of no elements.
        begin: makes pairs of values, where these are no pairs.
        end: makes values of pairs.
    """

    of: Callable[[np.ndarray, np.ndarray], np.ndarray]
    nothing: float | str | tuple[float, float]
    empty: float | str
    begin: Callable[[np.ndarray], np.ndarray] = lambda values: values
    end: Callable[[np.ndarray], np.ndarray] = lambda values: values


def _largest(a, b):
    return _extreme(np.maximum(a, b), a, b, np.logical_and)


def _smallest(a, b):
    return _extreme(np.minimum(a, b), a, b, np.logical_or)


def _extreme(found, a, b, joined: np.ufunc):
    """Of two zeros, -0 if both signs are minus (of a maximum), or if one is."""
    if found.dtype.kind != "f":
        return found
    zero = (a == 0) & (b == 0)
    if not zero.any():
        return found
    minus = joined(np.signbit(a), np.signbit(b))
    return np.where(zero, np.where(minus, found.dtype.type(-0.0), found.dtype.type(0.0)), found)


def _alone(x):
    return np.stack([x, np.full_like(x, -0.0)])


def _log_of_sum(first, later):
    """Sums of exponentials, pairs along the first axis, `e^largest (1 + more)`; the lesser counts beside the larger."""
    rises, same = later[0] > first[0], later[0] == first[0]
    high, low = np.where(rises, later[0], first[0]), np.where(rises, first[0], later[0])
    more, other = np.where(rises, later[1], first[1]), np.where(rises, first[1], later[1])
    with np.errstate(invalid="ignore"):  # infinities have no difference
        away = np.where(same, 0, low - high).astype(high.dtype)
    share = np.where(away < (-87 if away.dtype == np.float32 else -708), -0.0, exp(away)).astype(high.dtype)
    sums = fma(1 + other, share, more) if more.dtype == np.float32 else (1 + other) * share + more
    return np.stack([high, sums])


def _logarithm(sums):
    from skuda.reference.powers import log1p  # few scans ask for it

    largest, more = sums
    return largest + log1p(more)


def _linear(first, later):
    """`y = a * before + b` twice, as pairs along the first axis. What is multiplied by 0 is forgotten, whatever it is;
    0 stays as it is."""
    (a, b), (factor, term) = first, later
    forgets, none = factor == 0, b == 0
    product = np.where(forgets | (a == 0), b.dtype.type(0), factor * a)
    return np.stack([product, np.where(forgets, b.dtype.type(-0.0), np.where(none, b, factor * b)) + term])


JOINS = {
    "cumsum": Join(np.add, -0.0, 0),
    "cumprod": Join(np.multiply, 1, 1),
    "cummax": Join(_largest, "least", "least"),
    "cummin": Join(_smallest, "greatest", "greatest"),
    "logcumsumexp": Join(_log_of_sum, (-np.inf, -0.0), "least", _alone, _logarithm),
    "linear_recurrence": Join(_linear, (1, -0.0), 0, end=lambda steps: steps[1]),
}


def scanned(rows: np.ndarray, name: str, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
    """A scan of each row, in the order of `model.scan_order`.

    Args:
        rows: in the compute type, of shape (..., length); of a recurrence (2, ..., length), factors and terms.
        name: of `JOINS`.
        exclusive: each element is left out of its own value.
        reverse: from the end of a row.

    Returns:
        A value for each element: (..., length).
    """
    join = JOINS[name]
    pairs = isinstance(join.nothing, tuple)
    nothing, empty = (_value(each, rows.dtype) for each in (join.nothing, join.empty))
    rows = join.begin(rows)
    if pairs:
        nothing = nothing.reshape(2, *[1] * (rows.ndim - 1))
    length = rows.shape[-1]
    if not rows.size:
        return join.end(rows).copy()
    count = -(-length // GROUP)
    padded = np.empty((*rows.shape[:-1], count * GROUP), rows.dtype)
    padded[...] = nothing
    padded[..., :length] = rows
    groups = (padded[..., ::-1] if reverse else padded).reshape(*rows.shape[:-1], count, GROUP)
    within = groups.copy()
    for index in range(1, GROUP):
        within[..., index] = join.of(within[..., index - 1], within[..., index])
    before = _before_groups(within[..., -1], join, nothing)[..., None]
    if exclusive:
        result = np.concatenate([before, join.of(before, within[..., :-1])], axis=-1)
    else:
        result = join.of(before, within)
    result = join.end(result)
    result = result.reshape(*result.shape[:-2], count * GROUP)
    result = (result[..., ::-1] if reverse else result)[..., :length].copy()
    if exclusive:
        result[..., -1 if reverse else 0] = empty
    return result


def _value(limit: float | str | tuple[float, float], dtype: np.dtype):
    if isinstance(limit, tuple):
        return np.array(limit, dtype)
    if limit in ("least", "greatest"):
        sign = -1 if limit == "least" else 1
        if dtype.kind == "f":
            return dtype.type(sign * np.inf)
        return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
    return dtype.type(limit)


def _before_groups(totals: np.ndarray, join: Join, nothing) -> np.ndarray:
    """What stands before each group, from the groups' totals (..., groups)."""
    lead, count = totals.shape[:-1], totals.shape[-1]
    lanes = min(WARP_GROUPS, 1 << (count - 1).bit_length())
    warps = min(TILE_WARPS, 1 << (-(-count // lanes) - 1).bit_length())
    tiles = -(-count // (lanes * warps))
    padded = np.empty((*lead, tiles * warps * lanes), totals.dtype)
    padded[...] = nothing
    padded[..., :count] = totals
    in_warp = _tree(padded.reshape(*lead, tiles, warps, lanes), join)
    in_tile = _tree(in_warp[..., -1], join)
    carried = np.empty((*lead, tiles), totals.dtype)
    nothing_yet = np.empty((*lead, 1), totals.dtype)
    nothing_yet[...] = nothing
    segments = tile_sum = nothing_yet[..., 0]
    for tile in range(tiles):
        carried[..., tile] = join.of(segments, tile_sum)
        tile_sum = join.of(tile_sum, in_tile[..., tile, -1])
        if (tile + 1) % SEGMENT_TILES == 0:
            segments, tile_sum = join.of(segments, tile_sum), nothing_yet[..., 0]
    before_warp = join.of(carried[..., None], _later(in_tile, nothing))
    before = join.of(before_warp[..., None], _later(in_warp, nothing))
    return before.reshape(*lead, -1)[..., :count]


def _tree(values: np.ndarray, join: Join) -> np.ndarray:
    """The scan of the last axis, a power of two long: the total of a first half comes before each of the second."""
    values = values.copy()
    size, half = values.shape[-1], 1
    while half < size:
        pairs = values.reshape(*values.shape[:-1], size // (2 * half), 2, half)
        pairs[..., 1, :] = join.of(pairs[..., 0, -1:], pairs[..., 1, :])
        half *= 2
    return values


def _later(values: np.ndarray, nothing) -> np.ndarray:
    """Each value at the place of the next one."""
    first = np.empty((*values.shape[:-1], 1), values.dtype)
    first[...] = nothing.reshape(2, *[1] * (values.ndim - 1)) if np.ndim(nothing) else nothing
    return np.concatenate([first, values[..., :-1]], axis=-1)
