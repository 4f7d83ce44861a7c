"""What type checkers and editors are told of a catalog: signatures of functions, and fields of classes."""

from __future__ import annotations

from collections.abc import Mapping
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

    @cached_property
    def signatures(self) -> list[str]:
        """Each overload: parameters and result. The class of an input may be that of the outputs: of the first array,
        or of a later one where numbers stand for those before it."""
        inputs = self.operation.inputs
        if self.operation.creates:
            return self._of_created()
        first = next((operand for operand in inputs if not operand.scalar), inputs[0])
        several = [inputs[index] for index in self.operation.broadcast]
        later = [each for each in several[1:] if first in several and each.name not in self.operation.numbers]
        if self._shows(first):
            made = [("ArrayT", "ArrayT", first)]
        else:
            made = [("TensorT", "TensorT", first), ("Array", "Any", first)]
        made += [("ArrayT", "ArrayT", each) if self._shows(each) else ("Array", "Any", each) for each in later]
        if self.results is None:
            halves = self.operation.halves
            found = []
            for given, result, by in made:
                # Required, although another may come in its place: else nothing may say what is returned.
                said = dict.fromkeys(halves[: halves.index(by.name)], "float") if by.name in halves else {}
                said |= {by.name: given} if by.name in halves else {}
                found.append(self._signature(given, f"{given} | None = None", result, by, said))
            if halves and first.name == halves[0]:
                said = {halves[0]: "None = None", halves[1]: "ArrayT = ..."}
                found.append(self._signature("ArrayT", "ArrayT | None = None", "ArrayT", first, said))
            return found
        both = dict.fromkeys(self.operation.halves, "Array") if self.program.backward else {}
        found = [
            self._signature(given, "None = None", f"{self.results}[{result}]", by, both) for given, result, by in made
        ]
        found += [self._signature("Array", "OutT", "OutT", each, both) for each in (first, *later)]
        if both:  # of one array there is one gradient
            one, other = both
            alone = {one: "Array", other: "None = None"}, {one: "None = None", other: "Array = ..."}
            found += [self._signature("ArrayT", "ArrayT | None = None", "ArrayT", first, each) for each in alone]
        return found

    def _of_created(self) -> list[str]:
        """Each overload where no input is an array: the class of what is made is that of `like`, or of `out`."""
        made = {name: name if self.results is None else f"{self.results}[{name}]" for name in ("ArrayT", "Any")}
        like = {"like": "ArrayT", "out": "None = None", "device": "None = None"}
        out = {"out": "ArrayT" if self.results is None else "OutT", "like": "None = None", "device": "None = None"}
        free = {"like": "None = None", "out": "None = None"}
        return [self._written(known, result) for known, result in
                ((like, made["ArrayT"]), (out, out["out"]), (free, made["Any"]))]  # fmt: skip

    def _written(self, given: Mapping[str, str], result: str) -> str:
        """The parameters of a function that creates, of which some have a type, and its result."""
        known = {operand.name: "Number | None = None" for operand in self.operation.inputs}
        known |= {"shape": "Sizes | None = None", "device": "Any = None", "stream": "Any = None", "*": ""}
        known |= {a.name: f"{_attribute(self.operation, a)} | None = None" for a in self.operation.attributes}
        known |= dict.fromkeys(self.operation.asked.values(), "Element | None = None")
        required = {a.name: _attribute(self.operation, a) for a in self.operation.attributes if a.default is None}
        names = [part.partition("=")[0] for part in self.program.signature.split(", ")]
        known |= required | given
        return f"({', '.join(f'{name}: {known[name]}' if known[name] else name for name in names)}) -> {result}"

    def _shows(self, operand: Operand) -> bool:
        """Whether all outputs have an input's element type."""
        return all(output.element == operand.element for output in self.operation.outputs)

    def _signature(self, kind: str, out: str, result: str, array: Operand, said: Mapping[str, str] = {}) -> str:
        """Parameters and result.

        Args:
            kind: the class of an array.
            out: the type of `out`, and its default.
            result: the type of what comes back.
            array: the input that has the class; before it are none but numbers.
            said: inputs of which the type and the default are others.
        """
        op = self.operation
        together = [op.inputs[index] for index in op.broadcast]
        known = {operand.name: "Number" if operand in together else _operand(operand) for operand in op.inputs}
        known |= {operand.name: "float" for operand in op.inputs[: op.inputs.index(array)] if operand in together}
        known[array.name] = kind
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
            elif name in said:
                parts.append(f"{name}: {said[name]}")
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
