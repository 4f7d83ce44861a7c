"""Plans that run in stages: plans of operations of their own, one after the other on one stream.

What one stage makes for another lies in the workspace, which the stages' own scratch memory follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from skuda import mapping, schedules
from skuda.dtypes import DTYPES
from skuda.operation import Operand, Operation, count
from skuda.plan import Plan
from skuda.straight import Straight, contiguous_strides, refuse
from skuda.tensor import View

if TYPE_CHECKING:
    from skuda.launch import Launch

_ALIGNED = 256  # bytes: where each value that a stage leaves starts


class _Between:
    """What the stages of a plan leave each other.

    Attributes:
        full: of each operand of the plan: whether it has an element for each of the space, and as an input no stage
            reads it that follows one which writes an output: only then an output may be the same array.
        vectors: none: the stages' own plans look at how operands lie.
        places: of each value in the workspace: offset, shape and element type.
        workspace: bytes of all of it.
    """

    boundaries = ()  # as of MapKernels; the stages' own plans look at that too

    def __init__(self, plan: StagedPlan):
        operation = plan.operation
        last, first_written = {}, len(plan.stage_plans)
        self.places: dict[str, tuple[int, tuple[int, ...], np.dtype]] = {}
        outputs = {operand.name for operand in operation.outputs}
        size = 0
        for index, stage in enumerate(plan.stage_plans):
            for operand, shape, word in zip(stage.operation.operands, stage.shapes, stage.words, strict=True):
                if operand in stage.operation.inputs:
                    last[operand.name] = index
                elif operand.name in outputs:
                    first_written = min(first_written, index) if operand.dims == operation.space else first_written
                else:
                    storage = DTYPES[word].storage
                    self.places[operand.name] = size, shape, storage
                    size += -(-count(shape) * storage.itemsize // _ALIGNED) * _ALIGNED
        self.between = size
        self.workspace = size + max(stage._kernels.workspace for stage in plan.stage_plans)
        self.full = tuple(
            operand.dims == operation.space and last.get(operand.name, 0) <= first_written
            for operand in operation.operands
        )
        self.vectors = (False,) * len(operation.operands)


class StagedPlan(Plan):
    """A plan whose operation is made of others.

    Class attributes are those of `Plan`, and `stages`: the plans of these operations, in order.
    """

    stages: ClassVar[tuple[type[Plan], ...]]

    def _make_kernels(self) -> _Between:
        self.stage_plans = tuple(self._stage(stage) for stage in self.stages)
        return _Between(self)

    def _stage(self, stage: type[Plan]) -> Plan:
        operation = stage.operation
        fields: dict[str, Any] = {dim.name: self.sizes[dim.name] for dim in operation.dims}
        fields |= {attribute.name: self.attributes[attribute.name] for attribute in operation.attributes}
        fields |= {field: self.types[letter] for letter, field in operation.element_fields.items()}
        return stage.select(stage.descriptor_type(**fields), preference=self.backend)

    def learn(self, values: Sequence, places=()) -> Straight:
        return refuse

    def _geometry(self, checked: Sequence[View | int | float]) -> mapping.Geometry:
        return mapping.Geometry(schedules.STAGES, 0, (), {})

    def _needed(self, checked: Sequence[View | int | float]) -> int:
        return self.workspace_size

    def _packed(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        values = _by_name(self.operation, checked)
        device = next(value.device for value in checked if isinstance(value, View))
        for name, (offset, shape, storage) in self._kernels.places.items():
            strides = contiguous_strides(shape)
            values[name] = View(workspace + offset, shape, strides, storage, device, True, False, None)
        scratch = workspace + self._kernels.between
        return [
            launch
            for stage in self.stage_plans
            if stage.numel
            for launch in stage._packed([values[operand.name] for operand in stage.operation.operands], scratch)
        ]

    def _run_reference(self, checked: list) -> None:
        values = self._arrays(checked)
        for name, (_, shape, storage) in self._kernels.places.items():
            values[name] = np.empty(shape, storage)
        for stage in self.stage_plans:
            stage._evaluate(values)


def _by_name(operation: Operation, checked: Sequence) -> dict[str, Any]:
    operands: Sequence[Operand] = operation.operands
    return {operand.name: value for operand, value in zip(operands, checked, strict=True)}
