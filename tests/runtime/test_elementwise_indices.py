"""Do the kernels reach the right elements? The index arithmetic of the device, written again in Python.

The device's side is written a second time in Python integers (index_model.py and its siblings): it gets the slots of a
launch and yields, for every element that some thread computes, the position of each operand. NumPy's own indexing of an
array of addresses says what those must be. So for random shapes, strides, blocks and packed operands it is shown,
without a GPU, that every element is computed exactly once and from the right parameters.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from elementwise_problems import LAYOUTS, PLANS, UNLIKE, Problem, check, contiguous, random_problem, turned
from index_model import AXES, BLOCK, MARGIN, Slots, addresses, divide

from skuda.errors import Unsupported
from skuda.launch.compiler import headers
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import abi, elementwise, geometry, strided, table
from skuda.schedules.abi import is_parameter
from skuda.schedules.elementwise_variants import has_broadcast
from skuda.schedules.variant import BROADCAST, COLUMNS, COLUMNS_SMALL, COLUMNS_UNALIGNED, PITCHED, TILE


@pytest.mark.turns(18)
@pytest.mark.parametrize("plan_class", UNLIKE, ids=lambda plan: plan.operation.function)
def test_every_element_is_reached_once_and_with_its_parameters(plan_class, monkeypatch):
    """Also where threads take as much as they do in large arrays."""
    rng = random.Random(plan_class.__name__)
    served, few = [], elementwise.ElementwiseKernels.few_blocks
    for trial in range(160):
        monkeypatch.setattr(elementwise.ElementwiseKernels, "few_blocks", rng.choice([0, few]))
        monkeypatch.setattr(strided, "BUSY", rng.choice([1, 1 << 16]))
        contiguous = trial % 3 == 0
        aligned = rng.random() < (0.8 if contiguous else 0.5)
        layouts = ["contiguous"] if contiguous else LAYOUTS
        served.append(check(random_problem(plan_class, rng, layouts, aligned=aligned)))
    kinds = {re.match(r"[a-z]+", name)[0] for name in served}
    operation = plan_class.operation
    whole = any(operand.dims == operation.space for operand in operation.inputs)
    everywhere = all([has_broadcast(operation, types) for types in operation.combinations])
    some = ["vec"] * whole + ["broadcast"] * everywhere
    assert {"strided", *some} <= kinds  # without such an input all are parameters
    if whole:
        assert ("rows" in kinds) != operation.of_alternative  # which has few schedules
    assert ("columns" in kinds) == any(
        is_parameter(plan_class.operation, o) for o in plan_class.operation.in_kernels.inputs
    )


ACROSS = [
    plan
    for plan in UNLIKE
    if any(o.dims == plan.operation.space for o in plan.operation.inputs)
    and (len(plan.operation.space) > 1 or plan.operation.space[0].many)  # one axis runs along itself
]


@pytest.mark.turns(12)
@pytest.mark.parametrize("plan_class", ACROSS, ids=lambda plan: plan.operation.function)
def test_tiles_of_operands_that_run_along_different_axes(plan_class):
    rng, served = random.Random(plan_class.__name__ + " tile"), []
    while served.count("tile") < 6:
        problem = random_problem(plan_class, rng, LAYOUTS + ["permuted"], wide=True)
        size = max(array.size for array in problem.arrays.values())
        if size < 2_000 or (size < 20_000 and problem.geometry().variant is TILE):  # the others by the way
            served.append(check(problem))
        assert len(served) < 200


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    "name, sizes, elements, runs",
    [
        ("quantize_per_token", {"n": (70,), "d": 300}, {}, (300, 1)),
        ("quantize_per_channel", {"outer": (), "c": 70, "inner": (300,)}, {}, (300, 1)),
        ("quantize_per_channel", {"outer": (70,), "c": 300, "inner": ()}, {}, (70, 1)),  # shares run across
        ("quantize_per_channel", {"outer": (70,), "c": 300, "inner": ()}, {"output_element": "s4"}, (1, 70)),
        ("quantize_per_group", {"outer": (70,), "d": 192, "inner": (), "group_size": 32}, {}, (32, 1)),
        ("quantize_per_group", {"outer": (70,), "d": 200, "inner": (), "group_size": 48}, {}, (48, 1)),
        ("quantize_per_group", {"outer": (), "d": 200, "inner": (70,), "group_size": 50}, {}, (50, 1)),
        ("dequantize_per_group", {"outer": (70,), "d": 201, "inner": (), "group_size": 64}, {}, (64, 1)),
        (
            "dequantize_per_group",
            {"outer": (70,), "d": 201, "inner": (), "group_size": 64},
            {"input_element": "u4"},
            (64, 1),
        ),
        ("lerp_tensor", {"shape": (70, 300)}, {}, (300, 70)),
    ],
)
def test_transposed_inputs_take_tiles_whose_shares_have_the_same_parameters(name, sizes, elements, runs):
    problem = turned(name, sizes, elements)
    assert check(problem) == "tile"
    slots = Slots(problem.geometry().head[2:])
    _, _, along, across = (slots.divide()[0] for _ in range(4))
    assert (along, across) == runs


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("function", [f"{name}_per_channel" for name in ("quantize", "dequantize", "fake_quantize")])
@pytest.mark.parametrize("rows, width", [(1, 9), (3, 5), (37, 12), (21, 13), (9, 127), (4, 4)])
def test_tables_without_gaps_are_columns_wherever_their_operands_start_alike(function, rows, width, few, monkeypatch):
    """Whether or not their rows are of whole vectors: the columns are the same again after some rows."""
    kernels = elementwise.ElementwiseKernels
    monkeypatch.setattr(kernels, "few_blocks", kernels.few_blocks if few else 0)
    widens = function.startswith("dequantize")  # there is one variant
    for start in range(4):
        problem = contiguous(function, {"outer": (rows,), "c": width, "inner": ()})
        for operand, word in zip(problem.plan.operation.operands, problem.plan.words, strict=True):
            if operand.dims == problem.plan.operation.space:
                problem.pointers[operand.name] = (1 << 20) + start * DTYPES[word].storage.itemsize
        assert problem.geometry().variant is (COLUMNS_SMALL if few and not widens else COLUMNS)
        check(problem)
    one = next(name for name in problem.pointers)
    problem.pointers[one] = (1 << 20) + 2 * DTYPES[problem.plan.words[0]].storage.itemsize
    assert problem.geometry().variant is COLUMNS_UNALIGNED
    check(problem)


@pytest.mark.parametrize(
    "width, gap, variant",
    [(16, 0, "columns"), (16, 4, "columns"), (272, 1, "columns_unaligned"), (16, 1, "broadcast")],
)
@pytest.mark.parametrize("tables", [(), (3,), (3, 2)])
def test_rows_with_gaps_are_columns_where_each_is_of_whole_vectors(tables, width, gap, variant):
    """Or where they are long; short ones are found vector by vector."""
    problem = contiguous("quantize_per_group", {"outer": tables, "d": 15, "inner": (width,), "group_size": 5})
    shape, pitch = problem.arrays["input"].shape, width + gap
    problem.arrays["input"] = np.arange(np.prod(shape[:-1]) * pitch).reshape(*shape[:-1], pitch)[..., :width]
    assert check(problem).startswith(variant.partition("_")[0])
    name = table.entry(problem.plan.operation, problem.plan.types, problem.geometry().variant)
    assert name.startswith(f"{variant}<quantize_per_group_program<")


@pytest.mark.parametrize("width", [16, 272, 4095])
def test_long_rows_with_gaps_whose_vectors_are_no_bytes_are_found_one_by_one(width):
    problem = contiguous("affine_per_channel", {"outer": (3,), "c": width, "inner": ()})
    problem.arrays["input"] = np.arange(3 * (width + 1)).reshape(3, width + 1)[:, :width]
    assert problem.geometry().variant is BROADCAST
    check(problem)


def test_packed_tables_of_odd_width_have_gaps():
    """Each of their rows ends with a nibble that is no element; one row has no other after it."""
    for rows, variant in ((3, COLUMNS_UNALIGNED), (1, COLUMNS_SMALL)):
        plan_class = next(plan for plan in PLANS if plan.operation.function == "quantize_per_channel")
        descriptor = plan_class.descriptor_type(outer=(rows,), c=37, inner=(), output_element="s4")
        plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
        arrays = {
            operand.name: addresses(stored, random.Random(0), "contiguous")
            for operand, stored in zip(plan.operation.operands, plan.stored, strict=True)
            if operand.dims
        }
        problem = Problem(plan, arrays, {})
        assert problem.geometry().variant is variant
        check(problem)


@pytest.mark.parametrize("inner", [5, 8, 9])
def test_ragged_groups_along_an_outer_axis_whose_parameters_are_broadcast(inner):
    """Rows lie inside of a group then, and the groups do not divide the axis."""
    problem = contiguous("quantize_per_group", {"outer": (2,), "d": 4, "inner": (inner,), "group_size": 3})
    for name in ("scale", "zero_point"):
        kept = problem.arrays[name][..., :1]
        problem.arrays[name] = np.broadcast_to(
            np.arange(kept.size).reshape(kept.shape), problem.arrays[name].shape
        )
    check(problem)


@pytest.mark.parametrize("start", range(8))
def test_packed_inputs_of_outputs_at_odd_elements(start):
    """A thread's share starts where the output is aligned, and must still start at a byte of the input."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == "dequantize_per_token")
    descriptor = plan_class.descriptor_type(n=(3,), d=101, input_element="s4", output_element="f16")
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    arrays = {
        operand.name: addresses(stored, random.Random(0), "contiguous")
        for operand, stored in zip(plan.operation.operands, plan.stored, strict=True)
    }
    assert "rows" in check(Problem(plan, arrays, {"output": (1 << 20) + 2 * start}))


