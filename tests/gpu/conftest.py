"""These tests need a CUDA device. Without one they are not collected, and the summary says so.

What was compared with the reference is merged into evidence/gpu-<name>.json: all kernels, those that -k chose, or with
--unverified those that the records do not call verified as they are.
"""

from __future__ import annotations

import platform
from datetime import date
from pathlib import Path

import pytest

from skuda.launch import kernel, registry
from skuda.verification import evidence

FOLDER = Path(__file__).parent
compared: dict[str, evidence.Result] = {}  # by symbol, from the workers' reports too

collect_ignore_glob = [] if kernel.cuda_available() else ["test_*.py"]


def pytest_addoption(parser):
    parser.addoption(
        "--unverified", action="store_true", help="of the kernels only those that evidence/ does not call verified"
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--unverified", default=False):
        catalog = registry.catalogs()[0]
        records = evidence.Records(evidence.package_of(catalog))
        left = set(records.unverified(evidence.kernels(catalog.operations)))
        known = [item for item in items if compares(item) and item.callspec.params["symbol"] not in left]
        config.hook.pytest_deselected(items=known)
        items[:] = [item for item in items if item not in set(known)]


def compares(item: pytest.Item) -> bool:
    """Whether a test is of one kernel of the catalog."""
    return item.path.parent == FOLDER and "symbol" in getattr(getattr(item, "callspec", None), "params", ())


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line(
            "tests/gpu: not collected, there is no CUDA device (skuda.launch.kernel.cuda_available)"
        )


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "call" and "symbol" in properties:
        ulp = properties.get("worst_ulp")  # none if the kernel did not even run
        same, finite = properties.get("bit_equal", False), properties.get("finite")
        compared[properties["symbol"]] = evidence.Result(properties["cases"], same, ulp, finite)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist waits for its workers, where a limit could end the run
def pytest_sessionfinish(session):
    if not compared or hasattr(session.config, "workerinput"):
        return
    catalog = registry.catalogs()[0]
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
