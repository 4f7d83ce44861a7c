"""Calls of operations that run while the site is built: small operands that follow from an operation's dimensions."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes  # noqa: F401  NumPy then knows the names of its types
import numpy as np

import skuda
from skuda.model.dtypes import DTYPES, DType
from skuda.model.operation import SCALE, Attribute, Operand, Operation

_LENGTH, _SIZE = 4, 2  # of a dimension, of blocks along one
_PRINTED = {"precision": 4, "suppress": True, "linewidth": 90}


def example(operation: Operation) -> str:
    """A session of Python: the operands, a call of the function form, and what it returned.

    Args:
        operation: a forward operation of skuda's catalog.
    """
    random = np.random.default_rng(0)
    types = operation.combinations[0]
    sizes = {a.name: _SIZE for a in operation.attributes if a.type == "size"}
    shapes = _shapes(operation)
    names: dict[str, object] = {"skuda": skuda, "np": np}
    lines = []
    for operand in operation.inputs:
        text = _operand(operand, operation, DTYPES[operation.word(operand, types)], shapes, sizes, random)
        lines.append(f">>> {operand.name} = {text}".replace("\n", "\n... "))
        exec(f"{operand.name} = {text}", names)
    said = [o.name for o in operation.inputs]
    said += [f"{a.name}={_said(a, shapes, sizes)}" for a in operation.attributes if a.default is None]
    said += [f'{keyword}="{types[letter]}"' for letter, keyword in operation.asked.items() if keyword == "dtype"]
    call = f"skuda.{operation.function}({', '.join(said)})"
    result = eval(call, names)
    if not isinstance(result, tuple):
        return "\n".join([*lines, f">>> {call}", _printed(result)])
    lines.append(f">>> {', '.join(o.name for o in operation.outputs)} = {call}")
    for operand, output in zip(operation.outputs, result, strict=True):
        lines += [f">>> {operand.name}", _printed(output)]
    return "\n".join(lines)


def _shapes(operation: Operation) -> dict[str, tuple[int, ...]]:
    """The lengths of each dimension: of the axes before a row 2, of the row 4, of axes after it none."""
    dims = operation.space
    found: dict[str, tuple[int, ...]] = {}
    for position, dim in enumerate(dims):
        single_before = any(not each.many for each in dims[:position])
        last = position == len(dims) - 1
        if not dim.many:
            found[dim.name] = (_LENGTH,)
        elif len(dims) == 1:
            found[dim.name] = (2, 3)
        else:
            found[dim.name] = () if single_before else (3,) if last else (2,)
    return found


def _operand(
    operand: Operand,
    operation: Operation,
    row: DType,
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Mapping[str, int],
    random: np.random.Generator,
) -> str:
    """An operand as it is typed."""
    scale = operand.element == SCALE or operand.name == "scale"
    if operand.scalar:
        return "0.05" if scale else "3" if row.kind == "int" else "0.25"
    shape: list[int] = []
    for dim in operand.dims:
        shape += [-(-_LENGTH // sizes[dim.block])] if dim.block else shapes[dim.name]
    if row.kind == "float":
        values = np.round(random.uniform(0.01, 0.05, shape), 3) if scale else np.round(random.normal(0, 1, shape), 2)
    elif operand.element in operation.types:
        values = random.integers(int(row.lowest), int(row.highest) + 1, shape)
    else:
        values = random.integers(-5, 6, shape)
    if row.narrow_float:
        values = values.astype(row.element).astype(np.float64)
    text = np.array2string(values, separator=", ")
    indent = "\n" + " " * len(f"{operand.name} = np.array(")
    return f'np.array({text.replace(chr(10), indent)}, "{row.element}")'


def _said(attribute: Attribute, shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]) -> str:
    """An attribute without a default: a length, or which axis a dimension is."""
    if attribute.name in sizes:
        return str(sizes[attribute.name])
    names = list(shapes)
    return str(sum(len(shapes[name]) for name in names[: names.index(attribute.axis_of)]))


def _printed(value: object) -> str:
    with np.printoptions(**_PRINTED):
        return repr(value)
