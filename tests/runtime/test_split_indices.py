"""Do split reductions reach the right elements, and join them in the order of every sum?

split_*.cuh and split_moves.cuh are written a second time, in Python integers: the slots of a launch give,
for each thread of each block, the elements that it takes and where they lie, and what its block and the finishing
kernel make of them.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from index_model import AXES, Slots, divide, outer_offset, view_over
from test_row_indices import expected, problem_of

from skuda.errors import Unsupported
from skuda.launch import registry
from skuda.launch.prepared import layouts
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.model.sum_order import GROUP, slab
from skuda.reference.reductions import in_order
from skuda.schedules.row_variants import SplitVariant
from skuda.schedules.variant import RowMode

PLANS = [
    plan
    for name in registry.catalogs()[0].modules
    for plan in registry.catalogs()[0].plans(name)
    if plan.operation.analysis.split
]


class IndexModel:
    """A launch: its slots as split_moves.cuh's Reduction names them, and what its threads do."""

    def __init__(self, geometry, in_slabs: bool = False):
        self.geometry = geometry
        slots = Slots(geometry.head)
        names = "rows length columns segment accumulators turns cut each wide team".split()
        self.__dict__.update({name: slots.one() for name in names})
        self.splits, self.tiles = slots.divide(), slots.divide()
        self.finish_wide, self.finish_each = slots.one(), slots.one()
        self.kept, self.along = slots.outer(), slots.outer()
        assert not slots.rest
        self.slab = slab(self.length) if in_slabs else 0

    def threads(self):
        """(split, row, accumulators in order) of each thread and lane; rows that do not exist are left out."""
        lanes, block = self.geometry.variant.lanes, self.geometry.block
        assert block % 32 == 0 and block <= 256
        for number in range(self.geometry.grid):
            if not lanes:
                row = divide(self.splits, number)
                split = number - row * self.splits[0]
                span = self.accumulators >> self.cut
                assert block == span or (span == 32 and block >= span * self.turns)  # a warp of each turn
                for thread in range(span):
                    yield split, row, [(split & ((1 << self.cut) - 1)) * span + thread]
                continue
            for thread in range(block):
                unit = number * (block >> self.team) + (thread >> self.team)
                line = divide(self.tiles, unit)
                table = divide(self.splits, line)
                split, tile = line - table * self.splits[0], unit - line * self.tiles[0]
                start = (split & ((1 << self.cut) - 1)) << (self.team - self.wide)
                if table * self.columns >= self.rows:
                    continue
                beside = thread & ((1 << self.wide) - 1)
                accumulator = start + ((thread & ((1 << self.team) - 1)) >> self.wide)
                for lane in range(lanes):
                    neighbours = self.geometry.variant.mode is RowMode.WHOLE or self.geometry.variant.shifted
                    column = tile * (lanes << self.wide) + (beside * lanes + lane if neighbours else beside + 32 * lane)
                    if column < self.columns:
                        several = range(accumulator << self.each, accumulator + 1 << self.each)
                        yield split, table * self.columns + column, [*several]

    def elements(self, split: int, accumulator: int):
        """Those of an accumulator, turn by turn."""
        begin = (split >> self.cut) * self.segment
        end = min(begin + self.segment, self.length)
        if self.slab:  # one after the other
            begin, accumulator = begin + accumulator * self.slab, 0
            end = min(begin + self.slab, end)
        for turn in range(self.turns):
            first = begin + (turn * self.accumulators + accumulator) * GROUP
            if first < end:
                yield range(first, min(first + GROUP, end))

    def offset(self, name: str, row: int, element: int) -> int:
        reach = self.geometry.strides[name]
        return outer_offset(self.kept, row, reach[:AXES]) + outer_offset(self.along, element, reach[AXES : 2 * AXES])


def tree(values: list):
    while len(values) > 1:
        values = values + [np.float32(-0.0)] * (len(values) % 2)
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def summed(model: IndexModel, values: np.ndarray) -> list[np.float32]:
    """The sums of rows (shape (rows, length)), as threads, blocks and the finishing kernel add."""
    threads: dict[tuple[int, int], list] = {}
    for split, row, accumulators in model.threads():
        each = []
        for accumulator in accumulators:
            total = np.float32(-0.0)
            for group in model.elements(split, accumulator):
                taken = [*values[row, group.start : group.stop], *[np.float32(-0.0)] * (GROUP - len(group))]
                total = total + tree(taken)
            each.append(total)
        threads.setdefault((row, split), []).append(tree(each))
    splits = {key: tree(found) for key, found in threads.items()}
    each = model.finish_each
    totals = []
    for row in range(model.rows):
        own = [splits[row, split] for split in range(model.splits[0])]
        totals.append(tree([tree(own[start : start + each]) for start in range(0, len(own), each)]))
    return totals


