"""Which element's positions a thread of runtime/cuda: vec.cuh, groups.cuh or columns.cuh takes."""

from __future__ import annotations

from index_model import BLOCK, MARGIN, Array, Slots, divide

from skuda.schedules.variant import PITCHED, SHIFTED, SHIFTED_SMALL


def columns_positions(geometry, arrays: list[Array], lanes: int, depth: int):
    """For each element that a launch of columns stores: {operand: offset}."""
    slots = Slots(geometry.head)
    units, blocks, rows, last = (slots.one() for _ in range(4))
    chunks, slabs, width = (slots.divide() for _ in range(3))
    lead, vectors_end, length = (slots.one() for _ in range(3))
    assert not slots.rest and lanes <= width[0] and chunks[0] * lanes < 1 << 31 and length < 1 << 31

    def steps(array: Array, count: int, bytes_apart: int) -> int:
        """`stepped`, in elements (of a packed operand, nibbles)."""
        assert -(1 << 31) <= count < 1 << 31 and -(1 << 31) <= bytes_apart < 1 << 31
        bits = count * bytes_apart * 8
        assert bits % max(8, array.bits) == 0
        return bits // array.bits

    def vector(array: Array, table: int, row: int, first: int) -> list[int]:
        return array.lane_positions(steps(array, table, array.row) + steps(array, row, array.apart), first, lanes, True)

    def of_row(array: Array, table: int, row: int, above: list[int], columns: list[int]) -> list[int]:
        start = steps(array, table, array.row) + steps(array, row, array.below)
        if array.period[0]:
            above = [each - divide(array.period, each) * array.period[0] for each in above]
        at = [steps(array, each, array.apart) + steps(array, c, array.across) for each, c in zip(above, columns)]
        return [array.read(start + each) for each in at]

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
                    for position in vector(each, table, at, first):
                        each.read(position)
        column = first - divide(width, first) * width[0]
        beyond = [column + lane >= width[0] for lane in range(lanes)]  # in the table's next row
        columns = [column + lane - beyond[lane] * width[0] for lane in range(lanes)]
        shared = {
            each.name: [each.read(steps(each, table, each.row) + steps(each, at, each.apart)) for at in columns]
            for each in arrays
            if each.shares and each.below is None
        }

        above = [divide(width, first) + each for each in beyond]
        of_rows = [each for each in arrays if each.below is not None]
        for at in {min(row + below, near - 1) for below in range(depth)}:
            for each in of_rows:
                of_row(each, table, at, above, columns)
        for at in range(row, min(row + depth, end)):
            positions = {each.name: vector(each, table, at, first) for each in arrays if not each.shares} | shared
            positions |= {each.name: of_row(each, table, at, above, columns) for each in of_rows}
            for lane in range(lanes):
                yield {name: found[lane] for name, found in positions.items()}

    per = 2 if any(array.packed for array in arrays) else 1
    for thread in range(BLOCK * (geometry.grid - blocks)):
        for nibble in range(per):
            number = thread * per
            at = (number if number < lead else number - lead + vectors_end) + nibble
            if at >= length:
                break
            above = divide(width, at)
            column = at - above * width[0]
            found = {each.name: at for each in arrays}
            own = (each for each in arrays if each.shares and each.below is None)
            found |= {each.name: each.read(steps(each, column, each.apart)) for each in own}
            of_rows = [each for each in arrays if each.below is not None]
            yield found | {each.name: of_row(each, 0, 0, [above], [column])[0] for each in of_rows}


def parameters_of(arrays: list[Array], run: int) -> dict[str, int]:
    """What is read of each parameter for a run, by its number."""
    found = {}
    for each in arrays:
        if each.step is not None:
            size = each.bits // 8
            assert each.step % size == 0 and -(1 << 31) <= each.step < 1 << 31
            found[each.name] = each.read(run * each.step // size)
    return found


def vec_positions(geometry, arrays: list[Array], lanes: int, groups: int, fast: bool):
    """For each element that a vec launch stores: {operand: offset}. `fast`: whether formulas have fast forms.

    Along the row there are whole vectors, which are loaded at once even by threads without work, and for each
    element the entries of its run; a parameter's step is in bytes, the gap after a line in elements.
    """
    shifted, pitched = geometry.variant in (SHIFTED, SHIFTED_SMALL), geometry.variant is PITCHED
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
        end = (piece + 1) * run[0]
        assert element < end < 1 << 31
        return end, parameters_of(arrays, index)

    def position(each: Array, element: int, first: int) -> int:
        """An element of the vector that starts at `first`."""
        return each.position(divide(line, first) * each.row if pitched else 0, element)

    def vector(each: Array, first: int) -> list[int]:
        """The lanes of a vector that is loaded or stored at once."""
        found = [position(each, first + lane, first) for lane in range(lanes)]
        if not shifted:
            assert each.lane_positions(0, found[0], lanes, True) == found
        elif not each.output:  # the words around it
            width = min(16, lanes * each.bits // 8)
            begin = each.byte(found[0])
            begin, end = begin - begin % width, begin - begin % width + lanes * each.bits // 8 + width
            if width >= 4:
                assert each.byte(min(each.valid)) <= begin and end <= each.byte(max(each.valid)) + each.unit
        return found

    block = geometry.block
    for thread in range(geometry.grid * block):
        for group in range(groups):
            first = ((thread // block * groups + group) * block + thread % block) * lanes - lead
            assert first < 1 << 31
            at = max(min(first, last), low)
            end, shared = run_at(at)
            whole = {each.name: vector(each, at) for each in full}
            for each in full:
                assert each.output or each.valid.issuperset(whole[each.name])
            if fast and low <= first <= last and first + lanes <= end:
                for lane in range(lanes):
                    yield {name: positions[lane] for name, positions in whole.items()} | shared
                continue
            for element in range(max(first, 0), min(first + lanes, length)):
                yield {each.name: position(each, element, max(first, 0)) for each in full} | run_at(element)[1]


def groups_positions(geometry, arrays: list[Array], lanes: int, turns: int, fast: bool):
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
        """Its line, the position of its parameters, where they end."""
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
        assert reached[1] <= each.byte(max(each.valid)) + each.unit, f"{each.name}: a word after it is read"
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
        prepared = [parameters_of(arrays, index) for index in range(first_run, first_run + count)]

        def whole(first: int, loaded: dict, here: dict, other: dict, split: int):
            """The lanes of a vector, which has the parameters of another run from `split` on."""
            assert outputs[0].lane_positions(0, first, lanes, True)
            for lane in range(lanes):
                if elements == line[0] or (first + lane + 1) % line[0]:  # a nibble that pads becomes 0
                    positions = {name: found[lane] for name, found in loaded.items()}
                    positions |= {each.name: first + lane for each in outputs}
                    yield positions | (here if lane < split else other)

        for vector in range(32 * turns):
            position, first = load + vector * lanes, start + vector * lanes
            within = load - number * line[0] + vector * lanes
            beyond = within >= line[0]
            loaded = {each.name: words(each, position + (number + beyond) * each.row) for each in inputs}
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
                        {each.name: each.position(0, element + above * each.row) for each in inputs}
                        | {each.name: element for each in outputs}
                        | prepared[index - first_run]
                    )
