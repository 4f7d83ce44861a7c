"""A checkpoint of several files is quantized file by file: the same bytes, however it is done."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from sharded import INDEX, content, sharded

import skuda
from skuda.checkpoints import files, load, quantize, weights
from skuda.checkpoints.scheme import ELEMENTS, GRANULARITIES, Scheme
from skuda.codegen.cli import main
from skuda.demo.run import quantize_checkpoint

SCHEMES = [f"{granularity}:{element}" for granularity in GRANULARITIES for element in ELEMENTS]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_bytes_do_not_depend_on_how_many_rows_are_taken_at_once(tmp_path, monkeypatch, scheme):
    sharded(tmp_path / "m")
    quantize(tmp_path / "m", tmp_path / "whole", scheme, group_size=4, device="cpu")
    for block in (1, 20, 31):
        monkeypatch.setattr(weights, "BLOCK", block)
        quantize(tmp_path / "m", tmp_path / f"{block}", scheme, group_size=4, device="cpu")
        assert content(tmp_path / f"{block}") == content(tmp_path / "whole")


def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path):
    sharded(tmp_path / "m", 5)
    for workers in (1, 3):
        quantize(tmp_path / "m", tmp_path / f"{workers}", "per_group:u4", workers=workers, device="cpu")
    assert content(tmp_path / "1") == content(tmp_path / "3")
    assert len(content(tmp_path / "1")) == 5 + 1


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_read_back_is_within_half_a_step(tmp_path, scheme):
    original = sharded(tmp_path / "m")
    quantize(tmp_path / "m", tmp_path / "q", scheme, group_size=4, device="cpu")
    with load(tmp_path / "q", device="cpu") as loaded:
        assert loaded.keys() == original.keys()
        for name, tensor in original.items():
            assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
            if not name.endswith("weight"):
                assert not loaded.is_weight(name)
                assert loaded[name].tobytes() == tensor.tobytes()
                continue
            quantized = loaded.quantized(name)
            step = loaded.scheme(name).spread(quantized.scale.astype(np.float64), tensor.shape)
            error = np.abs(loaded[name].astype(np.float64) - tensor.astype(np.float64))
            rounding = np.abs(tensor.astype(np.float64)) * 2.0**-7  # of the result to 8 bits at least
            assert np.all(error <= 0.5001 * step + rounding), name


def test_one_file_becomes_what_the_demo_makes_of_it(tmp_path):
    sharded(tmp_path / "m", 1, index=False)
    (source,) = (tmp_path / "m").iterdir()
    result = quantize(source, tmp_path / "q", "per_token:u8", device="cpu")
    out = tmp_path / "demo.safetensors"
    scheme = Scheme.parse("per_token:u8")
    quantize_checkpoint(source, files.read(source), scheme, out, weights.backend("cpu"))
    assert content(tmp_path / "q") == {source.name: out.read_bytes()}
    assert result.files == (source.name,)


def test_others_read_what_is_written(tmp_path):
    original = sharded(tmp_path / "m")
    quantize(tmp_path / "m" / INDEX, tmp_path / "q", "per_channel:s8", device="cpu")
    places = json.loads((tmp_path / "q" / INDEX).read_text())
    total = 0
    for name, place in places["weight_map"].items():
        with safe_open(tmp_path / "q" / place, "np") as file:
            if file.get_tensor(name.partition(":")[0]).dtype.name != "bfloat16":
                total += file.get_tensor(name).nbytes
            assert file.metadata()["skuda.scheme"] == "per_channel:s8"
    assert {name for name in places["weight_map"] if ":" not in name} == original.keys()
    assert "h.2.fc.weight:scale" in places["weight_map"]
    assert places["metadata"]["total_size"] == total + 13 * 2  # one bias of bfloat16, which that library cannot read


def test_a_folder_without_an_index_is_all_its_files(tmp_path):
    sharded(tmp_path / "m", 2, index=False)
    sharded(tmp_path / "i", 2)
    for folder in "mi":
        quantize(tmp_path / folder, tmp_path / f"q{folder}", "per_token:s8", device="cpu")
    assert content(tmp_path / "qm") == content(tmp_path / "qi")


def test_weights_whose_names_fit_a_pattern_are_kept(tmp_path):
    original = sharded(tmp_path / "m", 2)
    quantize(tmp_path / "m", tmp_path / "q", keep=["*.conv.*", "h.1.*"], device="cpu")
    with load(tmp_path / "q", device="cpu") as loaded:
        assert [name for name in loaded if loaded.is_weight(name)] == ["h.0.fc.weight"]
        for name in loaded.keys() - {"h.0.fc.weight"}:
            assert loaded[name].tobytes() == original[name].tobytes()


@pytest.mark.parametrize("keep", ["l[0].w", ["l[0].?"]])
def test_a_pattern_may_stand_alone_and_brackets_are_themselves(tmp_path, keep):
    names = "l[0].w", "l0.w", "w"
    save_file({name: np.ones((2, 3), np.float32) for name in names}, tmp_path / "m[1].safetensors")
    quantize(tmp_path / "m[1].safetensors", tmp_path / "q", keep=keep, device="cpu")
    with load(tmp_path / "q", device="cpu") as loaded:
        assert sorted(name for name in loaded if loaded.is_weight(name)) == ["l0.w", "w"]


def test_a_tensor_whose_elements_numpy_lacks_is_copied(tmp_path):
    header = b'{"s":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[8,12]},'
    header += b'"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}'
    data = np.array([1, -3], np.float32).tobytes() + b"\x01\x02\x03\x04"
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    quantize(path, tmp_path / "q", device="cpu")
    written = files.read_header(tmp_path / "q" / "m.safetensors")
    tensor = written.tensors["s"]
    assert (tensor.dtype, tensor.shape) == ("F8_E8M0", (4,))
    assert (tmp_path / "q" / "m.safetensors").read_bytes()[tensor.start : tensor.end] == b"\x01\x02\x03\x04"


def test_the_command_says_how_far_all_workers_are(tmp_path, capsys):
    sharded(tmp_path / "m", 3)
    words = ["quantize", tmp_path / "m", "--scheme", "per_group:s4", "--out", tmp_path / "q", "--device", "cpu"]
    assert main([*map(str, words), "--workers", "2"]) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert [line.partition(" of ")[0] for line in lines] == [f"per_group:s4: {number}" for number in (1, 2, 3)]
    assert "(100 %)" in lines[-1]
    assert captured.out.startswith(f"wrote 3 files into {tmp_path / 'q'}: ")


def test_a_terminal_has_one_line(tmp_path, capsys, monkeypatch):
    sharded(tmp_path / "m", 3)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert main(["quantize", str(tmp_path / "m"), "--out", str(tmp_path / "q"), "--device", "cpu"]) == 0
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and text.endswith("\n")
    assert text.rstrip().rpartition("\r")[2].startswith("per_channel:s8: 3 of 3 files")


def test_without_ray_the_message_names_the_extra(tmp_path, capsys, monkeypatch):
    sharded(tmp_path / "m", 2)
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["quantize", tmp_path / "m", "--out", tmp_path / "q", "--ray", "local"]
    assert main([*map(str, words)]) == 1
    assert "pip install 'skuda[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "q").exists()


def test_values_of_a_file_that_is_saved_by_others_are_read(tmp_path):
    save_file({"w": np.array([[127, -63.5, 0.4]], np.float32)}, tmp_path / "m.safetensors")
    quantize(tmp_path / "m.safetensors", tmp_path / "q", device="cpu")
    with load(tmp_path / "q" / "m.safetensors", device="cpu") as loaded:
        assert loaded.quantized("w").codes.tolist() == [[127, -64, 0]]
        assert loaded["w"].tolist() == [[127, -64, 0]]


def test_codes_and_scales_are_what_the_functions_take(tmp_path):
    sharded(tmp_path / "m", 1)
    quantize(tmp_path / "m", tmp_path / "q", "per_group:s4", group_size=5, device="cpu")
    with load(tmp_path / "q", device="cpu") as loaded:
        held = loaded.quantized("h.0.fc.weight")
        weight = skuda.dequantize_per_group(
            held.codes, held.scale, dtype=held.element, group_size=5, input_dtype="s4", shape=held.shape
        )
        assert weight.tobytes() == loaded["h.0.fc.weight"].tobytes()


def test_the_page_runs(tmp_path, monkeypatch):
    """Both blocks of docs/checkpoints.md, over a small model with the same names."""
    page = (Path(__file__).parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    name = "model.layers.0.mlp.up_proj.weight"
    weight = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float16)
    (tmp_path / "Llama-70B").mkdir()
    save_file({name: weight, "lm_head.weight": weight}, tmp_path / "Llama-70B" / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    found: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block.replace("workers=8", "workers=1"), found)
    assert found["weight"].shape == weight.shape and np.abs(found["weight"] - weight).max() < 0.5
