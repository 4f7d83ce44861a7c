"""ONNX's own backend tests of QuantizeLinear and DequantizeLinear, to the bit, and its reference evaluator.

The cases come from the installed onnx package. Those of our types run; the others are listed with the type
that we do not have, so that a case which a newer onnx adds lands in one of the two lists by itself.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from conformance.support import assert_codes, bits_of, pack
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case import node
from onnx.reference import ReferenceEvaluator

import skuda

OPERATORS = ("QuantizeLinear", "DequantizeLinear")
FLOATS = {
    TensorProto.FLOAT: "f32",
    TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.DOUBLE: "f64",
}
CODES = {TensorProto.INT8: "s8", TensorProto.UINT8: "u8", TensorProto.INT4: "s4", TensorProto.UINT4: "u4"}
RAN = 10  # with onnx 1.23; an onnx with more may raise it, none may lower it


@dataclass(frozen=True)
class Case:
    """One node with its data: inputs and outputs as (ONNX element type, array)."""

    name: str
    operator: str
    attributes: dict
    inputs: tuple
    outputs: tuple


def element_type(value) -> int:
    if isinstance(value, TensorProto):
        return value.data_type
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def with_type(value) -> tuple[int, np.ndarray]:
    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    return element_type(value), array


@cache
def cases() -> tuple[Case, ...]:
    """Every single-node case of the two operators, in the package's order. A module makes its cases when it is
    imported, so only those are imported that name an operator: all of them take 5 s.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases have NaN
        for path in sorted(Path(node.__file__).parent.glob("*.py")):
            if any(name in path.read_text(encoding="utf-8") for name in OPERATORS):
                importlib.import_module(f"{node.__name__}.{path.stem}")
    found = []
    for case in node._NodeTestCases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and nodes[0].op_type in OPERATORS:
            attributes = {each.name: helper.get_attribute_value(each) for each in nodes[0].attribute}
            for inputs, outputs in case.data_sets:
                found.append(
                    Case(
                        case.name,
                        nodes[0].op_type,
                        attributes,
                        tuple(map(with_type, inputs)),
                        tuple(map(with_type, outputs)),
                    )
                )
    return tuple(found)


def out_of_types(case: Case) -> str | None:
    """The element type that keeps a case out of our catalog; None for one that we run."""
    codes, real = (
        (case.outputs[0], case.inputs[0])
        if case.operator == OPERATORS[0]
        else (case.inputs[0], case.outputs[0])
    )
    for known, (word, _) in ((CODES, codes), (FLOATS, real), (FLOATS, case.inputs[1])):
        if word not in known:
            return TensorProto.DataType.Name(word)
    return None


def stored(array: np.ndarray, word: str) -> np.ndarray:
    """An array of codes as it travels: ONNX gives 4-bit ones one to an element."""
    return pack(array.astype(np.int64)) if word in ("s4", "u4") else array


def granularity(scale: np.ndarray, attributes: dict) -> tuple[str, dict]:
    axis = attributes.get("axis", 1)
    if attributes.get("block_size"):
        return "per_group", {"axis": axis, "group_size": attributes["block_size"]}
    return ("per_channel", {"axis": axis}) if scale.ndim == 1 and scale.size > 1 else ("per_tensor", {})


def run(case: Case) -> np.ndarray:
    """The output of our function for a case, packed where 4-bit."""
    (in_type, x), (_, scale), *rest = case.inputs
    which, options = granularity(scale, case.attributes)
    zero_point = rest[0][1].astype(np.int32) if rest else np.zeros(scale.shape, np.int32)
    if case.operator == "QuantizeLinear":
        word = CODES[case.outputs[0][0]]
        return getattr(skuda, f"quantize_{which}")(x, scale, zero_point, dtype=word, **options)
    word = CODES[in_type]
    if word in ("s4", "u4"):
        options |= {"input_dtype": word, "shape": x.shape}
    function = getattr(skuda, f"dequantize_{which}")
    return function(stored(x, word), scale, zero_point, dtype=FLOATS[case.outputs[0][0]], **options)


OURS = [case for case in cases() if out_of_types(case) is None]
OTHERS = {case.name: out_of_types(case) for case in cases() if out_of_types(case) is not None}


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_backend_case(case):
    actual = run(case)
    kind, expected = case.outputs[0]
    if kind in CODES:
        assert_codes(actual, expected.astype(np.int64), CODES[kind])
    else:
        word = FLOATS[kind]
        np.testing.assert_array_equal(bits_of(actual, word), bits_of(expected, word))


