"""Calls with arguments that make no sense: each gives a result, or an error of skuda that says what was expected."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
import turns
from operations import call_of, of_tensors

import skuda
import skuda.torch
from skuda.errors import DeviceMismatch, InvalidProblem, NotAnArray, SkudaError
from skuda.plans import functions

PARTS, DRAWS = 4, 20
OTHERS = (
    None, True, 3.0, float("nan"), -1, 2**70, 10**400, 1j, "a", "mean", b"x", (), (0, 0), (7,), ("a",), [1.0], {},
    slice(1), object(), np.int64(1), np.float32(2), np.datetime64("2020-01-01"), np.array([0, 1]), np.zeros((3, 2)),
    "s8", torch.int8, torch.complex64, (2**40, 2**40), np.dtype("M8[s]"),
)  # fmt: skip
TENSORS = (
    lambda x: torch.zeros(()), lambda x: torch.zeros(0), lambda x: torch.zeros((1,) * 66), lambda x: x[..., None],
    lambda x: x[..., :1] if x.ndim else x, lambda x: x.double(), lambda x: x.to("meta"),
    lambda x: torch.eye(3).to_sparse(), lambda x: torch.zeros(2, 3, dtype=torch.bool),
    lambda x: torch.zeros(3, dtype=torch.complex64),
)  # fmt: skip


def other(rng: random.Random, value):
    """Something else in place of an argument."""
    if isinstance(value, torch.Tensor) and rng.random() < 0.5:
        return rng.choice(TENSORS)(value)
    return rng.choice(OTHERS)


def spoilt(rng: random.Random, plan, recorded: bool) -> tuple[list, list, dict]:
    """Inputs and out, attributes and options of a call, one or two of which are replaced."""
    call = call_of(plan)
    may = [recorded and isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float64) for x in call.inputs]
    values = [x.clone().requires_grad_() if own else x for own, x in zip(may, call.inputs)] + [None]
    attributes, (first, others, _, shape, keepdims) = [*call.attributes], call.options
    options = {"dtype": first, "shape": shape, "keepdims": keepdims}
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice((values, values, attributes or values, options))
        at = rng.choice(list(kind) if kind is options else range(len(kind)))
        kind[at] = other(rng, (*call.inputs, None)[at] if kind is values else None)
    return values, attributes, options | {"output_dtypes": others}


@pytest.mark.turns(2)
@pytest.mark.parametrize("recorded", (False, True))
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_arguments_give_a_result_or_an_error_of_skuda(part, recorded):
    of_part = [(name, plan) for at, (name, plan) in enumerate(of_tensors().items()) if at % PARTS == part]
    for name, plan in of_part:
        rng = random.Random(f"{turns.commit()} {name} {recorded}")
        for _ in range(DRAWS):
            values, attributes, options = spoilt(rng, plan, recorded)
            run = functions.call_without if plan.operation.optional else functions.call
            try:
                with torch.set_grad_enabled(recorded), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    run(plan, tuple(values), tuple(attributes), None, **options)
            except SkudaError:
                pass
            except Exception as error:
                raise AssertionError(f"{name}{tuple(values)}, {attributes}, {options}") from error


@pytest.mark.parametrize("recorded", (False, True))
@pytest.mark.parametrize("wrong", (3.0, None))
def test_a_number_where_an_array_is_wanted_is_named(recorded, wrong):
    weight = torch.ones(8, requires_grad=recorded)
    with pytest.raises(NotAnArray, match="input is a (float|NoneType), expected an array"):
        skuda.layer_norm(wrong, weight, weight)


def test_a_number_may_come_as_an_array_of_many_axes():
    assert torch.equal(skuda.lerp(torch.zeros(3), torch.ones(3), torch.full((1,) * 66, 0.5)), torch.full((3,), 0.5))


def test_tensors_on_meta_and_others_are_told_apart():
    x = torch.ones(4, 8)
    for call in (
        lambda: skuda.add(x.to("meta"), x),
        lambda: skuda.add(x, x.to("meta")),
        lambda: skuda.softmax(x, out=x.to("meta")),
        lambda: skuda.softmax(x.to("meta"), out=x),
    ):
        with pytest.raises(DeviceMismatch, match="expected all on meta or none"):
            call()


@pytest.mark.parametrize("module", (skuda.torch.nn.GroupNorm(2, 8), skuda.torch.nn.RMSNorm(8)))
def test_norms_refuse_shapes_and_types_by_name(module):
    with pytest.raises(SkudaError, match="expected"):
        module(torch.ones(4, 8, dtype=torch.int64))
    with pytest.raises(InvalidProblem, match="expected"):
        module(torch.ones(4, 7))


def test_a_batch_norm_counts_no_batch_that_it_refuses():
    module = skuda.torch.nn.BatchNorm1d(8)
    with pytest.raises(InvalidProblem, match="running_mean"):
        module(torch.ones(4, 7))
    assert module.num_batches_tracked == 0
