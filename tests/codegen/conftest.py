"""Calls of catalogs that tests generate.

Kernels run on the CPU where there is a C++ compiler and Linux; tests/host says so where there is none.
"""

from __future__ import annotations

import numpy as np
import pytest
from host import emulator

ON_THE_HOST = ["test_intrinsics_on_the_host.py", "test_own_types_on_the_host.py"]
collect_ignore = [] if emulator.COMPILER else ON_THE_HOST


@pytest.fixture
def run(ours, backend):
    """Calls a function of a module's catalog, its fixture `ours`, on this backend's arrays; NumPy arrays in and out."""

    def call(name, *arguments, **options):
        given = [backend.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
        result = getattr(ours, name)(*given, **options)
        return tuple(map(backend.numpy, result)) if isinstance(result, tuple) else backend.numpy(result)

    return call
