"""Shapes of arrays by the dimensions of an operation, and dimensions by the shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from skuda.errors import InvalidProblem, shown
from skuda.model.dtypes import DTYPES
from skuda.model.operands import Operand


class Shapes:
    """What an `Operation` says about shapes; it reads the fields of one."""

    def shape_of(self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]) -> tuple[int, ...]:
        """An operand's shape under given sizes (dimensions and block lengths)."""
        shape: list[int] = []
        for dim in operand.dims:
            size = sizes[dim.name]
            if isinstance(size, tuple):
                shape += size
            elif dim.block is not None:
                shape.append(-(-size // sizes[dim.block]))
            else:
                shape.append(size)
        return tuple(shape)

    def sizes_by_axis(self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]) -> dict[int, int]:
        """The axes of an operand whose size the row says, with that size. The array has the operand's axes alone."""
        found: dict[int, int] = {}
        axis = 0
        for dim in operand.dims:
            if dim.size is not None:
                found[axis] = dim.size
            size = sizes[dim.name]
            axis += len(size) if isinstance(size, tuple) else 1
        return found

    def classes(self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]) -> int:
        """Among how many elements an operand may name one, as a label does: those along the first position that has
        none of its dimensions. 0 where there is none.
        """
        own = {dim.name for dim in operand.dims}
        placed = (each for each in self.positions if not own & {dim.name for dim in each.dims})
        return next((prod(self.shape_of(each, sizes)) for each in placed), 0)

    def spread(
        self, operand: Operand, sizes: Mapping[str, int | tuple[int, ...]]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shape of an operand that lacks some of the space's dimensions in an array that has all of them, with one
        element each for those that it lacks (as `keepdims` leaves them), and which axes of that array are its own.

        None where it lacks none, has none, or has them in another order.
        """
        own = {dim.name: dim for dim in operand.dims}
        if not own or [dim.name for dim in self.space if dim.name in own] != [*own] or len(own) == len(self.space):
            return None
        shape: list[int] = []
        axes: list[int] = []
        for dim in self.space:
            size = sizes[dim.name]
            extents = size if isinstance(size, tuple) else (size,)
            if dim.name not in own:
                shape += [1] * len(extents)
                continue
            axes += range(len(shape), len(shape) + len(extents))
            block = own[dim.name].block
            shape += extents if block is None else [-(-extent // sizes[block]) for extent in extents]
        return tuple(shape), tuple(axes)

    def differ(self, values: Sequence) -> bool:
        """Whether inputs that broadcast have several shapes, or some are numbers: what has no shape."""
        places = self.broadcast
        if not places:
            return False
        shapes = [getattr(values[index], "shape", None) for index in places]
        return None in shapes or not all([same_shape(shape, shapes[0]) for shape in shapes])

    def binds_after(self, operand: Operand) -> tuple[bool, bool]:
        """A key that sorts operands so that each can be bound by what those before it have shown."""
        several = sum(dim.many for dim in operand.dims) > 1
        return several and self.axis is None, operand.dims != self.space

    def bind(
        self, operand: Operand, shape: tuple[int, ...], axis: int | None, plan: str, ranks: Mapping[str, int] = {}
    ) -> dict:
        """Sizes of an operand's dimensions from an array's shape.

        Two `*name`s are split by the number of axes that one of them is known to have (`ranks`), else by `axis`.

        Raises:
            InvalidProblem: the shape has too few axes, or the axis is none of them, or a dimension of a given size has
                another.
        """
        manies = [index for index, dim in enumerate(operand.dims) if dim.many]
        singles = len(operand.dims) - len(manies)
        spare = len(shape) - singles
        if spare < 0 or (spare > 0 and not manies):
            expected = ", ".join(map(str, operand.dims))
            raise InvalidProblem(f"{plan}: {operand.name} has shape {shape}, expected ({expected})")
        lengths = {index: 0 for index in manies}
        known = next((index for index in manies if operand.dims[index].name in ranks), None)
        if len(manies) == 1:
            lengths[manies[0]] = spare
        elif known is not None:
            lengths[known] = ranks[operand.dims[known].name]
            if lengths[known] > spare:
                expected = ", ".join(map(str, operand.dims))
                raise InvalidProblem(
                    f"{plan}: {operand.name} has shape {shape}, expected ({expected}) with {lengths[known]} axes of "
                    f"{operand.dims[known]}"
                )
            lengths[next(index for index in manies if index != known)] = spare - lengths[known]
        elif manies:
            axis = int(axis)
            position = axis + len(shape) if axis < 0 else axis
            if not 0 <= position < len(shape):
                raise InvalidProblem(
                    f"{plan}: axis is {shown(axis)}, expected {-len(shape)} to {len(shape) - 1} "
                    f"for {operand.name} of shape {shape}"
                )
            lengths[manies[0]], lengths[manies[1]] = position, spare - position
        sizes: dict[str, int | tuple[int, ...]] = {}
        start = 0
        for index, dim in enumerate(operand.dims):
            if dim.many:
                sizes[dim.name] = tuple(shape[start : start + lengths[index]])
                start += lengths[index]
            else:
                sizes[dim.name] = shape[start]
                if dim.size is not None and shape[start] != dim.size:
                    expected = ", ".join(map(str, operand.dims))
                    raise InvalidProblem(
                        f"{plan}: {operand.name} has shape {shape}, expected ({expected}): dimension {start} must be "
                        f"{dim.size}, got {shape[start]}"
                    )
                start += 1
        return sizes


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are the same. Symbols in shapes of several lengths are not compared, which would bind them."""
    return len(a) == len(b) and tuple(a) == tuple(b)


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape that NumPy broadcasts some shapes to; None where they do not fit each other. Extents may be symbols."""
    rank = max(map(len, shapes))
    found = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if found[axis] == 1:
                found[axis] = extent
            elif extent != found[axis] and extent != 1:
                return None
    return tuple(found)


def packed_shape(shape: tuple[int, ...], word: str) -> tuple[int, ...]:
    """The shape that an array of this element travels as: packed types halve the last axis, rounding up."""
    if not DTYPES[word].packed or not shape:
        return shape
    return (*shape[:-1], -(-shape[-1] // 2))


def count(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    return prod(shape)
