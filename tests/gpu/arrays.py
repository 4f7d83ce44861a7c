"""The cases of tests/values.py with CuPy's arrays, and what the reference makes of the same operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cupy
import numpy as np
from distance import distance
from problems import ArrayLayout
from values import POISON, UNTOUCHED, Case, memory_of

from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.verification import nearness


def view(memory, storage: np.dtype, at: ArrayLayout | None):
    """The operand within its memory on the GPU, which is bytes."""
    if at is None:
        return cupy.ndarray((), storage, memory.data)
    strides = tuple(step * storage.itemsize for step in at.strides)
    return cupy.ndarray(at.shape, storage, memory.data + at.start * storage.itemsize, strides)


@dataclass(frozen=True)
class Difference:
    """An output whose bytes are not the reference's: what to say of it, and how far it is off (see `distance`)."""

    text: str
    ulp: int | None


class Pair:
    """One case's memory on both sides.

    Attributes:
        gpu: by name all bytes of an operand's memory, gaps included, from a 256-byte boundary.
        expected: of each output what they are to be.
        finite: float elements of the outputs that are finite.
        open: of operations by instructions of the GPU, by output the bytes of which nothing is promised.
    """

    def __init__(self, case: Case):
        call, filled = case.call, case.problem()
        self.call, self.words, self.finite = call, filled.words, filled.finite
        layouts = dict(call.layouts)
        self.layouts = {name: layouts.get(name) for name in filled.words}
        self.gpu, self.expected = {}, {}
        for name, at in self.layouts.items():
            storage = DTYPES[self.words[name]].storage
            given = filled.inputs.get(name)
            self.gpu[name] = cupy.asarray(memory_of(at, given, storage, UNTOUCHED if given is None else POISON))
            if given is None:
                self.expected[name] = memory_of(at, filled.expected[name], storage, UNTOUCHED)
        scale = {**filled.inputs, **filled.expected}.get("scale")
        self.open = {} if call.plan_class.operation.analysis.exact else self._open(filled.expected, scale)

    def _open(self, outputs: dict, scale) -> dict:
        """By output, of which bytes nothing is promised: scales that are too small, and codes by these."""
        small = np.abs(np.asarray(scale, np.float64)) < nearness.SMALLEST
        found = {}
        for name, expected in outputs.items():
            try:
                of = np.broadcast_to(small if name == "scale" else small[..., None], np.shape(expected))
            except ValueError:  # several scales a row
                of = np.full(np.shape(expected), small.any())
            storage = DTYPES[self.words[name]].storage
            bits = np.where(of, 0xFF, 0).astype(np.uint8)
            memory = np.stack([memory_of(self.layouts[name], bits, np.dtype(np.uint8), 0)] * storage.itemsize, -1)
            found[name] = memory.reshape(-1) != 0
        return found

    def arguments(self) -> dict:
        """The operands on the GPU, by name."""
        return {name: view(self.gpu[name], DTYPES[self.words[name]].storage, at) for name, at in self.layouts.items()}

    def run(self) -> None:
        """Launches the kernel."""
        plan = self.call.plan(BackendKind.CUDA)
        size = plan.workspace_size
        plan.run(plan.args_type(**self.arguments()), workspace=cupy.full(size, UNTOUCHED, np.uint8) if size else None)

    def in_place(self, source: str, target: str) -> None:
        """Makes an output the array of an input."""
        at, storage = self.layouts[target], DTYPES[self.words[target]].storage
        elements = memory_of(at, np.array(True), np.dtype(bool), 0) if at else np.ones(1, np.uint8)
        around = np.repeat(elements, storage.itemsize) == 0
        self.expected[target][around] = POISON
        self.gpu[target] = self.gpu[source]

    def differences(self, what: str) -> Iterator[Difference]:
        """Each output of which a byte is not the reference's, in the gaps between elements too."""
        exact = self.call.plan_class.operation.analysis.exact
        element = "" if exact else self.call.plan(BackendKind.REFERENCE).types["T"]
        for name, expected in self.expected.items():
            actual = self.gpu[name].get()
            wrong = np.flatnonzero(actual != expected)
            if len(wrong) and not exact:
                actual = np.where(self.open[name], expected, actual)
                wrong = wrong * bool(nearness.beyond(actual, expected, self.words[name], element))
            if wrong.any():
                first = wrong[:5]
                text = (
                    f"{what} {dict(self.call.sizes)} {self.layouts[name]}: {len(wrong)} of {expected.size} bytes "
                    f"of {name} differ, first at {first.tolist()}: {actual[first].tolist()}, expected "
                    f"{expected[first].tolist()}"
                )
                yield Difference(text, distance(actual, expected, self.words[name]))

    def assert_same(self, what: str) -> None:
        """Every byte of the outputs' memory, the gaps between elements too."""
        assert not [difference.text for difference in self.differences(what)]
