"""The classes of descriptors, arguments and results. What a descriptor says, checked: element types, sizes of
dimensions, and values of attributes."""

from __future__ import annotations

from _collections import _tuplegetter  # the fields of a named tuple
from math import isinf, prod
from types import GenericAlias
from typing import Any

import numpy as np

from skuda.errors import ElementMismatch, InvalidProblem, Unsupported, shown
from skuda.model.dtypes import DTYPES, DType, word_of
from skuda.model.operation import Operation, Types
from skuda.model.records import Args, Record, Written

_MOST = (1 << 63) - 1  # what kernels count with
_MOST_ELEMENTS = 1 << 60  # whose bytes they can count
_MOST_AXES = 60  # NumPy has 64; the reference needs a few of its own


def descriptor_class(operation: Operation, plan: str, package: str) -> type[Record]:
    """The class of what plans of an operation are selected by: dimensions, attributes, element types.

    Those without a default come first.

    Args:
        operation: whose plans.
        plan: the name of their class.
        package: what the class is an attribute of.
    """
    fields = {dim.name: "int | tuple[int, ...]" if dim.many else "int" for dim in operation.dims}
    defaults: dict[str, None] = {}
    for attribute in sorted(operation.attributes, key=lambda each: each.default is not None):
        if not attribute.names_axes:
            number = attribute.python(operation.is_float(attribute.type))
            fields[attribute.name] = number if attribute.default is None else f"{number} | None"
            if attribute.default is not None:
                defaults[attribute.name] = None
    for field in operation.element_fields.values():
        fields[field], defaults[field] = "str | None", None

    def write() -> str:
        from skuda.model.documentation import of_descriptor

        return of_descriptor(operation, plan)

    own = {"__module__": package, "__doc__": Written(write), "__annotations__": fields}
    return type(Record)(f"{operation.class_name}Descriptor", (Record,), {**own, **defaults})


def args_class(operation: Operation, plan: str, package: str) -> type[Args]:
    """The class of an operation's operands; arguments are those of `descriptor_class`."""

    def write() -> str:
        from skuda.model.documentation import of_arguments

        return of_arguments(operation, plan)

    return Args.of(f"{operation.class_name}Args", tuple(o.name for o in operation.operands), package, write)


def results_class(operation: Operation, plan: str, package: str) -> type[tuple]:
    """The class of an operation's several outputs: a named tuple, to torch and JAX too.

    `collections.namedtuple` writes and compiles a method of each class, which takes longer. torch's compiler wants
    `tuple` as its only base.

    Args: as of `descriptor_class`.
    """
    names = tuple([operand.name for operand in operation.outputs])

    def write() -> str:
        from skuda.model.documentation import of_results

        return of_results(operation)

    own: dict[str, Any] = {
        operand.name: _tuplegetter(index, operand.signature) for index, operand in enumerate(operation.outputs)
    }
    own |= {"__module__": package, "__doc__": Written(write), "__slots__": (), "__match_args__": names}
    own |= {"_fields": names, "_field_defaults": {}, "_make": classmethod(tuple.__new__), "__new__": _new}
    own |= {"_asdict": _asdict, "_replace": _replace, "__repr__": _repr, "__getnewargs__": _values}
    own["__class_getitem__"] = classmethod(GenericAlias)  # stubs say of which arrays it is
    return type(f"{operation.class_name}Results", (tuple,), own)


def _new(cls, *values, **named):
    """A tuple of one value for each field."""
    if named:
        values += tuple([named.pop(name) for name in cls._fields[len(values) :] if name in named])
    if named or len(values) != len(cls._fields):
        got = ", ".join(named) or f"{len(values)} values"
        raise TypeError(f"{cls.__name__}: got {got}, expected one for each of {', '.join(cls._fields)}")
    return tuple.__new__(cls, values)


def _values(self) -> tuple:
    """For copies and pickles."""
    return tuple(self)


def _asdict(self) -> dict[str, Any]:
    """The values by name."""
    return dict(zip(self._fields, self))


def _replace(self, **values):
    """The same but for some values."""
    return type(self)(**{**self._asdict(), **values})


def _repr(self) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"{type(self).__name__}({shown})"


def is_number(value) -> bool:
    """Whether an argument is one real number, and no array."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_element(value) -> bool:
    """Whether it is a number or a boolean, and no array."""
    return is_number(value) or isinstance(value, (bool, np.bool_))


def is_integer(value) -> bool:
    """Whether an argument is one integer; a boolean is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def rounded_number(value, dtype: DType) -> float | None:
    """A number as an element of a float type; None for an integer that is beyond the type's largest value."""
    try:
        with np.errstate(over="ignore"):
            rounded = dtype.number(float(value))
    except OverflowError:
        return None
    return None if isinf(rounded) and is_integer(value) else rounded


def as_element(value, word: str, called: str) -> int | float | bool:
    """A number or a boolean as an element of some type, rounded to it; `called` is the plan and the argument.

    Raises:
        ElementMismatch: it is of another kind: a float for an integer, or what is no boolean for one.
        InvalidProblem: it is beyond the type's range.
    """
    dtype = DTYPES[word]
    is_boolean = isinstance(value, (bool, np.bool_))
    if dtype.kind == "bool":
        if not is_boolean:
            raise ElementMismatch(f"{called} is {shown(value)}, expected True or False ({word})")
        return bool(value)
    value = int(value) if is_boolean else value
    if dtype.kind == "int":
        if not is_integer(value):
            raise ElementMismatch(f"{called} is {shown(value)}, expected an integer ({word})")
        rounded = int(value) if dtype.lowest <= value <= dtype.highest else None
    else:
        rounded = rounded_number(value, dtype)
    if rounded is None:
        raise InvalidProblem(f"{called} is {shown(value)}, which {word} cannot hold")
    return rounded


