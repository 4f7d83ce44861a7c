"""These tests need a C++ compiler and Linux. Without them they are not collected, and the summary says so."""

from __future__ import annotations

from host import emulator

collect_ignore_glob = [] if emulator.COMPILER else ["test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if collect_ignore_glob:
        terminalreporter.write_line("tests/host: not collected, there is no g++ or c++ on a Linux here")
