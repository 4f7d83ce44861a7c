"""Which kernel serves operands that lie so, and where one's numbers end."""

from __future__ import annotations

import numpy as np
import pytest
from elementwise_problems import PLANS, check, contiguous

from skuda.arrays.views import CPU, View
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules.elementwise import ElementwiseKernels
from skuda.schedules.elementwise_variants import lanes_of, unaligned_small
from skuda.schedules.geometry import Layouts
from skuda.schedules.variant import (
    BROADCAST,
    PITCHED,
    ROWS,
    SHIFTED,
    SHIFTED_SMALL,
    SINGLE_SMALL,
    STRIDED,
    TUNED,
    VEC,
    VEC_SMALL,
)


@pytest.mark.parametrize(
    "name, sizes, variant",
    [
        ("quantize_per_token", {"n": (300,), "d": 37}, "rows"),  # short rows that vectors would straddle
        ("quantize_per_token", {"n": (300,), "d": 63}, "rows"),
        ("quantize_per_token", {"n": (300,), "d": 65}, "vec"),  # but some vectors may
        ("quantize_per_token", {"n": (300,), "d": 48}, "vec"),
        ("quantize_per_token", {"n": (), "d": 5}, "vec"),
        ("quantize_per_channel", {"outer": (5,), "c": 6, "inner": (4, 8)}, "vec"),
        ("quantize_per_channel", {"outer": (64,), "c": 12, "inner": ()}, "columns"),
        (
            "quantize_per_group",
            {"outer": (7,), "d": 100, "inner": (), "group_size": 32},
            "rows",
        ),  # a ragged last group shorter than a vector
        ("quantize_per_group", {"outer": (7,), "d": 96, "inner": (), "group_size": 32}, "vec"),
        ("quantize_per_group", {"outer": (), "d": 96, "inner": (8,), "group_size": 32}, "columns"),
        ("quantize_per_group", {"outer": (2, 3), "d": 33, "inner": (), "group_size": 100}, "rows"),
        ("lerp_tensor", {"shape": (3, 5, 7)}, "vec"),
        ("lerp_tensor", {"shape": (4099,)}, "vec"),
        # several blocks; more runs to a block than it has threads
        ("quantize_per_token", {"n": (700,), "d": 9}, "rows"),
        ("quantize_per_token", {"n": (3,), "d": 5000}, "vec"),
        ("quantize_per_group", {"outer": (70,), "d": 90, "inner": (), "group_size": 8}, "rows"),
        ("quantize_per_channel", {"outer": (40,), "c": 70, "inner": ()}, "columns"),
    ],
)
def test_which_kernel_serves_contiguous_operands(name, sizes, variant):
    problem = contiguous(name, sizes)
    assert problem.geometry().variant.kernel == variant
    check(problem)


def test_axes_stored_in_another_order_alike_are_one_row():
    problem = contiguous("lerp_tensor", {"shape": (6, 8, 10)})
    for name, array in problem.arrays.items():
        problem.arrays[name] = array.reshape(10, 6, 8).transpose(1, 2, 0)
    assert problem.geometry().variant is SINGLE_SMALL
    check(problem)


def test_more_threads_than_32_bits_number_are_left_to_the_strided_kernel():
    plan_class = next(plan for plan in PLANS if plan.operation.function == "lerp_tensor")
    plan = plan_class.select(
        plan_class.descriptor_type(shape=(1 << 34,)), preference=BackendKind.REFERENCE
    )
    strides = tuple((1,) if operand.dims else None for operand in plan.operation.operands)
    for aligned in (True, False):
        geometry = plan._kernels.geometry(Layouts(strides, aligned, 0 if aligned else None))
        assert geometry.variant in (ROWS, STRIDED)
        assert geometry.variant is STRIDED or geometry.head[0] < 1 << 31


