"""Do the kernels reach the right elements? The index arithmetic of the device, replayed.

The device's side is written a second time in Python integers: walk.cuh and templates/map.cu.jinja: it gets
the slots of a launch and yields, for every element that some thread computes, the place of each operand.
NumPy's own indexing of an array of addresses says what those must be. So for random shapes, strides, blocks
and packed operands it is shown, without a GPU, that every element is computed exactly once and from the
right parameters.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from skuda import dispatch, mapping, schedules
from skuda.compile import headers
from skuda.dtypes import DTYPES
from skuda.errors import Unsupported
from skuda.sku import BackendKind
from skuda.tensor import CPU, View

AXES, BLOCK, MARGIN = 8, 128, 32
PLANS = [
    plan
    for name in dispatch.catalogs()[0].modules
    for plan in dispatch.catalogs()[0].plans(name)
    if not (plan.operation.over or plan.operation.stages)  # test_row_mapping.py, test_reduce_mapping.py
]


def structure(plan_class) -> tuple:
    """All that places follow from: the dimensions of operands, and how wide their elements are."""
    operation = plan_class.operation
    operands = tuple((operand.dims, operand in operation.outputs) for operand in operation.operands)
    widths = {
        tuple(DTYPES[operation.word(operand, types)].bits for operand in operation.operands)
        for types in operation.combinations
    }
    return operands, frozenset(widths), operation.of_second


UNLIKE = [*{structure(plan): plan for plan in PLANS}.values()]  # one of each structure


# ---- the device's side ----


def divide(slots, n: int) -> int:
    """walk.cuh's Divide: the upper half of a product, 64 x 64 or 32 x 32 bits, shifted."""
    _, wide, narrow, shift = slots
    assert 0 <= wide < 1 << 64 and 0 <= narrow < 1 << 32 and 0 <= n < 1 << 63
    if n >> 31:
        return (wide * (n << 1) >> 64) >> shift
    return (narrow * (n << 1) >> 32) >> (shift & 31)


class Slots:
    """Reads a kernel's slots in the order in which its struct declares them."""

    def __init__(self, slots):
        self.rest = list(slots)

    def one(self) -> int:
        return self.rest.pop(0)

    def divide(self) -> tuple[int, ...]:
        return tuple(self.one() for _ in range(4))

    def outer(self) -> tuple[int, tuple]:
        return self.one(), tuple(self.divide() for _ in range(AXES))


def outer_offset(outer, row: int, strides) -> int:
    """Outer::offset."""
    first_axis, extent = outer
    total = 0
    for axis in range(AXES - 1, first_axis - 1, -1):
        above = divide(extent[axis], row)
        total += (row - above * extent[axis][0]) * strides[axis]
        row = above
    assert row == 0, "the outer axes do not cover the rows"
    return total


