"""Reductions in formulas: their types and dimensions, and what a row's passes become.

What people get wrong is in tests/errors; the order of sums is in tests/runtime/test_rows.py; what comes out is in
test_own_reductions.py.
"""

from __future__ import annotations

import pytest

import skuda
from skuda.codegen.cuda import ElementwiseProgram
from skuda.codegen.describe import DescribedProgram
from skuda.codegen.diagnostics import Place
from skuda.codegen.expr import parse_alone
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, Function, Node, Scope
from skuda.codegen.printers import LatexPrinter
from skuda.codegen.program import Program, Row
from skuda.codegen.reductions import REDUCTION_NAMES, REDUCTIONS
from skuda.codegen.row_analysis import RowAnalysis
from skuda.codegen.row_program import RowProgram
from skuda.codegen.spec import loads
from skuda.codegen.yaml_tree import Text
from skuda.errors import SpecError
from skuda.model.operation import Over


def name(text: str, kind: str, dims: str = "", bits: int = 0) -> Node:
    return Node("name", (), kind, frozenset(dims.split()), bits, text=text)


VALUES = {
    "x": name("x", REAL, "n d"),
    "row": name("row", REAL, "n"),
    "column": name("column", REAL, "d"),
    "group": name("group", REAL, "n d/size"),
    "q": name("q", INT, "n d", 8),
    "b": name("b", BOOL, "n d"),
    "n": name("n", DIM, "n"),
    "d": name("d", DIM, "d"),
    "size": name("size", DIM),
}
FUNCTIONS = {
    "spread": Function("spread", ("a", "along"), Text("max(a, over=along) - min(a, over=along)", Place(2, 1))),
    "rows": Function("rows", ("e",), Text("count(over=e)", Place(4, 1))),
    "twice_spread": Function("twice_spread", ("a", "e"), Text("spread(a, e) + spread(2 * a, e)", Place(3, 1))),
}


def formula(text: str) -> Node:
    return parse_alone(text, Scope(VALUES, FUNCTIONS))


def row(body: str, functions: str = "") -> Row:
    """The one row of a spec; its body is indented by four spaces."""
    (only,) = loads(f"{functions}ops:\n  op:\n{body}").rows
    return only


def forward(inputs: str, outputs: str, let: str = "", attrs: str = "") -> Program:
    """A row's forward pass; each argument is `name: text` parts with `; ` between them."""

    def section(head: str, text: str) -> str:
        return f"    {head}:\n" + "".join(f"      {line}\n" for line in text.split("; ")) if text else ""

    text = section("inputs", inputs) + section("attrs", attrs) + section("let", let) + section("outputs", outputs)
    return row(text).forward


# ---- types and dimensions ----


@pytest.mark.parametrize(
    ("text", "kind", "dims"),
    [
        ("sum(x, over=d)", REAL, "n"),
        ("sum(x, over=n)", REAL, "d"),
        ("prod(column, over=d)", REAL, ""),
        ("max(q, over=d)", INT, "n"),
        ("min(x, over=d)", REAL, "n"),
        ("any(b, over=d)", BOOL, "n"),
        ("all(x > 0, over=d)", BOOL, "n"),
        ("mean(x, over=d)", REAL, "n"),
        ("x - mean(x, over=d)", REAL, "n d"),
        ("sum(x * column, over=d) * row", REAL, "n"),
        ("sum(to_real(q), over=d)", REAL, "n"),
        ("max(x, over=d/size)", REAL, "n d/size"),
        ("sum(x * group, over=d/size)", REAL, "n d/size"),
        ("sum(x * group, over=d)", REAL, "n"),
        ("sum(group, over=d)", REAL, "n"),
        ("x / max(x, over=d/size)", REAL, "n d d/size"),
        ("sum(sum(x, over=d), over=n)", REAL, ""),
        ("max(x, row)", REAL, "n d"),
        ("max(max(x, row), over=d)", REAL, "n"),
        ("spread(x, d)", REAL, "n"),
        ("spread(x, d/size)", REAL, "n d/size"),
        ("twice_spread(x, d / size)", REAL, "n d/size"),
        ("sum(x, over=(n, d))", REAL, ""),
        ("sum(q, over=d)", INT, "n"),
        ("sum(where(b, 1, 0), over=(n, d))", INT, ""),
        ("argmax(x, over=d)", INT, "n"),
        ("argmin(q, over=n)", INT, "d"),
        ("sum(x, over=d) / count(over=d)", REAL, "n"),
        ("count(over=d/size) + count(over=(d, n))", REAL, ""),
        ("max(x, over=(n,))", REAL, "d"),
        ("sum(x * group, over=(d, n))", REAL, ""),
        ("x - mean(x, over=[d, n])", REAL, "n d"),
        ("spread(x, (d, n))", REAL, ""),
    ],
)
def test_kind_and_dimensions(text, kind, dims):
    node = formula(text)
    assert (node.kind, node.dims) == (kind, frozenset(dims.split()))


