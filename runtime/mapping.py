"""The host side of templates/map.cu.jinja: which variant serves some arguments, and the parameters that it takes.

Selection goes by structure: are the operands contiguous, on 16-byte boundaries, in runs that share parameters? The
slots are written in the order in which the template declares the kernel's arguments, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skuda.dtypes import DTYPES
from skuda.errors import Unsupported
from skuda.operation import Operand, Operation, Types
from skuda.sku import Layout

BLOCK = 128  # threads
AXES = 8  # of a kernel's index space
DEPTH = 16  # rows that a thread of a columns kernel takes
_SHORTEST = 8  # shorter rows and runs would be prepared more often than used
_MOST_FLAT = (1 << 31) - (1 << 16)  # elements that 32-bit indices reach, those of the last block's idle threads too
_NEVER = 0  # the period of parameters that do not repeat


@dataclass(frozen=True)
class Variant:
    """One schedule of the map template.

    Attributes:
        kernel: suffix of the kernel's name.
        layout: what it serves.
        simple: vec: the operands are one contiguous row on a 16-byte boundary; columns: rows start on a vector's
            boundary.
        suffix: what the name of the general form ends in.
    """

    kernel: str
    layout: Layout
    simple: bool = True
    suffix: str = ""


VEC = Variant("vec", Layout.CONTIGUOUS)
ROWS = Variant("vec", Layout.STRIDED, simple=False, suffix="_rows")
COLUMNS = Variant("columns", Layout.STRIDED)
COLUMNS_UNALIGNED = Variant("columns", Layout.STRIDED, simple=False, suffix="_unaligned")
STRIDED = Variant("strided", Layout.STRIDED)


def variants(operation: Operation, types: Types) -> tuple[Variant, ...]:
    """The schedules that some call of an operation at these types can reach.

    Columns need parameters that change along the last axis. With an unpacked element any axis may be the last that
    counts, those after it having one element; a packed row of one element has a gap, so there it must be the last one.
    """
    parameters = [operand for operand in operation.inputs if is_parameter(operation, operand)]
    if any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands):
        ends = set()
        for dim in reversed(operation.space):
            ends.add(dim.name)
            if not dim.many:
                break
        parameters = [operand for operand in parameters if ends & {dim.name for dim in operand.dims}]
    return (VEC, ROWS, *((COLUMNS, COLUMNS_UNALIGNED) if parameters else ()), STRIDED)


def is_parameter(operation: Operation, operand: Operand) -> bool:
    """Whether several output elements share each of its elements, and it has more than one."""
    return operand.dims != operation.space and not operand.scalar


def variant_name(operation: Operation, types: Types, variant: Variant) -> str:
    """As in a symbol: `vec16`, `vec16_rows`, `columns4`, `strided`."""
    if variant is STRIDED:
        return variant.kernel
    lanes = _lanes(operation, types, variant)[0]
    return f"{variant.kernel}{lanes}{variant.suffix}"


def entry(operation: Operation, types: Types, variant: Variant) -> str:
    """The NVRTC name expression of a variant's kernel."""
    arguments = [types[letter] for letter in operation.kernel_letters]
    if variant is STRIDED:
        arguments.append(str(strided_lanes(operation, types)))
    else:
        arguments += [*map(str, _lanes(operation, types, variant)), "true" if variant.simple else "false"]
    return f"{operation.function}_{variant.kernel}<{', '.join(arguments)}>"


