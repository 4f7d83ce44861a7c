"""What a spec without mistakes becomes: dimensions, types, formulas, widths, backward passes.

Those with mistakes are in tests/errors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from catalogs import own_spec

from skuda.codegen.diagnostics import Place
from skuda.codegen.expr import parse_alone
from skuda.codegen.intrinsics import INTRINSICS
from skuda.codegen.nodes import BOOL, INT, REAL, Function, Node, Scope, promote
from skuda.codegen.printers import LatexPrinter, NumpyPrinter
from skuda.codegen.program import Row
from skuda.codegen.spec import loads
from skuda.codegen.yaml_tree import Text
from skuda.model.operation import Attribute, Dim, Operand
from skuda.model.sku import Direction

REPOSITORY = Path(__file__).parents[2]

VALUES = {
    "x": Node("name", (), REAL, frozenset({"n", "d"}), text="x"),
    "y": Node("name", (), REAL, frozenset({"n"}), text="y"),
    "i": Node("name", (), INT, frozenset({"d"}), bits=8, text="i"),
    "j": Node("name", (), INT, frozenset(), bits=32, text="j"),
    "b": Node("name", (), BOOL, frozenset({"n"}), text="b"),
}
FUNCTIONS = {
    "square": Function("square", ("a",), Text("a * a", Place(2, 14))),
    "norm": Function("norm", ("a", "b"), Text("sqrt(square(a) + square(b))", Place(3, 14))),
}


def formula(text: str) -> Node:
    return parse_alone(text, Scope(VALUES, FUNCTIONS))


def numpy(text: str) -> str:
    return NumpyPrinter().text(formula(text))


def row(body: str, functions: str = "") -> Row:
    """The one row of a spec; its body is indented by four spaces."""
    (only,) = loads(f"{functions}ops:\n  op:\n{body}").rows
    return only


def operands(found: tuple[Operand, ...]) -> dict[str, str]:
    return {operand.name: operand.signature for operand in found}


# ---- formulas ----


@pytest.mark.parametrize(
    ("text", "kind", "dims"),
    [
        ("x", REAL, "nd"),
        ("y", REAL, "n"),
        ("2", INT, ""),
        ("2.0", REAL, ""),
        ("-i", INT, "d"),
        ("x + y", REAL, "nd"),
        ("y * y", REAL, "n"),
        ("i + j", INT, "d"),
        ("i + y", REAL, "nd"),
        ("x < y", BOOL, "nd"),
        ("i <= j", BOOL, "d"),
        ("0 < y <= 1", BOOL, "n"),
        ("not b", BOOL, "n"),
        ("b and x > 0", BOOL, "nd"),
        ("where(b, i, j)", INT, "nd"),
        ("where(b, i, 0.5)", REAL, "nd"),
        ("where(b, y, 0)", REAL, "n"),
        ("round_to_int(y)", INT, "n"),
        ("to_real(j)", REAL, ""),
        ("max(i, j)", INT, "d"),
        ("max(i, 0.5)", REAL, "d"),
        ("clamp(round_to_int(x), i, j)", INT, "nd"),
        ("abs(i)", INT, "d"),
        ("sqrt(i)", REAL, "d"),
        ("isnan(y)", BOOL, "n"),
        ("norm(y, 3)", REAL, "n"),
        ("1 / 3", REAL, ""),
    ],
)
def test_kind_and_dimensions(text, kind, dims):
    node = formula(text)
    assert (node.kind, node.dims) == (kind, frozenset(dims))


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("0", 1),
        ("127", 8),
        ("128", 9),
        ("i", 8),
        ("-i", 9),
        ("i + i", 9),
        ("i + j", 33),
        ("i * j", 40),
        ("i * i * j", 48),
        ("abs(i)", 9),
        ("min(i, j)", 32),
        ("where(b, i, j)", 32),
        ("round_to_int(x)", 55),
        ("clamp(round_to_int(x), i, i)", 8),
        ("clamp(round_to_int(x), i - j, i - j) + j", 34),
        ("x + i", 0),
    ],
)
def test_an_integer_is_as_wide_as_its_largest_value_needs(text, bits):
    assert formula(text).bits == bits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x + 1", "x + C(1)"),
        ("x + 1e-3", "x + C(0.001)"),
        ("i + 1", "i + 1"),
        ("x * i", "x * to_real(i, C)"),
        ("i < 3", "i < 3"),
        ("i < 2.5", "to_real(i, C) < C(2.5)"),
        ("where(b, i, 0.5)", "where(b, to_real(i, C), C(0.5))"),
        ("where(b, i, 2)", "where(b, i, 2)"),
        ("tanh(i)", "tanh(to_real(i, C))"),
        ("1 / 3", "C(1) / C(3)"),
        ("max(x, 0)", "maximum(x, C(0))"),
    ],
)
def test_an_integer_beside_a_real_becomes_one_exactly_there(text, expected):
    assert numpy(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x - (y - x)", "x - (y - x)"),
        ("(x - y) - x", "x - y - x"),
        ("x + (y + x)", "x + (y + x)"),
        ("x / (y / x)", "x / (y / x)"),
        ("x * (y + x)", "x * (y + x)"),
        ("-(x + y)", "-(x + y)"),
        ("-x * y", "-x * y"),
        ("x - -y", "x - -y"),
        ("0 < x < y", "(C(0) < x) & (x < y)"),
        ("x > 0 and y > 0 or b", "(x > C(0)) & (y > C(0)) | b"),
        ("b and (x > 0 or y > 0)", "b & ((x > C(0)) | (y > C(0)))"),
        ("not (x > y)", "~(x > y)"),
        ("not b and b", "~b & b"),
        ("where(x < y, x, y)", "where(x < y, x, y)"),
    ],
)
def test_parentheses_keep_the_order_in_which_is_rounded(text, expected):
    assert numpy(text) == expected


def test_every_numpy_spelling_is_python_of_the_same_structure():
    """Whatever the printer leaves out of parentheses, Python reads the tree back that was printed."""
    for text in ("x - (y - x) * y / (x + y)", "-(-x) - (-y)", "b or b and b", "(b or b) and not b", "x * -y"):
        printed = numpy(text)
        spelled = printed.replace("&", "and").replace("|", "or").replace("~", "not ")
        assert formula(spelled) == formula(text)


def test_a_function_is_its_formula():
    assert formula("norm(x, y + 1)") == formula("sqrt(x * x + (y + 1) * (y + 1))")
    assert formula("norm(x, y)").intrinsics() == {"sqrt"}
    assert formula("norm(x, y)").names() == {"x", "y"}


def test_promote_rounds_an_integer_once_and_leaves_the_rest_alone():
    assert promote(formula("i")) == formula("to_real(i)")
    assert promote(formula("3")) == formula("3.0").__class__("number", (), REAL, text="3")
    assert promote(formula("x")) == formula("x")
    assert promote(formula("b")) == formula("b")


@pytest.mark.parametrize("name", INTRINSICS)
def test_every_intrinsic_can_be_called_and_printed(name):
    arguments = {"r": "x", "n": "x", "x": "x", "i": "i", "b": "b"}
    call = f"{name}({', '.join(arguments[letter] for letter in INTRINSICS[name].arguments)})"
    node = formula(call)
    assert node.op == name
    assert node.kind == {"r": REAL, "i": INT, "b": BOOL}.get(INTRINSICS[name].result, REAL)
    assert "{" not in NumpyPrinter().text(node)
    latex = LatexPrinter().text(node)
    assert latex.count("{") == latex.count("}")


# ---- rows ----


def test_the_least_row():
    found = row("    inputs: {x: 'T[*shape]'}\n    outputs: {y: 'T[*shape] = 2 * x'}\n    backward: none\n")
    operation = found.forward.operation
    assert (found.kind, found.doc, found.backward) == ("custom.op", "The operation op.", None)
    assert operation.types == {"T": ("f32", "f64", "f16", "bf16")}
    assert operation.element_fields == {"T": "element"}
    assert operation.analysis.exact
    assert [types["C"] for types in operation.combinations] == ["f32", "f64", "f32", "f32"]


def test_operands_dimensions_and_attributes():
    found = row("""\
    kind: scaling.blocked
    types: {T: [f16, f32], S: [T, f32], Q: [s8, u8]}
    inputs:
      x: T[*outer, d, *inner]
      scale: S[*outer, d/size, *inner]
      shift: i32[]
      gain: C[]
    attrs: {size: size = 32, axis: axis of d = -1, low: Q = lowest(Q), high: Q = 7, bias: C = -1e-3}
    requires: low <= high
    outputs:
      y: Q[*outer, d, *inner] = 
        clamp(round_to_int(gain * x / scale + bias), low - shift, high - shift) + shift
