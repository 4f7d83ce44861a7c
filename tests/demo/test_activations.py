"""The activation pass of the demo: its tokenizer, its encoder beside torch's, what the table says."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.weights import backend
from skuda.demo import activations, add_parser, checkpoint, encoder, wordpiece
from skuda.demo.encoder import Encoder, gelu
from skuda.errors import BadFile, MissingDependency

WORDS = "[PAD] [UNK] [CLS] [SEP] the cafe quan ##ti ##z ##es q ' s ! 2 ##0".split()
VOCABULARY = {word: index for index, word in enumerate(WORDS)}
WIDTH, WIDE, LAYERS, HEADS = 24, 40, 2, 3
SENTENCES = ["the cafe quantizes", "the cafe's 20!", "the"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the", "the"),
        ("The  CAFÉ\tquantizes", "the cafe quan ##ti ##z ##es"),
        ("the cafe's!", "the cafe ' s !"),
        ("20", "2 ##0"),
        ("quantum", "[UNK]"),  # a word that does not come apart is unknown as a whole
        ("the " + "q" * 101, "the [UNK]"),
        ("", ""),
        ("!!", "! !"),
        ("the—the", "the [UNK] the"),
    ],
)
def test_words_come_apart_into_the_longest_pieces(text, expected):
    found = [WORDS[index] for index in wordpiece.tokens(text, VOCABULARY)]
    assert found == ["[CLS]", *expected.split(), "[SEP]"]


def weights(rng) -> dict[str, np.ndarray]:
    def normal(*shape):
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": normal(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": normal(32, WIDTH),
        "embeddings.token_type_embeddings.weight": normal(2, WIDTH),
    }
    dense = {
        "attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (WIDE, WIDTH), "output.dense": (WIDTH, WIDE),
    }  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
        for each, shape in dense.items():
            found[f"{name}{each}.weight"], found[f"{name}{each}.bias"] = normal(*shape), normal(shape[0])
    for name in norms:
        found[f"{name}.weight"], found[f"{name}.bias"] = 1 + normal(WIDTH), normal(WIDTH)
    return found


@pytest.fixture
def model(tmp_path):
    """A small BERT as a package has it."""
    save_file(weights(np.random.default_rng(3)), tmp_path / "model.safetensors")
    config = {
        "model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "layer_norm_eps": 1e-12,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return tmp_path / "model.safetensors"


def by_torch(tensors: dict[str, torch.Tensor], numbers: list[int]) -> np.ndarray:
    """A sentence's vector by torch's own encoder layer."""

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (WIDTH,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], 1e-12)

    x = tensors["embeddings.word_embeddings.weight"][numbers]
    x = x + tensors["embeddings.position_embeddings.weight"][: len(numbers)]
    x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        block = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, WIDE, dropout=0, activation="gelu", layer_norm_eps=1e-12, batch_first=True
        ).double().eval()  # fmt: skip
        of = {name.removeprefix(f"encoder.layer.{layer}."): value for name, value in tensors.items()}
        three = [f"attention.self.{each}" for each in ("query", "key", "value")]
        named = {
            "self_attn.in_proj_weight": torch.cat([of[f"{each}.weight"] for each in three]),
            "self_attn.in_proj_bias": torch.cat([of[f"{each}.bias"] for each in three]),
        }
        for ours, theirs in (
            ("attention.output.dense", "self_attn.out_proj"), ("intermediate.dense", "linear1"),
            ("output.dense", "linear2"), ("attention.output.LayerNorm", "norm1"), ("output.LayerNorm", "norm2"),
        ):  # fmt: skip
            named |= {f"{theirs}.{end}": of[f"{ours}.{end}"] for end in ("weight", "bias")}
        block.load_state_dict(named)
        with torch.no_grad():
            x = block(x[None])[0]
    mean = x.mean(0)
    return (mean / mean.norm()).numpy()


def test_the_encoder_is_torchs(model):
    made = Encoder.read(model)
    tensors = {name: torch.from_numpy(np.array(value)).double() for name, value in made.tensors.items()}
    expected = [by_torch(tensors, wordpiece.tokens(text, VOCABULARY)) for text in SENTENCES]
    np.testing.assert_allclose(made.embed(SENTENCES), expected, atol=2e-6)


def test_gelu_is_exact_enough():
    x = torch.linspace(-12, 12, 9001)
    np.testing.assert_allclose(gelu(x.numpy()), torch.nn.functional.gelu(x.double()), atol=2e-6)


def test_each_activation_is_quantized_row_by_row(model):
    made = Encoder.read(model)
    seen: dict[str, list[np.ndarray]] = {}
    made.embed(SENTENCES, lambda part, values: seen.setdefault(part, []).append(values) or values)
    found = activations.run(made, backend("cpu"), SENTENCES)
    assert found.tokens == sum(len(wordpiece.tokens(text, VOCABULARY)) for text in SENTENCES)
    assert [each.part for each in found.activations] == list(encoder.PARTS) * len(activations.SCHEMES)
    for each in found.activations:
        assert each.shape == (found.tokens, WIDE if each.part == "feed-forward out" else WIDTH)
        signal = noise = 0.0
        for values in seen[each.part]:
            back = _there_and_back(values.astype(np.float64), each.scheme)
            signal, noise = signal + np.sum(values**2), noise + np.sum((back - values) ** 2)
        assert each.loss.snr == pytest.approx(10 * np.log10(signal / noise), abs=0.02)
        assert each.loss.worst <= 0.501
    coarse, fine = (found.cosines[Scheme("per_token", word)].min() for word in ("s4", "s8"))
    assert coarse < fine < 1 and fine > 0.99


def _there_and_back(values: np.ndarray, scheme: Scheme) -> np.ndarray:
    highest = scheme.dtype.highest
    if scheme.symmetric:
        scale, zero = np.abs(values).max(1, keepdims=True) / highest, 0
    else:
        low, high = (np.minimum(values.min(1, keepdims=True), 0), np.maximum(values.max(1, keepdims=True), 0))
        scale = (high - low) / highest
        zero = np.rint(-low / scale)
    return (np.clip(np.rint(values / scale) + zero, scheme.dtype.lowest, highest) - zero) * scale


def command(*words) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["demo", "activations", *map(str, words)])
    return args.handler(args)


def test_the_command_prints_a_table_that_fits_60_columns(model, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert command(model, "--device", "cpu", "--sentence", SENTENCES[0], "--sentence", SENTENCES[1]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = " ".join(" ".join(lines[:2]).split())
    assert first.startswith("model: 2 sentences, 17 tokens, 2 layers. Runs on: the CPU.")
    rows = {" ".join(line.split()[:2]): line.split()[2:] for line in lines}
    assert rows["per_token shape"] == ["dB", "%"] * 3
    assert rows["s8 error"] == "u8 error s4 error".split()
    assert max(map(len, lines)) <= 60
    for part in encoder.PARTS:
        shape, *figures = rows[part]
        assert shape == f"17x{WIDE if part == 'feed-forward out' else WIDTH}"
        decibels, percent = map(float, figures[:2])
        assert percent == pytest.approx(100 * 10 ** (-decibels / 20), abs=0.06)
    assert any("Vectors of the 2 sentences" in line for line in lines)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), r"vocab.txt: expected this file beside model.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config.json: expected the description of a BERT"),
        (lambda folder: (folder / "config.json").write_text("{}"), r"config.json: expected .*KeyError\('model_type'\)"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "t5", "hidden_act": "relu"}'),
         r"model_type is t5 with relu, expected bert with gelu"),
        (lambda folder: save_file({"w": np.ones((2, 2))}, folder / "model.safetensors"),
         r"model.safetensors: has no tensor embeddings.word_embeddings.weight"),
    ],
)  # fmt: skip
def test_what_is_no_bert_encoder_is_refused(model, spoil, message):
    spoil(model.parent)
    with pytest.raises(BadFile, match=message):
        command(model)


def test_the_real_model_knows_what_sentences_mean():
    try:
        made = Encoder.read(checkpoint.default_model())
    except MissingDependency as error:
        pytest.skip(str(error))
    vectors = made.embed(activations.SENTENCES)
    close = vectors @ vectors.T - 2 * np.eye(len(vectors))
    assert (close[2].argmax(), close[3].argmax()) == (3, 2)  # the cat and the kitten
    assert (close[0].argmax(), close[1].argmax()) == (1, 0)  # memory, and moving numbers
