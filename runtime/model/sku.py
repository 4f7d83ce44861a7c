"""KernelSku: the identity of one kernel, its text form, and the numeric guarantee that it carries.

A symbol says what before how: `quantize_per_token_f16_s8__vec16` is the operation with its element types,
then the variant that runs it. `KernelSku.parse(sku.symbol) == sku` for every SKU of every catalog that is
loaded.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from functools import cache

from skuda.errors import UnknownSymbol, shown
from skuda.model.dtypes import DTYPES
from skuda.model.records import Record


class BackendKind(enum.Enum):
    """What executes a plan: a kernel on a GPU, one on the CPU by its C++ compiler, or NumPy."""

    CUDA = "cuda"
    CPU = "cpu"
    REFERENCE = "reference"


class Direction(enum.Enum):
    """Which pass of the operation a kernel is."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Layout(enum.Enum):
    """How the operands lie in memory; PACKED4: an operand holds two elements to a byte, low nibble first."""

    CONTIGUOUS = "contiguous"
    STRIDED = "strided"
    CONTIGUOUS_PACKED4 = "contiguous_packed4"
    STRIDED_PACKED4 = "strided_packed4"


class PrecisionGuarantee(Record):
    """What a kernel promises about its numbers; derived from the row and its element types.

    Attributes:
        math_precision: the compute type that formulas are evaluated in: f32 or f64; i64 or bool where T may be floats
            and these, and is one of these.
        accumulator: the type of running sums; None where nothing is summed.
        rounding: how the result is narrowed to its element.
        exact: only steps occur that are the same everywhere: + - * / sqrt, rounding to integer, comparisons and
            selections, each correctly rounded, and sums and elementary functions, made of these in one order. So
            the result is a function of the formula alone: the same bits on CPU and GPU.
        max_ulp: largest distance from the formula evaluated in the compute type step by step, in units in the
            last place of the output; 0 for exact rows, None where functions are instructions of the GPU
            (`precision="fast"`; docs/numerics.md has their bounds).
        deterministic: the same input gives the same bits on every run.
        bit_stable_on_same_hardware: the same bits for every layout, alignment and launch shape.
    """

    math_precision: str
    accumulator: str | None
    rounding: str
    exact: bool
    max_ulp: float | None
    deterministic: bool = True
    bit_stable_on_same_hardware: bool = True


class KernelSku(Record):
    """Identity of one kernel.

    Attributes:
        category: kind of the operation, the part of the row's `kind` before the dot.
        op: name of the row.
        direction: forward or backward.
        element: word of the first type variable (T).
        aux_element: word of the second one (Q), or None.
        scale_element: word of the scale's element (S) where the row has one, else None.
        weight_element: word of the weight's element (W) where the row has one, else None.
        layout: contiguous or strided, and whether elements are packed.
        epilogue: name of a fused last stage, or None.
        variant: the schedule: `vec16`, `strided`, ... or `reference`.
        arch: "any", or the architecture that the variant is written for; `Variant.least_arch` says what it needs.
        backend: what executes it.
        precision_guarantee: the same for all variants of an operation and its types.
    """

    category: str
    op: str
    direction: Direction
    element: str
    aux_element: str | None
    scale_element: str | None
    weight_element: str | None
    layout: Layout
    epilogue: str | None
    variant: str
    arch: str
    backend: BackendKind
    precision_guarantee: PrecisionGuarantee

    @property
    def symbol(self) -> str:
        """Text form; distinct for distinct SKUs."""
        parts = [self.op]
        if self.direction is Direction.BACKWARD:
            parts.append("backward")
        parts.append(self.element)
        if self.aux_element is not None:
            parts.append(self.aux_element)
        if self.weight_element is not None and self.weight_element != self.element:
            parts += ["weight", self.weight_element]
        if self.scale_element is not None and self.scale_element != self.element:
            parts += ["scale", self.scale_element]
        how = [self.variant] if self.epilogue is None else [self.variant, self.epilogue]
        if self.arch != "any":
            how.append(self.arch)
        return "_".join(parts) + "__" + "_".join(how)

    @staticmethod
    def parse(symbol: str) -> KernelSku:
        """The SKU whose symbol this is.

        Raises:
            UnknownSymbol: the text is not a symbol, or no catalog that is loaded has such a kernel; names the
                nearest.
        """
        if _find is None:
            split_symbol(symbol)
            raise UnknownSymbol(f"no kernel {symbol}: no catalog is loaded; import skuda.generated, or one of your own")
        return _find(symbol)

    def __str__(self) -> str:
        return self.symbol


_find: Callable[[str], KernelSku] | None = None


def find_symbols_by(find: Callable[[str], KernelSku]) -> None:
    """Sets what `KernelSku.parse` asks: the registry of catalogs, which knows the operations."""
    global _find
    _find = find


@cache
def _symbol() -> re.Pattern:
    element = "|".join(DTYPES)
    return re.compile(
        rf"(?P<op>[a-z][a-z0-9_]*?)(?P<backward>_backward)?_(?P<element>{element})(?:_(?P<aux>{element}))?"
        rf"(?:_weight_(?P<weight>{element}))?(?:_scale_(?P<scale>{element}))?__(?P<variant>[a-z0-9]+(?:_[a-z0-9]+)*)"
    )


class SymbolParts(Record):
    """What the text of a symbol says by itself."""

    op: str
    direction: Direction
    element: str
    aux_element: str | None
    scale_element: str | None
    weight_element: str | None
    variant: str


def split_symbol(symbol: str) -> SymbolParts:
    """Reads a symbol without asking whether such a kernel exists.

    Raises:
        UnknownSymbol: the text does not have the form of a symbol.
    """
    match = _symbol().fullmatch(symbol) if isinstance(symbol, str) else None
    if match is None:
        raise UnknownSymbol(
            f"{shown(symbol)} is not a kernel symbol: "
            "expected op[_backward]_element[_element][_weight_element][_scale_element]__variant, "
            "such as quantize_per_token_f16_s8__vec16"
        )
    return SymbolParts(
        op=match["op"],
        direction=Direction.BACKWARD if match["backward"] else Direction.FORWARD,
        element=match["element"],
        aux_element=match["aux"],
        scale_element=match["scale"],
        weight_element=match["weight"],
        variant=match["variant"],
    )
