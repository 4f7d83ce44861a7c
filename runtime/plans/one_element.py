"""Plans of reductions across rows, which an elementwise kernel serves where rows have one element each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import or_
from typing import Any, ClassVar

from skuda.arrays.views import View, with_axes
from skuda.launch.prepared import Launch, Launches
from skuda.model.operation import Operand
from skuda.model.sku import BackendKind, KernelSku
from skuda.plans.plan import Plan
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry


class OfOneElement(Launches):
    """The elementwise form of one plan, whose operands lack the axes that are reduced.

    Attributes:
        plan: of that form.
        workspace: bytes that it needs: none.
    """

    workspace = 0

    def __init__(self, plan: PlanOfOneElement):
        self.plan = plan.alike(plan.of_one)
        operation = plan.operation
        self._kept = tuple([_kept(operand, operation.along, plan.sizes) for operand in operation.operands])

    def operands(self, checked: Sequence[View | int | float]) -> list[View | int | float]:
        """Those of the form."""
        return [
            with_axes(value, axes) if isinstance(value, View) else value
            for value, axes in zip(checked, self._kept, strict=True)
        ]

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        operands = self.operands(checked)
        return self.plan.launch_for(operands).launches(operands, workspace)


def _kept(operand: Operand, along: Sequence[str], sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes of an operand that are not reduced."""
    found, axis = [], 0
    for dim in operand.dims:
        end = axis + (len(sizes[dim.name]) if dim.many else 1)
        found += [*range(axis, end)] if dim.name not in along else []
        axis = end
    return tuple(found)


class PlanOfOneElement(Plan):
    """A plan of sums across rows. Where rows have one element each, sums are elements, and the elementwise form serves.

    Attributes:
        of_one: the plan of that form.
    """

    of_one: ClassVar[type[Plan]]

    def __init__(self, descriptor, stream, backend: BackendKind):
        super().__init__(descriptor, stream, backend)
        alone = all([self._extent(dim) == 1 for dim in self.operation.along])
        self._elementwise = OfOneElement(self) if alone else None
        if self._elementwise is not None:
            self.vectors = tuple(map(or_, self.vectors, self._elementwise.plan.vectors))

    def _launch(self, checked: Sequence[View | int | float]) -> Launches:
        return super()._launch(checked) if self._elementwise is None else self._elementwise

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        return super()._geometry(checked) if self._elementwise is None else SEVERAL_KERNELS

    def served_by(self, checked: Sequence[View | int | float]) -> KernelSku:
        if self._elementwise is None:
            return super().served_by(checked)
        return self._elementwise.plan.served_by(self._elementwise.operands(checked))

    def _check_layout(self, checked: list) -> None:
        if self._elementwise is None:
            super()._check_layout(checked)
        else:
            self._elementwise.plan._check_layout(self._elementwise.operands(checked))
