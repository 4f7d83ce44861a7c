"""Reductions as operators of ONNX, beside the printer of formulas.

A sum of reals is ONNX's: an implementation chooses its order. Extremes follow the language's rule for NaN, about which
ONNX says nothing; of operations whose bits are the same, the rule for zeros of both signs too.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.codegen.nodes import BOOL, REAL, REDUCE, Node
from skuda.codegen.reductions import REDUCTIONS, Scan
from skuda.model.operation import Over

if TYPE_CHECKING:
    from skuda.codegen.onnx_printer import Printer

_OPERATORS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin",
              "any": "ReduceMax", "all": "ReduceMin"}  # fmt: skip
# What changes no reduction: of reals and integers.
_NEUTRAL = {"sum": (-0.0, 0), "prod": (1.0, 1), "any": (0.0, 0), "all": (1.0, 1),
            "max": (-math.inf, -(1 << 63)), "min": (math.inf, (1 << 63) - 1)}  # fmt: skip
_NEUTRAL["logsumexp"] = _NEUTRAL["max"]


class Reductions:
    """Prints the reductions of one operation.

    Args:
        printer: of its formulas.
    """

    def __init__(self, printer: Printer):
        self.printer, self.emit = printer, printer.emit
        self.floats = np.dtype(printer.C).kind == "f"  # else no value is NaN, none is -0

    def value(self, node: Node) -> Any:
        """A reduction's value, with one element along what it is over, or one for each block."""
        how, over, argument = node.op.removeprefix(REDUCE), Over.of(node.text), node.args[0]
        value = self.printer.value(argument)
        for name in over.dims:
            if name not in argument.dims:
                value = self.printer.for_each(value, argument.dims, name)
        if argument.kind == BOOL:
            value = self.printer.cast(value, np.int32)
        axes = sorted(axis for name in over.dims for axis in self.printer.placing.axes[name])
        if node.is_scan:
            return self._sums(value, axes, REDUCTIONS[how])
        keep = 1
        if over.block:
            value, axes, keep = self._in_blocks(value, how, argument.kind, axes[0], over)
        if not axes:  # one value is a row of one element
            index = how in ("argmax", "argmin")
            found = self.emit("ReduceSum", self.emit("Shape", value), keepdims=0) if index else value
            found = self.emit("Sub", value, value) if how == "squared_deviations" else found
        elif how in ("argmax", "argmin"):
            found = self._index(how, value, argument.kind, axes)
        elif how == "logsumexp":
            found = self._log_of_sum(value, axes, keep)
        elif how == "squared_deviations":
            apart = self.emit("Sub", value, self._over("ReduceMean", value, axes, 1))
            found = self._over("ReduceSum", self.emit("Mul", apart, apart), axes, keep)
        else:
            found = self._reduced(how, value, argument, axes, keep)
            signs = self.floats and self.printer.exact and argument.kind == REAL and not _magnitude(argument)
            if signs and how in ("max", "min"):
                found = self._signed(how, found, value, axes, keep)
        return self.printer.cast(found, np.bool_) if argument.kind == BOOL else found

    def _log_of_sum(self, value: Any, axes: list[int], keep: int) -> Any:
        """Of exponentials beside the largest element, where that is finite."""
        largest = self._over("ReduceMax", value, axes, 1)
        finite = self.printer.intrinsics.isfinite(None, largest)
        beside = self.printer.intrinsics.chosen(finite, largest, self.printer.real(0))
        total = self._over("ReduceSum", self.emit("Exp", self.emit("Sub", value, beside)), axes, 1)
        found = self.emit("Add", beside, self.emit("Log", total))
        return found if keep else self.emit("Squeeze", found, self.printer.whole(axes))

    def _sums(self, value: Any, axes: list[int], scan: Scan) -> Any:
        """The sum of each element and those before it, along all the axes."""
        kept = [axis for axis in range(self.printer.placing.rank) if axis not in axes]
        options = {"exclusive": int(scan.exclusive), "reverse": int(scan.reverse)}
        if len(axes) == 1:
            return self.emit("CumSum", value, self.printer.constant(axes[0], np.int64), **options)
        order = [*kept, *axes]
        moved = self.emit("Transpose", value, perm=order) if order != sorted(order) else value
        rows = self.emit("Flatten", moved, axis=len(kept))
        found = self.emit("CumSum", rows, self.printer.constant(1, np.int64), **options)
        found = self.emit("Reshape", found, self.emit("Shape", moved))
        back = [order.index(axis) for axis in range(len(order))]
        return self.emit("Transpose", found, perm=back) if order != sorted(order) else found

    def _reduced(self, how: str, value: Any, argument: Node, axes: list[int], keep: int) -> Any:
        found = self._over(_OPERATORS[how], value, axes, keep)
        if how not in ("max", "min") or argument.kind != REAL or not self.floats or _finite(argument):
            return found
        nans = self._over("ReduceMax", self.printer.cast(self.emit("IsNaN", value), np.int32), axes, keep)
        return self.emit("Where", self.printer.cast(nans, np.bool_), self.printer.real(math.nan), found)

    def _signed(self, how: str, found: Any, value: Any, axes: list[int], keep: int) -> Any:
        """An extreme that is zero, with its sign: +0 is above -0."""
        real = self.printer.real
        better = real(math.inf if how == "max" else -math.inf)
        zeros = self.emit("Equal", self.emit("Div", real(1), value), better)  # of zeros, those of the sign that wins
        zeros = self._over("ReduceMax", self.printer.cast(zeros, np.int32), axes, keep)
        some = self.printer.cast(zeros, np.bool_)
        chosen, unless = self.printer.intrinsics.chosen, self.printer.intrinsics.unless
        zero = chosen(some if how == "max" else unless(some), real(0.0), real(-0.0))
        return chosen(unless(self.emit("Equal", found, real(0))), found, zero)

    def _over(self, operator: str, value: Any, axes: list[int], keep: int) -> Any:
        return self.emit(operator, value, self.printer.whole(axes), keepdims=keep)

    def _index(self, how: str, value: Any, kind: str, axes: list[int]) -> Any:
        """The index of the first extreme, or of the first NaN, counted over all the axes."""
        kept = [axis for axis in range(self.printer.placing.rank) if axis not in axes]
        flat = self.emit("Transpose", value, perm=[*kept, *axes]) if kept + axes != sorted(kept + axes) else value
        flat = self.emit("Flatten", flat, axis=len(kept))
        found = self.emit("ArgMax" if how == "argmax" else "ArgMin", flat, axis=1, keepdims=1)
        if kind == REAL and self.floats:
            nans = self.printer.cast(self.emit("IsNaN", flat), np.int32)
            first = self.emit("ArgMax", nans, axis=1, keepdims=1)
            some = self.emit("ReduceMax", nans, self.printer.whole([1]), keepdims=1)
            found = self.emit("Where", self.printer.cast(some, np.bool_), first, found)
        shape = self.emit("Shape", value)
        ones = self.printer.whole([1] * len(axes))
        return self.emit("Reshape", found, self.emit("ScatterElements", shape, self.printer.whole(axes), ones, axis=0))

    def _in_blocks(self, value: Any, how: str, kind: str, axis: int, over: Over) -> tuple[Any, list[int], int]:
        """A tensor whose axis is two, blocks and their elements; a short last one is filled up with what changes
        nothing."""
        whole, size = self.printer.whole, self.printer.placing.values[over.block]
        length = self.printer.extent(over.dims[0])
        short = self.emit("Mod", self.emit("Neg", length), whole(size))  # has the divisor's sign
        pads = self.emit("Concat", whole([0]), self.emit("Unsqueeze", short, whole([0])), axis=0)
        real, integer = _NEUTRAL[how]
        real = real if self.floats else integer
        if kind == BOOL:
            fill = self.printer.constant(integer, np.int32)
        else:
            fill = self.printer.real(real) if kind == REAL else whole(integer)
        value = self.emit("Pad", value, pads, fill, whole([axis]))
        before, after = self.emit("Shape", value, start=0, end=axis), self.emit("Shape", value, start=axis + 1)
        shape = self.emit("Concat", before, whole([-1, size]), after, axis=0)
        return self.emit("Reshape", value, shape), [axis + 1], 0

    def count(self, node: Node) -> Any:
        """How many elements a row has, as a real; of blocks, each block's."""
        over, whole = Over.of(node.text), self.printer.whole
        extents = [self.printer.extent(name) for name in over.dims]
        total = extents[0]
        for extent in extents[1:]:
            total = self.emit("Mul", total, extent)
        if over.block:
            size = whole(self.printer.placing.values[over.block])
            starts = self.emit("Range", whole(0), total, size)
            total = self.emit("Min", self.emit("Sub", total, starts), size)
            axis = self.printer.placing.axes[over.dims[0]][0]
            others = [each for each in range(self.printer.placing.rank) if each != axis]
            total = self.emit("Unsqueeze", total, whole(others)) if others else total
        return self.printer.cast(total, self.printer.C)


def _finite(node: Node) -> bool:
    """Whether a value is none of what is not finite, by its own formula: `where(isfinite(x), x, 0)`."""
    return node.op == "where" and node.args[0].op == "isfinite" and node.args[2].op in ("number", "/", "neg")


def _magnitude(node: Node) -> bool:
    """Whether a value is finite and no -0: `where(isfinite(x), abs(x), 0)`."""
    return _finite(node) and node.args[1].op == "abs"
