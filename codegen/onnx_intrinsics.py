"""Intrinsics as operators of ONNX, beside the printer of formulas, and why some cannot be said."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from skuda.codegen.nodes import BOOL, INT, REAL, Node
from skuda.codegen.onnx_random import RandomNumbers
from skuda.model.dtypes import DType

if TYPE_CHECKING:
    from skuda.codegen.onnx_printer import Printer

_WHOLE = 2.0**53  # where round_to_int saturates
# Intrinsics whose rule is that of an operator.
SAME = {
    "abs": "Abs", "round_even": "Round", "floor": "Floor", "ceil": "Ceil", "isnan": "IsNaN", "isinf": "IsInf",
    "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "pow": "Pow",
}  # fmt: skip
# Why there is no operator for some, or none with the language's bound.
LACKING = {
    "copysign": "no operator of ONNX reads the sign of a NaN",
    "expm1": "ONNX has none, and Exp(x) - 1 has lost its digits where it is small",
    "log1p": "ONNX has none, and Log(1 + x) has lost the digits of x where it is small",
    "log1pexp": "ONNX's Softplus is Log(Exp(x) + 1), which has lost its digits far below 0",
    "cbrt": "ONNX has no cube root",
    "atan2": "ONNX has no arctangent of two arguments",
    "hypot": "ONNX has none, and a square leaves the range",
    "erfinv": "ONNX has no inverse of Erf",
    "lgamma": "ONNX has no gamma function",
    "digamma": "ONNX has no gamma function",
    "nextafter": "no operator of ONNX gives the bits of a float",
    "ldexp": "ONNX has none, and a power of two may leave the range where its product does not",
    "stochastic": "no operator of ONNX gives the exponent of a float",
    "fma": "ONNX has none that rounds once",
    "popcount": "no operator of ONNX counts bits",
    "clz": "no operator of ONNX counts bits",
}  # fmt: skip
# log(erfc(z) e^(z^2) / t) with t = 2 / (2 + z), as a sum of Chebyshev polynomials of 2 t - 1: for f64, z not below 0.
_ERFC = (
    -0.6513268598908547, 0.6419697923564902, 0.019476473204185836, -0.009561514786808632, -0.0009465953444820369,
    0.00036683949785276145, 4.252332480690777e-05, -2.0278578112534242e-05, -1.6242900046470256e-06,
    1.3036558355805232e-06, 1.5626441722066142e-08, -8.523809591492654e-08, 6.5290544390988515e-09,
    5.059343495551469e-09, -9.91364156493033e-10, -2.273651222931836e-10, 9.646791102015527e-11,
    2.3940380830391146e-12, -6.886027526497553e-12, 8.944879273090725e-13, 3.130921399342958e-13,
    -1.1270822361367252e-13, 3.810905255189232e-16, 7.106097613609237e-15, -1.5230282014571043e-15,
    -9.457494571291233e-17, 1.210237189224279e-16,
)  # fmt: skip


class Intrinsics(RandomNumbers):
    """Prints calls: a method for each intrinsic, which takes its node and the values of its arguments.

    Args:
        printer: of the formulas.
        operands: names of operands; other names are those of attributes.
    """

    def __init__(self, printer: Printer, operands: Collection[str]):
        self.operands = operands
        self.emit, self.cast, self.real, self.whole = printer.emit, printer.cast, printer.real, printer.whole
        self.constant, self.type_of, self.C = printer.constant, printer.type_of, printer.C
        self.exact = printer.exact
        self.floats = np.dtype(self.C).kind == "f"  # else C is an integer or a boolean, which has no -0 and no NaN

    def chosen(self, condition: Any, first: Any, second: Any, of: tuple[Node, Node] | None = None) -> Any:
        """Where a condition holds, the first, else the second.

        ONNX Runtime's `Where` makes +0 of a -0 that its first value gives. So what is no -0 stands first; not behind a
        `Not`, which its optimizer would turn around again.

        Where both may be, and bits are to be the same, the sign comes from their reciprocals.

        Args:
            of: the nodes of the two values; None where the first is no -0.
        """
        if of is None or not self.floats or _is_no_minus_zero(of[0], self.operands):
            return self.emit("Where", condition, first, second)
        if _is_no_minus_zero(of[1], self.operands):
            return self.emit("Where", self.unless(condition), second, first)
        found = self.emit("Where", condition, first, second)
        if not self.exact:
            return found
        one, zero = self.real(1), self.real(0)
        reciprocal = self.emit("Where", condition, self.emit("Div", one, first), self.emit("Div", one, second))
        below = self.emit("And", self.emit("Equal", found, zero), self.emit("Less", reciprocal, zero))
        return self.emit("Where", self.unless(below), found, self.real(-0.0))

    def unless(self, condition: Any) -> Any:
        """Whether a condition does not hold, for `chosen`."""
        return self.emit("Xor", condition, self.constant(True, np.bool_))

    def where(self, node: Node, condition: Any, first: Any, second: Any) -> Any:
        if node.kind == INT or (node.kind != BOOL and np.dtype(self.C) != np.bool_):
            return self.chosen(condition, first, second, node.args[1:])
        other = self.emit("And", self.emit("Not", condition), second)
        return self.emit("Or", self.emit("And", condition, first), other)

    def _extreme(self, order: str, a: Any, b: Any, of: tuple[Node, Node]) -> Any:
        """The larger or smaller; NaN if either is; the second of equals."""
        better = self.emit(order, a, b)
        if of[0].kind == REAL and self.floats:
            better = self.emit("Or", better, self.emit("IsNaN", a))
        return self.chosen(better, a, b, of)

    def max(self, node: Node, a: Any, b: Any) -> Any:
        return self._extreme("Greater", a, b, node.args)

    def min(self, node: Node, a: Any, b: Any) -> Any:
        return self._extreme("Less", a, b, node.args)

    def clamp(self, node: Node, x: Any, low: Any, high: Any) -> Any:
        raised = self._extreme("Greater", x, low, node.args[:2])
        return self._extreme("Less", raised, high, (node.args[0], node.args[2]))

    def fmax(self, node: Node, a: Any, b: Any) -> Any:
        """The other one if one is NaN; the second of equals."""
        better = self.emit("Or", self.emit("Greater", a, b), self.emit("IsNaN", b))
        return self.chosen(better, a, b, node.args)

    def fmin(self, node: Node, a: Any, b: Any) -> Any:
        better = self.emit("Or", self.emit("Less", a, b), self.emit("IsNaN", b))
        return self.chosen(better, a, b, node.args)

    def weighted(self, node: Node, a: Any, b: Any) -> Any:
        zero = self.real(0)
        return self.chosen(self.emit("Equal", b, zero), zero, self.emit("Mul", a, b))

    def sign(self, node: Node, x: Any) -> Any:
        zero = self.real(0)
        below = self.chosen(self.emit("Less", x, zero), self.real(-1), x)
        return self.chosen(self.emit("Greater", x, zero), self.real(1), below)

    def trunc(self, node: Node, x: Any) -> Any:
        above = self.emit("Greater", x, self.real(0))
        return self.chosen(above, self.emit("Floor", x), self.emit("Ceil", x))

    def isfinite(self, node: Node, x: Any) -> Any:
        return self.emit("Not", self.emit("Or", self.emit("IsNaN", x), self.emit("IsInf", x)))

    def round_to_int(self, node: Node, x: Any) -> Any:
        zero, most = self.real(0), self.real(_WHOLE)
        rounded = self.chosen(self.emit("IsNaN", x), zero, self.emit("Round", x))
        rounded = self.chosen(self.emit("Less", rounded, most), rounded, most)
        least = self.real(-_WHOLE)
        return self.cast(self.chosen(self.emit("Greater", rounded, least), rounded, least), np.int64)

    def to_real(self, node: Node, i: Any) -> Any:
        return self.cast(i, self.C)

    def fmod(self, node: Node, a: Any, b: Any) -> Any:
        return self.emit("Mod", a, b, fmod=1)

    def remainder(self, node: Node, a: Any, b: Any) -> Any:
        zero = self.real(0.0)
        rest, below = self.fmod(node, a, b), self.emit("Less", b, zero)
        differ = self.emit("Not", self.emit("Equal", self.emit("Less", rest, zero), below))
        moved = self.chosen(differ, self.emit("Add", rest, b), rest)
        of_zero = self.chosen(self.unless(below), zero, self.real(-0.0))
        return self.chosen(self.unless(self.emit("Equal", rest, zero)), moved, of_zero)

    def rsqrt(self, node: Node, x: Any) -> Any:
        return self.emit("Div", self.real(1), self.emit("Sqrt", x))

    def sigmoid(self, node: Node, x: Any) -> Any:
        """Not by `Sigmoid`, whose small values have few digits in ONNX Runtime."""
        one = self.real(1)
        return self.emit("Div", one, self.emit("Add", one, self.emit("Exp", self.emit("Neg", x))))

    def exp2(self, node: Node, x: Any) -> Any:
        return self.emit("Pow", self.real(2), x)

    def log2(self, node: Node, x: Any) -> Any:
        return self.emit("Div", self.emit("Log", x), self.real(math.log(2)))

    def log10(self, node: Node, x: Any) -> Any:
        return self.emit("Div", self.emit("Log", x), self.real(math.log(10)))

    def logit(self, node: Node, x: Any) -> Any:
        """Twice the area tangent has all digits where x / (1 - x) is near 1."""
        one, two = self.real(1), self.real(2)
        near = self.emit("Mul", two, self.emit("Atanh", self.emit("Sub", self.emit("Mul", two, x), one)))
        far = self.emit("Log", self.emit("Div", x, self.emit("Sub", one, x)))
        within = self.emit("And", self.emit("Less", self.real(0.25), x), self.emit("Less", x, self.real(0.75)))
        return self.emit("Where", within, near, far)

    def sinpi(self, node: Node, x: Any) -> Any:
        rest, odd = self._turns(x)
        return self._turned(odd, rest)

    def cospi(self, node: Node, x: Any) -> Any:
        rest, odd = self._turns(x)
        return self._turned(odd, self.emit("Sub", self.real(0.5), self.emit("Abs", rest)))

    def _turns(self, x: Any) -> tuple[Any, Any]:
        """What an integer leaves of x, which is exact, and whether that is odd."""
        half, two = self.real(0.5), self.real(2)
        rest = self.emit("Sub", x, self.emit("Mul", two, self.emit("Round", self.emit("Mul", half, x))))
        whole = self.emit("Round", rest)
        return self.emit("Sub", rest, whole), self.emit("Not", self.emit("Equal", whole, self.real(0)))

    def _turned(self, odd: Any, rest: Any) -> Any:
        """The sine of pi times what is left, of the other sign if the integer is odd."""
        value = self.emit("Sin", self.emit("Mul", self.real(math.pi), rest))
        return self.emit("Mul", value, self.emit("Where", odd, self.real(-1), self.real(1)))

    def erf(self, node: Node, x: Any) -> Any:
        if np.float32 == self.C:
            return self.emit("Erf", x)
        below = self.emit("Less", x, self.real(0))  # ONNX Runtime has no Erf of f64
        rest = self.emit("Sub", self.real(1), self._erfc_above(self.emit("Abs", x)))
        return self.chosen(below, self.emit("Neg", rest), rest)

    def erfc(self, node: Node, x: Any) -> Any:
        """In f64: 1 - Erf(x) has lost its digits where it is small."""
        wide = x if np.float64 == self.C else self.cast(x, np.float64)
        found = self._erfc(wide)
        return found if np.float64 == self.C else self.cast(found, self.C)

    def _erfc(self, x: Any) -> Any:
        above = self._erfc_above(self.emit("Abs", x))
        below = self.emit("Less", x, self.wide(0))
        return self.chosen(below, self.emit("Sub", self.wide(2), above), above)

    def _erfc_above(self, z: Any) -> Any:
        """erfc of f64 that is not below 0, within about 2^-50 of itself where it is no less than that."""
        t = self.emit("Div", self.wide(2), self.emit("Add", z, self.wide(2)))
        u = self.emit("Sub", self.emit("Mul", t, self.wide(4)), self.wide(2))  # twice the argument of the polynomials
        last, before = self.wide(0), self.wide(0)
        for coefficient in reversed(_ERFC[1:]):
            step = self.emit("Add", self.emit("Sub", self.emit("Mul", u, last), before), self.wide(coefficient))
            last, before = step, last
        half = self.emit("Mul", u, self.wide(0.5))
        total = self.emit("Add", self.emit("Sub", self.emit("Mul", half, last), before), self.wide(_ERFC[0]))
        power = self.emit("Exp", self.emit("Sub", total, self.emit("Mul", z, z)))
        return self.emit("Mul", t, power)

    def wide(self, value: float) -> Any:
        """A constant of f64."""
        return self.constant(value, np.float64)

    def ndtr(self, node: Node, x: Any) -> Any:
        if np.float64 == self.C:
            return self.emit("Mul", self.wide(0.5), self._erfc(self.emit("Mul", x, self.wide(-math.sqrt(0.5)))))
        erf = self.emit("Erf", self.emit("Mul", x, self.real(math.sqrt(0.5))))
        return self.emit("Mul", self.real(0.5), self.emit("Add", self.real(1), erf))

    def gelu_slope(self, node: Node, x: Any) -> Any:
        square = self.emit("Mul", self.emit("Mul", x, x), self.real(-0.5))
        density = self.emit("Mul", self.emit("Exp", square), self.real(math.sqrt(0.5 / math.pi)))
        # Where the density is 0, x may be infinite.
        return self.emit("Add", self.ndtr(node, x), self.weighted(node, x, density))

    def saturate(self, node: Node, i: Any) -> Any:
        dtype = self.type_of(node)
        low, high = self.whole(max(dtype.lowest, -(1 << 63))), self.whole(min(dtype.highest, (1 << 63) - 1))
        lower = self.chosen(self.emit("Less", i, high), i, high)
        return self.chosen(self.emit("Greater", lower, low), lower, low)

    def wrap(self, node: Node, i: Any) -> Any:
        return self.lowest_bits(self.type_of(node), i)

    def lowest_bits(self, dtype: DType, i: Any) -> Any:
        """The integer of a type with the same lowest bits."""
        count = int(dtype.highest) - int(dtype.lowest) + 1
        if count >= 1 << 63:
            return i
        lowest = self.whole(int(dtype.lowest))
        return self.emit("Add", self.emit("Mod", self.emit("Sub", i, lowest), self.whole(count)), lowest)


def _is_no_minus_zero(node: Node, operands: Collection[str]) -> bool:
    """Whether a value is known not to be -0: an integer, a number, an attribute, which has no reason to be."""
    if node.kind != REAL or (node.op == "name" and node.text not in operands):
        return True
    if node.op == "neg":
        return node.args[0].op == "name" and _is_no_minus_zero(node.args[0], operands)
    return node.op == "number" and not node.text.startswith("-0.0")
