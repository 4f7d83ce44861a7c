"""A mapped call is the calls of the batch's entries, to the bit: in one call where `batched` says how."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from skuda.frameworks.batching import batched, leading
from skuda.model.operation import Operand

from .drawn_calls import DrawnCall, draw, plans, same_bits, types_of

SIZE = 3


def mapped(drawn: DrawnCall, has_batch: dict[str, bool], ranks) -> tuple[np.ndarray, ...] | None:
    """The outputs of the one call, whose batch is their first axis."""
    found = batched(drawn.operation, has_batch, ranks, drawn.attributes, drawn.types)
    if found is None:
        return None
    inputs = dict(drawn.inputs)
    for name in found.expanded:
        inputs[name] = np.broadcast_to(inputs[name], (SIZE, *inputs[name].shape))
    options = dict(drawn.options)
    if "shape" in options:
        options["shape"] = found.shape(options["shape"], SIZE)
    return drawn.run(inputs, attributes=found.attributes, options=options)


@pytest.mark.turns(6)
@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.operation.function)
@pytest.mark.parametrize("many", [(4, 6), (5,), ()], ids=str)
def test_one_call_maps_as_many_calls_do(plan, many):
    operation, alone = plan.operation, 0
    for types in types_of(operation):
        drawn = draw(plan, types, many=many)
        ranks = {name: array.ndim for name, array in drawn.inputs.items()}
        ranks |= {o.name: array.ndim for o, array in zip(operation.outputs, drawn.run(), strict=True)}
        for flags in product((True, False), repeat=len(drawn.inputs)):
            has_batch = dict(zip(drawn.inputs, flags, strict=True))
            if not any(flags):
                continue
            stacked = {
                name: np.stack([np.roll(array.reshape(-1), entry).reshape(array.shape) for entry in range(SIZE)])
                for name, array in drawn.inputs.items()
                if has_batch[name]
            }
            whole = mapped(DrawnCall(plan, drawn.types, drawn.sizes, drawn.inputs | stacked, drawn.attributes,
                                     drawn.options), has_batch, ranks)  # fmt: skip
            if whole is None:
                continue
            alone += 1
            each = [drawn.run({name: array[entry, ...] for name, array in stacked.items()}) for entry in range(SIZE)]
            for position, output in enumerate(whole):
                assert same_bits(output, np.stack([outputs[position] for outputs in each])), (types, flags)
    assert alone > 0 or may_not_be_one_call(plan)


def may_not_be_one_call(plan) -> bool:
    """Whether an output lacks what others lead with, or everything is reduced."""
    operation = plan.operation
    lead = leading(operation)
    if operation.creates:  # of the outputs' dimensions no input has one
        return True
    return lead is None or any(lead not in {dim.name for dim in output.dims} for output in operation.outputs)


def test_axes_are_those_behind_the_batch():
    softmax = next(plan for plan in plans() if plan.operation.function == "softmax").operation
    for axis, rank, expected in [(-1, 2, (2,)), ((0, -1), 3, (1, 3)), (None, 2, (1, 2)), (0, 0, ()), ((), 2, ())]:
        ranks = {"input": rank, "output": rank}
        found = batched(softmax, {"input": True}, ranks, {"axis": axis}, {"T": "f32"})
        assert found.attributes == {"axis": expected}
        assert found.shape(None, 5) is None and found.shape((2, 3), 5) == (5, 2, 3)


def test_a_parameter_that_has_a_batch_is_looped_over():
    norm = next(plan for plan in plans() if plan.operation.function == "rms_norm").operation
    ranks, types = {"input": 2, "weight": 1, "output": 2}, {"T": "f32", "W": "f32"}
    assert batched(norm, {"input": True, "weight": True}, ranks, {"eps": 1e-6}, types) is None
    assert batched(norm, {"input": True, "weight": False}, ranks, {"eps": 1e-6}, types).expanded == ()
    backward = next(plan for plan in plans() if plan.operation.function == "rms_norm_backward").operation
    ranks = {"d_output": 2, "input": 2, "weight": 1, "d_input": 2, "d_weight": 1}
    has_batch = {"d_output": True, "input": True, "weight": False}
    assert batched(backward, has_batch, ranks, {"eps": 1e-6}, types) is None  # d_weight is one for each entry


def test_an_output_without_the_batch_is_made_for_each_entry():
    norm = next(plan for plan in plans() if plan.operation.function == "rms_norm").operation
    both = norm.but(outputs=(*norm.outputs, Operand.of("doubled", "W", "*d")))
    has_batch, ranks = {"input": True, "weight": False}, {"input": 2, "weight": 1, "output": 2, "doubled": 1}
    types = {"T": "f32", "W": "f32"}
    assert batched(norm, has_batch, ranks, {"eps": 1e-6}, types).expanded == ()
    assert batched(both, has_batch, ranks, {"eps": 1e-6}, types) is None
