"""One case on the device: random inputs, poisoned outputs, and what must hold after a run."""

from __future__ import annotations

from math import lcm, prod
from typing import Any

import cupy
import numpy as np

from skuda.bench.suite import Case, Placed, interval
from skuda.model.dtypes import DTYPES
from skuda.model.operation import SCALE, Operand, packed_shape
from skuda.model.sku import BackendKind
from skuda.verification import nearness

_POISONS = (0xA5, 0x5A)
_SAMPLE = 1 << 16  # elements at either end that are compared with the reference
_FINITE = 0xBF  # bits of an 8-bit float whose exponent is not all ones
_COLUMNS = 32  # likewise of columns, where columns are reduced: whole bytes, and what a warp takes
# Elements of a whole tensor beyond which the reference's exponentials, or its reductions over several things, would
# take seconds. Such a result is compared with the peers' here, and with the reference's at smaller sizes in tests/gpu.
_SLOW = 1 << 22
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
        codes = DTYPES[next((word for word in case.types.values() if DTYPES[word].bits <= 8), "s8")]
        self.q_min, self.q_max = codes.lowest, codes.highest
        self._memory: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}
        for placed in case.operands:
            self.arrays[placed.operand.name] = self._array(placed)
        self.args = case.plan_class.args_type(**self.arrays)
        size = self.plan.workspace_size
        self._workspace = cupy.empty(size, cupy.uint8) if size else None

    def run(self) -> None:
        """Enqueues the kernel, or the kernels."""
        self.plan.run(self.args, workspace=self._workspace)

    def _array(self, placed: Placed):
        operand, storage = placed.operand, _storage(placed.word)
        if operand.scalar and operand in self.case.operation.inputs:
            return self._number(operand, placed.word)
        if operand in self.case.operation.outputs:
            memory = cupy.empty(placed.size * storage.itemsize, cupy.uint8).view(storage)
        else:
            memory = self._random(operand, placed, storage)
        self._memory[operand.name] = memory
        strides = tuple(step * storage.itemsize for step in placed.strides)
        return cupy.ndarray(placed.shape, storage, memory.data + placed.start * storage.itemsize, strides)

    def _number(self, operand: Operand, word: str) -> int | float | bool:
        if DTYPES[word].kind == "bool":
            return True
        if DTYPES[word].kind == "int":
            return (self.q_min + self.q_max + 1) // 2 + 1
        return self._step if operand.element == SCALE else WEIGHT

    @property
    def _step(self) -> float:
        """A scale at which some standard normal values leave the range of codes and most do not."""
        return 5 / (self.q_max - self.q_min)

    def _random(self, operand: Operand, placed: Placed, storage: np.dtype):
        size = placed.size
        if operand.element == SCALE or operand.name == "scale":  # a learnable one is of the compute type
            return ((cupy.random.random(size, dtype=cupy.float32) + 0.5) * self._step).astype(storage)
        if DTYPES[placed.word].kind == "int" and (classes := self.case.operation.classes(operand, self.plan.sizes)):
            return cupy.random.randint(0, classes, size, dtype=cupy.int64).astype(storage)
        if placed.word == "i32":
            middle = (self.q_min + self.q_max + 1) // 2
            return cupy.random.randint(middle - 2, middle + 3, size, dtype=cupy.int32)
        if DTYPES[placed.word].bits <= 8:
            codes = cupy.random.randint(0, 256, size, dtype=cupy.uint8)
            return (codes if DTYPES[placed.word].kind == "int" else codes & _FINITE).view(storage)
        if ends := interval(self.case.operation, operand):
            values = cupy.random.random(size, dtype=cupy.float32) * (ends[1] - ends[0]) + ends[0]
            return values.astype(storage, copy=False)
        return cupy.random.standard_normal(size, dtype=cupy.float32).astype(storage, copy=False)

    # ---- outputs ----

    def fault(self) -> str | None:
        """What is wrong with a run: elements not written, bits that vary or are not the reference's. Or None.

        Runs the plan on outputs poisoned with one pattern, then another: what both leave alike was written. The rows at
        either end (the columns, where columns are reduced) are computed by the reference too. Leaves the outputs of a
        run behind.
        """
        return self.unlike(len(_POISONS)) or self._reference_fault()

    def unlike(self, runs: int) -> str | None:
        """Which output has elements that were not written, or not alike in so many runs, two or more. Or None.

        What outputs hold before a run changes from run to run. Leaves the outputs of the last run behind.
        """
        outputs = [placed for placed in self.case.operands if placed.operand in self.case.operation.outputs]
        first: dict[str, Any] = {}
        unlike = {placed.operand.name: cupy.zeros((), bool) for placed in outputs}
        for run in range(runs):
            for name in unlike:
                self._memory[name].view(cupy.uint8).fill(_POISONS[run % len(_POISONS)])
            self.run()
            for placed in outputs:
                name = placed.operand.name
                if run == 0:
                    first[name] = self._memory[name].copy()
                else:
                    unlike[name] |= self._unlike(first[name], placed)
        for name, found in unlike.items():
            if found:
                return f"{name}: elements that were not written, or that differ from run to run"
        return None

    def _unlike(self, before, placed: Placed):
        """Whether an output has other bytes than before, on the device. An output is contiguous after `start`."""
        skip = placed.start * _storage(placed.word).itemsize
        one, other = (memory.view(cupy.uint8)[skip:] for memory in (before, self._memory[placed.operand.name]))
        return (one != other).any()

    def _reference_fault(self) -> str | None:
        axis, align = self._sampled()
        extents = self.case.extents
        if axis is None:
            plans = self.case.plan_class.stages if self.case.operation.analysis.stages else (self.case.plan_class,)
            raised = any({"exp", "logsumexp"} & {*plan.formula.__code__.co_names} for plan in plans)
            slow = raised or not self.case.operation.analysis.over
            return None if slow and prod(extents) > _SLOW else self._sample_fault(0, 0, 0)
        length = extents[axis]
        rows = max(1, _SAMPLE // (prod(extents) // length))
        rows = -(-rows // align) * align if length > align else length
        tail = max(0, length - rows) // align * align
        spans = [(0, rows), (tail, length)] if tail else [(0, length)]
        return next(filter(None, (self._sample_fault(axis, *span) for span in spans)), None)

    def _sampled(self) -> tuple[int | None, int]:
        """The axis of which the two ends are compared, and what an end is a multiple of: whole blocks, whole bytes.

        That is the first axis that no reduction is over, or over blocks of which; None where there is none such.
        """
        case, rank = self.case, len(self.case.extents)
        free = [axis for axis in range(rank) if axis not in case.together]
        if not case.operation.reduces:
            return (free[0] if free else None), _ALIGN
        if not case.operation.analysis.over:  # over several things, so that no part of an end stands for itself
            return None, 1
        if free:
            return free[0], _COLUMNS if free[0] == rank - 1 else 1
        return (0, lcm(case.row_length, 2)) if case.operation.block else (None, 1)

    def _sample_fault(self, axis: int, start: int, end: int) -> str | None:
        """What differs from the reference between two positions of an axis; of everything where they are the same."""
        case, operation = self.case, self.case.operation
        whole = start == end
        extents = case.extents if whole else _with(case.extents, axis, end - start)
        sizes = case.sizes_of(extents)
        arguments, actual = {}, {}
        words = {placed.operand.name: placed.word for placed in case.operands}
        for placed in case.operands:
            name, part = placed.operand.name, self.arrays[placed.operand.name]
            if placed.operand.scalar and placed.operand in operation.inputs:
                arguments[name] = part
                continue
            axes = case.axes_of(placed.operand)
            if not whole and axis in axes:
                position = axes.index(axis)
                length = packed_shape(operation.shape_of(placed.operand, sizes), placed.word)[position]
                before = case.sizes_of(_with(case.extents, axis, start))
                first = packed_shape(operation.shape_of(placed.operand, before), placed.word)[position]
                part = part[(slice(None),) * position + (slice(first, first + length),)]
            host = _host(part)
            if placed.operand in operation.outputs:
                actual[name] = host
                host = np.empty_like(host)
            arguments[name] = host
        plan = case.plan_class.select(case.descriptor(extents), preference=BackendKind.REFERENCE)
        plan.run(case.plan_class.args_type(**arguments))
        for name, got in actual.items():
            expected, word = arguments[name], words[name]
            wrong = np.count_nonzero(_bytes(got) != _bytes(expected))
            if wrong and (
                operation.analysis.exact or nearness.beyond(_bytes(got), _bytes(expected), word, case.types["T"])
            ):
                where = "" if whole else f" in {'rows' if axis == 0 else f'axis {axis},'} {start} to {end}"
                return f"{name}: {wrong} of {got.nbytes} bytes{where} are not the reference's"
        return None


def _storage(word: str) -> np.dtype:
    """What the elements of a CuPy array are; 8-bit floats, of which CuPy has none, travel as bytes."""
    return np.dtype(np.uint8) if DTYPES[word].narrow_float else DTYPES[word].storage


def _with(extents: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    """A shape with another length of one axis."""
    return (*extents[:axis], length, *extents[axis + 1 :])


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _host(array) -> np.ndarray:
    """A copy on the CPU, of any strides and element type."""
    integers = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize]
    contiguous = cupy.ascontiguousarray(array.view(integers))  # of one axis where the array has none
    return contiguous.get().view(array.dtype).reshape(array.shape)
