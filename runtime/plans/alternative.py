"""Plans with a multi-kernel form beside their own kernel of rows, and which of the two serves a call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, ClassVar

from skuda.arrays.views import View
from skuda.errors import Unsupported
from skuda.launch.prepared import Launch, layouts
from skuda.model.sku import BackendKind
from skuda.plans.plan import Plan
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry
from skuda.schedules.row_variants import ClusterVariant, RowVariant
from skuda.schedules.variant import STAGES, TUNED, RowMode

if TYPE_CHECKING:
    from skuda.plans.multi_kernel import Stages
    from skuda.schedules.stripes import StripeKernels


class PlanWithAlternative(Plan):
    """A plan of rows that runs in stages where blocks which hold rows do badly; the bits are the same.

    That is where elements beside each other in memory belong to different rows, which the stages reduce beside each
    other; and where there are a few rows that no block holds, which several blocks reduce. Where neighbours in a row
    share operands, it is wherever no blocks hold a row, or its elements are no neighbours.

    Attributes:
        stages: the plans of its stages, in order.
        much: elements from which on rows that lie so are worth several launches; four times as many where they are
            short, and blocks that hold several do better.
        short: elements of rows that are.
        long: elements of a row that are worth several launches, where there are few.
        few: blocks that leave most of a GPU idle; a row that a cluster holds has several.
    """

    stages: ClassVar[tuple[type[Plan], ...]]
    much = TUNED.stages_elements
    short = TUNED.stages_short_row
    long = TUNED.stages_long_row
    few = TUNED.stages_few_blocks

    @cached_property
    def alternative(self) -> Stages:
        """The multi-kernel form."""
        from skuda.plans.multi_kernel import Stages

        return Stages(self, self.stages)

    @cached_property
    def _stripes(self) -> StripeKernels | None:
        if not self.operation.analysis.stripes:  # a first call waits for no import
            return None
        from skuda.plans.multi_kernel import stripe_kernels_of

        return stripe_kernels_of(self)

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory that `run` needs at most, however the arrays lie; 0 on the CPU."""
        anyhow = self.operation.holds_alone
        if self.backend is not BackendKind.CUDA or not (anyhow or self._is_much or self._is_long(1)):
            return 0
        return self.alternative.workspace

    @cached_property
    def _extents(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Those of the axes that are kept, and of those that rows lie along: the space is `[*kept, *along]`."""
        kept, along = self.operation.space
        return self.sizes[kept.name], self.sizes[along.name]

    @property
    def _is_much(self) -> bool:
        rows, length = map(prod, self._extents)
        return rows * length >= self.much * (4 if length < self.short else 1)

    def _is_long(self, blocks: int) -> bool:
        """Whether rows that so many blocks take are long and few."""
        rows, length = map(prod, self._extents)
        return rows * blocks <= self.few and length >= self.long

    def _launch(self, checked: Sequence[View | int | float]) -> Launch | Stages:
        geometry = self._geometry(checked)
        return self.alternative if geometry.variant is STAGES else Launch(self, geometry)

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        if self.operation.holds_alone:
            return self._held_geometry(checked)
        several = prod(self._extents[1]) > 1  # a row of one element has no neighbours
        geometry = super()._geometry(checked)
        variant = geometry.variant
        beside = isinstance(variant, RowVariant) and variant.mode is RowMode.BESIDE
        if self._stripes is not None and several and not beside and self._lie_apart(checked):
            held = self._stripes.geometry(layouts(self, checked))
            if held is not None:
                return held
        if isinstance(variant, ClusterVariant):
            idle, apart = self._is_long(variant.blocks), False
        elif isinstance(variant, RowVariant):
            idle = not variant.keep and self._is_long(1)
            apart = variant.mode is RowMode.STEPPED and self._is_much and self._lie_apart(checked)
        else:
            return geometry
        return SEVERAL_KERNELS if (idle or apart) and self._serves(checked) else geometry

    def _held_geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        try:
            return super()._geometry(checked)
        except Unsupported:  # rows along too many axes
            self.alternative.launches(checked, 0)  # what cannot be served so either is refused here
            return SEVERAL_KERNELS

    def _lie_apart(self, checked: Sequence[View | int | float]) -> bool:
        """Whether the elements next to each other in the first input belong to different rows."""
        strides, extents = checked[self.full.index(True)].strides, [each for part in self._extents for each in part]
        steps = [abs(step) if extent != 1 else 1 << 63 for step, extent in zip(strides, extents, strict=True)]
        rank = len(self._extents[0])
        return min(steps[:rank], default=1 << 63) < min(steps[rank:], default=1 << 63)

    def _serves(self, checked: Sequence[View | int | float]) -> bool:
        """Whether the stages can take operands that lie so: they take fewer axes."""
        try:
            for stage, operands in self.alternative.each(checked):
                stage.launch_for(operands)
        except Unsupported:
            return False
        return True
