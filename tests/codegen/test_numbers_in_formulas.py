"""Numbers in formulas: signs, quotients of integers, and the names pi, inf and nan."""

from __future__ import annotations

import math

import numpy as np
import pytest
from catalogs import catalog_fixture, made_catalog
from host import emulator
from quick_compiler import compile_quickly

from skuda.codegen.render import render
from skuda.codegen.row_analysis import RowAnalysis
from skuda.codegen.spec import loads
from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.model.sku import BackendKind
from skuda.schedules import table
from skuda.schedules.variant import STRIDED

# Formula, and what it is of x and i.
FORMULAS = {
    "-1/2 * x": lambda x, i: x * x.dtype.type(-0.5),
    "x + -1/0": lambda x, i: x - np.inf,
    "(1 + 1) / 4 * x": lambda x, i: x * x.dtype.type(0.5),
    "x - -2 * -3": lambda x, i: x - 6,
    "-(-x)": lambda x, i: x,
    "copysign(1, -0.0) * x": lambda x, i: -x,
    "copysign(1, -0) * x": lambda x, i: x,
    "pi * x": lambda x, i: x * x.dtype.type(math.pi),
    "-pi - x": lambda x, i: x.dtype.type(-math.pi) - x,
    "where(x > 0, inf, -inf)": lambda x, i: np.where(x > 0, np.inf, -np.inf).astype(x.dtype),
    "where(x > 0, x, nan)": lambda x, i: np.where(x > 0, x, np.nan),
    "copysign(x, nan)": lambda x, i: np.abs(x),
    "copysign(x, -nan)": lambda x, i: -np.abs(x),
    "min(x, inf) + where(i < -0.5, 1, 0)": lambda x, i: x + np.where(i < 0, x.dtype.type(1), x.dtype.type(0)),
    "where(i == -1, x, i - -1)": lambda x, i: np.where(i == -1, x, (i.astype(np.int64) + 1).astype(x.dtype)),
}
SPEC = "ops:\n" + "".join(
    f"  number_{index}:\n    types: {{T: [f32, f64]}}\n    inputs: {{x: 'T[*n]', i: 'i32[*n]'}}\n"
    f"    outputs:\n      o: T[*n] = {formula}\n      p: i64[*n] = i\n      q: T[*n] = x\n"
    for index, formula in enumerate(FORMULAS)
)

ours = catalog_fixture("skuda_numbers_in_formulas", SPEC)


@pytest.mark.parametrize("element", [np.float32, np.float64])
@pytest.mark.parametrize("formula", FORMULAS)
def test_values(ours, backend, formula, element):
    x = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, 1e30], element)
    i = np.array([0, -1, 5, -7, 3, -(2**31), 2**31 - 1], np.int32)
    name = f"number_{list(FORMULAS).index(formula)}"
    actual = backend.numpy(getattr(ours, name)(backend.array(x), backend.array(i))[0])
    with np.errstate(all="ignore"):
        expected = FORMULAS[formula](x, i)
    assert actual.dtype == element
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    np.testing.assert_array_equal(actual[~nan].tobytes(), expected.astype(element)[~nan].tobytes())


@pytest.mark.turns(2)
def test_kernels(ours, monkeypatch, tmp_path):
    found = registry._CATALOGS[ours.__name__]
    ops = [operation for operation in found.operations]
    entries = [table.entry(op, types, STRIDED) for op in ops for types in op.kernel_combinations()]
    text = "\n".join(found.source(operation.source) for operation in ops)
    assert compile_quickly(text, "numbers.cu", entries, "sm_90").lowered.keys() == set(entries)
    skus = [sku for sku in registry.skus() if registry.entry_of(sku).catalog is found and sku.element == "f32"]
    skus = [sku for sku in skus if sku.backend is BackendKind.CUDA and sku.variant == "strided"]
    chosen = emulator.by_source(skus)
    monkeypatch.setattr(registry, "catalogs", lambda: (found,))
    for index in (8, 10, 12):
        some = chosen[f"number_{index}.cu"]
        host = emulator.Host(some, tmp_path)
        assert [fault for sku in some for fault in host.faults(sku)] == []


