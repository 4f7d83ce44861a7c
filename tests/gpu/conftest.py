"""These tests need a CUDA device. Without one they are not collected, and the summary says so."""

from __future__ import annotations

import pytest

from skuda import kernel

collect_ignore_glob = [] if kernel.cuda_available() else ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line("tests/gpu: not collected, there is no CUDA device (skuda.kernel.cuda_available)")


@pytest.fixture
def cupy():
    import cupy

    return cupy
