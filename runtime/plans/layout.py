"""How outputs lie where nobody gives them: as the inputs do, if these lie alike.

Torch says that the memory format is preserved, NumPy that the order is "K". Inputs decide that have an element for each
of the index space. Where these have the same strides, without gaps, outputs of as many elements get these strides. All
of them are then one row to an elementwise kernel, however the caller's axes are permuted. Inputs of fewer elements do
not decide: a value for each channel, and what is repeated along an axis. Everything else is C-contiguous: rows that are
normalized, say, of which the next operation wants the elements side by side, and what scans make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from skuda.arrays.views import View
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operation


def deciding(operation: Operation, words: Sequence[str]) -> tuple[int, ...]:
    """The inputs whose strides decide; () where outputs are C-contiguous however these lie.

    Args:
        operation: of a call.
        words: the element type of each operand.
    """
    c_order = operation.creates or operation.analysis.scans or _is_of_rows(operation)
    if c_order or not any(preserving(operation, words)):
        return ()
    arrays = [index for index, operand in enumerate(operation.inputs) if not operand.scalar]
    return tuple([index for index in arrays if _is_whole(operation, index, words)])


def preserving(operation: Operation, words: Sequence[str]) -> tuple[bool, ...]:
    """Of each output, whether it lies as the inputs that decide; `words` as of `deciding`."""
    first = len(operation.inputs)
    return tuple([_is_whole(operation, index, words) for index in range(first, len(operation.operands))])


def strides_of(
    operation: Operation,
    words: Sequence[str],
    shapes: Sequence[tuple],
    views: Sequence,
    known: Callable[[Any], bool] = bool,
) -> list[tuple | None]:
    """Of each output its strides, None where it is C-contiguous.

    Args:
        operation, words: as of `deciding`.
        shapes: of each output, as it travels; extents may be symbols, and so may strides.
        views: the inputs that decide, in their common shape; numbers may be among them.
        known: whether a condition holds, as far as symbols are known.
    """
    whole = preserving(operation, words)
    shape = next((shape for shape, lies_so in zip(shapes, whole, strict=True) if lies_so), None)
    strides = None if shape is None else _permuted(views, tuple(shape), known)
    return [strides if lies_so else None for lies_so in whole]


def _is_of_rows(operation: Operation) -> bool:
    """Whether an operation reduces the last dimensions, but not all, or its stages do."""
    over = operation.analysis.over
    if over is None:
        return bool(operation.analysis.stages)
    names = [dim.name for dim in operation.space]
    return len(over.dims) < len(names) and names[-len(over.dims) :] == list(over.dims)


def _is_whole(operation: Operation, index: int, words: Sequence[str]) -> bool:
    """Whether an operand's array has an element, and no half of one, for each of the index space."""
    return operation.operands[index].dims == operation.space and not DTYPES[words[index]].packed


def _permuted(views: Sequence[Any], shape: tuple, known: Callable[[Any], bool]) -> tuple | None:
    """The strides of views that lie alike without gaps, not in C order; None where they do not.

    One that repeats elements lies any way, as a number does.
    """
    found: tuple | None = None
    axes = [axis for axis, extent in enumerate(shape) if not known(extent == 1)]
    for view in views:
        if not isinstance(view, View):
            continue
        if view.contiguous or not _same(view.shape, shape, known):
            return None
        steps = [view.strides[axis] for axis in axes]
        if any(known(step == 0) for step in steps):
            continue
        if found is None:
            if not _is_dense(steps, [shape[axis] for axis in axes], known):
                return None
            found, first = tuple(view.strides), steps
        elif not _same(steps, first, known):
            return None
    return found


def _same(numbers: Sequence, others: Sequence, known: Callable[[Any], bool]) -> bool:
    return len(numbers) == len(others) and all(known(one == other) for one, other in zip(numbers, others))


def _is_dense(steps: list, extents: list, known: Callable[[Any], bool]) -> bool:
    """Whether elements lie without gaps, in any order of axes."""
    left, expected = list(range(len(steps))), 1
    while left:
        nearest = next((axis for axis in left if known(steps[axis] == expected)), None)
        if nearest is None:
            return False
        expected *= extents[nearest]
        left.remove(nearest)
    return True
