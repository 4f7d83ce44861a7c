"""One block of a Llama of 8 billion with random weights: bf16, and with layers of 8-bit codes.

    python examples/llama_block.py [--device cuda] [--tokens 16 128 1024 2048 4096]

Prints milliseconds for a sequence of so many tokens, eager, under torch.compile and as a CUDA graph, and the cosine of
what the block adds to its input with what a block of f32 adds.
"""

from __future__ import annotations

import argparse
import copy

import torch
from timing import WAYS, milliseconds
from torch.nn import functional

import skuda
from skuda.torch import nn

WIDTH, HIDDEN, HEADS, SHARED_HEADS = 4096, 14336, 32, 8
EPS = 1e-5
NORMS = {  # by code: a norm, and one of a sum, in kernels that make codes
    "s8": (skuda.rms_norm_dynamic_quantize, skuda.add_rms_norm_dynamic_quantize),
    "e4m3": (skuda.rms_norm_dynamic_quantize_fp8, skuda.add_rms_norm_dynamic_quantize_fp8),
}


class Block(torch.nn.Module):
    """Attention and a gated feed-forward layer, each behind a norm; query, key and value are one product."""

    def __init__(self, width: int, hidden: int, heads: int, shared: int, device: str):
        super().__init__()
        made = {"bias": False, "device": device}
        self.heads, self.shared, self.size = heads, shared, width // heads
        self.first_norm = torch.nn.RMSNorm(width, eps=EPS, device=device)
        self.mix = torch.nn.Linear(width, (heads + 2 * shared) * self.size, **made)
        self.mixed = torch.nn.Linear(width, width, **made)
        self.second_norm = torch.nn.RMSNorm(width, eps=EPS, device=device)
        self.gate_proj, self.up_proj = (torch.nn.Linear(width, hidden, **made) for _ in range(2))
        self.down_proj = torch.nn.Linear(hidden, width, **made)
        turn = 500000.0 ** (-torch.arange(0, self.size, 2, device=device) / self.size)
        self.register_buffer("turn", turn, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.mix(self.first_norm(x)))
        read = self.second_norm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(read)) * self.up_proj(read))

    def attention(self, each: torch.Tensor) -> torch.Tensor:
        """Of tokens in a row, each of which sees those before it: [tokens, ...] to [tokens, width]."""
        count = each.shape[0]
        each = each.view(count, self.heads + 2 * self.shared, self.size).transpose(0, 1)
        query, key, value = each.split([self.heads, self.shared, self.shared])
        angles = torch.arange(count, device=each.device)[:, None] * self.turn.float()
        cos, sin = (torch.cat([part, part], -1).to(each.dtype) for part in (angles.cos(), angles.sin()))
        query, key = (part * cos + _rotated(part) * sin for part in (query, key))
        inputs = (each[None] for each in (query, key, value))
        read = functional.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
        return self.mixed(read[0].transpose(0, 1).reshape(count, -1))


def _rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


class OfCodes(Block):
    """The block with layers of 8-bit codes: norms, their sums and the gate are computed where codes are made."""

    @classmethod
    def of(cls, block: Block, code: str) -> OfCodes:
        made = copy.copy(block)
        made.__class__ = cls
        made._modules = dict(block._modules)
        for name in ("mix", "mixed", "gate_proj", "up_proj", "down_proj"):
            made._modules[name] = nn.Linear8Bit.of(block._modules[name], code)
        made.code = code
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm, add_norm = NORMS[self.code]
        first = nn.Codes(*norm(x, self.first_norm.weight, eps=EPS, dtype=self.code), x.dtype)
        mixed = self.attention(self.mix(first))
        x, *codes = add_norm(mixed, x, self.second_norm.weight, eps=EPS, dtype=self.code)
        read = nn.Codes(*codes, x.dtype)
        return x + self.down_proj(nn.gated(self.gate_proj, self.up_proj, read))


@torch.no_grad()
def run(
    device: str = "cpu", tokens=(16, 128, 1024, 2048, 4096), sizes=(WIDTH, HIDDEN, HEADS, SHARED_HEADS),
    compiles: bool = True,
) -> dict[str, dict]:  # fmt: skip
    """Measures all; prints the table. Returns cosines and times by variant."""
    torch.manual_seed(0)
    exact = Block(*sizes, device)
    for weight in (exact.first_norm.weight, exact.second_norm.weight):
        weight.add_(0.1 * torch.randn_like(weight))
    half = copy.deepcopy(exact).bfloat16()
    inputs = {count: torch.randn(count, sizes[0], device=device).bfloat16() for count in tokens}
    some = inputs[min(tokens, key=lambda count: abs(count - 128))]
    wanted, found = exact(some.float()) - some.float(), {}
    del exact
    ways = WAYS if compiles else {"eager": WAYS["eager"]}
    heads = " ".join(f"{f'{way} {count}':>13}" for count in tokens for way in ways)
    print(f"{'block':<6} {'cosine to f32':>13} {heads}   (ms for so many tokens)")
    for name in ("bf16", "s8", "e4m3"):
        block = half if name == "bf16" else OfCodes.of(half, name)
        added = (block(some) - some).double()
        cosine = float(functional.cosine_similarity(added.flatten(), wanted.double().flatten(), dim=0))
        times = {}
        for count in tokens:
            for way in ways:
                torch._dynamo.reset()
                called = ways[way](block)
                times[way, count] = milliseconds(lambda call=called, x=inputs[count]: call(x), device)
        found[name] = {"cosine": cosine, "milliseconds": times}
        print(f"{name:<6} {cosine:>13.5f} " + " ".join(f"{each:>13.3f}" for each in times.values()), flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, nargs="*", default=[16, 128, 1024, 2048, 4096])
    run(**vars(parser.parse_args()))
