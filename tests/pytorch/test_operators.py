"""Every operation as an operator of torch, beside what it is without torch's dispatcher: the same bits."""

from __future__ import annotations

import pytest
import torch
from operations import call_of, of_tensors, plans, same

from skuda.errors import Unsupported
from skuda.plans.functions import each_of
from skuda.torch import carry, operator_of

EVERY = pytest.mark.parametrize("name", plans())
OF_TENSORS = pytest.mark.parametrize("name", of_tensors())


@pytest.mark.turns(2)
@EVERY
def test_the_operator_is_the_function(name):
    call = call_of(plans()[name])
    found = call.run()
    assert same(operator_of(call.plan_class).apply(call), torch.as_tensor(found) if no_tensors(call) else found)


@OF_TENSORS
def test_tensors_on_meta_have_the_shapes_and_types_of_others(name):
    call = call_of(plans()[name])
    found, on_meta = call.run(), carry(with_inputs(call, [each.to("meta") for each in call.inputs]))
    for one, other in zip(each_of(found), each_of(on_meta), strict=True):
        assert other.is_meta and (other.shape, other.dtype) == (one.shape, one.dtype)


@pytest.mark.turns(4)
@EVERY
def test_opcheck(name):
    call = call_of(plans()[name])
    operator = operator_of(call.plan_class)
    tests = ["test_autograd_registration", "test_faketensor"]
    if not any(value.dtype.is_floating_point and value.element_size() == 1 for value in call.inputs):
        tests.append("test_schema")  # which multiplies inputs, and torch multiplies no floats of 8 bits
    torch.library.opcheck(operator.overloads[False, False], operator.values_of(call), test_utils=tests)


def no_tensors(call) -> bool:
    """Whether nothing shows that tensors are meant."""
    return not call.inputs


@pytest.mark.turns(4)
@OF_TENSORS
def test_vmap(name):
    first, second = (call_of(plans()[name], seed=seed) for seed in (0, 1))
    operator = operator_of(first.plan_class)
    for mapped in range(len(first.inputs) + 1):  # all inputs, then each alone
        in_dims = tuple(0 if mapped in (index, len(first.inputs)) else None for index in range(len(first.inputs)))
        pairs = zip(first.inputs, second.inputs, strict=True)
        batch = [torch.stack(pair) if dim == 0 else pair[0] for pair, dim in zip(pairs, in_dims)]

        def run(*inputs):
            return operator.apply(with_inputs(first, inputs))

        found = torch.vmap(run, in_dims)(*batch)
        each = [run(*(b[i] if dim == 0 else b for b, dim in zip(batch, in_dims))) for i in range(2)]
        expected = torch.stack(each) if isinstance(each[0], torch.Tensor) else tuple(map(torch.stack, zip(*each)))
        assert same(found, expected), in_dims


def with_inputs(call, inputs):
    rest = (getattr(call, name) for name in call._fields[2:])
    return type(call)(call.plan_class, tuple(inputs), *rest)


@pytest.mark.turns(2)
@EVERY
def test_the_gradient_is_the_declared_one(name):
    """What is not declared raises, and what cannot be differentiated needs no gradient."""
    call = call_of(plans()[name])
    operator = operator_of(call.plan_class)
    plain = results(operator.apply(call))
    named = {operand.name: value for operand, value in zip(operator.operation.inputs, call.inputs, strict=True)}
    gradients = {} if operator.backward is None else operator.backward.operation.gradients
    declared = {name[2:] for name, made in gradients.items() if made is not None}  # others are constant
    read = {operand.name for operand in operator.backward.operation.inputs} if gradients else set()
    taken = [not read or f"d_{operand.name}" in read for operand in operator.operation.outputs]
    for wanted, raises in ((declared, False), ({each for each in named if f"d_{each}" not in gradients}, True)):
        leaves = {each: named[each].detach().requires_grad_() for each in wanted if differentiable(named[each])}
        inputs = [leaves.get(each, value) for each, value in named.items()]
        recorded = results(operator.apply(with_inputs(call, inputs)))
        assert same([each.detach() for each in recorded], plain)
        for each, of_gradient in zip(recorded, taken, strict=True):  # what no gradient reads has none
            assert each.requires_grad == (bool(leaves) and differentiable(each) and of_gradient)
        kept = [each for each in recorded if each.requires_grad]
        if not kept:
            continue
        given = [torch.randn_like(each) for each in kept]
        if raises:
            with pytest.raises(Unsupported, match="declared for|gradient of a gradient"):
                torch.autograd.grad(kept, [*leaves.values()], given)
            continue
        found = torch.autograd.grad(kept, [*leaves.values()], given, retain_graph=True)
        names = [f"d_{each}" for each in differentiable_names(operator, plain)]
        d_outputs = dict(zip([each for each in names if each in read], given, strict=True))
        expected = declared_gradient(operator, call, named, plain, d_outputs)
        assert same(found, [expected[f"d_{each}"] for each in leaves])


def results(made) -> tuple:
    return made if isinstance(made, tuple) else (made,)


def differentiable(value) -> bool:
    return value.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def differentiable_names(operator, outputs):
    return [o.name for o, value in zip(operator.operation.outputs, outputs, strict=True) if differentiable(value)]


def declared_gradient(operator, call, named, outputs, d_outputs) -> dict:
    """What the function of the backward operation says."""
    backward = operator.backward
    everything = named | {o.name: value for o, value in zip(operator.operation.outputs, outputs)} | d_outputs
    everything |= {a.name: value for a, value in zip(operator.operation.attributes, call.attributes)}
    everything |= operator.options_of(call)
    if backward.operation.shaped is not None:
        everything["shape"] = tuple(named[backward.operation.shaped.name[2:]].shape)
    for operand, value in zip(operator.operation.outputs, outputs):
        everything.setdefault(f"d_{operand.name}", torch.zeros_like(value))
    made = results(backward.call_by_name(everything).run())
    return {name: made[index] for name, index in backward.operation.gradients.items() if index is not None}
