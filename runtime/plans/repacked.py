"""Plans whose 4-bit codes a kernel of rows cannot always write: where the two codes of a byte belong to different rows.

Rows then write codes of 8 bits to the workspace, and an elementwise operation packs them: the same codes, as `q_min`
and `q_max` are those of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from skuda.arrays.views import View, contiguous_strides
from skuda.errors import Unsupported
from skuda.launch.prepared import Launch, Launches
from skuda.model.dtypes import DTYPES
from skuda.model.operation import WIDE, count
from skuda.model.sku import BackendKind
from skuda.plans.plan import Plan
from skuda.schedules.geometry import SEVERAL_KERNELS, Geometry
from skuda.schedules.variant import STAGES

_ALIGNED = 256  # bytes: where the scratch memory of rows starts, after the codes


class Repacked(Launches):
    """Rows with codes of 8 bits, and the elementwise operation that packs them, for one plan.

    Attributes:
        plans: of the rows and of that operation.
        workspace: bytes of the codes, and of what the rows need.
    """

    def __init__(self, plan: RepackedPlan):
        (packing,) = plan.stages
        self._codes = next(o.name for o in packing.operation.outputs)
        self._shape = plan.shapes[plan.operation.operands.index(packing.operation.outputs[0])]
        letter = packing.operation.outputs[0].element
        words = {letter: plan.types[letter]}
        self.plans = plan.alike(type(plan), {**plan.types, letter: WIDE}), plan.alike(packing, words)
        self._between = -(-count(self._shape) // _ALIGNED) * _ALIGNED
        self.workspace = self._between + self.plans[0]._kernels.workspace

    def launches(self, checked: Sequence[View | int | float], workspace: int) -> list[tuple[Launch, list]]:
        rows, packing = self.plans
        values: dict[str, Any] = {o.name: value for o, value in zip(rows.operation.operands, checked, strict=True)}
        output = values[self._codes]
        strides = contiguous_strides(self._shape)
        codes = View(workspace, self._shape, strides, DTYPES[WIDE].storage, output.device, True, False, None)
        found = []
        for plan, operands in ((rows, [*(values | {self._codes: codes}).values()]), (packing, [codes, output])):
            found += plan.launch_for(operands).launches(operands, workspace + self._between)
        return found


class RepackedPlan(Plan):
    """A plan of rows whose codes are packed by a second kernel, where they are of 4 bits and rows share their bytes."""

    stages: ClassVar[tuple[type[Plan], ...]]

    @cached_property
    def alternative(self) -> Repacked:
        """The form in two steps."""
        return Repacked(self)

    @cached_property
    def _may_repack(self) -> bool:
        """Whether some operands of these sizes and types are served in two steps."""
        kernels = self._kernels
        return kernels.packed and (bool(kernels.bytes_shared()) or kernels.inner_axes > 1)

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch memory that `run` needs at most, however the arrays lie; 0 on the CPU."""
        return self.alternative.workspace if self.backend is BackendKind.CUDA and self._may_repack else 0

    def _launch(self, checked: Sequence[View | int | float]) -> Launch | Repacked:
        geometry = self._geometry(checked)
        return self.alternative if geometry.variant is STAGES else Launch(self, geometry)

    def _geometry(self, checked: Sequence[View | int | float]) -> Geometry:
        try:
            return super()._geometry(checked)
        except Unsupported:
            if not self._may_repack:
                raise
        self.alternative.launches(checked, 0)  # what cannot be served so either is refused here
        return SEVERAL_KERNELS
