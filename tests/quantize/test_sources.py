"""What is wrong with a checkpoint is said before anything is written."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file
from sharded import INDEX, sharded

from skuda.checkpoints import load, quantize
from skuda.errors import BadFile, InvalidProblem

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def changed(folder, change):
    """The index with a change."""
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def headed(folder, header, length=0):
    (folder / SECOND).write_bytes(len(header).to_bytes(8, "little") + header + bytes(length))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda m: (m / SECOND).unlink(), f"says that {SECOND} has 4 tensors, such as h.1.fc.weight; there is no"),
        (lambda m: os.truncate(m / SECOND, 900), rf"{SECOND}: expected a whole safetensors file, found 900 bytes"),
        (lambda m: os.truncate(m / SECOND, 4), rf"{SECOND}: .* found 4 bytes that are not: no header fits into it"),
        (lambda m: (m / INDEX).write_text("{"), "expected an index, JSON with a weight_map from tensors to files"),
        (lambda m: (m / INDEX).write_text("[]"), "expected an index"),
        (lambda m: (m / INDEX).write_text('{"weight_map": {}}'), "it names no files"),
        (lambda m: changed(m, lambda places: places.update(extra=FIRST)), f"extra is in {FIRST}, which has no such"),
        (lambda m: changed(m, lambda places: places.pop("h.1.ids")), f"h.1.ids is nowhere, expected {SECOND}"),
        (lambda m: changed(m, lambda places: places.update({"h.1.ids": FIRST})), f"h.1.ids is in {FIRST}, which has"),
        (lambda m: changed(m, lambda places: places.update(x=f"../{FIRST}")), "expected one beside it"),
        (lambda m: (m / INDEX).write_text("[" * 100_000), "expected an index"),
        (lambda m: headed(m, b"[" * 100_000), "expected a whole safetensors file"),
        (lambda m: headed(m, b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "surrogates not allowed"),
        (lambda m: headed(m, b'{"w":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', 1), r"shape \[True\]"),
        (lambda m: headed(m, b'{"w":{"dtype":5,"shape":[1],"data_offsets":[0,1]}}', 1), "w has dtype 5"),
    ],
)  # fmt: skip
def test_a_broken_checkpoint_is_refused(tmp_path, spoil, message):
    sharded(tmp_path / "m", 2)
    spoil(tmp_path / "m")
    with pytest.raises(BadFile, match=message):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    assert not (tmp_path / "q").exists()


def test_a_tensor_in_two_files_needs_an_index(tmp_path):
    sharded(tmp_path / "m", 1, index=False)
    (path,) = (tmp_path / "m").iterdir()
    (tmp_path / "m" / "other.safetensors").write_bytes(path.read_bytes())
    with pytest.raises(BadFile, match=f"is in {path.name} and in other.safetensors, expected one of them"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_several_indexes_are_refused(tmp_path):
    sharded(tmp_path / "m", 2)
    (tmp_path / "m" / "other.safetensors.index.json").write_text("{}")
    with pytest.raises(InvalidProblem, match=f"several indexes .{INDEX}, other.safetensors.index.json"):
        quantize(tmp_path / "m", tmp_path / "q", device="cpu")


def test_a_folder_without_checkpoint_is_refused(tmp_path):
    with pytest.raises(BadFile, match=f"expected a folder with {INDEX} or"):
        quantize(tmp_path, tmp_path / "q", device="cpu")
    with pytest.raises(BadFile, match="expected a safetensors file, found nothing"):
        quantize(tmp_path / "none", tmp_path / "q", device="cpu")


def test_quantizing_twice_is_refused(tmp_path):
    sharded(tmp_path / "m", 2)
    quantize(tmp_path / "m", tmp_path / "q", device="cpu")
    with pytest.raises(BadFile, match="is quantized already"):
        quantize(tmp_path / "q", tmp_path / "qq", device="cpu")


def test_a_name_that_a_scale_of_another_file_takes_is_refused(tmp_path):
    save_file({"w": np.ones((2, 2), np.float32)}, tmp_path / "a.safetensors")
    save_file({"w:scale": np.ones(2, np.float32)}, tmp_path / "b.safetensors")
    with pytest.raises(InvalidProblem, match="tensor w:scale has the name"):
        quantize(tmp_path, tmp_path / "q", device="cpu")


def test_the_output_is_another_folder(tmp_path):
    sharded(tmp_path / "m", 2)
    with pytest.raises(InvalidProblem, match="the output is the folder of the checkpoint"):
        quantize(tmp_path / "m", tmp_path / "m", device="cpu")
    with pytest.raises(InvalidProblem, match="the output is a file"):
        quantize(tmp_path / "m", tmp_path / "m" / INDEX, device="cpu")
    with pytest.raises(BadFile, match="cannot be written"):
        quantize(tmp_path / "m", tmp_path / "m" / INDEX / "q", device="cpu")


def test_workers_are_counted_from_1(tmp_path):
    sharded(tmp_path / "m", 2)
    with pytest.raises(InvalidProblem, match="workers is 0, expected an integer of 1 or more"):
        quantize(tmp_path / "m", tmp_path / "q", workers=0)


def test_what_is_not_quantized_is_not_loaded(tmp_path):
    sharded(tmp_path / "m", 2)
    with pytest.raises(BadFile, match="expected a checkpoint that `skuda quantize` wrote"):
        load(tmp_path / "m", device="cpu")
