"""Attributes that choose a form of a row, and attributes that are true or false."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from catalogs import catalog_fixture

import skuda
from skuda.codegen import spec as specs
from skuda.codegen.render import render
from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.model.operation import row_of, section_of
from skuda.model.sku import KernelSku

SPEC = """\
ops:
  gap:
    doc: Weighted squares of differences.
    types: {T: [f32, f64]}
    inputs:
      x: T[*n]
      y: T[*n]
      weight: T[*n] = 1
    attrs: {reduction: reduction = mean, doubled: bool = false}
    outputs:
      z: T[*n] = (x - y) * (x - y) * where(doubled, 2, 1) * weight
    backward:
      d_x: T[*n] = 2 * d_z * (x - y) * where(doubled, 2, 1) * weight
      d_y: derived
      d_weight: constant
  row_gap:
    inputs: {x: "T[*n, d]", y: "T[*n, d]"}
    attrs: {reduction: reduction = sum}
    outputs: {z: "T[*n] = max(abs(x - y), over=d)"}
    backward: {d_x: "T[*n, d] = where(abs(x - y) == max(abs(x - y), over=d), d_z * sign(x - y), 0)"}
  power:
    inputs: {x: "T[*n]"}
    attrs: {exponent: half | two | three = two, doubled: bool = false}
    let: {raised: "choose(exponent, half=sqrt(x), two=x * x, three=x * choose(exponent, half=1, two=1, three=x * x))"}
    outputs: {y: "T[*n] = where(doubled, 2, 1) * choose(exponent, half=raised, two=raised + 1, three=raised)"}
  cubed:
    inputs: {x: "T[*n]"}
    attrs: {doubled: bool = false}
    outputs: {y: "T[*n] = where(doubled, 2, 1) * (x * (x * x))"}