""")
    operation = found.forward.operation
    assert operation.category == "scaling"
    assert operands(operation.inputs) == {
        "x": "T[*outer, d, *inner]", "scale": "S[*outer, d/size, *inner]", "shift": "i32[]", "gain": "C[]",
    }  # fmt: skip
    assert operands(operation.outputs) == {"y": "Q[*outer, d, *inner]"}
    assert operation.inputs[1].dims == (
        Dim("outer", many=True),
        Dim("d", block="size"),
        Dim("inner", many=True),
    )
    assert operation.attributes == (
        Attribute("size", "size", 32),
        Attribute("axis", "axis", -1, axis_of="d"),
        Attribute("low", "Q", "lowest(Q)"),
        Attribute("high", "Q", 7),
        Attribute("bias", "C", -0.001),
    )
    assert operation.analysis.attributes == ("low", "high", "bias")
    assert [dim.name for dim in operation.dims] == ["outer", "d", "inner"]
    assert operation.kernel_letters == ("T", "S", "Q")
    assert operation.asked == {"Q": "dtype"}
    assert operation.element_fields == {"T": "x_element", "S": "scale_element", "Q": "y_element"}
    assert len(operation.combinations) == 6  # f16 with f16 and f32, f32 with f32, each with s8 and u8


def test_the_bounds_of_a_clamp_bound_its_width():
    found = row("""\
    types: {Q: [u8]}
    inputs: {x: 'T[*n]'}
    outputs: {q: 'Q[*n] = clamp(round_to_int(x), 0, 255)'}