def test_the_width_of_an_integer_stays():
    assert formula("max(q, over=d)").bits == formula("q").bits == 8
    assert formula("q - min(q, over=d)").bits == 9


def test_the_width_of_a_sum_and_of_an_index():
    """A row has fewer than 2^40 elements."""
    assert formula("sum(q, over=d)").bits == 48
    assert formula("argmax(x, over=d)").bits == formula("argmin(q, over=d)").bits == 41
    with pytest.raises(SpecError, match=r"the integer could need 7\d bits, 64 are held exactly"):
        formula("sum(q * 10000000, over=d)")


def test_a_count_is_that_of_the_mean():
    assert formula("mean(x, over=d)").args[1] == formula("sum(x, over=d) / count(over=d)").args[1]
    assert formula("rows(d)") == formula("count(over=d)")


def test_a_mean_is_a_sum_divided_by_a_count():
    node = formula("mean(x, over=d)")
    assert node.op == "/" and node.args[0] == formula("sum(x, over=d)")
    assert (node.args[1].op, node.args[1].text) == ("count", "d")
    assert formula("mean(x, over=d/size)").args[1].text == "d/size"


def test_equal_reductions_are_one_and_those_inside_come_first():
    total = formula("sum(x, over=d)")
    node = formula("sum(x - sum(x, over=d), over=d) + sum(x, over=d) * max(x - sum(x, over=d), over=d)")
    found = node.reductions()
    assert found[0] == total and len(found) == 3 and found.count(total) == 1
    for position, reduction in enumerate(found):
        assert all(inner in found[:position] for inner in reduction.args[0].reductions())


def test_an_index_is_a_pair_while_it_is_looked_for():
    outputs = "y: i64[*n] = argmax(2 * x, over=d); z: i64[*n] = sum(where(x > 0, 1, 0), over=d)"
    written = RowProgram(forward("x: T[*n, d]", outputs))
    assert written.passes[0].makes == ("Reduce<ArgLargest, C, &Shared::argmax>", "Reduce<Sum, i64, &Shared::sum>")
    assert written.shared_members == ["C count", "i64 argmax", "i64 sum", "i64 y", "i64 z"]


def test_an_element_that_a_row_picks_is_taken_by_the_first_pass_that_knows_of_it():
    outputs = (
        "y: T[*n] = sum(exp(x - sum(where(position(d) == position(n), x, 0), over=d)), over=d)"
        " + sum(where(position(d) == 2, x, 0), over=d); z: T[*n, d] = max(x, over=d)"
        " * sum(where(position(d) == 3, x, 0), over=d) + x"
    )
    written = RowProgram(forward("x: T[*n, d]", outputs))
    assert len(written.passes) == 2
    assert {each.index: each.before for each in written.picks} == {"shared.position_of_n": 0, "2ll": 1, "3ll": 1}


def test_several_dimensions_are_the_same_in_any_order():
    assert formula("mean(x, over=(d, n))") == formula("mean(x, over=(n, d))")
    assert formula("mean(x, over=(d, n))").args[1].text == "n, d"
    assert formula("spread(x, (d, n))") == formula("spread(x, (n, d))")


def test_a_function_that_takes_a_dimension_is_its_formula():
    assert formula("spread(x, d)") == formula("max(x, over=d) - min(x, over=d)")
    assert formula("spread(x, d / size)") == formula("max(x, over=d/size) - min(x, over=d/size)")


