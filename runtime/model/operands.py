"""Operands and attributes of an operation, as a row declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skuda.model.dtypes import DTYPES
from skuda.model.records import Record

COMPUTE = "C"  # the type letter of the compute type
SCALE = "S"  # the type letter of the scale's element
WEIGHT = "W"  # that of a weight's
ALL = "all"  # the default of an attribute of axes
REDUCTIONS = ("none", "mean", "sum")  # what `reduction of n` may be: the elements along n, their mean, or their sum


class Dim(Record):
    """One entry of an operand's dimensions.

    Attributes:
        name: the dimension; the digits of a number for one that has this size, as in `T[n, 4]`.
        many: `*name`, any number of axes.
        block: `name/block`: one entry for each block of that attribute's length along the dimension.
    """

    name: str
    many: bool = False
    block: str | None = None

    @staticmethod
    def of(text: str) -> Dim:
        """From its spelling in a row: `d`, `*outer` or `d/group_size`."""
        name, _, block = text.partition("/")
        return Dim(name.lstrip("*"), name.startswith("*"), block or None)

    @property
    def size(self) -> int | None:
        """The size that it must have; None for one that the caller's shapes decide."""
        return int(self.name) if self.name.isdigit() else None

    def __str__(self) -> str:
        return ("*" if self.many else "") + self.name + (f"/{self.block}" if self.block else "")


class Operand(Record):
    """One array (or one value, where it has no dimensions) that an operation reads or writes.

    Attributes:
        name: argument name.
        element: a type letter, the word of an element type, or `C`.
        dims: its dimensions.
    """

    name: str
    element: str
    dims: tuple[Dim, ...]

    @staticmethod
    def of(name: str, element: str, dims: str) -> Operand:
        """From the spelling of its dimensions: `Operand.of("scale", "S", "*outer, d/group_size")`."""
        return Operand(name, element, tuple(Dim.of(part.strip()) for part in dims.split(",") if part.strip()))

    @staticmethod
    def each(*spelled: str) -> tuple[Operand, ...]:
        """From the spellings of a row: `Operand.each("input: T[*n, d]", "scale: S[*n]")`."""
        found = []
        for text in spelled:
            name, _, signature = text.partition(": ")
            element, _, dims = signature.partition("[")
            found.append(Operand.of(name, element, dims[:-1]))
        return tuple(found)

    @property
    def scalar(self) -> bool:
        """Whether it is one value: a Python number or a one-element array."""
        return self.dims == ()

    @property
    def signature(self) -> str:
        """As a row spells it: `S[*outer, d/group_size]`."""
        return f"{self.element}[{', '.join(map(str, self.dims))}]"


class Attribute(Record):
    """One value that a plan is selected with.

    Attributes:
        name: argument name.
        type: a type letter (a number that this type can hold), `i32`, `bool`, `C`, `size`, `axis` or `axes`.
        default: a number, True or False, "lowest(Q)" or "highest(Q)" (of a letter's type), "all" (axes), or None where
            the caller must say it.
        axis_of: for an axis or axes, the dimension whose axes they name.
    """

    name: str
    type: str
    default: int | float | str | None = None
    axis_of: str | None = None

    @property
    def absent(self):
        """What stands for it in a call that does not say it."""
        return self.default if self.names_axes and self.default != ALL else None

    def default_for(self, types: Mapping[str, str]) -> int | float | None:
        """The number, or True or False, that it is in a call that does not say it; None where the caller must.

        Args:
            types: the word of each type letter.
        """
        if not isinstance(self.default, str):
            return self.default
        limit, _, letter = self.default.removesuffix(")").partition("(")
        return getattr(DTYPES[types.get(letter, letter)], limit)

    @property
    def names_axes(self) -> bool:
        """Whether it says which axes of an array a dimension is, and so has no value in a formula or descriptor."""
        return self.axis_of is not None

    def python(self, real: bool) -> str:
        """The class of its values; `real`: whether its type is one of floats."""
        return "float" if real else "bool" if self.type == "bool" else "int"


class Choice(Record):
    """An attribute whose value is a word, and selects a form of the row.

    Attributes:
        name: argument name.
        default: the word that a call means which says none: the row itself.
        forms: by word, the operation that runs.
        doc: what the words do.
    """

    name: str
    default: str
    forms: tuple[tuple[str, str], ...]
    doc: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """What it may be."""
        return tuple(word for word, _ in self.forms)


class Requirement(Record, aside=("holds",)):
    """A condition on attributes that is checked when a plan is selected."""

    text: str
    names: tuple[str, ...]
    holds: Callable[..., bool]
