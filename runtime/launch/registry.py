"""The table of kernels: every SKU of every catalog that is loaded, and where its source is.

A catalog is a package that `skuda generate` wrote; it registers itself when it is imported. skuda's own is
loaded on first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from skuda.errors import UnknownSymbol, Unsupported
from skuda.model.operation import COMPUTE, SCALE, WEIGHT, Operation, Types, class_stem, row_of, section_of
from skuda.model.records import Record
from skuda.model.sku import BackendKind, KernelSku, Layout, find_symbols_by, split_symbol
from skuda.names import MODULES, also_operation
from skuda.schedules import table
from skuda.schedules.variant import Variant

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from skuda.launch.kernel import Kernel
    from skuda.plans.plan import Plan

# By what their names end with.
_CLASSES = {"Args": "args_type", "Descriptor": "descriptor_type", "Results": "results_type"}
_KINDS = ("Plan", *_CLASSES)
ON_HOST = {
    Variant("cpu", Layout.STRIDED): BackendKind.CPU,
    Variant("reference", Layout.STRIDED): BackendKind.REFERENCE,
}


def on_host(backend: BackendKind) -> Variant | None:
    """What stands for the kernels of a backend on the CPU; None of CUDA, which has many."""
    return next((variant for variant, of in ON_HOST.items() if of is backend), None)


class Catalog:
    """A generated package.

    Args:
        package: its import name.
        modules: its plan modules, one a row.
        forms: of rows with optional inputs or a choice, the operations that they are without some of these inputs, or
            for the other words.
        gradients: the rows and forms that have a backward pass.
    """

    def __init__(
        self,
        package: str,
        modules: tuple[str, ...],
        forms: Mapping[str, tuple[str, ...]] = {},
        gradients: tuple[str, ...] = (),
    ):
        self.package = package
        self.modules = modules
        self.gradients = gradients
        rows = {form: row for row, of in forms.items() for form in of} | {row: row for row in modules}
        self._rows = {class_stem(name): row for name, row in rows.items()}

    @cached_property
    def operations(self) -> tuple[Operation, ...]:
        """Every operation, both directions; imports all plan modules."""
        return tuple(plan.operation for module in self.modules for plan in self.plans(module))

    @cached_property
    def kernels(self) -> dict[KernelSku, Entry]:
        """Where each of its SKUs comes from; made once, whatever other catalogs are loaded."""
        found: dict[KernelSku, Entry] = {}
        for operation in self.operations:
            for types in operation.kernel_combinations():
                variants = *table.variants(operation, types), *ON_HOST
                entries = [Entry(self, operation, types, variant) for variant in variants]
                found.update(zip(_skus(operation, types, variants), entries))
        return found

    def plans(self, name: str) -> tuple[type[Plan], ...]:
        """The plan classes of a row, those of stages and of forms too: of each, whole ones come first."""
        declared = (each for each in vars(self.module(name)).values() if isinstance(each, type))
        found = [each for each in declared if "operation" in vars(each)]
        sources = list(dict.fromkeys(plan.operation.source for plan in found))

        def position(plan: type[Plan]) -> tuple:
            operation = plan.operation
            return sources.index(operation.source), operation.of_alternative, not operation.is_whole

        return tuple(sorted(found, key=position))

    def own_plans(self, name: str) -> tuple[type[Plan], ...]:
        """The plan classes of a row itself, and of stages without which it does not run."""
        own = (plan for plan in self.plans(name) if not plan.operation.of_alternative)
        return tuple(plan for plan in own if plan.operation.source == f"{name}.cu")

    def module(self, name: str) -> ModuleType:
        """The plan module of a row."""
        return importlib.import_module(f"{self.package}.plans.{name}")

    def source(self, name: str) -> str:
        """The text of a CUDA source, by the name that operations give it."""
        return source_text(folder_of(self.package), name)

    def attribute(self, name: str):
        """A plan class, descriptor, args or function by its name.

        Raises:
            AttributeError: there is none; names the nearest.
        """
        kind = next((each for each in _KINDS if name.endswith(each)), "")
        whole = name.removesuffix(kind)
        stem = whole.removesuffix("Backward")
        backward = whole[len(stem) :]
        row = self._rows.get(stem) or name.removesuffix("_backward")
        if row in self.modules:
            found = vars(self.module(row)).get(f"{stem}{backward}Plan" if kind else name)
            if found is not None and kind in _CLASSES:
                found = getattr(found, _CLASSES[kind])  # None: there are no results of one output
            if found is not None:
                return found
        near = _nearest(name, self.names())
        help = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"{self.package} has no {name!r}{help}", name=name)

    def functions(self) -> list[str]:
        """The names of its functions, of each row the forward pass and then the backward pass."""
        gradients = set(self.gradients)
        return [name + end for name in self.modules for end in ("", "_backward") if not end or name in gradients]

    def names(self) -> list[str]:
        """Every public name: functions, and the classes that all operations have."""
        stems = [*self._rows, *(f"{class_stem(name)}Backward" for name in self.gradients)]
        return [*self.functions(), *(stem + kind for stem in stems for kind in ("Plan", "Args", "Descriptor"))]


def folder_of(package: str) -> Traversable:
    """The folder of a package. By its path where there is one: importlib.resources takes a tenth of a first call."""
    folder = Path(next(iter(importlib.import_module(package).__path__)))
    if folder.is_dir():
        return folder
    from importlib import resources

    return resources.files(package)


def source_text(package: Traversable, name: str) -> str:
    """The text of a CUDA source in the folder of a generated package.

    Raises:
        FileNotFoundError: it has none of this name.
    """
    row = row_of(name.removesuffix(".cu"))
    return section_of((package / "cuda" / f"{row}.cu").read_text(encoding="utf-8"), name)


def _nearest(name: str, names: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """The most similar of some names, if any is similar enough."""
    from difflib import get_close_matches  # nobody pays for its import who makes no mistake

    return get_close_matches(name, names, 1, cutoff)


def _nearest_symbol(symbol: str, symbols: Iterable[str]) -> str:
    """The most similar of all symbols: first what stands before `__`, then the variant, of which there are few each."""
    members: dict[str, list[str]] = {}
    for each in symbols:
        members.setdefault(each.partition("__")[0], []).append(each)
    (kernel,) = _nearest(symbol.partition("__")[0], members, 0)
    return _nearest(symbol, members[kernel], 0)[0]


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


def forget(catalog: Catalog) -> None:
    """Takes a catalog out of the table of kernels."""
    if _CATALOGS.get(catalog.package) is catalog:
        del _CATALOGS[catalog.package]
    _tables.cache_clear()
    kernel.cache_clear()


def catalogs() -> tuple[Catalog, ...]:
    """The catalogs that are loaded, skuda's own among them."""
    if "skuda.generated" not in _CATALOGS:
        importlib.import_module("skuda.generated")
    return tuple(_CATALOGS.values())


