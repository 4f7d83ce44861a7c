"""Plans that run in stages: plans of operations of their own, one after the other on one stream.

What one stage makes for another lies in the workspace, which the stages' own scratch memory follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skuda.arrays.views import View, contiguous_strides
from skuda.launch.prepared import Launch, Launches, layouts
from skuda.model.dtypes import DTYPES
from skuda.model.operation import count
from skuda.model.sku import BackendKind
from skuda.plans.one_element import PlanOfOneElement
from skuda.plans.plan import Plan
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry, KernelGeometry, Layouts
from skuda.schedules.slab_variants import SLAB_FEW
from skuda.schedules.table import entry

if TYPE_CHECKING:
    from skuda.schedules.pieces import PieceKernels
    from skuda.schedules.stripes import StripeKernels

_ALIGNED = 256  # bytes: where each value that a stage leaves starts


class Stages(KernelGeometry, Launches):
    """The stages of a plan, and what they leave each other.

    Attributes:
        plans: of the stages, in order.
        full: of each operand of the plan: whether it has an element for each of the space, and as an input no stage
            reads it that follows one which writes an output: only then an output may be the same array.
        vectors: none where the stages' own plans look at how operands lie, for no kernel of rows serves some calls.
        layout: of each value in the workspace: offset, shape and element type.
    """

    def __init__(self, plan: Plan, stages: Sequence[type[Plan]]):
        operation = plan.operation
        super().__init__(operation, plan.types, plan.sizes)
        self.operation = operation
        self.plans = tuple(map(plan.alike, stages))
        last, first_written = {}, len(self.plans)
        self.layout: dict[str, tuple[int, tuple[int, ...], np.dtype]] = {}
        outputs = {operand.name for operand in operation.outputs}
        size = 0
        for index, stage in enumerate(self.plans):
            for operand, shape, word in zip(stage.operation.operands, stage.shapes, stage.words, strict=True):
                if operand in stage.operation.inputs:
                    last[operand.name] = index
                elif operand.name in outputs:
                    first_written = min(first_written, index) if operand.dims == operation.space else first_written
                else:
                    storage = DTYPES[word].storage
                    self.layout[operand.name] = size, shape, storage
                    size += -(-count(shape) * storage.itemsize // _ALIGNED) * _ALIGNED
        self._between = size
        self.workspace = size + max(stage._kernels.workspace for stage in self.plans)
        self.full = tuple(
            operand.dims == operation.space and last.get(operand.name, 0) <= first_written
            for operand in operation.in_kernels.operands
        )
        self.vectors = (False,) * len(self.full)
        if operation.analysis.stripes or operation.analysis.pieces:  # one kernel serves some
            self.vectors = tuple([operand.dims == operation.space for operand in operation.in_kernels.operands])
        if operation.analysis.slabs:  # a kernel of rows serves some
            rows = self.plans[0]
            vectors = dict(zip([operand.name for operand in rows.operation.operands], rows.vectors, strict=True))
            self.vectors = tuple([vectors.get(operand.name, False) for operand in operation.in_kernels.operands])
            sums = self.plans[1]._kernels.split  # None on the CPU
            self.workspace = max(self.workspace, sums.bytes_of_slabs if sums else 0)

    def geometry(self, layouts: Layouts) -> Geometry:
        return SEVERAL_KERNELS

    def each(self, checked: Sequence[View | int | float], workspace: int = 0):
        """The plan of each stage that has something to do, and its operands."""
        values: dict[str, Any] = {o.name: value for o, value in zip(self.operation.operands, checked, strict=True)}
        device = next(value.device for value in checked if isinstance(value, View))
        for name, (offset, shape, storage) in self.layout.items():
            strides = contiguous_strides(shape)
            values[name] = View(workspace + offset, shape, strides, storage, device, True, False, None)
        for stage in self.plans:
            if stage.numel:
                yield stage, [values[operand.name] for operand in stage.operation.operands]

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        scratch = workspace + self._between
        return [
            launch
            for stage, operands in self.each(checked, workspace)
            for launch in stage.launch_for(operands).launches(operands, scratch)
        ]

    def run_reference(self, arrays: dict[str, Any]) -> None:
        """Runs each stage's reference on the plan's operands."""
        for name, (_, shape, storage) in self.layout.items():
            arrays[name] = np.empty(shape, storage)
        for stage in self.plans:
            stage._evaluate(arrays)


class SlabLaunches(Launches):
    """Rows and sums across them by one kernel, and the kernel that joins the sums of slabs.

    Args:
        stages: of rows, and of sums.
        geometry: of the first of these kernels.
        entry: its NVRTC name expression.
        checked: operands that lie as they do.
    """

    def __init__(self, stages: Stages, geometry: Geometry, entry: str, checked: Sequence[View | int | float]):
        self._stages = stages
        self.geometry = geometry
        (rows, _), (sums, operands) = stages.each(checked)
        finish = sums._kernels.split.finish_of_slabs(layouts(sums, operands))
        self.workspace = finish.workspace
        self._launches = Launch(rows, geometry, (entry,)), Launch(sums, finish)

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        both = zip(self._launches, self._stages.each(checked, workspace), strict=True)
        return [(launch, launch.filled(operands, workspace)) for launch, (_, operands) in both]


def stripe_kernels_of(plan: Plan) -> StripeKernels | None:
    """What says how rows that lie beside each other are held; None where no kernel holds them."""
    if not plan.operation.analysis.stripes or plan.backend is BackendKind.CPU:
        return None
    from skuda.schedules.stripes import StripeKernels

    return plan._told_clusters(StripeKernels(plan.operation, plan.types, plan.sizes))


def piece_kernels_of(plan: Plan) -> PieceKernels | None:
    """What says how rows that lie in pieces are held; None where no kernel holds them."""
    if not plan.operation.analysis.pieces or plan.backend is BackendKind.CPU:
        return None
    from skuda.schedules.pieces import PieceKernels

    return plan._told_clusters(PieceKernels(plan.operation, plan.types, plan.sizes))


class StagedPlan(Plan):
    """A plan whose operation is made of others.

    Class attributes are those of `Plan`, and these:

    Attributes:
        stages: the plans of these operations, in order.
        few: slabs; where there are fewer, too few blocks would go down them.
    """

    few = SLAB_FEW
    stages: ClassVar[tuple[type[Plan], ...]]

    def _make_kernels(self) -> Stages:
        return Stages(self, self.stages)

    @cached_property
    def _stripes(self) -> StripeKernels | None:
        return stripe_kernels_of(self)

    @cached_property
    def _pieces(self) -> PieceKernels | None:
        return piece_kernels_of(self)

    def _launch(self, checked: Sequence[View | int | float]) -> Launches:
        geometry = self._geometry(checked)
        if geometry is SEVERAL_KERNELS:
            return self._kernels
        if self._stripes is not None or self._pieces is not None:
            return Launch(self, geometry)
        return SlabLaunches(self._kernels, geometry, entry(self.operation, self.types, geometry.variant), checked)

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        if self._stripes is not None or self._pieces is not None:
            every = [kernels for kernels in (self._stripes, self._pieces) if kernels is not None]
            lie = layouts(self, checked)
            return next((found for kernels in every if (found := kernels.geometry(lie))), SEVERAL_KERNELS)
        every = [*self._kernels.each(checked)] if self.operation.analysis.slabs else []
        if self.backend is BackendKind.CPU or len(every) < 2:
            return SEVERAL_KERNELS
        from skuda.schedules.slabs import slab_geometry

        rows, operands = every[0]
        found = slab_geometry(self.operation, rows._kernels, layouts(rows, operands))
        return found if found is not None and found.grid >= self.few else SEVERAL_KERNELS

    def _check_layout(self, checked: list) -> None:
        for stage, operands in self._kernels.each(checked):
            stage._check_layout(operands)

    def _run_reference(self, checked: list) -> None:
        self._kernels.run_reference(self._arrays(checked))


class StagedPlanOfOneElement(PlanOfOneElement, StagedPlan):
    """A plan in stages that one kernel serves where rows have one element each."""
