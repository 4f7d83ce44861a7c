"""Do stripes reach the right elements, and join them in the order of every sum? Which calls do they serve?

stripe.cuh is written a second time, in Python integers: the slots of a launch give, for each thread of each block, the
elements that it takes, where they lie, and how what blocks make of them is joined.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from index_model import AXES, Slots, divide, outer_offset, view_over

import skuda
from skuda.launch import compiler, registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.model.sum_order import GROUP
from skuda.reference.reductions import in_order
from skuda.schedules import stripes
from skuda.schedules.stripe_variants import StripeVariant, stripe_variants
from skuda.schedules.variant import STAGES

_ROOM = 227 << 10  # bytes of shared memory that a block may have

PLANS = [
    plan
    for name in registry.catalogs()[0].modules
    for plan in registry.catalogs()[0].plans(name)
    if plan.operation.analysis.stripes
]
DYNAMIC, SOFTMAX = skuda.DynamicQuantizePerChannelPlan, skuda.SoftmaxPlan


class IndexModel:
    """A launch: its slots as split_moves.cuh's Reduction names them, and what its threads do."""

    def __init__(self, geometry, lanes: int):
        self.geometry, self.lanes = geometry, lanes
        slots = Slots(geometry.head)
        names = "rows length columns segment accumulators turns cut each wide team".split()
        self.__dict__.update({name: slots.one() for name in names})
        self.splits, self.tiles = slots.divide(), slots.divide()
        slots.one(), slots.one()
        self.kept, self.along = slots.outer(), slots.outer()
        assert not slots.rest

    def threads(self):
        """(block of its cluster, row, accumulator) of each thread and lane; rows that do not exist are left out."""
        blocks, block = self.geometry.variant.blocks, self.geometry.block
        assert block % 32 == 0 and block <= 512 and self.geometry.grid % blocks == 0
        for number in range(self.geometry.grid):
            stripe, rank = divmod(number, blocks)
            table = divide(self.tiles, stripe)
            tile = stripe - table * self.tiles[0]
            for thread in range(block):
                accumulator = rank * (block >> self.wide) + (thread >> self.wide)
                for lane in range(self.lanes):
                    beside = thread & ((1 << self.wide) - 1)
                    column = ((tile << self.wide) + beside) * self.lanes + lane
                    if column < self.columns:
                        yield rank, table * self.columns + column, accumulator

    def elements(self, accumulator: int):
        """Those of an accumulator, turn by turn."""
        for turn in range(self.turns):
            first = (turn * self.accumulators + accumulator) * GROUP
            if first < self.length:
                yield range(first, min(first + GROUP, self.length))

    def offset(self, name: str, row: int, element: int) -> int:
        reach = self.geometry.strides[name]
        return outer_offset(self.kept, row, reach[:AXES]) + outer_offset(self.along, element, reach[AXES : 2 * AXES])


def planned(plan_class, length: int, columns: int, tables: int = 1, element: str = "", code: str = "", start: int = 0):
    """A plan whose rows lie along the first axis of arrays [tables,] length x columns, and views of such arrays: their
    elements are their addresses."""
    operation = plan_class.operation
    kept = (tables, columns) if tables > 1 else (columns,)
    sizes, first = {}, True
    for dim in operation.space:
        if dim.name in operation.along:
            sizes[dim.name] = ((length,) if first else ()) if dim.many else length
            first = False
        else:
            sizes[dim.name] = kept if dim.many else columns
    every = [*operation.kernel_combinations()]
    types = next(each for each in every if (element in each.values() if element else stripe_variants(operation, each)))
    types = types | ({"Q": code} if code else {})
    fields = {field: types[letter] for letter, field in operation.element_fields.items()}
    plan = plan_class.select(plan_class.descriptor_type(**sizes, **fields), preference=BackendKind.REFERENCE)
    plan._stripes.cluster_shared = _ROOM
    plan._kernels._beside = []  # short rows have a thread each: test_alternative.py
    arrays = {}
    whole = np.arange(tables * length * columns).reshape(tables, length, columns)
    if operation.space[0].name in operation.along:
        whole = whole[0]
    else:
        whole = np.moveaxis(whole, 1, -1).reshape(*kept, length) if tables > 1 else whole[0].T
    for operand, shape in zip(operation.operands, plan.shapes, strict=True):
        full = operand.dims == operation.space
        arrays[operand.name] = whole if full else np.arange(int(np.prod(shape))).reshape(shape)
    views = [
        view_over(arrays[operand.name], DTYPES[word].storage, (1 << 20) + start)
        for operand, word in zip(operation.operands, plan.words, strict=True)
    ]
    return plan, arrays, views


def held(plan, views, variant=None):
    """What holds a call's rows, by one schedule if it is named."""
    if variant is not None:
        plan._stripes.variants = (variant,)
        plan._stripes.few, plan._stripes.least = 1 << 40 if variant.narrow else 0, 0
    return plan._geometry(views)