def test_a_zero_with_a_sign_is_no_zero_of_magnitudes():
    """max(where(isfinite(x), x, 0)) has a form of its own, which -0.0 must not take."""
    for other, how in (("0", "LargestFinite"), ("-0", "LargestFinite"), ("0.0", "LargestFinite"), ("-0.0", "Largest")):
        text = "ops:\n  op:\n    inputs: {x: 'T[*n, d]'}\n    outputs:\n"
        text += f"      o: T[*n] = max(where(isfinite(x), x, {other}), over=d)\n"
        program = loads(text).rows[0].forward
        (value,) = RowAnalysis(program).passes[0].values
        assert value.how == how


def test_documentation_names_them():
    text = "ops:\n  op:\n    inputs: {x: 'T[*n]'}\n"
    text += "    outputs: {o: 'T[*n] = where(x > pi, inf, where(x < -pi, -inf, nan))'}\n"
    page = render(loads(text))["docs/op.md"]
    assert r"\pi" in page and r"-\pi" in page and r"\infty" in page and r"\mathrm{NaN}" in page


@pytest.mark.parametrize("name", ["pi", "inf", "nan"])
def test_their_names_are_reserved(name):
    with pytest.raises(SpecError, match=f"the input's name `{name}` is a reserved word"):
        loads(f"ops:\n  op:\n    inputs: {{{name}: 'T[n]'}}\n    outputs: {{y: 'T[n] = 2 * {name}'}}\n")


REQUIREMENTS = {
    "max(a, b) > 3": (4, 1, 1), "floor(a) == a": (2, 0, 1), "isfinite(a)": (1, 1, 1), "a / b > 1": (2, 0, 1),
    "clamp(i, 0, 3) == i": (0, 0, 2), "to_real(i) < a": (2, 0, 1), "abs(a) < inf": (-1, 0, 0), "exp(a) > pi": (2, 0, 0),
    "round_to_int(a) == i": (1.5, 0, 2), "where(i > 0, a, b) > -1/2": (0, -3, 1),
}  # fmt: skip
BROKEN = {
    "max(a, b) > 3": (1, 2, 1), "floor(a) == a": (2.5, 0, 1), "isfinite(a)": (math.inf, 1, 1), "a / b > 1": (-2, 0, 1),
    "clamp(i, 0, 3) == i": (0, 0, 4), "to_real(i) < a": (1, 0, 1), "abs(a) < inf": (-math.inf, 0, 0),
    "exp(a) > pi": (1, 0, 0), "round_to_int(a) == i": (1.4, 0, 2), "where(i > 0, a, b) > -1/2": (0, -3, 0),
}  # fmt: skip


def test_requirements_call_intrinsics(tmp_path):
    """They are Python in the plan, which has the functions that they call; a quotient by zero is infinite."""
    text = "ops:\n" + "".join(
        f"  op_{index}:\n    inputs: {{x: 'T[n]'}}\n    attrs: {{a: C, b: C, i: i32}}\n    requires: {requirement}\n"
        "    outputs: {y: 'T[n] = a * b * i * x'}\n"
        for index, requirement in enumerate(REQUIREMENTS)
    )
    with made_catalog(tmp_path, "skuda_requirements", text) as module:
        for index, requirement in enumerate(REQUIREMENTS):
            function = getattr(module, f"op_{index}")
            a, b, i = REQUIREMENTS[requirement]
            function(np.ones(3, np.float32), a=a, b=b, i=i)
            a, b, i = BROKEN[requirement]
            with pytest.raises(InvalidProblem, match="requires "):
                function(np.ones(3, np.float32), a=a, b=b, i=i)
