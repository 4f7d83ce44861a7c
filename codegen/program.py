"""What a checked spec is: rows, their programs, and the spec's functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skuda.codegen.nodes import Function, Node
from skuda.operation import Operation


@dataclass(frozen=True)
class Program:
    """One direction of a row, checked: the operation and a formula for each output."""

    operation: Operation
    formulas: Mapping[str, Node]
    formula_texts: Mapping[str, str]
    requirements: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Row:
    """One operation of the spec."""

    name: str
    kind: str
    doc: str
    forward: Program
    backward: Program | None
    line: int
    source: str = ""

    @property
    def programs(self) -> tuple[Program, ...]:
        """Forward, and backward where there is one."""
        return (self.forward,) if self.backward is None else (self.forward, self.backward)


@dataclass(frozen=True)
class Spec:
    """A whole spec file."""

    file_name: str
    rows: tuple[Row, ...]
    functions: Mapping[str, Function]
