"""Kernels of every structure, run on the CPU: the same bytes as the reference, nothing touched that is not theirs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from problems import Call, covering, covering_by_source, lay_out
from values import Case, Problem, cancelling, cases, lacking, run

from host import emulator
from skuda.launch import compiler, registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind, Direction, KernelSku
from skuda.schedules import table

SKUS = [
    sku
    for sku in registry.skus()
    if sku.backend is BackendKind.CUDA
    and emulator.emulated(sku)
    and not registry.entry_of(sku).operation.of_alternative  # the multi-kernel form runs as a whole
]
COVERING = covering_by_source(SKUS)
OLD = 80  # an architecture without instructions for floats of 8 bits


def narrow(sku: KernelSku) -> bool:
    """Whether a kernel converts floats of 8 bits, which older GPUs do by integers."""
    found = registry.entry_of(sku)
    words = [found.operation.word(operand, found.types) for operand in found.operation.operands]
    return any(DTYPES[word].narrow_float for word in words) and table.runs_on(found.variant, f"sm_{OLD}")


def find(symbol: str) -> KernelSku:
    return next(sku for sku in SKUS if sku.symbol == symbol)


@pytest.mark.turns(24)
@pytest.mark.parametrize("source", COVERING)
def test_bytes(source, tmp_path):
    host = emulator.Host(COVERING[source], tmp_path)
    assert [fault for sku in COVERING[source] for fault in host.faults(sku)] == []


@pytest.mark.turns(16)
@pytest.mark.parametrize("source", [source for source, skus in COVERING.items() if any(map(narrow, skus))])
def test_bytes_without_conversions_of_fp8(source, tmp_path):
    chosen = [sku for sku in COVERING[source] if narrow(sku)]
    host = emulator.Host(chosen, tmp_path, arch=OLD)
    assert [fault for sku in chosen for fault in host.faults(sku)] == []


@pytest.mark.turns(16)
@pytest.mark.parametrize("source", COVERING)
def test_what_is_expected_tells_right_from_wrong(source):
    """Most of it is finite, no limit of a code, and not all the same."""
    said = {sku.symbol: lacking(cases(sku)) for sku in COVERING[source]}
    assert {symbol: each for symbol, each in said.items() if each} == {}


def test_the_covering_set_has_every_kind_of_kernel():
    """Against the names of kernels, not against problems.structure."""
    kinds = {re.sub(r"\d+", "", sku.variant) for sku in SKUS}
    chosen = [sku for skus in COVERING.values() for sku in skus]
    assert {re.sub(r"\d+", "", sku.variant) for sku in chosen} == kinds
    assert {"cluster8", "cluster16", "tile", "stages"} <= {sku.variant for sku in chosen}
    assert headers_of(chosen) == headers_of(SKUS)
    assert any("gelu" in sku.symbol for sku in chosen)


def headers_of(skus: list[KernelSku]) -> set[str]:
    """The headers that sources of these include."""
    sources = {(found.catalog, found.operation.source) for found in map(registry.entry_of, skus)}
    return {name for catalog, source in sources for name in compiler.included(catalog.source(source))}


@pytest.mark.parametrize(
    "header, before, after, expected",
    [
        ("index_space.cuh", "fetch(array + offset)", "fetch(array + offset + 1)", "reads 4 bytes from byte"),
        ("index_space.cuh", "fetch(array + offset)", "fetch(array + offset - 1)", "reads 4 bytes from byte"),
        ("index_space.cuh", "if (lane < left) array[offset", "array[offset + 1", "writes 4 bytes from byte"),
    ],
)
def test_one_element_beside_an_operand_is_seen(header, before, after, expected, tmp_path, monkeypatch):
    """A kernel that reads or writes the element before an operand's first or after its last, if it changes nothing."""
    headers = compiler.headers()
    assert before in headers[header]
    monkeypatch.setattr(compiler, "headers", lambda: headers | {header: headers[header].replace(before, after)})
    sku = find("fake_quantize_per_tensor_f32__strided")
    host = emulator.Host([sku], tmp_path)
    found = [fault for fault in host.faults(sku) if "which are not its elements" in fault]
    assert found and all(expected in fault for fault in found)


