"""Kernels of rows that a test defines."""

from __future__ import annotations

import re
from pathlib import Path

from values import cases

import skuda
from host import emulator
from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku


def kernels_of(name: str, row: str) -> list[KernelSku]:
    """The kernels of a row, one of each name without its numbers."""
    package = skuda.define(row, name=name).catalog.package
    found = {}
    for sku in registry.skus():
        own = sku.backend is BackendKind.CUDA and registry.entry_of(sku).catalog.package == package
        if own and emulator.emulated(sku):
            found.setdefault((*sku.symbol.split("__")[:1], re.sub(r"\d+", "", sku.variant)), sku)
    return list(found.values())


def check_bytes(name: str, row: str, folder: Path) -> None:
    """Runs them on the CPU: calls reach each, and every byte is the reference's."""
    kernels = kernels_of(name, row)
    host = emulator.Host(kernels, folder)
    assert [sku.symbol for sku in kernels if not cases(sku) and "_stage" not in sku.symbol] == []
    assert [fault for sku in kernels for fault in host.faults(sku)] == []
