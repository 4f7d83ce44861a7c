"""Sums across rows of one element each, for which programs have a form without them: which operations have it, the same
bits, and what is launched. The driver only writes down what it is given (test_launch.py).
"""

from __future__ import annotations

import numpy as np
import pytest
import test_launch
from domains import bounds
from problems import kernel_of
from test_launch import array

import skuda
from skuda.arrays.views import view_of
from skuda.cpu import library
from skuda.generated import CATALOG
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.plans.one_element import PlanOfOneElement

driver = test_launch.driver
PLANS = [plan for name in CATALOG.modules for plan in CATALOG.plans(name) if plan.of_one is not None]


def test_which_operations_have_such_a_form():
    """Gradients of what rows share, and of losses that divide by a sum; stages of them where several are left. Not what
    is reduced along the last axes, which blocks hold, nor down to one value, nor what is counted."""
    found = {plan.operation.function for plan in PLANS}
    assert {"prelu_backward", "batch_norm_backward", "rms_norm_backward", "nll_loss_backward"} <= found
    assert "group_norm_stage3_backward" in found and not found & {"group_norm_backward", "rms_norm_stage2_backward"}
    assert not found & {"sum", "mean", "mse_loss", "outer_stage1_backward", "batch_norm_training", "nll_loss"}
    assert all(issubclass(plan, PlanOfOneElement) for plan in PLANS)
    assert all(plan.operation.analysis.stages or not plan.of_one.operation.reduces for plan in PLANS)


def selected(plan_class, types: dict[str, str], many: tuple[int, ...], backend: BackendKind, reduced: int = 1):
    """A plan whose rows have so many elements."""
    operation, across = plan_class.operation, plan_class.of_one.operation.analysis.of_one
    sizes = {}
    for dim in operation.dims:
        along = dim.name in across
        if dim.many:
            sizes[dim.name] = (reduced,) * (dim.name == across[0]) if along else many
        else:
            sizes[dim.name] = reduced if along else 37
    fields = {field: types[letter] for letter, field in operation.element_fields.items() if letter in types}
    return plan_class.select(plan_class.descriptor_type(**sizes, **fields, **bounds(operation)), preference=backend)


def operands_of(plan) -> list[np.ndarray]:
    """Numbers, zeros of both signs, infinities and NaN with any bits."""
    made = np.random.default_rng(5)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-42, -1e-42, 6e4, -6e4]
    found = []
    for shape, word in zip(plan.shapes, plan.words, strict=True):
        values = np.asarray(made.normal(0, 3, shape))
        unusual = made.random(shape) < 0.2
        values = np.where(unusual, made.choice(special, shape), values)
        with np.errstate(over="ignore"):
            found.append(values.astype(DTYPES[word].storage))
    return found


@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_element_is_the_sum(plan_class):
    """The reference of the reduction itself, and that of the form; kernels of the CPU too."""
    backends = [BackendKind.CPU] if library.compiler() and plan_class is PLANS[0] else []
    for types in plan_class.operation.combinations[:4]:
        for many in ((), (3, 5)):
            plan = selected(plan_class, types, many, BackendKind.REFERENCE)
            operands = operands_of(plan)
            with np.errstate(all="ignore"):
                plan.execute(operands)
            expected = [each.tobytes() for each in operands]
            form = plan._form.plan
            views = [view_of(each, "operand") for each in operands]
            shapes = [view.shape for view in plan._form.operands(views)]
            assert shapes == list(form.shapes)
            for backend in (BackendKind.REFERENCE, *backends):
                outputs = [np.full_like(each, 1) for each in operands[len(plan.operation.inputs) :]]
                again = [*operands[: len(plan.operation.inputs)], *outputs]
                if backend is BackendKind.CPU:
                    selected(plan_class, types, many, backend).execute(again)
                else:
                    with np.errstate(all="ignore"):
                        form.execute([each.reshape(shape) for each, shape in zip(again, shapes, strict=True)])
                assert [each.tobytes() for each in again] == expected


OWN = """
scaled_norm:
  kind: normalization.scaled_norm
  inputs: {x: 'T[*n, *d]', w: 'T[*d]'}
  outputs: {y: 'T[*n, *d] = 2 * w * x / sum(abs(x), over=d)'}
  backward:
    d_x: T[*n, *d] = 2 * w * d_y / sum(abs(x), over=d) - sign(x) * sum(d_y * w * x, over=d)
    d_w: T[*d] = 2 * sum(d_y * x / sum(abs(x), over=d), over=n)
"""


