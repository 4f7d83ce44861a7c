"""The demo: every kind of checkpoint goes in and comes back."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest
from checkpoints import BACKENDS, CPU, FLOATS, MANTISSA, SCHEMES, expected_scale, made, quantized, slices, weights
from safetensors import safe_open

from skuda.checkpoints import files
from skuda.demo import report, run


@pytest.mark.parametrize("on", BACKENDS, ids=lambda on: on.name)
@pytest.mark.parametrize("word", FLOATS)
@pytest.mark.parametrize("text", SCHEMES)
def test_every_weight_comes_back_within_half_a_step(tmp_path, text, word, on):
    granularity, _, element = text.partition(":")
    original = weights(FLOATS[word])
    source = made(tmp_path / "model.safetensors", original)
    quantized(source, text, tmp_path / "q.safetensors", on=on)
    run.dequantize_checkpoint(tmp_path / "q.safetensors", tmp_path / "back.safetensors", on)
    back = files.read(tmp_path / "back.safetensors").tensors

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
    first, second = (files.read(tmp_path / name) for name in ("cpu.safetensors", "q.safetensors"))
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

    for tensors in (files.read(tmp_path / "q.safetensors").tensors, back.tensors):
        for name, array in kept.items():
            assert (tensors[name].dtype, tensors[name].shape) == (array.dtype, array.shape)
            assert tensors[name].tobytes() == array.tobytes()
    assert back.tensors["w"].tolist() == weight.tolist()
    assert files.read(tmp_path / "b.safetensors").metadata == {"format": "pt", "note": "ours"}
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
    tensor = files.read(path).tensors["w"]
    assert tensor.tolist() == [[3, -6]]
    assert tensor.flags.aligned
    assert quantized(path, "per_tensor:s8", tmp_path / "q.safetensors").entries[0].loss.worst <= 0.5001
