"""Kernels of every schedule but tiles, run on the CPU: the same bytes as the reference, nothing touched beside them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from problems import Call, covering, place

from host import emulator
from skuda import dispatch
from skuda.dtypes import DTYPES
from skuda.sku import BackendKind, Direction

# Of these sources, kernels that show each schedule, and each element type in each role of it.
SOURCES = (
    "quantize_per_group.cu", "dynamic_quantize_fp8_per_token.cu", "dynamic_quantize_asymmetric_per_channel.cu",
    "layer_norm.cu", "softmax.cu", "argmax.cu", "silu_mul_dynamic_quantize_per_group.cu",
)  # fmt: skip
SKUS = emulator.by_source(
    sku
    for sku in dispatch.skus()
    if sku.backend is BackendKind.CUDA
    and dispatch.entry_of(sku).operation.source in SOURCES
    and not dispatch.entry_of(sku).operation.of_second  # the second form runs as a whole
)


@pytest.mark.parametrize("source", SOURCES)
def test_bytes(source, tmp_path):
    chosen = covering(SKUS[source])
    host = emulator.Host(source, chosen, tmp_path)
    assert [fault for sku in chosen for fault in host.faults(sku)] == []


@pytest.mark.parametrize("source", ["argmax.cu", "argmin.cu"])
def test_places_among_equals(source, tmp_path, monkeypatch):
    """The first of equals, whichever element, thread, part or kernel has it."""
    of_f32 = [sku for sku in dispatch.skus() if sku.symbol.startswith(f"{source.removesuffix('.cu')}_f32__")]
    chosen = [sku for sku in of_f32 if sku.variant.startswith(("along", "across"))]
    host = emulator.Host(source, chosen, tmp_path)
    for rare in ([0.0, -0.0], [-np.inf], [np.inf], [np.inf, -np.inf], [1.0, -1.0, np.nan]):
        for common in (0.0, -np.inf, np.inf):

            def some(operand, word, count, rng, rare=rare, common=common):
                chosen = rng.choice(np.array(rare, np.float32), count)
                return np.where(rng.random(count) < 0.002, chosen, np.float32(common))

            monkeypatch.setattr(emulator, "fill", some)
            assert [fault for sku in chosen for fault in host.faults(sku)] == []


def test_weights_wider_than_the_input(tmp_path):
    """f32 columns beside f16 rows: in whole words and from any element on, held, read again, in clusters and parts."""
    source = "layer_norm.cu"
    chosen = covering([sku for sku in SKUS[source] if (sku.element, sku.weight_element) == ("f16", "f32")])
    ways = {(found.kernel, found.suffix) for found in (dispatch.entry_of(sku).variant for sku in chosen)}
    assert ways >= {("row", "x4_unaligned"), ("row", "_reread"), ("cluster", ""), ("across", "_unaligned")}
    host = emulator.Host(source, chosen, tmp_path)
    assert [fault for sku in chosen for fault in host.faults(sku)] == []


@pytest.mark.parametrize(
    "name", ["DynamicQuantizeAsymmetricPerToken", "DynamicQuantizePerTensor", "ObserveMinMaxPerChannel", "Sum"]
)
def test_rows_without_elements(name, tmp_path, monkeypatch):
    """What has a value of nothing has the reference's, in rows held by blocks, in parts and in stages."""
    found = dispatch.catalogs()[0].plans("".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:])
    plans = [plan for plan in found if plan.operation.direction is Direction.FORWARD]
    tried = 0
    for plan_class in plans:
        operation = plan_class.operation
        if not operation.over or operation.stages:  # stages that reduce are among the plans
            continue
        along = operation.along
        lengths = {dim.name: 0 if dim.name in along else 3 for dim in operation.dims}
        sizes = {dim.name: (lengths[dim.name],) if dim.many else lengths[dim.name] for dim in operation.dims}
        plan = plan_class.select(plan_class.descriptor_type(**sizes), preference=BackendKind.REFERENCE)
        names = [operand.name for operand in operation.operands if operand.dims]
        places = [place(shape, "plain") for operand, shape in zip(operation.operands, plan.stored) if operand.dims]
        elements = {field: plan.types[letter] for letter, field in operation.element_fields.items()}
        call = Call(plan_class, (*sizes.items(),), (*elements.items(),), (*zip(names, places),), False)
        sku = dispatch.make_sku(operation, plan.types, call.variant())
        monkeypatch.setattr(emulator, "calls", lambda _, call=call: [call])
        host = emulator.Host(operation.source, [sku], tmp_path)
        assert [*host.faults(sku)] == []
        tried += 1
    assert tried


# Of an operation with deviations, and of one that finds a scale: row kernels of each kind, and parts along and across.
FINITE = {
    "var.cu": r"var(_stage1)?_(f32|f16|f64)__(row8x4|row64x4_unaligned|row16x4_strided|row256x8|along|across\d)$",
    "layer_norm.cu": r"layer_norm(_stage1_backward)?_(f32|f16)__(row32x4|cluster8|row512_reread|row1024_reread)$",
    "dynamic_quantize_fp8_per_token.cu": r"dynamic_quantize_fp8_per_token_f16_e5m2__(row8x4|row64x4_unaligned)$",
}


@pytest.mark.parametrize("source", FINITE)
def test_finite_rows(source, tmp_path, monkeypatch):
    """Rows without a NaN: equal elements, elements near each other, and elements whose scale underflows."""
    of_source = (sku for sku in dispatch.skus() if dispatch.entry_of(sku).operation.source == source)
    chosen = [sku for sku in of_source if re.match(FINITE[source], sku.symbol)]
    assert len(chosen) >= 2
    host = emulator.Host(source, chosen, tmp_path)
    for value, spread in ((12345.678, 0), (-6e4, 0), (1e3, 0.7), (3e-5, 1e-5)):

        def near(operand, word, count, rng, value=value, spread=spread):
            return rng.normal(value, spread, count).astype(DTYPES[word].storage)

        monkeypatch.setattr(emulator, "fill", near)
        assert [fault for sku in chosen for fault in host.faults(sku)] == []