@pytest.mark.parametrize("reduction", REDUCTION_NAMES)
def test_every_reduction_has_its_spelling_in_each_target(reduction):
    value = "x > 0" if reduction in ("any", "all") else "x"
    node = formula(f"{reduction}({value}, over=d)")
    (reduced,) = node.reductions()
    printer = LatexPrinter({reduced: "r_{0}"})
    for latex in (printer.text(node), printer.reduced_from(reduced)):
        assert latex.count("{") == latex.count("}")
    assert "r_{0}" in printer.text(node) and "\\mathit{d}" in printer.reduced_from(reduced)
    for table in REDUCTIONS.values():
        assert table.rule and "{0}" in table.latex.replace("{{{0}}}", "{0}") and "{1}" in table.latex


def test_what_one_direction_reduces_over():
    blocked = "x: T[*o, d, *i]; s: T[*o, d/g, *i]"
    attrs = "g: size; axis: axis of d"
    for inputs, outputs, options, over in [
        ("x: T[*n, d]", "y: T[*n] = sum(x, over=d)", "", "d"),
        ("x: T[n, d]", "y: T[d] = sum(x, over=n)", "", "n"),
        ("x: T[d, *n]", "y: T[d] = sum(x, over=n)", "", "n"),
        (blocked, "y: T[*o, d/g, *i] = s * sum(x, over=d/g)", attrs, "d/g"),
        ("x: T[*n, d]", "y: T[*n, d] = 2 * x", "", ""),
        ("x: T[*n]", "y: T[] = sum(x, over=n)", "", "n"),
        ("x: T[a, b, c]", "y: T[b] = sum(x, over=(c, a))", "", "a, c"),
    ]:
        operation = forward(inputs, outputs, attrs=options).operation
        assert str(operation.analysis.over or "") == over
        assert operation.along == tuple(filter(None, over.partition("/")[0].split(", ")))
        assert operation.analysis.exact
    assert forward("x: T[*n, d]", "y: T[*n] = max(x, over=d)").operation.analysis.of_some
    assert not forward("x: T[*n, d]", "y: T[*n] = sum(x, over=d)").operation.analysis.of_some


@pytest.mark.parametrize(
    ("output", "needed"),
    [
        ("y: T[*n] = max(x, over=d)", "largest"),
        ("y: T[*n] = min(x, over=d) - max(x, over=d)", "largest or smallest"),
        ("y: i64[*n] = argmin(x, over=d)", "smallest"),
        ("y: T[*n] = where(count(over=d) == 0, 0, max(x, over=d))", ""),
        ("y: T[*n] = where(count(over=d) == 0, 0, 2 * max(x - min(x, over=d), over=d))", ""),
        ("y: T[*n] = where(count(over=d) == 0, max(x, over=d), 0)", "largest"),
        ("y: T[*n] = where(count(over=d) == 1, 0, max(x, over=d))", "largest"),
        ("y: T[*n] = where(count(over=d) == 0, 0, max(x, over=d)) + max(x, over=d)", "largest"),
        ("y: T[*n, d] = x - max(x, over=d)", ""),  # a row without elements has no output either
    ],
)
def test_what_a_call_needs_elements_for(output, needed):
    assert forward("x: T[*n, d]", output).operation.analysis.of_some == needed


def test_outputs_of_a_reduction_may_have_fewer_dimensions():
    program = forward("x: T[*n, d]", "low: T[*n] = min(x, over=d); y: T[*n, d] = x - low; up: C[*n] = max(x, over=d)")
    assert [operand.signature for operand in program.operation.outputs] == ["T[*n]", "T[*n, d]", "C[*n]"]


# ---- let, and outputs that name outputs ----


def test_a_name_of_let_is_its_formula():
    inputs, output = "x: T[*n, d]", "y: T[*n, d] = {0} / sum({0}, over=d)"
    said = forward(inputs, output.format("raised"), let="low: min(x, over=d); raised: exp(x - low)")
    written = forward(inputs, output.format("exp(x - min(x, over=d))"))
    assert said.formulas == written.formulas
    assert said.formula_texts["y"] == (
        "raised / sum(raised, over=d), where low = min(x, over=d), and raised = exp(x - low)"
    )


