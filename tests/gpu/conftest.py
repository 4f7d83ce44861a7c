"""These tests need a CUDA device. Without one they are not collected, and the summary says so.

What was compared with the reference is merged into evidence/gpu-<name>.json, and the digests of the machine code into
evidence/code-<name>.json. A run compares the covering set of skuda.verification.coverage and the turn of the commit, or
of --turn; with --all every kernel. With --unverified it leaves out what the records call verified, or standing by the
rule; -k chooses among the rest.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib.util import find_spec

import pytest
import turns

from skuda.launch import kernel, registry
from skuda.verification import coverage, evidence, findings, machine_code

compared: dict[str, findings.Result] = {}  # by symbol, from the workers' reports too
codes: dict[str, str] = {}  # likewise, of the machine code that ran

collect_ignore_glob = [] if kernel.cuda_available() else ["test_*.py"]
# JAX runs on GPUs by a plugin of its own: pip install 'skuda[frameworks]' 'jax[cuda13]'.
NO_JAX = not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
collect_ignore = ["test_jax_gpu.py"] if NO_JAX else []
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of the memory from other tests


def pytest_addoption(parser):
    parser.addoption(
        "--unverified", action="store_true",
        help="of the kernels only those that evidence/ does not call verified, or standing by the rule",
    )  # fmt: skip


def chosen(config: pytest.Config) -> list[str]:
    """The kernels that a run compares, by symbol, in the order of the catalog."""
    catalog = registry.catalogs()[0]
    every = evidence.kernels(catalog.operations)
    symbols = set(every)
    if not config.getoption("--all", default=False):
        symbols = {*division().covering, *division().turns[turn(config)]}
    if config.getoption("--unverified", default=False):
        symbols &= set(evidence.Records(evidence.package_of(catalog)).unverified(every))
    return [symbol for symbol in every if symbol in symbols]


@cache
def division() -> coverage.Division:
    return coverage.divide(registry.catalogs()[0].operations)


def turn(config: pytest.Config) -> int:
    """The turn that a run takes."""
    return turns.turn(config, len(division().turns))


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line(
            "tests/gpu: not collected, there is no CUDA device (skuda.launch.kernel.cuda_available)"
        )
    elif NO_JAX:
        terminalreporter.write_line("tests/gpu/test_jax_gpu.py: not collected, JAX has no GPU ('jax[cuda13]')")


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "call" and "symbol" in properties:
        ulp = properties.get("worst_ulp")  # none if the kernel did not even run
        same, finite = properties.get("bit_equal", False), properties.get("finite")
        compared[properties["symbol"]] = findings.Result(properties["cases"], same, ulp, finite)
        codes[properties["symbol"]] = properties.get("code", "")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist waits for its workers, where a limit could end the run
def pytest_sessionfinish(session):
    if not compared or hasattr(session.config, "workerinput"):
        return
    write(session.config, machine())


def write(config: pytest.Config, ran_on: Mapping[str, str]) -> None:
    """Merges what was compared into the records."""
    catalog = registry.catalogs()[0]
    records = evidence.Records(evidence.package_of(catalog))
    taken = {"commit": turns.commit()[:12]}
    if not config.getoption("--all", default=False):
        taken |= {"covering": len(division().covering), "turn": turn(config), "turns": len(division().turns)}
    records.merge(catalog, ran_on, compared, taken)
    path = records.path("code", ran_on["gpu"]).with_suffix(".json")
    known = machine_code.read(path) | codes
    every = evidence.kernels(catalog.operations)
    left = {symbol: code for symbol, code in known.items() if code and symbol in every}
    machine_code.write(path, kernel.compute_capability(0), left)


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
