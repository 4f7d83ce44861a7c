"""torch.compile, export and graphs of all operations: one graph, and the bits of eager calls."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from operations import call_of, plans, same

from skuda.torch import operator_of

GROUP = 16  # operations in one graph


def groups():
    names = iter(plans())
    return [*iter(lambda: tuple(islice(names, GROUP)), ())]


def program(calls):
    """A function of all tensors of some calls that makes them one after the other."""
    operators = [operator_of(call.plan_class) for call in calls]
    rest = [[getattr(call, name) for name in call._fields[2:]] for call in calls]

    def run(*inputs):
        made = []
        for call, operator, others in zip(calls, operators, rest):
            given, inputs = inputs[: len(call.inputs)], inputs[len(call.inputs) :]
            made.append(operator.apply(type(call)(call.plan_class, given, *others)))
        return made

    return run, [value for call in calls for value in call.inputs]


@pytest.mark.turns(12)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("names", groups(), ids=lambda names: names[0])
def test_compiled_is_eager(names, dynamic):
    torch._dynamo.reset()
    run, inputs = program([call_of(plans()[name]) for name in names])
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    assert same(compiled(*inputs), run(*inputs))