def test_a_name_of_let_may_be_for_the_backward_pass_alone():
    found = row("""\
    inputs: {x: 'T[*n]', w: 'C[]'}
    let:
      slope: 2 * w
    outputs: {y: 'T[*n] = x * w'}
    backward: {d_x: 'T[*n] = d_y * slope'}
""")
    assert "where slope = 2 * w" in found.backward.formula_texts["d_x"]
    assert "where" not in found.forward.formula_texts["y"]


def test_an_output_that_another_names_is_meant_as_it_is_stored():
    program = forward("x: T[*n, d]", "mid: T[*n] = mean(x, over=d); y: T[*n, d] = x - mid")
    assert program.operation.analysis.chained and program.named == {"mid"}
    written = program.written_out["y"]
    assert (written.args[1].op, written.args[1].text) == ("stored", "T")
    assert written.args[1].args[0] == program.formulas["mid"]
    assert not forward("x: T[*n, d]", "y: T[*n, d] = x - mean(x, over=d)").operation.analysis.chained
    codes = forward("x: T[*n, d]", "q: i32[*n, d] = clamp(round_to_int(x), -9, 9); y: T[*n, d] = x - q")
    assert all(part.op != "stored" for part in codes.written_out["y"].parts())  # integers are stored as they are


def test_a_backward_pass_may_name_outputs():
    found = row("""\
    inputs: {x: 'T[*n, d]', w: 'T[d]'}
    outputs: {y: 'T[*n, d] = x * w / sum(x * w, over=d)', size: 'C[*n] = sum(x * w, over=d)'}
    backward: {d_x: 'T[*n, d] = (d_y - sum(d_y * y, over=d)) * w / size'}
""")
    operation = found.backward.operation
    assert [operand.signature for operand in operation.inputs] == ["T[*n, d]", "T[d]", "T[*n, d]", "C[*n]"]
    assert [operand.name for operand in operation.inputs] == ["d_y", "w", "y", "size"]
    assert operation.analysis.over == Over(("d",)) and not operation.analysis.chained


@pytest.mark.parametrize(
    "outputs", ["y: T[*n, d] = y", "scale: C[*n] = max(x / scale, over=d)", "z: T[*n, d] = x; y: T[*n, d] = y + z"]
)
def test_an_output_cannot_name_itself(outputs):
    with pytest.raises(SpecError, match=r"` is this output itself: a formula may use those above it\n(.*\n)*1 error"):
        forward("x: T[*n, d]", outputs)


@pytest.mark.parametrize("text", ["d", "d / g"])
def test_a_dimension_is_no_formula(text):
    with pytest.raises(SpecError, match="a formula needs a number, this is a dimension"):
        forward("x: T[*o, d, *i]", f"y: T[*o, d, *i] = {text}", attrs="g: size; axis: axis of d")


def test_a_reduced_output_keeps_the_stars_of_its_dimensions():
    with pytest.raises(SpecError, match=r"`n` is any number of axes in an input\n(.*\n)*.* write `\*n`"):
        forward("x: T[*n, d]", "y: T[n] = sum(x, over=d)")


# ---- the kernel's passes ----

X = "x: T[*n, d]"


def passes(program: Program) -> list[list[tuple[str, str]]]:
    """(reduction's class or the output's name, formula) of each pass."""
    written = RowProgram(program)
    return [
        [(value.how or value.name, text) for value, text in zip(each.values, said.values, strict=True)]
        for each, said in zip(written.row.passes, written.passes, strict=True)
    ]


def held(program: Program) -> list[list[tuple[str, bool]]]:
    """What each pass makes of what several use, and whether it is the first one to."""
    return [
        [(text.partition(" = ")[2], one.first) for one, text in zip(each.held, said.statements, strict=True)]
        for each, said in zip(RowAnalysis(program).passes, RowProgram(program).passes, strict=True)
    ]


