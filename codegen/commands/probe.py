"""What an operation gives at NaN, infinities, ties and limits: computed by its reference, not told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skuda.errors import SkudaError
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation
from skuda.plans.plan import Plan

VALUES = (float("nan"), float("inf"), float("-inf"), 0.5, 1.5, 2.5, -0.5, -0.0, 1e9, -1e9)


@dataclass(frozen=True)
class Special:
    """What was tried.

    Attributes:
        setting: the values of everything else.
        lines: a table: the values of the input, and below them those of each output.
    """

    setting: str
    lines: tuple[str, ...]


def special_values(plan: type[Plan], function) -> Special | None:
    """The outputs at special values of the first real input of the output's shape; None where there is none, or where
    the row fixes the size of a dimension, so that values would not stand alone.

    Args:
        plan: of the operation.
        function: its function form.
    """
    operation = plan.operation
    types = operation.combinations[0]
    probed = _probed(operation, types)
    if probed is None or operation.analysis.stages or operation.fixed:
        return None
    sizes = _sizes(operation)
    attributes = _attributes(operation)
    setting = {letter: types[letter] for letter in operation.kernel_letters}
    inputs = []
    for operand in operation.inputs:
        dtype = DTYPES[operation.word(operand, types)]
        shape = operation.shape_of(operand, sizes)
        if operand is probed:
            inputs.append(np.array(VALUES, dtype.storage).reshape(shape))
            continue
        value = 0 if dtype.kind != "float" else 0.5 if operand.element == COMPUTE else 1
        inputs.append(value if operand.scalar else np.full(shape, value, dtype.storage))
        setting[operand.name] = value
    text = ", ".join(f"{name} = {value}" for name, value in {**setting, **attributes}.items())
    try:
        results = function(*inputs, **attributes)
    except SkudaError as error:  # the row requires what the values chosen here do not have
        return Special(text, (str(error),))
    results = results if isinstance(results, tuple) else (results,)
    rows = [
        (probed.name, VALUES),
        *((o.name, r.reshape(-1)) for o, r in zip(operation.outputs, results, strict=True)),
    ]
    cells = [[name, *(f"{value:g}" for value in values)] for name, values in rows]
    longest = max(map(len, cells))  # what all elements give is one value
    cells = [cell + [""] * (longest - len(cell)) for cell in cells]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return Special(
        text,
        tuple("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells),
    )


def _probed(operation: Operation, types) -> Operand | None:
    """A real input in the output's shape, one of the forward pass's if there is one."""
    real = [
        operand
        for operand in operation.inputs
        if operand.dims == operation.space and DTYPES[operation.word(operand, types)].kind == "float"
    ]
    gradients = {f"d_{operand.name}" for operand in operation.inputs} | {"d_output"}
    return next((operand for operand in real if operand.name not in gradients), real[0] if real else None)


def _sizes(operation: Operation) -> dict[str, int | tuple[int, ...]]:
    """Sizes under which only the first axis of the output is longer than 1; every block is of one."""
    sizes: dict[str, int | tuple[int, ...]] = {}
    for index, dim in enumerate(operation.space):
        length = len(VALUES) if index == 0 else 1
        sizes[dim.name] = (length,) if dim.many and index == 0 else () if dim.many else length
    for attribute in operation.attributes:
        if attribute.type == "size":
            sizes[attribute.name] = 1
    return sizes


def _attributes(operation: Operation) -> dict[str, int | float]:
    """Values for the attributes that have no default, and for the axis, which the sizes above decide."""
    values: dict[str, int | float] = {}
    for attribute in operation.attributes:
        if attribute.type == "axes":
            values[attribute.name] = ()
        elif attribute.type == "axis":
            values[attribute.name] = [dim.name for dim in operation.space].index(attribute.axis_of)
        elif attribute.default is None:
            values[attribute.name] = 1
    return values