@pytest.mark.turns(6)
@pytest.mark.parametrize("source", ["argmax.cu", "argmin.cu"])
def test_index_among_equals(source, tmp_path):
    """The first of equals, whichever element, thread, part or kernel has it."""
    of_f32 = [sku for sku in SKUS if sku.symbol.startswith(f"{source.removesuffix('.cu')}_f32__")]
    chosen = [sku for sku in of_f32 if sku.variant.startswith(("along", "across"))]
    host = emulator.Host(chosen, tmp_path)
    rng = np.random.default_rng(5)
    for rare in ([0.0, -0.0], [-np.inf], [np.inf], [np.inf, -np.inf], [1.0, -1.0, np.nan]):
        for common in (0.0, -np.inf, np.inf):

            def some(case, rare=rare, common=common):
                plan = case.call.plan(BackendKind.REFERENCE)
                shape = plan.stored[0]
                chosen = rng.choice(np.array(rare, np.float32), shape)
                inputs = {"input": np.where(rng.random(shape) < 0.002, chosen, np.float32(common))}
                return Problem(inputs, run(plan, inputs), {}, {}, 0)

            assert [fault for sku in chosen for fault in host.faults(sku, some)] == []


@pytest.mark.turns(6)
@pytest.mark.parametrize("element", ["s8", "u8", "i32"])
@pytest.mark.parametrize("source", ["argmax.cu", "argmin.cu"])
def test_index_among_equal_integers(source, element, tmp_path):
    of_type = [sku for sku in SKUS if sku.symbol.startswith(f"{source.removesuffix('.cu')}_{element}__")]
    chosen = [sku for sku in of_type if sku.variant.startswith(("across", "row8x4", "row128x4"))]
    assert len(chosen) >= 7
    host = emulator.Host(chosen, tmp_path)
    storage = DTYPES[element].storage
    least, most = np.iinfo(storage).min, np.iinfo(storage).max
    rng = np.random.default_rng(5)
    for rare, common in (([least, most], 1), ([1, 2], most), ([1, 2], least), ([least], most)):

        def some(case, rare=rare, common=common):
            plan = case.call.plan(BackendKind.REFERENCE)
            shape = plan.stored[0]
            inputs = {"input": np.where(rng.random(shape) < 0.02, rng.choice(rare, shape), common).astype(storage)}
            return Problem(inputs, run(plan, inputs), {}, {}, 0)

        assert [fault for sku in chosen for fault in host.faults(sku, some)] == []


@pytest.mark.turns(4)
@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
def test_the_order_of_a_sum(element, tmp_path):
    """What is left of a sum that cancels tells one order from another, in half types too, by each kind of kernel."""
    kinds = {}
    for sku in SKUS:
        found = registry.entry_of(sku)
        if found.operation.function == "sum" and sku.element == element:
            accumulators = getattr(found.variant, "accumulators", 1), min(getattr(found.variant, "threads", 0), 64)
            kinds.setdefault((sku.element, re.sub(r"\d+", "", sku.variant), *accumulators), sku)
    chosen = [*kinds.values()]
    two = any(registry.entry_of(sku).variant.accumulators == 2 for sku in chosen if sku.variant.startswith("row"))
    assert two == (element in ("f16", "bf16"))
    rng = np.random.default_rng(7)

    def some(case):
        plan = case.call.plan(BackendKind.REFERENCE)
        values = rng.standard_normal(plan.stored[0]).astype(DTYPES[plan.words[0]].storage)
        kept = len(plan.sizes["kept"])
        inputs = {"input": cancelling(values, tuple(range(kept, values.ndim)))}
        return Problem(inputs, run(plan, inputs), {}, {}, 0)

    host = emulator.Host(chosen, tmp_path)
    assert [fault for sku in chosen for fault in host.faults(sku, some)] == []


@pytest.mark.turns(12)
@pytest.mark.parametrize("source", ["amax.cu", "amin.cu", "sum.cu"])
def test_the_sign_of_zero(source, tmp_path):
    """+0 is above -0, and a sum of -0 is -0: in each element type, whichever element, thread, part or kernel has it."""
    name = source.removesuffix(".cu")
    kinds = {}
    for sku in SKUS:
        if re.match(rf"{name}_(f|bf)\d+__(row|along|across)", sku.symbol):
            kinds.setdefault((sku.element, re.sub(r"\d+", "", sku.variant)), sku)
    chosen = [*kinds.values()]
    host = emulator.Host(chosen, tmp_path)
    rng = np.random.default_rng(6)
    for rare in (1, 0.5, 0.002, 0):

        def zeros(case, rare=rare):
            plan = case.call.plan(BackendKind.REFERENCE)
            negative = rng.random(plan.stored[0]) < rare
            inputs = {"input": np.where(negative, -0.0, 0.0).astype(DTYPES[plan.words[0]].storage)}
            return Problem(inputs, run(plan, inputs), {}, {}, 0)

        assert [fault for sku in chosen for fault in host.faults(sku, zeros)] == []


