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
LANES = 16  # elements a thread of the vec kernels takes
AXES = 8  # of the strided kernels' index space
_SHORTEST_RUN = 8  # shorter runs would be prepared more often than used
_FOREVER = 1 << 62  # a period that never ends


@dataclass(frozen=True)
class Variant:
    """One schedule of the map template.

    Attributes:
        name: as in a symbol.
        kernel: suffix of the kernel's name.
        layout: what it serves.
        wide: whether operands start on 16-byte boundaries; None where it does not matter.
    """

    name: str
    kernel: str
    layout: Layout
    wide: bool | None = None


VARIANTS = (
    Variant(f"vec{LANES}", "vec", Layout.CONTIGUOUS, wide=True),
    Variant(f"vec{LANES}_unaligned", "vec", Layout.CONTIGUOUS, wide=False),
    Variant("strided", "strided", Layout.STRIDED),
)
VEC, UNALIGNED, STRIDED = VARIANTS


def entry(operation: Operation, types: Types, variant: Variant) -> str:
    """The NVRTC name expression of a variant's kernel."""
    words = [types[letter] for letter in operation.kernel_letters]
    if variant is STRIDED:
        arguments = [*words, str(strided_lanes(operation, types))]
    else:
        arguments = [*words, str(LANES), "true" if variant.wide else "false"]
    return f"{operation.function}_{variant.kernel}<{', '.join(arguments)}>"


def strided_lanes(operation: Operation, types: Types) -> int:
    """Neighbours that a thread of the strided kernel takes: a packed output is written a byte at a time."""
    return 2 if any(DTYPES[operation.word(o, types)].packed for o in operation.outputs) else 1


