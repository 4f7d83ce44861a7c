"""`precision: precision = exact`: a form of a row whose functions are instructions of the GPU. The CPU has none."""

from __future__ import annotations

import numpy as np
import pytest

import skuda
from skuda.codegen.intrinsics import INTRINSICS, QUICKENED
from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku

ROW = {
    "types": {"T": ["f32", "f16"]},
    "inputs": {"x": "T[*n]"},
    "attrs": {"precision": "precision = exact"},
}
FAST = [each for each in registry.catalogs()[0].operations if not each.analysis.exact]


def defined(formula: str, **more):
    return skuda.define(**{**ROW, "outputs": {"y": f"T[*n] = {formula}"}, **more})


def test_what_a_call_chooses_is_in_the_sku():
    for word, op in (("exact", "gelu_tanh_dynamic_quantize"), ("fast", "gelu_tanh_dynamic_quantize_as_fast")):
        plan_class = skuda.GeluTanhDynamicQuantizePlan.chosen(word)
        descriptor = plan_class.descriptor_type(n=(2,), d=64, input_element="bf16")
        plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
        assert plan.sku.op == op and KernelSku.parse(plan.sku.symbol) == plan.sku
        guarantee = plan.precision_guarantee
        assert (guarantee.exact, guarantee.max_ulp) == ((True, 0.0) if word == "exact" else (False, None))
        assert guarantee.deterministic and guarantee.bit_stable_on_same_hardware


@pytest.mark.turns(2)
def test_on_the_cpu_both_are_the_same():
    x = np.random.default_rng(1).normal(0, 3, (700, 300)).astype(np.float32)  # enough for a kernel of the CPU
    for name in ("gelu_dynamic_quantize", "gelu_tanh_dynamic_quantize", "gelu_dynamic_quantize_fp8"):
        exact, fast = (getattr(skuda, name)(x, precision=word) for word in ("exact", "fast"))
        for one, other in zip(exact, fast, strict=True):
            assert one.tobytes() == other.tobytes()
    with pytest.raises(InvalidProblem, match="precision is 'quick', expected 'exact' or 'fast'"):
        skuda.gelu_dynamic_quantize(x, precision="quick")


def test_only_forms_that_say_so_are_inexact():
    """And no gradient: what is in range next to a bound decides whether there is one."""
    assert FAST and all("_as_fast" in each.name and not each.function.endswith("_backward") for each in FAST)
    for operation in registry.catalogs()[0].operations:
        if "_as_fast" not in operation.name or operation.function.endswith("_backward"):
            assert operation.analysis.exact


def test_the_kernel_asks_for_instructions_and_nothing_else_does():
    for operation in FAST:
        source = registry.catalogs()[0].source(operation.source)
        assert "Quick<" in source.partition(f"struct {operation.function}_program ")[2].partition("\n};")[0]
    exact = registry.catalogs()[0].source("gelu_tanh_dynamic_quantize.cu")
    assert "Quick<" not in exact


@pytest.mark.parametrize("name", sorted(QUICKENED))
def test_a_row_of_ones_own(name):
    function = defined(f"{name}(x)")
    x = np.linspace(-3, 3, 1000, dtype=np.float32)
    assert function(x).tobytes() == function(x, precision="fast").tobytes()
    assert not function.plan_class.chosen("fast").operation.analysis.exact


def test_a_gradient_of_ones_own_is_exact():
    function = defined("x * sigmoid(x)", backward="derived")
    form = function.plan_class.chosen("fast")
    assert not form.operation.analysis.exact
    assert all(
        each.analysis.exact for each in function.catalog.operations if each.function.endswith("_backward")
    )


@pytest.mark.parametrize(
    "attribute, formula, message",
    [
        ("precision = fast", "exp(x)", "`precision` is `exact` unless a call says otherwise"),
        ("precision", "exp(x)", "`precision` has no default"),
        ("precision = half", "exp(x)", "`half` is no precision"),
        ("precision of n = exact", "exp(x)", "a precision is of all functions of the outputs"),
        ("precision = exact", "x * 2", "is an instruction of a GPU"),
        ("precision = exact", "log(x)", "is an instruction of a GPU"),
        ("precision by n = exact", "exp(x)", "`by` is of a `reduction`, this is `precision`"),
    ],
)
def test_what_a_row_cannot_say(attribute, formula, message):
    with pytest.raises(SpecError) as error:
        defined(formula, attrs={"precision": attribute})
    assert message in str(error.value)


def test_functions_that_are_instructions_are_in_half_types_too():
    assert all(INTRINSICS[name].halved and INTRINSICS[name].common for name in QUICKENED)