@pytest.mark.turns(5)
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_every_element_is_reached_once_and_in_its_row(plan_class):
    rng = random.Random(plan_class.__name__)
    found_variants = set()
    for _ in range(60):
        plan, arrays = problem_of(plan_class, rng)
        operation = plan.operation
        views = [
            view_over(arrays[o.name], DTYPES[word].storage) if o.name in arrays else 0
            for o, word in zip(operation.operands, plan.words, strict=True)
        ]
        plan._kernels.split.few = rng.choice([0, 0, plan._kernels.split.few])
        plan._kernels.split.enough = rng.choice([1, plan._kernels.split.enough])
        plan._kernels.split.left = rng.choice([0, 1, plan._kernels.split.left])
        try:
            geometry = plan._geometry(views)
        except Unsupported:
            continue
        if not isinstance(geometry.variant, SplitVariant) or not plan.numel or np.prod(geometry.head[:2]) > 4000:
            continue
        found_variants.add(geometry.variant)
        model = IndexModel(geometry, bool(operation.analysis.slabs))
        assert geometry.workspace <= plan._kernels.workspace
        assert (geometry.finish is None) == (model.splits[0] == 1) == (geometry.workspace == 0)
        names = list(arrays)
        wanted = expected(plan, arrays)
        every = sorted(zip(*(wanted[name].ravel().tolist() for name in names), strict=True))
        reached = sorted(
            tuple(model.offset(name, row, element) for name in names)
            for split, row, accumulators in model.threads()
            for accumulator in accumulators
            for group in model.elements(split, accumulator)
            for element in group
        )
        assert reached == every, (operation.function, plan.sizes, names)
        for index, operand in enumerate(operation.inputs):  # the bytes between which it lies
            if operand.dims == operation.space:
                low, high = geometry.strides[operand.name][-2:]
                size = DTYPES[plan.words[index]].storage.itemsize
                assert low == wanted[operand.name].min() * size and high == (wanted[operand.name].max() + 1) * size
    assert found_variants


@pytest.mark.parametrize(
    ("kept", "reduced", "last"),
    [
        (1, 70_000, "reduced"), (3, 9001, "reduced"), (2, 200_000, "reduced"), (1, 65_536, "reduced"),
        (33, 2053, "kept"), (5, 9000, "kept"), (130, 520, "kept"), (7, 66_000, "kept"), (300, 60, "kept"),
    ],
)  # fmt: skip
def test_parts_join_to_the_sum_of_the_reference(kept, reduced, last):
    from skuda.generated import SumDescriptor, SumPlan

    plan = SumPlan.select(SumDescriptor(kept=(kept,), reduced=(reduced,)), preference=BackendKind.REFERENCE)
    x = np.random.default_rng(kept).normal(0, 1, (kept, reduced)).astype(np.float32)
    x = x if last == "reduced" else np.asfortranarray(x)
    addresses = np.arange(x.size).reshape(x.shape, order="C" if last == "reduced" else "F")
    plan._kernels.split.few = plan._kernels.split.left = 0
    geometry = plan._geometry([view_over(addresses, x.dtype), view_over(np.arange(kept), x.dtype)])
    assert isinstance(geometry.variant, SplitVariant)
    got = np.array(summed(IndexModel(geometry), x))
    assert (got.view(np.uint32) == in_order(x, np.add, -0.0).view(np.uint32)).all()


def test_rows_of_nothing_have_a_kernel():
    from skuda.generated import LayerNormBackwardDescriptor, LayerNormBackwardPlan

    whole = LayerNormBackwardPlan.select(LayerNormBackwardDescriptor(n=(0,), d=5), None, BackendKind.REFERENCE)
    plan = whole._kernels.plans[1]
    geometry = plan._geometry(
        [view_over(np.arange(np.prod(shape, dtype=int)).reshape(shape), np.dtype("f4")) for shape in plan.shapes]
    )
    assert geometry.finish is None and geometry.grid * geometry.block >= 5
    assert geometry.head[1] == 0


@pytest.mark.parametrize(
    ("kept", "reduced", "grid", "block", "finishes"),
    [
        (1, 8192, 1, 256, False), (300, 4000, 300, 128, False),  # a block takes a row
        (1, 65_536, 32, 256, True), (3, 9000, 48, 128, True),  # a warp takes a turn of 32 accumulators
        (1, 1 << 20, 512, 32, True), (1, 1 << 25, 2048, 256, True),
    ],
)  # fmt: skip
def test_what_a_block_takes_along_rows(kept, reduced, grid, block, finishes):
    from skuda.generated import SumDescriptor, SumPlan

    plan = SumPlan.select(SumDescriptor(kept=(kept,), reduced=(reduced,)), preference=BackendKind.REFERENCE)
    kernels = plan._kernels.split
    geometry = kernels._along_rows([], [], [], RowMode.WHOLE)
    assert (geometry.grid, geometry.block, geometry.finish is not None) == (grid, block, finishes)


