"""Operations that kernels of rows and stages serve: which of them a call gets, what it needs, and that the bits are the
same.

The driver only writes down what it is given (test_launch.py).
"""

from __future__ import annotations

import numpy as np
import pytest
import test_launch
from index_model import view_over
from test_launch import array
from test_workspace import INPUT, OUTPUT, WORKSPACE, kernels, workspace_of

import skuda
from skuda.arrays import libraries
from skuda.errors import BufferTooSmall
from skuda.generated import (
    GroupNormDescriptor,
    GroupNormPlan,
    SoftmaxArgs,
    SoftmaxDescriptor,
    SoftmaxPlan,
)
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.plans.alternative import PlanWithAlternative
from skuda.schedules.variant import STAGES

driver = test_launch.driver
CATALOG = registry.catalogs()[0]
EVERY = [plan for name in CATALOG.modules for plan in CATALOG.plans(name) if issubclass(plan, PlanWithAlternative)]
PLANS = [plan for plan in EVERY if not plan.operation.holds_alone]


def test_rows_of_several_levels_whose_axes_a_call_names_have_two():
    """Not those that come apart in one kernel (sum), are over blocks or lie along the last axis in any case."""
    names = {plan.operation.function for plan in PLANS}
    assert names >= {
        "softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "l2_normalize", "rms_normalize",
        "standardize",
    }  # fmt: skip
    apart = {"sum", "var", "std", "norm2", "logsumexp", "rms_norm"}
    apart |= {"softmax_dynamic_quantize", "dynamic_quantize_per_group"}
    assert not names & apart
    for plan in PLANS:
        numbers = [stage.operation.analysis.stage for stage in plan.stages]
        assert numbers == [*range(1, plan.operation.analysis.alternative + 1)]


@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_the_stages_give_the_bits_of_the_one_formula(plan_class):
    operation = plan_class.operation
    rng = np.random.default_rng(5)
    for types in operation.kernel_combinations():
        for extents in (((7,), (37,)), ((2, 3), (5, 8)), ((), (70_003,)), ((9,), ())):
            fields = dict(zip([dim.name for dim in operation.space], extents, strict=True))
            fields |= {field: types[letter] for letter, field in operation.element_fields.items()}
            plan = plan_class.select(plan_class.descriptor_type(**fields), preference=BackendKind.REFERENCE)
            with np.errstate(over="ignore"):
                arrays = {
                    operand.name: rng.normal(0, 9, shape).astype(DTYPES[word].storage)
                    for operand, shape, word in zip(operation.inputs, plan.shapes, plan.words)
                }
            made = {o.name: np.empty(*each) for o, each in zip(operation.outputs, plan.made, strict=True)}
            twice = {name: each.copy() for name, each in made.items()}
            plan._evaluate(arrays | made)
            plan.alternative.run_reference(arrays | twice)
            for name, each in made.items():
                assert each.tobytes() == twice[name].tobytes(), (types, extents)


def variant_of(plan_class, descriptor, *arrays):
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    views = [view_over(each, DTYPES[word].storage) for each, word in zip(arrays, plan.words, strict=True)]
    return plan._geometry(views).variant


def addresses(shape: tuple[int, ...]) -> np.ndarray:
    """Of a contiguous array's elements; no memory is taken for them."""
    strides = [8 * int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), shape, strides)


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((16384, 4096), 1, "row"),
        ((16384, 4096), 0, "stages"),
        ((20000, 8), 0, "row"),  # not worth several launches
        ((64, 64), 0, "stripe"),
        ((4096, 512), 0, "stripe"),
        ((16384, 512), 0, "stages"),  # a block would be alone on a multiprocessor
        ((128, 32768), 0, "stripe"),
        ((8, 21, 65536), 1, "row"),  # a thread has each
        ((8, 32, 65535), 1, "row"),
        ((8, 33, 65536), 1, "stripe"),
        ((8, 33, 65535), 1, "stages"),  # not in whole vectors
        ((1 << 25,), 0, "stages"),
        ((32768,), 0, "row"),
        ((40, 1 << 20), 1, "stages"),
        ((1000, 1 << 20), 1, "row"),  # a block each keeps a GPU busy
        ((1, 1 << 20), 0, "row"),
        ((1 << 20, 1), 1, "row"),
        ((1 << 20, 3), 0, "stages"),
        ((2, 1 << 20), 0, "row"),
    ],
)
def test_structure_says_which(shape, axis, expected):
    kept, reduced = tuple(each for position, each in enumerate(shape) if position != axis), (shape[axis],)
    x = np.moveaxis(addresses(shape), axis, -1)
    found = variant_of(SoftmaxPlan, SoftmaxDescriptor(n=kept, d=reduced), x, x)
    assert found.kernel == expected


