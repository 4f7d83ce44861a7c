"""The oracles of arithmetic, comparisons, logic and bits: of floats rounded once a step, of integers in Python's own.

Integers are computed exactly, and what is stored is the integer of the type with the same lowest bits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod

from . import floats
from .binding import oracle
from .floats import FORMATS, NAN, Value, compute_format, decode, encode

# Of each integer type: how many bits it has, and whether it has a sign.
INTEGERS = {"i64": (64, True), "i32": (32, True), "i16": (16, True), "s8": (8, True)}
INTEGERS |= {"u32": (32, False), "u8": (8, False)}


def wrapped(value: int, word: str) -> int:
    """The integer of a type with the same lowest bits."""
    bits, signed = INTEGERS[word]
    low = value % (1 << bits)
    return low - (1 << bits) if signed and low >> (bits - 1) else low


def either(word: str, of_floats: Callable[..., Value], of_integers: Callable[..., int], *elements: int) -> int:
    """What is stored: of floats one function of their values, of integers and booleans another."""
    if word in FORMATS:
        values = (decode(each, FORMATS[word]) for each in elements)
        return encode(of_floats(*values, compute_format(word)), FORMATS[word])
    result = of_integers(*elements)
    return int(bool(result)) if word == "bool" else wrapped(result, word)


def compared(word: str, how: Callable[[Fraction, Fraction], bool], a: int, b: int, of_nan: bool = False) -> int:
    """Whether two elements compare so; infinities are beyond all numbers."""
    if word not in FORMATS:
        return int(how(a, b))
    values = [decode(each, FORMATS[word]) for each in (a, b)]
    if any(each.kind == "nan" for each in values):
        return int(of_nan)
    beyond = Fraction(1 << 5000)
    return int(how(*((-beyond if v.negative else beyond) if v.kind == "inf" else v.signed for v in values)))


def holds(word: str, a: int) -> bool:
    """Whether an element is not 0."""
    return bool(compared(word, lambda x, y: x != y, a, 0, of_nan=True))


# ---- of two ----


@oracle
def add(a, b, *, T):
    return either(T, floats.add, lambda a, b: a + b, a, b)


@oracle
def add_backward(d_output, *, T):
    return encode(decode(d_output, FORMATS[T]), FORMATS[T])


@oracle
def sub(a, b, *, T):
    return either(T, floats.subtract, lambda a, b: a - b, a, b)


@oracle
def sub_backward(d_output, *, T):
    value = decode(d_output, FORMATS[T])
    return encode(value, FORMATS[T]), encode(floats.negate(value), FORMATS[T])


@oracle
def mul(a, b, *, T):
    return either(T, floats.multiply, lambda a, b: a * b, a, b)


@oracle
def mul_backward(d_output, a, b, *, T):
    return mul(d_output, b, T=T), mul(d_output, a, T=T)


def fmod(a: Value, b: Value) -> Value:
    """What is left of the first, with its sign, after as many times the second as fit."""
    if "nan" in (a.kind, b.kind) or a.kind == "inf" or b.zero:
        return NAN
    return a if b.kind == "inf" else Value("finite", a.negative, a.magnitude % b.magnitude)


def float_remainder(a: Value, b: Value, form) -> Value:
    rest = fmod(a, b)
    if rest.kind == "nan":
        return NAN
    if rest.zero:
        return Value("finite", b.negative)
    return floats.add(rest, b, form) if rest.negative != b.negative else rest


def float_quotient(a: Value, b: Value, form) -> Value:
    """By the multiple of the divisor that fmod leaves: its quotient is whole but for what rounding adds."""
    if b.zero or "nan" in (a.kind, b.kind) or a.kind == "inf":
        return floats.divide(a, b, form) if b.zero else NAN
    rest = fmod(a, b)
    quotient = floats.divide(floats.subtract(a, rest, form), b, form)
    if not rest.zero and rest.negative != b.negative:
        quotient = floats.subtract(quotient, floats.integer(1, form), form)
    if quotient.kind != "finite":
        return NAN if quotient.kind == "nan" else quotient
    if quotient.zero:
        return Value("finite", a.negative != b.negative)
    whole = quotient.signed.__floor__()
    whole += quotient.signed - whole > Fraction(1, 2)
    return Value("finite", whole < 0 or (whole == 0 and quotient.negative), Fraction(max(whole, -whole)))


@oracle
def floor_divide(a, b, *, T):
    return either(T, float_quotient, lambda a, b: a // b if b else 0, a, b)


@oracle
def remainder(a, b, *, T):
    return either(T, float_remainder, lambda a, b: a % b if b else 0, a, b)


def _extreme(word: str, larger: bool, a: int, b: int) -> int:
    if word not in FORMATS:
        return max(a, b) if larger else min(a, b)
    form = FORMATS[word]
    first, second = decode(a, form), decode(b, form)
    if "nan" in (first.kind, second.kind):
        return form.nan
    before = compared(word, (lambda x, y: x > y) if larger else (lambda x, y: x < y), a, b)
    return encode(first if before else second, form)  # the second of equals: 0 and -0 are


@oracle
def minimum(a, b, *, T):
    return _extreme(T, False, a, b)


@oracle
def maximum(a, b, *, T):
    return _extreme(T, True, a, b)


@oracle
def minimum_backward(d_output, a, b, *, T):
    return _of_extreme(T, lambda a, b: a < b, d_output, a, b)


@oracle
def maximum_backward(d_output, a, b, *, T):
    return _of_extreme(T, lambda a, b: a > b, d_output, a, b)


def _of_extreme(T, is_taken, d_output, a, b):
    """As PyTorch's: half for each of equals, all for the element that is taken; all for both beside a NaN."""
    form = FORMATS[T]
    if compared(T, lambda a, b: a == b, a, b):
        half = mul(d_output, encode(Value("finite", False, Fraction(1, 2)), form), T=T)
        return half, half
    whole = encode(decode(d_output, form), form)
    return tuple(0 if compared(T, is_taken, other, own) else whole for own, other in ((a, b), (b, a)))


