"""These tests need a CUDA device. Without one they are not collected, and the summary says so.

A run that compared every kernel with the reference writes evidence/gpu-<name>.json.
"""

from __future__ import annotations

import platform
from datetime import date

import pytest

from skuda import dispatch, evidence, kernel

compared: dict[str, dict] = {}  # by symbol, from the workers' reports too

collect_ignore_glob = [] if kernel.cuda_available() else ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line(
            "tests/gpu: not collected, there is no CUDA device (skuda.kernel.cuda_available)"
        )


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "call" and "symbol" in properties:
        compared[properties["symbol"]] = {"cases": properties["cases"], "bit_equal": report.passed}


def pytest_sessionfinish(session):
    if not compared or hasattr(session.config, "workerinput"):
        return
    from gpu.test_conformance_gpu import SKUS

    if SKUS.keys() <= compared.keys():
        evidence.write(dispatch.catalogs()[0], machine(), compared)


def machine() -> dict[str, str]:
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "cuda_driver": str(runtime.driverGetVersion()),
        "cupy": cupy.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


@pytest.fixture
def cupy():
    import cupy

    return cupy
