"""Real activations through dynamic quantization: what each kind loses, and what is left of the sentences' meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import skuda
from skuda.checkpoints.scheme import Quantized, Scheme
from skuda.checkpoints.weights import Backend, dequantize
from skuda.demo.encoder import PARTS, Encoder
from skuda.demo.measure import Loss, loss
from skuda.model.dtypes import WORD_OF_STORAGE

SENTENCES = (
    "A kernel that waits for memory has time for arithmetic.",
    "Most of a GPU's time goes into moving numbers, not into computing them.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "Quantization stores a value in 8 bits: a code, and a scale that a whole row shares.",
    "How many stars can be seen on a clear night without a telescope?",
    "Bring two litres of water, some bread, and a map; the hut is closed until May.",
    "Das Café an der Ecke schließt um 18:30 Uhr.",
)
SCHEMES = tuple(Scheme("per_token", element) for element in ("s8", "u8", "s4"))


@dataclass(frozen=True)
class Activation:
    """One kind of activation under one scheme.

    Attributes:
        part: what reads it, one of `encoder.PARTS`.
        shape: tokens and width, in each layer.
        scheme: how it was quantized.
        loss: of all layers together.
    """

    part: str
    shape: tuple[int, int]
    scheme: Scheme
    loss: Loss


@dataclass(frozen=True)
class Pass:
    """What a pass found.

    Attributes:
        tokens: of all sentences.
        activations: by scheme, then part.
        cosines: by scheme: of each sentence's vector made from quantized activations with the exact one.
    """

    tokens: int
    activations: tuple[Activation, ...]
    cosines: dict[Scheme, np.ndarray]


def quantize(values: np.ndarray, scheme: Scheme, on: Backend) -> Quantized:
    """Activations of [tokens, width], each row by a scale (and, for unsigned codes, a zero point) of its own."""
    array, zero_point = on.upload(values), None
    if scheme.symmetric:
        scale, codes = skuda.dynamic_quantize_per_token(array, dtype=scheme.element)
    else:
        scale, zero_point, codes = skuda.dynamic_quantize_asymmetric_per_token(array, dtype=scheme.element)
        zero_point = on.download(zero_point)
    return Quantized(on.download(codes), on.download(scale), zero_point, values.shape, WORD_OF_STORAGE[values.dtype])


def run(
    encoder: Encoder, on: Backend, sentences: Sequence[str] = SENTENCES, schemes: Sequence[Scheme] = SCHEMES
) -> Pass:
    """Sentences through the model, exactly, and once more with each scheme."""
    kept: dict[str, list[np.ndarray]] = {part: [] for part in PARTS}

    def keep(part: str, values: np.ndarray) -> np.ndarray:
        kept[part].append(values)
        return values

    exact = encoder.embed(sentences, keep)
    found, cosines = [], {}
    for scheme in schemes:

        def there_and_back(part: str, values: np.ndarray, scheme: Scheme = scheme) -> np.ndarray:
            return dequantize(quantize(values, scheme, on), scheme, on)

        for part, layers in kept.items():
            total = Loss()
            for values in layers:
                codes = quantize(values, scheme, on)
                total += loss(values, dequantize(codes, scheme, on), codes, scheme)
            found.append(Activation(part, layers[0].shape, scheme, total))
        cosines[scheme] = np.sum(exact * encoder.embed(sentences, there_and_back), axis=1)
    return Pass(len(kept[PARTS[0]][0]), tuple(found), cosines)