def geometry_of_tables(tables: int, rows: int, columns: int):
    """That of sums over the axis in the middle."""
    from skuda.generated import SumDescriptor, SumPlan

    descriptor = SumDescriptor(kept=(tables, columns), reduced=(rows,))
    plan = SumPlan.select(descriptor, preference=BackendKind.REFERENCE)
    x = np.lib.stride_tricks.as_strided(
        np.zeros(1, np.int64), (tables, rows, columns), (8 * rows * columns, 8 * columns, 8)
    )
    total = np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), (tables, columns), (8 * columns, 8))
    views = [view_over(x.transpose(0, 2, 1), np.dtype("f4")), view_over(total, np.dtype("f4"))]
    return plan._kernels.split.geometry(layouts(plan, views))


@pytest.mark.parametrize(
    ("tables", "rows", "columns", "grid", "block"),
    [
        (262144, 8, 8, 4096, 128),  # two threads to a table of one group each: 64 tables to a block
        (65536, 2, 127, 16384, 128),  # 32 threads to a table
        (65536, 1, 127, 16256, 128),  # one table: rows of one element are neighbours anyhow
        (16384, 64, 64, 2048, 128),  # a thread takes all four accumulators of a column
        (4096, 300, 8, 2048, 32), (7, 100, 8, 7, 32), (1, 64, 4096, 512, 32),
    ],
)  # fmt: skip
def test_narrow_tables_share_a_block(tables, rows, columns, grid, block):
    geometry = geometry_of_tables(tables, rows, columns)
    assert (geometry.grid, geometry.block) == (grid, block)


@pytest.mark.parametrize("columns", [4, 100])
def test_teams_are_counted_in_32_bits(columns):
    """Of more rows than that a thread takes one, so that teams are few again."""
    for tables in (1 << 20, (1 << 35) // columns):
        geometry = geometry_of_tables(tables, 2, columns)
        model = IndexModel(geometry)
        assert (model.rows < 1 << 31) == (geometry.variant.lanes > 1)
        assert geometry.grid * (geometry.block >> model.team) < 1 << 31


@pytest.mark.parametrize(
    ("kept", "reduced", "kernel"), [(8192, 2, "along"), (2, 8192, "across"), (0, 3, "across"), (5, 0, "across")]
)
def test_rows_that_step_are_read_along_the_axis_whose_neighbours_are_nearer(kept, reduced, kernel):
    from skuda.generated import SumDescriptor, SumPlan

    plan = SumPlan.select(SumDescriptor(kept=(64,), reduced=(4096,)), preference=BackendKind.REFERENCE)
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), (64, 4096), (8 * kept, 8 * reduced))
    views = [view_over(x, np.dtype("f4")), view_over(np.arange(64), np.dtype("f4"))]
    assert plan._geometry(views).variant.kernel == kernel


def test_the_finishing_kernel_has_threads_for_all_parts():
    from skuda.generated import SumDescriptor, SumPlan

    for kept in (1, 2, 31, 33, 4096):
        for reduced in (70_000, 1 << 20, 1 << 26, 1 << 31):
            plan = SumPlan.select(SumDescriptor(kept=(kept,), reduced=(reduced,)), preference=BackendKind.REFERENCE)
            kernels = plan._kernels.split
            for cut in (kernels._along, kernels._across()):
                geometry = kernels._launch(None, [], [], [], kept, cut, 0, 1, 1, cut.span)
                wide, each = geometry.head[18:20]
                blocks, threads = geometry.finish
                assert threads % 32 == 0 and threads <= 256 and blocks << wide >= kept
                assert (threads >> wide) * each >= cut.splits and each & (each - 1) == 0


# Bytes of what a split comes to, as C++ lays it out: a value, one of 4 bytes with its index, a count and a number.
PARTS = {"sum": 4, "amax": 4, "any": 1, "count_nonzero": 8, "argmax": 16, "prod_stage1_backward": 16}


@pytest.mark.parametrize("function", PARTS)
def test_there_is_room_for_all_parts(function):
    """Of one row splits are read eight at a time, and the next struct begins on the boundary of its widest member."""
    [plan_class] = (plan for plan in PLANS if plan.operation.function == function)
    counts = set()
    for kept in ((), (3,)):
        for length in (*range(2_000, 400_000, 1_999), 5_000_000, 10_000_019):
            plan = plan_class.select(
                plan_class.descriptor_type(kept=kept, reduced=(length,)), preference=BackendKind.REFERENCE
            )
            kernels = getattr(plan._kernels, "split", None) or plan._kernels
            for cut in (kernels._along, kernels._across()):
                rows = 3 if kept else 1
                room = cut.splits * rows if kept else -(-cut.splits // GROUP) * GROUP
                assert cut.splits == 1 or kernels.workspace >= room * PARTS[function]
                counts.add(cut.splits % GROUP)
    assert function in ("sum", "prod_stage1_backward") or len(counts) > 2  # splits of any number, so that it matters