def test_a_reduction_of_a_reduction_is_another_pass():
    program = forward(X, "y: T[*n, d] = x - sum(x - max(x, over=d), over=d) * min(x, over=d)")
    assert passes(program) == [
        [("Largest", "element.x"), ("Smallest", "element.x")],
        [("Sum", "element.x - largest")],
        [("y", "element.x - shared_value")],
    ]
    assert RowProgram(program).passes[-1].initializers == ("shared_value(shared.sum * shared.smallest)",)


def test_one_value_a_row_takes_no_pass_of_its_own():
    written = RowProgram(forward(X, "low: T[*n] = min(x, over=d); up: C[*n] = max(x, over=d) + 1"))
    assert [len(each.values) for each in written.passes] == [2] and written.empty_pass
    assert written.finish == [
        "shared.low = ::stored<T>(shared.smallest)", "shared.up = ::stored<C>(shared.largest + C(1))",
    ]  # fmt: skip


def test_rows_along_several_dimensions_share_what_lacks_one_of_them():
    """`w` has elements of its own along a row, `v` does not; the order of a row is that of the space."""
    program = forward("w: T[c]; v: T[b]; x: T[a, b, c]", "y: T[a, b, c] = v * x * w / sum(x * w, over=(c, a))")
    assert program.operation.along == ("a", "c")
    written = RowAnalysis(program)
    assert [[o.name for o in each] for each in (written.columns, written.parameters)] == [["w"], ["v"]]
def test_a_value_of_a_row_is_made_once_and_named_where_others_use_it():
    outputs = "s: C[*n] = max(abs(x), over=d) / 127; z: i64[*n] = round_to_int(1 / s); y: T[*n, d] = x / s + to_real(z)"
    written = RowProgram(forward(X, outputs))
    assert written.finish == [
        "shared.s = ::stored<C>(shared.largest / C(127))", "shared.z = round_to_int(C(1) / shared.s)",
    ]  # fmt: skip
    assert written.passes[-1].initializers == ("divisor(shared.s)", "shared_value(to_real<C>(shared.z))")


@pytest.mark.parametrize(
    ("value", "how"),
    [
        ("max(where(isfinite(x), abs(x), 0), over=d)", "LargestMagnitude"),
        ("max(where(isfinite(x), x, 0), over=d)", "LargestFinite"),
        ("min(where(isfinite(x), x, 0), over=d)", "SmallestFinite"),
        ("min(where(isfinite(x), abs(x), 0), over=d)", "Smallest"),
        ("max(where(isfinite(x), x, 1), over=d)", "Largest"),
        ("max(where(isfinite(2 * x), x, 0), over=d)", "Largest"),
        ("sum(where(isfinite(x), x, 0), over=d)", "Sum"),
    ],
)
def test_extremes_of_what_is_finite_are_classes_of_their_own(value, how):
    (found,) = RowAnalysis(forward(X, f"y: T[*n] = {value}")).passes[0].values
    assert found.how == how
    assert (found.node.text == "x") == found.asks_finite


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("max(x, over=d)", [("Largest", "Largest")]),
        ("max(where(isfinite(x), abs(x), 0), over=d)", [("LargestMagnitude", "Largest")]),
        ("min(where(isfinite(x), x, 1 / 0), over=d)", [("SmallestFinite", "Smallest")]),
        ("max(x, over=d) - min(x, over=d)", [("Largest", "Largest"), ("Smallest", "Smallest")]),
        ("to_real(argmax(x, over=d))", [("ArgLargest", "ArgLargest")]),
        ("max(where(isfinite(2 * x), x, 0), over=d)", []),
        ("max(2 * x, over=d)", []),
        ("max(x, over=d) + to_real(argmax(x, over=d))", []),
        ("max(x, over=d) + sum(x, over=d)", []),
    ],
)
def test_parts_find_extremes_of_elements_as_they_are_stored(value, found):
    extremes = RowAnalysis(forward(X, f"y: T[*n] = {value}")).split.extremes
    assert sorted((each.how, each.joined) for each in extremes) == found


