"""Plans of reductions across rows, which one kernel serves where these rows have one element each: an elementwise one,
or one of rows where other rows are reduced too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import or_
from typing import Any, ClassVar

from skuda.arrays.views import View, with_axes
from skuda.errors import Unsupported
from skuda.launch.prepared import Launch, Launches
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operand
from skuda.model.sku import BackendKind, KernelSku
from skuda.plans.plan import Plan
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry
from skuda.schedules.row_variants import RowVariant
from skuda.schedules.variant import TUNED


class OfOneElement(Launches):
    """The form of one plan, whose operands lack axes of one element or have more of them.

    Attributes:
        plan: of that form.
        workspace: bytes that it needs at most.
    """

    def __init__(self, plan: PlanOfOneElement):
        self.plan = plan.alike(plan.of_one)
        self.workspace = self.plan.workspace_size
        pairs = zip(plan.operation.operands, self.plan.operation.operands, strict=True)
        self._axes = tuple([_axes(own, other, plan.sizes) for own, other in pairs])

    def operands(self, checked: Sequence[View | int | float]) -> list[View | int | float]:
        """Those of the form."""
        return [
            with_axes(value, axes) if isinstance(value, View) else value
            for value, axes in zip(checked, self._axes, strict=True)
        ]

    def does_better(self, checked: Sequence[View | int | float]) -> bool:
        """Whether it takes less time than the plan's own kernels: but for long rows that few blocks hold alone."""
        plan, operation = self.plan, self.plan.operation
        if plan.backend is not BackendKind.CUDA or not operation.reduces:
            return True
        try:
            variant = plan._geometry(self.operands(checked)).variant
        except Unsupported:  # rows along too many axes, which stages take apart
            return False
        if not isinstance(variant, RowVariant):
            return True
        length = prod([plan._extent(dim) for dim in operation.along])
        rows = prod([plan._extent(dim.name) for dim in operation.space if dim.name not in operation.along])
        operands = zip(operation.operands, plan.words, strict=True)
        bits = sum([DTYPES[word].bits for operand, word in operands if operation.runs_along(operand)])
        return rows > TUNED.stages_few_blocks or (variant.keep and length * bits <= 8 * TUNED.stages_lone_bytes)

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        operands = self.operands(checked)
        return self.plan.launch_for(operands).launches(operands, workspace)


def _axes(operand: Operand, other: Operand, sizes: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Which axes of an operand those of the form's are; None for each that it has not."""
    places, axis = {}, 0
    for dim in operand.dims:
        end = axis + (len(sizes[dim.name]) if dim.many else 1)
        places[dim.name], axis = range(axis, end), end
    return tuple([
        axis
        for dim in other.dims
        for axis in places.get(dim.name, (None,) * (len(sizes[dim.name]) if dim.many else 1))
    ])


class PlanOfOneElement(Plan):
    """A plan of sums across rows. Where these have one element each, the form without the sums serves.

    Attributes:
        of_one: the plan of that form.
    """

    of_one: ClassVar[type[Plan]]

    def __init__(self, descriptor, stream, backend: BackendKind):
        super().__init__(descriptor, stream, backend)
        alone = all([self._extent(dim) == 1 for dim in self.of_one.operation.analysis.of_one])
        self._form = OfOneElement(self) if alone else None
        if self._form is not None:
            self.vectors = tuple(map(or_, self.vectors, self._form.plan.vectors))

    def _serving(self, checked: Sequence[View | int | float]) -> OfOneElement | None:
        """The form, where it serves operands that lie as these do."""
        return self._form if self._form is not None and self._form.does_better(checked) else None

    def _launch(self, checked: Sequence[View | int | float]) -> Launches:
        return self._serving(checked) or super()._launch(checked)

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        return SEVERAL_KERNELS if self._serving(checked) else super()._geometry(checked)

    def served_by(self, checked: Sequence[View | int | float]) -> KernelSku:
        form = self._serving(checked)
        return form.plan.served_by(form.operands(checked)) if form else super().served_by(checked)

    def _check_layout(self, checked: list) -> None:
        form = self._serving(checked)
        if form is None:
            super()._check_layout(checked)
        else:
            form.plan._check_layout(form.operands(checked))
