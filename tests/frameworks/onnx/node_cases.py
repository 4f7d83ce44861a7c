"""The node tests that the package onnx ships, as calls of our functions.

`OURS` says what an operator is called here where its name alone does not; all else follows from the node: its inputs
are ours in order, its attributes ours by name.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from onnx import helper

import skuda
from skuda.errors import SkudaError
from skuda.frameworks.programs import plans

OURS = {
    "And": "logical_and", "ArgMax": "argmax", "ArgMin": "argmin", "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BatchNormalization": "batch_norm", "GroupNormalization": "group_norm", "InstanceNormalization": "instance_norm",
    "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "Clip": "clamp", "CumProd": "cumprod", "CumSum": "cumsum",
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge",
    "HardSwish": "hardswish", "IsInf": "isinf", "IsNaN": "isnan",
    "LeakyRelu": "leaky_relu", "Less": "lt", "LessOrEqual": "le", "LogSoftmax": "log_softmax", "Max": "maximum",
    "Min": "minimum", "NegativeLogLikelihoodLoss": "nll_loss", "SoftmaxCrossEntropyLoss": "cross_entropy",
    "Not": "logical_not", "Or": "logical_or", "RMSNormalization": "rms_norm", "ReduceL1": "norm1",
    "LayerNormalization": "layer_norm", "ReduceL2": "norm2", "ReduceLogSumExp": "logsumexp", "ReduceMax": "amax",
    "ReduceMean": "mean", "ReduceMin": "amin", "ReduceProd": "prod", "ReduceSum": "sum", "Swish": "silu",
    "ThresholdedRelu": "threshold", "Xor": "logical_xor", "Mod": "remainder",
    "QuantizeLinear": "quantize_per_tensor", "DequantizeLinear": "dequantize_per_tensor",
}  # fmt: skip
OTHER = ("Dropout", "Bernoulli", "OneHot", "Range", "Cast", "HardSigmoid", "Shrink", "Sum", "Mean")  # of other meaning
NAMES = {"alpha": {"LeakyRelu": "negative_slope"}, "epsilon": "eps"}
AXES = re.compile("Reduce|Arg|Cum|(Log)?Softmax$")


@dataclass
class Case:
    """A node test.

    Attributes:
        name: its name.
        operator: of ONNX.
        function: ours.
        options: its attributes.
        sets: inputs and outputs.
        near: its relative and absolute tolerance.
    """

    name: str
    operator: str
    function: str
    options: dict
    sets: list
    near: tuple[float, float]


class Differs(Exception):
    """Why a case is not ours, or what came out otherwise."""


@cache
def cases() -> dict[str, list[Case]]:
    """The cases of each operator that the catalog has."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = collect_testcases(None)
    found: dict[str, list[Case]] = {}
    for case in every:
        nodes = case.model.graph.node
        if len(nodes) != 1 or nodes[0].op_type in OTHER or nodes[0].domain not in ("", "ai.onnx"):
            continue
        operator = nodes[0].op_type
        function = OURS.get(operator, operator.lower())
        if function in plans():
            options = {each.name: helper.get_attribute_value(each) for each in nodes[0].attribute}
            near = (case.rtol, case.atol)
            found.setdefault(operator, []).append(
                Case(case.name, operator, function, options, case.data_sets, near)
            )
    return found