def test_what_several_passes_compute_is_held_where_it_costs_something():
    program = forward(X, "y: T[*n, d] = exp(x) / sum(exp(x), over=d)")
    assert list(RowAnalysis(program).held.values()) == ["held.exponential"]
    assert held(program) == [
        [("row_exponential_as<FAST, T>(element.x, usual)", True)],
        [("row_exponential_as<FAST, T>(element.x, usual)", False)],
    ]
    assert passes(program)[0] == [("Sum", "held.exponential")]
    cheap = RowAnalysis(forward(X, "y: T[*n, d] = 2 * x / sum(2 * x, over=d)"))
    assert not cheap.held
    once = RowAnalysis(forward(X, "y: T[*n, d] = x / sum(exp(x), over=d)"))
    assert not once.held


def test_values_have_the_names_that_the_spec_gives_them():
    """Of `let:` and of functions; else the field's word, numbered where it is taken."""
    outputs = "y: T[*n, d] = raised / sum(raised, over=d) * (max(x, over=d) + spread + sum(x, over=d))"
    program = forward(f"{X}; count: T[*n]", f"{outputs} + count", let="raised: exp(x); spread: min(x, over=d)")
    written = RowProgram(program)
    assert written.held_members == ["C raised"]
    assert written.shared_members == ["C count", "C count_2", "C sum", "C largest", "C spread", "C sum_2"]
    assert "row_value" not in str([each.members for each in written.passes])


def test_a_member_of_a_pass_has_no_name_that_its_formulas_need():
    """Attributes may be called as the functions that rules call, and as the members that all passes have."""
    program = forward(f"{X}; usual: T[*n]; row_quotient: T[*n]; fast: T[*n]",
                      "y: T[*n, d] = usual * x / (x + sum(x, over=d)) * row_quotient + fast")  # fmt: skip
    members = {member.rpartition(" ")[2] for member in RowProgram(program).passes[-1].members}
    assert members == {"usual_2", "row_quotient_2", "fast_2", "sum"}


def test_a_cheap_value_is_held_where_one_is_made_of_it_that_costs_something():
    off, spread = "(x - sum(x, over=d))", "sum((x - sum(x, over=d)) * (x - sum(x, over=d)), over=d)"
    cheap = RowAnalysis(forward(X, f"y: T[*n, d] = {off} * {spread}"))
    assert not cheap.held
    dear = f"(exp({off}) * {spread})"
    program = RowAnalysis(forward(X, f"y: T[*n, d] = {dear} / max({dear}, over=d)"))
    assert [part.op for part in program.held] == ["-", "*"]
    assert program.costly == 1


def test_what_is_held_is_made_of_what_is_held():
    program = forward(X, "s: C[*n] = max(r / sum(r, over=d), over=d); y: T[*n, d] = r / sum(r, over=d) / s",
                      let="r: exp(x)")  # fmt: skip
    share = "quotient_of<FAST, C>(held.r, divisor, usual)"
    assert held(program) == [
        [("row_exponential<FAST>(element.x, usual)", True)],
        [("row_exponential<FAST>(element.x, usual)", False), (share, True)],
        [("row_exponential<FAST>(element.x, usual)", False), (share, False)],
    ]


@pytest.mark.parametrize(
    ("value", "quick"),
    [
        ("x / (1 + exp(-x))", "logistic_product_as<FAST, T>(element.x, usual)"),
        ("x * sigmoid(x)", "element.x * row_logistic_as<FAST, T>(element.x, usual)"),
        ("x * (1 - sigmoid(x))", "element.x * (C(1) - logistic(element.x))"),  # not as precise as T
        ("x / (1 + exp(2 * (x + x * x)))",
         "logistic_quotient_as<FAST, T, T>(element.x, C(2) * (element.x + element.x * element.x), usual)"),
        ("x / (2 + exp(-x))",
         "row_quotient<FAST>(element.x, C(2) + row_exponential_as<FAST, T>(-element.x, usual), usual)"),
        ("x / (1 + exp(w))",
         "row_quotient<FAST>(element.x, C(1) + row_exponential_as<FAST, T>(element.w, usual), usual)"),
        ("x / (1 + exp(1 / x))",
         "row_quotient<FAST>(element.x, "
          "C(1) + row_exponential_as<FAST, T>(row_quotient<FAST>(C(1), element.x, usual), usual), usual)"),
        ("2 * x / (1 + exp(-x))",
         "row_quotient<FAST>(C(2) * element.x, C(1) + row_exponential_as<FAST, T>(-element.x, usual), usual)"),
    ],
)  # fmt: skip
def test_a_logistic_quotient_is_one_where_its_power_tells_that_the_dividend_is_finite(value, quick):
    program = forward(f"{X}; w: T[*n, d]", f"s: C[*n] = sum(x * w, over=d); y: T[*n, d] = {value}")
    assert passes(program)[-1] == [("y", quick)]