# ---- comparisons ----


@oracle
def eq(a, b, *, T):
    return compared(T, lambda a, b: a == b, a, b)


@oracle
def ne(a, b, *, T):
    return compared(T, lambda a, b: a != b, a, b, of_nan=True)


@oracle
def gt(a, b, *, T):
    return compared(T, lambda a, b: a > b, a, b)


@oracle
def ge(a, b, *, T):
    return compared(T, lambda a, b: a >= b, a, b)


@oracle
def lt(a, b, *, T):
    return compared(T, lambda a, b: a < b, a, b)


@oracle
def le(a, b, *, T):
    return compared(T, lambda a, b: a <= b, a, b)


@oracle
def logical_and(a, b, *, T):
    return int(holds(T, a) and holds(T, b))


@oracle
def logical_or(a, b, *, T):
    return int(holds(T, a) or holds(T, b))


@oracle
def logical_xor(a, b, *, T):
    return int(holds(T, a) is not holds(T, b))


@oracle
def logical_not(input, *, T):
    return int(not holds(T, input))


# ---- bits ----


@oracle
def bitwise_and(a, b, *, T):
    return a & b


@oracle
def bitwise_or(a, b, *, T):
    return a | b


@oracle
def bitwise_xor(a, b, *, T):
    return a ^ b


@oracle
def bitwise_not(input, *, T):
    return int(not input) if T == "bool" else wrapped(-1 - input, T)


@oracle
def bitwise_left_shift(a, b, *, T):
    return wrapped(a * 2**b, T) if 0 <= b < INTEGERS[T][0] else 0


@oracle
def bitwise_right_shift(a, b, *, T):
    return a // 2**b if 0 <= b < INTEGERS[T][0] else -(a < 0)


@oracle
def popcount(input, *, T):
    return bin(input % (1 << INTEGERS[T][0])).count("1")


@oracle
def clz(input, *, T):
    width = INTEGERS[T][0]
    return width - (input % (1 << width)).bit_length()


@oracle
def ctz(input, *, T):
    width = INTEGERS[T][0]
    return next((bit for bit in range(width) if input >> bit & 1), width)


# ---- of one, and of three ----


@oracle
def neg(input, *, T):
    return either(T, lambda value, form: floats.negate(value), lambda value: -value, input)


@oracle
def neg_backward(d_output, *, T):
    return neg(d_output, T=T)


@oracle
def abs(input, *, T):
    size = lambda value, form: Value(value.kind, False, value.magnitude)  # noqa: E731
    return either(T, size, lambda value: max(value, -value), input)


@oracle
def abs_backward(d_output, input, *, T):
    return mul(d_output, sign(input, T=T), T=T)


@oracle
def sign(input, *, T):
    def of_float(value: Value, form) -> Value:
        return value if value.zero or value.kind == "nan" else Value("finite", value.negative, Fraction(1))

    return either(T, of_float, lambda value: (value > 0) - (value < 0), input)


@oracle
def where(condition, a, b, *, T):
    return either(T, lambda value, form: value, lambda value: value, a if condition else b)


@oracle
def where_backward(condition, d_output, *, T):
    value = encode(decode(d_output, FORMATS[T]), FORMATS[T])
    return (value, 0) if condition else (0, value)


# ---- of rows ----


@oracle(over="reduced")
def sum_of_integers(input, *, T):
    return wrapped(sum(input), "i64")


@oracle(over="reduced")
def prod_of_integers(input, *, T):
    return wrapped(prod(input), "i64")