GROUPED = [
    # name, elements, rows, columns, group, elements between the rows of the input
    ("quantize_per_group", {"T": "f16", "Q": "s4"}, 3, 1055, 32, 0),
    ("quantize_per_group", {"T": "f16", "Q": "s4"}, 2, 1088, 64, 0),
    ("quantize_per_group", {"T": "f64", "Q": "u4"}, 4, 679, 34, 0),
    ("quantize_per_group", {"T": "bf16", "Q": "s8"}, 3, 1079, 50, 24),
    ("dequantize_per_group", {"T": "f16", "Q": "s4"}, 3, 1055, 64, 0),
    ("dequantize_per_group", {"T": "f64", "Q": "u4"}, 5, 359, 33, 0),
    ("dequantize_per_group", {"T": "f32", "Q": "s4"}, 4, 608, 48, 6),
    ("dequantize_per_group", {"T": "bf16", "Q": "u8"}, 3, 1091, 128, 0),
    ("quantize_per_token", {"T": "f16", "Q": "s4"}, 3, 1077, None, 0),
    ("fake_quantize_per_group", {"T": "f16"}, 3, 1055, 32, 0),
    ("fake_quantize_per_group", {"T": "f64"}, 4, 384, 64, 9),
    ("quantize_per_group_backward", {"T": "f32"}, 4, 553, 40, 8),
]


