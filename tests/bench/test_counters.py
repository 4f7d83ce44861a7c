"""What limits a row, by the text that Nsight Compute writes."""

from __future__ import annotations

import pytest

from skuda.bench import counters, suite
from skuda.errors import Unsupported
from skuda.generated import CATALOG

HEAD = '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'


def said(*kernels: tuple[str, dict[str, str]]) -> str:
    lines = ["==PROF== Connected to process 9", HEAD]
    for number, (name, metrics) in enumerate(kernels):
        lines += [f'"{number}","9","{name}","{metric}","unit","{value}"' for metric, value in metrics.items()]
    return "\n".join(lines)


def kernel(us: int, moved: int, slots: float, memory: float) -> dict[str, str]:
    values = (f"{us * 1000:,}", f"{moved:,}", "0", f"{slots * 1000}", "1,000", f"{memory * 100}")
    return dict(zip(counters.METRICS, values, strict=True))


def test_a_row_is_of_all_kernels_between_two_markers():
    marker = (counters.MARKER, kernel(1, 0, 0, 0))
    text = said(marker, ("row<softmax>", kernel(10, 5_000, 0.9, 0.5)), marker,
                ("along<softmax>", kernel(30, 1_000_000, 0.1, 0.8)), ("finish", kernel(10, 0, 0.3, 0.2)))  # fmt: skip
    cases = suite.cases(CATALOG, ["softmax"], ["f32"], quick=True)[:2]
    one, two = (counters.row_of(*each) for each in zip(cases, counters.by_case(text), strict=True))
    assert (one["kernels"], one["us"], one["moved"], one["slots"], one["limit"]) == (1, 10.0, 5000, 0.9, "issue slots")
    assert (two["kernels"], two["us"], two["moved"]) == (2, 40.0, 1_000_000)
    assert (two["slots"], two["memory"], two["limit"]) == (0.2, 0.65, "waiting")
    assert any("| 2 | 40.0 |" in line and line.endswith("| waiting |") for line in counters.table([one, two]))


def test_what_is_busy_limits():
    assert counters.limit(0.9, 0.3) == "memory"
    assert counters.limit(0.8, 0.9) == "issue slots"
    assert counters.limit(0.5, 0.5) == "waiting"


def test_without_nsight_compute_an_error_says_so(monkeypatch):
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    with pytest.raises(Unsupported, match="no ncu .* on the path"):
        counters.counted([], [])
