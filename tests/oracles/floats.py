"""IEEE binary formats, one value at a time: exact decoding, exact arithmetic, one rounding."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache


@dataclass(frozen=True, eq=False)
class Format:
    """A binary floating-point format: a sign, an exponent field and a fraction field.

    `infinities`: the largest exponent field is that of infinities and NaNs, as IEEE has it; else only the pattern of
    all ones is a NaN, and what stands below it is finite. `saturates`: what is beyond the largest finite value is
    encoded as that, infinities too.
    """

    word: str
    exponent_bits: int
    fraction_bits: int
    infinities: bool = True
    saturates: bool = False

    @cached_property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @cached_property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @cached_property
    def unit(self) -> int:
        """Exponent of the smallest subnormal: no finite value has a bit below 2 ** unit."""
        return 1 - self.bias - self.fraction_bits

    @cached_property
    def special(self) -> int:
        """The exponent field of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

    @cached_property
    def nan(self) -> int:
        """The canonical NaN: sign clear, every other bit set."""
        return (1 << (self.bits - 1)) - 1

    @cached_property
    def infinity(self) -> int:
        assert self.infinities
        return self.special << self.fraction_bits

    @cached_property
    def largest(self) -> int:
        """The largest finite value."""
        return self.infinity - 1 if self.infinities else self.nan - 1

    @cached_property
    def overflow(self) -> int:
        """What is encoded for a value beyond the largest."""
        return self.largest if self.saturates else self.infinity

    @cached_property
    def highest_exponent(self) -> int:
        """That of the largest power of two."""
        return self.bias + (not self.infinities)

    @cached_property
    def smallest_normal(self) -> int:
        return 1 << self.fraction_bits

    @cached_property
    def sign(self) -> int:
        return 1 << (self.bits - 1)


F16 = Format("f16", 5, 10)
BF16 = Format("bf16", 8, 7)
F32 = Format("f32", 8, 23)
F64 = Format("f64", 11, 52)
F128 = Format("f128", 15, 112)  # no element type: in which an oracle of f64 can be told apart from its neighbours
FORMATS = {form.word: form for form in (F16, BF16, F32, F64)}
E4M3 = Format("e4m3", 4, 3, infinities=False, saturates=True)
E5M2 = Format("e5m2", 5, 2, saturates=True)
FP8 = {form.word: form for form in (E4M3, E5M2)}


def compute_format(word: str) -> Format:
    """The type that formulas over elements of type `word` are evaluated in."""
    return {"f64": F64, "f128": F128}.get(word, F32)


@dataclass(frozen=True)
class Value:
    """An IEEE value, exactly. `magnitude` means something for kind "finite" only."""

    kind: str  # "finite", "inf" or "nan"
    negative: bool = False
    magnitude: Fraction = Fraction(0)

    @property
    def zero(self) -> bool:
        return self.kind == "finite" and not self.magnitude

    @property
    def signed(self) -> Fraction:
        return -self.magnitude if self.negative else self.magnitude


NAN = Value("nan")


def unpack(bits: int, form: Format) -> tuple[int, int, int]:
    """A finite pattern as (sign, mantissa, exponent): it stands for (-1)^sign * mantissa * 2^exponent."""
    sign = bits >> (form.bits - 1)
    field = (bits >> form.fraction_bits) & form.special
    fraction = bits & ((1 << form.fraction_bits) - 1)
    if bits & ~form.sign > form.largest:
        raise ValueError(f"{bits:#x} is not a finite {form.word}")
    if field == 0:
        return sign, fraction, form.unit
    return sign, fraction | (1 << form.fraction_bits), form.unit + field - 1


@lru_cache(1 << 16)
def decode(bits: int, form: Format) -> Value:
    """The value of a bit pattern."""
    negative = bool(bits >> (form.bits - 1))
    size = bits & ~form.sign
    if size > form.largest:
        return Value("inf", negative) if form.infinities and size == form.infinity else NAN
    _, mantissa, exponent = unpack(bits, form)
    return Value("finite", negative, mantissa * power_of_two(exponent))


def encode(value: Value, form: Format) -> int:
    """The bit pattern nearest to a value: ties to even, overflow as the format has it, the canonical NaN for a NaN."""
    if value.kind == "nan":
        return form.nan
    size = form.overflow if value.kind == "inf" else _encode_magnitude(value.magnitude, form)
    return size | (form.sign if value.negative else 0)


def _encode_magnitude(magnitude: Fraction, form: Format) -> int:
    if not magnitude:
        return 0
    unit = max(floor_log2(magnitude) - form.fraction_bits, form.unit)
    mantissa = _nearest(magnitude, unit)
    # The pattern of mantissa * 2^unit: a carry out of the mantissa moves into the exponent field by itself.
    return min(((unit - form.unit) << form.fraction_bits) + mantissa, form.overflow)


def _nearest(number: Fraction, unit: int) -> int:
    """How many times 2^unit a number is, rounded to an integer, ties to even."""
    above, below = number.numerator << max(0, -unit), number.denominator << max(0, unit)
    count, rest = divmod(above, below)
    return count + (2 * rest > below or (2 * rest == below and count % 2))


def encode_fraction(number: Fraction | int, form: Format) -> int:
    """The bit pattern nearest to a rational number."""
    number = Fraction(number)
    return encode(Value("finite", number < 0, abs(number)), form)


@cache
def power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def floor_log2(number: Fraction) -> int:
    above, below = number.numerator, number.denominator
    guess = above.bit_length() - below.bit_length()
    return guess if above << max(0, -guess) >= below << max(0, guess) else guess - 1


def rounded(value: Value, form: Format) -> Value:
    """The value after one rounding to a format."""
    return decode(encode(value, form), form)


def integer(number: int, form: Format) -> Value:
    """An integer, rounded once to a format."""
    return rounded(Value("finite", number < 0, Fraction(abs(number))), form)


def negate(a: Value) -> Value:
    return a if a.kind == "nan" else Value(a.kind, not a.negative, a.magnitude)


def divide(a: Value, b: Value, form: Format) -> Value:
    """a / b, rounded once to a format."""
    negative = a.negative != b.negative
    if "nan" in (a.kind, b.kind):
        return NAN
    if a.kind == "inf":
        return NAN if b.kind == "inf" else Value("inf", negative)
    if b.kind == "inf":
        return Value("finite", negative)
    if b.zero:
        return NAN if a.zero else Value("inf", negative)
    return rounded(Value("finite", negative, a.magnitude / b.magnitude), form)


def multiply(a: Value, b: Value, form: Format) -> Value:
    """a * b, rounded once to a format."""
    negative = a.negative != b.negative
    if "nan" in (a.kind, b.kind):
        return NAN
    if "inf" in (a.kind, b.kind):
        return NAN if a.zero or b.zero else Value("inf", negative)
    return rounded(Value("finite", negative, a.magnitude * b.magnitude), form)


def add(a: Value, b: Value, form: Format) -> Value:
    """a + b, rounded once to a format; a sum of opposite values is +0."""
    if "nan" in (a.kind, b.kind):
        return NAN
    if a.kind == "inf":
        return NAN if b.kind == "inf" and a.negative != b.negative else a
    if b.kind == "inf":
        return b
    total = a.signed + b.signed
    negative = total < 0 or (total == 0 and a.negative and b.negative)
    return rounded(Value("finite", negative, abs(total)), form)


def subtract(a: Value, b: Value, form: Format) -> Value:
    """a - b, rounded once to a format."""
    return add(a, negate(b), form)
