"""The calls of tests/problems.py with arrays: NumPy's for the reference, and CuPy's with the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import cupy
import numpy as np
from distance import distance
from problems import Call, Place, fill

from skuda.dtypes import DTYPES
from skuda.sku import BackendKind

UNTOUCHED = 0xA5  # what output memory holds before


def memory_of(at: Place | None, operand, word: str, is_output: bool, rng) -> np.ndarray:
    """All memory of one operand, gaps included, as NumPy elements."""
    size = 1 if at is None else max(at.size, 1)
    if is_output:
        return np.full(size * DTYPES[word].storage.itemsize, UNTOUCHED, np.uint8).view(DTYPES[word].storage)
    return fill(operand, word, size, rng)


def view(memory, at: Place | None):
    """The operand within its memory (NumPy's or CuPy's)."""
    if at is None:
        return memory.reshape(())
    itemsize = memory.dtype.itemsize
    strides = tuple(step * itemsize for step in at.strides)
    if isinstance(memory, np.ndarray):
        return np.ndarray(at.shape, memory.dtype, memory.view(np.uint8).data, at.start * itemsize, strides)
    return cupy.ndarray(at.shape, memory.dtype, memory.data + at.start * itemsize, strides)


def on_gpu(memory: np.ndarray):
    """The same bytes on the current device, from a 256-byte boundary."""
    raw = cupy.asarray(memory.view(np.uint8))
    return cupy.ndarray(memory.shape, memory.dtype, raw.data)


@dataclass(frozen=True)
class Difference:
    """An output whose bytes are not the reference's: what to say of it, and how far it is off (see `distance`)."""

    text: str
    ulp: int | None


class Pair:
    """One call's memory on both sides."""

    def __init__(self, call: Call, seed: str):
        self.call = call
        rng = np.random.default_rng(crc32(seed.encode()))
        plan = call.plan(BackendKind.REFERENCE)
        operation = plan.operation
        places = dict(call.places)
        self.cpu, self.gpu, self.places = {}, {}, {}
        self.words = dict(zip([operand.name for operand in operation.operands], plan.words, strict=True))
        for operand, word in zip(operation.operands, plan.words, strict=True):
            at = self.places[operand.name] = places.get(operand.name)
            self.cpu[operand.name] = memory_of(at, operand, word, operand in operation.outputs, rng)
            self.gpu[operand.name] = on_gpu(self.cpu[operand.name])
        self.outputs = [operand.name for operand in operation.outputs]

    def arguments(self, memory: dict) -> dict:
        return {name: view(memory[name], at) for name, at in self.places.items()}

    def run(self, backend: BackendKind) -> None:
        plan = self.call.plan(backend)
        arguments = self.arguments(self.cpu if backend is BackendKind.REFERENCE else self.gpu)
        size = plan.workspace_size
        plan.run(plan.args_type(**arguments), workspace=cupy.full(size, UNTOUCHED, np.uint8) if size else None)

    def differences(self, what: str) -> Iterator[Difference]:
        """Each output of which a byte is not the reference's, in the gaps between elements too."""
        for name in self.outputs:
            expected = self.cpu[name].view(np.uint8)
            actual = cupy.ndarray(expected.shape, np.uint8, self.gpu[name].data).get()
            wrong = np.flatnonzero(actual != expected)
            if len(wrong):
                first = wrong[:5]
                text = (
                    f"{what} {dict(self.call.sizes)} {self.places[name]}: {len(wrong)} of {expected.size} bytes "
                    f"of {name} differ, first at {first.tolist()}: {actual[first].tolist()}, expected "
                    f"{expected[first].tolist()}"
                )
                yield Difference(text, distance(actual, expected, self.words[name]))

    def assert_same(self, what: str) -> None:
        """Every byte of the outputs' memory, the gaps between elements too."""
        assert not [difference.text for difference in self.differences(what)]
