"""Calls of operations that run while the site is built: those of docstrings, with operands of many values."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  NumPy then knows the names of its types
import numpy as np

import skuda
from skuda.codegen.examples import keywords, small_sizes
from skuda.model.dtypes import DTYPES, DType
from skuda.model.operation import SCALE, Operand, Operation

_PRINTED = {"precision": 4, "suppress": True, "linewidth": 90}


def example(operation: Operation) -> str:
    """A session of Python: the operands, a call of the function form, and what it returned.

    Args:
        operation: a forward operation of skuda's catalog.
    """
    random = np.random.default_rng(0)
    types = operation.combinations[0]
    sizes = small_sizes(operation)
    names: dict[str, object] = {"skuda": skuda, "np": np}
    lines = []
    for operand in operation.inputs:
        row = DTYPES[operation.word(operand, types)]
        text = _operand(operand, operand.element in operation.types, row, operation.shape_of(operand, sizes), random)
        lines.append(f">>> {operand.name} = {text}".replace("\n", "\n... "))
        exec(f"{operand.name} = {text}", names)
    said = [o.name for o in operation.inputs]
    named = dict(keywords(operation, sizes))
    if operation.creates:  # the shape comes first
        said.insert(0, str(named.pop("shape")))
    said += [f"{name}={value}" for name, value in named.items()]
    said += [f'{keyword}="{types[letter]}"' for letter, keyword in operation.asked.items() if keyword == "dtype"]
    call = f"skuda.{operation.function}({', '.join(said)})"
    result = eval(call, names)
    if not isinstance(result, tuple):
        return "\n".join([*lines, f">>> {call}", _printed(result)])
    lines.append(f">>> {', '.join(o.name for o in operation.outputs)} = {call}")
    for operand, output in zip(operation.outputs, result, strict=True):
        lines += [f">>> {operand.name}", _printed(output)]
    return "\n".join(lines)


def _operand(operand: Operand, lettered: bool, row: DType, shape: tuple[int, ...], random: np.random.Generator) -> str:
    """An operand as it is typed; `lettered`: its type is a letter's, and any integer of it is an element."""
    scale = operand.element == SCALE or operand.name == "scale"
    if operand.scalar:
        return "0.05" if scale else "3" if row.kind == "int" else "0.25"
    if row.kind == "float":
        values = np.round(random.uniform(0.01, 0.05, shape), 3) if scale else np.round(random.normal(0, 1, shape), 2)
    elif lettered:
        values = random.integers(int(row.lowest), int(row.highest) + 1, shape)
    else:
        values = random.integers(-5, 6, shape)
    if row.narrow_float:
        values = values.astype(row.element).astype(np.float64)
    text = np.array2string(values, separator=", ")
    indent = "\n" + " " * len(f"{operand.name} = np.array(")
    return f'np.array({text.replace(chr(10), indent)}, "{row.element}")'


def _printed(value: object) -> str:
    with np.printoptions(**_PRINTED):
        return repr(value)
