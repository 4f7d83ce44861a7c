"""Do the row kernels reach the right elements? The index arithmetic of the device, written again in Python.

The device's side is written a second time in Python integers: rows.cuh's RowSpace and row.cuh.
It gets the slots of a launch and yields, for each element of each row that some thread takes, the position of each
operand; NumPy's own indexing of arrays of addresses says what those must be.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from index_model import AXES, Slots, addresses, divide, outer_offset, view_over
from problems import Call, Circumstances, lay_out

import skuda
from skuda.errors import Unsupported
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.model.sum_order import GROUP, SEGMENT, accumulators
from skuda.plans.axis_views import chosen
from skuda.schedules.row_reduction import INNER
from skuda.schedules.row_variants import FEW_ROWS, STATE_BYTES, ClusterVariant, SplitVariant, row_variants
from skuda.schedules.scan_variants import ScanVariant, scan_variants
from skuda.schedules.table import variant_name
from skuda.schedules.variant import STAGES, RowMode

PLANS = [
    plan
    for name in registry.catalogs()[0].modules
    for plan in registry.catalogs()[0].plans(name)
    if plan.operation.analysis.over and not plan.operation.analysis.stages
]


def reached(geometry, names: list[str], along: dict[str, bool], read: bool = True):
    """(row, element of it, {operand: offset}) of each element that a thread takes, or may pick where no pass reads
    rows, whose length then does not matter."""
    slots = Slots(geometry.head)
    rows, length, block_axis, last_length = (slots.one() for _ in range(4))
    outer = slots.outer()
    assert not slots.rest
    variant = geometry.variant
    assert geometry.block == variant.block and geometry.grid == -(-rows // variant.rows)
    for row in range(rows):
        own = length
        if block_axis < AXES:
            rest = row
            for axis in range(AXES - 1, block_axis, -1):
                rest = divide(outer[1][axis], rest)
            blocks = outer[1][block_axis]
            own = last_length if rest - divide(blocks, rest) * blocks[0] == blocks[0] - 1 else length
        scans = isinstance(variant, ScanVariant)  # a block goes along long rows
        held = own <= variant.elements or (not variant.keep and variant.threads == accumulators(own))
        assert scans or held or not read
        # What the template calls FULL: shorter rows have fewer threads, down to four.
        assert scans or own > variant.elements // 2 or not variant.keep or variant.threads <= 4 or block_axis < AXES
        starts = {name: outer_offset(outer, row, geometry.strides[name][:AXES]) for name in names}
        for element in range(own):
            yield row, element, {
                name: starts[name] + (steps_to(geometry.strides[name][AXES:], element) if along[name] else 0)
                for name in names
            }


def steps_to(slots, position: int) -> int:
    """Along::to."""
    read = Slots(slots)
    axes = read.one()
    of = [read.one() for _ in range(INNER)]
    extent = [read.divide() for _ in range(INNER)]
    assert len(read.rest) in (0, 2) and 1 <= axes <= INNER  # an input has a Span too
    total = 0
    for axis in range(INNER - 1, INNER - axes, -1):
        above = divide(extent[axis], position)
        total += (position - above * extent[axis][0]) * of[axis]
        position = above
    return total + position * of[INNER - axes]


def problem_of(plan_class, rng: random.Random):
    """A plan, and an array of addresses for each operand: contiguous, permuted, stepped or padded, or with rows beside
    each other."""
    operation = plan_class.operation
    types = rng.choice([t for t in operation.combinations if not any(DTYPES[w].packed for w in t.values())])
    single = [1, 8, 13, 40] if sum(not dim.many for dim in operation.dims) < 3 else [1, 3, 8]
    sizes = {
        dim.name: tuple(rng.choices([1, 2, 3, 4, 8], k=rng.randint(0, 2))) if dim.many else rng.choice(single)
        for dim in operation.dims
    }
    sizes |= {a.name: rng.choice([1, 4, 7, 8, 50]) for a in operation.attributes if a.type == "size"}
    elements = {field: types[letter] for letter, field in operation.element_fields.items()}
    plan = plan_class.select(plan_class.descriptor_type(**sizes, **elements), preference=BackendKind.REFERENCE)
    how = rng.choice(["contiguous", "contiguous", "permuted", "stepped", "padded", "beside"])
    arrays = {}
    for index, operand in enumerate(operation.operands):
        shape = plan.stored[index]
        if how == "beside" and shape:  # rows along the last axis
            arrays[operand.name] = np.moveaxis(addresses((shape[-1], *shape[:-1]), rng, "contiguous"), 0, -1)
        elif operand.dims:
            arrays[operand.name] = addresses(shape, rng, "contiguous" if how == "beside" else how)
    return plan, arrays


def expected(plan, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each operand's offsets, broadcast over the index space."""
    operation, sizes = plan.operation, plan.sizes
    space = tuple(n for dim in operation.space for n in (sizes[dim.name] if dim.many else (sizes[dim.name],)))
    found = {}
    for operand in operation.operands:
        if operand.name not in arrays:
            continue
        array = arrays[operand.name] - arrays[operand.name].flat[0]
        axis, shape = 0, []
        for dim in operation.space:
            own = next((d for d in operand.dims if d.name == dim.name), None)
            for extent in sizes[dim.name] if dim.many else (sizes[dim.name],):
                if own is None:
                    shape.append(1)
                    continue
                if own.block:
                    array = np.repeat(array, sizes[own.block], axis=axis).take(range(extent), axis=axis)
                shape.append(extent)
                axis += 1
        found[operand.name] = np.broadcast_to(array.reshape(shape), space)
    return found


