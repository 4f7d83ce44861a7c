"""How a call runs on the CPU: which schedule, with which arguments, by which threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

from skuda.arrays.libraries import library_named
from skuda.arrays.views import CPU, View
from skuda.cpu import library, workers
from skuda.cpu.source import FEW_ROWS, PART_SEGMENTS, PIECE
from skuda.errors import Unsupported
from skuda.model.operation import Operation
from skuda.model.sum_order import SEGMENT
from skuda.schedules import strided
from skuda.schedules.axes import index_space
from skuda.schedules.elementwise import ElementwiseKernels
from skuda.schedules.elementwise_variants import strided_lanes
from skuda.schedules.geometry import Geometry, KernelGeometry, Layouts
from skuda.schedules.row_reduction import RowKernels
from skuda.schedules.variant import CPU_ELEMENTWISE, CPU_ROWS, CPU_SCANS

if TYPE_CHECKING:
    from skuda.launch.prepared import Launch
    from skuda.plans.plan import Plan

SHORT = 16  # elements: the way to a line takes longer than so many
ALONE = 1 << 14  # elements: fewer are one thread's, whatever is made of them
WAKE = 4e-4  # seconds of work that are worth waking threads for
SHARES = 4  # of a thread, so that all end together


class CpuElementwise(ElementwiseKernels):
    """Lines of the last axis, in pieces; of the longest one where the last is short."""

    def geometry(self, layouts: Layouts) -> Geometry:
        arrays = [index for index, strides in enumerate(layouts.strides) if strides is not None]
        operands = [self.operation.operands[index] for index in arrays]
        axes = index_space(self.operation, self.sizes, operands, [layouts.strides[i] for i in arrays], self.packed)
        if not self.packed and axes and axes[-1].extent < SHORT and all(axis.block == 1 for axis in axes):
            axes.append(axes.pop(max(range(len(axes)), key=lambda each: axes[each].extent)))
        found = strided.strided(self, arrays, axes)
        units, _, last = found.head[:3]
        lines = units // -(-last // strided_lanes(self.operation, self.types))
        return found.but(variant=CPU_ELEMENTWISE, grid=lines * -(-last // PIECE))


class CpuRows(RowKernels):
    """Rows, each by one thread, or few long ones in parts."""

    def __init__(self, operation, types, sizes):
        super().__init__(operation, types, sizes)
        self.split, self.workspace = None, 0

    def geometry(self, layouts: Layouts) -> Geometry:
        if self.packed and (reason := self.bytes_shared()):
            raise Unsupported(f"{self.operation.class_name}Plan: {reason}")
        arrays, operands, rows = self.found_in(layouts)
        strides = self.strides_of(operands, arrays, rows)
        if self.operation.analysis.scans:
            return Geometry(CPU_SCANS, rows.count, rows.head, strides)
        count, length = rows.head[:2]
        parts = -(-length // (PART_SEGMENTS * SEGMENT)) if count <= FEW_ROWS else 1
        return Geometry(CPU_ROWS, rows.count * max(1, parts), rows.head, strides)


def kernels_of(operation: Operation, types, sizes) -> KernelGeometry:
    """What says how a call is launched on the CPU."""
    return (CpuRows if operation.analysis.over else CpuElementwise)(operation, types, sizes)


def run(plan: Plan, checked: Sequence[View | int | float]) -> None:
    """Computes a plan's outputs.

    Raises:
        CompileError: the compiler refused a kernel; nothing is written then.
    """
    launch = plan.launch_for(checked)
    scratch = library_named("numpy").scratch(launch.workspace, CPU, 0)
    steps = []
    for each, filled in launch.launches(checked, scratch.ctypes.data):
        function = library.kernel(*each.source, each.entries[0])
        steps.append((function, each.slots.pack(filled)[0], each.grid))
    elements = max([prod(shape) for shape in plan.shapes])
    for function, memory, units in steps:
        _share(elements, function, ctypes.addressof(memory), units)


def starting(launches: Sequence[Launch], elements: int) -> dict[str, Any]:
    """What starts launches on the CPU, by the names that `launch.fast_path_text` has for it."""
    found: dict[str, Any] = dict.fromkeys(("context", "current_context", "launch_kernel"))
    found["home"] = CPU
    for which, launch in enumerate(launches):
        found |= {f"function{which}": library.kernel(*launch.source, launch.entries[0]), f"shared{which}": 0}
        found |= {f"start{which}_0": partial(_share, elements), f"grid{which}_0": launch.grid, f"threads{which}_0": 1}
    return found


def _share(elements: int, function: library.Kernel, arguments: int, units: int) -> None:
    """Some units of work, by one thread or by all: by the time of the first ones this one knows whether the others are
    worth waking."""
    first = max(1, units * ALONE // elements) if elements > ALONE else units
    if first >= units or workers.threads() == 1:
        return function(arguments, 0, units)
    begun = perf_counter()
    function(arguments, 0, first)
    left = units - first
    if (perf_counter() - begun) * left < WAKE * first:
        return function(arguments, first, units)
    shares = min(left, workers.threads() * SHARES)
    starts = [first + left * share // shares for share in range(shares + 1)]
    workers.run(lambda share: function(arguments, starts[share], starts[share + 1]), shares)