MIXED = covering([sku for sku in SKUS if re.match("layer_norm(_stage._backward)?_f16_weight_f32__", sku.symbol)])


def test_weights_wider_than_the_input_occur_in_each_kind_of_kernel():
    ways = {(found.kernel, found.suffix) for found in (registry.entry_of(sku).variant for sku in MIXED)}
    assert ways >= {("row", "x4_unaligned"), ("row", "_reread"), ("cluster", ""), ("across", "_unaligned")}


@pytest.mark.turns(12)
@pytest.mark.parametrize("kind", sorted({re.sub(r"\d+", "", sku.variant) for sku in MIXED}))
def test_weights_wider_than_the_input(kind, tmp_path):
    """f32 columns beside f16 rows: in whole words and from any element on, held, read again, in clusters and parts."""
    chosen = [sku for sku in MIXED if re.sub(r"\d+", "", sku.variant) == kind]
    host = emulator.Host(chosen, tmp_path)
    assert [fault for sku in chosen for fault in host.faults(sku)] == []


NOTHING = ("dynamic_quantize_asymmetric_per_token", "dynamic_quantize_per_tensor", "observe_min_max_per_channel", "sum")


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", NOTHING)
def test_rows_without_elements(name, tmp_path):
    """What has a value of nothing has the reference's, in rows held by blocks, in parts and in stages."""
    tried = 0
    for plan_class in registry.catalogs()[0].plans(name):
        operation = plan_class.operation
        if operation.direction is Direction.BACKWARD or not operation.analysis.over or operation.analysis.stages:
            continue  # stages that reduce are among the plans
        lengths = {dim.name: 0 if dim.name in operation.along else 3 for dim in operation.dims}
        sizes = {dim.name: (lengths[dim.name],) if dim.many else lengths[dim.name] for dim in operation.dims}
        plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
        names = [operand.name for operand in operation.operands if operand.dims]
        layouts = [lay_out(shape, "plain") for operand, shape in zip(operation.operands, plan.stored) if operand.dims]
        elements = {field: plan.types[letter] for letter, field in operation.element_fields.items()}
        call = Call(plan_class, (*sizes.items(),), (*elements.items(),), (*zip(names, layouts),))
        sku = registry.make_sku(operation, plan.types, call.variant())
        assert [*emulator.Host([sku], tmp_path)._faults(sku, call, Case(call).problem())] == []
        tried += 1
    assert tried


# Of an operation with deviations, and of one that finds a scale: row kernels of each kind, and parts along and across.
NEAR = {
    "var": r"var(_stage1)?_(f32|f16|f64)__(row8x4|row64x4_unaligned|row16x4_strided|row256x8|along|across\d)$",
    "layer_norm": r"layer_norm(_stage1_backward)?_f32__(row32x4|cluster8|row512_reread|row1024_reread)$",
    "layer_norm f16": r"layer_norm(_stage1_backward)?_f16__(row32x4|cluster8|row512_reread|row1024_reread)$",
    "dynamic_quantize": r"dynamic_quantize_fp8_per_token_f16_e5m2__(row8x4|row64x4_unaligned)$",
    # Means that no sample of a row shows to lie between its elements.
    "layer_norm_backward": r"layer_norm_backward_(f32__slab64x3(_unaligned)?|bf16__slab256x4)$",
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", NEAR)
def test_rows_of_elements_near_each_other(name, tmp_path):
    """Equal elements, elements near each other, and elements whose scale underflows."""
    chosen = [sku for sku in SKUS if re.match(NEAR[name], sku.symbol)]
    assert len(chosen) >= 2
    host = emulator.Host(chosen, tmp_path)
    rng = np.random.default_rng(7)
    for value, spread in ((12345.678, 0), (-6e4, 0), (1e3, 0.7), (3e-5, 1e-5)):

        def near(case, value=value, spread=spread):
            plan = case.call.plan(BackendKind.REFERENCE)
            given = zip(plan.operation.inputs, plan.words, plan.stored)
            inputs = {o.name: rng.normal(value, spread, shape).astype(DTYPES[word].storage) for o, word, shape in given}
            return Problem(inputs, run(plan, inputs), {}, {}, 0)

        assert [fault for sku in chosen for fault in host.faults(sku, near)] == []
