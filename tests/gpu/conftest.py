"""These tests need a CUDA device. Without one they are not collected, and the summary says so.

What was compared with the reference is merged into evidence/gpu-<name>.json: all kernels, or those that -k chose.
"""

from __future__ import annotations

import platform
from datetime import date

import pytest

from skuda import dispatch, evidence, kernel

compared: dict[str, evidence.Result] = {}  # by symbol, from the workers' reports too

collect_ignore_glob = [] if kernel.cuda_available() else ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line(
            "tests/gpu: not collected, there is no CUDA device (skuda.kernel.cuda_available)"
        )


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "call" and "symbol" in properties:
        ulp = properties.get("worst_ulp")  # none if the kernel did not even run
        compared[properties["symbol"]] = evidence.Result(properties["cases"], report.passed, ulp)


def pytest_sessionfinish(session):
    if not compared or hasattr(session.config, "workerinput"):
        return
    catalog = dispatch.catalogs()[0]
    evidence.Records(evidence.package_of(catalog)).merge(catalog, machine(), compared)


def machine() -> dict[str, str]:
    import cupy

    from skuda.codegen.commands import gpus

    driver = gpus.find()
    return {
        "gpu": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "date": date.today().isoformat(),
        "driver": driver.driver or "unknown",
        "cuda": driver.cuda,
        "cupy": cupy.__version__,
        "python": platform.python_version(),
    }


@pytest.fixture
def cupy():
    import cupy

    return cupy