def divide_slots(divisor: int) -> tuple[int, int, int]:
    """Divisor, multiplier and shift that divide any 0 <= n < 2^63 exactly (walk.cuh's Divide)."""
    shift = (divisor - 1).bit_length()
    return divisor, -(-(1 << (63 + shift)) // divisor), shift


@dataclass(frozen=True)
class Axis:
    """One axis of the index space: its extent, and each operand's stride along it (elements).

    A packed operand's strides are in nibbles, but along its last axis in bytes: see walk.cuh. `block` is the number of neighbours that share a parameter, where strides of blocked operands count blocks.
    """

    extent: int
    strides: tuple[int, ...]
    block: int = 1


@dataclass(frozen=True)
class Layouts:
    """How the operands of one call lie, in the operation's operand order.

    Attributes:
        strides: of each operand that is an array, as in Axis; None for a single value.
        contiguous: whether each lies in C order without gaps (in elements, so a packed odd row has a gap).
        aligned: whether every array in the output's shape starts on a 16-byte boundary.
    """

    strides: tuple[tuple[int, ...] | None, ...]
    contiguous: tuple[bool, ...]
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
        self.count = 1
        for extent in self.space:
            self.count *= extent
        self.packed = any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands)
        self.full = tuple(operand.dims == operation.space for operand in operation.operands)
        self.parameters = tuple(
            operand for operand, full in zip(operation.operands, self.full, strict=True) if not full and not operand.scalar
        )

    def geometry(self, layouts: Layouts) -> Geometry:
        """The launch that serves operands which lie so."""
        flat = all(
            contiguous for contiguous, full in zip(layouts.contiguous, self.full, strict=True) if full
        )
        if flat:
            runs = self._runs(layouts)
            if runs is not None:
                head, strides = runs
                threads = -(-self.count // LANES)
                variant = VEC if layouts.aligned else UNALIGNED
                return Geometry(variant, -(-threads // BLOCK), (self.count, *head), strides)
        return self._strided(layouts)

    def _axes(self, layouts: Layouts, which: Sequence[bool]) -> list[Axis]:
        """The index space seen by some of the operands: blocks that divide their axis become axes of their own,
        extent-1 axes are dropped, neighbours that all operands step through alike are merged."""
        operation = self.operation
        chosen = [
            (operand, strides)
            for operand, strides, wanted in zip(operation.operands, layouts.strides, which, strict=True)
            if wanted and strides is not None
        ]
        axes: list[Axis] = []
        for dim in operation.space:
            extents = self.sizes[dim.name] if dim.many else (self.sizes[dim.name],)
            for part, extent in enumerate(extents):
                block = 1
                steps = []
                for operand, strides in chosen:
                    step, block_name = _step(operand, strides, dim.name, part, self.sizes)
                    steps.append(step)
                    if block_name is not None:
                        block = min(self.sizes[block_name], extent) or 1
                blocked = [_blocked(operand, dim.name) for operand, _ in chosen]
                if extent % block or (block % 2 and self.packed):  # a byte must not straddle two axes
                    axes.append(Axis(extent, tuple(steps), block))
                else:
                    axes += _split(extent, tuple(steps), block, blocked)
        return _merged([axis for axis in axes if axis.extent != 1], 2 if self.packed else 1)

    def _runs(self, layouts: Layouts) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]] | None:
        """Slots of walk.cuh's Runs, and each parameter's stride; None where the parameters are not in such runs."""
        if not self.parameters:
            return (), {}
        wanted = [operand in self.parameters for operand in self.operation.operands]
        axes = self._axes(layouts, wanted)
        run = axes.pop().extent if axes and not any(axes[-1].strides) else 1
        row, runs = run, 1
        steps: tuple[int, ...] | None = None
        if axes and axes[-1].block > 1:
            if run != 1:
                return None
            blocks = axes.pop()
            row, run, runs, steps = blocks.extent, blocks.block, -(-blocks.extent // blocks.block), blocks.strides
        period = _FOREVER
        if axes and any(axes[-1].strides):
            outer = axes.pop()
            if outer.block > 1 or (steps is not None and outer.strides != tuple(step * runs for step in steps)):
                return None
            steps = outer.strides if steps is None else steps
            if axes:
                period = outer.extent * runs
        elif axes and steps is not None:
            period = runs
        if axes and not any(axes[-1].strides):
            axes.pop()
        if axes or (run < _SHORTEST_RUN and run < self.count):
            return None
        if steps is None:
            steps = (0,) * len(self.parameters)
        head = (*divide_slots(row), *divide_slots(run), *divide_slots(period), runs)
        return head, {operand.name: (step,) for operand, step in zip(self.parameters, steps, strict=True)}

    def _strided(self, layouts: Layouts) -> Geometry:
        operands = [
            operand
            for operand, strides in zip(self.operation.operands, layouts.strides, strict=True)
            if strides is not None
        ]
        axes = self._strided_axes(layouts)
        last = axes[-1]
        lanes = strided_lanes(self.operation, self.types)
        threads_last = -(-last.extent // lanes)
        extents = [axis.extent for axis in axes[:-1]] + [threads_last]
        blocked = [index for index, axis in enumerate(axes) if axis.block > 1]
        free = AXES - len(axes)
        if free < 0:
            raise Unsupported(
                f"{self.operation.class_name}Plan: strides that need {len(axes)} axes after merging, at most {AXES} are served; "
                "copy an operand to a contiguous array"
            )
        block_axis = free + blocked[0] if blocked else -1
        head = [free, last.extent, block_axis, *divide_slots(axes[blocked[0]].block if blocked else 1)]
        for extent in [1] * free + extents:
            head += divide_slots(max(extent, 1))
        total = 1
        for extent in extents:
            total *= extent
        strides = {
            operand.name: (0,) * free + tuple(axis.strides[index] for axis in axes)
            for index, operand in enumerate(operands)
        }
        return Geometry(STRIDED, -(-total // BLOCK), (total, *head), strides)

    def _strided_axes(self, layouts: Layouts) -> list[Axis]:
        axes = self._axes(layouts, [True] * len(self.full))
        operands = sum(strides is not None for strides in layouts.strides)
        if not axes:
            axes = [Axis(1, (0,) * operands)]
        if self.packed and self.space and self.space[-1] == 1:  # an extent-1 last axis holds one nibble a byte
            axes.append(Axis(1, (0,) * operands))
        return axes


def _blocked(operand: Operand, name: str) -> bool:
    return any(dim.name == name and dim.block is not None for dim in operand.dims)


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
