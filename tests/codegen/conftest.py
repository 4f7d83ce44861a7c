"""Kernels run on the CPU where there is a C++ compiler and Linux; tests/host says so where there is none."""

from __future__ import annotations

from host import emulator

ON_THE_HOST = ["test_intrinsics_on_the_host.py", "test_own_types_on_the_host.py"]
collect_ignore = [] if emulator.COMPILER else ON_THE_HOST
