"""A broken file is an error of the demo, and neither that nor an interrupt leaves anything."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
from checkpoints import CPU, leftovers, made, quantized, weights
from safetensors.numpy import save

from skuda.checkpoints import files
from skuda.checkpoints.scheme import Scheme
from skuda.demo import run
from skuda.errors import BadFile, InvalidProblem, Unsupported

# --- what can be wrong with a file


def test_a_truncated_file_is_refused_at_every_length(tmp_path):
    whole = save(weights(np.float32))
    source, out = tmp_path / "m.safetensors", tmp_path / "q.safetensors"
    for length in [*range(64), *range(64, len(whole), 37), len(whole) - 1]:
        source.write_bytes(whole[:length])
        with pytest.raises(
            BadFile, match=f"m.safetensors: expected a whole safetensors file, found {length} bytes"
        ):
            quantized(source, "per_channel:s8", out)
        assert leftovers(tmp_path, source) == []


def test_a_truncated_quantized_file_is_refused_at_every_length(tmp_path):
    source, out, back = (tmp_path / f"{name}.safetensors" for name in ("m", "q", "b"))
    quantized(made(source, weights(np.float32)), "per_group:u4", out)
    whole = out.read_bytes()
    for length in [*range(16), *range(16, len(whole), 53), len(whole) - 1]:
        out.write_bytes(whole[:length])
        with pytest.raises(BadFile, match=str(length)):
            run.dequantize_checkpoint(out, back, CPU)
        assert leftovers(tmp_path, source, out) == []


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n" + bytes(100),
        b"\x50" + bytes(7) + b"x" * 200,
        b"\xff" * 64,
        (2).to_bytes(8, "little") + b"[]",
        save({"w": np.ones((2, 2), np.float32)}) + b"more",
        save({"w": np.ones((2, 2), np.float32)}).replace(b"[2,2]", b"[2,3]"),
        save({"w": np.ones((2, 2), np.float32)}).replace(b"[0,16]", b"[4,20]"),
        b"",
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content):
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"m\.safetensors: expected a whole safetensors file"):
        files.read(path)


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(BadFile, match="found nothing"):
        files.read(tmp_path / "none.safetensors")
    with pytest.raises(BadFile, match="found a folder"):
        files.read(tmp_path)


def test_an_element_type_without_numpy_array_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    header = b'{"w":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(Unsupported, match="tensor w has element type F8_E8M0, expected one of F64 F32"):
        files.read(path)


def test_a_checkpoint_without_weights_is_refused(tmp_path):
    source = made(tmp_path / "m.safetensors", {"bias": np.ones(3, np.float32)})
    with pytest.raises(BadFile, match="nothing to quantize"):
        quantized(source, "per_channel:s8", tmp_path / "q.safetensors")


def test_quantizing_twice_is_refused(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    quantized(source, "per_group:s4", tmp_path / "q.safetensors")
    with pytest.raises(BadFile, match="is quantized already"):
        quantized(tmp_path / "q.safetensors", "per_group:s4", tmp_path / "qq.safetensors")


def test_a_tensor_with_the_name_of_a_scale_is_refused(tmp_path):
    tensors = {"w": np.ones((2, 2), np.float32), "w:scale": np.ones(2, np.float32)}
    source = made(tmp_path / "m.safetensors", tensors)
    with pytest.raises(InvalidProblem, match="tensor w:scale has the name"):
        quantized(source, "per_channel:s8", tmp_path / "q.safetensors")
    assert leftovers(tmp_path, source) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, meta: meta.pop("skuda.format"), "found one without skuda.format"),
        (
            lambda tensors, meta: meta.update({"skuda.format": "9"}),
            "has format 9 of quantized checkpoints, expected 1",
        ),
        (lambda tensors, meta: meta.pop("skuda.scheme"), "does not describe"),
        (lambda tensors, meta: meta.update({"skuda.scheme": "per_row:s8"}), "does not describe"),
        (lambda tensors, meta: meta.update({"skuda.group_size": "0"}), "does not describe"),
        (lambda tensors, meta: meta.update({"skuda.group_size": "5"}), "tensor w:scale is float32"),
        (lambda tensors, meta: meta.update({"skuda.weights": "[1]"}), "does not describe"),
        (lambda tensors, meta: meta.update({"skuda.weights": '{"w": {"shape": 3}}'}), "does not describe"),
        (
            lambda tensors, meta: meta.update({"skuda.weights": '{"w": {"shape": [2, 9], "element": "s8"}}'}),
            "weight w is described as s8",
        ),
        (
            lambda tensors, meta: meta.update(
                {"skuda.weights": '{"w": {"shape": [99, 9], "element": "f32"}}'}
            ),
            r"tensor w is uint8 \(2, 5\), expected uint8 \(99, 5\)",
        ),
        (
            lambda tensors, meta: (
                meta.update({"skuda.weights": '{"w": {"shape": [0, 9], "element": "f32"}}'}),
                tensors.update({name: array[:0] for name, array in tensors.items()}),
            ),
            "weight w is described as f32",
        ),
        (lambda tensors, meta: tensors.pop("w:scale"), "tensor w:scale is nothing, expected float32"),
        (lambda tensors, meta: tensors.pop("w:zero_point"), "tensor w:zero_point is nothing, expected uint8"),
        (
            lambda tensors, meta: tensors.update({"w:scale": np.ones((2, 3), np.float16)}),
            "tensor w:scale is float16",
        ),
    ],
)
def test_a_quantized_file_that_contradicts_itself_is_refused(tmp_path, change, message):
    source, out = tmp_path / "m.safetensors", tmp_path / "q.safetensors"
    quantized(made(source, {"w": np.ones((2, 9), np.float32)}), "per_group:u4", out)
    content = files.read(out)
    tensors, metadata = (
        {name: array.copy() for name, array in content.tensors.items()},
        dict(content.metadata),
    )
    change(tensors, metadata)
    made(out, tensors, metadata)
    with pytest.raises(BadFile, match=message):
        run.dequantize_checkpoint(out, tmp_path / "b.safetensors", CPU)
    assert leftovers(tmp_path, source, out) == []


# --- nothing is left half done


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError("no space left")])
@pytest.mark.parametrize("existing", [False, True])
def test_a_write_that_fails_leaves_no_trace(tmp_path, monkeypatch, failure, existing):
    source, out = made(tmp_path / "m.safetensors", weights(np.float32)), tmp_path / "q.safetensors"
    if existing:
        out.write_text("what was there")

    def fail(old, new):
        assert os.path.getsize(old) > 0  # so the temporary file was there, in the same folder
        assert os.path.dirname(old) == os.path.dirname(new)
        raise failure

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt if failure is KeyboardInterrupt else BadFile):
        quantized(source, "per_channel:s8", out)
    assert leftovers(tmp_path, source, *([out] if existing else [])) == []
    assert not existing or out.read_text() == "what was there"


def test_an_interrupt_while_quantizing_writes_nothing(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))

    def interrupt(elements):
        raise KeyboardInterrupt

    content, scheme = files.read(source), Scheme.parse("per_channel:s8")
    with pytest.raises(KeyboardInterrupt):
        run.quantize_checkpoint(source, content, scheme, tmp_path / "q", CPU, interrupt)
    assert leftovers(tmp_path, source) == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    with pytest.raises(BadFile, match=r"q\.safetensors: cannot be written"):
        quantized(source, "per_channel:s8", source / "q.safetensors")
    assert leftovers(tmp_path, source) == []


def test_the_output_is_never_the_input(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    before = source.read_bytes()
    link = tmp_path / "link.safetensors"
    link.symlink_to(source)
    for out in (source, link, tmp_path / "x" / ".." / "m.safetensors"):
        with pytest.raises(InvalidProblem, match="is the same file as"):
            quantized(source, "per_channel:s8", out)
        with pytest.raises(InvalidProblem, match="is the same file as"):
            run.dequantize_checkpoint(source, out, CPU)
    with pytest.raises(InvalidProblem, match="the output is a folder"):
        quantized(source, "per_channel:s8", tmp_path)
    assert source.read_bytes() == before


def test_others_may_read_the_output_as_the_umask_says(tmp_path):
    source, out = made(tmp_path / "m.safetensors", weights(np.float32)), tmp_path / "new" / "q.safetensors"
    previous = os.umask(0o027)
    try:
        quantized(source, "per_channel:s8", out)
    finally:
        os.umask(previous)
    assert stat.S_IMODE(out.stat().st_mode) == 0o640