@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_every_element_is_reached_once_and_in_its_row(plan_class):
    variants = planned(plan_class, 37, 36)[0]._stripes.variants
    assert {variant.blocks for variant in variants} >= {1, 2, 4}
    for variant in variants:
        for length, columns in ((60 * variant.blocks, 36), (61 * variant.blocks, 72)):
            plan, arrays, views = planned(plan_class, length, columns)
            geometry = held(plan, views, variant)
            assert geometry.variant is variant and 0 < geometry.shared <= _ROOM // 2
            model = IndexModel(geometry, plan._stripes._lanes[variant])
            full = [o.name for o in plan.operation.operands if o.dims == plan.operation.space]
            reached = sorted(
                tuple(model.offset(name, row, element) for name in full)
                for _, row, accumulator in model.threads()
                for group in model.elements(accumulator)
                for element in group
            )
            assert reached == [(each,) * len(full) for each in range(length * columns)], (variant, length)
            for name in arrays.keys() - set(full):
                found = [model.offset(name, row, 0) for row in range(columns)]
                assert found == [*range(columns)] or arrays[name].size == 1


@pytest.mark.parametrize("tables", [1, 3])
@pytest.mark.parametrize("length", [2, 7, 60, 500, 2053, 8000])
def test_blocks_join_to_the_sum_of_the_reference(length, tables):
    def tree(values: list):
        while len(values) > 1:
            values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
        return values[0]

    rows = np.random.default_rng(length).normal(0, 1, (tables * 4, length)).astype(np.float32)
    plan, _, views = planned(SOFTMAX, length, 4, tables)
    plan._stripes.few = plan._stripes.least = 0
    model = IndexModel(held(plan, views), plan._stripes._lanes[plan._geometry(views).variant])
    found: dict[int, dict[int, dict[int, np.float32]]] = {}
    for rank, row, accumulator in model.threads():
        total = np.float32(-0.0)
        for group in model.elements(accumulator):
            missing = [np.float32(-0.0)] * (GROUP - len(group))
            total = total + tree([*rows[row, group.start : group.stop], *missing])
        found.setdefault(row, {}).setdefault(rank, {})[accumulator] = total
    got = [tree([tree([by[k] for k in sorted(by)]) for by in (found[row][rank] for rank in sorted(found[row]))])
           for row in range(len(rows))]  # fmt: skip
    assert (np.array(got).view(np.uint32) == in_order(rows, np.add, -0.0).view(np.uint32)).all()


@pytest.mark.parametrize(
    ("length", "columns", "element", "expected"),
    [
        (16, 2048, "f32", "stripe1_narrow"), (256, 4096, "f32", "stripe1"), (256, 4096, "f16", "stripe1_narrow"),
        (512, 65536, "f16", "stripe1"), (1024, 16384, "f32", "stripe2"), (4096, 4096, "f32", "stripe8"),
        (64, 4096, "f32", "stripe1_narrow"),
        (8192, 8192, "f16", "stripe16"), (4096, 4096, "f64", "stripe8"),
    ],
)  # fmt: skip
def test_a_stripe_takes_blocks_by_its_length(length, columns, element, expected):
    plan, _, views = planned(SOFTMAX, length, columns, element=element)
    assert registry.make_sku(plan.operation, plan.types, held(plan, views).variant).variant == expected


def test_blocks_have_at_most_the_threads_that_the_kernel_has_room_for():
    warps = re.search(r"STRIPE_WARPS = (\d+);", compiler.headers()["stripe.cuh"])
    assert int(warps[1]) * 32 == stripes._MOST_THREADS


def test_two_blocks_have_room_beside_each_other():
    for length in (64, 500, 1000, 3000, 7000, 12000):
        for plan_class in PLANS:
            plan, _, views = planned(plan_class, length, 4096)
            geometry = plan._geometry(views)
            if isinstance(geometry.variant, StripeVariant):
                assert 2 * (geometry.shared + 1024) <= _ROOM + 1024


def test_other_calls_take_a_kernel_for_each_stage():
    """Long rows, neighbours that are no whole vectors, arrays that begin elsewhere, rows along two axes, few blocks, a
    GPU without clusters."""

    def variant(length, columns, shift=0, room=_ROOM):
        plan, _, views = planned(DYNAMIC, length, columns, start=4 * shift)
        plan._stripes.cluster_shared = room
        return plan._geometry(views).variant

    assert isinstance(variant(4096, 4096), StripeVariant)
    assert variant(16384, 4096) is STAGES and variant(4096, 4095) is STAGES
    assert variant(4096, 64) is STAGES and isinstance(variant(256, 64), StripeVariant)
    assert variant(4096, 4096, shift=1) is STAGES and variant(4096, 4096, room=0) is STAGES
    sizes = {"outer": (64,), "c": 64, "inner": (3,)}  # longer pieces are held as they lie: test_pieces.py
    fields = {"input_element": "f32", "scale_element": "f32", "output_element": "s8"}
    plan = DYNAMIC.select(DYNAMIC.descriptor_type(**sizes, **fields), preference=BackendKind.REFERENCE)
    views = [view_over(np.empty(shape, np.uint8), DTYPES[word].storage) for shape, word in zip(plan.shapes, plan.words)]
    assert plan._geometry(views).variant is STAGES


def test_packed_codes_have_no_stripes():
    plan, _, _ = planned(DYNAMIC, 64, 64, code="s4")
    assert plan._stripes.variants == ()