def _lanes(operation: Operation, types: Types, variant: Variant) -> tuple[int, int]:
    """Neighbours that a thread takes at once, and how often (vec: groups, columns: rows).

    A vec thread stores 16 bytes at once, so that a warp writes whole lines, and has 64 bytes of loads under way; but
    beyond two stores of wide elements it gains nothing from more.
    """
    words = {operand: DTYPES[operation.word(operand, types)].bits for operand in operation.operands}
    if variant.kernel == "columns":
        return (8 if variant.simple else 2 if min(words.values()) < 8 else 1), DEPTH
    inputs = [words[operand] for operand in operation.inputs if operand.dims == operation.space]
    widest = max(words[operand] for operand in operation.outputs)
    lanes = min(16, 128 // widest, 512 // max(inputs))
    return lanes, max(1, min(4 if widest <= 16 else 2, 512 // (lanes * sum(inputs))))


def strided_lanes(operation: Operation, types: Types) -> int:
    """Neighbours that a thread of the strided kernel takes: a packed output is written a byte at a time."""
    return 2 if any(DTYPES[operation.word(o, types)].packed for o in operation.outputs) else 1


def divide_slots(divisor: int) -> tuple[int, int, int, int]:
    """Divisor, multipliers for n < 2^63 and for n < 2^31, and shift: walk.cuh's Divide."""
    shift = (divisor - 1).bit_length()
    narrow = -(-(1 << (31 + shift)) // divisor) if shift < 32 else 0
    return divisor, -(-(1 << (63 + shift)) // divisor), narrow, shift


@dataclass(frozen=True)
class Axis:
    """One axis of the index space: its extent, and each operand's stride along it (elements).

    A packed operand's strides are in nibbles, but along its last axis in bytes: see walk.cuh. `block` is the number of
    neighbours that share a parameter; strides of blocked operands then count blocks.
    """

    extent: int
    strides: tuple[int, ...]
    block: int = 1


@dataclass(frozen=True)
class Layouts:
    """How the operands of one call lie, in the operation's operand order.

    Attributes:
        strides: of each operand that is an array, as in Axis; None for a single value.
        aligned: whether every array in the output's shape starts on a 16-byte boundary.
    """

    strides: tuple[tuple[int, ...] | None, ...]
    aligned: bool


@dataclass(frozen=True)
class Geometry:
    """Everything of a launch but pointers and numbers.

    Attributes:
        variant: what runs.
        grid: blocks of BLOCK threads.
        head: slots before the operands'.
        strides: slots that follow each array operand's pointer, by operand name.
    """

    variant: Variant
    grid: int
    head: tuple[int, ...]
    strides: Mapping[str, tuple[int, ...]]


class MapKernels:
    """Geometry of one operation at fixed types and sizes."""

    def __init__(self, operation: Operation, types: Types, sizes: Mapping[str, int | tuple[int, ...]]):
        self.operation = operation
        self.types = types
        self.sizes = sizes
        self.space = operation.shape_of(operation.outputs[0], sizes)
        self.bits = tuple(DTYPES[operation.word(operand, types)].bits for operand in operation.operands)
        self.packed = any(bits < 8 for bits in self.bits)
        self.full = tuple(operand.dims == operation.space for operand in operation.operands)

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so."""
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        axes = self._axes(layouts, arrays)
        full = [place for place, index in enumerate(arrays) if self.full[index]]
        parameters = [place for place, index in enumerate(arrays) if not self.full[index]]
        if axes and axes[-1].extent >= min(_SHORTEST, max(axis.extent for axis in axes)) and all(
            axes[-1].strides[place] == 1 for place in full
        ):
            for start in range(len(axes)):
                if any(axis.block > 1 for axis in axes[:start]):
                    break  # the rows' places are found without blocks
                runs = self._row(axes[start:], full, parameters)
                if runs is not None:
                    return self._vec(layouts, arrays, axes[:start], *runs)
            if all(axis.block == 1 for axis in axes):
                return self._columns(layouts, arrays, axes[:-1], axes[-1])
        return self._strided(arrays, axes)

    # ---- the index space ----

    def _axes(self, layouts: Layouts, arrays: Sequence[int]) -> list[Axis]:
        """The index space seen by the arrays: blocks that divide their axis become axes of their own, extent-1 axes
        are dropped, neighbours that all operands step through alike are merged."""
        operands = [self.operation.operands[index] for index in arrays]
        strides = [layouts.strides[index] for index in arrays]
        axes: list[Axis] = []
        for dim in self.operation.space:
            extents = self.sizes[dim.name] if dim.many else (self.sizes[dim.name],)
            for part, extent in enumerate(extents):
                block = 1
                steps = []
                for operand, of in zip(operands, strides, strict=True):
                    step, block_name = _step(operand, of, dim.name, part, self.sizes)
                    steps.append(step)
                    if block_name is not None:
                        block = min(self.sizes[block_name], extent) or 1
                blocked = [any(d.name == dim.name and d.block for d in operand.dims) for operand in operands]
                if extent % block or (block % 2 and self.packed):  # a byte must not straddle two axes
                    axes.append(Axis(extent, tuple(steps), block))
                else:
                    axes += _split(extent, tuple(steps), block, blocked)
        return _merged([axis for axis in axes if axis.extent != 1], 2 if self.packed else 1)

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

    def _rows_aligned(self, layouts: Layouts, arrays: Sequence[int], axes: list[Axis], bits: int) -> bool:
        """Whether every row of every operand in the output's shape starts on a boundary of so many bits."""
        return layouts.aligned and all(
            axis.strides[place] * self.bits[index] % bits == 0
            for axis in axes
            for place, index in enumerate(arrays)
            if self.full[index]
        )

    # ---- variants ----

    def _vec(self, layouts: Layouts, arrays, outer: list[Axis], length: int, run: int, period: int, steps) -> Geometry:
        variant = VEC if layouts.aligned and not outer and length < _MOST_FLAT else ROWS
        lanes, groups = _lanes(self.operation, self.types, variant)
        chunks = -(-(length + (0 if variant.simple else lanes - 1)) // lanes)
        units = chunks * _product(outer)
        repeats = (0, 0, 0, 0) if period == _NEVER else divide_slots(period)
        head = [units, length, *divide_slots(chunks), *divide_slots(run), *repeats, *self._outer(outer)]
        strides = self._outer_strides(arrays, outer)
        parameters = [self.operation.operands[index].name for index in arrays if not self.full[index]]
        for name, step in zip(parameters, steps, strict=True):
            strides[name] += (step,)
        return Geometry(variant, -(-units // (BLOCK * groups)), tuple(head), strides)

    def _columns(self, layouts: Layouts, arrays, outer: list[Axis], inner: Axis) -> Geometry:
        bits = min(128, 8 * max(bits for bits, full in zip(self.bits, self.full, strict=True) if full))
        variant = COLUMNS if self._rows_aligned(layouts, arrays, outer, bits) else COLUMNS_UNALIGNED
        lanes, depth = _lanes(self.operation, self.types, variant)
        tables, rows = outer, Axis(1, (0,) * len(arrays))
        if outer and not any(outer[-1].strides[place] for place, index in enumerate(arrays) if not self.full[index]):
            tables, rows = outer[:-1], outer[-1]  # the parameters are the same all along this axis
        chunks, slabs = -(-inner.extent // lanes), -(-rows.extent // depth)
        units = chunks * slabs * _product(tables)
        head = [units, rows.extent, inner.extent, *divide_slots(chunks), *divide_slots(slabs), *self._outer(tables)]
        strides = self._outer_strides(arrays, tables)
        for place, index in enumerate(arrays):
            step = rows.strides[place] if self.full[index] else inner.strides[place]
            strides[self.operation.operands[index].name] += (step,)
        return Geometry(variant, -(-units // BLOCK), tuple(head), strides)

    def _outer_strides(self, arrays, axes: list[Axis]) -> dict[str, tuple[int, ...]]:
        free = (0,) * self._free(axes)
        return {
            self.operation.operands[index].name: free + tuple(axis.strides[place] for axis in axes)
            for place, index in enumerate(arrays)
        }

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


def _product(axes: Sequence[Axis]) -> int:
    result = 1
    for axis in axes:
        result *= axis.extent
    return result


def _step(operand: Operand, strides: tuple[int, ...], name: str, part: int, sizes) -> tuple[int, str | None]:
    """An operand's stride along one axis of a dimension (0 where it has none), and the block attribute of that."""
    axis = 0
    for dim in operand.dims:
        if dim.name == name:
            return strides[axis + part], dim.block
        axis += len(sizes[dim.name]) if dim.many else 1
    return 0, None


def _split(extent: int, steps: tuple[int, ...], block: int, blocked: list[bool]) -> list[Axis]:
    """The axis of blocks, and that of the elements of a block."""
    outer = tuple(step if is_blocked else step * block for step, is_blocked in zip(steps, blocked, strict=True))
    inner = tuple(0 if is_blocked else step for step, is_blocked in zip(steps, blocked, strict=True))
    return [Axis(extent // block, outer), Axis(block, inner)]


def _merged(axes: list[Axis], even: int) -> list[Axis]:
    """Neighbouring axes as one where every operand steps from the one into the other without a gap, and the inner
    one's extent is a multiple of `even`."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and axis.block == 1 and merged[-1].block == 1 and axis.extent % even == 0:
            outer = merged[-1]
            if all(a == b * axis.extent for a, b in zip(outer.strides, axis.strides, strict=True)):
                merged[-1] = Axis(outer.extent * axis.extent, axis.strides)
                continue
        merged.append(axis)
    return merged
