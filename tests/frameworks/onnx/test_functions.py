"""Functions as they are asked for: inputs, names, options, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from calls import near, run, same
from onnx import TensorProto, helper

import skuda
from skuda.errors import InvalidProblem, MissingDependency, Unsupported
from skuda.onnx import OPSET, function, model, translation_table

X = np.random.default_rng(0).normal(size=(6, 10)).astype(np.float32)


def test_a_function_says_what_it_is():
    made = function(skuda.rms_norm, "f16[8, 512]", "f32[512]", eps=1e-5)
    assert (made.domain, made.name) == ("skuda", "rms_norm")
    assert (list(made.input), list(made.output)) == (["input", "weight"], ["output"])
    assert [(each.domain, each.version) for each in made.opset_import] == [("", OPSET)]
    assert {node.domain for node in made.node} == {""}  # standard operators alone
    assert made.doc_string.startswith("The axes of the weight, which are the last ones, divided by")


def test_two_inputs_in_one_array():
    gradient = X[:, 5:]
    for ours, name, arrays in (
        (skuda.silu_mul(X), "silu_mul", (X,)), (skuda.glu(up=X), "glu", (None, X)),
        (skuda.silu_mul_backward(gradient, X), "silu_mul_backward", (gradient, X)),
        (skuda.glu_backward(gradient, up=X), "glu_backward", (gradient, None, X)),
    ):  # fmt: skip
        made = model(name, *arrays)
        onnx.checker.check_model(made, full_check=True)
        (theirs,) = run(made, arrays)
        assert theirs.shape == ours.shape and near(ours, theirs, False).all()
    with pytest.raises(InvalidProblem, match=r"gate has shape \(6, 9\), expected gate and up side by side"):
        model("silu_mul", X[:, 1:])


def test_functions_stand_in_a_graph_of_ones_own():
    quantize = function("quantize_per_token", X, "f32[6]", dtype="s8", name="codes")
    dequantize = function("dequantize_per_token", "s8[6, 10]", "f32[6]", dtype="f32")
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", "d"]), ("s", ["n"]))]
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("codes", ["x", "s"], ["q"], domain="skuda"),
             helper.make_node("dequantize_per_token", ["q", "s"], ["y"], domain="skuda")],
            "there_and_back", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "d"])],
        ),
        functions=[quantize, dequantize], opset_imports=[*quantize.opset_import, helper.make_opsetid("skuda", 1)],
        ir_version=10,
    )  # fmt: skip
    onnx.checker.check_model(made)
    scale = np.full(6, 0.02, np.float32)
    codes = skuda.quantize_per_token(X, scale, dtype="s8")
    (found,) = run(made, [X, scale])
    assert same(skuda.dequantize_per_token(codes, scale, dtype="f32"), found).all()


def test_a_model_says_the_sizes_that_a_row_fixes():
    made = {"y": "T[*n, 4] = x * 2", "z": "T[*n, 4] = x * to_real(position(4))"}
    corners = skuda.define(inputs={"x": "T[*n]"}, outputs=made)
    doubled = skuda.define(inputs={"x": "T[*n, 4]", "w": "T[4]"}, outputs={"y": "T[*n, 4] = 2 * x - w"})
    for operation, arrays in ((corners, [X[:, 0]]), (corners.backward, [X[:, :4], X[:, 4:8]]),
                              (doubled, [X[:, :4], X[0, :4]])):  # fmt: skip
        ours, theirs = operation(*arrays), run(model(operation, *arrays), arrays)
        for one, other in zip(ours if isinstance(ours, tuple) else (ours,), theirs, strict=True):
            assert near(one, other, wide=False).all()
    made = model(doubled, X[:, :4], X[0, :4])
    infos = (*made.graph.input, *made.graph.output)
    assert [each.type.tensor_type.shape.dim[-1].dim_value for each in infos] == [4] * 3
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="Got: 3 Expected: 4"):
        run(made, [X[:, :3], X[0, :3]])


def test_arrays_of_several_shapes_and_numbers():
    row, column = X[0], X[:, :1]
    for name, inputs in (
        ("mul", (X, row)), ("sub", (1.5, X)), ("addcmul", (row, column, X)), ("addcmul", (row, column, row)),
        ("where", (X > 0, row, 0.0)), ("masked_softmax", (X, row > 0)), ("mse_loss", (row, X)),
        ("cross_entropy_of_probabilities", (row, abs(X))),
    ):  # fmt: skip
        made = model(name, *inputs)
        onnx.checker.check_model(made)
        taken = [np.asarray(each, None if isinstance(each, np.ndarray) else np.float32) for each in inputs]
        (found,) = run(made, taken)
        assert near(getattr(skuda, name)(*inputs), found, False).all(), name
    assert not [node for node in function("mul", X, X).node if node.op_type == "Expand"]


@pytest.mark.parametrize("opset", [18, 19, 20, 22])
def test_other_opsets_give_the_same(opset):
    for name, options in (("dynamic_quantize_per_group", {"group_size": 4, "dtype": "s4"}), ("argmax", {"axis": 0}),
                          ("softmax", {"axis": -1}), ("var", {"axis": (0, 1)})):  # fmt: skip
        found = run(model(name, X, opset=opset, **options), [X])
        for ours, theirs in zip(run(model(name, X, **options), [X]), found, strict=True):
            assert same(ours, theirs).all()


def test_an_opset_without_the_operators_is_refused():
    with pytest.raises(InvalidProblem, match="softmax: opset is 17, expected 18 to"):
        function("softmax", X, opset=17)
    with pytest.raises(InvalidProblem, match="dynamic_quantize_fp8_per_token: opset is 18, expected 19 to"):
        function("dynamic_quantize_fp8_per_token", X, dtype="e4m3", opset=18)


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 1), None])
def test_axes_are_those_that_are_named(axis):
    for name in ("amax", "argmin", "softmax", "sum"):
        options = {"axis": axis}
        (found,) = run(model(name, X, **options), [X])
        assert near(getattr(skuda, name)(X, **options), found, False).all()


def test_a_permuted_weight_and_one_value():
    x, weight = X.reshape(3, 2, 10), np.linspace(0.5, 2, 20, dtype=np.float32).reshape(2, 10)
    (found,) = run(model("rms_norm", x, weight), [x, weight])
    assert near(skuda.rms_norm(x, weight), found, False).all()
    one = np.full((1,), 0.3, np.float32)  # an array of one element where one value is expected
    (found,) = run(model("lerp", X, X[::-1], one), [X, X[::-1], one])
    assert same(skuda.lerp(X, X[::-1], one), found).all()


def test_codes_of_an_odd_row_need_its_shape():
    scale, codes = skuda.dynamic_quantize_per_token(X[:, :9], dtype="s4")
    options = {"dtype": "f32", "input_dtype": "s4", "shape": (6, 9)}
    (found,) = run(model("dequantize_per_token", codes, scale, **options), [codes, scale])
    assert same(skuda.dequantize_per_token(codes, scale, **options), found).all()
    (found,) = run(model("dequantize_per_token", "s4[6, 10]", "f32[6]", dtype="f32"), [codes, scale])
    assert found.shape == (6, 10)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("no_such", X), {}, InvalidProblem, "expected an operation's name or function, got 'no_such'"),
        (("softmax", X, X), {}, InvalidProblem, "softmax: got 2 inputs, expected 1 at most"),
        (("softmax",), {}, InvalidProblem, "softmax: input is not given"),
        (("softmax", X), {"axes": 1}, InvalidProblem, "softmax: got axes, which it does not take"),
        (("softmax", X), {"axis": 2}, InvalidProblem, "SoftmaxPlan: axis is 2, expected -2 to 1"),
        (("softmax", "f32[6, n]"), {}, InvalidProblem, "expected an array or a text such as 'f16.8, 512.', got 'f32"),
        (("softmax", "f8[6]"), {}, InvalidProblem, "expected an array or a text such as"),
        (("softmax", "i32[6]"), {}, Unsupported, "input is i32, expected f32, f64, f16 or bf16"),
        (("quantize_per_token", X, "f32[5]"), {"dtype": "s8"}, InvalidProblem, "scale has shape .5,., expected .6,."),
        (("quantize_per_token", X, "f32[6]"), {"dtype": "s8", "q_max": 200}, InvalidProblem, "q_max is 200"),
        (("quantize_per_group", X, "f32[6, 3]"), {"dtype": "s8"}, InvalidProblem, "group_size"),
    ],
)  # fmt: skip
def test_what_the_function_form_refuses_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        function(*arguments, **options)


def test_the_opset_of_an_export_is_one_that_onnxscript_has():
    with pytest.raises(InvalidProblem, match="opset_version is 3, expected one of 18"):
        translation_table(3)


@pytest.mark.parametrize("module", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"the package {module}.*pip install 'skuda\[onnx\]'"):
        translation_table()


def test_the_pages_example_runs():
    page = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page.partition("## ONNX")[2], re.DOTALL)[0]
    found = {"onnxruntime": onnxruntime, "skuda": skuda}
    exec(code, found)
    x, weight = X.astype(np.float16), np.ones(10, np.float32)
    given = {"input": x, "weight": weight}
    assert near(skuda.rms_norm(x, weight, eps=1e-5), found["session"].run(None, given)[0], False).all()


def test_importing_loads_neither_onnx_nor_torch():
    script = "import sys, skuda.onnx\nprint(sorted({'onnx', 'torch', 'onnxscript', 'yaml'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