def test_a_sum_within_a_formula_of_ones_own():
    plan_class = skuda.define(OWN).backward.plan_class
    assert [len(output.dims) for output in plan_class.of_one.operation.outputs] == [2, 2]
    test_the_element_is_the_sum(plan_class)


@pytest.mark.parametrize(
    ("rows", "weights", "expected"),
    [
        (1, 0x500000, "vec<prelu_of_one_backward_program<f32>, 1, 4, FEW>"),
        (1, 0x500004, "vec<prelu_of_one_backward_program<f32>, 1, 4, FEW>"),  # sums are written to any address
        (2, 0x500000, "across<prelu_backward_program<f32>, 1, 0>"),
    ],
)
def test_what_is_launched(driver, rows, weights, expected):
    """Once, again, and by the fast path."""
    shape = (rows, 4096)
    descriptor = skuda.PreluBackwardDescriptor(outer=(rows,), c=4096, inner=())
    plan = skuda.PreluBackwardPlan.select(descriptor)
    for times in (1, 2, 3):
        starts = (0x100000, shape), (0x200000, shape), (0x300000, (4096,)), (0x400000, shape), (weights, (4096,))
        plan.execute([array(start, each, np.float32) for start, each in starts])
        assert [launch[1] for launch in driver.launches] == [expected] * times


def test_where_the_weight_begins_is_asked_of_each_call(driver):
    """Of one row it is read as the row is; of several it is a parameter. Few elements would be taken one by one."""
    length, found = 1 << 22, []
    descriptor = skuda.BatchNormBackwardDescriptor(outer=(1,), c=length, inner=(), eps=1e-5)
    plan = skuda.BatchNormBackwardPlan.select(descriptor)
    shapes = dict(zip((operand.name for operand in plan.operation.operands), plan.shapes, strict=True))
    for apart in (0, 0, 0, 4, 0):  # from the third call on by the fast path
        starts = {name: (at + 1) * 0x10000000 + apart * (name == "weight") for at, name in enumerate(shapes)}
        plan.execute([array(starts[name], shape, np.float32) for name, shape in shapes.items()])
        found.append(driver.launches[-1][1].rpartition(", ")[2])
    assert found == [*["ALIGNED>"] * 3, "SHIFTED>", "ALIGNED>"]


ONE, STAGES = ["rms_norm_of_one_backward"], ["rms_norm_stage1_backward", "rms_norm_stage2_backward"]


@pytest.mark.parametrize(
    ("rows", "length", "expected"),
    [
        ((), 4096, ["few_rows"]),
        ((1,), 4096, ["few_rows"]),
        ((1, 1), 5000, ["few_rows"]),
        ((1,), 16384, ["few_rows", "across"]),  # more than one block does well with
        ((1,), 65536, ["cluster"]),
        ((1,), 1 << 18, ["row", "across"]),  # which no block holds
        ((2,), 4096, ["few_rows", "across"]),
    ],
)
def test_stages_of_one_row_are_one_kernel(driver, rows, length, expected):
    plan = skuda.RmsNormBackwardPlan.select(skuda.RmsNormBackwardDescriptor(n=rows, d=(length,), eps=1e-5))
    shapes = dict(zip((operand.name for operand in plan.operation.operands), plan.shapes, strict=True))
    operands = [array(0x1000000 * (1 + at), shape, np.float32) for at, shape in enumerate(shapes.values())]
    plan.run(plan.args_type(*operands), workspace=array(0x9000000, (plan.workspace_size,), np.uint8))
    found = ["_".join(kernel_of(launch[1])) for launch in driver.launches]
    names = ONE if len(expected) == 1 else STAGES
    assert found == [f"{name}_{kernel}" for name, kernel in zip(names, expected, strict=True)]


@pytest.mark.parametrize(("axes", "expected"), [(3, ONE), (5, STAGES)])
def test_weights_that_lie_along_too_many_axes_have_a_stage_of_their_own(driver, axes, expected):
    """A row may lie along few axes. The gradient of the weight lies along as many as it has, here backwards."""
    shape = (3,) * axes
    plan = skuda.RmsNormBackwardPlan.select(skuda.RmsNormBackwardDescriptor(n=(1,), d=shape, eps=1e-5))
    starts = [array(0x100000 * (1 + at), each, np.float32) for at, each in enumerate(plan.shapes[:-1])]
    turned = array(0x900000, shape, np.float32, strides=[3**axis for axis in range(axes)])
    scratch = array(0xA00000, (plan.workspace_size,), np.uint8)
    plan.run(plan.args_type(*starts, turned), workspace=scratch)
    found = [kernel_of(launch[1])[0] for launch in driver.launches]
    assert found == expected
