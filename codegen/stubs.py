"""What type checkers and editors are told of a catalog: signatures of functions, and fields of classes."""

from __future__ import annotations

from functools import cached_property

from skuda.codegen.describe import DescribedProgram
from skuda.model.operation import Operand, Operation

_ATTRIBUTES = {"axes": "Axes", "axis": "int", "size": "int"}
_OPTIONS = {"keepdims": "bool", "shape": "Sequence[int]", "without": "str"}


class Stub:
    """One operation as a stub declares it.

    Args:
        program: of a row, or of a form.
        whole: of the row.
    """

    def __init__(self, program: DescribedProgram, whole: DescribedProgram):
        self.program = program
        made, of_row = ([o.name for o in each.operation.outputs] for each in (program, whole))
        self.has_results = len(made) > 1 and (program is whole or made != of_row)  # else it has those of the row
        self.operation: Operation = program.operation
        self.name = self.operation.class_name
        self.called = program.called

    @property
    def doc(self) -> str:
        """Its sentence."""
        return self.operation.doc + (" The gradient." if self.program.backward else "")

    @property
    def results(self) -> str | None:
        """The class of several outputs; None of one."""
        return f"{self.name}Results" if len(self.operation.outputs) > 1 else None

    @property
    def shown_by(self) -> str | None:
        """The input whose class the outputs have: the first one, where all outputs have its element type."""
        first = next(operand for operand in self.operation.inputs if not operand.scalar)
        same = all(operand.element == first.element for operand in self.operation.outputs)
        return first.name if same else None

    @cached_property
    def signatures(self) -> list[str]:
        """Each overload: parameters and result."""
        made = [("ArrayT", "ArrayT")] if self.shown_by else [("TensorT", "TensorT"), ("Array", "Any")]
        if self.results is None:
            return [self._signature(given, f"{given} | None = None", result) for given, result in made]
        found = [self._signature(given, "None = None", f"{self.results}[{result}]") for given, result in made]
        return [*found, self._signature("Array", "OutT", "OutT")]

    def _signature(self, first: str, out: str, result: str) -> str:
        """Parameters and result, where the first array is of some class.

        Args:
            first: that class.
            out: the type of `out`, and its default.
            result: the type of what comes back.
        """
        op = self.operation
        array = next(operand.name for operand in op.inputs if not operand.scalar)
        known = {operand.name: first if operand.name == array else _operand(operand) for operand in op.inputs}
        known |= {attribute.name: _attribute(op, attribute) for attribute in op.attributes}
        if op.choice is not None:
            words = ", ".join(f'"{word}"' for word in op.choice.words)
            known[op.choice.name] = f"Literal[{words}]"
        known |= dict.fromkeys([*op.asked.values(), "input_dtype"], "Element") | _OPTIONS
        parts = []
        for part in self.program.signature.split(", "):
            name, given, default = part.partition("=")
            if name == "*":
                parts.append(name)
            elif name == "out":
                parts.append(f"out: {out}")
            elif name == "stream":
                parts.append("stream: Any = None")
            else:
                optional = " | None" if default == "None" and known[name] != "Axes" else ""
                parts.append(f"{name}: {known[name]}{optional}" + (f" = {default}" if given else ""))
        return f"({', '.join(parts)}) -> {result}"

    @cached_property
    def descriptor(self) -> list[str]:
        """The fields of its descriptor, with their defaults."""
        op = self.operation
        fields = [f"{dim.name}: {'Sizes' if dim.many else 'int'}" for dim in op.dims]
        for attribute in sorted(op.attributes, key=lambda each: each.default is not None):
            if not attribute.names_axes:
                given = "" if attribute.default is None else " | None = None"
                fields.append(f"{attribute.name}: {_attribute(op, attribute)}{given}")
        return fields + [f"{field}: Element | None = None" for field in op.element_fields.values()]

    @cached_property
    def args(self) -> list[str]:
        """The fields of its arguments."""
        inputs = [f"{operand.name}: {_operand(operand)}" for operand in self.operation.inputs]
        return inputs + [f"{operand.name}: Array" for operand in self.operation.outputs]

    @cached_property
    def outputs(self) -> list[str]:
        """The fields of several outputs."""
        return [f"{operand.name}: ArrayT" for operand in self.operation.outputs]


def _operand(operand: Operand) -> str:
    return "Number" if operand.scalar else "Array"


def _attribute(operation: Operation, attribute) -> str:
    return _ATTRIBUTES.get(attribute.type, attribute.python(operation.is_float(attribute.type)))
