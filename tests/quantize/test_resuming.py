"""A run that is ended goes on where it was; one with other options is refused."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest
from sharded import content, sharded

from skuda.checkpoints import convert, files, quantize, workers
from skuda.errors import BadFile, InvalidProblem, WorkerLost

SHARDS = 6
# Quantizes, and is killed by the first thing that is heard after a file has been finished.
KILLED = """
import os, signal, sys
from skuda.checkpoints import quantize

def kill(progress):
    if progress.files and not progress.finished:
        os.kill(os.getpid(), signal.SIGKILL)

quantize(sys.argv[1], sys.argv[2], device="cpu", workers=int(sys.argv[3]), progress=kill)
"""


@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_run_goes_on_and_writes_the_same_bytes(tmp_path, count):
    sharded(tmp_path / "m", SHARDS)
    quantize(tmp_path / "m", tmp_path / "whole", device="cpu")
    out = tmp_path / "q"
    words = [sys.executable, "-c", KILLED, tmp_path / "m", out, count]
    assert subprocess.run(list(map(str, words))).returncode == -signal.SIGKILL
    before = sorted(path.name for path in out.glob("*.safetensors"))
    assert 0 < len(before) < SHARDS
    if count == 1:  # in the middle of a file; with more, the workers remove what they have begun
        assert len(list(out.glob(".*.tmp"))) == 1
    for name in before:  # whatever has its name is whole
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    result = quantize(tmp_path / "m", out, device="cpu", workers=count)
    assert result.resumed >= len(before)
    assert content(out) == content(tmp_path / "whole")


def test_a_lost_worker_is_an_error_that_says_which_file(tmp_path, monkeypatch):
    sharded(tmp_path / "m", SHARDS)
    started = []
    start = workers._started
    monkeypatch.setattr(workers, "_started", lambda number: started.append(start(number)) or started[-1])

    def kill(progress):
        os.kill(started[0].pid, signal.SIGKILL)

    with pytest.raises(WorkerLost, match=r"quantized .*model-\d+-of-\d+\.safetensors ended with signal 9 \(SIGKILL\)"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=2, progress=kill)
    assert [process.poll() is not None for process in started] == [True, True]
    quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=2)
    quantize(tmp_path / "m", tmp_path / "whole", device="cpu")
    assert content(tmp_path / "q") == content(tmp_path / "whole")


def test_an_error_of_a_worker_comes_in_its_class_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    sharded(tmp_path / "m", 3)
    find = convert.sources.find

    def cut(path):  # the file becomes shorter after its header has been read
        found = find(path)
        last = sorted(found.headers)[-1]
        os.truncate(path / last, found.headers[last].length - 8)
        return found

    monkeypatch.setattr(convert.sources, "find", cut)
    with pytest.raises(BadFile, match="00003-of-00003.safetensors: expected a whole safetensors file"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=3)
    assert not list((tmp_path / "q").glob(".*.tmp"))
    assert "model-00003-of-00003.safetensors" not in content(tmp_path / "q")


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_leaves_nothing_half_written(tmp_path, count):
    sharded(tmp_path / "m", 3)

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=count, progress=interrupt)
    assert not list((tmp_path / "q").glob(".*.tmp"))
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    quantize(tmp_path / "m", tmp_path / "whole", device="cpu")
    assert content(tmp_path / "q") == content(tmp_path / "whole")


def test_a_finished_folder_is_left_as_it_is(tmp_path):
    sharded(tmp_path / "m", 3)
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "q").glob("*.safetensors")}
    assert quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=2).resumed == 3
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "q").glob("*.safetensors")} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "per_token:s8"}, "with scheme per_channel:s8, expected per_token:s8"),
        ({"group_size": 64}, "with group_size 128, expected 64"),
        ({"keep": ["h.*"]}, r"with keep \[\], expected \['h"),
    ],
)
def test_other_options_are_refused(tmp_path, options, message):
    sharded(tmp_path / "m")
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    before = content(tmp_path / "q")
    with pytest.raises((InvalidProblem, BadFile), match=message if "keep" not in options else "nothing to quantize"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu", **options)
    if "keep" in options:
        with pytest.raises(InvalidProblem, match=r"with keep \[\], expected \['h.1"):
            quantize(tmp_path / "m", tmp_path / "q", device="cpu", keep=["h.1.*"])
    assert content(tmp_path / "q") == before


def test_a_source_that_has_changed_is_refused(tmp_path):
    sharded(tmp_path / "m", 3)
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    os.utime(tmp_path / "m" / "model-00002-of-00003.safetensors")
    with pytest.raises(InvalidProblem, match="from other files: model-00002-of-00003.safetensors has changed since"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_files_of_another_command_are_never_touched(tmp_path):
    sharded(tmp_path / "m", 2)
    (tmp_path / "q").mkdir()
    foreign = tmp_path / "q" / "model-00001-of-00002.safetensors"
    foreign.write_text("mine")
    with pytest.raises(InvalidProblem, match="is there, and no .skuda-quantize.json beside it"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    foreign.unlink()
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    header = files.read_header(foreign)
    files.write(foreign, files.read(foreign).tensors, {**header.metadata, "note": "changed"})
    with pytest.raises(BadFile, match="is not what this command wrote there"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    sharded(tmp_path / "m", 2)
    (tmp_path / "q").mkdir()
    folder = os.open(tmp_path / "q", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        with pytest.raises(InvalidProblem, match="another process is writing into this folder"):
            quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    finally:
        os.close(folder)
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_a_state_that_cannot_be_read_is_refused(tmp_path):
    sharded(tmp_path / "m", 2)
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    state = tmp_path / "q" / convert.STATE
    assert json.loads(state.read_text())["scheme"] == "per_channel:s8"
    state.write_text("{")
    with pytest.raises(BadFile, match="expected the state of an earlier run"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_another_checkpoint_is_refused_in_a_folder_that_has_one(tmp_path):
    """Under whatever names: an index that stays behind would lead to the other one."""
    sharded(tmp_path / "several", 2)
    sharded(tmp_path / "one", 1)
    out = tmp_path / "q"
    quantize(tmp_path / "several", out, device="cpu")
    (tmp_path / "one" / "other.safetensors").write_bytes(next((tmp_path / "one").glob("*.safetensors")).read_bytes())
    before = content(out)
    with pytest.raises(InvalidProblem, match="was begun with scheme per_channel:s8, expected per_channel:s4"):
        quantize(tmp_path / "one" / "other.safetensors", out, "per_channel:s4", device="cpu")
    with pytest.raises(InvalidProblem, match="was begun from other files"):
        quantize(tmp_path / "one" / "other.safetensors", out, device="cpu")
    assert content(out) == before
    (out / convert.STATE).unlink()
    with pytest.raises(InvalidProblem, match=f"is there, and no {convert.STATE} beside it"):
        quantize(tmp_path / "one" / "other.safetensors", out, device="cpu")


@pytest.mark.parametrize(
    "more, said",
    [
        ({"group_size": 1.5}, "group size is 1.5, expected an integer"),
        ({"group_size": 1 << 63}, "expected an integer from 1"),
        ({"scheme": None}, "unknown scheme `None`"),
        ({"workers": "2"}, "workers is '2', expected an integer"),
        ({"workers": 1.5}, "workers is 1.5, expected an integer"),
        ({"keep": None}, "keep has None, expected patterns"),
        ({"keep": [5]}, "keep has 5, expected patterns"),
        ({"device": "gpu"}, "device is 'gpu', expected auto, cpu, cuda"),
        ({"out": ""}, "out is '', expected a path"),
        ({"out": "a\0b"}, "out is .*, expected a path .*null byte"),
        ({"out": "a" * 5000}, "out is .*, expected a path .*too long"),
        ({"out": 5}, "out is 5, expected a path"),
    ],
)
def test_arguments_of_other_kinds_are_refused_before_anything_is_written(tmp_path, more, said):
    sharded(tmp_path / "m", 1)
    with pytest.raises(InvalidProblem, match=said):
        quantize(tmp_path / "m", **{"out": tmp_path / "q", "device": "cpu", **more})
    assert not (tmp_path / "q").exists()