def catalog_of(package: str) -> Catalog:
    """The catalog that a package registered."""
    return _CATALOGS[package]


def make_sku(operation: Operation, types: Types, variant: Variant) -> KernelSku:
    """The SKU of an operation at some types, as one variant runs it."""
    return next(_skus(operation, types, (variant,)))


def _skus(operation: Operation, types: Types, variants: Iterable[Variant]) -> Iterator[KernelSku]:
    """The SKUs of an operation at some types, as each of some variants runs it."""
    words = [types[letter] for letter in operation.kernel_letters if letter not in (SCALE, WEIGHT)]
    packed = operation.is_packed(types)
    guarantee = operation.guarantee(types)
    for variant in variants:
        layout = variant.layout
        if packed:
            layout = Layout.CONTIGUOUS_PACKED4 if layout is Layout.CONTIGUOUS else Layout.STRIDED_PACKED4
        yield KernelSku(
            category=operation.category,
            op=operation.name,
            direction=operation.direction,
            element=words[0] if words else types[COMPUTE],
            aux_element=words[1] if len(words) > 1 else None,
            scale_element=types[SCALE] if SCALE in operation.kernel_letters else None,
            weight_element=types[WEIGHT] if WEIGHT in operation.kernel_letters else None,
            layout=layout,
            epilogue=None,
            variant=variant.kernel if variant in ON_HOST else table.variant_name(operation, types, variant),
            arch="any",
            backend=ON_HOST.get(variant, BackendKind.CUDA),
            precision_guarantee=guarantee,
        )


class Entry(Record):
    """Where a SKU comes from."""

    catalog: Catalog
    operation: Operation
    types: Types
    variant: Variant


@cache
def _tables() -> tuple[dict[KernelSku, Entry], dict[str, KernelSku]]:
    by_sku: dict[KernelSku, Entry] = {}
    for catalog in _CATALOGS.values():
        by_sku.update(catalog.kernels)
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
        near = _nearest_symbol(sku.symbol, by_symbol)
        raise Unsupported(f"no kernel {sku.symbol} in the catalogs that are loaded; the nearest is {near}")
    return found


def sku_of_symbol(symbol: str) -> KernelSku:
    """The SKU whose symbol this is; see KernelSku.parse."""
    split_symbol(symbol)
    catalogs()
    by_symbol = _tables()[1]
    found = by_symbol.get(symbol)
    if found is None:
        near = _nearest_symbol(symbol, by_symbol)
        raise UnknownSymbol(f"no kernel {symbol} in the catalogs that are loaded; the nearest is {near}")
    return found


find_symbols_by(sku_of_symbol)


@cache
def kernel(package: str, source: str, entry: str) -> Kernel:
    """The kernel of one name expression in one source of one catalog."""
    from skuda.launch.kernel import Kernel

    catalog = _CATALOGS[package]
    return Kernel(lambda: catalog.source(source), source, entry)
