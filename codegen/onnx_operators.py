"""The operators of integers and booleans as operators of ONNX, beside the printer of formulas.

Integers are int64, whose sums and products wrap in ONNX Runtime as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.codegen.nodes import BOOL, INT, Node

if TYPE_CHECKING:
    from skuda.codegen.onnx_printer import Printer

_BITS = {"&": "BitwiseAnd", "|": "BitwiseOr", "^": "BitwiseXor", "~": "BitwiseNot"}
_OF_BOOLEANS = {"&": "And", "|": "Or", "^": "Xor", "~": "Not"}
_POWERS = [1 << bits for bits in range(63)] + [-(1 << 63)]  # what a shift multiplies by


class Operators:
    """Prints operators, from their nodes and the values of their operands.

    Args:
        printer: of the formulas.
    """

    def __init__(self, printer: Printer):
        self.emit, self.real, self.whole, self.constant = printer.emit, printer.real, printer.whole, printer.constant
        self.cast, self.intrinsics, self.C = printer.cast, printer.intrinsics, np.dtype(printer.C)

    def value(self, node: Node, *operands: Any) -> Any:
        """The value of an operator."""
        if node.op in _BITS:
            booleans = node.kind == BOOL or (node.kind != INT and np.bool_ == self.C)
            return self.emit((_OF_BOOLEANS if booleans else _BITS)[node.op], *operands)
        if node.op in ("<<", ">>"):
            return (self.shifted_left if node.op == "<<" else self.shifted_right)(*operands)
        if node.kind != INT and self.C.kind == "f":
            return (self.quotient_of_reals if node.op == "//" else self.intrinsics.remainder)(node, *operands)
        return (self.quotient if node.op == "//" else self.rest)(*operands)

    def where(self, condition: Any, first: Any, second: Any) -> Any:
        """Of integers."""
        return self.emit("Where", condition, first, second)

    def _divisor(self, b: Any) -> tuple[Any, Any, Any]:
        """Whether a divisor is 0, and -1, by which no processor divides the least integer; others, and 1 for these."""
        of_zero, of_minus = (self.emit("Equal", b, self.whole(each)) for each in (0, -1))
        return of_zero, of_minus, self.where(self.emit("Or", of_zero, of_minus), self.whole(1), b)

    def quotient(self, a: Any, b: Any) -> Any:
        """Toward minus infinity; ONNX divides toward 0."""
        of_zero, of_minus, divisor = self._divisor(b)
        zero = self.whole(0)
        uneven = self.emit("Not", self.emit("Equal", self.emit("Mod", a, divisor), zero))
        below = self.emit("Xor", self.emit("Less", a, zero), self.emit("Less", divisor, zero))
        quotient = self.emit("Div", a, divisor)
        less = self.where(self.emit("And", uneven, below), self.emit("Sub", quotient, self.whole(1)), quotient)
        return self.where(of_zero, zero, self.where(of_minus, self.emit("Sub", zero, a), less))

    def rest(self, a: Any, b: Any) -> Any:
        """What that leaves; 0 by 1, and so by 0 and -1."""
        return self.emit("Mod", a, self._divisor(b)[2])

    def quotient_of_reals(self, node: Node, a: Any, b: Any) -> Any:
        """As the kernels': from what fmod leaves; a zero has the sign of the quotient."""
        zero, one, chosen = self.real(0), self.real(1), self.intrinsics.chosen
        rest, plain = self.emit("Mod", a, b, fmod=1), self.emit("Div", a, b)
        quotient = self.emit("Div", self.emit("Sub", a, rest), b)
        signs = self.emit("Xor", self.emit("Less", b, zero), self.emit("Less", rest, zero))
        differs = self.emit("And", self.emit("Not", self.emit("Equal", rest, zero)), signs)
        quotient = chosen(self.intrinsics.unless(differs), quotient, self.emit("Sub", quotient, one), node.args)
        whole = self.emit("Floor", quotient)
        above = self.emit("Greater", self.emit("Sub", quotient, whole), self.real(0.5))
        whole = self.emit("Add", whole, self.cast(above, self.C))
        is_zero = self.emit("Equal", quotient, zero)
        whole = chosen(self.intrinsics.unless(is_zero), whole, self.emit("Mul", plain, zero), node.args)
        return chosen(self.intrinsics.unless(self.emit("Equal", b, zero)), whole, plain, node.args)

    def _power(self, by: Any) -> tuple[Any, Any, Any]:
        """Whether a shift is beyond 63 bits; its bits, 63 if so; and their power of two, which is negative for 63."""
        zero, most = self.whole(0), self.whole(63)
        beyond = self.emit("Or", self.emit("Less", by, zero), self.emit("Greater", by, most))
        bits = self.where(beyond, most, by)
        return beyond, bits, self.emit("Gather", self.constant(_POWERS, np.int64), bits, axis=0)

    def shifted_left(self, a: Any, by: Any) -> Any:
        beyond, _, power = self._power(by)
        return self.where(beyond, self.whole(0), self.emit("Mul", a, power))

    def shifted_right(self, a: Any, by: Any) -> Any:
        _, bits, power = self._power(by)
        zero, last = self.whole(0), self.emit("Equal", bits, self.whole(63))
        sign = self.where(self.emit("Less", a, zero), self.whole(-1), zero)
        return self.where(last, sign, self.quotient(a, self.where(last, self.whole(1), power)))