@pytest.mark.turns(12)
@pytest.mark.parametrize("name, types, rows, columns, group, more", GROUPED, ids=str)
def test_groups_that_begin_anywhere_in_a_vector(name, types, rows, columns, group, more, monkeypatch):
    """Ragged groups, lines that are padded or have gaps, and any alignment."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    operation = plan_class.operation
    fields = {operation.element_fields[letter]: word for letter, word in types.items()}
    sizes = {"outer": (rows,), "inner": (), "group_size": group} if group else {"n": (rows,)}
    descriptor = plan_class.descriptor_type(d=columns, **sizes, **fields)
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    monkeypatch.setattr(elementwise.ElementwiseKernels, "few_blocks", 0)
    served = []
    for start in (0, 1, 3, 8):
        arrays, pointers = {}, {}
        for index, operand in enumerate(operation.operands):
            if operand.dims:
                full = operand.dims == operation.space
                *outer, last = plan.stored[index]
                wide = last + (more if full and operand in operation.inputs else 0)
                arrays[operand.name] = np.arange(int(np.prod(outer)) * wide).reshape(*outer, wide)[..., :last]
                pointers[operand.name] = (1 << 20) + full * start * DTYPES[plan.words[index]].storage.itemsize
        served.append(check(Problem(plan, arrays, pointers)))
    assert sum(each.startswith("groups") for each in served) >= 3, served  # an aligned one may take vec


@pytest.mark.parametrize("name", ["lerp_tensor", "quantize_per_token", "quantize_per_group", "dequantize_per_channel"])
def test_lines_of_whole_vectors_with_gaps_are_one_row(name):
    sizes = {"shape": (5, 64), "n": (5,), "d": 64, "outer": (), "c": 5, "inner": (64,), "group_size": 32}
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    if name == "quantize_per_group":
        sizes |= {"outer": (5,), "inner": ()}
    names = {dim.name for dim in plan_class.operation.dims} | {a.name for a in plan_class.operation.attributes}
    problem = contiguous(name, {each: size for each, size in sizes.items() if each in names})
    operation = problem.plan.operation
    full = [o.name for o in operation.inputs if o.dims == operation.space]
    for each in full:
        problem.arrays[each] = np.arange(5 * 128).reshape(5, 128)[:, :64]
    assert problem.geometry().variant is PITCHED
    check(problem)


@pytest.mark.parametrize("gap", [0, 1, 27])
@pytest.mark.parametrize("name", ["lerp_tensor", "quantize_per_token", "neg"])
def test_lines_with_gaps_that_are_no_whole_vectors_are_found_vector_by_vector(name, gap):
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    sizes = {"shape": (5, 37), "n": (5,), "d": 37}
    problem = contiguous(name, {dim.name: sizes[dim.name] for dim in plan_class.operation.dims})
    full = [o.name for o in problem.plan.operation.inputs if o.dims == problem.plan.operation.space]
    for each in full:
        problem.arrays[each] = np.arange(5 * (37 + gap)).reshape(5, 37 + gap)[:, :37]
    assert check(problem).startswith("broadcast") == (gap > 0)


WIDE = [
    ("quantize_per_tensor", "f32", 515, "rows16"), ("quantize_per_tensor", "f32", 509, "broadcast16"),
    ("quantize_per_tensor", "f16", 515, "broadcast16"), ("gt", "f16", 515, "rows16"), ("neg", "f32", 515, "broadcast4"),
]  # fmt: skip


@pytest.mark.parametrize("name, word, width, variant", WIDE)
def test_long_rows_of_wide_vectors_are_taken_by_shares(name, word, width, variant):
    """A vector's elements are read one by one, so that a warp's lie as far apart as a vector is long."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    fields = {plan_class.operation.element_fields["T"]: word}
    plan = plan_class.select(plan_class.descriptor_type(shape=(3, width), **fields), preference=BackendKind.REFERENCE)
    outputs = {operand.name for operand in plan.operation.outputs}
    arrays = {
        operand.name: np.arange(3 * 2 * width).reshape(3, 2 * width)[:, :width]
        if operand.name not in outputs else np.arange(3 * width).reshape(3, width)
        for operand in plan.operation.operands if operand.dims
    }  # fmt: skip
    assert check(Problem(plan, arrays, {})) == variant


