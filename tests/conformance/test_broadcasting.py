"""Inputs of several shapes, and numbers in their place: the same bits as inputs of one shape, in every operation that
broadcasts."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks.drawn_calls import DrawnCall, draw, plans, same_bits

import skuda
from skuda.errors import ElementMismatch, InvalidProblem, NotAnArray
from skuda.model.sku import Direction

PLANS = [plan for plan in plans() if plan.operation.broadcast]
CUTS = {
    "line": lambda array: array[0],
    "column": lambda array: array[..., :1],
    "row": lambda array: array[:1],
    "value": lambda array: array[(0,) * array.ndim],
    "whole": lambda array: array,
}
PAIRS = (("whole", "line"), ("column", "line"), ("value", "whole"), ("whole", "column"), ("row", "whole"))


def drawn(plan) -> DrawnCall:
    return draw(plan, plan.operation.combinations[0], many=(3, 4), single=4, block=2)


def names_of(operation) -> list[str]:
    return [operation.inputs[index].name for index in operation.broadcast]


def outputs(backend, call: DrawnCall, inputs) -> list[np.ndarray]:
    """Of the call with some inputs in place of its own: arrays are taken to the backend, numbers as they are."""
    every = call.inputs | inputs
    taken = {name: backend.array(np.array(v)) if isinstance(v, np.ndarray) else v for name, v in every.items()}
    return [backend.numpy(each) for each in call.run(taken)]


def test_those_broadcast_that_have_all_dimensions_of_a_forward_pass():
    rows = {plan.operation.name for plan in PLANS}
    assert {"add", "where", "clamp_tensor", "masked_softmax", "mse_loss", "add_rms_norm"} <= rows
    assert not rows & {"exp", "rms_norm", "quantize_per_tensor", "affine_per_channel", "cross_entropy"}
    assert all(plan.operation.direction is Direction.FORWARD for plan in PLANS)
    packed = skuda.define(
        name="added", types={"T": ["f32"], "Q": ["s8", "s4"]}, inputs={"x": "T[*n]", "codes": "Q[*n]"},
        outputs={"y": "T[*n] = x + codes"},
    )  # fmt: skip
    with pytest.raises(InvalidProblem, match="codes has shape"):
        packed(np.ones((2, 4), np.float32), np.ones(4, np.int8), input_dtype="s8")


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
def test_arrays_of_several_shapes(backend, plan):
    call = drawn(plan)
    for pair in PAIRS:
        small = {name: np.asarray(CUTS[pair[index % 2]](call.inputs[name]))
                 for index, name in enumerate(names_of(plan.operation))}  # fmt: skip
        shape = np.broadcast_shapes(*[array.shape for array in small.values()])
        expected = outputs(backend, call, {name: np.broadcast_to(each, shape) for name, each in small.items()})
        for made, whole in zip(outputs(backend, call, small), expected, strict=True):
            assert same_bits(made, whole), pair


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.operation.function)
def test_a_number_in_place_of_an_array(backend, plan):
    call = drawn(plan)
    for name in names_of(plan.operation):
        number = call.inputs[name].reshape(-1)[0].item()
        expected = outputs(backend, call, {name: np.full_like(call.inputs[name], number)})
        for made, whole in zip(outputs(backend, call, {name: number}), expected, strict=True):
            assert same_bits(made, whole), name


def test_a_number_takes_the_type_of_the_arrays(backend):
    for dtype in (np.float16, np.float64, np.int16, np.uint8):
        x = backend.array(np.arange(6, dtype=dtype))
        for number in (3, np.int64(3), True, *((2.1, np.float64(2.1)) if dtype in (np.float16, np.float64) else ())):
            assert same_bits(backend.numpy(skuda.mul(x, number)), backend.numpy(x) * dtype(number))
            assert same_bits(backend.numpy(skuda.sub(number, x)), dtype(number) - backend.numpy(x))
    mask = backend.array(np.array([True, False]))
    for yes, no, dtype in ((1.0, 0, np.float32), (1, 0, np.int64), (True, False, np.bool_)):  # no array shows the type
        assert same_bits(backend.numpy(skuda.where(mask, yes, no)), np.array([yes, no], dtype))
    assert backend.numpy(skuda.logical_xor(mask, True)).tolist() == [False, True]
    x = backend.array(np.array([1.5], np.float32))
    assert backend.numpy(skuda.ldexp(x, 3)).tolist() == [12]


def test_a_number_that_is_no_element_of_the_type(backend):
    whole, mask = backend.array(np.arange(4, dtype=np.int32)), backend.array(np.ones(4, bool))
    for error, text, call in (
        (ElementMismatch, r"AddPlan: b is 1\.5, expected an integer \(i32\)", lambda: skuda.add(whole, 1.5)),
        (InvalidProblem, r"AddPlan: a is 2147483648, which i32 cannot hold", lambda: skuda.add(2**31, whole)),
        (ElementMismatch, r"b is 1, expected True or False \(bool\)", lambda: skuda.logical_and(mask, 1)),
        (NotAnArray, "AddPlan: expected an array among a and b, got numbers only", lambda: skuda.add(1, 2)),
        (NotAnArray, "ExpPlan: input is a float", lambda: skuda.exp(1.0)),
        (NotAnArray, "AddPlan: b is a str", lambda: skuda.add(whole, "1")),
    ):
        with pytest.raises(error, match=text):
            call()


def test_shapes_that_do_not_fit(backend):
    x, y = (backend.array(np.ones(shape, np.float32)) for shape in ((2, 3), (2,)))
    expected = r"AddPlan: b has shape \(2,\), expected one that broadcasts with a's \(2, 3\)"
    with pytest.raises(InvalidProblem, match=expected):
        skuda.add(x, y)
    with pytest.raises(InvalidProblem, match=r"b has shape \(2,\).* a's \(2, 3\)"):
        skuda.where(backend.array(np.ones(1, bool)), x, y)


def test_out_has_the_whole_shape_and_no_shared_elements(backend):
    x, row = (np.arange(size, dtype=np.float32) for size in (6, 3))
    x, row = backend.array(x.reshape(2, 3)), backend.array(row)
    expected = backend.numpy(x) + backend.numpy(row)
    out = backend.array(np.zeros((2, 3), np.float32))
    assert skuda.add(row, x, out=out) is out
    assert same_bits(backend.numpy(out), expected)
    with pytest.raises(InvalidProblem, match=r"output has shape \(3,\), expected .*\(2, 3\)"):
        skuda.add(x, row, out=row)
    with pytest.raises(InvalidProblem, match="output overlaps a; in place"):
        skuda.add(x[0], x, out=x)
    shared = backend.xp.lib.stride_tricks.as_strided(row, (2, 3), (0, 4))
    with pytest.raises(InvalidProblem, match="output has elements that share memory"):
        skuda.add(x, 1.0, out=shared)
    assert backend.numpy(row).tolist() == [0, 1, 2]
    assert skuda.add(x, row, out=x) is x  # in place
    assert same_bits(backend.numpy(x), expected)


def test_empty_arrays_and_arrays_without_axes(backend):
    none, one = backend.array(np.ones((0, 3), np.float32)), backend.array(np.float32(2))
    assert skuda.mul(none, one).shape == (0, 3)
    assert skuda.mul(none, 2.0).shape == (0, 3)
    assert skuda.mul(none[:, :1], backend.array(np.ones((1, 4), np.float32))).shape == (0, 4)
    assert backend.numpy(skuda.mul(one, 3)) == 6


def test_an_operation_of_ones_own(backend):
    gated = skuda.define(
        name="gated", inputs={"x": "T[*n, d]", "gate": "T[*n, d]", "scale": "T[d]"},
        outputs={"y": "T[*n, d] = x * sigmoid(gate) * scale"},
    )  # fmt: skip
    x, scale = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    taken = [backend.array(each) for each in (x, x[:, :1], scale)]
    whole = backend.numpy(gated(taken[0], taken[0], taken[2]))
    assert same_bits(backend.numpy(gated(*taken)), whole)
    assert same_bits(backend.numpy(gated(taken[0], 1, taken[2])), whole)
    with pytest.raises((InvalidProblem, NotAnArray), match="scale"):  # what has fewer dimensions keeps them
        gated(taken[0], taken[0], 2.0)
    with pytest.raises(InvalidProblem, match="scale has shape"):
        gated(taken[0], taken[0], backend.array(np.ones(1, np.float32)))
