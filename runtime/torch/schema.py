"""The schema of an operation as an operator of torch, from the table alone."""

from __future__ import annotations

from typing import Any

from skuda.model.operation import ALL, Attribute, Operation
from skuda.model.records import Record

REQUIRED: Any = object()  # stands for a default that is not there


class Argument(Record):
    """One argument of an operator.

    Attributes:
        name: as in the function form.
        kind: "input", "attribute" or "option".
        type: in a schema.
        default: REQUIRED where a call must give it.
    """

    name: str
    kind: str
    type: str
    default: Any

    def __str__(self) -> str:
        return f"{self.type} {self.name}" + ("" if self.default is REQUIRED else f"={self.default}")


def _of_attribute(operation: Operation, attribute: Attribute) -> Argument:
    number = attribute.python(operation.is_float(attribute.type))
    number = "SymInt" if number == "int" else number
    if attribute.type == "axes":
        default = {None: REQUIRED, ALL: None}.get(attribute.default, attribute.default)
        return Argument(attribute.name, "attribute", "SymInt[1]?", default)
    if attribute.default is None:
        return Argument(attribute.name, "attribute", number, REQUIRED)
    if attribute.names_axes or attribute.type == "size":
        return Argument(attribute.name, "attribute", number, attribute.default)
    return Argument(attribute.name, "attribute", f"{number}?", None)  # the default depends on the type


def arguments(operation: Operation, numbers: bool = False) -> tuple[Argument, ...]:
    """The arguments of an operator, in the order of its schema.

    Args:
        numbers: whether inputs of one value are Python numbers.
    """
    found = []
    for operand in operation.inputs:
        number = "float" if operation.is_float(operand.element) else "int"
        number = "Scalar" if operation.is_mixed(operand.element) else number
        kind = number if numbers and operand.scalar else "Tensor"
        found.append(Argument(operand.name, "input", kind, REQUIRED))
    found += [_of_attribute(operation, attribute) for attribute in operation.attributes]
    for name in operation.options:
        if name == "keepdims":
            found.append(Argument(name, "option", "bool", False))
        elif name == "shape":
            found.append(Argument(name, "option", "SymInt[]", REQUIRED) if operation.shaped is not None else
                         Argument(name, "option", "SymInt[]?", None))  # fmt: skip
        else:
            found.append(Argument(name, "option", "str?", None))
    if operation.creates:
        found.append(Argument("device", "option", "Device?", None))
    return tuple(sorted(found, key=lambda argument: argument.default is not REQUIRED))


def schema(name: str, operation: Operation, numbers: bool = False) -> str:
    """The schema of an operator that makes its outputs."""
    made = [f"Tensor {operand.name}" for operand in operation.outputs]
    returned = f"({', '.join(made)})" if len(made) > 1 else "Tensor"
    overload = ".Scalar" if numbers else ""
    return f"{name}{overload}({', '.join(map(str, arguments(operation, numbers)))}) -> {returned}"


def out_schema(name: str, operation: Operation, numbers: bool = False) -> str:
    """The schema of an operator that writes its outputs into tensors which it is given."""
    taken = [f"{argument.type} {argument.name}" for argument in arguments(operation, numbers)]
    letters = "abcdefghijklmnopqrstuvwxyz"
    outs = [f"Tensor({letter}!) {out}" for letter, out in zip(letters, out_names(operation))]
    overload = ".Scalar" if numbers else ""
    return f"{name}_out{overload}({', '.join([*taken, *outs])}) -> ()"


def out_names(operation: Operation) -> tuple[str, ...]:
    """What the arguments for outputs are called: `out`, or `out_scale` and `out_output`."""
    if len(operation.outputs) == 1:
        return ("out",)
    return tuple(f"out_{operand.name}" for operand in operation.outputs)
