"""Functions in common steps: the device headers, compiled for the CPU, give the bits of the NumPy text."""

from __future__ import annotations

import numpy as np
import pytest

from host import emulator
from skuda import reference
from skuda.codegen.intrinsics import COMMON_HEADER, INTRINSICS

COMMON = {name: row for name, row in INTRINSICS.items() if row.common and row.arguments == "r"}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    headers = dict.fromkeys([COMMON_HEADER, *(row.header for row in COMMON.values() if row.header)])
    spellings = {name: row.cuda for name, row in COMMON.items()}
    return emulator.Functions(spellings, headers, tmp_path_factory.mktemp("host"))


def arguments(C, count: int = 400_000) -> np.ndarray:
    """All exponents and signs evenly, where functions bend more densely, and unusual ones."""
    kind, bits = (np.uint32, 32) if C is np.float32 else (np.uint64, 64)
    rng = np.random.default_rng(bits)
    even = np.linspace(0, 2.0**bits, count, endpoint=False).astype(kind) + rng.integers(0, 2**8, count).astype(kind)
    info = np.finfo(C)
    few = [0, info.smallest_subnormal, info.tiny, 0.5, 1, 2, info.max, np.inf]
    dense = [rng.normal(0, 2, count // 2), rng.uniform(-150, 100, count // 2), rng.uniform(-0.8, -0.7, 5_000)]
    if C is np.float64:
        dense.append(rng.uniform(-760, 720, 20_000))
    parts = [even.view(C), *(each.astype(C) for each in dense), np.array([*few, *np.negative(few), np.nan], C)]
    return np.concatenate(parts)


@pytest.mark.parametrize("C", [np.float32, np.float64])
@pytest.mark.parametrize("name", COMMON)
def test_bits(host, name, C):
    x = arguments(C)
    kind = np.uint32 if C is np.float32 else np.uint64
    with np.errstate(all="ignore"):
        expected = eval(COMMON[name].numpy.format("x"), {**vars(reference), "x": x, "np": np})
    actual = host(name, x)
    assert expected.dtype == C
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    wrong = np.flatnonzero((expected.view(kind) != actual.view(kind)) & ~nan)
    assert not len(wrong), [(x[i].hex(), expected[i].hex(), actual[i].hex()) for i in wrong[:5]]
    assert (~nan).sum() > 0.45 * x.size  # of log, the other half is negative
