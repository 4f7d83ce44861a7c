"""Kernels of every schedule but tiles, run on the CPU: the same bytes as the reference, nothing touched beside them."""

from __future__ import annotations

import pytest
from problems import covering

from host import emulator
from skuda import dispatch
from skuda.sku import BackendKind

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