def test_no_case_is_lost():
    assert len(OURS) >= RAN, [case.name for case in OURS]
    assert len(OURS) + len(OTHERS) == len(cases())
    for case in OURS:
        assert case.name not in OTHERS


def test_each_case_that_does_not_run_is_of_a_type_that_we_lack():
    """FLOAT8*, FLOAT4E2M1, 16-bit and 2-bit codes; anything else would be a case that we could run."""
    ours = {TensorProto.DataType.Name(word) for word in (*CODES, *FLOATS)}
    lacking = {"FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "INT16", "UINT16", "INT32", "INT2", "UINT2"}
    assert set(OTHERS.values()) <= lacking - ours, OTHERS


def evaluator(operator: str, word: int, block_size: int, axis: int) -> ReferenceEvaluator:
    """ONNX's reference for one node over arrays of f32 and codes of a type."""
    names, result = (["x", "scale", "zero_point"], "y")
    attributes = {"axis": axis, **({"block_size": block_size} if block_size else {})}
    node = helper.make_node(operator, names, [result], **attributes)
    kinds = (
        [TensorProto.FLOAT, TensorProto.FLOAT, word]
        if operator == "QuantizeLinear"
        else [word, TensorProto.FLOAT, word]
    )
    result_kind = word if operator == "QuantizeLinear" else TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info(result, result_kind, None)],
    )
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


SHAPE, AXIS, BLOCK = (6, 10, 8), 1, 5
PARAMETERS = {"per_tensor": (), "per_channel": (10,), "per_group": (6, 2, 8)}


@pytest.mark.parametrize("which", PARAMETERS)
@pytest.mark.parametrize("kind", CODES, ids=CODES.get)
def test_reference_evaluator(kind, which):
    """f32, where ONNX's arithmetic is ours: half the inputs lie on ties of their own scale.

    Finite inputs only: the evaluator converts an infinite quotient to an integer before it clips.
    """
    rng = np.random.default_rng([kind, len(which)])
    word = CODES[kind]
    low, high = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}[word]
    storage = helper.tensor_dtype_to_np_dtype(kind)
    shape = PARAMETERS[which]
    scale = (rng.uniform(0.01, 2, shape) if which != "per_tensor" else np.array(0.37)).astype(np.float32)
    zero_point = rng.integers(low, high + 1, shape).astype(np.int32)
    options = {
        "per_tensor": {},
        "per_channel": {"axis": AXIS},
        "per_group": {"axis": AXIS, "group_size": BLOCK},
    }[which]
    spread = {
        "per_tensor": lambda p: p,
        "per_channel": lambda p: p.reshape(-1, 1),
        "per_group": lambda p: p.repeat(BLOCK, AXIS),
    }
    ties = (rng.integers(-300, 300, SHAPE) + 0.5).astype(np.float32) * spread[which](scale)
    x = np.where(rng.random(SHAPE) < 0.5, ties, rng.normal(0, 40, SHAPE)).astype(np.float32)
    x.flat[:4] = [1e6, -1e6, 0.0, -0.0]

    block = BLOCK if which == "per_group" else 0
    (codes,) = evaluator("QuantizeLinear", kind, block, AXIS).run(
        None, {"x": x, "scale": scale, "zero_point": zero_point.astype(storage)}
    )
    codes = codes.astype(np.int64)
    assert_codes(
        getattr(skuda, f"quantize_{which}")(x, scale, zero_point, dtype=word, **options), codes, word
    )

    (expected,) = evaluator("DequantizeLinear", kind, block, AXIS).run(
        None, {"x": codes.astype(storage), "scale": scale, "zero_point": zero_point.astype(storage)}
    )
    if word in ("s4", "u4"):
        options |= {"input_dtype": word}
    actual = getattr(skuda, f"dequantize_{which}")(
        stored(codes, word) if word in ("s4", "u4") else codes.astype(storage), scale, zero_point, **options
    )
    np.testing.assert_array_equal(bits_of(actual, "f32"), bits_of(expected.astype(np.float32), "f32"))


def test_the_installed_onnx_has_both_operators():
    assert {case.operator for case in cases()} == set(OPERATORS), onnx.__version__