MAGNITUDE = "max(where(isfinite(x), abs(x), 0), over=d)"


@pytest.mark.parametrize(
    ("scale", "code", "holder", "value"),
    [
        (f"{MAGNITUDE} / 127", "x",
         "RowSteps<C, T, true>", "shared.s, -128ll, 127ll, shared.largest_magnitude, shared.all_finite"),
        ("max(where(isfinite(x * x), abs(x * x), 0), over=d) / 127", "x * x",
         "RowSteps<C, C, true>", "shared.s, -128ll, 127ll, shared.largest_magnitude, shared.all_finite"),
        (f"{MAGNITUDE} / 127", "2 * x", "Steps<C>", "shared.s, -128ll, 127ll"),
        ("max(abs(x), over=d) / 127", "x", "Steps<C>", "shared.s, -128ll, 127ll"),
        ("max(where(isfinite(x), x, 0), over=d) - min(where(isfinite(x), x, 0), over=d)", "x",
         "RowSteps<C, T, true>", "shared.s, -128ll, 127ll, shared.smallest_finite, shared.largest_finite, "
          "shared.all_finite_2 && shared.all_finite"),
        ("max(where(isfinite(x), x, 0), over=d)", "x", "Steps<C>", "shared.s, -128ll, 127ll"),
    ],
)  # fmt: skip
def test_steps_need_not_cut_what_a_row_knows_the_range_of(scale, code, holder, value):
    program = forward(X, f"s: C[*n] = {scale}; y: i32[*n, d] = clamp(round_to_int({code} / s), -128, 127)")
    last = RowProgram(program).passes[-1]
    (member,), (initializer,) = last.members, last.initializers
    type, _, name = member.rpartition(" ")
    assert (type, initializer) == (holder, f"{name}({value})")


def test_an_output_that_others_name_is_stored_in_the_first_pass_that_knows_it():
    program = forward(f"{X}; w: T[*n, d]", "t: T[*n, d] = x + w; y: T[*n, d] = t / sum(t * t, over=d)")
    written = RowAnalysis(program)
    assert [o.name for o in written.early] == ["t"]
    assert [[value.name for value in each.early] for each in written.passes] == [["t"], []]
    assert [[value.name for value in each.values] for each in written.passes] == [["shared.sum"], ["t", "y"]]
    assert [([o.name for o in arrays], held) for arrays, held in written.live] == [(["x", "w"], 0), ([], 1)]


def test_what_is_live_between_passes_is_what_later_ones_are_made_of():
    written = RowAnalysis(forward(X, "y: T[*n, d] = exp(x - max(x, over=d)) / sum(exp(x - max(x, over=d)), over=d)"))
    assert [([o.name for o in arrays], held) for arrays, held in written.live] == [(["x"], 0), ([], 1)]


def test_operands_are_of_an_element_a_column_a_row_or_all():
    program = forward(f"{X}; w: T[d]; r: T[*n]; g: C[]", "y: T[*n, d] = g * x * w / (r + sum(x * w, over=d))")
    written = RowAnalysis(program)
    assert [o.name for o in written.arrays] == ["x"]
    assert [o.name for o in written.columns] == ["w"]
    assert [o.name for o in written.parameters] == ["r"]
    assert [o.name for o in written.scalars] == ["g"]
    grouped = forward("x: T[*o, d, *i]; s: T[*o, d/g, *i]", "y: T[*o, d, *i] = s * x / sum(x, over=d/g)",
                      attrs="g: size; axis: axis of d")  # fmt: skip
    assert [o.name for o in RowAnalysis(grouped).parameters] == ["s"]


