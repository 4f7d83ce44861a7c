"""Formulas in torch's operators on CUDA: eager, and as Inductor compiles them, beside the kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch._inductor.utils import run_and_get_code

import skuda
import skuda.torch
from skuda.frameworks.programs import program_of
from skuda.torch import formulas

sys.path.insert(0, str(Path(__file__).parents[1] / "pytorch"))

from operations import call_of, plans
from test_fusible import FUSIBLE, compare, results

from .test_torch_gpu import EXACT, moved


@pytest.mark.parametrize("name", [name for name in EXACT if name in FUSIBLE])
def test_the_formula_is_the_operation(name):
    call = moved(call_of(plans()[name]))
    found = formulas.evaluated(call, program_of(plans()[name]))
    for ours, theirs in zip(found, results(call.run()), strict=True):
        assert ours.is_cuda
        compare(ours, theirs, False, False, name)


def chain(x, weight, scale):
    y = skuda.gelu(skuda.rms_norm(x, weight))
    return skuda.fake_quantize_per_tensor(y, scale), skuda.dynamic_quantize_per_token(y.detach(), dtype="s8").scale


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_inductor_makes_one_program_of_a_chain(mode):
    """For several lengths, with its gradients; no kernel of skuda is called."""
    torch._dynamo.reset()
    compiled = skuda.torch.compile(chain, fusible=True, fullgraph=True, dynamic=mode == "default", mode=mode)
    weight, scale = torch.linspace(0.5, 2, 512, device="cuda").requires_grad_(), torch.tensor(0.05, device="cuda")
    for count in (8, 8, 8, 17):
        x = torch.randn(count, 512, device="cuda", requires_grad=True)
        with torch._inductor.config.patch(fx_graph_cache=False):
            made, codes = run_and_get_code(compiled, x, weight, scale)
        assert not any("skuda" in code for code in codes)
        passes = []
        for each in (made, chain(x, weight, scale)):
            found = torch.autograd.grad(each[0], (x, weight), torch.full_like(each[0], 0.5))
            passes.append([value.detach().clone() for value in (*each, *found)])
        for position, (ours, theirs) in enumerate(zip(*passes, strict=True)):
            if position == 0:  # an element beside a tie may be a step away
                assert ((ours - theirs).abs() <= 0.0501).all() and (ours == theirs).float().mean() > 0.999
            else:
                assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