def compare(case: Case) -> None:
    """Raises Differs where our function does not take the case, or gives others."""
    case = replace(case)  # whose function depends on its attributes
    operation = plans()[case.function].operation
    for inputs, outputs in case.sets:
        given, options = [*map(np.asarray, inputs)], dict(case.options)
        if AXES.match(case.operator):
            options = axes(case, given, options)
            given = given[:1]
        if case.operator.endswith("Normalization") and "axis" in options:
            given, options = of_rows(given, options)
        if case.operator == "BatchNormalization":
            given = [given[0], *given[3:], *given[1:3]]
            case.function = "batch_norm" + ("_training" if options.pop("training_mode", 0) else "")
            operation = plans()[case.function].operation
        if case.function in ("nll_loss", "cross_entropy") and given[0].ndim > 1:  # classes are the second axis
            given[0] = np.moveaxis(given[0], 1, -1)
        options = {key: value.decode() if isinstance(value, bytes) else value for key, value in options.items()}
        if (groups := options.pop("num_groups", None)) is not None:
            given = [in_groups(each, int(index == 0), groups) for index, each in enumerate(given)]
        if options.pop("fmod", 0):
            operation, case.function = plans()["fmod"].operation, "fmod"
        if case.operator == "QuantizeLinear" and len(given) > 2:
            options["dtype"] = given[2].dtype
        if case.operator in ("QuantizeLinear", "DequantizeLinear") and len(given) > 2 and given[2].dtype.kind in "iu":
            given[2] = given[2].astype(np.int32)
        taken = {attribute.name for attribute in operation.attributes} | {*operation.options}
        taken |= {operation.choice.name} if operation.choice is not None else set()
        options = {renamed(case.operator, key): value for key, value in options.items()}
        unknown = sorted(options.keys() - taken)
        if unknown:
            raise Differs(f"`{unknown[0]}`")
        if len(given) > len(operation.inputs):
            raise Differs("more inputs")
        alike = [o.dims == operation.inputs[0].dims for o in operation.inputs[: len(given)]]
        if all(alike):
            given = [np.ascontiguousarray(each) for each in np.broadcast_arrays(*given)]
        made = getattr(skuda, case.function)(*given, **options)
        made, expected = np.asarray(made[0] if isinstance(made, tuple) else made), np.asarray(outputs[0])
        made = made if groups is None else made.reshape(expected.shape)
        if made.dtype != expected.dtype:
            raise Differs(f"{made.dtype} for {expected.dtype}")
        if made.shape != expected.shape:
            raise Differs("another shape")
        exact = made.dtype.kind in "iub"
        wide = [each if exact else each.astype(np.float64) for each in (made, expected)]
        rtol, atol = (0, 0) if exact else case.near
        if not np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=not exact):
            raise Differs("values")


def in_groups(array: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """Channels, the axis of an array that they are, in groups."""
    return array.reshape(*array.shape[:axis], groups, -1, *array.shape[axis + 1 :])


def of_rows(given: list, options: dict) -> tuple[list, dict]:
    """A norm from an axis on: the shape of the weight says it, which ONNX may broadcast."""
    shape = given[0].shape[options["axis"] :]
    given = [given[0], *(np.array(np.broadcast_to(each, shape)) for each in given[1:])]
    return given, {key: value for key, value in options.items() if key not in ("axis", "stash_type")}


def renamed(operator: str, key: str) -> str:
    """Our name of an attribute."""
    name = NAMES.get(key, key)
    return name if isinstance(name, str) else name.get(operator, key)


def axes(case: Case, given: list, options: dict) -> dict:
    """`axis` and `keepdims` of ours, from ONNX's attributes, its second input and its defaults."""
    said = given[1] if len(given) > 1 else options.pop("axes", None)
    reduced = case.operator.startswith(("Reduce", "Arg"))
    if said is not None and np.size(said):
        options["axis"] = int(said) if np.ndim(said) == 0 else tuple(map(int, said))
    elif case.operator.startswith("Reduce") and options.pop("noop_with_empty_axes", 0):
        raise Differs("no axis at all")
    options.pop("noop_with_empty_axes", None)
    if not case.operator.startswith("Reduce"):
        options.setdefault("axis", 0 if case.operator.startswith("Arg") else -1)
    if reduced:
        options["keepdims"] = bool(options.get("keepdims", 1))
    for key in ("select_last_index", "exclusive", "reverse"):
        if options.get(key) == 0:
            del options[key]
    if options.keys() & {"exclusive", "reverse"} and case.function == "cumsum":
        which = [key for key in ("exclusive", "reverse") if options.pop(key, 0)]
        if len(which) == 1:
            case.function = f"cumsum_{which[0]}"
        else:
            raise Differs("exclusive and reverse")
    return options


def reasons(operator: str) -> tuple[int, dict[str, str]]:
    """How many of an operator's cases agree, and by reason the first that does not."""
    agree, found = 0, {}
    for case in cases()[operator]:
        try:
            with np.errstate(all="ignore"):
                compare(case)
            agree += 1
        except Differs as error:
            found.setdefault(str(error), case.name)
        except (SkudaError, TypeError) as error:
            found.setdefault(type(error).__name__, case.name)
    return agree, found