def types_of(operation: Operation, descriptor, plan: str) -> Types:
    """The element types by letter: those that the descriptor names, and what follows from them.

    Raises:
        Unsupported: no kernel has these element types; names what there is.
    """
    given = {
        letter: checked_word(operation, letter, element, f"{plan}: {field}")
        for letter, field in operation.element_fields.items()
        if (element := getattr(descriptor, field)) is not None
    }
    return operation.resolve(given, plan)


def checked_word(operation: Operation, letter: str, element, called: str) -> str:
    """The word of an element type that a caller names for a letter; `called` is the plan and the argument."""
    word = word_of(element)
    if word is None:
        expected = " ".join(dict.fromkeys(types[letter] for types in operation.combinations))
        raise Unsupported(f"{called} is {shown(element)}, expected an element type, one of {expected}")
    return word


def sizes_of(operation: Operation, descriptor, plan: str) -> dict[str, int | tuple[int, ...]]:
    """The descriptor's dimensions and block lengths, checked."""
    sizes: dict[str, int | tuple[int, ...]] = {**operation.fixed}
    for dim in operation.dims:
        value = getattr(descriptor, dim.name)
        extents = (value,) if is_integer(value) else value
        if not dim.many and not is_integer(value):
            raise InvalidProblem(f"{plan}: {dim.name} is {shown(value)}, expected an integer")
        if not isinstance(extents, (tuple, list)) or not all(
            is_integer(extent) and 0 <= extent <= _MOST for extent in extents
        ):
            kind = "non-negative integers" if dim.many else "a non-negative integer"
            raise InvalidProblem(f"{plan}: {dim.name} is {shown(value)}, expected {kind} below 2^63")
        sizes[dim.name] = tuple(int(extent) for extent in extents) if dim.many else int(value)
    space = operation.space
    axes = sum([len(size) if isinstance(size, tuple) else 1 for size in sizes.values()])
    if axes > _MOST_AXES:
        raise Unsupported(f"{plan}: {axes} axes, at most {_MOST_AXES} are served; make some of them one")
    elements = prod([prod(size) if isinstance(size := sizes[dim.name], tuple) else size for dim in space])
    if elements >= _MOST_ELEMENTS:
        called = ", ".join(f"{dim.name} = {shown(sizes[dim.name])}" for dim in space)
        raise InvalidProblem(f"{plan}: {called} has {shown(elements)} elements, expected fewer than 2^60")
    for attribute in operation.attributes:
        if attribute.type == "size":
            sizes[attribute.name] = block_length(getattr(descriptor, attribute.name), f"{plan}: {attribute.name}")
    return sizes


def block_length(value, called: str) -> int:
    """The length of a block, checked; `called` is the plan and the attribute."""
    if not is_integer(value) or not 1 <= value <= _MOST:
        expected = "a positive integer" + (" below 2^63" if is_integer(value) and value > 0 else "")
        raise InvalidProblem(f"{called} is {shown(value)}, expected {expected}")
    return int(value)


def attributes_of(operation: Operation, descriptor, types, plan: str) -> dict[str, int | float]:
    """The attributes' values: defaults filled in, ranges and requirements checked."""
    values: dict[str, Any] = {}
    for attribute in operation.attributes:
        if attribute.type == "size" or attribute.names_axes:
            continue
        value = getattr(descriptor, attribute.name)
        word = types.get(attribute.type, attribute.type)
        dtype = DTYPES[word]
        if value is None:
            value = attribute.default_for(types)
        if value is None:
            wanted = "True or False" if dtype.kind == "bool" else f"a number ({word})"
            raise InvalidProblem(f"{plan}: {attribute.name} is missing, expected {wanted}")
        if dtype.kind == "bool":
            if not isinstance(value, (bool, np.bool_)):
                raise InvalidProblem(f"{plan}: {attribute.name} is {shown(value)}, expected True or False")
            values[attribute.name] = bool(value)
        elif dtype.kind == "int":
            if not is_integer(value):
                raise InvalidProblem(f"{plan}: {attribute.name} is {shown(value)}, expected an integer ({word})")
            if not dtype.lowest <= value <= dtype.highest:
                limits = f"{dtype.lowest} to {dtype.highest}"
                raise InvalidProblem(f"{plan}: {attribute.name} is {shown(value)}, expected {limits} ({word})")
            values[attribute.name] = int(value)
        else:
            if not is_number(value):
                raise InvalidProblem(f"{plan}: {attribute.name} is {shown(value)}, expected a number")
            if dtype.narrow_float and not dtype.holds(value):
                limits = f"{dtype.lowest:g} to {dtype.highest:g}"
                raise InvalidProblem(
                    f"{plan}: {attribute.name} is {shown(value)}, expected a value of {word} ({limits})"
                )
            if rounded_number(value, dtype) is None:
                raise InvalidProblem(f"{plan}: {attribute.name} is {shown(value)}, which {word} cannot hold")
            values[attribute.name] = float(value)
    for requirement in operation.requirements:
        chosen = {name: values[name] for name in requirement.names}
        with np.errstate(all="ignore"):
            holds = requirement.holds(**chosen)
        if not holds:
            came = ", ".join(f"{name}={value}" for name, value in chosen.items())
            raise InvalidProblem(f"{plan}: requires {requirement.text}, got {came}")
    return values
