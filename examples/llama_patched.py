"""`skuda.torch.patch` on a Llama of transformers with random weights: how far results and gradients are from before.

    python examples/llama_patched.py [--device cuda]

Prints what was replaced, and for each element type the largest difference of logits and gradients, each over the
largest magnitude of what it was; for layers of 8-bit codes the cosine of the logits.
"""

from __future__ import annotations

import argparse

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import skuda.torch

SIZES = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip


def llama(dtype: torch.dtype, device: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # which begin as ones
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
    return model.to(device, dtype)


def results(model: torch.nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Logits, and the gradient of each parameter."""
    model.zero_grad()
    made = model(tokens, labels=tokens)
    made.loss.backward()
    return {"logits": made.logits.detach(), **{name: each.grad.clone() for name, each in model.named_parameters()}}


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


def run(device: str = "cpu") -> dict:
    """Patches, compares, undoes; prints the tables. Returns reports and differences."""
    tokens = torch.randint(0, SIZES["vocab_size"], (2, 48), generator=torch.Generator().manual_seed(1)).to(device)
    found: dict = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = llama(dtype, device)
        before = results(model, tokens)
        report = skuda.torch.patch(model)
        after = results(model, tokens)
        report_text = repr(report)
        replaced = dict(report.replaced)
        report.undo()
        undone = results(model, tokens)
        if not found:
            print(report_text, end="\n\n")
        differences = {name: off(after[name], before[name]) for name in before}
        gradients = max(value for name, value in differences.items() if name != "logits")
        same = all(torch.equal(undone[name], before[name]) for name in before)
        logits = differences["logits"]
        print(f"{str(dtype):<15} logits {logits:.1e}  gradients {gradients:.1e}  undone to the bit: {same}")
        found[dtype] = {"replaced": replaced, "logits": logits, "gradients": gradients, "undone": same}
        for code in ("s8", "e4m3"):
            report = skuda.torch.patch(model.eval(), linear=code, keep=("lm_head",))
            with torch.no_grad():
                logits = model(tokens).logits
            report.undo()
            flat = [each.double().flatten() for each in (logits, before["logits"])]
            cosine = float(torch.nn.functional.cosine_similarity(*flat, dim=0))
            print(f"{'':<15} {code} layers: cosine of logits {cosine:.5f}")
            found[dtype][code] = cosine
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    run(parser.parse_args().device)