def test_many_misaligned_operands_are_shifted_and_no_flat_row_if_short(monkeypatch):
    monkeypatch.setattr(ElementwiseKernels, "few_blocks", 0)
    problem = contiguous("lerp_tensor", {"shape": (40,)})
    assert problem.geometry().variant is VEC
    problem.pointers["b"] = (1 << 20) + 4
    assert problem.geometry().variant is ROWS
    problem = contiguous("lerp_tensor", {"shape": (4000,)})
    for pointers in ({"b": 4}, {"output": 12}, {"a": 8, "b": 4, "weight": 12, "output": 4}):
        problem.pointers.clear()
        problem.pointers.update({name: (1 << 20) + start for name, start in pointers.items()})
        assert problem.geometry().variant is SHIFTED
        check(problem)


@pytest.mark.parametrize(
    "rows, columns, group, variant",
    [
        (16384, 4095, 128, "groups"),
        (16384, 4095, 32, "groups"),
        (16384, 4096, 128, "vec"),
        (16384, 4095, 31, "rows"),  # more runs than a warp has room for
        (16384, 4097, 128, "rows"),  # a last group shorter than a vector
        (16384, 511, 128, "rows"),  # a stretch of more than two lines
        (400, 4095, 128, "rows"),  # too few stretches to keep a GPU busy
    ],
)
def test_which_kernel_serves_ragged_groups(rows, columns, group, variant):
    plan_class = next(plan for plan in PLANS if plan.operation.function == "fake_quantize_per_group")
    sizes = {"outer": (rows,), "d": columns, "inner": (), "group_size": group}
    descriptor = plan_class.descriptor_type(**sizes, input_element="f16")
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    runs = -(-columns // group)
    strides = tuple((step, 1) for step in (columns, runs, runs, columns))
    assert plan._kernels.geometry(Layouts(strides, True, 0)).variant.kernel == variant


OF_ONE, OF_LANE = TUNED.single_blocks * TUNED.small_threads, TUNED.small_blocks * TUNED.small_threads


@pytest.mark.parametrize(
    ("function", "element", "start", "most", "few", "many"),
    [
        ("quantize_per_tensor", "f16", 0, OF_LANE // 2 * 8, VEC_SMALL, VEC),  # of 16 vectors half as many
        ("quantize_per_tensor", "f16", 2, OF_ONE * 4, SINGLE_SMALL, SHIFTED),
        ("neg", "f32", 0, OF_LANE * 4, VEC_SMALL, VEC),
        ("neg", "f32", 4, OF_ONE * 4, SINGLE_SMALL, SHIFTED),
        ("neg", "f64", 8, OF_ONE * 2, SINGLE_SMALL, SHIFTED),
        ("silu", "f32", 0, OF_LANE * 4, VEC_SMALL, VEC),
        ("silu", "f32", 4, OF_ONE * 2 * 2, SINGLE_SMALL, SHIFTED),  # a function: half as many a thread, more blocks
        ("silu_mul", "f32", 0, OF_ONE * 2, SINGLE_SMALL, VEC_SMALL),  # of several inputs: also those that are aligned
        ("gelu", "f32", 0, OF_ONE * 2, SINGLE_SMALL, VEC_SMALL),  # a long one
        ("silu_mul", "bf16", 0, OF_LANE * 4, VEC_SMALL, VEC),
        ("gelu_tanh_quantize_per_tensor", "f32", 0, OF_LANE * 4, VEC_SMALL, VEC),  # of one input and what all share
        ("lerp_tensor", "f32", 0, OF_ONE * 2, SINGLE_SMALL, VEC),  # which has no shorter vectors
        ("stochastic_round", "f32", 4, TUNED.small_shifted_blocks * TUNED.small_threads * 2, SHIFTED_SMALL, SHIFTED),
    ],
)
def test_few_elements_are_spread_over_more_threads(function, element, start, most, few, many):
    plan_class = next(plan for plan in PLANS if plan.operation.function == function)
    key = "input_element" if "input_element" in plan_class.descriptor_type.__annotations__ else "element"
    for numel, variant in (most, few), (most + 1, many):
        plan = plan_class.select(
            plan_class.descriptor_type(shape=(numel,), **{key: element}), preference=BackendKind.REFERENCE
        )
        views = [
            View((1 << 30) + start, (numel,), (1,), DTYPES[word].storage, CPU, True, False, None) if operand.dims else 0
            for operand, word in zip(plan.operation.operands, plan.words, strict=True)
        ]
        assert plan._geometry(views).variant is variant


@pytest.mark.parametrize(
    ("name", "rows", "variant"),
    [("silu_mul", 64, BROADCAST), ("silu_mul", 4096, PITCHED), ("lerp_tensor", 64, PITCHED)],
)
def test_functions_of_few_elements_in_rows_with_gaps_take_one_vector_a_thread(name, rows, variant):
    problem = contiguous(name, {"shape": (rows, 256)})
    for operand in problem.plan.operation.inputs:
        problem.arrays[operand.name] = np.arange(rows * 512).reshape(rows, 512)[:, :256]
    assert problem.geometry().variant is variant
    if rows == 64:
        check(problem)


@pytest.mark.parametrize(
    "function, element, lanes",
    [("silu_mul", "bf16", 4), ("pow", "f16", 4), ("silu_mul", "f32", 4), ("add", "bf16", 8), ("silu", "bf16", 8)],
)
def test_few_elements_of_long_formulas_of_several_inputs_are_spread_further(function, element, lanes):
    operation = next(plan for plan in PLANS if plan.operation.function == function).operation
    types = next(types for types in operation.combinations if types["T"] == element)
    assert lanes_of(operation, types, VEC_SMALL) == (lanes, 1)
    assert unaligned_small(operation, types) is SINGLE_SMALL
    assert lanes_of(operation, types, SINGLE_SMALL) == (1, 2 if element == "f32" and function != "add" else 4)


@pytest.mark.parametrize(
    "function, element, many, turns",
    [
        ("erfc", "f32", True, TUNED.vec_turns),
        ("erfc", "f32", False, 1),
        ("erfc", "f64", True, 1),
        ("neg", "f32", True, 1),
    ],
)
def test_blocks_of_many_elements_go_on_where_a_formula_is_long(function, element, many, turns):
    plan_class = next(plan for plan in PLANS if plan.operation.function == function)
    lanes, groups = 16 // DTYPES[element].storage.itemsize, 2
    blocks = TUNED.vec_blocks if many else TUNED.vec_blocks - 1
    numel = blocks * TUNED.elementwise_threads * lanes * groups
    plan = plan_class.select(
        plan_class.descriptor_type(shape=(numel,), element=element), preference=BackendKind.REFERENCE
    )
    geometry = plan._kernels.geometry(Layouts(((1,), (1,)), True, 0))
    assert (geometry.variant, geometry.grid) == (VEC, -(-blocks // turns))


@pytest.mark.parametrize(
    "length, group, variant",
    [
        (100, 1 << 40, "vec"),
        ((1 << 31) - (1 << 17), (1 << 31) - (1 << 17), "vec"),
        ((1 << 31) - (1 << 17), 1 << 30, "rows"),  # the last run would end beyond 32 bits
        ((1 << 31) - 1, 1 << 31, "rows"),
    ],
)
def test_runs_end_within_32_bits(length, group, variant):
    plan_class = next(plan for plan in PLANS if plan.operation.function == "quantize_per_group")
    sizes = {"outer": (), "d": length, "inner": (), "group_size": group}
    plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
    views = [
        View(1 << 20, stored, (1,), DTYPES[word].storage, CPU, True, False, None)
        for word, stored in zip(plan.words, plan.stored, strict=True)
    ]
    geometry = plan._geometry(views)
    assert geometry.variant.kernel == variant
    if variant == "vec":
        assert -(-length // geometry.head[1]) * geometry.head[1] < 1 << 31


def test_parameters_that_lie_far_apart_take_rows():
    """A step of 2^31 bytes is more than a vec kernel takes."""
    problem = contiguous("quantize_per_token", {"n": (3,), "d": 16})
    element = problem.arrays["scale"].dtype.itemsize
    for bytes_apart, variant in (((1 << 31) - 4, "vec"), (1 << 31, "rows")):
        problem.arrays["scale"] = np.lib.stride_tricks.as_strided(
            np.zeros(1, np.int64), (3,), (bytes_apart // 4 * element,)
        )
        assert problem.geometry().variant.kernel == variant