def assert_spans_are_inside(operation, plan, geometry, wanted, runs):
    """The words around a share that a span admits hold bytes of the operand alone."""
    for operand, word in zip(operation.operands, plan.words, strict=True):
        if operand not in operation.inputs or not runs[operand.name] or not wanted[operand.name].size:
            continue
        if operation.in_runs(operand):  # read an element at a time
            continue
        bytes_each, (low, size) = DTYPES[word].bits // 8, geometry.strides[operand.name][-2:]
        share = GROUP * bytes_each
        first, end = wanted[operand.name].min() * bytes_each, (wanted[operand.name].max() + 1) * bytes_each
        assert low >= first
        assert size == 0 or low + size - 1 + share + min(16, share) <= end
        assert size > 0 or end - first < 2 * share


@pytest.mark.turns(10)
@pytest.mark.parametrize("plan_class", PLANS, ids=lambda plan: plan.operation.function)
def test_every_element_is_reached_once_and_in_its_row(plan_class):
    rng = random.Random(plan_class.__name__)
    modes, most = set(), 0
    for _ in range(100):
        plan, arrays = problem_of(plan_class, rng)
        operation = plan.operation
        runs = {o.name: any(d.name in operation.along and not d.block for d in o.dims) for o in operation.operands}
        views = [
            view_over(arrays[o.name], DTYPES[word].storage) if o.name in arrays else 0
            for o, word in zip(operation.operands, plan.words, strict=True)
        ]
        if getattr(plan, "_stripes", None) is not None:
            plan._stripes.variants = ()  # test_stripes.py
        try:
            geometry = plan._geometry(views)
        except Unsupported:
            continue
        if isinstance(geometry.variant, SplitVariant) or geometry.variant is STAGES:
            continue  # test_split_indices.py; the stages are plans of their own
        modes.add(geometry.variant.mode)
        most = max([most, *(geometry.strides[name][AXES] for name in arrays if runs[name])])
        names = list(arrays)
        wanted = expected(plan, arrays)
        read = bool(operation.analysis.reductions) or any(o.dims == operation.space for o in operation.outputs)
        found = sorted(tuple(at[name] for name in names) for _, _, at in reached(geometry, names, runs, read))
        every = sorted(zip(*(wanted[name].ravel().tolist() for name in names), strict=True))
        assert found == every, (operation.function, plan.sizes, names)
        if geometry.variant.mode not in (RowMode.STEPPED, RowMode.BESIDE):
            assert_spans_are_inside(operation, plan, geometry, wanted, runs)
    variants = row_variants(operation, plan.types) or scan_variants(operation, plan.types)
    assert modes == {variant.mode for variant in variants}
    several = any(dim.many for dim in operation.space if dim.name in operation.along)
    assert most > 1 or not several or RowMode.STEPPED not in modes


