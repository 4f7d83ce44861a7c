"""The element types: one table, from which every other fact about a type is derived.

A type is known everywhere by its word (`f16`, `s8`, ...): in ops.yaml, in a KernelSku, in an error message
and in the name of a file. Integers of at most 8 bits are s and u (`s8`, `u4`), wider ones are i and u (`i16`, `u32`);
each is data as well as codes. A bool is a byte, 0 or 1; any other byte is read as true. A 4-bit type is packed two to a
byte, low nibble first, and travels as uint8.
e4m3 is OCP's form of it: no infinities, the largest value is 448. `runtime/cuda/types.cuh` says the same to kernels:
`skuda generate` writes it from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from skuda.model.records import Record


def dtype_named(name: str) -> np.dtype:
    """The NumPy dtype of a name, such as `bfloat16`. What NumPy has none of is ml_dtypes', imported when it is wanted:
    that takes half as long as all else that a first call imports."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


class OfDtypes(dict):
    """What is known of NumPy dtypes, each from when it is first asked for. What nothing is known of is not kept."""

    def __init__(self, known: Callable[[np.dtype], Any]):
        super().__init__()
        self._known = known

    def __missing__(self, dtype: np.dtype) -> Any:
        found = self._known(dtype)
        if found is not None:
            self[dtype] = found
        return found


