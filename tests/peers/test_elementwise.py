"""Elementwise operations beside PyTorch's of the same name, forward and backward, special inputs included.

What differs is listed with its reason: a name for which PyTorch has another value at some inputs.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import skuda
from skuda.launch import registry
from skuda.model.operation import Direction

CATALOG = registry.catalogs()[0]
PLANS = {
    plan.operation.name: plan
    for name in CATALOG.modules
    for plan in CATALOG.plans(name)
    if plan.operation.direction is Direction.FORWARD
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 6.0, 1e-30, -1e-30, 90.0, -90.0, 1e30, -1e30]
SPECIAL += [math.inf, -math.inf, math.nan]

# PyTorch's function where it has another name, or other names of arguments.
OWN = {
    "cube": lambda x: x * x * x,
    "powi": lambda x: torch.pow(x, 2),
    **dict.fromkeys(("cbrt", "step", "prelu", "floor_divide", "remainder", "sign", "heaviside")),
    **dict.fromkeys(("digamma", "nextafter")),
    "threshold": lambda x: F.threshold(x, 0.0, 0.0),
    "log_sigmoid": F.logsigmoid,
    "affine": lambda x: x,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), lambda x: torch.clamp(x, -math.inf, math.inf)),
    "clamp_tensor": torch.clamp,
    "glu": lambda gate, up: torch.sigmoid(gate) * up,
    "reglu": lambda gate, up: F.relu(gate) * up,
    "geglu": lambda gate, up: F.gelu(gate) * up,
    "geglu_tanh": lambda gate, up: F.gelu(gate, approximate="tanh") * up,
    "div": torch.div,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}
# PyTorch gives NaN at some infinities, or where both operands are 0; here the value or gradient is the limit.
LIMITS = {
    "hardswish", "softsign", "silu", "mish", "hypot", "logaddexp", "logaddexp2", "glu", "geglu", "geglu_tanh", "gelu",
    "gelu_tanh", "copysign",
}  # fmt: skip
# Operands at which the gradients differ, as a condition, and why ours is what it is.
DIFFERENCES = {
    "rsqrt": (lambda x: x == 0, "the gradient at -0 has the sign that it has next to it"),
    "acosh": (lambda x: x < 1, "below 1 there is no value, so there is no gradient"),
    "glu": (lambda gate, up: abs(gate) == 90, "PyTorch's 1 - sigmoid(90) is 0"),
}


def peer(name: str):
    return OWN[name] if name in OWN else getattr(torch, name, None) or getattr(F, name, None)


def elementwise(operation) -> bool:
    return (
        not operation.analysis.over
        and {operand.dims for operand in operation.operands} == {operation.space[:1]}
        and all(operand.element == "T" for operand in operation.inputs)
        and any(types.get("T") == "f64" for types in operation.combinations)
        and len(operation.outputs) == 1
    )


NAMES = [name for name, plan in PLANS.items() if elementwise(plan.operation) and peer(name) is not None]


def operands(count: int) -> np.ndarray:
    """Columns of special values, every pair of them, and of ordinary ones."""
    rng = np.random.default_rng(1)
    every = list(product(SPECIAL, repeat=count)) if count < 3 else rng.choice(SPECIAL, (400, count))
    return np.concatenate([np.array(every, np.float64), rng.normal(0, 2, (200, count))])


def called(function, columns: np.ndarray):
    """The values and gradients of a function."""
    tensors = [torch.tensor(column, requires_grad=True) for column in columns.T]
    output = function(*tensors)
    if output.requires_grad:
        output.sum().backward()
    gradients = [None if each.grad is None else each.grad.numpy() for each in tensors]
    return output.detach().numpy().astype(np.float64), gradients


def differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return ~(np.isclose(one, other, rtol=1e-7, atol=1e-12) | (np.isnan(one) & np.isnan(other)))


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_pytorch(name):
    operation = PLANS[name].operation
    columns = operands(len(operation.inputs))
    value, gradients = called(getattr(skuda, name), columns)
    others, other_gradients = called(peer(name), columns)
    with np.errstate(invalid="ignore"):
        limits = np.isnan(others) & (name in LIMITS)
        assert columns[differing(value, others) & ~limits].tolist() == []
        ordinary = ~np.isnan(columns).any(1)  # the gradient of a NaN is not compared
        if name in DIFFERENCES:
            ordinary &= ~DIFFERENCES[name][0](*columns.T)
        for own, other in zip(gradients, other_gradients, strict=True):
            if own is not None and other is not None:
                limits = np.isnan(other) & (name in LIMITS)
                assert columns[differing(own, other) & ~limits & ordinary].tolist() == []


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_a_limit_takes_the_place_of_nan(name):
    columns = operands(len(PLANS[name].operation.inputs))
    found = [called(function, columns) for function in (getattr(skuda, name), peer(name))]
    pairs = [(found[0][0], found[1][0]), *((a, b) for a, b in zip(found[0][1], found[1][1]) if a is not None)]
    assert any((np.isnan(other) & ~np.isnan(own)).any() for own, other in pairs)


def test_most_elementwise_operations_have_a_peer():
    assert len(NAMES) > 90