def test_a_row_is_held_by_as_many_threads_as_its_sum_has_accumulators():
    for plan_class in PLANS:
        for types in plan_class.operation.kernel_combinations():
            found = row_variants(plan_class.operation, types)
            beside = [each for each in found if each.mode is RowMode.BESIDE]
            assert all(each.threads == 1 and each.chunks <= accumulators(each.elements) == 4 for each in beside)
            found = [each for each in found if each not in beside]
            for variant in found:
                held = variant.threads * variant.accumulators // variant.spread
                assert held == (accumulators(variant.elements) if variant.elements > GROUP else 1)
                assert held == (accumulators(variant.elements - GROUP) if variant.elements > GROUP else 1)
            # Parts or stages take long rows where they may, and what few elements of a row tell any threads.
            found = [each for each in found if each.kernel != FEW_ROWS]
            apart = plan_class.operation.analysis.split or plan_class.operation.holds_alone
            if found and plan_class.operation.analysis.reductions and not apart:
                assert accumulators(1 << 20) == found[-1].threads and not found[-1].keep


@pytest.mark.parametrize(
    ("name", "element", "length", "held"),
    [
        ("DynamicQuantizePerToken", "f16", 8192, "row256x4"),
        ("DynamicQuantizePerToken", "f16", 11008, "row256x8"),
        ("LayerNorm", "bf16", 16384, "row256x8"),
        ("LogSoftmax", "f16", 32768, "row512x8"),
        ("LogSoftmax", "f16", 11001, "row512x4_unaligned"),  # the words around each share take registers
        ("LogSoftmax", "f32", 11008, "row512x4"),
        ("Softmax", "f16", 11008, "row256x6"),  # holds exponentials
        ("Softmax", "f16", 12296, "row512x4"),
        ("Softmax", "f16", 5120, "row128x5"),
        ("Softmax", "f16", 2880, "row128x4"),
        ("Softmax", "f16", 5121, "row256x4_unaligned"),
        ("Softmax", "f64", 5120, "row256x4"),
        ("Softmax", "f32", 5120, "row128x5"),
        ("Softmax", "f32", 11008, "row512x4"),
        ("LayerNorm", "bf16", 5120, "row128x5"),  # narrow: they compute longer than they wait
        ("LayerNorm", "f32", 5120, "row256x4"),
        ("LayerNorm", "f16", 6144, "row128x6"),
        ("Sparsemax", "f16", 11008, "row512x4"),  # passes that are repeated
        ("Logsumexp", "f32", 11008, "row256x6"),
        ("Logsumexp", "f16", 11008, "row256x8"),
        ("SiluMulDynamicQuantize", "bf16", 5120, "row128x5"),  # two inputs, and a value that is held
        ("AddRmsNorm", "f16", 11008, "row512x4"),  # two inputs
    ],
)
def test_long_narrow_rows_are_held_by_half_as_many_threads(name, element, length, held):
    plan_class = getattr(skuda, f"{name}Plan")
    types = next(each for each in plan_class.operation.combinations if each["T"] == element)
    variants = row_variants(plan_class.operation, types)
    mode = RowMode.UNIT if "unaligned" in held else RowMode.WHOLE
    served = next(each for each in variants if each.mode is mode and each.serves(1 << 14, length, 512))
    assert variant_name(plan_class.operation, types, served) == held
    if "x5" in held or "x6" in held:  # few rows have the threads that their length wants
        served = next(each for each in variants if each.mode is mode and each.serves(100, length, 512))
        assert served.chunks == 4 and served.elements == 1 << (length - 1).bit_length()


