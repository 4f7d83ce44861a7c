"""What a descriptor says, checked: element types, sizes of dimensions, and values of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np

from skuda.dtypes import DTYPES
from skuda.errors import InvalidProblem, Unsupported
from skuda.operation import Operation, Types


def is_number(value) -> bool:
    """Whether an argument is one number, and no array."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def types_of(operation: Operation, descriptor, plan: str) -> Types:
    """The element types by letter: those that the descriptor names, and what follows from them.

    Raises:
        Unsupported: no kernel has these element types; names what there is.
    """
    given = {
        letter: word
        for letter, field in operation.element_fields.items()
        if (word := getattr(descriptor, field)) is not None
    }
    for letter, word in given.items():
        if word not in DTYPES:
            raise Unsupported(
                f"{plan}: {operation.element_fields[letter]} is {word!r}, expected one of "
                f"{' '.join(dict.fromkeys(types[letter] for types in operation.combinations))}"
            )
    return operation.resolve(given, plan)


def sizes_of(operation: Operation, descriptor, plan: str) -> dict[str, int | tuple[int, ...]]:
    """The descriptor's dimensions and block lengths, checked."""
    sizes: dict[str, int | tuple[int, ...]] = {}
    for dim in operation.dims:
        value = getattr(descriptor, dim.name)
        extents = (value,) if isinstance(value, (int, np.integer)) else value
        if not dim.many and not isinstance(value, (int, np.integer)):
            raise InvalidProblem(f"{plan}: {dim.name} is {value!r}, expected an integer")
        if not isinstance(extents, (tuple, list)) or not all(
            isinstance(extent, (int, np.integer)) and extent >= 0 for extent in extents
        ):
            kind = "non-negative integers" if dim.many else "a non-negative integer"
            raise InvalidProblem(f"{plan}: {dim.name} is {value!r}, expected {kind}")
        sizes[dim.name] = tuple(int(extent) for extent in extents) if dim.many else int(value)
    for attribute in operation.attributes:
        if attribute.type == "size":
            value = getattr(descriptor, attribute.name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected a positive integer")
            sizes[attribute.name] = int(value)
    return sizes


def attributes_of(operation: Operation, descriptor, types, plan: str) -> dict[str, int | float]:
    """The attributes' values: defaults filled in, ranges and requirements checked."""
    values: dict[str, Any] = {}
    for attribute in operation.attributes:
        if attribute.type == "size" or attribute.places:
            continue
        value = getattr(descriptor, attribute.name)
        word = types.get(attribute.type, attribute.type)
        dtype = DTYPES[word]
        if value is None:
            value = {"lowest": dtype.lowest, "highest": dtype.highest}.get(attribute.default, attribute.default)
        if value is None:
            raise InvalidProblem(f"{plan}: {attribute.name} is missing, expected a number ({word})")
        if dtype.kind == "int":
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected an integer ({word})")
            if not dtype.lowest <= value <= dtype.highest:
                raise InvalidProblem(
                    f"{plan}: {attribute.name} is {value}, expected {dtype.lowest} to {dtype.highest} ({word})"
                )
            values[attribute.name] = int(value)
        else:
            if not is_number(value):
                raise InvalidProblem(f"{plan}: {attribute.name} is {value!r}, expected a number")
            if dtype.narrow_float and not dtype.holds(value):
                limits = f"{dtype.lowest:g} to {dtype.highest:g}"
                raise InvalidProblem(f"{plan}: {attribute.name} is {value}, expected a value of {word} ({limits})")
            values[attribute.name] = float(value)
    for requirement in operation.requirements:
        chosen = {name: values[name] for name in requirement.names}
        with np.errstate(all="ignore"):
            holds = requirement.holds(**chosen)
        if not holds:
            came = ", ".join(f"{name}={value}" for name, value in chosen.items())
            raise InvalidProblem(f"{plan}: requires {requirement.text}, got {came}")
    return values
