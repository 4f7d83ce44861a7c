"""Whether the elements of views coincide, decided exactly and from addresses alone: no memory is touched.

NumPy solves the arithmetic (`np.shares_memory`); it is given arrays that merely claim to lie at the views'
addresses, so the views may be of a GPU's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from skuda.arrays.views import View

# Deciding overlap is NP-hard in the number of axes. This many candidates take about 2 ms, and the arguments
# of kernels need a handful; what is harder counts as overlapping.
_MAX_WORK = 100_000


class _Memory:
    """Something that NumPy takes an array's description from, and that the array keeps alive."""

    __slots__ = ("__array_interface__", "owner")


def array_at(pointer, shape, byte_strides, itemsize, readonly, owner) -> np.ndarray:
    """An array of opaque elements at an address, with no copy; it keeps `owner` alive."""
    memory = _Memory()
    memory.owner = owner
    memory.__array_interface__ = {
        "version": 3,
        "typestr": f"|V{itemsize}",
        "data": (pointer, readonly),
        "shape": shape,
        "strides": byte_strides,
    }
    return np.asarray(memory)


def overlap(a: View, b: View) -> bool:
    """Whether any byte of `a` is a byte of `b`. True also where deciding that would take too long.

    Views on different devices never overlap, nor does a view without elements.
    """
    if a.device != b.device:
        return False
    low_a, high_a = a.bounds()
    low_b, high_b = b.bounds()
    if low_a >= high_b or low_b >= high_a or low_a == high_a or low_b == high_b:
        return False
    if a.contiguous and b.contiguous:
        return True
    return _shares_memory(_claimed(a), _claimed(b))


def overlaps_itself(view: View) -> bool:
    """Whether two elements of a view are the same memory, so that writing them all would be a race."""
    if view.contiguous:
        return False
    reach = 0  # the farthest that the axes with smaller strides lead
    axes = zip(view.strides, view.shape, strict=True)
    for stride, extent in sorted((abs(stride), extent) for stride, extent in axes if extent != 1):
        if stride == 0:
            return True
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    # Of two coinciding elements, take the first axis on which their indices differ: moved together, the one
    # lies at index 0 of that axis (and of those before it), the other beyond.
    array = _claimed(view)
    for axis in range(array.ndim):
        before = (slice(1),) * axis
        if _shares_memory(array[(*before, slice(1))], array[(*before, slice(1, None))]):
            return True
    return False


def _claimed(view: View) -> np.ndarray:
    # A broadcast axis adds no memory, but could make the array larger than NumPy allows.
    shape = tuple([1 if stride == 0 else n for n, stride in zip(view.shape, view.strides, strict=True)])
    itemsize = view.storage.itemsize
    return array_at(view.pointer, shape, tuple([s * itemsize for s in view.strides]), itemsize, True, None)


def _shares_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_MAX_WORK)
    except (np.exceptions.TooHardError, OverflowError):
        return True
