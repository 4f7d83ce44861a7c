"""The disk cache: what makes an entry, whom it believes, and that the disk costs no more than the caching."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import subprocess
import sys
import tempfile

import pytest

from skuda.errors import CompileError
from skuda.launch import compiler, cubin_cache
from skuda.launch.compiler import Compiled
from skuda.launch.cubin_cache import cached_cubin

REQUEST = ("__global__ void k() {}", "k.cu", "k", "sm_90")


class Compiler:
    """Stands in for NVRTC: counts, and makes machine code that tells what it was made from."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, source, name, entries, arch) -> Compiled:
        self.count += 1
        (entry,) = entries
        return Compiled(f"cubin of {source} {entry} {arch}".encode(), {entry: f"_Z_{entry}_ü"}, "")


@pytest.fixture
def fake_compiler(monkeypatch):
    fake = Compiler()
    monkeypatch.setattr(compiler, "compile_cubin", fake)
    return fake


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Where this test's entries go; not there yet."""
    chosen = tmp_path / "kernels"
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(chosen))
    return chosen


@pytest.fixture(autouse=True)
def forgetful(monkeypatch, tmp_path):
    """Each test starts as a process does, with its own folder for temporary ones."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    cubin_cache._warn_once.cache_clear()
    cubin_cache._temporary_folder.cache_clear()
    yield
    cubin_cache._temporary_folder.cache_clear()


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def only_entry(folder):
    (entry,) = folder.iterdir()
    return entry


def temporary_folders(tmp_path):
    return sorted((tmp_path / "temporary").iterdir())


# What an entry is


def test_the_second_request_is_served_from_disk(fake_compiler, folder):
    first = cached_cubin(*REQUEST)
    assert first == (b"cubin of __global__ void k() {} k sm_90", "_Z_k_ü")
    assert cached_cubin(*REQUEST) == first
    assert fake_compiler.count == 1
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_entry(folder).stat().st_mode) == 0o600


@pytest.mark.parametrize("position", [0, 2, 3])
def test_source_entry_and_architecture_each_make_another_entry(fake_compiler, folder, position):
    cached_cubin(*REQUEST)
    other = list(REQUEST)
    other[position] += "0"
    assert other[position].encode() in cached_cubin(*other)[0]
    assert (fake_compiler.count, len(list(folder.iterdir()))) == (2, 2)


@pytest.mark.parametrize("changed", ["a.cuh", "b.cuh"])
def test_every_header_that_is_included_is_part_of_the_key(monkeypatch, fake_compiler, changed):
    source, *rest = REQUEST
    headers = {"a.cuh": '#include "b.cuh"\n', "b.cuh": "", "other.cuh": ""}
    monkeypatch.setattr(compiler, "_file", headers.get)
    cached_cubin('#include "a.cuh"\n' + source, *rest)
    headers["other.cuh"] = "// another"
    cached_cubin('#include "a.cuh"\n' + source, *rest)
    assert fake_compiler.count == 1
    headers[changed] += "// another"
    cached_cubin('#include "a.cuh"\n' + source, *rest)
    assert fake_compiler.count == 2


@pytest.mark.parametrize("what", [(compiler, "OPTIONS", ("--fmad=true",)), (cubin_cache, "FORMAT", b"skuda-2\n")])
def test_options_and_format_are_part_of_the_key(monkeypatch, fake_compiler, folder, what):
    cached_cubin(*REQUEST)
    monkeypatch.setattr(*what)
    cached_cubin(*REQUEST)
    assert (fake_compiler.count, len(list(folder.iterdir()))) == (2, 2)


def test_the_name_for_messages_is_not_part_of_the_key(fake_compiler):
    source, _, entry, arch = REQUEST
    cached_cubin(*REQUEST)
    cached_cubin(source, "renamed.cu", entry, arch)
    assert fake_compiler.count == 1


def test_fresh_replaces_the_entry(fake_compiler, folder):
    cached_cubin(*REQUEST)
    written = only_entry(folder).stat().st_ino
    cached_cubin(*REQUEST, fresh=True)
    assert fake_compiler.count == 2
    assert only_entry(folder).stat().st_ino != written


def test_a_refused_source_leaves_nothing_behind(folder):
    with pytest.raises(CompileError):
        cached_cubin("broken", "broken.cu", "k", "sm_90")
    assert list(folder.iterdir()) == []


def test_serving_from_disk_does_not_import_nvrtc(folder):
    code = (
        f"import sys; from skuda.launch.cubin_cache import cached_cubin; cached_cubin(*{REQUEST!r}); "
        "print('cuda.bindings' in sys.modules)"
    )
    assert [run_python(code).stdout.strip() for _ in range(2)] == ["True", "False"]


# Where entries are


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SKUDA_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"SKUDA_CACHE_DIR": "~/b"}, "/home/me/b"),
        ({"SKUDA_CACHE_DIR": "", "XDG_CACHE_HOME": "/x"}, "/x/skuda"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/skuda"),
        ({"XDG_CACHE_HOME": ""}, "/home/me/.cache/skuda"),
        ({}, "/home/me/.cache/skuda"),
    ],
)
def test_cache_dir_follows_the_environment(monkeypatch, environment, expected):
    for name in ("SKUDA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(cubin_cache.cache_dir()) == expected


def test_a_user_without_a_home_gets_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv("SKUDA_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cubin_cache.cache_dir() == tmp_path / "temporary" / f"skuda-{os.getuid()}"


def test_clear_removes_entries_and_leftovers_and_nothing_else(fake_compiler, folder):
    assert cubin_cache.clear() == 0  # no folder yet
    cached_cubin(*REQUEST)
    cached_cubin(*REQUEST[:3], "sm_80")
    (folder / f".{'0' * 64}.abcd1234.tmp").write_bytes(b"half an entry")
    (folder / "notes.txt").write_text("mine")
    assert cubin_cache.clear() == 3
    assert only_entry(folder).name == "notes.txt"
    cached_cubin(*REQUEST)
    assert fake_compiler.count == 3


# Whom it believes


def rewritten(change):
    def damage(entry):
        entry.write_bytes(change(entry.read_bytes()))

    return damage


def flip(position):
    return lambda content: content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def to_a_link(entry):
    target = entry.with_name("target")
    entry.rename(target)
    entry.symlink_to(target)


DAMAGES = {
    "magic": rewritten(flip(0)),
    "key": rewritten(flip(10)),
    "digest": rewritten(flip(50)),
    "length": rewritten(flip(72)),
    "lowered name": rewritten(flip(77)),
    "machine code": rewritten(flip(89)),
    "appended": rewritten(lambda content: content + b"\0"),
    "empty": rewritten(lambda content: b""),
    "cut in the head": rewritten(lambda content: content[:40]),
    "cut after the head": rewritten(lambda content: content[:72]),
    "cut at the end": rewritten(lambda content: content[:-1]),
    "link": to_a_link,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_entry_that_fails_a_check_is_compiled_anew_and_replaced(fake_compiler, folder, damage):
    expected = cached_cubin(*REQUEST)
    entry = only_entry(folder)
    damage(entry)
    assert cached_cubin(*REQUEST) == expected
    assert fake_compiler.count == 2
    assert stat.S_ISREG(entry.lstat().st_mode)
    assert cached_cubin(*REQUEST) == expected
    assert fake_compiler.count == 2


@pytest.mark.parametrize("writer", [False, True])
def test_a_pipe_in_an_entrys_place_neither_blocks_nor_is_read(fake_compiler, folder, writer):
    expected = cached_cubin(*REQUEST)
    entry = only_entry(folder)
    entry.unlink()
    os.mkfifo(entry)
    with contextlib.ExitStack() as stack:
        if writer:
            stack.callback(os.close, os.open(entry, os.O_RDWR | os.O_NONBLOCK))
        assert cached_cubin(*REQUEST) == expected
    assert stat.S_ISREG(entry.lstat().st_mode)


def test_an_entry_under_another_entrys_name_is_not_believed(fake_compiler, folder):
    cached_cubin(*REQUEST)
    first = only_entry(folder)
    other = cached_cubin(*REQUEST[:3], "sm_80")
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    assert cached_cubin(*REQUEST[:3], "sm_80") == other
    assert fake_compiler.count == 3


def test_an_entry_of_another_user_is_not_believed(monkeypatch, fake_compiler, folder):
    cached_cubin(*REQUEST)
    real, other = os.fstat, os.geteuid() + 1

    def foreign(handle):
        status = list(real(handle))
        status[stat.ST_UID] = other
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", foreign)
    cached_cubin(*REQUEST)
    assert fake_compiler.count == 2


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_folder_that_others_can_write_is_not_used(fake_compiler, folder, tmp_path, caplog, mode):
    planted = cached_cubin(*REQUEST)
    folder.chmod(mode)
    before = only_entry(folder).stat()
    assert cached_cubin(*REQUEST) == planted
    assert fake_compiler.count == 2  # what lies there was not read
    assert only_entry(folder).stat() == before  # nor was anything written
    assert cached_cubin(*REQUEST) == planted
    assert fake_compiler.count == 2  # the temporary folder serves this process
    (temporary,) = temporary_folders(tmp_path)
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("skuda", logging.WARNING)
    assert f"kernel cache {folder} can be written by other users" in record.getMessage()


@pytest.mark.parametrize("look", ["stat", "lstat"])
def test_a_folder_or_link_of_another_user_is_not_used(
    monkeypatch, fake_compiler, folder, tmp_path, caplog, look
):
    cached_cubin(*REQUEST)
    real, other = getattr(os, look), os.geteuid() + 1

    def foreign(path, **options):
        status = list(real(path, **options))
        if os.fspath(path) == os.fspath(folder):
            status[stat.ST_UID] = other
        return os.stat_result(status)

    monkeypatch.setattr(os, look, foreign)
    cached_cubin(*REQUEST)
    assert fake_compiler.count == 2
    assert len(temporary_folders(tmp_path)) == 1
    (record,) = caplog.records
    assert f"kernel cache {folder} belongs to another user" in record.getMessage()


def test_the_users_own_link_to_a_private_folder_is_followed(fake_compiler, folder, tmp_path):
    (tmp_path / "scratch").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "scratch")
    cached_cubin(*REQUEST)
    cached_cubin(*REQUEST)
    assert fake_compiler.count == 1
    assert only_entry(tmp_path / "scratch")


def test_the_temporary_folder_goes_with_the_process(folder, tmp_path):
    folder.mkdir()
    folder.chmod(0o777)
    code = (
        f"import tempfile; from skuda.launch.cubin_cache import cached_cubin; cached_cubin(*{REQUEST!r}); "
        "import os; print(len(os.listdir(tempfile.gettempdir())))"
    )
    done = run_python(code, TMPDIR=str(tmp_path / "temporary"))
    assert done.stdout.strip() == "1"
    assert temporary_folders(tmp_path) == []
    assert done.stderr.count("\n") == 1  # the warning is seen although nobody has configured logging


# The disk costs the caching, never the call


def test_a_folder_that_cannot_be_made_costs_one_line(monkeypatch, fake_compiler, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    cached_cubin(*REQUEST)
    cached_cubin(*REQUEST)
    (record,) = caplog.records
    assert "cannot be used (Not a directory)" in record.getMessage()


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written_costs_one_line(monkeypatch, fake_compiler, folder, caplog, number):
    cached_cubin(*REQUEST)

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    for arch in ("sm_80", "sm_100"):
        assert arch.encode() in cached_cubin(*REQUEST[:3], arch)[0]
    (record,) = caplog.records
    assert f"cannot be written ({os.strerror(number)})" in record.getMessage()
    cached_cubin(*REQUEST)  # what is there is still read
    assert fake_compiler.count == 3


def test_with_no_folder_at_all_kernels_are_compiled(monkeypatch, fake_compiler, tmp_path, caplog):
    monkeypatch.setenv("SKUDA_CACHE_DIR", os.devnull)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    assert cached_cubin(*REQUEST) == cached_cubin(*REQUEST)
    assert fake_compiler.count == 2
    assert len(caplog.records) == 1


def test_a_disk_that_fills_while_writing_leaves_no_file(folder):
    code = (
        "import resource; from skuda.launch.cubin_cache import cached_cubin; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        f"cached_cubin(*{REQUEST!r}); print(len(cached_cubin(*{REQUEST!r})[0]))"
    )
    done = run_python(code)
    assert int(done.stdout) > 1000
    assert done.stderr.count("cannot be written (File too large)") == 1
    assert list(folder.iterdir()) == []


# Two processes


def test_two_processes_compile_the_same_kernel_at_once(folder):
    code = (
        "import sys; from skuda.launch.cubin_cache import cached_cubin; "
        "print('ready', flush=True); sys.stdin.readline(); "
        f"print(cached_cubin(*{REQUEST!r}))"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    first, second = (process.communicate(timeout=60)[0] for process in processes)
    assert first == second
    assert first.startswith("(b'\\x7fELF")
    assert only_entry(folder).suffix == ".cubin"


WRITER = """
import sys
from skuda.launch import compiler
from skuda.launch.cubin_cache import cached_cubin

source, name, entry, arch = "x" * 3_000_000, *{rest!r}
made = compiler.Compiled({cubin!r} + source.encode() + b" k sm_90", {{entry: {lowered!r}}}, "")
compiler.compile_cubin = lambda *_: made
print("ready", flush=True)
for _ in range(60):
    cached_cubin(source, name, entry, arch, fresh=True)
"""


def test_a_reader_never_sees_half_an_entry(fake_compiler, folder):
    request = ("x" * 3_000_000, *REQUEST[1:])  # an entry large enough to take several writes
    expected = cached_cubin(*request)
    code = WRITER.format(rest=REQUEST[1:], cubin=expected[0][:9], lowered=expected[1])
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    writer.stdout.readline()
    versions = set()
    while writer.poll() is None:
        (entry,) = folder.glob("*.cubin")
        versions.add(entry.stat().st_ino)
        assert cached_cubin(*request) == expected
    writer.stdout.close()
    assert writer.returncode == 0
    assert fake_compiler.count == 1  # never anything but a whole entry
    assert len(versions) > 1