HEADS = [
    ("lerp_tensor", 64, False, "broadcast8"), ("lerp_tensor", 56, False, "rows8"), ("lerp_tensor", 64, True, "rows8"),
    ("quantize_per_tensor", 64, False, "rows16"), ("neg", 64, False, "broadcast8"),
]  # fmt: skip


@pytest.mark.parametrize("name, width, repeats, variant", HEADS)
def test_heads_of_whole_vectors_are_found_vector_by_vector(name, width, repeats, variant):
    """Where rows are not short, nothing repeats and vectors have eight elements; else a thread takes shares of rows."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    shape = (2, 3, 5, width)
    fields = {plan_class.operation.element_fields["T"]: "f16"}
    plan = plan_class.select(plan_class.descriptor_type(shape=shape, **fields), preference=BackendKind.REFERENCE)
    names = [operand.name for operand in plan.operation.operands if operand.dims]
    arrays = dict.fromkeys(names, np.arange(np.prod(shape)).reshape(shape))
    arrays[names[0]] = np.arange(np.prod(shape)).reshape(2, 5, 3, width).transpose(0, 2, 1, 3)
    if repeats:
        arrays[names[1]] = np.broadcast_to(np.arange(2 * 3 * width).reshape(2, 3, 1, width), shape)
    assert check(Problem(plan, arrays, {})) == variant


def test_more_axes_than_a_kernel_has_are_refused():
    plan_class = next(plan for plan in PLANS if plan.operation.function == "lerp_tensor")
    shape = (2,) * 9
    plan = plan_class.select(plan_class.descriptor_type(shape=shape), preference=BackendKind.REFERENCE)
    padded = np.arange(4**9).reshape((4,) * 9)[(slice(0, 4, 2),) * 9]
    names = [operand.name for operand in plan.operation.operands if operand.dims]
    with pytest.raises(Unsupported, match="9 axes after merging, at most 8 are served"):
        Problem(plan, dict.fromkeys(names, padded), {}).geometry()
    merging = np.arange(2**10).reshape(2**9, 2)[:, 0].reshape(shape)
    assert check(Problem(plan, dict.fromkeys(names, merging), {})) == "strided"


def test_division_by_multiplication_is_exact():
    rng = random.Random(20)
    divisors = [1, 2, 3, 5, 7, 10, 641, 2**31 - 1, 2**32 + 1, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1]
    divisors += [2**power + offset for power in range(2, 62) for offset in (-1, 0, 1)]
    divisors += [rng.randrange(1, 1 << rng.randint(1, 63)) for _ in range(2_000)]
    for divisor in divisors:
        slots = geometry.divide_slots(divisor)
        assert slots[0] == divisor and 0 <= slots[3] < 64
        numbers = []
        for most in ((1 << 31) - 1, (1 << 63) - 1):  # the narrow and the wide way
            numbers += [0, 1, divisor - 1, divisor, most, most - 1, most + 1]
            multiples = [rng.randrange(most // divisor + 1) * divisor for _ in range(10)] + [
                most // divisor * divisor
            ]
            numbers += [multiple + offset for multiple in multiples for offset in (-1, 0, divisor - 1)]
            numbers += [rng.randrange(most) for _ in range(10)]
        for n in numbers:
            if 0 <= n < 1 << 63:
                assert divide(slots, n) == n // divisor, (n, divisor)


def test_the_sources_and_the_host_agree_on_the_index_space():
    declared = re.search(r"constexpr int AXES = (\d+);", headers()["index_space.cuh"])
    assert (int(declared[1]), AXES, BLOCK) == (AXES, abi.AXES, geometry.BLOCK)
    declared = re.search(r"constexpr int MARGIN = (\d+);", headers()["flat.cuh"])
    assert int(declared[1]) == MARGIN == geometry.MARGIN


@pytest.mark.parametrize("width", [13, 33, 251])
def test_columns_of_tables_of_one_row_are_found_vector_by_vector(width):
    """Else each of their shares would be prepared for one row."""
    problem = contiguous("add_outer", {"n": (40,), "r": 1, "c": width})
    assert problem.geometry().variant is BROADCAST
    check(problem)
