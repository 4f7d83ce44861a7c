"""A BERT sentence encoder in NumPy, from the weights of its checkpoint: what an activation is, without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skuda.checkpoints import files
from skuda.demo import wordpiece
from skuda.errors import BadFile

# What the linear layers of a block read.
PARTS = ("attention in", "attention out", "feed-forward in", "feed-forward out")
Through = Callable[[str, np.ndarray], np.ndarray]

@dataclass(frozen=True)
class Encoder:
    """A model and its vocabulary.

    Attributes:
        tensors: weights by name, f32.
        vocabulary: tokens and their numbers.
        layers: how many blocks there are.
        heads: of attention.
        eps: what layer norms add.
    """

    tensors: Mapping[str, np.ndarray]
    vocabulary: Mapping[str, int]
    layers: int
    heads: int
    eps: float

    @classmethod
    def read(cls, file: Path) -> Encoder:
        """From a checkpoint that has `config.json` and `vocab.txt` beside it.

        Raises:
            BadFile: one of them is not there, or it is no BERT encoder.
        """
        beside = [file.with_name(name) for name in ("config.json", "vocab.txt")]
        for path in beside:
            if not path.is_file():
                raise BadFile(f"{path}: expected this file beside {file.name}, found nothing")
        content = files.read(file)
        try:
            config = json.loads(beside[0].read_text(encoding="utf-8"))
            if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
                raise BadFile(
                    f"{beside[0]}: model_type is {config['model_type']} with {config['hidden_act']}, expected bert "
                    "with gelu"
                )
            made = cls(
                {name: array.astype(np.float32, copy=False) for name, array in content.tensors.items()},
                wordpiece.read_vocabulary(beside[1]),
                config["num_hidden_layers"],
                config["num_attention_heads"],
                config["layer_norm_eps"],
            )
        except (ValueError, KeyError) as error:
            raise BadFile(f"{beside[0]}: expected the description of a BERT model: {error!r}") from error
        made._check(file)
        return made

    def _check(self, file: Path) -> None:
        dense = ("attention.self.query", "attention.output.dense", "intermediate.dense", "output.dense")
        names = [f"encoder.layer.{layer}.{each}.weight" for layer in range(self.layers) for each in dense]
        for name in ("embeddings.word_embeddings.weight", *names):
            if name not in self.tensors:
                raise BadFile(f"{file}: has no tensor {name}, expected the weights of a BERT encoder")

    def embed(self, sentences: Sequence[str], through: Through = lambda part, values: values) -> np.ndarray:
        """A vector of length 1 for each sentence: the mean of its tokens' last values.

        Args:
            sentences: any number.
            through: called with the input of each linear layer (its part, and [tokens, width] of all sentences
                one after the other); the layer reads what it returns.
        """
        numbers = [wordpiece.tokens(sentence, self.vocabulary) for sentence in sentences]
        ends = np.cumsum([len(each) for each in numbers])
        spans = [slice(end - len(each), end) for end, each in zip(ends, numbers, strict=True)]
        places = np.concatenate([np.arange(len(each)) for each in numbers])
        table = self.tensors
        values = table["embeddings.word_embeddings.weight"][np.concatenate(numbers)]
        values = values + table["embeddings.position_embeddings.weight"][places]
        values = self._norm(values + table["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self.layers):
            values = self._block(values, f"encoder.layer.{layer}.", spans, through)
        means = np.stack([values[span].mean(axis=0) for span in spans])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def _block(self, values: np.ndarray, name: str, spans: Sequence[slice], through: Through) -> np.ndarray:
        read = through("attention in", values)
        query, key, value = (self._linear(read, f"{name}attention.self.{each}") for each in ("query", "key", "value"))
        mixed = np.concatenate([self._attention(query[span], key[span], value[span]) for span in spans])
        mixed = self._linear(through("attention out", mixed), f"{name}attention.output.dense")
        values = self._norm(values + mixed, f"{name}attention.output.LayerNorm")
        wide = self._linear(through("feed-forward in", values), f"{name}intermediate.dense")
        narrow = self._linear(through("feed-forward out", gelu(wide)), f"{name}output.dense")
        return self._norm(values + narrow, f"{name}output.LayerNorm")

    def _attention(self, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        """Of one sentence, [tokens, width] each."""
        length, width = query.shape
        query, key, value = (each.reshape(length, self.heads, -1).swapaxes(0, 1) for each in (query, key, value))
        scores = query @ key.swapaxes(1, 2) / np.float32(math.sqrt(width // self.heads))
        raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (raised / raised.sum(axis=-1, keepdims=True) @ value).swapaxes(0, 1).reshape(length, width)

    def _linear(self, values: np.ndarray, name: str) -> np.ndarray:
        return values @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, values: np.ndarray, name: str) -> np.ndarray:
        centered = values - values.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(centered).mean(axis=-1, keepdims=True) + np.float32(self.eps))
        return centered / spread * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]


def gelu(values: np.ndarray) -> np.ndarray:
    """x times the normal distribution's share below x; erf by Abramowitz and Stegun 7.1.26, off by 1.5e-7 at most."""
    x = np.abs(values) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.copysign(1 - tail * np.exp(-x * x), values)
    return values * (1 + erf) / 2
