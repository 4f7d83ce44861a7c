"""Compilations that take less than half as long, without optimization: for tests of whether sources are accepted.

They have a process of their own. NVRTC keeps `--Ofast-compile` for the rest of a process: what is compiled later has
other machine code, whatever options it has.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from skuda.launch import compiler


def compile_quickly(source: str, name: str, entries: Sequence[str], arch: str) -> compiler.Compiled:
    """As `compiler.compile_cubin`."""
    return _process().submit(compiler.compile_cubin, source, name, [*entries], arch).result()


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin)


def _begin() -> None:
    logging.disable(logging.WARNING)  # of compilations that take long
    compiler.OPTIONS = (*compiler.OPTIONS, "--Ofast-compile=max")
