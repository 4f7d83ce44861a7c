"""The examples of modules and models run small on the CPU, and what they find is within bounds. They print tables."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))


def test_training_with_lsq():
    import lsq_digits

    found = lsq_digits.run(seeds=5, epochs=6)
    for bits in lsq_digits.BITS:
        ours, theirs = found["skuda LSQ", bits], found["torch", bits]
        assert min(ours["accuracies"]) > 0.8, bits
        assert sum(ours["accuracies"]) > sum(theirs["accuracies"]) - 5 * 0.03, bits
        assert ours["losses"][-1] < 0.4 * ours["losses"][0], bits


def test_a_patched_llama():
    import llama_patched

    found = llama_patched.run()
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2)):
        each = found[dtype]
        assert sorted(set(each["replaced"].values())) == ["RMSNorm", "SwiGLU"] and len(each["replaced"]) == 13
        assert each["logits"] < bound and each["gradients"] < bound and each["undone"], dtype
        assert each["s8"] > 0.999 and each["e4m3"] > 0.99


@pytest.mark.parametrize("compiles", [False, True])
def test_a_block_of_a_llama(compiles):
    import llama_block

    found = llama_block.run(tokens=(24,) if compiles else (7, 40), sizes=(128, 352, 4, 2), compiles=compiles)
    assert found["bf16"]["cosine"] > 0.9995 and found["s8"]["cosine"] > 0.999 and found["e4m3"]["cosine"] > 0.996


def test_the_sentence_model():
    import sentence_model

    found = sentence_model.run(batches=())
    least = {"f16": 0.9995, "f16, patched": 0.9995, "f16, s8 layers": 0.995, "f16, e4m3 layers": 0.99}
    for name, bound in least.items():
        assert found[name]["cosine"] > bound, name


def test_the_sentence_model_is_the_demos():
    import numpy as np
    import sentence_model

    from skuda.demo.activations import SENTENCES
    from skuda.demo.checkpoint import default_model
    from skuda.demo.encoder import Encoder

    encoder = Encoder.read(default_model())
    with torch.no_grad():
        found = sentence_model.Model(encoder).eval()(*sentence_model.batch_of(encoder, len(SENTENCES), "cpu"))
    assert np.allclose(found.numpy(), encoder.embed(SENTENCES), atol=1e-5)
