"""The element types: one table, from which every other fact about a type is derived.

A type is known everywhere by its word (`f16`, `s8`, ...): in ops.yaml, in a KernelSku, in an error message
and in the name of a file. A 4-bit type is packed two to a byte, low nibble first, and travels as uint8.
e4m3 is OCP's form of it: no infinities, the largest value is 448.
"""

from __future__ import annotations

from functools import cached_property

import ml_dtypes
import numpy as np

from skuda.model.records import Record


class DType(Record):
    """One element type.

    Attributes:
        word: its name, the same everywhere.
        kind: "float", "int" or "bool".
        bits: width of one element; 4 for the packed types.
        storage: the NumPy dtype that an array of it travels as (uint8 for the packed types).
        cuda: the C++ type of one stored element (see runtime/cuda/numbers.cuh).
        compute: the word of the type that formulas are evaluated in: f32 or f64 for floats, "int" for
            integers.
        signed: whether an integer type has negative values.
    """

    word: str
    kind: str
    bits: int
    storage: np.dtype
    cuda: str
    compute: str
    signed: bool = True

    @property
    def packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.bits < 8

    @property
    def narrow_float(self) -> bool:
        """Whether it is a float of 8 bits, which is stored saturated; an array of uint8 may hold it too."""
        return self.kind == "float" and self.bits == 8

    @property
    def code(self) -> bool:
        """Whether it holds what a quantization gives, which no gradient has the type of."""
        return self.kind != "float" or self.narrow_float

    def holds(self, value: float) -> bool:
        """Whether a finite number is a value of this type."""
        if not self.lowest <= value <= self.highest:
            return False
        return float(self.storage.type(value)) == value if self.kind == "float" else int(value) == value

    def travels_as(self, storage: np.dtype) -> bool:
        """Whether an array of this NumPy dtype may hold it."""
        return storage == self.storage or (self.narrow_float and storage == np.uint8)

    @cached_property
    def lowest(self) -> int | float:
        """The smallest finite value."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)) if self.signed else 0
        return False if self.kind == "bool" else float(ml_dtypes.finfo(self.storage).min)

    @cached_property
    def highest(self) -> int | float:
        """The largest finite value."""
        if self.kind == "int":
            return (1 << (self.bits - self.signed)) - 1
        return True if self.kind == "bool" else float(ml_dtypes.finfo(self.storage).max)

    @cached_property
    def smallest(self) -> int | float:
        """The least positive value, of floats subnormal."""
        return 1 if self.kind != "float" else float(ml_dtypes.finfo(self.storage).smallest_subnormal)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """Reals as elements of this float type: each rounded once, ties to even.

        What is beyond the largest finite value of an 8-bit type, infinities too, becomes that; of a wider one inf.
        """
        values = np.asarray(values)
        if self.narrow_float:
            values = np.clip(values, self.lowest, self.highest)
        if values.dtype == np.float64 and self.bits < 32:  # ml_dtypes rounds to f32 on its way
            values = _to_odd(values)
        return values.astype(self.storage)

    def __str__(self) -> str:
        return self.word


def _to_odd(values: np.ndarray) -> np.ndarray:
    """f64 as f32, the last bit 1 where something was lost: rounded again to fewer bits, it is as if rounded once."""
    with np.errstate(over="ignore", under="ignore"):
        nearest = np.asarray(values.astype(np.float32))
    bits = nearest.view(np.int32) - (np.abs(nearest) > np.abs(values))
    return (bits | (nearest != values)).view(np.float32)


def _table(*rows: DType) -> dict[str, DType]:
    return {row.word: row for row in rows}


DTYPES: dict[str, DType] = _table(
    DType("f64", "float", 64, np.dtype(np.float64), "f64", "f64"),
    DType("f32", "float", 32, np.dtype(np.float32), "f32", "f32"),
    DType("f16", "float", 16, np.dtype(np.float16), "f16", "f32"),
    DType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16), "bf16", "f32"),
    DType("e4m3", "float", 8, np.dtype(ml_dtypes.float8_e4m3fn), "e4m3", "f32"),
    DType("e5m2", "float", 8, np.dtype(ml_dtypes.float8_e5m2), "e5m2", "f32"),
    DType("s8", "int", 8, np.dtype(np.int8), "s8", "int"),
    DType("u8", "int", 8, np.dtype(np.uint8), "u8", "int", signed=False),
    DType("s4", "int", 4, np.dtype(np.uint8), "s4", "int"),
    DType("u4", "int", 4, np.dtype(np.uint8), "u4", "int", signed=False),
    DType("i32", "int", 32, np.dtype(np.int32), "i32", "int"),
    DType("i64", "int", 64, np.dtype(np.int64), "i64", "int"),
    DType("bool", "bool", 8, np.dtype(np.bool_), "bool", "bool"),
)

# Which word an array of this NumPy dtype has when nothing else is said; arrays of packed types are uint8.
WORD_OF_STORAGE: dict[np.dtype, str] = {row.storage: row.word for row in DTYPES.values() if not row.packed}

# The words by the names of NumPy's, ml_dtypes' and torch's types; each is the word of one type only.
_WORD_OF_NAME = {row.storage.name: row.word for row in DTYPES.values() if not row.packed}
_WORD_OF_NAME |= {"int4": "s4", "uint4": "u4"}


def word_of(element) -> str | None:
    """The word of an element type, however it is named; None for what names none that a kernel knows.

    Args:
        element: a word (`s8`), a name (`int8`), a NumPy, ml_dtypes, torch or JAX type (`np.int8`, `np.dtype("int8")`,
            `torch.int8`, `jnp.int8`), or Python's `float`, `int` or `bool` as NumPy understands them.
    """
    if isinstance(element, str):
        return str(element) if element in DTYPES else _WORD_OF_NAME.get(element)
    cls = type(element)
    if (cls.__module__, cls.__name__) == ("torch", "dtype"):
        return _WORD_OF_NAME.get(str(element).removeprefix("torch."))
    if not isinstance(element, np.dtype):
        try:
            named = isinstance(element, type) or (hasattr(element, "dtype") and not hasattr(element, "shape"))
            element = np.dtype(element) if named else None
        except Exception:  # a class may call anything its dtype
            element = None
    return _WORD_OF_NAME.get(element.name) if element is not None and element.isnative else None
