"""Which element's positions a thread of runtime/cuda/row_shares.cuh or columns_unaligned.cuh reads and writes."""

from __future__ import annotations

from index_model import AXES, BLOCK, Array, Slots, divide, outer_offset

from skuda.schedules.variant import COLUMNS_UNALIGNED


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
            assert words[1] <= array.byte(max(array.valid)) + array.unit, f"{array.name}: a word after it is read"
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


def rows_positions(geometry, arrays: list[Array], lanes: int, groups: int):
    """For each element that a launch of rows or unaligned columns stores: {operand: offset}."""
    columns = geometry.variant is COLUMNS_UNALIGNED
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
                positions: dict[str, list[int]] = {}
                for each in full:
                    if count and not each.output:
                        begin = each.position(offset(each, table, first_row), first_chunk * lanes)
                        at = each.position(offsets[each.name], first)
                        positions[each.name] = load(each, begin, at, count, lanes)
                for index, key in enumerate(keys):
                    if columns:
                        piece = first + index
                    else:
                        piece = divide(whole, chunk) if whole[0] else divide(run, first + index)
                        piece -= divide(period, piece) * period[0] if period[0] else 0
                    inputs[key] = {
                        each.name: each.read(offset(each, table, row) + piece * each.step)
                        for each in parameters
                    } | {name: found[index] for name, found in positions.items()}
                follows = chunk > 0 and (lane > 0 or (group > 0 and not below))
                followed = chunk + 1 < chunks and (lane < 31 or (group + 1 < depth and not below))
                for name, joint in joints.items():
                    at = joint.array.position(offsets.get(name, 0), first)
                    warp[name].append((at, keys, follows, followed))
            for name, joint in joints.items():
                joint.store(warp[name])
    for key, positions in inputs.items():
        yield positions | {name: joint.found[key] for name, joint in joints.items()}
