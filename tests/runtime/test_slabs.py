"""Sums across rows that a gradient writes: their order, on the CPU and in kernels, and which kernels make them."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from skuda.arrays.views import view_of
from skuda.cpu import library
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.model.sum_order import SLAB_ROWS, SLABS, slab
from skuda.reference.reductions import in_slabs
from skuda.schedules.slab_variants import NarrowSlabVariant, SlabVariant, slab_bytes
from skuda.schedules.variant import STAGES, RowMode

ROWS = (1, 2, 17, SLABS, 16 * SLABS, 16 * SLABS + 1, SLABS * SLAB_ROWS[1] + 1)
BACKENDS = (BackendKind.CPU, BackendKind.REFERENCE)


def slowly(values: list[np.float32]) -> np.float32:
    """The sum from the definition: each slab from left to right, then neighbours, the odd one out waiting."""
    each = max(16, min(256, -(-len(values) // 264)))
    sums = []
    for start in range(0, len(values), each):
        total = values[start]
        for value in values[start + 1 : start + each]:
            total = total + value
        sums.append(total)
    while len(sums) > 1:
        sums = [sums[i] + sums[i + 1] if i + 1 < len(sums) else sums[i] for i in range(0, len(sums), 2)]
    return sums[0]


@pytest.mark.parametrize("rows", ROWS)
def test_the_order_is_that_of_the_definition(rows):
    values = np.random.default_rng(rows).standard_normal(rows).astype(np.float32)
    assert in_slabs(values, np.add, -0.0) == slowly(list(values))


def test_a_slab_depends_on_the_number_of_rows_alone():
    assert [slab(rows) for rows in (0, 1, 264 * 16, 264 * 16 + 1, 16384, 10**7)] == [16, 16, 16, 17, 63, 256]
    assert in_slabs(np.zeros((3, 0), np.float32), np.add, -0.0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rows", (3, 300, 5000))
def test_both_backends_of_the_cpu_have_it(rows):
    made = np.random.default_rng(rows)
    g, x = (made.standard_normal((rows, 96)).astype(np.float32) for _ in "gx")
    found = []
    for backend in BACKENDS if library.compiler() else BACKENDS[1:]:
        plan = selected(skuda.LayerNormBackwardPlan, rows, 96, "f32", backend)
        d_input, d_weight, d_bias = np.empty_like(x), np.empty(96, np.float32), np.empty(96, np.float32)
        plan.execute((g, x, np.ones(96, np.float32), d_input, d_weight, d_bias))
        found.append((d_weight, d_bias))
        assert d_bias[5] == slowly(list(g[:, 5]))
    assert all(np.array_equal(*each) for each in zip(found[0], found[-1]))


def selected(cls, rows: int, length: int, element: str, backend=BackendKind.REFERENCE):
    sizes = {"n": (rows,), "d": (length,), "input_element": element, "weight_element": element}
    return cls.select(cls.descriptor_type(**sizes, eps=1e-5), preference=backend)


def variant(cls, rows: int, length: int, element: str = "f16", step: int = 1):
    """What serves arrays of so many rows, whose elements are so far apart."""
    plan = selected(cls, rows, length, element)
    arrays = [np.empty(shape, DTYPES[word].storage) for shape, word in zip(plan.shapes, plan.words, strict=True)]
    arrays[0] = np.empty((rows, length * step), arrays[0].dtype)[:, ::step]
    return plan._geometry([view_of(array, str(index)) for index, array in enumerate(arrays)]).variant


@pytest.mark.parametrize(
    ("length", "expected"),
    [(5120, (256, 3, RowMode.WHOLE)), (2880, (128, 3, RowMode.WHOLE)), (7169, (256, 4, RowMode.UNIT)),
     (12288, (512, 3, RowMode.WHOLE))],
)  # fmt: skip
def test_widths_of_models_take_one_kernel(length, expected):
    found = variant(skuda.RmsNormBackwardPlan, 4000, length)
    assert isinstance(found, SlabVariant) and (found.threads, found.chunks, found.mode) == expected


def test_other_calls_take_a_kernel_for_each_stage():
    """The shortest rows, rows that no block has room for, strides along a row, f64, few rows and none."""
    plan = skuda.RmsNormBackwardPlan
    assert variant(plan, 4000, 31) is STAGES and variant(plan, 4000, 17000) is STAGES
    assert variant(plan, 4000, 127) is STAGES  # narrow rows that begin anywhere
    assert variant(plan, 4000, 5120, step=2) is STAGES
    assert variant(plan, 4000, 5120, "f64") is STAGES
    assert variant(plan, 0, 5120) is STAGES and variant(plan, 128, 5120) is STAGES


@pytest.mark.parametrize(
    ("length", "word", "expected"),
    [(32, "f16", (4, 2)), (64, "bf16", (4, 2)), (72, "f16", (8, 2)), (128, "f16", (8, 2)), (256, "bf16", (16, 2)),
     (512, "f16", (32, 2)), (64, "f32", (8, 1)), (128, "f32", (16, 1)), (256, "f32", (32, 1)), (512, "f32", (64, 1))],
)  # fmt: skip
def test_narrow_rows_take_one_kernel(length, word, expected):
    """Heads of 64 to 256 elements: of two bytes a thread holds two groups."""
    found = variant(skuda.RmsNormBackwardPlan, 4000, length, word)
    assert isinstance(found, NarrowSlabVariant) and (found.threads, found.chunks) == expected
    assert found.block == 256 and found.elements // 2 < length <= found.elements or length == 32


@pytest.mark.parametrize(
    ("length", "word", "one_kernel"),
    [(64, "f16", True), (40, "f32", True), (88, "f16", False), (96, "f16", True), (320, "bf16", False),
     (256, "f32", True), (512, "f32", False)],
)  # fmt: skip
def test_narrow_rows_of_two_sums_take_one_where_most_threads_have_elements(length, word, one_kernel):
    found = variant(skuda.LayerNormBackwardPlan, 4000, length, word)
    assert isinstance(found, NarrowSlabVariant) if one_kernel else found is STAGES


@pytest.mark.parametrize("plan", [skuda.RmsNormBackwardPlan, skuda.LayerNormBackwardPlan])
def test_rows_that_begin_anywhere_take_one_kernel_too(plan):
    for length, word in ((1023, "f16"), (4095, "f32"), (7169, "bf16"), (16383, "f32")):
        found = variant(plan, 4000, length, word)
        assert isinstance(found, SlabVariant) and found.mode is RowMode.UNIT, (length, word)


def test_a_block_may_have_room_for_one_row_alone():
    """Of 16384 elements of f32 in two inputs: the next row is copied once this one is made."""
    found = variant(skuda.LayerNormBackwardPlan, 4000, 16384, "f32")
    operation, types = skuda.LayerNormBackwardPlan.operation, {"T": "f32", "W": "f32", "C": "f32"}
    one = 2 * 16384 * 4
    assert one < slab_bytes(operation, types, found, 16384) < 2 * one


@pytest.mark.parametrize(
    "plan, rows, length, lanes, several",
    [
        (skuda.LayerNormBackwardPlan, 128, 7168, 4, False),
        (skuda.RmsNormBackwardPlan, 128, 7168, 4, False),
        (skuda.LayerNormBackwardPlan, 128, 2048, 1, False),  # fewer threads than 8192
        (skuda.LayerNormBackwardPlan, 256, 4096, 4, True),  # two sums: a block takes half of the slabs
        (skuda.RmsNormBackwardPlan, 256, 4096, 1, False),  # one sum: all of them
    ],
)
def test_sums_across_few_slabs(plan, rows, length, lanes, several):
    """How many columns a thread takes, and whether another kernel joins what blocks found."""
    sums = selected(plan, rows, length, "bf16")._kernels.plans[1]
    arrays = [np.empty(shape, DTYPES[word].storage) for shape, word in zip(sums.shapes, sums.words, strict=True)]
    found = sums._geometry([view_of(array, str(index)) for index, array in enumerate(arrays)])
    assert (found.variant.lanes, found.finish is not None) == (lanes, several)


@pytest.mark.parametrize("length, rows", [(5120, 2), (7168, 1), (7169, 1), (8192, 1)])
def test_two_blocks_have_room_with_a_row_each(length, rows):
    """Rather than one with more rows: one's row comes while the other's is made."""
    found = variant(skuda.RmsNormBackwardPlan, 4000, length, "f32")
    operation, types = skuda.RmsNormBackwardPlan.operation, {"T": "f32", "W": "f32", "C": "f32"}
    shared = slab_bytes(operation, types, found, length)
    assert found.room == 2 and shared <= found.shared[0] and shared // (2 * length * 4) == rows


@pytest.mark.parametrize(("length", "teams"), [(1024, 8), (1536, 4), (2880, 2), (5120, 1), (12288, 1)])
def test_where_few_threads_hold_a_row_a_block_takes_several(length, teams):
    found = variant(skuda.LayerNormBackwardPlan, 4000, length)
    assert found.teams == teams and found.block == max(256, found.threads)
