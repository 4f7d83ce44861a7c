"""The package onnx, and operations by their names."""

from __future__ import annotations

from types import ModuleType

from skuda.errors import InvalidProblem, optional_module, shown
from skuda.frameworks.programs import plans
from skuda.plans.plan import Plan


def import_onnx() -> ModuleType:
    """Import onnx.

    Raises:
        MissingDependency: it is not installed; the message names the extra.
    """
    return optional_module("onnx", "skuda.onnx", "onnx")


def plan_of(operation: object) -> type[Plan]:
    """The plan class of an operation.

    Args:
        operation: its name, or its function.

    Raises:
        InvalidProblem: no catalog that is loaded has it.
    """
    name = operation if isinstance(operation, str) else getattr(operation, "__name__", None)
    found = plans().get(name)
    if found is None:
        raise InvalidProblem(f"skuda.onnx: expected an operation's name or function, got {shown(operation)}")
    return found