@pytest.mark.parametrize("axis", [None, -1, (1, 2), (2, 1), (0, 1, 2)])
def test_trailing_axes_are_one_row_of_whole_shares(axis):
    """Any axes may be reduced; those at the end of a contiguous array are a row, however many they are."""
    x = np.empty((5, 6, 8), np.float32)
    axes = chosen(axis, x.shape, "axis", "input")
    sizes = {name: tuple(x.shape[each] for each in of) for name, of in (("kept", axes.kept), ("reduced", axes.reduced))}
    plan = skuda.SumPlan.select(skuda.SumDescriptor(**sizes, element="f32"), preference=BackendKind.REFERENCE)
    views = [view_over(np.arange(x.size).reshape(plan.shapes[0]), np.dtype(np.float32)), 0]
    views[1] = view_over(np.arange(max(1, int(np.prod(sizes["kept"])))).reshape(plan.shapes[1]), np.dtype(np.float32))
    geometry = plan._geometry(views)
    assert geometry.variant.mode is RowMode.WHOLE
    assert geometry.head[:2] == (np.prod(sizes["kept"], dtype=int), np.prod(sizes["reduced"]))


@pytest.mark.parametrize(
    ("name", "element", "length", "blocks", "block"),
    [
        ("Softmax", "f16", 32768, 0, 0),  # a block does better
        ("Softmax", "f16", 65536, 8, 128),
        ("Softmax", "f16", 65544, 8, 256),
        ("Softmax", "f16", 131072, 8, 256),
        ("Softmax", "f16", 131080, 8, 256),
        ("Softmax", "bf16", 151936, 16, 192),  # shared memory has room for two blocks of eight
        ("LogSoftmax", "bf16", 151936, 8, 256),
        ("Softmax", "f16", 262144, 16, 256),  # it holds exponentials in f32
        ("L2Normalize", "f16", 262144, 8, 256),
        ("RmsNorm", "f16", 131080, 16, 192),
        ("RmsNorm", "f16", 262144, 16, 256),
        ("Softmax", "f16", 262140, 16, 256),  # rows do not begin on boundaries
        ("Softmax", "bf16", 50257, 8, 128),
        ("RmsNorm", "f32", 17713, 8, 128),
        ("Softmax", "bf16", 17713, 0, 0),  # a block holds it
        ("Softmax", "f32", 65536, 8, 128),
        ("Softmax", "f32", 262144, 16, 256),
        ("Softmax", "f32", 524288, 0, 0),  # no cluster has room
        ("AddRmsNorm", "f16", 65536, 8, 128),
        ("AddRmsNorm", "f16", 20000, 0, 0),
        ("AddRmsNorm", "f32", 262144, 0, 0),  # a multiprocessor has room for one such block
        ("AddRmsNorm", "f64", 20000, 8, 128),
        ("AddRmsNorm", "f64", 65536, 16, 64),  # a multiprocessor has room for one block of eight
        ("AddRmsNorm", "f64", 16384, 0, 0),  # its sum has fewer accumulators than a cluster
        ("Sum", "f32", 262144, 0, 0),  # goes in parts
    ],
)
def test_long_rows_go_to_clusters_that_have_room(name, element, length, blocks, block):
    """A block of a cluster has an eighth or a sixteenth of the accumulators, once or for several segments at a time."""
    plan_class = getattr(skuda, f"{name}Plan")
    rows = 37  # not so few that stages would serve them
    full, row = (rows, length), (length,) if name != "Sum" else (rows,)
    dims = zip(plan_class.operation.dims, full, strict=True)
    call = Call(
        plan_class,
        tuple((dim.name, (extent,) if dim.many else extent) for dim, extent in dims),
        ((plan_class.operation.element_fields["T"], element),),
        tuple((o.name, lay_out(full if o.dims == plan_class.operation.space else row, "plain"))
              for o in plan_class.operation.operands),
    )
    geometry = call.geometry()
    assert isinstance(geometry.variant, ClusterVariant) == (blocks > 0)
    if blocks:
        assert (geometry.grid, geometry.block) == (rows * blocks, block)
        inputs = [o for o in plan_class.operation.inputs if o.dims == plan_class.operation.space]
        least = length * DTYPES[element].bits // 8 * len(inputs) // blocks
        most = length * max(4 if name == "Softmax" else 0, DTYPES[element].bits // 8 * len(inputs)) // blocks
        found = 3 * (32 * -(-length // SEGMENT) + 1) * STATE_BYTES  # of three reductions
        assert least <= geometry.shared <= min(227 << 10, most + 8192 * 8 * len(inputs) // blocks + found)
    apart = replace(call, given=Circumstances(apart=True)).geometry()
    assert not isinstance(apart.variant, ClusterVariant) and apart.shared == 0
