"""torch's autograd and outputs that are written behind its back, on the CPU; tests/gpu has the same on a GPU."""

from __future__ import annotations

import pytest
import torch

import skuda
from skuda.errors import InvalidProblem
from skuda.model.sku import BackendKind

CHANGED = "modified by an inplace operation"


def by_function(out):
    skuda.fake_quantize_per_tensor(torch.ones(3), 1.0, 0, out=out)


def by_arrangement(out):
    skuda.mean(torch.ones(2, 3), axis=0, out=out)


def by_several_outputs(out):
    skuda.dynamic_quantize_per_token(torch.ones(3, 2), out=(out, torch.zeros(3, 2, dtype=torch.int8)))


def by_plan(out):
    plan = skuda.GeluPlan.select(skuda.GeluDescriptor(shape=3), preference=BackendKind.REFERENCE)
    plan.run(skuda.GeluArgs(torch.ones(3), out))


def by_view(out):
    by_function(out[:])


def by_detached(out):
    by_function(out.detach())


WAYS = [by_function, by_arrangement, by_several_outputs, by_plan, by_view, by_detached]


@pytest.mark.parametrize("write", WAYS)
def test_a_saved_tensor_that_was_written_is_noticed(write):
    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    y = w * x  # saves x
    y.sum().backward()
    y = w * x
    write(x)
    assert x._version == 1
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()


@pytest.mark.parametrize("write", [by_function, by_arrangement, by_several_outputs, by_plan])
def test_an_output_that_requires_grad(write):
    """As torch's own `out=`: refused while gradients are recorded, a leaf or not; written under no_grad."""
    leaf = torch.ones(3, requires_grad=True)
    for out in (leaf, leaf * 2):
        with pytest.raises(InvalidProblem, match="requires grad, and autograd would not see what is written to it"):
            write(out)
        assert out._version == 0 and out.tolist() == ([1] * 3 if out is leaf else [2] * 3)
        with torch.no_grad():
            write(out)
        assert out._version == 1


def test_a_parameter_module_s_parameter():
    parameter = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        by_function(parameter)
    assert parameter._version == 1


def test_inference_tensors_and_inputs_have_no_version_to_change():
    with torch.inference_mode():
        x = torch.ones(3)
        by_function(x)
    by_function(x)
    given = torch.ones(3)
    skuda.gelu(given)
    assert given._version == 0


def test_nothing_written_is_nothing_told():
    x = torch.ones(4)
    with pytest.raises(InvalidProblem):
        by_function(x)
    assert x._version == 0
