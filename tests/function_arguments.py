"""Arguments of elementary functions: of every exponent and sign, and where functions change their ways."""

from __future__ import annotations

import numpy as np

INF, NAN = np.inf, np.nan


def values(C, count: int) -> np.ndarray:
    """Of one argument; the special values last."""
    rng, info = np.random.default_rng(6), np.finfo(C)
    kind, bits = (np.uint32, 32) if C is np.float32 else (np.uint64, 64)
    every = (np.arange(count, dtype=np.uint64) * np.uint64((2**bits - 1) // count)).astype(kind)
    ends = [0, 1, 2, 0.5, 3, INF, NAN, info.max, info.tiny, info.smallest_subnormal, 2.0**-20, 2.0**-12, 2.0**30]
    parts = [
        rng.normal(0, 1, count), rng.uniform(-800, 800, count), rng.integers(-1100, 1100, count) / 2,
        1 + rng.normal(0, 1, count) * 2.0 ** -rng.integers(0, 53, count),
        rng.integers(-(2**24), 2**24, count) * np.pi / 2, (rng.integers(-1080, 1080, count) + 0.5) * np.log(2),
        ends, np.negative(ends),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        patterns = np.concatenate([every, rng.integers(0, 2**bits - 1, count, dtype=kind)]).view(C)
        return np.concatenate([patterns, *(np.asarray(part).astype(C) for part in parts)])


def arguments(arity: int, C, count: int) -> tuple[np.ndarray, ...]:
    """Arrays of one shape, for functions of one or two arguments; of two, all pairs of special values too.

    Args:
        arity: 1 or 2.
        C: np.float32 or np.float64.
        count: how many values of each kind.
    """
    x = values(C, count)
    if arity == 1:
        return (x,)
    ends, other = x[-26:], np.random.default_rng(7).permutation(x)
    with np.errstate(all="ignore"):
        near = other * C(2) ** np.random.default_rng(8).integers(-70, 70, x.size).astype(C)
    first = np.concatenate([x, other, np.repeat(ends, ends.size), np.repeat(x[:50], ends.size)])
    return first, np.concatenate([other, near, np.tile(ends, ends.size), np.tile(ends, 50)])