class DType(Record):
    """One element type.

    A float is a sign where it is `signed`, an exponent and a mantissa, biased and with subnormal numbers as IEEE has
    them. Without a mantissa it is a power of two: there is no zero.

    Attributes:
        word: its name, the same everywhere; of its C++ type too.
        kind: "float", "int" or "bool".
        bits: width of one stored element; 4 for the packed types.
        name: that of the NumPy dtype (ml_dtypes' where NumPy has none) of one element that is not packed.
        exponent, mantissa: the bits of a float's two fields.
        signed: whether it has negative values.
        infinities: whether the largest exponent is that of infinities and NaNs.
        nan: whether it has a NaN: without infinities, the code of which all bits but the sign are set.
    """

    word: str
    kind: str
    bits: int
    name: str
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    infinities: bool = True
    nan: bool = True

    @cached_property
    def element(self) -> np.dtype:
        """The NumPy dtype of one element that is not packed."""
        return dtype_named(self.name)

    @cached_property
    def storage(self) -> np.dtype:
        """The NumPy dtype that an array of it travels as: uint8 for the packed types."""
        return np.dtype(np.uint8) if self.packed else self.element

    @property
    def compute(self) -> str:
        """The word of the type that formulas are evaluated in: f32 or f64 for floats, else the kind."""
        return ("f64" if self.bits > 32 else "f32") if self.kind == "float" else self.kind

    @property
    def C(self) -> str:
        """The word of the type that formulas over it compute in, where they take floats and integers alike."""
        return {"int": "i64", "bool": "bool"}.get(self.kind) or self.compute

    @property
    def packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.bits < 8

    @property
    def narrow_float(self) -> bool:
        """Whether it is a float of at most 8 bits, which is stored saturated; an array of uint8 may hold it too."""
        return self.kind == "float" and self.bits <= 8

    @property
    def code(self) -> bool:
        """Whether it holds what a quantization gives, which no gradient has the type of."""
        return self.kind != "float" or self.narrow_float

    def holds(self, value: float) -> bool:
        """Whether a finite number is a value of this type."""
        if not self.lowest <= value <= self.highest:
            return False
        return float(self.element.type(value)) == value if self.kind == "float" else int(value) == value

    def travels_as(self, storage: np.dtype) -> bool:
        """Whether an array of this NumPy dtype may hold it."""
        word = WORD_OF_STORAGE[storage]
        return word == self.word or (word == "u8" and (self.packed or self.narrow_float))

    @property
    def bias(self) -> int:
        """What a float's exponent field is above the exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def canonical_nan(self) -> int:
        """The code that a NaN is stored as: all bits but the sign. Where there is no NaN, the largest value has it."""
        return (1 << (self.exponent + self.mantissa)) - 1

    @cached_property
    def lowest(self) -> int | float:
        """The smallest finite value."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)) if self.signed else 0
        return False if self.kind == "bool" else -self.highest if self.signed else self.smallest

    @cached_property
    def highest(self) -> int | float:
        """The largest finite value."""
        if self.kind == "int":
            return (1 << (self.bits - self.signed)) - 1
        if self.kind == "bool":
            return True
        code = self.canonical_nan - (1 << self.mantissa if self.infinities else int(self.nan))
        field, fraction = divmod(code, 1 << self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (field - self.bias)

    @cached_property
    def smallest(self) -> int | float:
        """The least positive value, of floats subnormal."""
        return 1 if self.kind != "float" else 2.0 ** ((1 if self.mantissa else 0) - self.bias - self.mantissa)

    def number(self, value: float) -> float:
        """A number as an element of this float type, which may be infinite."""
        return float(self.rounded(value) if self.narrow_float else self.element.type(value))

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Reals as elements of this float type: each rounded once to the nearest, ties to an even significand.

        What is beyond the largest finite value of a narrow type, infinities too, becomes that; of a wider one inf. So
        does a NaN where the type has none. Where it has no sign, what is negative becomes NaN; where it has no zero,
        what is below the least value becomes that.
        """
        values = np.asarray(values)
        if self.narrow_float:
            if not self.signed:
                values = np.where(values < 0, np.nan, values)
            if not self.nan:
                values = np.where(np.isnan(values), self.highest, values)
            values = np.clip(values, self.lowest, self.highest)
        if not self.mantissa:
            values = _powers_of_two(values)
        if values.dtype == np.float64 and self.bits < 32:  # ml_dtypes rounds to f32 on its way
            values = _to_odd(values)
        return values.astype(self.element)

    def __str__(self) -> str:
        return self.word


def _to_odd(values: np.ndarray) -> np.ndarray:
    """f64 as f32, the last bit 1 where something was lost: rounded again to fewer bits, it is as if rounded once."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.asarray(values.astype(np.float32))
    bits = nearest.view(np.int32) - (np.abs(nearest) > np.abs(values))
    return (bits | (nearest != values)).view(np.float32)


def _powers_of_two(values: np.ndarray) -> np.ndarray:
    """The nearest power of two of positive values. Ties go up: of two neighbours, counted in units of the smaller one,
    the larger one is even. ml_dtypes takes a zero to be below the least value, and rounds to it."""
    fraction, exponent = np.frexp(values)
    return np.where(np.isnan(values), values, np.ldexp(np.ones_like(values), exponent - (fraction < 0.75)))


def _float(word: str, name: str, exponent: int, mantissa: int, **lacks: bool) -> DType:
    code = exponent + mantissa + lacks.get("signed", True)
    return DType(word, "float", max(code, 8) if code > 4 else 4, name, exponent, mantissa, **lacks)


def _int(word: str, bits: int, name: str, signed: bool = True) -> DType:
    return DType(word, "int", bits, name, signed=signed)


_ROWS = (
    _float("f64", "float64", 11, 52),
    _float("f32", "float32", 8, 23),
    _float("f16", "float16", 5, 10),
    _float("bf16", "bfloat16", 8, 7),
    _float("e4m3", "float8_e4m3fn", 4, 3, infinities=False),
    _float("e5m2", "float8_e5m2", 5, 2),
    _float("e2m1", "float4_e2m1fn", 2, 1, infinities=False, nan=False),
    _float("e8m0", "float8_e8m0fnu", 8, 0, signed=False, infinities=False),
    _int("s8", 8, "int8"),
    _int("u8", 8, "uint8", signed=False),
    _int("s4", 4, "int4"),
    _int("u4", 4, "uint4", signed=False),
    _int("i16", 16, "int16"),
    _int("i32", 32, "int32"),
    _int("i64", 64, "int64"),
    _int("u32", 32, "uint32", signed=False),
    DType("bool", "bool", 8, "bool"),
)
DTYPES: dict[str, DType] = {row.word: row for row in _ROWS}

# The words by the names of NumPy's, ml_dtypes' and torch's types; each is the word of one type only.
WORD_OF_NAME = {row.name: row.word for row in DTYPES.values()}


def _word_of_storage(storage: np.dtype) -> str | None:
    word = WORD_OF_NAME.get(storage.name)
    return word if word is not None and DTYPES[word].storage == storage else None


# Which word an array of this NumPy dtype has when nothing else is said, None where it has none. Arrays of packed types
# are uint8.
WORD_OF_STORAGE = OfDtypes(_word_of_storage)


def word_of(element) -> str | None:
    """The word of an element type, however it is named; None for what names none that a kernel knows.

    Args:
        element: a word (`s8`), a name (`int8`), a NumPy, ml_dtypes, torch or JAX type (`np.int8`, `np.dtype("int8")`,
            `torch.int8`, `jnp.int8`), or Python's `float`, `int` or `bool` as NumPy understands them.
    """
    if isinstance(element, str):
        return str(element) if element in DTYPES else WORD_OF_NAME.get(element)
    cls = type(element)
    if (cls.__module__, cls.__name__) == ("torch", "dtype"):
        return WORD_OF_NAME.get(str(element).removeprefix("torch."))
    if not isinstance(element, np.dtype):
        try:
            named = isinstance(element, type) or (hasattr(element, "dtype") and not hasattr(element, "shape"))
            element = np.dtype(element) if named else None
        except Exception:  # a class may call anything its dtype
            element = None
    return WORD_OF_NAME.get(element.name) if element is not None and element.isnative else None
