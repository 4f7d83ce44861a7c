"""`skuda quantize --ray` on a cluster of this machine."""

from __future__ import annotations

import os
import socket

import pytest
from sharded import content, sharded

from skuda.checkpoints import convert, quantize
from skuda.codegen.cli import main
from skuda.errors import BadFile, WorkerLost


def test_tasks_write_the_same_bytes(tmp_path, capsys):
    sharded(tmp_path / "m", 4)
    quantize(tmp_path / "m", tmp_path / "whole", "per_group:u4", device="cpu")
    words = ["quantize", tmp_path / "m", "--scheme", "per_group:u4", "--out", tmp_path / "q", "--device", "cpu"]
    assert main([*map(str, words), "--workers", "2", "--ray", "local"]) == 0
    assert content(tmp_path / "q") == content(tmp_path / "whole")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("per_group:u4: ")]
    assert len(lines) == 4 and lines[-1].startswith("per_group:u4: 4 of 4 files") and "(100 %)" in lines[-1]


def test_an_error_of_a_task_comes_in_its_class_and_the_next_run_goes_on(tmp_path, monkeypatch):
    sharded(tmp_path / "m", 3)
    quantize(tmp_path / "m", tmp_path / "whole", device="cpu")
    last = tmp_path / "m" / "model-00003-of-00003.safetensors"
    whole, changed = last.read_bytes(), last.stat().st_mtime_ns
    find = convert.sources.find

    def cut(path):  # the file becomes shorter after its header has been read
        found = find(path)
        os.truncate(last, len(whole) - 8)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(convert.sources, "find", cut)
        with pytest.raises(BadFile, match="00003-of-00003.safetensors: expected a whole safetensors file"):
            quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=1, ray="local")
    assert not list((tmp_path / "q").glob(".*.tmp"))
    for written in (tmp_path / "q").glob("*.safetensors"):
        written.unlink()  # they belong to the shorter file
    last.write_bytes(whole)
    os.utime(last, ns=(changed, changed))
    quantize(tmp_path / "m", tmp_path / "q", device="cpu", workers=2, ray="local")
    assert content(tmp_path / "q") == content(tmp_path / "whole")


@pytest.mark.parametrize("how", ["{}", "ray://{}"])
def test_a_cluster_that_is_not_there_is_named_at_once(tmp_path, how):
    sharded(tmp_path / "m", 1)
    with socket.socket() as silent:  # its port is taken, and nobody listens
        silent.bind(("127.0.0.1", 0))
        address = how.format(f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(WorkerLost, match=f"ray cluster {address}: cannot be reached: .*refused"):
            quantize(tmp_path / "m", tmp_path / "q", device="cpu", ray=address)
