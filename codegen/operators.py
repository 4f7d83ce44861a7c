"""The operators of integers and booleans: ONE table, as that of the intrinsics, by the sign that a formula writes.

`+ - *` and unary minus are in no table, for every target spells them so; but where their integers may leave 64 bits,
kernels call the functions of `WRAPPING`, which are defined there.
"""

from __future__ import annotations

from collections import ChainMap

from skuda.codegen.intrinsics import CONVERSIONS, INTRINSICS, Intrinsic

HEADER = "data.cuh"  # what sources include that read or compute integers and booleans as data
_OF_REALS_TOO = "remainders.cuh"  # includes it
WRAPS = "(wraps)"  # no name; the text of a sum, difference, product or negative in 64 bits of two's complement
WRAPPING = {"+": "::plus", "-": "::minus", "*": "::times", "neg": "::negated", "abs": "::magnitude"}  # in C++


def _operator(sign: str, name: str, latex: str, rule: str, arity: int = 2, header: str = HEADER) -> Intrinsic:
    arguments = ", ".join(f"{{{index}}}" for index in range(arity))
    return Intrinsic(sign, "n" * arity, "n", f"::{name}({arguments})", f"{name}({arguments})", latex, rule,
                     exact=True, header=header)  # fmt: skip


OPERATORS: dict[str, Intrinsic] = {
    row.name: row
    for row in (
        _operator("//", "floor_quotient", r"\left\lfloor \frac{{{0}}}{{{1}}} \right\rfloor",
                  "toward minus infinity, as Python's; of integers by zero 0, of reals the infinity or NaN of `/`",
                  header=_OF_REALS_TOO),
        _operator("%", "modulo", r"{0} \operatorname{{mod}} {1}",
                  "the divisor's sign, as Python's; of integers by zero 0", header=_OF_REALS_TOO),
        _operator("<<", "shifted_left", r"{0} \ll {1}", "by the width of the type or more, or by less than none: 0"),
        _operator(">>", "shifted_right", r"{0} \gg {1}",
                  "toward minus infinity; by the width of the type or more, or by less than none: 0, or -1 below 0"),
        _operator("&", "bits_and", r"{0} \operatorname{{and}} {1}", "of two's complement, or of booleans"),
        _operator("|", "bits_or", r"{0} \operatorname{{or}} {1}", "of two's complement, or of booleans"),
        _operator("^", "bits_xor", r"{0} \oplus {1}", "of two's complement, or of booleans"),
        _operator("~", "bits_not", r"\operatorname{{not}} {0}", "of two's complement, or of a boolean", 1),
    )
}  # fmt: skip
FUNCTIONS = ChainMap(OPERATORS, CONVERSIONS, INTRINSICS)  # what has a row with its spellings, intrinsics first

# What C may be where an operator, an intrinsic or a reduction stands: the kinds of element types.
_FLOAT, _NUMBERS, _ALL = frozenset({"float"}), frozenset({"float", "int"}), frozenset({"float", "int", "bool"})
_OF_C = dict.fromkeys(("+", "-", "*", "neg", "//", "%", "abs", "sign", "sum", "prod"), _NUMBERS)
_OF_C |= dict.fromkeys(("min", "max", "clamp", "argmax", "argmin"), _NUMBERS)
_OF_C |= dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _NUMBERS)
_OF_C |= dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "where", "any", "all"), _ALL)
_OF_C |= dict.fromkeys(("&", "|", "^", "~"), frozenset({"int", "bool"}))
_OF_C |= dict.fromkeys(("<<", ">>"), frozenset({"int"}))

# What the operators take beside values of C: exact integers, booleans.
KINDS = dict.fromkeys(("//", "%", "<<", ">>"), ("int",)) | dict.fromkeys(("&", "|", "^", "~"), ("int", "bool"))
_RING = ("+", "-", "*", "<<", "&", "|", "^")  # the lowest bits of whose results follow from the lowest bits alone


def kinds_of_c(op: str) -> frozenset[str]:
    """For which kinds of C an operator or function of reals has a value."""
    return _OF_C.get(op, _FLOAT)


def is_ring(sign: str) -> bool:
    """Whether the lowest bits of an operator's result follow from those of its operands."""
    return sign in _RING


def bits_of(sign: str, left: int, right: int) -> int:
    """How many bits hold an exact result."""
    if sign == "<<":
        return 65  # whatever is shifted, by whatever: nothing holds it but what wraps
    return {"//": left + 1, "%": right, ">>": left}.get(sign, max(left, right))


