"""Two inputs as the halves of one array: the same bits as of two arrays, and one array of gradients."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks.drawn_calls import DrawnCall, draw, plans, same_bits

import skuda
from skuda.errors import InvalidProblem, NotAnArray
from skuda.model.sku import Direction
from skuda.plans.halves import call_of_halves

PLANS = [plan for plan in plans() if plan.operation.halves]


class Described:
    """An array of which only the interface is known."""

    def __init__(self, array):
        self.array = array
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def drawn(plan) -> DrawnCall:
    return draw(plan, plan.operation.combinations[0], many=(3, 4), single=4, block=2)


def in_one(plan, inputs: dict, first: str, join) -> dict:
    """The inputs with the one that is named as the first half of an array."""
    (second,) = {*plan.operation.halves} - {first}
    return inputs | {first: join((inputs[first], inputs[second])), second: None}


def test_those_have_halves_that_say_so():
    rows = {plan.operation.name for plan in PLANS}
    assert {"glu", "reglu", "geglu", "geglu_tanh", "silu_mul", "silu_mul_dynamic_quantize"} <= rows
    assert {plan.operation.function for plan in PLANS} >= {"glu_backward", "silu_mul_backward"}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
def test_the_bits_are_those_of_two_arrays(backend, plan):
    call = drawn(plan)
    given = {name: backend.array(value) for name, value in call.inputs.items()}
    for first in plan.operation.halves:
        expected = [backend.numpy(each) for each in call.run(given)]
        inputs = in_one(plan, call.inputs, first, lambda both: np.concatenate(both, -1))
        one = given | {name: inputs[name] if inputs[name] is None else backend.array(inputs[name])
                       for name in plan.operation.halves}  # fmt: skip
        made = call_of_halves(plan, (*one.values(), None), tuple(call.attributes.values()), None, **call.options)
        made = made if isinstance(made, tuple) else (made,)
        if plan.operation.direction is Direction.BACKWARD:
            expected = [np.concatenate(expected if first == plan.operation.halves[0] else expected[::-1], -1)]
        for mine, wanted in zip(map(backend.numpy, made), expected, strict=True):
            assert same_bits(mine, wanted), first


def test_strided_arrays_and_arrays_to_write(backend):
    whole = np.random.default_rng(0).normal(size=(6, 5, 16)).astype(np.float32)
    gradient = backend.array(whole[::2, :, 8:].copy())
    strided = backend.array(whole)[::2]
    gate, up = (backend.array(np.ascontiguousarray(each)) for each in (whole[::2, :, :8], whole[::2, :, 8:]))
    made = skuda.silu_mul(strided)
    assert same_bits(backend.numpy(made), backend.numpy(skuda.silu_mul(gate, up)))
    joined = np.concatenate([backend.numpy(each) for each in skuda.silu_mul_backward(gradient, gate, up)], -1)
    out = backend.array(np.zeros((6, 5, 16), np.float32))[::2]
    assert skuda.silu_mul_backward(gradient, strided, out=out) is out
    assert same_bits(backend.numpy(out), joined)
    assert same_bits(backend.numpy(skuda.silu_mul_backward(gradient, strided)), joined)
    result = backend.array(np.zeros((3, 5, 8), np.float32))
    assert skuda.silu_mul(strided, out=result) is result
    assert same_bits(backend.numpy(result), backend.numpy(made))


def test_objects_that_share_memory():
    whole = np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)
    assert same_bits(skuda.glu(up=Described(whole)), skuda.glu(whole[:, 4:], whole[:, :4]))
    gradient = np.ones((3, 4), np.float32)
    assert same_bits(skuda.glu_backward(gradient, Described(whole)), skuda.glu_backward(gradient, whole))


def test_an_operation_of_ones_own():
    packed = skuda.define(
        name="packed_ratio", types={"T": ["f32"]}, inputs={"x": "T[*n, d]", "y": "T[*n, d] = half of x"},
        outputs={"z": "T[*n] = sum(x / y, over=d)"},
    )  # fmt: skip
    whole = np.array([[2, 4, 6, 1, 2, 1], [1, 1, 1, 2, 4, 4]], np.float32)
    assert packed(whole).tolist() == [10, 1] and packed(y=whole)[1] == 10
    assert packed.backward(np.ones(2, np.float32), whole)[0].tolist() == [1, 0.5, 1, -2, -1, -6]


def test_what_is_no_array_of_two():
    expected = "expected gate and up side by side along a last axis of even"
    x = np.ones((2, 5), np.float32)
    with pytest.raises(InvalidProblem, match="gate and up are missing, expected both, or one array with both"):
        skuda.silu_mul()
    with pytest.raises(InvalidProblem, match=rf"gate has shape \(2, 5\), {expected}"):
        skuda.silu_mul(x)
    with pytest.raises(InvalidProblem, match=rf"up has shape \(\), {expected}"):
        skuda.silu_mul(up=np.ones((), np.float32))
    with pytest.raises(NotAnArray, match="SiluMulPlan: gate is a float"):
        skuda.silu_mul(1.0)
    with pytest.raises(InvalidProblem, match=rf"out has shape \(2, 5\), {expected}"):
        skuda.silu_mul_backward(np.ones((2, 3), np.float32), np.ones((2, 6), np.float32), out=x)
