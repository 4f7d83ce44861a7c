"""The host side of templates/map.cu.jinja: which variant serves some arguments, and the parameters that it takes.

Selection goes by structure: are the operands contiguous, on 16-byte boundaries, in runs that share parameters? The
slots are written in the order in which the template declares the kernel's arguments, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import gcd

from skuda.axes import Axis, index_space
from skuda.dtypes import DTYPES
from skuda.errors import Unsupported
from skuda.operation import Operation, Types
from skuda.records import Record
from skuda.schedules import (
    BLOCK,
    COLUMNS,
    COLUMNS_SMALL,
    COLUMNS_UNALIGNED,
    GROUPS,
    PITCHED,
    ROWS,
    SHIFTED,
    STRIDED,
    TILE,
    VEC,
    VEC_SMALL,
    Variant,
    lanes_of,
    strided_lanes,
    tile_of,
    variants,
)

AXES = 8  # of a kernel's index space
_SHORTEST = 8  # shorter rows and runs would be prepared more often than used
_MOST_FLAT = (1 << 31) - (1 << 16)  # elements that 32-bit indices reach, those of the last block's idle threads too
_NEVER = 0  # the period of parameters that do not repeat
_MOST = (1 << 31) - (1 << 12)  # threads, shares to a row and rows that 32-bit numbers reach
_DEEPEST = 32  # rows that a thread of a columns_unaligned kernel takes, for the parameters that it prepares
_LONGEST = 8  # shares that a thread of a rows kernel takes
_SECTOR = 32  # elements, of which even the narrowest fill a sector of memory, or half of one where they are packed
_BUSY = 1 << 16  # threads that keep a GPU busy: where there are fewer, each takes less
_MARGIN = 32  # elements around a shifted vector that its words may reach: flat.cuh
_SHORTEST_GROUP = 32  # a groups kernel has room for the parameters of a stretch of such runs
_STRADDLE = 1024  # from so many elements to a run on, the few vectors that straddle two do not count
_STRADDLE_ALIGNED = 4  # the same in aligned vectors: doing some of them twice costs less than shifting all


def divide_slots(divisor: int) -> tuple[int, int, int, int]:
    """Divisor, multipliers for n < 2^63 and for n < 2^31, and shift: walk.cuh's Divide."""
    shift = (divisor - 1).bit_length()
    narrow = -(-(1 << (31 + shift)) // divisor) if shift < 32 else 0
    return divisor, -(-(1 << (63 + shift)) // divisor), narrow, shift


class Layouts(Record):
    """How the operands of one call lie, in the operation's operand order.

    Attributes:
        strides: of each operand that is an array, as in Axis; None for a single value.
        aligned: whether every array in the output's shape starts on a 16-byte boundary.
        lead: elements of each before the first one of a vector, counted from one of `MapKernels.boundaries`; None where
            the arrays differ in that.
    """

    strides: tuple[tuple[int, ...] | None, ...]
    aligned: bool
    lead: int | None


class Geometry(Record):
    """Everything of a launch but pointers and numbers.

    Attributes:
        variant: what runs.
        grid: blocks.
        head: slots before the operands'.
        strides: slots that follow each array operand's pointer, by operand name.
        block: threads of a block.
        finish: blocks, and threads of one, of the kernel that joins what the blocks of this one leave in the workspace;
            None where there is nothing to join.
        workspace: bytes of that.
        shared: bytes of shared memory that a block has beside what its kernel declares.
    """

    variant: Variant
    grid: int
    head: tuple[int, ...]
    strides: Mapping[str, tuple[int, ...]]
    block: int = BLOCK
    finish: tuple[int, int] | None = None
    workspace: int = 0
    shared: int = 0


class MapKernels:
    """Geometry of one operation at fixed types and sizes.

    Attributes:
        boundaries: elements whose multiples vectors of a columns kernel are counted from, where arrays lie askew:
            the first of these that all of them have in common. That of sectors saves memory transactions.
        few_blocks: fewer of `vec` leave a GPU with a hundred multiprocessors or more idle (4 each are under way to
            hide latency); then `vec_small` makes more of them. A constant, so that no call asks for the device.
        served: the schedules that there are; None where that is all of them. Fewer have none for few elements.
    """

    few_blocks = 512
    workspace = 0

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        self.operation = operation
        self.types = types
        self.sizes = sizes
        self.space = operation.shape_of(operation.outputs[0], sizes)
        self.bits = tuple(DTYPES[operation.word(operand, types)].bits for operand in operation.operands)
        self.packed = any(bits < 8 for bits in self.bits)
        self.full = tuple(operand.dims == operation.space for operand in operation.operands)
        self.vectors = self.full
        self.served = variants(operation, types) if operation.of_second else None
        if self.served:
            self.few_blocks = 0
        self.boundaries = _SECTOR, lanes_of(operation, types, COLUMNS)[0]

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so."""
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        axes = index_space(
            self.operation,
            self.sizes,
            [self.operation.operands[index] for index in arrays],
            [layouts.strides[index] for index in arrays],
            self.packed,
        )
        full = [place for place, index in enumerate(arrays) if self.full[index]]
        parameters = [place for place, index in enumerate(arrays) if not self.full[index]]
        if axes and axes[-1].extent >= min(_SHORTEST, max(axis.extent for axis in axes)) and all(
            axes[-1].strides[place] == 1 for place in full
        ):
            row = self._best_row(axes, full, parameters, layouts.aligned)
            found = None
            if row is not None:
                found = self._vec(layouts, arrays, axes, *row)
            elif all(axis.block == 1 for axis in axes):
                found = self._columns(layouts, arrays, axes[:-1], axes[-1])
            if found is not None and found.head[0] < _MOST and (not self.served or found.variant in self.served):
                return found
        return self._tile(arrays, axes, full, parameters) or self._strided(arrays, axes)

    def _best_row(self, axes: list[Axis], full: list[int], parameters: list[int], aligned: bool):
        """(start, length, run, period, step of each parameter): the axes that make the longest row, from `start` on,
        or a shorter one where vectors of that straddle too many runs; None where none do."""
        lanes = lanes_of(self.operation, self.types, ROWS)[0]
        best = None
        for start in range(len(axes)):
            if any(axis.block > 1 for axis in axes[:start]):
                break  # the rows' places are found without blocks
            row = self._row(axes[start:], full, parameters)
            if row is None or max(-(-row[0] // lanes), _product(axes[:start])) > _MOST:
                continue
            best = best or (start, *row)
            length, run = row[:2]
            flat = aligned and not start and length < _MOST_FLAT  # all of it by `vec`
            if run >= length or run % lanes == 0 or run >= (_STRADDLE_ALIGNED * lanes if flat else _STRADDLE):
                return start, *row
        return best

    def _row(self, axes: list[Axis], full: list[int], parameters: list[int]):
        """(length, run, period, step of each parameter) where these axes are one row; None where they are not.

        A row is gapless for the operands in the output's shape. Along it the parameters are constant over an outer
        part, then step from run to run, then are constant over a run.
        """
        length = 1
        for axis in reversed(axes):
            if any(axis.strides[place] != length for place in full) or (self.packed and length % 2 and length > 1):
                return None
            length *= axis.extent
        return self._runs(axes, parameters)

    def _runs(self, axes: list[Axis], parameters: list[int]):
        """The same for axes that are taken for one row, whether it has gaps or not."""
        length = _product(axes)
        steps = [tuple(axis.strides[place] for place in parameters) for axis in axes]
        if axes[-1].block > 1:
            return (length, axes[-1].block, _NEVER, steps[-1]) if len(axes) == 1 else None
        if any(axis.block > 1 for axis in axes):
            return None
        run = 1
        while steps and not any(steps[-1]):
            run *= axes[len(steps) - 1].extent
            steps.pop()
        if not steps:
            return length, run, _NEVER, (0,) * len(parameters)
        step, runs = steps.pop(), axes[len(steps)].extent
        while steps and steps[-1] == tuple(each * runs for each in step):
            steps.pop()
            runs *= axes[len(steps)].extent
        if any(any(each) for each in steps) or run < _SHORTEST:
            return None
        return length, run, runs if steps else _NEVER, step

    def _outer(self, axes: list[Axis]) -> list[int]:
        """Slots of walk.cuh's Outer."""
        free = self._free(axes)
        slots = [free]
        for extent in [1] * free + [axis.extent for axis in axes]:
            slots += divide_slots(extent)
        return slots

    def _free(self, axes: list[Axis]) -> int:
        if len(axes) > AXES:
            raise Unsupported(
                f"{self.operation.class_name}Plan: strides that need {len(axes)} axes after merging, at most {AXES} "
                "are served; copy an operand to a contiguous array"
            )
        return AXES - len(axes)

    # ---- variants ----

    def _vec(self, layouts: Layouts, arrays, axes: list[Axis], start: int, length: int, run: int, period: int, steps):
        flat = None
        if not start:
            flat = self._flat(arrays, layouts.aligned, length, run, _repeats(period), steps)
        elif layouts.aligned:
            flat = self._pitched(arrays, axes, start, length)
        return flat or self._groups(arrays, axes) or self._rows(arrays, axes, start, length, run, period, steps)

    def _groups(self, arrays, axes: list[Axis]) -> Geometry | None:
        """Lines that follow each other in the outputs, at most a nibble apart, in runs of at least a vector each whose
        parameters follow each other as well; None where the operands are not so, or too few for long stretches."""
        full = [place for place, index in enumerate(arrays) if self.full[index]]
        parameters = [place for place, index in enumerate(arrays) if not self.full[index]]
        outputs = [place for place in full if arrays[place] >= len(self.operation.inputs)]
        row, lines, line = self._row(axes, full, parameters), 1, 0
        if row is None and len(axes) > 1:
            row, lines = self._row(axes[1:], full, parameters), axes[0].extent
            line = axes[0].strides[outputs[0]]
        if row is None or row[2] is not _NEVER or not parameters:
            return None
        elements, run, _, steps = row
        line = line or elements
        runs = -(-elements // run)
        if runs == 1:
            run = line
        if lines > 1:
            along = tuple(axes[0].strides[place] for place in parameters)
            steps = along if runs == 1 else steps
            if along != tuple(runs * step for step in steps):
                return None
        padded = line - elements
        if padded not in ((0, 1) if self.bits[arrays[outputs[0]]] < 8 else (0,)) or (padded and run % 2):
            return None
        gaps = {}
        for place in full:
            pitch = axes[0].strides[place] if lines > 1 else line
            if pitch < elements or (place in outputs and pitch != line) or pitch * lines >= _MOST_FLAT:
                return None
            gaps[arrays[place]] = pitch - line
        lanes, turns = lanes_of(self.operation, self.types, GROUPS)
        stretch, length = 32 * lanes * turns, lines * line
        apart = [step * self.bits[arrays[place]] // 8 for place, step in zip(parameters, steps, strict=True)]
        if (
            min(run, line - (runs - 1) * run) < lanes
            or stretch > line  # it would meet more than two
            or length < max(stretch + 2 * _MARGIN, self.few_blocks * BLOCK // 32 * stretch)
            or run < _SHORTEST_GROUP
            or max(length, runs * run) >= _MOST_FLAT
            or any(abs(each) >= 1 << 31 for each in apart)
            or len({self.bits[arrays[place]] for place in outputs}) > 1
        ):
            return None
        strides = {self.operation.operands[index].name: (gap,) for index, gap in gaps.items()}
        strides |= {self.operation.operands[arrays[place]].name: () for place in outputs}
        strides |= {
            self.operation.operands[arrays[place]].name: (each,) for place, each in zip(parameters, apart, strict=True)
        }
        head = (length, *divide_slots(line), *divide_slots(run), runs, elements)
        return Geometry(GROUPS, -(-(length + lanes - 1) // (BLOCK // 32 * stretch)), head, strides)

    def _rows(self, arrays, axes: list[Axis], start: int, length: int, run: int, period: int, steps) -> Geometry:
        lanes, groups = lanes_of(self.operation, self.types, ROWS)
        chunks = -(-length // lanes)
        depth = _depth(chunks * _product(axes[:start]), _LONGEST, groups)
        stretches = -(-chunks // (32 * depth))
        # Below each other where too many lanes would have no share of a row.
        below = start > 0 and 4 * chunks < 3 * stretches * 32 * depth
        outer, rows = axes[: max(0, start - 1)], axes[start - 1] if start else Axis(1, (0,) * len(arrays))
        depth = min(depth, rows.extent) if below else depth
        across = chunks if below else 32 * stretches
        whole = run // lanes if run % lanes == 0 else chunks if run >= length else 0  # a run in shares
        runs = [*divide_slots(run), *(divide_slots(whole) if whole else _NO_DIVISION), *_repeats(period)]
        strides = self._shares_strides(arrays, axes, outer, rows, None if below else 32 * lanes, lanes, depth)
        self._add_steps(strides, arrays, steps)
        return self._shares(ROWS, length, chunks, rows.extent, depth, below, across, runs, outer, strides)

    def _shares(self, variant, length, chunks, rows, depth, below, across, runs, outer, strides) -> Geometry:
        """A launch of walk.cuh's Shares."""
        slabs = -(-rows // depth) if below else rows
        units = across * slabs * _product(outer)
        head = [units, length, chunks, rows, depth, int(below), *divide_slots(across), *divide_slots(slabs)]
        return Geometry(variant, -(-units // BLOCK), (*head, *runs, *self._outer(outer)), strides)

    def _shares_strides(self, arrays, axes: list[Axis], outer: list[Axis], rows: Axis, apart, lanes: int, depth: int):
        """An operand's slots: its strides from table to table, the bytes from row to row and from one share of a
        thread to its next (`apart` elements in the row, or in the next row), and the span of an input."""
        strides = self._outer_strides(arrays, outer)
        for place, index in enumerate(arrays):
            bits, full = self.bits[index], self.full[index]
            row = rows.strides[place] * bits // 8
            strides[self.operation.operands[index].name] += (
                row,
                row if apart is None else apart * bits // 8 if full else 0,
            )
        self._add_spans(strides, arrays, axes, lanes, depth)
        return strides

    def _add_steps(self, strides: dict[str, tuple[int, ...]], arrays, steps) -> None:
        """The slot behind a parameter's strides: its step from run to run."""
        parameters = [self.operation.operands[index].name for index in arrays if not self.full[index]]
        for name, step in zip(parameters, steps, strict=True):
            strides[name] += (step,)

    def _add_spans(self, strides: dict[str, tuple[int, ...]], arrays: Sequence[int], axes, lanes: int, depth: int):
        """Slots of shift.cuh's Span, of each input in the output's shape."""
        for place, index in enumerate(arrays):
            if not self.full[index] or index >= len(self.operation.inputs):
                continue
            bits, low, high = self.bits[index], 0, 1  # the elements between which the input lies
            for axis in axes:
                step = axis.strides[place] * (axis.extent - 1)
                low, high = low + min(step, 0), high + max(step, 0)
            first, last = low * bits // 8, -(-high * bits // 8)
            name = self.operation.operands[index].name
            share, apart = lanes * bits // 8, strides[name][-1]
            width = min(16, share)
            reach = (depth - 1) * apart  # from a thread's first share to its last
            slack = width if apart % width else 0  # its shares begin at different places in a word
            first += slack - min(reach, 0)
            last -= share + width + slack + max(reach, 0)
            strides[name] += (first, max(0, last - first + 1))

    def _flat(self, arrays: Sequence[int], aligned: bool, length: int, run: int, repeats, steps) -> Geometry | None:
        """One row; None where it is too long or too short, or its parameters lie too far apart or change too often."""
        variant = VEC if aligned else SHIFTED
        lanes, groups = lanes_of(self.operation, self.types, variant)
        if not aligned:
            if length < lanes + 2 * _MARGIN or (run < length and run < _STRADDLE):
                return None
        elif length < self.few_blocks * BLOCK * lanes * groups:
            small = lanes_of(self.operation, self.types, VEC_SMALL)
            if small != (lanes, groups):
                variant, (lanes, groups) = VEC_SMALL, small
        gaps = dict.fromkeys(arrays, 0)
        return self._one_row(variant, lanes, groups, arrays, length, run, repeats, steps, length, gaps)

    def _pitched(self, arrays: Sequence[int], axes: list[Axis], start: int, line: int) -> Geometry | None:
        """Lines of whole aligned vectors with gaps between them, the axes from `start` on being a line; None where the
        operands are not so."""
        lanes, groups = lanes_of(self.operation, self.types, PITCHED)
        parameters = [place for place, index in enumerate(arrays) if not self.full[index]]
        runs = self._runs(axes, parameters)
        if line % lanes or runs is None or not self._aligned(arrays, axes[:start], lanes):
            return None
        length, run, period, steps = runs
        gaps = {}
        for place, index in enumerate(arrays):
            if self.full[index]:
                pitch = axes[start - 1].strides[place]
                gaps[index] = pitch - line
                if any(
                    outer.strides[place] != inner.strides[place] * inner.extent
                    for outer, inner in pairwise(axes[:start])
                ):
                    return None
        return self._one_row(PITCHED, lanes, groups, arrays, length, run, _repeats(period), steps, line, gaps)

    def _one_row(self, variant, lanes, groups, arrays, length, run, repeats, steps, line, gaps) -> Geometry | None:
        parameters = [index for index in arrays if not self.full[index]]
        apart = [step * self.bits[index] // 8 for index, step in zip(parameters, steps, strict=True)]
        run = min(run, length)
        ends = -(-length // run) * run  # the last run may end beyond the row
        if length < lanes or ends >= _MOST_FLAT or any(abs(each) >= 1 << 31 for each in apart):
            return None
        strides = {self.operation.operands[index].name: (gaps.get(index, 0),) for index in arrays}
        for index, each in zip(parameters, apart, strict=True):
            strides[self.operation.operands[index].name] = (each,)
        head = (length, *divide_slots(run), *repeats, *divide_slots(line))
        covered = length + (lanes - 1 if variant is SHIFTED else 0)
        return Geometry(variant, -(-covered // (BLOCK * lanes * groups)), head, strides)

    def _columns(self, layouts: Layouts, arrays, outer: list[Axis], inner: Axis) -> Geometry:
        tables, rows = outer, Axis(1, (0,) * len(arrays))
        if outer and not any(outer[-1].strides[place] for place, index in enumerate(arrays) if not self.full[index]):
            tables, rows = outer[:-1], outer[-1]  # the parameters are the same all along this axis
        return self._whole_columns(layouts, arrays, tables, rows, inner) or self._any_columns(
            arrays, tables, rows, inner
        )

    def _whole_columns(self, layouts: Layouts, arrays, tables: list[Axis], rows: Axis, inner: Axis) -> Geometry | None:
        """Tables of whole aligned vectors, or one without gaps; None where the operands are not so."""
        lanes, width, extent = self.boundaries[-1], inner.extent, rows.extent
        if len(tables) > 1 or width < lanes:
            return None
        full = [place for place, index in enumerate(arrays) if self.full[index]]
        gapless = extent == 1 or all(rows.strides[place] == width for place in full)
        lead = behind = length = edges = 0
        if layouts.aligned and width % lanes == 0 and self._aligned(arrays, [*tables, rows], lanes):
            chunks = last = width // lanes
            count, apart = extent, rows.strides
        elif gapless and not tables and layouts.lead is not None and not (self.packed and width % 2 and extent > 1):
            length = width * extent
            lead = layouts.lead if length >= 4 * _SECTOR else layouts.lead % lanes
            vectors = (length - lead) // lanes
            if vectors < 1 or length >= _MOST:
                return None
            behind = lead + vectors * lanes
            edges = int(length - vectors * lanes > 0)
            chunks = min(width // gcd(width, lanes), vectors)
            count, last = -(-vectors // chunks), (vectors - 1) % chunks + 1
            apart = (chunks * lanes,) * len(arrays)
        else:
            return None
        variant, depth = self._columns_variant(chunks * count * (tables[0].extent if tables else 1))
        slabs = -(-count // depth)
        units = chunks * slabs * (tables[0].extent if tables else 1)
        table = tables[0] if tables else Axis(1, (0,) * len(arrays))
        strides = {}
        for place, index in enumerate(arrays):
            each = apart[place] if self.full[index] else inner.strides[place]
            own = tuple(step * self.bits[index] // 8 for step in (table.strides[place], each))
            if any(abs(step) >= 1 << 31 for step in own):
                return None
            strides[self.operation.operands[index].name] = own
        if chunks * lanes >= _MOST or count >= _MOST:
            return None
        blocks = -(-units // BLOCK)
        head = [units, blocks, count, last, *divide_slots(chunks), *divide_slots(slabs), *divide_slots(width)]
        return Geometry(variant, blocks + edges, (*head, lead, behind, length), strides)

    def _columns_variant(self, vectors: int) -> tuple[Variant, int]:
        """The variant for so many vectors, and the rows that a thread of it takes."""
        depth, less = (lanes_of(self.operation, self.types, variant)[1] for variant in (COLUMNS, COLUMNS_SMALL))
        if depth == less or vectors >= self.few_blocks * BLOCK * depth:
            return COLUMNS, depth
        return COLUMNS_SMALL, less

    def _any_columns(self, arrays, tables: list[Axis], rows: Axis, inner: Axis) -> Geometry:
        lanes, together = lanes_of(self.operation, self.types, COLUMNS_UNALIGNED)
        chunks = -(-inner.extent // lanes)
        depth = min(_depth(chunks * rows.extent * _product(tables), _DEEPEST, together), rows.extent)
        strides = self._shares_strides(arrays, [*tables, rows, inner], tables, rows, None, lanes, depth)
        steps = [inner.strides[place] for place, index in enumerate(arrays) if not self.full[index]]
        self._add_steps(strides, arrays, steps)
        runs = _NO_DIVISION * 3
        return self._shares(
            COLUMNS_UNALIGNED, inner.extent, chunks, rows.extent, depth, True, chunks, runs, tables, strides
        )

    def _aligned(self, arrays: Sequence[int], axes: list[Axis], lanes: int) -> bool:
        """Whether steps along some axes keep every operand in the output's shape on boundaries of a vector."""
        return all(
            axis.strides[place] * self.bits[index] % min(128, lanes * self.bits[index]) == 0
            for axis in axes
            for place, index in enumerate(arrays)
            if self.full[index]
        )

    def _outer_strides(self, arrays, axes: list[Axis]) -> dict[str, tuple[int, ...]]:
        free = (0,) * self._free(axes)
        return {
            self.operation.operands[index].name: free + tuple(axis.strides[place] for axis in axes)
            for place, index in enumerate(arrays)
        }

    def _tile(self, arrays, axes: list[Axis], full: list[int], parameters: list[int]) -> Geometry | None:
        if self.packed and self.space and self.space[-1] == 1:
            return None  # the last axis of the space is not the one whose pairs share bytes
        operands = [self.operation.operands[index] for index in arrays]
        blocked = [place for place in parameters if any(dim.block for dim in operands[place].dims)]
        output = operands.index(self.operation.outputs[0])
        tile = tile_of(self.operation, self.types)
        if tile is None:
            return None
        along, across, lanes = tile
        from skuda.tiles import Arrays, plane  # most calls have no use for it

        found = plane(axes, Arrays(output, full, parameters, blocked, self.packed), lanes)
        if found is None:
            return None
        tiles = -(-found.along.extent // along), -(-found.across.extent // across)
        head = [found.along.extent, found.across.extent]
        for divisor in (*tiles, found.along.run, found.across.run):
            head += divide_slots(divisor)
        strides = self._outer_strides(arrays, found.outer)
        for place, operand in enumerate(operands):
            strides[operand.name] += found.steps(place)
        return Geometry(
            TILE, tiles[0] * tiles[1] * _product(found.outer), (*head, *self._outer(found.outer)), strides
        )

    def _strided(self, arrays, axes: list[Axis]) -> Geometry:
        if not axes or (self.packed and self.space[-1] == 1):  # an extent-1 last axis holds one nibble a byte
            axes = [*axes, Axis(1, (0,) * len(arrays))]
        lanes = strided_lanes(self.operation, self.types)
        extents = [axis.extent for axis in axes[:-1]] + [-(-axes[-1].extent // lanes)]
        blocked = [index for index, axis in enumerate(axes) if axis.block > 1]
        free = self._free(axes)
        units = 1
        for extent in extents:
            units *= extent
        head = [units, free, axes[-1].extent, free + blocked[0] if blocked else -1]
        for extent in [axes[blocked[0]].block if blocked else 1, *[1] * free, *extents]:
            head += divide_slots(extent)
        return Geometry(STRIDED, -(-units // BLOCK), tuple(head), self._outer_strides(arrays, axes))


_NO_DIVISION = (0, 0, 0, 0)


def _repeats(period: int) -> tuple[int, int, int, int]:
    return _NO_DIVISION if period == _NEVER else divide_slots(period)


def _depth(shares: int, most: int, together: int) -> int:
    """How many shares a thread takes, `together` at a time."""
    depth = max(1, min(most, shares // _BUSY))
    return depth - depth % together if depth > together else depth


def _product(axes: Sequence[Axis]) -> int:
    result = 1
    for axis in axes:
        result *= axis.extent
    return result


