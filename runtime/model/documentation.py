"""What descriptors and arguments are, in words: written when `help` asks."""

from __future__ import annotations

from skuda.errors import one_of
from skuda.model.operation import ALL, COMPUTE, Attribute, Choice, Operation


def of_descriptor(operation: Operation, plan: str) -> str:
    """The docstring of the class of an operation's descriptors."""
    axes = {True: "any number of axes: an int, or a tuple of them", False: "one axis"}
    lines = [f"{dim.name}: length of {axes[dim.many]}." for dim in operation.dims]
    lines += [f"{a.name}: {of_attribute(operation, a)}." for a in operation.attributes if not a.names_axes]
    for letter, field in operation.element_fields.items():
        lines.append(f"{field}: {letter}, one of {words(operation, letter)}; {_preferred(operation, letter)} if None.")
    return _text(f"What a {plan} is selected by.", lines)


def of_arguments(operation: Operation, plan: str) -> str:
    """The docstring of the class of an operation's arguments."""
    lines = []
    for operand in operation.operands:
        read = operand in operation.inputs
        number = ", a number or a one-element array" if operand.scalar and read else ""
        lines.append(f"{operand.name}: {operand.signature}{number}{'' if read else ', written'}.")
    return _text(f"Arrays of one {plan}.run.", lines)


def of_results(operation: Operation) -> str:
    """The docstring of the class of an operation's outputs."""
    lines = [f"{operand.name}: {operand.signature}." for operand in operation.outputs]
    return _text(f"What {operation.function} returns, a tuple whose elements have names.", lines)


def _text(first: str, lines: list[str]) -> str:
    return "\n".join([first, "", "Attributes:", *(f"    {line}" for line in lines)])


def words(operation: Operation, letter: str) -> str:
    """The element types that a letter may be."""
    return " ".join(dict.fromkeys(types[letter] for types in operation.combinations))


def compute_types(operation: Operation) -> str:
    """What C is."""
    if not any(map(operation.is_mixed, operation.types)):
        return "f64 where T is f64, else f32"
    last = ", a bool" if "bool" in operation.words_of("T") else ""
    floats = "f64 where T is f64, f32 of other floats, " if operation.is_float("T") else ""
    return f"{floats}64 bits of two's complement of integers{last}"


def _preferred(operation: Operation, letter: str) -> str:
    """What a letter is if nothing is said."""
    first = operation.types[letter][0]
    return f"that of {first}" if first in operation.types else first


def of_attribute(operation: Operation, attribute: Attribute) -> str:
    """What an attribute may be, and what it is if it is not given."""
    if attribute.type == "axes":
        text = f"the axes of `{attribute.axis_of}`: an integer, a tuple of them, or None for all; may be negative"
    elif attribute.type == "axis":
        text = f"which axis {attribute.axis_of} is; may be negative"
    elif attribute.type == "size":
        text = "a positive length"
    elif attribute.type == COMPUTE:
        text = "a number in the compute type"
    elif attribute.type == "i32":
        text = "an integer"
    elif attribute.type == "bool":
        text = "True or False"
    else:
        kind = "a number" if operation.is_float(attribute.type) else "an integer"
        text = f"{kind} that {attribute.type} can hold"
    if operation.hands_on(attribute):
        text = f"{text}, which the gradient of a recorded call is given"
    if attribute.default is None:
        return text
    default = attribute.default
    if default == ALL:
        default = "None"
    elif isinstance(default, str):
        limit, _, letter = default.removesuffix(")").partition("(")
        default = f"the {limit}{' finite number' if operation.is_float(letter) else ''} of {letter}"
    return f"{text}; {default} if not given"


def of_choice(choice: Choice) -> str:
    """What a choice may be, and what it is if it is not given."""
    words = one_of(f'"{word}"' for word in choice.words)
    return f'{words}: {choice.doc}; "{choice.default}" if not given'
