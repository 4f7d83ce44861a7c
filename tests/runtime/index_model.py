"""The index arithmetic of the device, written a second time in Python integers: index_space.cuh.

What tests of launches share: the slots of a launch are read in the order in which a kernel declares them, and arrays
that hold their own addresses say, by NumPy's own indexing, which positions are right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from skuda.arrays.views import CPU, View

AXES, BROADCAST_AXES, BLOCK, MARGIN = 8, 4, 128, 32


def divide(slots, n: int) -> int:
    """index_space.cuh's Divide: the upper half of a product, 64 x 64 or 32 x 32 bits, shifted."""
    _, wide, narrow, shift = slots
    assert 0 <= wide < 1 << 64 and 0 <= narrow < 1 << 32 and 0 <= n < 1 << 63
    if n >> 31:
        return (wide * (n << 1) >> 64) >> shift
    return (narrow * (n << 1) >> 32) >> (shift & 31)


class Slots:
    """Reads a kernel's slots in the order in which its struct declares them."""

    def __init__(self, slots):
        self.rest = list(slots)

    def one(self) -> int:
        return self.rest.pop(0)

    def divide(self) -> tuple[int, ...]:
        return tuple(self.one() for _ in range(4))

    def outer(self) -> tuple[int, tuple]:
        return self.one(), tuple(self.divide() for _ in range(AXES))


def outer_offset(outer, row: int, strides) -> int:
    """Outer::offset."""
    first_axis, extent = outer
    total = 0
    for axis in range(AXES - 1, first_axis - 1, -1):
        above = divide(extent[axis], row)
        total += (row - above * extent[axis][0]) * strides[axis]
        row = above
    assert row == 0, "the outer axes do not cover the rows"
    return total


@dataclass(frozen=True)
class Array:
    """An operand as the device sees it, in elements (of a packed one, nibbles)."""

    name: str
    bits: int
    pointer: int
    strides: tuple[int, ...]
    step: int | None  # of a parameter along a row; None for operands in the output's shape
    row: int  # bytes from one row of a table to the next (of columns: from a table); of vec, elements of a line's gap
    apart: int  # bytes from one share of a thread to its next; of columns, from one row or column to the next
    shares: bool  # a parameter that several elements share
    plane: tuple[int, int, int]  # steps along and across the tiles, and whether lines run across
    blocked: bool
    output: bool
    valid: frozenset[int]  # where its elements are
    below: int | None  # of a parameter that rows of a table have one of: bytes from one row that is counted to the next
    across: int  # of the same: bytes from one column to the next
    period: tuple[int, ...]  # of the same: the division by the rows of each table of a stack
    span: tuple[int, int] | None  # Span, of inputs in the output's shape that are read in words

    def read(self, offset: int) -> int:
        """A load of one element, which must exist."""
        assert offset in self.valid, f"{self.name}: element {offset} is read, which it does not have"
        return offset

    @property
    def packed(self) -> bool:
        return self.bits < 8

    @property
    def unit(self) -> int:
        """Bytes of a stored unit: an element, or a pair of packed ones."""
        return max(1, self.bits // 8)

    def byte(self, offset: int) -> int:
        """Address of an element."""
        return self.pointer + offset * self.bits // 8

    def position(self, offset: int, element: int) -> int:
        """An element of a row that starts at an offset; a packed row starts at a byte (lanes.cuh's `at`)."""
        return (offset >> 1 << 1 if self.packed else offset) + element

    def lane_positions(self, offset: int, first: int, lanes: int, aligned: bool) -> list[int]:
        """Where `load` and `store` find the lanes of a whole vector."""
        if aligned:
            width = min(16, lanes * self.bits // 8)
            address = self.pointer + (offset * self.bits >> 3) + (first * self.bits >> 3)
            assert address % width == 0, f"{self.name}: a {width}-byte access of address {address:#x}"
        if not self.packed:
            return [offset + first + lane for lane in range(lanes)]
        byte = (offset >> 1) + (first >> 1)
        return [2 * (byte + lane // 2) + lane % 2 for lane in range(lanes)]


def addresses(shape: tuple[int, ...], rng: random.Random, how: str) -> np.ndarray:
    """An array of this shape whose elements are their own distances from the start of its memory."""
    rank = len(shape)
    if how == "contiguous":
        return np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    if how == "broadcast":
        kept = tuple(extent if rng.random() < 0.5 else 1 for extent in shape)
        return np.broadcast_to(addresses(kept, rng, rng.choice(["contiguous", "permuted", "stepped"])), shape)
    order = list(range(rank))
    if how in ("permuted", "stepped"):
        rng.shuffle(order)
    steps = [rng.choice([1, 1, 2, 3, -1, -2]) if how == "stepped" else 1 for _ in shape]
    full = [
        extent * abs(step) + rng.choice([0, 0, 1]) * (how != "permuted")
        for extent, step in zip(shape, steps, strict=True)
    ]
    memory = np.arange(int(np.prod(full, dtype=int))).reshape([full[axis] for axis in order])
    view = memory.transpose(np.argsort(order))
    for axis, (extent, step) in enumerate(zip(shape, steps, strict=True)):
        view = view[(slice(None),) * axis + (slice(None, None, step),)]
        view = view[(slice(None),) * axis + (slice(0, extent),)]
    assert view.shape == shape
    return view


def view_over(array: np.ndarray, storage: np.dtype, pointer: int = 1 << 20) -> View:
    """The array of addresses as an operand with other elements, elsewhere in memory."""
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(pointer, array.shape, strides, storage, CPU, array.flags.c_contiguous, False, array)