"""

catalog = catalog_fixture("choices_catalog", SPEC)
X = np.array([[1.0, 2, 4], [8, 16, 32]])
Y = np.array([[1.5, 2, 3], [5, 19, 31]])


def rows():
    return {row.name: row for row in specs.loads(SPEC).rows}


def test_each_word_is_a_form_and_the_default_is_the_row():
    row = rows()["gap"]
    assert row.choice.forms == (("none", "gap_as_none"), ("mean", "gap"), ("sum", "gap_as_sum"))
    assert [each.name for each in row.every] == [
        "gap", "gap_without_weight", "gap_as_none", "gap_as_none_without_weight", "gap_as_sum",
        "gap_as_sum_without_weight",
    ]  # fmt: skip
    assert {row_of(each.name) for each in row.every} == {"gap"}
    form = row.chosen["none"].forward.operation
    assert (form.outputs[0].signature, form.doc) == ("T[*n]", "Weighted squares of differences. Reduction: none.")
    assert row.forward.operation.outputs[0].signature == "T[]"


def test_a_mean_spreads_its_gradient_and_a_sum_does_not():
    row = rows()["gap"]
    assert "2 * (d_z / count(over=n)) * (x - y)" in row.backward.formula_texts["d_x"]
    assert "count" not in row.chosen["sum"].backward.formula_texts["d_x"]
    assert row.backward.operation.analysis.counted == ("n",)
    count = rows()["row_gap"].chosen["mean"].backward.operation.analysis
    assert (count.over.dims, count.counted) == (("d",), ("n",))  # both: the row is along d


def test_shares_of_several_means_are_one_quotient():
    """What is divided by two numbers of elements is divided by one."""
    text = "ops: {f: {inputs: {x: 'T[*n, d]'}, outputs: {y: 'T[*n, d] = x / count(over=d) / count(over=n)'}}}"
    (row,) = specs.loads(text).rows
    assert row.forward.operation.analysis.counted == ("n", "d")


def test_words_choose_among_formulas(catalog):
    row = rows()["power"]
    assert row.choice.forms == (("half", "power_as_half"), ("two", "power"), ("three", "cubed"))  # which is that row
    assert [each.name for each in row.every] == ["power", "power_as_half"]
    texts = row.forward.formula_texts["y"], row.chosen["half"].forward.formula_texts["y"]
    assert texts[0] == "where(doubled, 2, 1) * (raised + 1), where raised = x * x"
    assert texts[1] == "where(doubled, 2, 1) * raised, where raised = sqrt(x)"
    assert row.chosen["half"].doc.endswith(" Exponent: half.")
    assert catalog.power(X).tolist() == (X * X + 1).tolist()
    assert catalog.power(X, exponent="three", doubled=True).tolist() == (2 * X**3).tolist()
    np.testing.assert_array_equal(catalog.power_backward(X, X, exponent="three"), 3 * X**3)
    np.testing.assert_allclose(catalog.power_backward(X, X, exponent="half"), np.sqrt(X) / 2)
    with pytest.raises(InvalidProblem, match="PowerPlan: exponent is 'four', expected 'half', 'two' or 'three'"):
        catalog.power(X, exponent="four")
    page = render(specs.loads(SPEC))["docs/power.md"]
    assert '"half", "two" or "three": which formula is meant; "two" if not given' in page


def test_forms_lie_in_the_files_of_their_row():
    text = render(specs.loads(SPEC))["cuda/gap.cu"]
    for name in ("gap_as_none", "gap_as_sum_without_weight"):
        part = section_of(text, f"{name}.cu")
        assert f"struct {name}_program" in part and "struct gap_program" not in part
    assert "struct gap_program" in section_of(text, "gap.cu")


def expected(reduction: str, doubled: bool, weight=1.0) -> np.ndarray:
    each = (X - Y) ** 2 * (2 if doubled else 1) * weight
    return {"none": each, "mean": each.mean(), "sum": each.sum()}[reduction]


@pytest.mark.parametrize("doubled", [False, True, np.True_])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_call_says_which(catalog, reduction, doubled):
    weight = np.array([[1, 0, 2], [3, 1, 0.5]])
    np.testing.assert_allclose(
        catalog.gap(X, Y, reduction=reduction, doubled=doubled), expected(reduction, bool(doubled)), rtol=1e-15
    )
    found = catalog.gap(X, Y, weight, reduction=reduction, doubled=doubled)
    np.testing.assert_allclose(found, expected(reduction, bool(doubled), weight), rtol=1e-15)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gradients_of_each(catalog, reduction):
    given = np.full(X.shape, 3.0) if reduction == "none" else np.array(3.0)
    made = catalog.gap_backward(given, X, Y, None, reduction=reduction, doubled=True)
    share = 3.0 / (X.size if reduction == "mean" else 1)
    np.testing.assert_allclose(made.d_x, 4 * share * (X - Y), rtol=1e-15)
    np.testing.assert_allclose(made.d_y, -4 * share * (X - Y), rtol=1e-15)


def test_rows_are_reduced_after_their_own_reduction(catalog):
    largest = np.abs(X - Y).max(1)
    assert catalog.row_gap(X, Y) == largest.sum()
    assert catalog.row_gap(X, Y, reduction="mean") == largest.mean()
    np.testing.assert_array_equal(catalog.row_gap(X, Y, reduction="none"), largest)
    slope = np.where(np.abs(X - Y) == largest[:, None], 5 / 2 * np.sign(X - Y), 0)
    np.testing.assert_array_equal(catalog.row_gap_backward(np.array(5.0), X, Y, reduction="mean"), slope)


@pytest.mark.parametrize(("word", "shown"), [("average", "'average'"), (3, "3"), ([], "[]"), ("", "''")])
def test_a_word_that_there_is_not_is_refused(catalog, word, shown):
    with pytest.raises(InvalidProblem) as raised:
        catalog.gap(X, Y, reduction=word)
    assert str(raised.value) == f"GapPlan: reduction is {shown}, expected 'none', 'mean' or 'sum'"


@pytest.mark.parametrize("value", [1, 0.0, "true", np.array([True, False])])
def test_a_boolean_that_is_none_is_refused(catalog, value):
    with pytest.raises(InvalidProblem, match="doubled is .*, expected True or False"):
        catalog.gap(X, Y, doubled=value)


def test_a_form_that_there_is_not(catalog):
    with pytest.raises(InvalidProblem, match="GapAsSumPlan: has no forms to choose, got 'sum'"):
        catalog.GapPlan.chosen("sum").chosen("sum")


def test_signatures_and_pages_name_the_words(catalog):
    assert str(inspect.signature(catalog.gap)) == (
        "(x, y, weight=None, *, doubled=None, reduction='mean', out=None, stream=None)"
    )
    files = render(specs.loads(SPEC))
    assert '"none", "mean" or "sum": all elements of the output, or their mean or sum' in files["docs/gap.md"]
    assert 'reduction: Literal["none", "mean", "sum"] = "mean"' in files["__init__.pyi"]
    assert "doubled: bool | None = None" in files["__init__.pyi"]


def test_symbols_of_forms_are_symbols(catalog):
    forms = [sku for sku in registry.skus() if sku.op.startswith("gap_as_sum")]
    assert forms and all(KernelSku.parse(sku.symbol) == sku for sku in forms)


def test_a_defined_operation_has_the_choice():
    gap = skuda.define(inputs={"x": "T[*n]"}, attrs={"reduction": "reduction = sum"}, outputs={"y": "T[*n] = x * x"})
    assert (gap(X), gap(X, reduction="mean")) == ((X * X).sum(), (X * X).mean())
    np.testing.assert_array_equal(gap.backward(np.array(2.0), X, reduction="sum"), 4 * X)


def test_a_function_that_is_called_choose_is_the_specs_own():
    row = {"functions": {"choose(x)": "x * 2"}, "inputs": {"x": "T[*n]"}, "outputs": {"y": "T[*n] = choose(x)"}}
    assert skuda.define(**row)(X)[0, 0] == 2 * X[0, 0]
    with pytest.raises(SpecError, match="never uses `form`"):
        skuda.define(**row, attrs={"form": "none | tanh = none"})
