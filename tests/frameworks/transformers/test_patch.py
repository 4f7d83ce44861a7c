"""skuda.torch.patch on models of transformers: what is replaced by structure, and what is not."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel, GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM

import skuda.torch

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip


def test_norms_of_another_formula_stay():
    model = GemmaForCausalLM(GemmaConfig(**SMALL, num_key_value_heads=1, head_dim=16))
    report = skuda.torch.patch(model)
    assert report.kept["model.norm"] == "on random numbers it gives something else than RMSNorm"
    assert report.kept["model.layers.0.mlp"] == "it has not silu between gate_proj and down_proj"
    assert report.replaced == {f"model.layers.{layer}.mlp.act_fn": "GELU" for layer in range(2)}


def test_bert():
    torch.manual_seed(0)
    model, tokens = BertModel(BertConfig(**SMALL)).eval(), torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        wanted = model(tokens).last_hidden_state
        report = skuda.torch.patch(model)
        assert sorted(set(report.replaced.values())) == ["GELU", "LayerNorm"] and len(report.replaced) == 7
        assert torch.allclose(model(tokens).last_hidden_state, wanted, atol=1e-5)
        report.undo()
        assert torch.equal(model(tokens).last_hidden_state, wanted)


def test_a_tied_head_stays():
    model = LlamaForCausalLM(LlamaConfig(**SMALL, tie_word_embeddings=True))
    report = skuda.torch.patch(model, linear="s8")
    assert report.kept == {"lm_head": "its weight is another module's too"}
    assert sorted(set(report.replaced.values())) == ["Linear8Bit", "RMSNorm", "SwiGLU"]


@pytest.mark.parametrize("code", ["s8", "e4m3"])
def test_a_patched_llama_quantizes_each_tensor_once(monkeypatch, code):
    """In each layer: for query, key and value; for the projection behind attention; for gate and up; for down."""
    from skuda.torch import linear, nn

    model, tokens = LlamaForCausalLM(LlamaConfig(**SMALL)).eval(), torch.arange(12).reshape(2, 6)
    skuda.torch.patch(model, linear=code, keep=("lm_head",))
    made = []

    def noted(function):
        def call(x, *rest, **named):
            before = len(made)
            found = function(x, *rest, **named)
            if len(made) == before:  # else one called the other
                made.append(x)
            return found

        return call

    for module in (linear, nn):
        monkeypatch.setattr(module, "quantized", noted(module.quantized))
    monkeypatch.setattr(nn, "gated", noted(nn.gated))  # quantizes by the kernel that reads the sums
    with torch.no_grad():
        found = model(tokens, use_cache=False).logits
        assert len(made) == 4 * SMALL["num_hidden_layers"]
        for layer in model.modules():
            if isinstance(layer, nn.Linear8Bit):
                layer.shared = None
        made.clear()
        assert torch.equal(model(tokens, use_cache=False).logits, found)
        assert len(made) == 6 * SMALL["num_hidden_layers"]


@pytest.mark.parametrize("linear", [None, "s8", "e4m3"])
def test_a_patched_llama_is_one_graph(linear):
    torch._dynamo.reset()
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    skuda.torch.patch(model, linear=linear)
    tokens = torch.arange(12).reshape(2, 6)

    def run(tokens):
        return model(tokens, use_cache=False).logits

    with torch.no_grad():
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
        assert torch.allclose(compiled(tokens), run(tokens), atol=1e-5)
