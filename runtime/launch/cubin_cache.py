"""Compiled kernels on disk, so that a kernel is compiled once a machine and not once a process.

An entry's name is the hash of all that decides its machine code; nothing is ever out of date, so nothing is
ever checked against a clock. NVRTC's version is left out of that hash: asking for it costs more than
reading the entry, and the options pin the arithmetic.

The machine code is executed, so only what this user wrote is believed: the folder is the user's alone, each
entry is a regular file of the user's, and it carries its own key and the hash of its content. Whatever
fails a check is compiled anew and replaced. An entry appears whole or not at all (written under another
name, then renamed), so processes need no lock.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from skuda.launch import compiler

# Part of every key and of every entry; to be changed whenever the layout of an entry changes.
FORMAT = b"skuda-1\n"

_DIGEST_SIZE = hashlib.sha256().digest_size
_NAME_LENGTH = struct.Struct("<I")
_UNFINISHED = r"\.[0-9a-f]{64}\.\w+\.tmp"
_OURS = rf"[0-9a-f]{{64}}\.(?:cubin|so)|{_UNFINISHED}"
_ABANDONED = 3600  # seconds after which nobody writes an unfinished entry any more: a compiler takes some of them
# A symbolic link is refused, and a pipe in an entry's place must not make the call wait. Absent on Windows.
_OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def cache_dir() -> Path:
    """SKUDA_CACHE_DIR, else XDG_CACHE_HOME/skuda, else ~/.cache/skuda. It may not exist yet."""
    chosen = os.environ.get("SKUDA_CACHE_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # a relative XDG path is invalid by that specification, to be ignored
        home = os.path.expanduser("~")
        if home == "~":  # a user id with neither HOME nor an account, as in some containers
            return Path(tempfile.gettempdir()) / f"skuda-{os.getuid()}"
        base = Path(home) / ".cache"
    return base / "skuda"


def clear() -> int:
    """Remove every entry, and what a writer that was killed left behind.

    Returns:
        How many files were removed. Files that the cache did not write stay.

    Raises:
        OSError: the folder cannot be read, or a file in it cannot be removed.
    """
    removed = 0
    try:
        names = os.listdir(cache_dir())
    except FileNotFoundError:
        return 0
    for name in filter(re.compile(_OURS).fullmatch, names):
        (cache_dir() / name).unlink(missing_ok=True)
        removed += 1
    return removed


def cached_cubin(source: str, name: str, entry: str, arch: str, *, fresh: bool = False) -> tuple[bytes, str]:
    """Machine code of one kernel, from disk when it is there, else compiled and put there.

    Args:
        source: the text of a .cu file.
        name: what to call it in messages.
        entry: the NVRTC name expression of the kernel.
        arch: a real architecture such as `sm_90`.
        fresh: compile even if there is an entry, and replace it.

    Returns:
        The cubin and the kernel's mangled name in it.

    Raises:
        CompileError, Unsupported, MissingDependency: as `compile_cubin`; never because of the disk.
    """
    key = _key(source, entry, arch)
    place = folder()
    path = place and place / f"{key.hex()}.cubin"
    found = None if fresh or path is None else _read(path, key)
    if found is not None:
        return found
    compiled = compiler.compile_cubin(source, name, [entry], arch)
    lowered = compiled.lowered[entry]
    if path is not None:
        try:
            _write(path, key, compiled.cubin, lowered)
        except OSError as error:
            _warn_once(
                f"kernel cache {place} cannot be written ({error.strerror}); every process compiles anew"
            )
    return compiled.cubin, lowered


def _key(source: str, entry: str, arch: str) -> bytes:
    included = tuple(compiler.included(source, arch).items())
    # repr of nested tuples of text is unambiguous: no two requests share one.
    return hashlib.sha256(repr((FORMAT, source, included, entry, arch, compiler.OPTIONS)).encode()).digest()


def _read(path: Path, key: bytes) -> tuple[bytes, str] | None:
    """The entry, or None when it is absent or fails a check."""
    content = own_bytes(path)
    if content is None:
        return None
    head, payload = FORMAT + key, content[len(FORMAT) + len(key) + _DIGEST_SIZE :]
    if content != head + hashlib.sha256(payload).digest() + payload:
        return None
    (length,) = _NAME_LENGTH.unpack_from(payload)
    middle = _NAME_LENGTH.size + length
    return payload[middle:], payload[_NAME_LENGTH.size : middle].decode()


def own_bytes(path: Path) -> bytes | None:
    """What is in a file; None where there is none, or it is not a regular file of the user's."""
    try:
        with open(path, "rb", opener=lambda file, flags: os.open(file, flags | _OPEN_FLAGS)) as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and _is_mine(status) else None
    except OSError:
        return None


def _write(path: Path, key: bytes, cubin: bytes, lowered: str) -> None:
    payload = _NAME_LENGTH.pack(len(lowered.encode())) + lowered.encode() + cubin
    with replacing(path) as unfinished:
        unfinished.write_bytes(FORMAT + key + hashlib.sha256(payload).digest() + payload)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside an entry, which takes the entry's place at the end, or goes where that is not reached."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=".tmp")
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def remove_abandoned(place: Path) -> None:
    """Remove the entries that writers of a folder left unfinished when they were killed, as far as they can be."""
    for name in filter(re.compile(_UNFINISHED).fullmatch, os.listdir(place)):
        with suppress(OSError):  # such as that its writer has come to an end
            if time.time() - os.lstat(place / name).st_mtime > _ABANDONED:
                os.unlink(place / name)


def folder() -> Path | None:
    """The folder to use: the chosen one if it can be trusted, else a temporary one, else None."""
    chosen = cache_dir()
    try:
        os.makedirs(chosen, mode=0o700, exist_ok=True)
        complaint = _complaint(chosen)
    except OSError as error:
        complaint = f"cannot be used ({error.strerror})"
    if complaint is None:
        return chosen
    _warn_once(
        f"kernel cache {chosen} {complaint}; kernels are kept for this process only. "
        "Set SKUDA_CACHE_DIR to a folder that only you can write to"
    )
    return _temporary_folder()


def _complaint(folder: Path) -> str | None:
    """Why another user could plant machine code in this folder, or None."""
    # A link that someone else made could be pointed elsewhere at any time, so the link itself has to be ours.
    if not _is_mine(os.lstat(folder)) or not _is_mine(os.stat(folder)):
        return "belongs to another user"
    if os.name == "posix" and os.stat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by other users"
    return None


def _is_mine(status: os.stat_result) -> bool:
    return os.name != "posix" or status.st_uid == os.geteuid()


@cache
def _temporary_folder() -> Path | None:
    """One private folder for the life of the process."""
    try:
        folder = tempfile.mkdtemp(prefix="skuda-")
    except OSError:
        return None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _warn_once(message: str) -> None:
    import logging  # takes longer than all else of this module, and nothing is mostly wrong

    logging.getLogger("skuda").warning(message)
