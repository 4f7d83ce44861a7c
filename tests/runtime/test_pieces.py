"""Do kernels of rows in pieces reach the right elements? Which calls do they serve?

row_moves.cuh's `Along::in_pieces` is written a second time, in Python integers: the slots of a launch give, for each
element of a row, where it lies.
"""

from __future__ import annotations

import numpy as np
import pytest
from index_model import AXES, Slots, divide, outer_offset, view_over

import skuda
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules.abi import INNER
from skuda.schedules.row_variants import ClusterVariant, RowVariant, piece_variants
from skuda.schedules.variant import STAGES, RowMode

PLANS = [
    plan
    for name in registry.catalogs()[0].modules
    for plan in registry.catalogs()[0].plans(name)
    if plan.operation.analysis.pieces
]
NORM = skuda.BatchNormTrainingPlan


def planned(plan_class, batch: int, channels: int, inner: tuple[int, ...], element: str = "", start: int = 0, code=""):
    """A plan of `batch` images with channels, and views of arrays whose elements are their own addresses."""
    operation = plan_class.operation
    outer, kept, behind = operation.space
    sizes = {outer.name: (batch,), kept.name: channels, behind.name: inner}
    every = [*operation.kernel_combinations()]
    types = next(each for each in every if (element in each.values() if element else piece_variants(operation, each)))
    types = types | ({"Q": code} if code else {})
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    plan = plan_class.select(plan_class.descriptor_type(**sizes, **fields), preference=BackendKind.REFERENCE)
    views = [
        view_over(np.arange(np.prod(shape, dtype=int)).reshape(shape), DTYPES[word].storage, (1 << 20) + start)
        for shape, word in zip(plan.shapes, plan.words, strict=True)
    ]
    return plan, views


def in_pieces(slots, index: int) -> int:
    """Along::in_pieces."""
    read = Slots(slots)
    axes = read.one()
    of = [read.one() for _ in range(INNER)]
    extent = [read.divide() for _ in range(INNER)]
    assert axes <= 2
    return index + divide(extent[INNER - 1], index) * (of[INNER - 2] - extent[INNER - 1][0])


@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
@pytest.mark.parametrize(
    ("batch", "channels", "inner"),
    [(3, 5, (16,)), (2, 3, (7, 7)), (4, 1, (24,)), (1, 6, (40,)), (5, 2, (4, 6)), (2, 3, (9,))],
)
def test_every_element_is_reached_once_and_in_its_row(plan_class, batch, channels, inner):
    plan, views = planned(plan_class, batch, channels, inner)
    geometry, length = plan._geometry(views), batch * int(np.prod(inner))
    variant = geometry.variant
    assert isinstance(variant, RowVariant) and length <= variant.elements
    slots = Slots(geometry.head)
    assert [slots.one() for _ in range(4)] == [channels, length, AXES, 0]
    outer = slots.outer()
    assert geometry.grid == -(-channels // variant.rows) and geometry.block == variant.block
    for operand, shape in zip(plan.operation.operands, plan.shapes, strict=True):
        if operand.name not in geometry.strides:
            continue
        strides = geometry.strides[operand.name]
        starts = [outer_offset(outer, row, strides[:AXES]) for row in range(channels)]
        if operand.dims != plan.operation.space:
            assert starts == [*range(channels)]
            continue
        rows = np.arange(np.prod(shape)).reshape(batch, channels, -1).transpose(1, 0, 2).reshape(channels, -1)
        for row, start in enumerate(starts):
            assert [start + in_pieces(strides[AXES:], each) for each in range(length)] == rows[row].tolist()


@pytest.mark.parametrize(
    ("element", "batch", "channels", "inner", "start", "held"),
    [
        ("f32", 32, 512, (28, 28), 0, "row1024x4_pieces"),
        ("f16", 32, 512, (28, 28), 0, "row512x8_pieces"),
        ("f16", 32, 512, (28, 28), 2, "row1024x4_pieces_unaligned"),  # the arrays begin at an odd element
        ("f16", 32, 1024, (14, 14), 0, "row256x4_pieces_of_halves"),  # 196 is a multiple of four
        ("f32", 32, 2048, (7, 7), 0, "row64x4_pieces_unaligned"),
        ("f32", 32, 256, (56, 56), 0, "cluster8_pieces"),
        ("f32", 32, 256, (55, 55), 0, "stages"),  # clusters copy whole shares
        ("f32", 1, 64, (256, 256), 0, "cluster8_pieces"),
        ("f16", 32, 64, (112, 112), 0, "stages"),  # too long for two blocks of a cluster on each multiprocessor
        ("f32", 64, 256, (2, 2), 0, "row8x4_pieces_of_halves"),
        ("f16", 2, 5, (3, 7), 0, "row4x4_pieces_unaligned"),
        ("f16", 3, 5, (4,), 0, "row4x1_pieces_unaligned"),  # rows of twelve elements
        ("f32", 64, 256, (), 0, "stages"),  # neighbours belong to different channels
    ],
)
def test_images_are_held_as_they_lie(element, batch, channels, inner, start, held):
    plan, views = planned(NORM, batch, channels, inner, element, start)
    variant = plan._geometry(views).variant
    number = getattr(variant, "threads", variant.number) or ""
    assert f"{variant.kernel}{number}{variant.suffix}" == held


def test_short_pieces_are_left_to_stages():
    plan, views = planned(NORM, 64, 256, (3,))
    assert plan._geometry(views).variant is STAGES


def test_channels_that_come_last_are_left_to_stages_or_stripes():
    plan, views = planned(NORM, 8, 16, (4, 8), "f32")
    (array, *others), order = views, (0, 3, 1, 2)
    last = np.arange(8 * 16 * 32).reshape(8, 4, 8, 16).transpose(order)
    apart = [view_over(last, DTYPES["f32"].storage) if view.shape == array.shape else view for view in (array, *others)]
    assert plan._geometry(views).variant.mode is RowMode.PIECES
    assert plan._geometry(apart).variant is STAGES


def test_without_clusters_long_rows_run_in_stages():
    plan, views = planned(NORM, 32, 256, (56, 56), "f32")
    assert isinstance(plan._geometry(views).variant, ClusterVariant)
    plan._pieces.cluster_shared = 0
    assert plan._geometry(views).variant is STAGES


def test_empty_images_run_in_stages():
    plan, views = planned(NORM, 0, 3, (16,))
    assert plan._geometry(views).variant is STAGES


def test_packed_codes_are_not_held():
    plan, _ = planned(skuda.DynamicQuantizePerChannelPlan, 2, 4, (16,), code="s4")
    assert plan._pieces.variants == ()
