"""The host side of elementwise programs: which variant serves some arguments, and the parameters that it takes.

Selection goes by structure: are the operands contiguous, on 16-byte boundaries, in runs that share parameters? The
slots are written in the order in which the template declares the kernel's arguments, eight bytes each.

What most calls need is here, `vec` in one row. The others are imported when something lies so: `groups`, `columns`,
`tiles`, `broadcasts`, and `strided` for whatever is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.model.operation import Operation, Types
from skuda.schedules import abi
from skuda.schedules.axes import Axis, index_space
from skuda.schedules.elementwise_variants import TABLED_BITS, has_table, lanes_of, tile_of, unaligned_small
from skuda.schedules.geometry import (
    MARGIN,
    MOST,
    MOST_FLAT,
    NEVER,
    SECTOR,
    Geometry,
    KernelGeometry,
    Layouts,
    divide_slots,
    gapless,
    product,
    repeats,
)
from skuda.schedules.table import variants
from skuda.schedules.variant import (
    BLOCK,
    BROADCAST,
    COLUMNS,
    COLUMNS_UNALIGNED,
    ROWS,
    SHIFTED,
    SHIFTED_SMALL,
    SINGLE_SMALL,
    TABULATE,
    TUNED,
    VEC,
    VEC_SMALL,
    Variant,
)

_TABLE_ENTRIES = 1 << TABLED_BITS
_TABLE_BYTES = _TABLE_ENTRIES * TABLED_BITS // 8
_TABULATED, _TABLED_LANES = 2, 8  # entries that a thread of `tabulate` makes; elements of a vector of `look_up`
_SHORTEST = 8  # shorter rows and runs would be prepared more often than used


class ElementwiseKernels(KernelGeometry):
    """Geometry of one operation at fixed types and sizes.

    Columns kernels count vectors of arrays that are not aligned alike from boundaries of sectors, which saves memory
    transactions, else from those of vectors.

    Attributes:
        space: extents of the index space.
        few_blocks: fewer leave a GPU idle, so threads take less each; 0: as if there were never few. A constant, so
            that no call asks for the device.
        single_blocks: up to so many take elements one by one; 0: as if there were more.
        multiprocessors: of the device, and cluster_shared: as of `RowKernels`. Who launches an operation with tables
            says what they are.
        tabled_elements: elements from which on results are looked up; of the longest formulas fewer.
        many_blocks: from so many on, those of long formulas take several shares each.
        served: the schedules that there are; None where that is all of them. Fewer have none for few elements.
    """

    few_blocks = TUNED.few_blocks
    single_blocks = TUNED.single_blocks
    multiprocessors = TUNED.multiprocessors
    cluster_shared = TUNED.shared_bytes
    tabled_elements = TUNED.tabled_elements
    many_blocks = TUNED.vec_blocks

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        super().__init__(operation, types, sizes)
        self.space = operation.shape_of(operation.outputs[0], sizes)
        self.served = variants(operation, types) if operation.of_alternative else None
        if self.served:
            self.few_blocks = 0
        self.boundaries = SECTOR, lanes_of(operation, types, COLUMNS)[0]
        self._is_long = operation.analysis.long and set(self.bits) == {32}
        self._has_table = operation.analysis.tabled and has_table(operation, types)

    @property
    def workspace(self) -> int:
        """Bytes of scratch memory that a launch needs at most."""
        return _TABLE_BYTES if self._is_tabled(prod(self.space)) else 0

    def _is_tabled(self, length: int) -> bool:
        """Whether a row's results are looked up, if it lies so."""
        many = self.tabled_elements <= length * self.operation.analysis.tabled
        return self._has_table and many and length < MOST_FLAT and self.cluster_shared >= _TABLE_BYTES

    def _tabled(self, arrays, length: int) -> Geometry:
        """A launch of runtime/cuda/tabulate.cuh: a block of each multiprocessor has a table and a part of the row."""
        strides = {self.operation.operands[index].name: () for index in arrays}
        blocks = min(self.multiprocessors, -(-length // (TUNED.look_up_threads * _TABLED_LANES)))
        grid = _TABLE_ENTRIES // (TUNED.tabulate_threads * _TABULATED)
        head, finish = abi.TABLED.pack(length=length), (blocks, TUNED.look_up_threads)
        return Geometry(TABULATE, grid, head, strides, TUNED.tabulate_threads, finish, _TABLE_BYTES, 0, _TABLE_BYTES)

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
        full = [position for position, index in enumerate(arrays) if self.full[index]]
        parameters = [position for position, index in enumerate(arrays) if not self.full[index]]
        if axes and axes[-1].extent >= min(_SHORTEST, max(axis.extent for axis in axes)) and all(
            axes[-1].strides[position] == 1 for position in full
        ):
            row = self._best_row(axes, full, parameters, layouts.aligned)
            found = None
            if row is not None:
                found = self._in_lines(layouts.aligned, arrays, axes, *row)
            elif all(axis.block == 1 for axis in axes):
                from skuda.schedules import columns

                found = columns.in_columns(self, layouts, arrays, axes)
            if found is not None and found.head[0] < MOST and (not self.served or found.variant in self.served):
                shares = found.variant in (ROWS, COLUMNS_UNALIGNED)
                return self._in_shares(found, layouts.aligned, arrays, axes, full) if shares else found
        return self._in_any_order(arrays, axes, full, parameters)

    def _in_lines(self, aligned: bool, arrays, axes: list[Axis], start: int, length: int, run: int, period: int, steps):
        """Lines along the axes from `start` on, as `row` describes them."""
        found = None if start else self._flat(arrays, aligned, length, run, period, steps)
        if found is None:
            from skuda.schedules import broadcasts, groups

            if start and aligned:
                found = broadcasts.in_broadcast(self, arrays, axes) if self._takes_few(arrays, axes) else None
                found = found or groups.pitched(self, arrays, axes, start, length)
            found = found or groups.in_groups(self, arrays, axes)
        if found is None:
            from skuda.schedules import strided

            found = strided.in_rows(self, arrays, axes, start, length, run, period, steps)
        return found

    def _takes_few(self, arrays, axes: list[Axis]) -> bool:
        """Whether there are functions of so few elements that a thread should take one vector of them (`broadcast`)."""
        if not self.few_blocks or product(axes) > self.single_blocks * TUNED.small_threads * 2:
            return False
        return bool(self.operation.analysis.precise_as) and all([self.full[index] for index in arrays])

    def _in_shares(self, found: Geometry, aligned: bool, arrays, axes: list[Axis], full: list[int]) -> Geometry:
        """The launch `found`, whose threads take shares of rows, or one of `broadcast`."""
        from skuda.schedules import broadcasts

        alone = self._one_by_one(found.variant is not ROWS, aligned, arrays, axes, full)
        return (broadcasts.in_broadcast(self, arrays, axes) if alone else None) or found

    def _one_by_one(self, columns: bool, aligned: bool, arrays, axes: list[Axis], full: list[int]) -> bool:
        """Whether vectors that are found one by one take less time than shares of rows.

        So it is of rows of whole vectors that have gaps and are not short. Of others it is so where inputs repeat or
        have gaps, but for long rows of which a vector reads many bytes; and where parameters differ between `columns`
        of several tables without gaps, or of rows with, but for long ones of which sixteen elements are stored at once,
        and where no two rows have the same.
        """
        lanes, extent = lanes_of(self.operation, self.types, BROADCAST)[0], axes[-1].extent
        flat, steps = gapless(axes), [[axis.strides[position] for axis in axes] for position in full]
        repeats, gaps = any([0 in each for each in steps]), any([0 not in each and each != flat for each in steps])
        if lanes > 4 and aligned and extent % lanes == 0 and self.keep_aligned(arrays, axes[:-1], lanes):
            return gaps and not (columns or repeats) and lanes == 8 and extent >= TUNED.broadcast_vectors_least
        if columns and gaps:
            return lanes <= 8 or extent < TUNED.columns_unaligned_least
        if columns:
            return len(axes) > 2 or (len(axes) > 1 and self._is_lone_row(axes, full, len(arrays)))
        read = [self.bits[arrays[position]] for position in full if arrays[position] < len(self.operation.inputs)]
        wide = extent >= TUNED.broadcast_most and lanes * sum(read) >= TUNED.broadcast_bits
        return repeats or (gaps and not wide)

    @staticmethod
    def _is_lone_row(axes: list[Axis], full: list[int], operands: int) -> bool:
        """Whether parameters differ from row to row and within: each table of columns has one row."""
        return any(
            all(axis.strides[position] for axis in axes) for position in range(operands) if position not in full
        )

    def _in_any_order(self, arrays, axes: list[Axis], full: list[int], parameters: list[int]) -> Geometry:
        """Operands of which some run along another axis than the output, or along none."""
        found, tile = None, tile_of(self.operation, self.types)
        # Where the last axis has one element, it is not the one whose pairs share bytes.
        if tile is not None and not (self.packed and self.space and self.space[-1] == 1):
            from skuda.schedules import tiles

            found = tiles.in_tiles(self, arrays, axes, full, parameters, tile)
        if found is None:
            from skuda.schedules import broadcasts, strided

            found = broadcasts.in_broadcast(self, arrays, axes) or strided.strided(self, arrays, axes)
        return found

    # ---- rows ----

    def _best_row(self, axes: list[Axis], full: list[int], parameters: list[int], aligned: bool):
        """(start, length, run, period, step of each parameter): the axes that make the longest row, from `start` on,
        or a shorter one where vectors of that straddle too many runs; None where none do."""
        lanes = lanes_of(self.operation, self.types, ROWS)[0]
        best = None
        for start in range(len(axes)):
            if any(axis.block > 1 for axis in axes[:start]):
                break  # rows are found without blocks
            row = self.row(axes[start:], full, parameters)
            if row is None or max(-(-row[0] // lanes), product(axes[:start])) > MOST:
                continue
            best = best or (start, *row)
            length, run = row[:2]
            flat = aligned and not start and length < MOST_FLAT  # all of it by `vec`
            if not start and self._is_taken_singly(aligned, length):  # not in vectors
                return start, *row
            if run >= length or run % lanes == 0 or run >= (TUNED.straddle_aligned * lanes if flat else TUNED.straddle):
                return start, *row
        return best

    def row(self, axes: list[Axis], full: list[int], parameters: list[int]):
        """(length, run, period, step of each parameter) where these axes are one row; None where they are not.

        A row is gapless for the operands in the output's shape. Along it the parameters are constant over an outer
        part, then step from run to run, then are constant over a run.
        """
        length = 1
        for axis in reversed(axes):
            pitched = any(axis.strides[position] != length for position in full)
            if pitched or (self.packed and length % 2 and length > 1):
                return None
            length *= axis.extent
        return self.runs(axes, parameters)

    def runs(self, axes: list[Axis], parameters: list[int]):
        """The same for axes that are taken for one row, whether it has gaps or not."""
        length = product(axes)
        steps = [tuple(axis.strides[position] for position in parameters) for axis in axes]
        if axes[-1].block > 1:
            return (length, axes[-1].block, NEVER, steps[-1]) if len(axes) == 1 else None
        if any(axis.block > 1 for axis in axes):
            return None
        run = 1
        while steps and not any(steps[-1]):
            run *= axes[len(steps) - 1].extent
            steps.pop()
        if not steps:
            return length, run, NEVER, (0,) * len(parameters)
        step, runs = steps.pop(), axes[len(steps)].extent
        while steps and steps[-1] == tuple(each * runs for each in step):
            steps.pop()
            runs *= axes[len(steps)].extent
        if any(any(each) for each in steps) or run < _SHORTEST:
            return None
        return length, run, runs if steps else NEVER, step

    def _flat(self, arrays, aligned: bool, length: int, run: int, period: int, steps) -> Geometry | None:
        """One row; None where it is too long or too short, or its parameters lie too far apart or change too often."""
        if self._is_tabled(length):
            return self._tabled(arrays, length)
        variant = self._of_few(aligned, length) or (VEC if aligned else SHIFTED)
        lanes, groups = lanes_of(self.operation, self.types, variant)
        if not aligned and variant is not SINGLE_SMALL and run < length and run < TUNED.straddle:
            return None
        if variant in (SHIFTED, SHIFTED_SMALL) and length < lanes + 2 * MARGIN:
            return None
        gaps = dict.fromkeys(arrays, 0)
        return self.one_row(variant, lanes, groups, arrays, length, run, period, steps, length, gaps)

    def _of_few(self, aligned: bool, length: int) -> Variant | None:
        """The schedule of so few elements of one row; None where there are more."""
        if self._is_taken_singly(aligned, length):
            return SINGLE_SMALL
        operation, types = self.operation, self.types
        small = VEC_SMALL if aligned else unaligned_small(operation, types)
        usual, vectors = (lanes_of(operation, types, each) for each in (VEC if aligned else SHIFTED, small))
        if not self.few_blocks or small is SINGLE_SMALL or vectors == usual:
            return None
        blocks = TUNED.small_blocks if aligned else TUNED.small_shifted_blocks
        narrow = vectors[0] < usual[0] and not operation.analysis.precise_as
        return small if length <= blocks // (2 if narrow else 1) * TUNED.small_threads * vectors[0] else None

    def _is_taken_singly(self, aligned: bool, length: int) -> bool:
        """Whether so few elements of one row are taken one by one.

        So are those that begin anywhere: a thread has fewer instructions to fetch than for vectors that are shifted
        into place. Of others it is so where there are no shorter vectors, or where functions of fewer elements follow
        each other sooner in a thread.
        """
        operation, types = self.operation, self.types
        if not self.few_blocks or unaligned_small(operation, types) is not SINGLE_SMALL:
            return False
        each, functions = lanes_of(operation, types, SINGLE_SMALL)[1], bool(operation.analysis.precise_as)
        if aligned:
            vectors = lanes_of(operation, types, VEC_SMALL)
            several = sum(operand.dims == operation.space for operand in operation.read) > 1
            sooner = functions and (operation.analysis.long or several) and each < vectors[0] <= 4
            if not sooner and vectors != lanes_of(operation, types, VEC):
                return False
            most = min(2, each)
        else:
            most = each * (2 if functions else 1)
        return length <= self.single_blocks * TUNED.small_threads * most

    def one_row(
        self, variant, lanes: int, groups: int, arrays, length: int, run: int, period: int, steps, line: int, gaps
    ) -> Geometry | None:
        """A launch of runtime/cuda/vec.cuh; None as of `_flat`.

        Args:
            variant, lanes, groups: which, elements of a vector, and vectors that a thread takes.
            arrays: positions of the operands that are arrays.
            length, run, period, steps: as of `row`.
            line: elements from one gap to the next.
            gaps: elements of them, of each operand in the output's shape.
        """
        parameters = [index for index in arrays if not self.full[index]]
        apart = [step * self.bits[index] // 8 for index, step in zip(parameters, steps, strict=True)]
        run = min(run, length)
        ends = -(-length // run) * run  # the last run may end beyond the row
        if length < lanes or ends >= MOST_FLAT or any(abs(each) >= 1 << 31 for each in apart):
            return None
        strides = {self.operation.operands[index].name: (gaps.get(index, 0),) for index in arrays}
        for index, each in zip(parameters, apart, strict=True):
            strides[self.operation.operands[index].name] = (each,)
        head = abi.FLAT.pack(length=length, run=divide_slots(run), period=repeats(period), line=divide_slots(line))
        covered = length + (lanes - 1 if variant in (SHIFTED, SHIFTED_SMALL) else 0)
        block = TUNED.small_threads if variant in (VEC_SMALL, SINGLE_SMALL) else BLOCK
        grid = -(-covered // (block * lanes * groups))
        turns = TUNED.vec_turns if self._is_long and not variant.of_few and grid >= self.many_blocks else 1
        return Geometry(variant, -(-grid // turns), head, strides, block)

    def keep_aligned(self, arrays: Sequence[int], axes: list[Axis], lanes: int) -> bool:
        """Whether steps along some axes keep every operand in the output's shape on boundaries of a vector."""
        return all(
            axis.strides[position] * self.bits[index] % min(128, lanes * self.bits[index]) == 0
            for axis in axes
            for position, index in enumerate(arrays)
            if self.full[index]
        )
