"""Elementwise calls at random shapes, strides, blocks and packed operands; whether launches reach every element."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import product

import numpy as np
from index_model import AXES, BLOCK, BROADCAST_AXES, Array, addresses, view_over
from index_model_planes import broadcast_positions, strided_positions, tile_positions
from index_model_shares import rows_positions
from index_model_vectors import columns_positions, groups_positions, vec_positions

from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import table
from skuda.schedules.geometry import Geometry
from skuda.schedules.variant import (
    BROADCAST,
    COLUMNS,
    COLUMNS_SMALL,
    COLUMNS_UNALIGNED,
    GROUPS,
    ROWS,
    SHIFTED,
    SHIFTED_SMALL,
    STRIDED,
    TILE,
)

PLANS = [
    plan
    for name in registry.catalogs()[0].modules
    for plan in registry.catalogs()[0].plans(name)
    if not plan.operation.reduces  # test_row_indices.py, test_split_indices.py
]


def structure(plan_class) -> tuple:
    """All that positions follow from: the dimensions of operands, and how wide their elements are."""
    operation = plan_class.operation
    operands = tuple((operand.dims, operand in operation.outputs) for operand in operation.operands)
    widths = {
        tuple(operation.bits(operand, types) for operand in operation.operands)
        for types in operation.combinations
    }
    return operands, frozenset(widths), operation.of_alternative


UNLIKE = [*{structure(plan): plan for plan in PLANS}.values()]  # one of each structure


def expected_positions(operation, types, sizes, arrays: dict[str, np.ndarray]) -> list[tuple]:
    """For every element of the index space, in C order, the position of each operand, from NumPy's indexing."""
    space = operation.shape_of(operation.outputs[0], sizes)
    starts, axes = {}, 0
    for dim in operation.space:
        starts[dim.name] = axes
        axes += len(sizes[dim.name]) if dim.many else 1
    found = []
    for index in product(*map(range, space)):
        positions = []
        for operand in operation.operands:
            if operand.name not in arrays:
                continue
            own: list[int] = []
            for dim in operand.dims:
                count = len(sizes[dim.name]) if dim.many else 1
                part = index[starts[dim.name] : starts[dim.name] + count]
                own += [each // sizes[dim.block] for each in part] if dim.block else part
            array = arrays[operand.name]
            zero = array[(0,) * array.ndim]
            if DTYPES[operation.word(operand, types)].packed:
                nibble = own[-1] % 2 if own else 0
                byte = array[(*own[:-1], own[-1] // 2)] if own else array[()]
                positions.append(2 * int(byte - zero) + nibble)
            else:
                positions.append(int(array[tuple(own)] - zero))
        found.append(tuple(positions))
    return found


@dataclass(frozen=True)
class Problem:
    """Sizes, types and arrays of one call; `pointers` are where the arrays start."""

    plan: object
    arrays: dict[str, np.ndarray]
    pointers: dict[str, int]

    def geometry(self) -> Geometry:
        plan = self.plan
        views = [
            view_over(
                self.arrays[operand.name], DTYPES[word].storage, self.pointers.get(operand.name, 1 << 20)
            )
            if operand.name in self.arrays
            else 0
            for operand, word in zip(plan.operation.operands, plan.words, strict=True)
        ]
        return plan._geometry(views)


LAYOUTS = ["contiguous", "contiguous", "permuted", "stepped", "padded", "broadcast"]


def random_problem(
    plan_class, rng: random.Random, layouts=LAYOUTS, wide: bool = False, aligned: bool | None = None
) -> Problem:
    """`wide`: with axes that are worth a tile, and two of them wherever the operation can have them."""
    operation = plan_class.operation
    types = rng.choice(list(operation.combinations))
    sizes = {}
    largest = rng.choice([3, 6, 40])
    for dim in operation.dims:
        if wide and dim.many:
            extents = [rng.choice([2, 8, rng.randint(8, 70)]) for _ in range(rng.choice([0, 1, 1, 2]))]
            sizes[dim.name] = tuple(extents if operation.space != (dim,) else [*extents, rng.randint(8, 70)])
        elif wide:
            sizes[dim.name] = rng.choice([8, 33, rng.randint(8, 150)])
        elif dim.many:
            sizes[dim.name] = tuple(rng.randint(1, min(largest, 5)) for _ in range(rng.randint(0, 2)))
        else:
            sizes[dim.name] = rng.choice([1, 2, rng.randint(1, largest)])
    for attribute in operation.attributes:
        if attribute.type == "size":
            sizes[attribute.name] = rng.choice([1, 2, 3, 4, 8, 9, 10, 16, 50])
    for dim in (dim for operand in operation.operands for dim in operand.dims if dim.block):
        if layouts == ["contiguous"] and rng.random() < 0.5:  # blocks that divide the dimension
            sizes[dim.name] = sizes[dim.block] * rng.randint(1, 4)
    elements = {field: types[letter] for letter, field in operation.element_fields.items()}
    plan = plan_class.select(
        plan_class.descriptor_type(**sizes, **elements), preference=BackendKind.REFERENCE
    )
    arrays, pointers = {}, {}
    if aligned is None:
        aligned = rng.random() < 0.5
    for index, operand in enumerate(operation.operands):
        if operand.scalar and operand.dims != operation.space:
            continue
        choices = [how for how in layouts if how != "broadcast" or operand in operation.inputs]
        arrays[operand.name] = addresses(plan.stored[index], rng, rng.choice(choices))
        itemsize = DTYPES[plan.words[index]].storage.itemsize
        pointers[operand.name] = (1 << 20) + (0 if aligned else rng.randint(0, 20) * itemsize)
    return Problem(plan, arrays, pointers)


def check(problem: Problem) -> str:
    """Every element is computed once, from the right positions; returns the name of what served it."""
    plan = problem.plan
    operation, types, sizes = plan.operation, plan.types, plan.sizes
    geometry = problem.geometry()
    variant = geometry.variant
    expected = expected_positions(operation, types, sizes, problem.arrays)
    names = [operand.name for operand in operation.operands if operand.name in problem.arrays]
    arrays = []
    for index, operand in enumerate(operation.operands):
        if operand.name in problem.arrays:
            slots = geometry.strides[operand.name]
            parameter = operand.dims != operation.space
            by_row = variant in (ROWS, COLUMNS_UNALIGNED)
            in_table = variant in (COLUMNS, COLUMNS_SMALL)
            tiled = variant is TILE
            anywhere = variant in (STRIDED, BROADCAST)
            steps = parameter and not anywhere and not tiled and not in_table
            spans = by_row and not parameter and operand in operation.inputs
            axes = 0 if variant.kernel in ("vec", "groups") or in_table else AXES
            if variant is BROADCAST:
                axes = 0 if operand in operation.outputs else BROADCAST_AXES
            flat = variant is BROADCAST and operand not in operation.outputs
            in_lines = flat or (variant.kernel == "vec" and not parameter) or (
                variant is GROUPS and not parameter and operand in operation.inputs
            )
            of_row = in_table and operand in operation.in_kernels.of_rows
            assert len(slots) == axes + 3 * tiled + 2 * (by_row + in_table + 3 * of_row) + steps + 2 * spans + in_lines
            arrays.append(
                Array(
                    operand.name,
                    DTYPES[plan.words[index]].bits,
                    problem.pointers.get(operand.name, 1 << 20),
                    slots[:axes],
                    slots[-1] if steps else None,
                    slots[axes] if by_row or in_table or in_lines else 0,
                    slots[axes + 1] if by_row or in_table else 0,
                    parameter,
                    slots[axes:] if tiled else (0, 0, 0),
                    any(dim.block for dim in operand.dims),
                    operand in operation.outputs,
                    frozenset(positions[names.index(operand.name)] for positions in expected),
                    slots[2] if of_row else None,
                    slots[3] if of_row else 0,
                    slots[4:] if of_row else (0,),
                    slots[-2:] if spans else None,
                )
            )
    # The numbers after the program: `vec<lerp_program<f16>, 16, 2, ALIGNED>`.
    numbers = [int(word) for word in re.findall(r"\b\d+\b", table.entry(operation, types, variant))]
    blocks = geometry.grid
    units, launched = geometry.head[0], blocks * geometry.block
    if variant is BROADCAST:
        runs = [broadcast_positions(geometry, arrays, *numbers)]
        units = -(-(geometry.head[0] + numbers[0] - 1) // numbers[0])
    elif variant is STRIDED:
        runs = [strided_positions(geometry, arrays, *numbers)]
    elif variant is TILE:
        runs = [tile_positions(geometry, arrays, *numbers, fast) for fast in (True, False)]
    elif variant in (COLUMNS, COLUMNS_SMALL):
        runs = [columns_positions(geometry, arrays, *numbers)]
        blocks = geometry.head[1]
        launched = blocks * BLOCK
    elif variant in (ROWS, COLUMNS_UNALIGNED):
        runs = [rows_positions(geometry, arrays, *numbers)]
    else:
        positions_of = groups_positions if variant is GROUPS else vec_positions
        runs = [positions_of(geometry, arrays, *numbers, fast) for fast in (True, False)]
        launched *= numbers[1]
        leads = variant in (SHIFTED, SHIFTED_SMALL, GROUPS)  # before the first element
        units = -(-(geometry.head[0] + (numbers[0] - 1) * leads) // numbers[0])
    expected.sort()
    for run in runs:
        found = sorted(tuple(positions[name] for name in names) for positions in run)
        where = f"{operation.function} {types} {sizes} {table.variant_name(operation, types, variant)}"
        assert found == expected, f"{where}\n{problem.pointers}\n{names}\n{found[:40]}\n{expected[:40]}"
    if variant is not TILE:  # there a block has one tile
        per_block = launched // blocks
        assert launched - per_block < units <= launched
    return table.variant_name(operation, types, variant)


def turned(name: str, sizes: dict, elements: dict) -> Problem:
    """Inputs in the output's shape are the transposes of contiguous arrays; the rest is contiguous."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    plan = plan_class.select(
        plan_class.descriptor_type(**sizes, **elements), preference=BackendKind.REFERENCE
    )
    arrays = {}
    for operand, stored in zip(plan.operation.operands, plan.stored, strict=True):
        if operand.dims == plan.operation.space and operand in plan.operation.inputs:
            arrays[operand.name] = np.arange(np.prod(stored)).reshape(stored[::-1]).T
        elif operand.dims:
            arrays[operand.name] = np.arange(np.prod(stored)).reshape(stored)
    return Problem(plan, arrays, {})


def contiguous(name: str, sizes: dict) -> Problem:
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
    arrays = {
        operand.name: addresses(stored, random.Random(0), "contiguous")
        for operand, stored in zip(plan.operation.operands, plan.stored, strict=True)
        if operand.dims
    }
    return Problem(plan, arrays, {})
