"""How a weight is quantized, and what becomes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skuda.errors import InvalidProblem, shown
from skuda.model.dtypes import DTYPES, WORD_OF_STORAGE, DType

GRANULARITIES = ("per_tensor", "per_channel", "per_token", "per_group")
ELEMENTS = ("s8", "u8", "s4", "u4")
FLOATS = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True)
class Scheme:
    """How a weight is quantized.

    Attributes:
        granularity: which elements share a scale: `per_tensor` all, `per_channel` those of one index of axis
            0, `per_token` one row along the last axis, `per_group` `group_size` neighbours in such a row.
        element: `s8` or `s4` (symmetric, zero point 0), `u8` or `u4` (from the least to the greatest value).
        group_size: elements of a group, per_group only; a row may end in a shorter group.
    """

    granularity: str
    element: str
    group_size: int = 128

    @classmethod
    def parse(cls, text: str, group_size: int = 128) -> Scheme:
        """Read `per_channel:s8`.

        Raises:
            InvalidProblem: no such scheme, or a group size below 1.
        """
        granularity, _, element = text.partition(":") if isinstance(text, str) else ("", "", "")
        if granularity not in GRANULARITIES or element not in ELEMENTS:
            raise InvalidProblem(
                f"unknown scheme `{text}`, expected GRANULARITY:TYPE, where GRANULARITY is one of "
                f"{' '.join(GRANULARITIES)} and TYPE one of {' '.join(ELEMENTS)}"
            )
        if not isinstance(group_size, int) or not 1 <= group_size < 1 << 63:
            raise InvalidProblem(f"group size is {shown(group_size)}, expected an integer from 1 to 2^63 - 1")
        return cls(granularity, element, group_size)

    def __str__(self) -> str:
        return f"{self.granularity}:{self.element}"

    @property
    def dtype(self) -> DType:
        """The integer type of the codes."""
        return DTYPES[self.element]

    @property
    def symmetric(self) -> bool:
        """Whether every zero point is 0."""
        return self.dtype.signed

    def applies_to(self, dtype: np.dtype | None, shape: tuple[int, ...]) -> bool:
        """Whether a tensor is a weight: floating, of two axes or more, with elements. All others are kept."""
        return dtype is not None and WORD_OF_STORAGE[dtype] in FLOATS and len(shape) >= 2 and min(shape) > 0

    def rows_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The weight's shape as rows along the first axis, none of which shares a scale with another one.

        Of `per_tensor`, all rows share the one scale.
        """
        return shape if self.granularity == "per_channel" else (math.prod(shape[:-1]), shape[-1])

    def scale_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a weight's scales and zero points."""
        if self.granularity == "per_tensor":
            return (1,)
        if self.granularity == "per_channel":
            return shape[:1]
        if self.granularity == "per_token":
            return shape[:-1]
        return (*shape[:-1], -(-shape[-1] // self.group_size))

    def code_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a weight's stored codes: 4-bit ones lie two to a byte along the last axis."""
        return (*shape[:-1], -(-shape[-1] // 2)) if self.dtype.packed else shape

    def spread(self, parameter: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Scales or zero points as an array that broadcasts against the weight."""
        if self.granularity == "per_tensor":
            return parameter
        if self.granularity == "per_channel":
            return parameter.reshape(-1, *(1,) * (len(shape) - 1))
        if self.granularity == "per_token":
            return parameter[..., None]
        return np.repeat(parameter, self.group_size, axis=-1)[..., : shape[-1]]

    def reduce(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        """The maximum or minimum of the elements that share a scale."""
        if self.granularity == "per_tensor":
            return ufunc.reduce(values, axis=None).reshape(1)
        if self.granularity == "per_channel":
            return ufunc.reduce(values.reshape(len(values), -1), axis=1)
        if self.granularity == "per_token":
            return ufunc.reduce(values, axis=-1)
        return ufunc.reduceat(values, np.arange(0, values.shape[-1], self.group_size), axis=-1)

    def keywords(self) -> dict[str, int]:
        """What skuda's functions of this granularity are told beside the arrays."""
        if self.granularity == "per_channel":
            return {"axis": 0}
        return {"group_size": self.group_size} if self.granularity == "per_group" else {}


@dataclass(frozen=True)
class Quantized:
    """A quantized weight.

    Attributes:
        codes: int8 or uint8 of the weight's shape; 4-bit ones packed two to a byte along the last axis.
        scale: f32 (f64 for a f64 weight), of the scheme's scale shape.
        zero_point: i32 of that shape, or None where the scheme is symmetric and all are 0.
        shape: the weight's shape.
        element: the word of the weight's own type, such as `f16`.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray | None
    shape: tuple[int, ...]
    element: str

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points; a stored zero point takes one byte."""
        return (
            self.codes.nbytes + self.scale.nbytes + (0 if self.zero_point is None else self.zero_point.size)
        )
