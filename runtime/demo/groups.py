"""Which part of a model a tensor belongs to, told from its name, for checkpoints of the usual families."""

from __future__ import annotations

import re

EMBEDDINGS, QUERY, KEY, VALUE = "embeddings", "attention query", "attention key", "attention value"
FUSED, OUTPUT = "attention q, k, v", "attention output"
WIDEN, NARROW, FEED_FORWARD = "feed-forward in", "feed-forward out", "feed-forward"
POOLER, HEAD, CONVOLUTION, OTHER, KEPT = "pooler", "head", "convolution", "other weights", "kept as they are"

# The order of the table, which is about that of the data through a model.
ORDER = (
    EMBEDDINGS, QUERY, KEY, VALUE, FUSED, OUTPUT, WIDEN, NARROW, FEED_FORWARD,
    CONVOLUTION, POOLER, HEAD, OTHER, KEPT,
)  # fmt: skip

# The first pattern found in the name decides. Spellings of BERT, GPT-2, Llama, T5, ViT, CLIP and diffusers.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        (EMBEDDINGS, r"embed|\bwte\b|\bwpe\b|\bshared\b"),
        (
            WIDEN,
            r"intermediate|\b(gate|up|gate_up)_proj\b|\bc_fc\b|\bfc1\b|\bw[13]\b|\blin(ear)?1\b"
            r"|\bwi(_[01])?\b",
        ),
        (NARROW, r"\bdown_proj\b|mlp\.c_proj\b|\bfc2\b|\bw2\b|\blin(ear)?2\b|DenseReluDense\.wo\b"),
        (FEED_FORWARD, r"\bmlp\b|\bffn?\b|feed_?forward|experts"),
        (FUSED, r"qkv|\bc_attn\b|\bin_proj|query_key_value"),
        (QUERY, r"\bquery\b|\bq_(proj|lin)\b|\bto_q\b|\bwq\b|tention\.q\b"),
        (KEY, r"\bkey\b|\bk_(proj|lin)\b|\bto_k\b|\bwk\b|tention\.k\b"),
        (VALUE, r"\bvalue\b|\bv_(proj|lin)\b|\bto_v\b|\bwv\b|tention\.v\b"),
        (
            OUTPUT,
            r"att(entio)?n\.(output|dense|proj|c_proj)|\bo_proj\b|\bout_(proj|lin)\b|\bto_out\b|\bwo\b"
            r"|tention\.o\b",
        ),
        (NARROW, r"\boutput\.dense\b"),
        (POOLER, r"pool"),
        (HEAD, r"head\b|classifier|\bscore\b|predictions"),
        (CONVOLUTION, r"conv"),
    )
)
_LAYER = re.compile(r"(?:^|\.)(\d+)\.")


def part_of(name: str) -> str:
    """The part of the model that a weight belongs to: one of `ORDER`."""
    return next((part for part, pattern in _PATTERNS if pattern.search(name)), OTHER)


def layer_of(name: str) -> int | None:
    """The number of the layer that a weight belongs to; None for a name without one."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def without_layer(name: str) -> str:
    """The name with its layer's number taken out: the same for that weight of every layer."""
    return _LAYER.sub(".*.", name, count=1)
