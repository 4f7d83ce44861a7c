"""Which calls look results up: long formulas of one operand of 16 bits, of many elements that lie in vectors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import skuda
from skuda.arrays.views import CPU, View
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import elementwise
from skuda.schedules.variant import TABULATE, TUNED

MANY = TUNED.tabled_elements


def kernel_of(name: str, element: str, elements: int, start: int = 0, cluster_shared: int = TUNED.shared_bytes):
    """The plan and the geometry of a call on contiguous arrays, from an element on."""
    plan_class = getattr(skuda, f"{name}Plan")
    descriptor = plan_class.descriptor_type(shape=(elements,), element=element)
    plan = plan_class.select(descriptor, preference=BackendKind.REFERENCE)
    plan._kernels.cluster_shared = cluster_shared
    storage = DTYPES[element].storage
    view = View(256 + start * storage.itemsize, (elements,), (1,), storage, CPU, False, False, None)
    return plan, plan._geometry([view] * len(plan.operation.operands))


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("elements, start", [(MANY, 0), (MANY + 5, 0), (3 * MANY + 1, 0), (MANY, 1)])
def test_many_results_are_looked_up(element, elements, start):
    plan, geometry = kernel_of("Cbrt", element, elements, start)
    blocks, threads = geometry.finish
    assert geometry.variant is TABULATE
    assert plan._kernels.workspace == geometry.workspace == geometry.finish_shared == 2 * 2**16
    assert geometry.grid * geometry.block * 2 == 2**16  # a thread makes two entries
    assert (blocks, threads) == (TUNED.multiprocessors, TUNED.look_up_threads)


def test_axes_in_another_order_are_looked_up_as_one_row():
    plan = skuda.CbrtPlan.select(
        skuda.CbrtPlan.descriptor_type(shape=(8, 16, MANY), element="f16"), preference=BackendKind.REFERENCE
    )
    plan._kernels.cluster_shared = TUNED.shared_bytes
    for strides in ((1, 8 * MANY, 8), (16, 1, 128), (16 * MANY, 1, 16)):
        view = View(256, (8, 16, MANY), strides, DTYPES["f16"].storage, CPU, False, False, None)
        geometry = plan._geometry([view] * 2)
        assert geometry.variant is TABULATE and geometry.head[0] == 128 * MANY


@pytest.mark.parametrize(
    "case",
    [
        ("Cbrt", "f32", MANY),
        ("Cbrt", "f16", MANY - 1),
        ("Cbrt", "f16", MANY, 0, 100_000),  # no clusters, or less shared memory than a table takes
        ("Gelu", "f16", MANY),  # short enough
        ("Pow", "f16", MANY),  # of two operands
    ],
)
def test_other_results_are_computed(case):
    plan, geometry = kernel_of(*case)
    assert geometry.variant.kernel == "vec" and geometry.workspace == 0
    assert plan._kernels.workspace == 0


def test_long_formulas_of_one_operand_have_tables():
    tabled = {each.function for each in registry.catalogs()[0].operations if each.analysis.tabled}
    assert {"lgamma", "digamma", "erf", "sinc", "mish", "cbrt", "logit", "tanhshrink"} <= tabled
    quick = {"exp", "exp2", "rsqrt", "log", "gelu", "tanh", "sqrt", "abs", "pow", "softmax", "log_backward", "fill"}
    quick |= {"asin", "acos", "atan", "sin", "cos", "tan", "sinh", "cosh", "asinh", "acosh", "atanh"}
    quick |= {"expm1", "log1p", "log2", "log10", "log_sigmoid", "erfc", "powi"}
    quick |= {"silu", "erfinv", "celu", "softplus"}
    assert not tabled & quick


def test_host_and_kernels_agree_on_sizes():
    """The header's constants and those that the host launches by."""
    text = (Path(skuda.__file__).parent / "cuda" / "tabulate.cuh").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"constexpr int (\w+) = ([^;]+);", text))
    assert sizes["TABLE_BYTES"] == "2 << 16" and elementwise._TABLE_BYTES == 2 << 16
    assert int(sizes["TABULATED"]) == elementwise._TABULATED
    assert int(sizes["TABLED_LANES"]) == elementwise._TABLED_LANES


def test_a_row_of_ones_own_has_a_table_too():
    own = skuda.define("own_gamma: {inputs: {x: 'T[*s]'}, attrs: {a: C = 2}, outputs: {y: 'T[*s] = lgamma(a * x)'}}")
    assert own.plan_class.operation.analysis.tabled


def test_results_of_hundreds_of_instructions_are_looked_up_of_fewer_elements():
    tabled = {each.function: each.analysis.tabled for each in registry.catalogs()[0].operations}
    assert (tabled["lgamma"], tabled["digamma"], tabled["erf"], tabled["exp"]) == (4, 4, 1, 0)