@pytest.mark.parametrize(
    "outputs",
    [
        "y: T[*o, d, *i] = s * x / sum(x, over=d)",
        "y: T[*o, *i] = sum(x * s, over=d)",
        "y: T[*o, d, *i] = x; z: T[*o, d/g, *i] = s * sum(x, over=d)",
        "y: T[*o, d, *i] = s * x / sum(x, over=d/h)",
    ],
)
def test_what_changes_within_a_row_is_refused(outputs):
    """Blocks of a dimension that is reduced whole, or in other blocks: neither one value a row nor one an element."""
    with pytest.raises(SpecError, match=r"changes within the rows that `over=d(/h)?` reduces"):
        forward("x: T[*o, d, *i]; s: T[*o, d/g, *i]", outputs, attrs="g: size; h: size; axis: axis of d")


def test_what_a_backward_pass_reads_must_not_change_within_its_rows():
    body = """\
    inputs: {{x: 'T[*o, d, *i]', s: 'T[*o, d/g, *i]'}}
    attrs: {{g: size, axis: axis of d}}
    outputs: {{y: 'T[*o, d, *i] = x * s'}}
    backward: {{d_x: 'T[*o, d, *i] = {0}'}}
"""
    assert row(body.format("d_y * s - sum(d_y, over=d/g)")).backward.operation.analysis.over == Over(("d",), "g")
    assert row(body.format("d_y - sum(d_y, over=d)")).backward.operation.analysis.over == Over(("d",))
    with pytest.raises(SpecError, match=r"`s: T\[\*o, d/g, \*i\]` changes within the rows that `over=d` reduces"):
        row(body.format("d_y * s - sum(d_y, over=d)"))


def test_an_output_of_a_reduction_is_of_elements_or_of_rows():
    with pytest.raises(SpecError, match=r"`z: T\[d\]` changes along `over=d`"):
        forward("x: T[*n, d]; w: T[d]", "y: T[*n] = sum(x, over=d); z: T[d] = 2 * w")


def test_the_reference_computes_each_reduction_once_in_order():
    program = forward(
        X,
        "mid: T[*n] = mean(x, over=d); y: T[*n, d] = (x - mid) / (sum(abs(x - mid), over=d) + mean(x, over=d))",
    )
    described = DescribedProgram(program)
    assert described.numpy_steps == [
        ("reduced_0_", "row.sum(x)"),
        ("mid", 'row.stored(reduced_0_ / row.count, "T")'),
        ("reduced_1_", "row.sum(np.abs(x - mid))"),
    ]
    assert described.numpy == {"mid": "mid", "y": "(x - mid) / (reduced_1_ + reduced_0_ / row.count)"}
    assert described.reference_parameters == "C, row, x"
    assert "reads" not in described.returns and described.returns == "(mid: T[*n], y: T[*n, d]): named OpResults."
    rules = dict(described.rules)
    assert "sum over" in rules and "max over" not in rules


def test_a_chain_without_a_reduction_is_a_map():
    program = forward("x: T[*n]", "y: T[*n] = x * 0.1; z: T[*n] = y * 10")
    assert program.operation.analysis.chained and not program.operation.analysis.over
    assert [output.formula for output in ElementwiseProgram(program).outputs] == [
        "element.x * C(0.1)", "::stored<T>(element.x * C(0.1)) * C(10)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stacks"),
    [
        ("Softmax", (("T",), ("C",))),  # exponentials take the input's place
        ("AddRmsNorm", (("T",), ("T", "T"), ("C",))),
        ("RmsNorm", ()),  # nothing but inputs
        ("SoftmaxDynamicQuantize", (("T",), ("C",), ("C",))),  # the shares that of the exponentials
    ],
)
def test_what_a_cluster_keeps_of_an_element_lies_in_a_stack(name, stacks):
    assert getattr(skuda, f"{name}Plan").operation.analysis.stack == stacks


def test_what_a_cluster_keeps_lies_above_what_is_still_needed():
    stage = skuda.RmsNormBackwardPlan.stages[0].operation
    gradient, input = (next(o for o in stage.inputs if o.name == name) for name in ("d_output", "input"))
    assert stage.analysis.stack == ((input.element,), (input.element, gradient.element), (input.element, "C"))