@dataclass(frozen=True)
class Array:
    """An operand as the device sees it, in elements (of a packed one, nibbles)."""

    name: str
    bits: int
    pointer: int
    strides: tuple[int, ...]
    step: int | None  # of a parameter along a row; None for operands in the output's shape
    row: int  # bytes from one row of a table to the next (of columns: from a table); of vec, elements of a line's gap
    apart: int  # bytes from one share of a thread to its next; of columns, from one row or column to the next
    shares: bool  # a parameter that several elements share
    plane: tuple[int, int, int]  # steps along and across the tiles, and whether lines run across
    blocked: bool
    output: bool
    valid: frozenset[int]  # where its elements are
    span: tuple[int, int] | None  # Span, of inputs in the output's shape that are read in words

    def read(self, offset: int) -> int:
        """A load of one element, which must exist."""
        assert offset in self.valid, f"{self.name}: element {offset} is read, which it does not have"
        return offset

    @property
    def packed(self) -> bool:
        return self.bits < 8

    @property
    def unit(self) -> int:
        """Bytes of a stored unit: an element, or a pair of packed ones."""
        return max(1, self.bits // 8)

    def byte(self, offset: int) -> int:
        """Address of an element."""
        return self.pointer + offset * self.bits // 8

    def place(self, offset: int, element: int) -> int:
        """An element of a row that starts at an offset; a packed row starts at a byte (lanes.cuh's `at`)."""
        return (offset >> 1 << 1 if self.packed else offset) + element

    def lane_places(self, offset: int, first: int, lanes: int, aligned: bool) -> list[int]:
        """Where `load` and `store` find the lanes of a whole vector."""
        if aligned:
            width = min(16, lanes * self.bits // 8)
            address = self.pointer + (offset * self.bits >> 3) + (first * self.bits >> 3)
            assert address % width == 0, f"{self.name}: a {width}-byte access of address {address:#x}"
        if not self.packed:
            return [offset + first + lane for lane in range(lanes)]
        byte = (offset >> 1) + (first >> 1)
        return [2 * (byte + lane // 2) + lane % 2 for lane in range(lanes)]


def load(array: Array, first: int, offset: int, count: int, lanes: int) -> list[int]:
    """shift.cuh's Around: where the elements come from that a share starting at an offset gets, when its thread's
    first share starts at `first`."""
    size = lanes * array.bits // 8
    width = min(size, 16)
    if width >= 4 and width != array.unit:
        begin, start = array.byte(first), array.byte(offset)
        if 0 <= begin - begin % width - array.pointer - array.span[0] < array.span[1]:
            words = start - start % width, start - start % width + size + width * (start % width != 0)
            assert array.byte(min(array.valid)) <= words[0], f"{array.name}: a word before it is read"
            assert words[1] <= array.byte(max(array.valid)) + array.unit, f"{array.name}: a word behind it is read"
            return [offset + lane for lane in range(count)]
    return [array.read(offset + lane) for lane in range(count)]


class Joint:
    """shift.cuh's Joint: which bytes of an output the lanes of a warp write, and whose elements these hold."""

    def __init__(self, array: Array, lanes: int):
        self.array, self.size = array, lanes * array.bits // 8
        self.before = None
        self.found: dict[object, int] = {}  # by element: where it was stored

    def store(self, warp: list[tuple]) -> None:
        """For each lane (offset, elements, follows, followed)."""
        unit, per = self.array.unit, 2 if self.array.packed else 1
        written = []  # (address, share that the bytes come from, byte of that share)
        shares = [[key for key in elements] for _, elements, _, _ in warp]
        for lane, (offset, elements, follows, followed) in enumerate(warp):
            start, size = self.array.byte(offset), -(-len(elements) // per) * unit
            if self.size < 4 or self.size == unit:
                written += [(start + byte, shares[lane], byte) for byte in range(size)]
                continue
            skip = start % self.size
            left = shares[lane - 1] if lane else self.before
            begin, end = 0 if follows else skip, min(skip + size, self.size)
            more = 0 if followed else skip + size - self.size
            for byte in range(begin, end if size else 0):
                own = byte >= skip
                source = byte - skip if own else byte - skip + self.size
                written.append((start - skip + byte, shares[lane] if own else left, source))
            after = start - skip + self.size
            written += [(after + byte, shares[lane], self.size - skip + byte) for byte in range(more)]
        self.before = shares[-1]
        for address, share, byte in written:
            distance = address - self.array.pointer
            assert distance % unit == byte % unit, f"{self.array.name}: an element is torn apart"
            if byte % unit == 0:
                for nibble in range(per):
                    element = byte // unit * per + nibble
                    if element < len(share):
                        assert share[element] not in self.found, f"{self.array.name}: stored twice"
                        self.found[share[element]] = distance // unit * per + nibble


def rows_places(geometry, arrays: list[Array], lanes: int, groups: int):
    """For each element that a launch of rows or unaligned columns stores: {operand: offset}."""
    columns = geometry.variant is schedules.COLUMNS_UNALIGNED
    slots = Slots(geometry.head)
    units, length, chunks, rows, depth, below = (slots.one() for _ in range(6))
    across, slabs, run, whole, period = (slots.divide() for _ in range(5))
    outer = slots.outer()
    assert not slots.rest and (below or not columns) and (depth <= groups or depth % groups == 0 or below)
    assert not whole[0] or whole[0] * lanes == run[0] or run[0] >= length
    full = [array for array in arrays if array.step is None]
    parameters = [array for array in arrays if array.step is not None]
    joints = {array.name: Joint(array, lanes) for array in full if array.output}
    inputs: dict[object, dict[str, int]] = {}

    def offset(array: Array, table: int, row: int) -> int:
        far = outer_offset(outer, table, array.strides) if outer[0] < AXES else 0
        return far + row * array.row * 8 // array.bits

    for thread in range(0, geometry.grid * BLOCK, 32):
        for group in range(depth):
            warp: dict[str, list] = {name: [] for name in joints}
            for lane in range(32):
                unit = thread + lane
                slab = divide(across, unit)
                over = unit - slab * across[0]
                table = divide(slabs, slab) if outer[0] < AXES else 0
                row = (slab - table * slabs[0]) * (depth if below else 1)
                first_row, first_chunk = row, over if below else over // 32 * 32 * depth + over % 32
                row += group if below else 0
                chunk = first_chunk + (0 if below else 32 * group)
                for each in arrays:
                    moved = (row - first_row) * each.row
                    if each.step is None:
                        moved += (chunk - first_chunk) * lanes * each.bits // 8
                    assert moved == group * each.apart
                exists = unit < units and row < rows and chunk < chunks
                first = chunk * lanes
                count = min(lanes, length - first) if exists else 0
                keys = [(table, row, first + each) for each in range(count)]
                offsets = {each.name: offset(each, table, row) for each in full} if exists else {}
                places: dict[str, list[int]] = {}
                for each in full:
                    if count and not each.output:
                        begin = each.place(offset(each, table, first_row), first_chunk * lanes)
                        at = each.place(offsets[each.name], first)
                        places[each.name] = load(each, begin, at, count, lanes)
                for index, key in enumerate(keys):
                    if columns:
                        piece = first + index
                    else:
                        piece = divide(whole, chunk) if whole[0] else divide(run, first + index)
                        piece -= divide(period, piece) * period[0] if period[0] else 0
                    inputs[key] = {
                        each.name: each.read(offset(each, table, row) + piece * each.step)
                        for each in parameters
                    } | {name: found[index] for name, found in places.items()}
                follows = chunk > 0 and (lane > 0 or (group > 0 and not below))
                followed = chunk + 1 < chunks and (lane < 31 or (group + 1 < depth and not below))
                for name, joint in joints.items():
                    at = joint.array.place(offsets.get(name, 0), first)
                    warp[name].append((at, keys, follows, followed))
            for name, joint in joints.items():
                joint.store(warp[name])
    for key, places in inputs.items():
        yield places | {name: joint.found[key] for name, joint in joints.items()}


def columns_places(geometry, arrays: list[Array], lanes: int, depth: int):
    """For each element that a launch of columns stores: {operand: offset}."""
    slots = Slots(geometry.head)
    units, blocks, rows, last = (slots.one() for _ in range(4))
    chunks, slabs, width = (slots.divide() for _ in range(3))
    lead, behind, length = (slots.one() for _ in range(3))
    assert not slots.rest and lanes <= width[0] and chunks[0] * lanes < 1 << 31 and length < 1 << 31

    def steps(array: Array, count: int, bytes_apart: int) -> int:
        """`stepped`, in elements (of a packed operand, nibbles)."""
        assert -(1 << 31) <= count < 1 << 31 and -(1 << 31) <= bytes_apart < 1 << 31
        bits = count * bytes_apart * 8
        assert bits % max(8, array.bits) == 0
        return bits // array.bits

    def vector(array: Array, table: int, row: int, first: int) -> list[int]:
        return array.lane_places(steps(array, table, array.row) + steps(array, row, array.apart), first, lanes, True)

    for thread in range(blocks * BLOCK):
        unit = min(thread, units - 1)
        slab = divide(chunks, unit)
        table = divide(slabs, slab)
        chunk, row = unit - slab * chunks[0], (slab - table * slabs[0]) * depth
        near = rows - (chunk >= last)
        end, first = near if thread == unit else 0, chunk * lanes + lead
        assert first + lanes < 1 << 31 and near > 0
        for each in arrays:
            if not each.shares and not each.output:
                for at in {min(row + below, near - 1) for below in range(depth)}:
                    for place in vector(each, table, at, first):
                        each.read(place)
        column = first - divide(width, first) * width[0]
        columns = [column + lane - (0 if column + lane < width[0] else width[0]) for lane in range(lanes)]
        shared = {
            each.name: [each.read(steps(each, table, each.row) + steps(each, at, each.apart)) for at in columns]
            for each in arrays
            if each.shares
        }
        for at in range(row, min(row + depth, end)):
            places = {each.name: vector(each, table, at, first) for each in arrays if not each.shares} | shared
            for lane in range(lanes):
                yield {name: found[lane] for name, found in places.items()}

    per = 2 if any(array.packed for array in arrays) else 1
    for thread in range(BLOCK * (geometry.grid - blocks)):
        for nibble in range(per):
            number = thread * per
            at = (number if number < lead else number - lead + behind) + nibble
            if at >= length:
                break
            column = at - divide(width, at) * width[0]
            yield {each.name: each.read(steps(each, column, each.apart)) if each.shares else at for each in arrays}


def vec_places(geometry, arrays: list[Array], lanes: int, groups: int, fast: bool):
    """For each element that a vec launch stores: {operand: offset}. `fast`: whether formulas have fast forms.

    Along the row there are whole vectors, which are loaded at once even by threads without work, and for each
    element the entries of its run; a parameter's step is in bytes, the gap after a line in elements.
    """
    shifted, pitched = (geometry.variant is each for each in (schedules.SHIFTED, schedules.PITCHED))
    slots = Slots(geometry.head)
    length, run, period, line = slots.one(), slots.divide(), slots.divide(), slots.divide()
    assert not slots.rest
    full = [array for array in arrays if array.step is None]
    first_output = next(array for array in full if array.output)
    even = 2 if any(array.packed for array in arrays) else 1
    lead = first_output.pointer * 8 // first_output.bits & (lanes - even) if shifted else 0
    low = MARGIN if shifted else 0
    last = length - lanes - MARGIN if shifted else length // lanes * lanes - lanes
    assert low <= last and (not pitched or line[0] % lanes == 0)

    def run_at(element: int) -> tuple[int, dict[str, int]]:
        """Where the run ends, and the parameters that are read for it."""
        piece = divide(run, element)
        index = piece if period[0] == 0 else piece - divide(period, piece) * period[0]
        shared = {}
        for each in arrays:
            if each.step is not None:
                size = each.bits // 8
                assert each.step % size == 0 and -(1 << 31) <= each.step < 1 << 31
                shared[each.name] = each.read(index * each.step // size)
        end = (piece + 1) * run[0]
        assert element < end < 1 << 31
        return end, shared

    def place(each: Array, element: int, first: int) -> int:
        """An element of the vector that starts at `first`."""
        return each.place(divide(line, first) * each.row if pitched else 0, element)

    def vector(each: Array, first: int) -> list[int]:
        """The lanes of a vector that is loaded or stored at once."""
        found = [place(each, first + lane, first) for lane in range(lanes)]
        if not shifted:
            assert each.lane_places(0, found[0], lanes, True) == found
        elif not each.output:  # the words around it
            width = min(16, lanes * each.bits // 8)
            begin = each.byte(found[0])
            begin, end = begin - begin % width, begin - begin % width + lanes * each.bits // 8 + width
            if width >= 4:
                assert each.byte(min(each.valid)) <= begin and end <= each.byte(max(each.valid)) + each.unit
        return found

    for thread in range(geometry.grid * BLOCK):
        for group in range(groups):
            first = ((thread // BLOCK * groups + group) * BLOCK + thread % BLOCK) * lanes - lead
            assert first < 1 << 31
            at = max(min(first, last), low)
            end, shared = run_at(at)
            whole = {each.name: vector(each, at) for each in full}
            for each in full:
                assert each.output or each.valid.issuperset(whole[each.name])
            if fast and low <= first <= last and first + lanes <= end:
                for lane in range(lanes):
                    yield {name: places[lane] for name, places in whole.items()} | shared
                continue
            for element in range(max(first, 0), min(first + lanes, length)):
                yield {each.name: place(each, element, max(first, 0)) for each in full} | run_at(element)[1]


def groups_places(geometry, arrays: list[Array], lanes: int, turns: int, fast: bool):
    """For each element that a groups launch stores: {operand: offset}. `fast`: whether formulas have fast forms."""
    slots = Slots(geometry.head)
    length, line, run = slots.one(), slots.divide(), slots.divide()
    runs, elements = slots.one(), slots.one()
    assert not slots.rest
    inputs = [array for array in arrays if array.step is None and not array.output]
    outputs = [array for array in arrays if array.output]
    even = 2 if outputs[0].packed else 1
    lead = outputs[0].pointer * 8 // outputs[0].bits & (lanes - even)
    stretch = 32 * lanes * turns
    assert stretch + 2 * MARGIN <= length and stretch <= line[0]

    def run_at(element: int) -> tuple[int, int, int]:
        """Its line, the place of its parameters, where they end."""
        above = divide(line, element)
        piece = divide(run, element - above * line[0])
        assert (piece + 1) * run[0] < 1 << 31
        return above, above * runs + piece, above * line[0] + min((piece + 1) * run[0], line[0])

    def words(each: Array, first: int) -> list[int]:
        """Words::load: where the lanes come from that begin at an element."""
        size = max(4, lanes * each.bits // 8)
        width, begin = min(16, size), each.byte(first)
        skip = begin % width * 8 + (first % 2 * 4 if each.packed else 0)
        reached = begin - begin % width, begin - begin % width + size + width * (skip > 0)
        assert each.byte(min(each.valid)) <= reached[0], f"{each.name}: a word before it is read"
        assert reached[1] <= each.byte(max(each.valid)) + each.unit, f"{each.name}: a word behind it is read"
        return [first + lane for lane in range(lanes)]

    for warp in range(geometry.grid * BLOCK // 32):
        start = warp * stretch - lead
        if start >= length:
            continue
        assert start + stretch < 1 << 31
        load = max(min(start, length - stretch - MARGIN), MARGIN)
        number = divide(line, load)
        first_run = run_at(max(start, 0))[1]
        count = run_at(min(start + stretch, length) - 1)[1] - first_run + 1
        assert 0 < count <= turns * lanes + 4
        prepared = []
        for index in range(first_run, first_run + count):
            found = {}
            for each in arrays:
                if each.step is not None:
                    size = each.bits // 8
                    assert each.step % size == 0 and -(1 << 31) <= each.step < 1 << 31
                    found[each.name] = each.read(index * each.step // size)
            prepared.append(found)

        def whole(first: int, loaded: dict, here: dict, other: dict, split: int):
            """The lanes of a vector, which has the parameters of another run from `split` on."""
            assert outputs[0].lane_places(0, first, lanes, True)
            for lane in range(lanes):
                if elements == line[0] or (first + lane + 1) % line[0]:  # a nibble that pads becomes 0
                    places = {name: found[lane] for name, found in loaded.items()}
                    places |= {each.name: first + lane for each in outputs}
                    yield places | (here if lane < split else other)

        for vector in range(32 * turns):
            place, first = load + vector * lanes, start + vector * lanes
            within = load - number * line[0] + vector * lanes
            beyond = within >= line[0]
            loaded = {each.name: words(each, place + (number + beyond) * each.row) for each in inputs}
            if fast and load == start:
                within -= beyond * line[0]
                piece = divide(run, within)
                split = min((piece + 1) * run[0], line[0]) - within
                slot = piece - first_run + (number + beyond) * runs
                assert 0 <= slot <= slot + (split < lanes) < count
                if within + lanes <= line[0] or not any(each.row for each in inputs):
                    yield from whole(first, loaded, prepared[slot], prepared[slot + (split < lanes)], split)
                    continue
            limit = min(first + lanes, length)
            if fast and first >= MARGIN and first + lanes + MARGIN <= length:
                above, index, end = run_at(first)
                stop = (above + 1) * line[0] - first
                for each in inputs:  # across
                    here = words(each, first + above * each.row)
                    further = words(each, first + (above + 1) * each.row) if stop < lanes else []
                    loaded[each.name] = here[:stop] + further[stop:]
                here = prepared[index - first_run]
                other = prepared[index - first_run + (end - first < lanes)]
                yield from whole(first, loaded, here, other, end - first)
                continue
            for element in range(max(first, 0), limit):
                above, index, _ = run_at(element)
                if above * line[0] + elements > element:
                    yield (
                        {each.name: each.place(0, element + above * each.row) for each in inputs}
                        | {each.name: element for each in outputs}
                        | prepared[index - first_run]
                    )


def line_units(step: int, lines: int, length: int, most: int, size: int, start: int, line_step: int):
    """(line, unit of it) of each unit that read_lines or write_lines moves, of at most `most` to a line."""
    vectors = step == 1 and length == most and (start | line_step * size) % 16 == 0
    each = 16 // size if vectors else 1
    per_line = most // each
    assert most % each == 0 and BLOCK % per_line == 0
    for thread in range(BLOCK):
        place = thread % per_line
        if place * each < length:
            for line in range(thread // per_line, lines, BLOCK // per_line):
                yield from ((line, place * each + unit) for unit in range(each))


def tile_places(geometry, arrays: list[Array], most_along: int, most_across: int, lanes: int, fast: bool):
    """For each element that a tile launch stores: {operand: offset}. `fast`: whether formulas have fast forms."""
    slots = Slots(geometry.head)
    along, across = slots.one(), slots.one()
    tiles_along, tiles_across, run_along, run_across = (slots.divide() for _ in range(4))
    outer = slots.outer()
    assert not slots.rest
    full = [array for array in arrays if not array.shares]
    parameters = [array for array in arrays if array.shares]

    for block in range(geometry.grid):
        band = divide(tiles_along, block)
        plane = divide(tiles_across, band)
        first_along = (block - band * tiles_along[0]) * most_along
        first_across = (band - plane * tiles_across[0]) * most_across
        length, width = min(most_along, along - first_along), min(most_across, across - first_across)
        starts = {array.name: outer_offset(outer, plane, array.strides) for array in arrays}
        tiles: dict[str, dict[tuple[int, int], int]] = {}  # of each operand: where each unit comes from or goes to
        for array in full:
            pair, size = (2, 1) if array.packed else (1, array.bits // 8)
            step_along, step_across, turned = array.plane
            assert step_across % pair == 0
            step_across //= pair
            corner = (starts[array.name] + first_across * array.plane[1]) // pair
            corner += first_along // pair * step_along
            units, most_units = -(-length // pair), most_along // pair
            shape = (units, width, most_across) if turned else (width, units, most_units)
            steps = (step_along, step_across) if turned else (step_across, step_along)
            tile = tiles[array.name] = {}
            moved = line_units(steps[1], *shape, size, array.pointer + corner * size, steps[0])
            for line, unit in moved:
                at = (line, unit) if turned else (unit, line)
                assert at not in tile, f"{array.name}: unit {at} is moved twice"
                tile[at] = corner + line * steps[0] + unit * steps[1]
            assert len(tile) == units * width

        computed = set()
        for thread in range(BLOCK):
            column = thread % most_across
            index = divide(run_across, first_across + min(column, width - 1))

            def prepared(element: int, index=index, starts=starts, first_along=first_along):
                run = divide(run_along, first_along + element)
                places = {
                    each.name: each.read(starts[each.name] + index * each.plane[1] + run * each.plane[0])
                    for each in parameters
                }
                return places, min((run + 1) * run_along[0] - first_along, most_along)

            share = most_along * most_across // BLOCK
            assert share % lanes == 0
            start = thread // most_across * share
            last = min(start + share, length)
            shared, end = prepared(min(start, length - 1))
            if column >= width:
                continue
            for first in range(start, last, lanes):
                if first >= end:
                    shared, end = prepared(first)
                whole = first + lanes <= min(end, last) and fast
                for element in range(first, first + lanes if whole else min(first + lanes, last)):
                    if not whole and element >= end:
                        shared, end = prepared(element)
                    assert (element, column) not in computed
                    computed.add((element, column))
                    places = {}
                    for array in full:
                        pair = 2 if array.packed else 1
                        unit = tiles[array.name][element // pair, column]
                        places[array.name] = unit * pair + element % pair
                    yield places | shared
        assert len(computed) == length * width


def strided_places(geometry, arrays: list[Array], lanes: int):
    """For each element that a strided launch stores: {operand: offset}."""
    slots = Slots(geometry.head)
    units, first_axis, last, block_axis = slots.one(), slots.one(), slots.one(), slots.one()
    block, extent = slots.divide(), [slots.divide() for _ in range(AXES)]
    assert not slots.rest

    def offset(at, array: Array) -> int:
        total = 0
        for axis in range(first_axis, AXES):
            if array.packed and axis == AXES - 1:
                total += (at[axis] >> 1) * 2 * array.strides[axis] + (at[axis] & 1)
            else:
                place = divide(block, at[axis]) if array.blocked and axis == block_axis else at[axis]
                total += place * array.strides[axis]
        return total

    for thread in range(units):
        at = [0] * AXES
        rest = thread
        for axis in range(AXES - 1, first_axis - 1, -1):
            outer = divide(extent[axis], rest)
            at[axis] = rest - outer * extent[axis][0]
            rest = outer
        assert rest == 0, "the extents do not cover the launch"
        begin = at[-1] * lanes
        at[-1] = begin
        starts = {array.name: offset(at, array) for array in arrays}
        for lane in range(min(lanes, last - begin)):
            at[-1] = begin + lane
            places = {}
            for array in arrays:
                if not array.output:
                    places[array.name] = offset(at, array)
                elif array.packed:  # store_at writes one byte
                    places[array.name] = 2 * (starts[array.name] >> 1) + lane
                else:
                    places[array.name] = starts[array.name] + lane * array.strides[-1]
            yield places


# ---- arrays that hold their own addresses ----


def addresses(shape: tuple[int, ...], rng: random.Random, how: str) -> np.ndarray:
    """An array of this shape whose elements are their own distances from the start of its memory."""
    rank = len(shape)
    if how == "contiguous":
        return np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    if how == "broadcast":
        kept = tuple(extent if rng.random() < 0.5 else 1 for extent in shape)
        return np.broadcast_to(addresses(kept, rng, rng.choice(["contiguous", "permuted", "stepped"])), shape)
    order = list(range(rank))
    if how in ("permuted", "stepped"):
        rng.shuffle(order)
    steps = [rng.choice([1, 1, 2, 3, -1, -2]) if how == "stepped" else 1 for _ in shape]
    full = [
        extent * abs(step) + rng.choice([0, 0, 1]) * (how != "permuted")
        for extent, step in zip(shape, steps, strict=True)
    ]
    memory = np.arange(int(np.prod(full, dtype=int))).reshape([full[axis] for axis in order])
    view = memory.transpose(np.argsort(order))
    for axis, (extent, step) in enumerate(zip(shape, steps, strict=True)):
        view = view[(slice(None),) * axis + (slice(None, None, step),)]
        view = view[(slice(None),) * axis + (slice(0, extent),)]
    assert view.shape == shape
    return view


def view_over(array: np.ndarray, storage: np.dtype, pointer: int = 1 << 20) -> View:
    """The array of addresses as an operand with other elements, elsewhere in memory."""
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(pointer, array.shape, strides, storage, CPU, array.flags.c_contiguous, False, array)


def expected_places(operation, types, sizes, arrays: dict[str, np.ndarray]) -> list[tuple]:
    """For every element of the index space, in C order, the place of each operand, from NumPy's indexing."""
    space = operation.shape_of(operation.outputs[0], sizes)
    starts, axes = {}, 0
    for dim in operation.space:
        starts[dim.name] = axes
        axes += len(sizes[dim.name]) if dim.many else 1
    found = []
    for index in product(*map(range, space)):
        places = []
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
                places.append(2 * int(byte - zero) + nibble)
            else:
                places.append(int(array[tuple(own)] - zero))
        found.append(tuple(places))
    return found


@dataclass(frozen=True)
class Problem:
    """Sizes, types and arrays of one call; `pointers` are where the arrays start."""

    plan: object
    arrays: dict[str, np.ndarray]
    pointers: dict[str, int]

    def geometry(self) -> mapping.Geometry:
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
    """Every element is computed once, from the right places; returns the name of what served it."""
    plan = problem.plan
    operation, types, sizes = plan.operation, plan.types, plan.sizes
    geometry = problem.geometry()
    variant = geometry.variant
    expected = expected_places(operation, types, sizes, problem.arrays)
    names = [operand.name for operand in operation.operands if operand.name in problem.arrays]
    arrays = []
    for index, operand in enumerate(operation.operands):
        if operand.name in problem.arrays:
            slots = geometry.strides[operand.name]
            parameter = operand.dims != operation.space
            by_row = variant in (schedules.ROWS, schedules.COLUMNS_UNALIGNED)
            in_table = variant in (schedules.COLUMNS, schedules.COLUMNS_SMALL)
            tiled = variant is schedules.TILE
            steps = parameter and variant is not schedules.STRIDED and not tiled and not in_table
            spans = by_row and not parameter and operand in operation.inputs
            axes = 0 if variant.kernel in ("vec", "groups") or in_table else AXES
            in_lines = (variant.kernel == "vec" and not parameter) or (
                variant is schedules.GROUPS and not parameter and operand in operation.inputs
            )
            assert len(slots) == axes + 3 * tiled + 2 * (by_row + in_table) + steps + 2 * spans + in_lines
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
                    frozenset(places[names.index(operand.name)] for places in expected),
                    slots[-2:] if spans else None,
                )
            )
    # The numbers behind the element types: `..._vec<f16, f32, 16, 2, true>`.
    numbers = [int(word) for word in re.findall(r"\b\d+\b", schedules.entry(operation, types, variant))]
    blocks = geometry.grid
    units, launched = geometry.head[0], blocks * BLOCK
    if variant is schedules.STRIDED:
        runs = [strided_places(geometry, arrays, *numbers)]
    elif variant is schedules.TILE:
        runs = [tile_places(geometry, arrays, *numbers, fast) for fast in (True, False)]
    elif variant in (schedules.COLUMNS, schedules.COLUMNS_SMALL):
        runs = [columns_places(geometry, arrays, *numbers)]
        blocks = geometry.head[1]
        launched = blocks * BLOCK
    elif variant in (schedules.ROWS, schedules.COLUMNS_UNALIGNED):
        runs = [rows_places(geometry, arrays, *numbers)]
    else:
        places_of = groups_places if variant is schedules.GROUPS else vec_places
        runs = [places_of(geometry, arrays, *numbers, fast) for fast in (True, False)]
        launched *= numbers[1]
        leads = variant in (schedules.SHIFTED, schedules.GROUPS)  # before the first element
        units = -(-(geometry.head[0] + (numbers[0] - 1) * leads) // numbers[0])
    expected.sort()
    for run in runs:
        found = sorted(tuple(places[name] for name in names) for places in run)
        where = f"{operation.function} {types} {sizes} {schedules.variant_name(operation, types, variant)}"
        assert found == expected, f"{where}\n{problem.pointers}\n{names}\n{found[:40]}\n{expected[:40]}"
    if variant is not schedules.TILE:  # there a block has one tile
        per_block = launched // blocks
        assert launched - per_block < units <= launched
    return schedules.variant_name(operation, types, variant)


@pytest.mark.parametrize("plan_class", UNLIKE, ids=lambda plan: plan.operation.function)
def test_every_element_is_reached_once_and_with_its_parameters(plan_class, monkeypatch):
    """Also where threads take as much as they do in large arrays."""
    rng = random.Random(plan_class.__name__)
    served, few = [], mapping.MapKernels.few_blocks
    for trial in range(160):
        monkeypatch.setattr(mapping.MapKernels, "few_blocks", rng.choice([0, few]))
        monkeypatch.setattr(mapping, "_BUSY", rng.choice([1, 1 << 16]))
        contiguous = trial % 3 == 0
        aligned = rng.random() < (0.8 if contiguous else 0.5)
        layouts = ["contiguous"] if contiguous else LAYOUTS
        served.append(check(random_problem(plan_class, rng, layouts, aligned=aligned)))
    kinds = {re.match(r"[a-z]+", name)[0] for name in served}
    assert {"vec", "strided"} <= kinds
    assert ("rows" in kinds) != plan_class.operation.of_second  # which has few schedules
    assert ("columns" in kinds) == any(
        schedules.is_parameter(plan_class.operation, o) for o in plan_class.operation.inputs
    )


ACROSS = [plan for plan in UNLIKE if any(o.dims == plan.operation.space for o in plan.operation.inputs)]


@pytest.mark.parametrize("plan_class", ACROSS, ids=lambda plan: plan.operation.function)
def test_tiles_of_operands_that_run_along_different_axes(plan_class):
    rng, served = random.Random(plan_class.__name__ + " tile"), []
    while served.count("tile") < 6:
        problem = random_problem(plan_class, rng, LAYOUTS + ["permuted"], wide=True)
        if max(array.size for array in problem.arrays.values()) < 20_000:
            served.append(check(problem))
        assert len(served) < 200


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


def contiguous(name: str, sizes: dict) -> Problem:
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
    arrays = {
        operand.name: addresses(stored, random.Random(0), "contiguous")
        for operand, stored in zip(plan.operation.operands, plan.stored, strict=True)
        if operand.dims
    }
    return Problem(plan, arrays, {})


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("function", [f"{name}_per_channel" for name in ("quantize", "dequantize", "fake_quantize")])
@pytest.mark.parametrize("rows, width", [(1, 9), (3, 5), (37, 12), (21, 13), (9, 127), (4, 4)])
def test_tables_without_gaps_are_columns_wherever_their_operands_start_alike(function, rows, width, few, monkeypatch):
    """Whether or not their rows are of whole vectors: the columns are the same again after some rows."""
    monkeypatch.setattr(mapping.MapKernels, "few_blocks", mapping.MapKernels.few_blocks if few else 0)
    widens = function.startswith("dequantize")  # there is one variant
    for start in range(4):
        problem = contiguous(function, {"outer": (rows,), "c": width, "inner": ()})
        for operand, word in zip(problem.plan.operation.operands, problem.plan.words, strict=True):
            if operand.dims == problem.plan.operation.space:
                problem.pointers[operand.name] = (1 << 20) + start * DTYPES[word].storage.itemsize
        assert problem.geometry().variant is (schedules.COLUMNS_SMALL if few and not widens else schedules.COLUMNS)
        check(problem)
    one = next(name for name in problem.pointers)
    problem.pointers[one] = (1 << 20) + 2 * DTYPES[problem.plan.words[0]].storage.itemsize
    assert problem.geometry().variant is schedules.COLUMNS_UNALIGNED
    check(problem)


@pytest.mark.parametrize("gap, variant", [(0, "columns"), (4, "columns"), (1, "columns_unaligned")])
@pytest.mark.parametrize("tables", [(), (3,), (3, 2)])
def test_rows_with_gaps_are_columns_where_each_is_of_whole_vectors(tables, gap, variant):
    problem = contiguous("quantize_per_group", {"outer": tables, "d": 15, "inner": (16,), "group_size": 5})
    shape = problem.arrays["input"].shape
    problem.arrays["input"] = np.arange(np.prod(shape[:-1]) * (16 + gap)).reshape(*shape[:-1], 16 + gap)[..., :16]
    assert check(problem).startswith("columns")
    name = schedules.entry(problem.plan.operation, problem.plan.types, problem.geometry().variant)
    assert name.startswith(f"quantize_per_group_{variant}<")


def test_packed_tables_of_odd_width_have_gaps():
    """Each of their rows ends with a nibble that is no element; one row has no other behind it."""
    for rows, variant in ((3, schedules.COLUMNS_UNALIGNED), (1, schedules.COLUMNS_SMALL)):
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


def test_axes_stored_in_another_order_alike_are_one_row():
    problem = contiguous("lerp_tensor", {"shape": (6, 8, 10)})
    for name, array in problem.arrays.items():
        problem.arrays[name] = array.reshape(10, 6, 8).transpose(1, 2, 0)
    assert problem.geometry().variant is schedules.VEC
    check(problem)


def test_more_threads_than_32_bits_number_are_left_to_the_strided_kernel():
    plan_class = next(plan for plan in PLANS if plan.operation.function == "lerp_tensor")
    plan = plan_class.select(
        plan_class.descriptor_type(shape=(1 << 34,)), preference=BackendKind.REFERENCE
    )
    strides = tuple((1,) if operand.dims else None for operand in plan.operation.operands)
    for aligned in (True, False):
        geometry = plan._kernels.geometry(mapping.Layouts(strides, aligned, 0 if aligned else None))
        assert geometry.variant in (schedules.ROWS, schedules.STRIDED)
        assert geometry.variant is schedules.STRIDED or geometry.head[0] < 1 << 31


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


def test_misaligned_operands_are_no_flat_row():
    problem = contiguous("lerp_tensor", {"shape": (40,)})
    assert problem.geometry().variant is schedules.VEC
    problem.pointers["b"] = (1 << 20) + 4
    assert problem.geometry().variant is schedules.ROWS
    problem = contiguous("lerp_tensor", {"shape": (4000,)})
    for pointers in ({"b": 4}, {"output": 12}, {"a": 8, "b": 4, "weight": 12, "output": 4}):
        problem.pointers.clear()
        problem.pointers.update({name: (1 << 20) + start for name, start in pointers.items()})
        assert problem.geometry().variant is schedules.SHIFTED
        check(problem)


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


@pytest.mark.parametrize("name, types, rows, columns, group, more", GROUPED, ids=str)
def test_groups_that_begin_anywhere_in_a_vector(name, types, rows, columns, group, more, monkeypatch):
    """Ragged groups, lines that are padded or have gaps, and any alignment."""
    plan_class = next(plan for plan in PLANS if plan.operation.function == name)
    operation = plan_class.operation
    fields = {operation.element_fields[letter]: word for letter, word in types.items()}
    sizes = {"outer": (rows,), "inner": (), "group_size": group} if group else {"n": (rows,)}
    descriptor = plan_class.descriptor_type(d=columns, **sizes, **fields)
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    monkeypatch.setattr(mapping.MapKernels, "few_blocks", 0)
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
    assert plan._kernels.geometry(mapping.Layouts(strides, True, 0)).variant.kernel == variant


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
    assert problem.geometry().variant is schedules.PITCHED
    check(problem)


def test_few_elements_are_spread_over_more_threads():
    lanes, groups = 16, 2  # of f16 -> s8
    least = mapping.MapKernels.few_blocks * BLOCK * lanes * groups
    for numel, variant in ((least, schedules.VEC), (least - 1, schedules.VEC_SMALL)):
        plan_class = next(plan for plan in PLANS if plan.operation.function == "quantize_per_tensor")
        plan = plan_class.select(
            plan_class.descriptor_type(shape=(numel,), input_element="f16"), preference=BackendKind.REFERENCE
        )
        assert schedules.lanes_of(plan.operation, plan.types, schedules.VEC) == (lanes, groups)
        views = [
            View(1 << 20, (numel,), (1,), DTYPES[word].storage, CPU, True, False, None) if operand.dims else 0
            for operand, word in zip(plan.operation.operands, plan.words, strict=True)
        ]
        assert plan._geometry(views).variant is variant


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
        slots = mapping.divide_slots(divisor)
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
    declared = re.search(r"constexpr int AXES = (\d+);", headers()["walk.cuh"])
    assert (int(declared[1]), AXES, BLOCK) == (mapping.AXES, mapping.AXES, schedules.BLOCK)
    declared = re.search(r"constexpr int MARGIN = (\d+);", headers()["flat.cuh"])
    assert int(declared[1]) == MARGIN == mapping._MARGIN
