"""What `torch.onnx.export` needs to know of skuda's operators of torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from skuda.arrays.views import CPU, View, contiguous_strides
from skuda.errors import InvalidProblem, Unsupported, optional_module, shown
from skuda.frameworks.programs import OWN, plans
from skuda.onnx.call import meaning
from skuda.onnx.functions import printed
from skuda.onnx.programs import import_onnx

DEFAULT_OPSET = 18  # torch.onnx.export's


def translation_table(
    opset_version: int = DEFAULT_OPSET, specs: Mapping[str, str | Path] | None = None
) -> dict[Callable, Callable]:
    """What `torch.onnx.export(..., custom_translation_table=...)` takes, for every operator of skuda.

    Args:
        opset_version: that of the export. Operators that make or take 8-bit floats need 19 or more.
        specs: for catalogs of one's own, by package: the file that each was generated from. Operators of other catalogs
            are left out.

    Raises:
        InvalidProblem: onnxscript has no such opset, or it is older than what the operators are made of.
        MissingDependency: onnx or onnxscript is not installed.
    """
    import_onnx()
    operator_of = importlib.import_module("skuda.torch").operator_of
    onnxscript = optional_module("onnxscript", "skuda.onnx.translation_table", "onnx")
    opset = getattr(onnxscript, f"opset{opset_version}", None)
    if opset is None or opset_version < DEFAULT_OPSET:
        raise InvalidProblem(f"opset_version is {shown(opset_version)}, expected one of {DEFAULT_OPSET} and above that "
                             "onnxscript has")  # fmt: skip
    files = {OWN: None, **(specs or {})}
    table = {}
    for plan in plans(forms=True).values():
        if plan.package in files:
            operator = operator_of(plan)
            made = _translation(operator, opset, files[plan.package])
            table |= {overload: made for (_, writes), overload in operator.overloads.items() if not writes}
    return table


class _Recorded:
    """Makes nodes by calls of onnxscript's operators, which the exporter records."""

    def __init__(self, opset: Any):
        self._opset, self._onnx = opset, import_onnx()
        self._made: dict[tuple, Any] = {}

    def emit(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a node; nothing is made twice."""
        key = operator, tuple(map(id, inputs)), repr(sorted(attributes.items()))
        if key not in self._made:
            self._made[key] = inputs, getattr(self._opset, operator)(*inputs, **attributes)
        return self._made[key][1]

    def constant(self, array: np.ndarray) -> Any:
        """A constant."""
        return self._opset.Constant(value=self._onnx.numpy_helper.from_array(array))


def _translation(operator: Any, opset: Any, spec: str | Path | None) -> Callable:
    """The function that the exporter calls with the arguments of an operator."""
    arguments = operator.arguments
    names = [argument.name for argument in arguments]

    def translated(*values: Any, **named: Any) -> Any:
        given = {argument.name: argument.default for argument in arguments}
        given |= dict(zip(names, values)) | named
        given.pop("device", None)  # a graph runs where its runtime does
        inputs = {a.name: given.pop(a.name) for a in arguments if a.kind == "input"}
        emitter, extents = _Recorded(opset), {}
        views = [_described(value, name, extents) for name, value in inputs.items()]
        options = {name: value for name, value in given.items() if value is not None}
        said, shape = None, options.get("shape") or ()
        if not all(isinstance(each, int) for each in shape):  # some extents are values of the graph
            one = emitter.constant(np.array([1], np.int64))
            whole = [emitter.constant(np.array([each], np.int64)) if isinstance(each, int)
                     else emitter.emit("Reshape", each, one) for each in shape]  # fmt: skip
            said = emitter.emit("Concat", *whole, axis=0)
            options["shape"] = [_extent(each, extents) for each in shape]
        call = meaning(operator.plan_class, views, options)
        call = call if said is None else call.but(placing=call.placing.but(shape=said))
        graph = {name: _in_graph(value, emitter, call, name) for name, value in inputs.items()}
        made = printed(call, emitter, spec, graph)
        return tuple(made) if len(made) > 1 else made[0]

    translated.__name__ = operator.name
    return translated


def _described(value: Any, name: str, extents: dict[str, int]) -> View | int | float:
    """A value of the graph as a view without memory; an extent that is not known yet is a number, one for each name."""
    if isinstance(value, (int, float)):
        return value
    if value.shape is None or value.dtype is None:
        raise Unsupported(f"torch.onnx.export: nothing is known of the shape of {name}, expected its number of axes")
    shape = tuple(_extent(each, extents) for each in value.shape)
    return View(0, shape, contiguous_strides(shape), np.dtype(value.dtype.numpy()), CPU, True, False, value)


def _extent(extent: Any, extents: dict[str, int]) -> int:
    """A number for an extent that is not known yet."""
    if isinstance(extent, int):
        return extent
    return extents.setdefault(str(getattr(extent, "name", extent)), 64 * (len(extents) + 1))


def _in_graph(value: Any, emitter: _Recorded, call: Any, name: str) -> Any:
    """An input in the graph: a number becomes a constant of the operand's type."""
    if not isinstance(value, (int, float)):
        return value
    operand = next(each for each in call.operation.inputs if each.name == name)
    return emitter.constant(np.array(value, call.storage(operand)))
