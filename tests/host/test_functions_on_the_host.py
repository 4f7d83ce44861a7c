"""The CUDA spellings of functions that have the same bits everywhere, compiled for the CPU: NumPy's bits."""

from __future__ import annotations

import numpy as np
import pytest

from host.functions import Functions
from skuda import reference
from skuda.codegen.intrinsics import INTRINSICS

INF, NAN = np.inf, np.nan
COMMON = [name for name, row in INTRINSICS.items() if row.common]


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    return Functions(COMMON, tmp_path_factory.mktemp("functions"))


def values(C, count: int) -> np.ndarray:
    """Of every exponent and sign, and where functions change their ways."""
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


@pytest.mark.parametrize("C", [np.float32, np.float64])
@pytest.mark.parametrize("name", COMMON)
def test_bits(functions, name, C):
    x = values(C, 4_000)
    arguments = (x,)
    if len(INTRINSICS[name].arguments) == 2:
        ends, other = x[-26:], np.random.default_rng(7).permutation(x)
        with np.errstate(all="ignore"):
            near = other * C(2) ** np.random.default_rng(8).integers(-70, 70, x.size).astype(C)
        arguments = (
            np.concatenate([x, other, np.repeat(ends, ends.size), np.repeat(x[:50], ends.size)]),
            np.concatenate([other, near, np.tile(ends, ends.size), np.tile(ends, 50)]),
        )
    with np.errstate(all="ignore"):
        expected = np.asarray(getattr(reference, name)(*arguments))
    assert expected.dtype == C
    expected = reference.narrow(expected, f"f{8 * x.itemsize}")
    got = reference.narrow(functions(name, *arguments), f"f{8 * x.itemsize}")
    assert np.isfinite(expected).mean() > 0.2
    wrong = np.flatnonzero(got.view(f"u{x.itemsize}") != expected.view(f"u{x.itemsize}"))
    assert not len(wrong), [([each[i] for each in arguments], got[i], expected[i]) for i in wrong[:5]]
