"""The table of kernels: every SKU of every catalog that is loaded, and where its source is.

A catalog is a package that `skuda generate` wrote; it registers itself when it is imported. skuda's own is
loaded on first use.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import resources
from types import ModuleType
from typing import TYPE_CHECKING

from skuda.errors import UnknownSymbol, Unsupported
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, SCALE, WEIGHT, Operation, Types
from skuda.model.records import Record
from skuda.model.sku import BackendKind, KernelSku, Layout, find_symbols_by, split_symbol
from skuda.names import MODULES, also_operation
from skuda.schedules import table

if TYPE_CHECKING:
    from skuda.launch.kernel import Kernel
    from skuda.plans.plan import Plan

REFERENCE = table.Variant("reference", Layout.STRIDED)


class Catalog:
    """A generated package.

    Args:
        package: its import name.
        modules: its plan modules, one a row.
        forms: of rows with optional inputs, the modules of what these are without some of them.
    """

    def __init__(self, package: str, modules: tuple[str, ...], forms: Mapping[str, tuple[str, ...]] = {}):
        self.package = package
        self.modules = modules
        self.forms = forms
        every = (*modules, *(name for names in forms.values() for name in names))
        self._stems = {"".join(word.capitalize() for word in name.split("_")): name for name in every}

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, both directions; imports all plan modules."""
        return tuple(plan.operation for module in self.modules for plan in self.plans(module))

    def plans(self, name: str) -> tuple[type[Plan], ...]:
        """The plan classes of a row, those of stages and of forms too."""
        own = self._plans(name)
        return own + tuple([plan for form in self.forms.get(name, ()) for plan in self._plans(form)])

    def _plans(self, name: str) -> tuple[type[Plan], ...]:
        found = self.module(name).PLANS
        if any(plan.operation.analysis.alternative for plan in found):
            found += importlib.import_module(f"{self.package}.plans._{name}").PLANS
        return found

    def module(self, name: str) -> ModuleType:
        """The plan module of a row, or of a form of one."""
        return importlib.import_module(f"{self.package}.plans.{name}")

    def source(self, name: str) -> str:
        """The text of a CUDA source, by file name."""
        return (resources.files(self.package) / "cuda" / name).read_text(encoding="utf-8")

    def attribute(self, name: str):
        """A plan class, descriptor, args or function by its name.

        Raises:
            AttributeError: there is none; names the nearest.
        """
        stem = re.sub(r"(Backward)?(Plan|Args|Descriptor)$", "", name)
        row = self._stems.get(stem) or name.removesuffix("_backward")
        if row in self.modules or stem in self._stems:
            found = getattr(self.module(row), name, None)
            if found is not None:
                return found
        near = _nearest(name, self.names())
        help = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{self.package} has no {name!r}{help}", name=name)

    def names(self) -> list[str]:
        """Every public name: functions and classes of forward passes."""
        classes = [stem + kind for stem in self._stems for kind in ("Plan", "Args", "Descriptor")]
        return [*self.modules, *classes]


def _nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The most similar of some names, if any is similar enough."""
    from difflib import get_close_matches  # nobody pays for its import who makes no mistake

    return get_close_matches(name, names, 1, cutoff)


_CATALOGS: dict[str, Catalog] = {}


def register(catalog: Catalog) -> Catalog:
    """Makes a catalog's kernels known; a package that is generated again replaces itself."""
    _CATALOGS[catalog.package] = catalog
    if catalog.package == "skuda.generated":
        for name in MODULES.intersection(catalog.modules):
            also_operation(name)
    _tables.cache_clear()
    kernel.cache_clear()
    return catalog


def catalogs() -> tuple[Catalog, ...]:
    """The catalogs that are loaded, skuda's own among them."""
    if "skuda.generated" not in _CATALOGS:
        importlib.import_module("skuda.generated")
    return tuple(_CATALOGS.values())


def catalog_of(package: str) -> Catalog:
    """The catalog that a package registered."""
    return _CATALOGS[package]


def make_sku(operation: Operation, types: Types, variant: table.Variant) -> KernelSku:
    """The SKU of an operation at some types, as one variant runs it."""
    words = [types[letter] for letter in operation.kernel_letters if letter not in (SCALE, WEIGHT)]
    packed = any(DTYPES[operation.word(operand, types)].packed for operand in operation.operands)
    layout = variant.layout
    if packed:
        layout = Layout.CONTIGUOUS_PACKED4 if layout is Layout.CONTIGUOUS else Layout.STRIDED_PACKED4
    return KernelSku(
        category=operation.category,
        op=operation.name,
        direction=operation.direction,
        element=words[0] if words else types[COMPUTE],
        aux_element=words[1] if len(words) > 1 else None,
        scale_element=types[SCALE] if SCALE in operation.kernel_letters else None,
        weight_element=types[WEIGHT] if WEIGHT in operation.kernel_letters else None,
        layout=layout,
        epilogue=None,
        variant=variant.kernel if variant is REFERENCE else table.variant_name(operation, types, variant),
        arch="any",
        backend=BackendKind.REFERENCE if variant is REFERENCE else BackendKind.CUDA,
        precision_guarantee=operation.guarantee(types),
    )


class Entry(Record):
    """Where a SKU comes from."""

    catalog: Catalog
    operation: Operation
    types: Types
    variant: table.Variant


@cache
def _tables() -> tuple[dict[KernelSku, Entry], dict[str, KernelSku]]:
    by_sku: dict[KernelSku, Entry] = {}
    for catalog in _CATALOGS.values():
        for operation in catalog.operations:
            for types in operation.kernel_combinations():
                for variant in (*table.variants(operation, types), REFERENCE):
                    by_sku[make_sku(operation, types, variant)] = Entry(catalog, operation, types, variant)
    return by_sku, {sku.symbol: sku for sku in by_sku}


def skus() -> Iterator[KernelSku]:
    """Every SKU of the catalogs that are loaded."""
    catalogs()
    yield from _tables()[0]


def entry_of(sku: KernelSku) -> Entry:
    """Where a SKU comes from.

    Raises:
        Unsupported: no catalog has it; the message names the nearest that is.
    """
    catalogs()
    by_sku, by_symbol = _tables()
    found = by_sku.get(sku)
    if found is None:
        near = _nearest(sku.symbol, by_symbol, 0)
        raise Unsupported(f"no kernel {sku.symbol} in the catalogs that are loaded; the nearest is {near[0]}")
    return found


def sku_of_symbol(symbol: str) -> KernelSku:
    """The SKU whose symbol this is; see KernelSku.parse."""
    split_symbol(symbol)
    catalogs()
    by_symbol = _tables()[1]
    found = by_symbol.get(symbol)
    if found is None:
        near = _nearest(symbol, by_symbol, 0)
        raise UnknownSymbol(f"no kernel {symbol} in the catalogs that are loaded; the nearest is {near[0]}")
    return found


find_symbols_by(sku_of_symbol)


@cache
def kernel(package: str, source: str, entry: str) -> Kernel:
    """The kernel of one name expression in one source of one catalog."""
    from skuda.launch.kernel import Kernel

    catalog = _CATALOGS[package]
    return Kernel(lambda: catalog.source(source), source, entry)
