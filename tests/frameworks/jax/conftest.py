"""These tests need JAX, which `make test-frameworks` installs. Without it they are not collected, and the summary says
so. They run on the CPU, which stands for several devices."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

DEVICES = 4

# Both are read when JAX first asks for devices.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}".strip()

collect_ignore_glob = [] if find_spec("jax") else ["test_*.py"]


@pytest.fixture(autouse=True)
def precision(request):
    """Enables integers of 64 bits for an operation that takes them whatever its types are."""
    from .support import wide_for

    with wide_for(request):
        yield


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line("tests/frameworks/jax: not collected, there is no JAX (make test-frameworks)")
