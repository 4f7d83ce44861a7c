"""Which element's positions a thread of runtime/cuda/tile.cuh, broadcast.cuh or strided.cuh reads and writes."""

from __future__ import annotations

from index_model import AXES, BLOCK, BROADCAST_AXES, Array, Slots, divide, outer_offset


def line_units(step: int, lines: int, length: int, most: int, size: int, start: int, line_step: int):
    """(line, unit of it) of each unit that read_lines or write_lines moves, of at most `most` to a line."""
    vectors = step == 1 and length == most and (start | line_step * size) % 16 == 0
    each = 16 // size if vectors else 1
    per_line = most // each
    assert most % each == 0 and BLOCK % per_line == 0
    for thread in range(BLOCK):
        position = thread % per_line
        if position * each < length:
            for line in range(thread // per_line, lines, BLOCK // per_line):
                yield from ((line, position * each + unit) for unit in range(each))


def tile_positions(geometry, arrays: list[Array], most_along: int, most_across: int, lanes: int, fast: bool):
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
                positions = {
                    each.name: each.read(starts[each.name] + index * each.plane[1] + run * each.plane[0])
                    for each in parameters
                }
                return positions, min((run + 1) * run_along[0] - first_along, most_along)

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
                    positions = {}
                    for array in full:
                        pair = 2 if array.packed else 1
                        unit = tiles[array.name][element // pair, column]
                        positions[array.name] = unit * pair + element % pair
                    yield positions | shared
        assert len(computed) == length * width


def strided_positions(geometry, arrays: list[Array], lanes: int):
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
                position = divide(block, at[axis]) if array.blocked and axis == block_axis else at[axis]
                total += position * array.strides[axis]
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
            positions = {}
            for array in arrays:
                if not array.output:
                    positions[array.name] = offset(at, array)
                elif array.packed:  # store_at writes one byte
                    positions[array.name] = 2 * (starts[array.name] >> 1) + lane
                else:
                    positions[array.name] = starts[array.name] + lane * array.strides[-1]
            yield positions


def broadcast_positions(geometry, arrays: list[Array], lanes: int):
    """For each element that a broadcast launch stores: {operand: offset}."""
    slots = Slots(geometry.head)
    length, extent = slots.one(), [slots.divide() for _ in range(BROADCAST_AXES - 1)]
    assert not slots.rest
    output = next(array for array in arrays if array.output)
    lead = output.pointer * 8 // output.bits & (lanes - 1)

    def coordinates(element: int) -> list[int]:
        at = []
        for each in reversed(extent):
            above = divide(each, element)
            at.insert(0, element - above * each[0])
            element = above
        return [element, *at]

    def offset(array: Array, at: list[int]) -> int:
        return sum(step * each for step, each in zip(array.strides, at, strict=True))

    def stepped(array: Array, first: int) -> list[int]:
        """Where a thread that goes from element to element finds them: BroadcastOperand::load."""
        at, found = coordinates(first), []
        here = offset(array, at)
        for _ in range(lanes):
            found.append(here)
            here += array.strides[-1]
            at[-1] += 1
            axis = BROADCAST_AXES - 1
            while at[axis] == extent[axis - 1][0]:
                at[axis] = 0
                at[axis - 1] += 1
                here += array.strides[axis - 1] - extent[axis - 1][0] * array.strides[axis]
                axis -= 1
                if axis == 0:
                    break
        return found

    for thread in range(geometry.grid * BLOCK):
        first = thread * lanes - lead
        whole = first >= 0 and first + lanes <= length
        of_lanes = {
            array.name: array.lane_positions(0, first, lanes, False) if array.row or array.output
            else stepped(array, first) if whole else []
            for array in arrays
        }  # fmt: skip
        for element in range(max(first, 0), min(first + lanes, length)):
            at = coordinates(element)
            yield {
                array.name: of_lanes[array.name][element - first] if whole
                else element if array.output else array.read(offset(array, at))
                for array in arrays
            }  # fmt: skip
