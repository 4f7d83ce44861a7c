"""One case on the device: random inputs, poisoned outputs, and what must hold after a run."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from skuda.bench.suite import Case, Placed
from skuda.dtypes import DTYPES
from skuda.operation import SCALE, Operand, packed_shape
from skuda.sku import BackendKind

_POISONS = (0xA5, 0x5A)
_SAMPLE = 1 << 16  # elements at either end that are compared with the reference
_ALIGN = 128  # where samples start along the first axis: whole groups, whole bytes of packed codes
WEIGHT = 0.3  # every float number that is no scale


class Problem:
    """The arrays of a case, and a plan that is ready to run on them.

    Attributes:
        case: the row of the bench.
        q_min, q_max: the range of its codes.
        plan: its plan, on CUDA.
        args: the plan's arguments.
        arrays: each operand by name: a CuPy array, or a number.
    """

    def __init__(self, case: Case):
        self.case = case
        self.plan = case.plan_class.select(case.descriptor(), preference=BackendKind.CUDA)
        codes = DTYPES[next((word for word in case.types.values() if DTYPES[word].code), "s8")]
        self.q_min, self.q_max = codes.lowest, codes.highest
        self._memory: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}
        for placed in case.operands:
            self.arrays[placed.operand.name] = self._array(placed)
        self.args = case.plan_class.args_type(**self.arrays)

    def run(self) -> None:
        """Enqueues the kernel."""
        self.plan.run(self.args)

    def _array(self, placed: Placed):
        operand, storage = placed.operand, DTYPES[placed.word].storage
        if operand.scalar:
            return self._number(operand, placed.word)
        if operand in self.case.operation.outputs:
            memory = cupy.empty(placed.size * storage.itemsize, cupy.uint8).view(storage)
        else:
            memory = self._random(operand, placed, storage)
        self._memory[operand.name] = memory
        strides = tuple(step * storage.itemsize for step in placed.strides)
        return cupy.ndarray(placed.shape, storage, memory.data + placed.start * storage.itemsize, strides)

    def _number(self, operand: Operand, word: str) -> int | float:
        if DTYPES[word].kind == "int":
            return (self.q_min + self.q_max + 1) // 2 + 1
        return self._step if operand.element == SCALE else WEIGHT

    @property
    def _step(self) -> float:
        """A scale at which some standard normal values leave the range of codes and most do not."""
        return 5 / (self.q_max - self.q_min)

    def _random(self, operand: Operand, placed: Placed, storage: np.dtype):
        size = placed.size
        if operand.element == SCALE:
            return ((cupy.random.random(size, dtype=cupy.float32) + 0.5) * self._step).astype(storage)
        if placed.word == "i32":
            middle = (self.q_min + self.q_max + 1) // 2
            return cupy.random.randint(middle - 2, middle + 3, size, dtype=cupy.int32)
        if DTYPES[placed.word].code:
            return cupy.random.randint(0, 256, size, dtype=cupy.uint8).view(storage)
        return cupy.random.standard_normal(size, dtype=cupy.float32).astype(storage, copy=False)

    # ---- outputs ----

    def fault(self) -> str | None:
        """What is wrong with a run: elements not written, bits that vary or are not the reference's. Or None.

        Runs the plan on outputs poisoned with one pattern, then another: what both leave alike was written.
        The rows at either end are computed by the reference too. Leaves the outputs of a run behind.
        """
        operation = self.case.operation
        first: dict[str, Any] = {}
        for poison in _POISONS:
            for operand in operation.outputs:
                self._memory[operand.name].view(cupy.uint8).fill(poison)
            self.run()
            for operand in operation.outputs:
                if operand.name not in first:
                    first[operand.name] = self._memory[operand.name].view(cupy.uint8).copy()
        for placed in self.case.operands:
            name = placed.operand.name
            if placed.operand in operation.outputs and not self._same(first[name], placed):
                return f"{name}: elements that were not written, or that differ from run to run"
        return self._reference_fault()

    def _same(self, before, placed: Placed) -> bool:
        """Whether both runs wrote the same bytes; outputs are contiguous after `start` elements."""
        storage = DTYPES[placed.word].storage
        skip = placed.start * storage.itemsize
        after = self._memory[placed.operand.name]
        one, other = (memory.view(cupy.uint8)[skip:] for memory in (before, after))
        return not bool((one != other).any())

    def _reference_fault(self) -> str | None:
        extents = self.case.shape.extents
        rows = max(1, _SAMPLE // prod(extents[1:]))
        rows = -(-rows // _ALIGN) * _ALIGN if len(extents) == 1 or extents[0] > _ALIGN else extents[0]
        tail = max(0, extents[0] - rows) // _ALIGN * _ALIGN
        spans = [(0, rows), (tail, extents[0])] if tail else [(0, extents[0])]
        return next(filter(None, (self._sample_fault(*span) for span in spans)), None)

    def _sample_fault(self, start: int, end: int) -> str | None:
        case, operation = self.case, self.case.operation
        extents = (end - start, *case.shape.extents[1:])
        sizes = case.sizes_of(extents)
        arguments, actual = {}, {}
        for placed in case.operands:
            name, array = placed.operand.name, self.arrays[placed.operand.name]
            if placed.operand.scalar:
                arguments[name] = array
                continue
            shape = packed_shape(operation.shape_of(placed.operand, sizes), placed.word)
            part = array
            if shape != placed.shape:  # an operand that has the first axis, or its blocks
                before = operation.shape_of(placed.operand, case.sizes_of((start, *extents[1:])))
                first = packed_shape(before, placed.word)[0]
                part = array[first : first + shape[0]]
            host = _host(part)
            if placed.operand in operation.outputs:
                actual[name] = host
                host = np.empty_like(host)
            arguments[name] = host
        plan = case.plan_class.select(case.descriptor(extents), preference=BackendKind.REFERENCE)
        plan.run(case.plan_class.args_type(**arguments))
        for name, got in actual.items():
            wrong = np.count_nonzero(got.view(np.uint8) != arguments[name].view(np.uint8))
            if wrong:
                rows = f"rows {start} to {end}"
                return f"{name}: {wrong} of {got.nbytes} bytes in {rows} are not the reference's"
        return None


def _host(array) -> np.ndarray:
    """A copy on the CPU, of any strides and element type."""
    integers = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize]
    contiguous = cupy.ascontiguousarray(array.view(integers))  # of one axis where the array has none
    return contiguous.get().view(array.dtype).reshape(array.shape)
