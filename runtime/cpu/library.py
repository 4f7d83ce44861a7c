"""Kernels of the CPU as libraries: compiled by the system's C++ compiler when they are first wanted, kept on disk.

They lie beside the machine code of GPUs, in a folder that is the user's alone, under the hash of all that decides them:
the text, the options, the compiler and the CPU. A library is executed, so it is believed only if it is the user's own
and ends in its key and the hash of what comes before.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from skuda.cpu.source import options_of, text_of
from skuda.errors import CompileError
from skuda.launch import cubin_cache, registry

# The bits depend on these: nothing is contracted to FMA, nothing reordered. Without traps and errno, comparisons and
# roundings can be vectors.
OPTIONS = (
    "-std=c++20", "-O2", "-ftree-vectorize", "-funswitch-loops", "--param=max-unswitch-insns=400",
    "-fvect-cost-model=dynamic", "-finline-limit=4000",
    "--param=max-inline-insns-auto=400", "-march=native", "-ffp-contract=off", "-fno-math-errno",
    "-fno-trapping-math", "-fno-strict-aliasing", "-fno-gnu-unique", "-fpermissive", "-w", "-fPIC", "-shared",
)  # fmt: skip
_FORMAT = b"skuda-cpu-1\n"

Kernel = Callable[[int, int, int], None]


@cache
def compiler() -> str | None:
    """The C++ compiler's path: what CXX names, else g++ or c++; None where there is none, or CXX is empty."""
    if not sys.platform.startswith("linux"):
        return None
    named = os.environ.get("CXX")
    if named is not None:
        return shutil.which(named) if named else None
    return shutil.which("g++") or shutil.which("c++")


def version() -> str:
    """The first line of what the compiler says of itself; empty where there is none."""
    path = compiler()
    if path is None:
        return ""
    return subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]


@cache
def kernel(package: str, source: str, entry: str) -> Kernel:
    """The function of an entry: some units of its work, with the arguments at an address.

    Raises:
        CompileError: the compiler refused it, or there is none; or the disk keeps no library that may be executed.
    """
    program = registry.catalog_of(package).source(source)
    text, options = text_of(program, entry), (*OPTIONS, *options_of(program, entry))
    try:
        function = ctypes.CDLL(str(_library(text, options, entry))).kernel
    except OSError as error:
        raise CompileError(f"{entry}: no library of it ({error})") from error
    function.argtypes = [ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
    function.restype = None
    return function


def _library(text: str, options: Sequence[str], entry: str) -> Path:
    """The library of a text: from disk when it is there, else compiled and put there."""
    key = _key(text, options)
    folder = cubin_cache.folder()
    if folder is None:
        raise CompileError(f"{entry}: no folder keeps a library of it")
    path = folder / f"{key.hex()}.so"
    if not _is_ours(path, key):
        cubin_cache.remove_abandoned(folder)
        _build(text, options, entry, key, path)
    return path


def _key(text: str, options: Sequence[str]) -> bytes:
    path = compiler() or ""
    stamp = os.stat(path).st_size if path else 0
    return hashlib.sha256(repr((_FORMAT, text, options, path, stamp, _cpu())).encode()).digest()


@cache
def _cpu() -> str:
    """What the CPU can do, for which a library is made."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _is_ours(path: Path, key: bytes) -> bool:
    content = cubin_cache.own_bytes(path)
    if content is None:
        return False
    tail = len(_FORMAT) + 2 * len(key)
    return content[-tail:] == _end(key, content[:-tail])


def _end(key: bytes, library: bytes) -> bytes:
    return _FORMAT + key + hashlib.sha256(library).digest()


def _build(text: str, options: Sequence[str], entry: str, key: bytes, path: Path) -> None:
    """Compile a library, and put it at a path whole or not at all."""
    with cubin_cache.replacing(path) as made:
        _compile(text, options, entry, made)
        with made.open("ab") as file:
            file.write(_end(key, made.read_bytes()))


def _compile(text: str, options: Sequence[str], entry: str, made: Path) -> None:
    path = compiler()
    if path is None:
        raise CompileError(f"{entry}: a C++ compiler is needed (g++, or what CXX names), and none is there")
    said = subprocess.run(
        [path, *options, "-x", "c++", "-", "-o", str(made)], input=text, capture_output=True, text=True, check=False
    )
    if said.returncode:
        raise CompileError(f"{entry}: {path} refused the source:\n{said.stderr[:4000]}")