def test_steps_along_a_row_do_not_set_rows_apart():
    x = addresses((4096, 4096))
    every = SoftmaxDescriptor(n=(4096,), d=(2048,))
    assert variant_of(SoftmaxPlan, every, x[:, ::2], x[:, :2048]).kernel == "row"
    every = SoftmaxDescriptor(n=(2048,), d=(4096,))
    assert variant_of(SoftmaxPlan, every, x[:, ::2].T, x[:2048]) is STAGES


@pytest.mark.parametrize(
    ("extents", "order", "expected"),
    [
        ((6, 4, 3, 8, 8), None, "row"),
        ((6, 4, 3, 5, 13), None, "row"),
        ((6, 4, 1, 1, 1), None, "row"),
        ((2, 4, 10, 64, 64), None, "cluster"),
        ((2, 4, 16, 256, 256), None, "stages"),  # no blocks hold a row
        ((6, 4, 3, 8, 8), (0, 3, 4, 1, 2), "stages"),  # channels last
    ],
)
def test_rows_whose_neighbours_share_operands_are_held_or_run_in_stages(extents, order, expected):
    order = order or tuple(range(len(extents)))
    x = addresses(tuple([extents[axis] for axis in order])).transpose(np.argsort(order))
    n, g, c, *d = extents
    weight = addresses((g, c))
    descriptor = GroupNormDescriptor(n=n, g=g, c=c, d=tuple(d))
    assert variant_of(GroupNormPlan, descriptor, x, weight, weight, x).kernel == expected


def test_operands_that_stages_cannot_take_are_rows():
    """Blocks take eight axes outside of a row and four along it, the last stage over eight in all."""
    outer = addresses((4,) * 12)[::2, ::2, ::2, ::2, ::2, ::2, ::2, ::2]
    sizes = SoftmaxDescriptor(n=outer.shape[4:], d=outer.shape[:4])
    x = outer.transpose(*range(4, 12), 0, 1, 2, 3)
    plan = SoftmaxPlan.select(sizes, preference=BackendKind.REFERENCE)
    plan.much = 0
    views = [view_over(x, np.dtype(np.float32))] * 2
    assert plan._geometry(views).variant.kernel == "row"


def call(shape: tuple[int, ...], axis: int):
    kept, reduced = tuple(each for position, each in enumerate(shape) if position != axis), (shape[axis],)
    plan = SoftmaxPlan.select(SoftmaxDescriptor(n=kept, d=reduced))
    strides = np.moveaxis(addresses(shape), axis, -1).strides
    operands = [
        array(pointer, (*kept, *reduced), np.float32, strides=tuple(each // 8 for each in strides))
        for pointer in (INPUT, OUTPUT + (1 << 30))
    ]
    return plan, SoftmaxArgs(*operands)


def test_a_workspace_is_asked_for_where_stages_may_run_and_needed_where_they_do(driver):
    plan, args = call((16384, 512), 0)
    with pytest.raises(BufferTooSmall, match="there is no workspace"):
        plan.run(args)
    assert driver.launches == []
    workspace = workspace_of(plan, WORKSPACE + (1 << 31))
    for times in (1, 2):
        plan.run(args, workspace=workspace)
        assert set(kernels(driver)) >= {"softmax_stage1_across", "softmax_stage2_across", "softmax_stage3_columns"}
        once = len(driver.launches) // times
        assert kernels(driver) == kernels(driver)[:once] * times
    plan, args = call((512, 4096), 1)
    assert plan.workspace_size > 0  # the same sizes may lie otherwise
    before = len(driver.launches)
    plan.run(args)
    assert kernels(driver)[before:] == ["softmax_few_rows"]
    plan, args = call((256, 512), 0)
    assert plan.workspace_size == 0


def test_a_function_makes_one_for_stages_alone(driver, monkeypatch):
    asked = []

    def scratch(self, size, device, stream):
        asked.append(size)
        return array(WORKSPACE + (1 << 31), (size,), np.uint8, device)

    monkeypatch.setattr(libraries._CuPy, "scratch", scratch)
    monkeypatch.setattr(libraries._CuPy, "empty", lambda self, *of: array(OUTPUT + (1 << 30), *of))

    def contiguous(self, shape, strides, dtype):  # of a call that repeats one
        return scratch(self, *shape, 0, None) if dtype == np.uint8 else array(OUTPUT + (1 << 30), shape, dtype)

    monkeypatch.setattr(libraries._CuPy, "contiguous", contiguous)
    x = array(INPUT, (16384, 512), np.float32)
    for _ in range(3):  # the third goes the short way, where there is one
        skuda.softmax(x, axis=1)
    assert asked == [] and set(kernels(driver)) == {"softmax_row"}
    for times in (1, 2, 3):
        skuda.softmax(x, axis=0)
        assert len(asked) == times and kernels(driver)[-1] == "softmax_stage3_columns"