""")
    assert found.forward.formulas["q"].bits == 9


def test_an_integer_formula_is_widened_for_a_real_output():
    found = row("""\
    types: {Q: [s8]}
    inputs: {q: 'Q[*n]', x: 'T[*n]'}
    outputs: {y: 'T[*n] = q', z: 'T[*n] = x'}
""")
    assert found.forward.formulas["y"].op == "to_real"
    assert found.forward.formulas["z"].op == "name"


def test_requirements_are_kept_with_the_attributes_that_they_name():
    found = row("""\
    inputs: {x: 'T[*n]'}
    attrs: {low: C, high: C}
    requires: [low <= high, 'low >= 0 and high <= 10']
    outputs: {y: 'T[*n] = clamp(x, low, high)'}
""")
    assert [(r.text, r.names) for r in found.forward.operation.requirements] == [
        ("low <= high", ("low", "high")),
        ("low >= 0 and high <= 10", ("low", "high")),
    ]


def test_a_row_with_a_library_function_gives_no_bits_that_hold_everywhere(monkeypatch):
    monkeypatch.setitem(INTRINSICS, "tanh", replace(INTRINSICS["tanh"], common=False))
    assert not row("    inputs: {x: 'T[*n]'}\n    outputs: {y: 'T[*n] = tanh(x)'}\n").forward.operation.analysis.exact
    assert row("    inputs: {x: 'T[*n]'}\n    outputs: {y: 'T[*n] = exp(x)'}\n").forward.operation.analysis.exact
    assert row("    inputs: {x: 'T[*n]'}\n    outputs: {y: 'T[*n] = sqrt(x)'}\n").forward.operation.analysis.exact


def test_a_formula_may_take_several_lines_and_is_kept_as_one():
    found = row(
        "    inputs: {x: 'T[*n]'}\n    outputs:\n      y: T[*n] =\n        where(x > 0,\n          x, 0)\n"
    )
    assert found.forward.formula_texts == {"y": "where(x > 0, x, 0)"}


def test_a_row_remembers_its_own_lines():
    text = """\
ops:
  a:
    inputs: {x: 'T[n]'}
    outputs: {y: 'T[n] = x'}
  b:
    inputs: {x: 'T[n]'}
    outputs: {y: 'T[n] = -x'}
"""
    first, second = loads(text).rows
    assert (first.line, second.line) == (2, 5)
    assert first.source.splitlines() == text.splitlines()[1:4]
    assert second.source.splitlines() == text.splitlines()[4:]


# ---- backward ----

CLIPPED = """\
    types: {T: [f32, f64], Q: [s8, u8], S: [T, f32]}
    inputs:
      x: T[*outer, d, *inner]
      scale: S[d]
      offset: i32[d]
    attrs: {axis: axis of d, low: Q = lowest(Q), high: Q = highest(Q), bias: C = 0}
    requires: low <= high
    outputs:
      q: Q[*outer, d, *inner] = clamp(round_to_int(x / scale + bias), low - offset, high - offset) + offset
    backward:
"""


def test_a_backward_pass_takes_what_its_formula_uses_in_forward_order():
    found = row(
        CLIPPED + "      d_x: T[*outer, d, *inner] = where(round_to_int(x / scale) <= high, d_q / scale, 0)\n"
    )
    operation = found.backward.operation
    assert operation.direction is Direction.BACKWARD
    assert operation.function == "op_backward"
    assert list(operands(operation.inputs)) == ["d_q", "x", "scale"]
    assert operands(operation.outputs) == {"d_x": "T[*outer, d, *inner]"}


def test_the_gradient_of_codes_is_of_the_type_that_they_came_from():
    found = row(CLIPPED + "      d_x: T[*outer, d, *inner] = d_q / scale\n")
    assert operands(found.backward.operation.inputs) == {"d_q": "T[*outer, d, *inner]", "scale": "S[d]"}


def test_a_backward_pass_has_the_attributes_and_types_that_it_needs():
    plain = row(CLIPPED + "      d_x: T[*outer, d, *inner] = d_q / scale\n").backward.operation
    assert [attribute.name for attribute in plain.attributes] == ["axis"]
    assert plain.types == {"T": ("f32", "f64"), "S": ("T", "f32")}
    assert plain.requirements == ()
    masked = row(
        CLIPPED + "      d_x: T[*outer, d, *inner] = where(round_to_int(x) <= high, d_q, 0)\n"
    ).backward.operation
    # `requires` names `low` beside `high`: both are there to be checked, one is for the formula.
    assert [attribute.name for attribute in masked.attributes] == ["axis", "low", "high"]
    assert masked.analysis.attributes == ("high",)
    assert [requirement.text for requirement in masked.requirements] == ["low <= high"]
    assert set(masked.types) == {"T", "Q"}


def test_an_attribute_that_the_gradient_alone_reads_is_handed_on_by_the_forward_pass():
    body = """
    inputs: {input: "T[*n]"}
    attrs: {factor: C = 1, offset: C = 0}
    outputs: {output: "T[*n] = input + offset"}
    backward: {d_input: "T[*n] = d_output * factor"}
"""
    found = row(body)
    forward = found.forward.operation
    assert [(attribute.name, forward.hands_on(attribute)) for attribute in forward.attributes] == [
        ("factor", True), ("offset", False),
    ]  # fmt: skip
    assert forward.analysis.attributes == ("offset",)  # what kernels and references take
    assert [attribute.name for attribute in found.backward.operation.attributes] == ["factor"]


def test_what_the_thread_of_a_row_alone_reads_may_be_updated():
    body = """
    inputs: {input: "T[*n, d]", before: "C[*n]", shift: "C[*n]", least: "C[*n]", other: "C[d]"}
    outputs:
      after: C[*n] = fmax(fmax(before, least), max(input - shift, over=d))
      output: T[*n, d] = input - least * other
"""
    assert row(body).forward.operation.analysis.updated == ("before",)


def test_a_backward_pass_may_have_several_gradients():
    found = row("""\
    inputs: {a: 'T[*n]', b: 'T[*n]', w: 'C[]'}
    outputs: {y: 'T[*n] = a + w * b'}
    backward: {d_a: 'T[*n] = d_y', d_b: 'T[*n] = w * d_y'}
""")
    operation = found.backward.operation
    assert list(operands(operation.inputs)) == ["d_y", "w"]
    assert list(operands(operation.outputs)) == ["d_a", "d_b"]
    assert found.programs == (found.forward, found.backward)


# ---- the catalog ----


def test_the_granularities_share_one_formula():
    """What is decided once cannot drift: the typed formulas differ in nothing but dimensions."""
    rows = {found.name: found for found in own_spec().rows}
    for family in ("quantize", "dequantize", "fake_quantize"):
        members = [rows[f"{family}_per_{each}"] for each in ("tensor", "channel", "token", "group")]
        for direction in (0, 1):
            texts = {
                tuple(NumpyPrinter().text(node) for node in member.programs[direction].formulas.values())
                for member in members
            }
            assert len(texts) == 1


def test_every_operation_of_the_catalog_gives_the_same_bits_everywhere_and_every_map_has_a_gradient():
    for found in own_spec().rows:
        operation = found.forward.operation
        # But for what a model is served by, not trained, and what takes or gives no values or has integers among its
        # types, a row without a gradient says so.
        served = operation.category in ("fused", "quantization", "calibration")
        values = all(any(each.element in "TU" for each in side) for side in (operation.inputs, operation.outputs))
        integers = any({"i32", "u8"} & {*types.values()} for types in operation.combinations)
        if not operation.reduces and not served and values and not integers:
            assert found.backward is not None or "backward: none" in found.source, found.name
        assert all(program.operation.analysis.exact for program in found.programs)
