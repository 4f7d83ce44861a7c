"""Specs of tests, generated and imported as users do it: a package that depends on the runtime alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from skuda.codegen import spec as specs
from skuda.codegen.render import generate
from skuda.frameworks.programs import spec_of


@cache
def own_spec() -> specs.Spec:
    """skuda's own table, as `program_of` keeps it. Reading it takes seconds, and nobody changes what is read."""
    path = Path(__file__).parents[1] / "ops.yaml"
    return spec_of(path.read_text(encoding="utf-8"), path.name)


@contextmanager
def made_catalog(folder: Path, package: str, spec: str) -> Iterator[ModuleType]:
    """Generates a spec's text into folder/package, imports it, and forgets it in the end; the name must be new in this
    process.
    """
    assert package not in sys.modules
    (folder / "ops.yaml").write_text(spec, encoding="utf-8")
    generate(folder / "ops.yaml", folder / package)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        module = importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))
    try:
        yield module
    finally:
        forget_catalog(module)


def catalog_fixture(package: str, spec: str) -> Callable:
    """A fixture that makes a catalog of a spec's text for the tests of a module, and forgets it after them."""

    @pytest.fixture(scope="module")
    def made(tmp_path_factory):
        with made_catalog(tmp_path_factory.mktemp("catalog"), package, spec) as module:
            yield module

    return made


def forget_catalog(module: ModuleType) -> None:
    """Takes a catalog out of the table of kernels, so that tests that count the table do not depend on this
    one.
    """
    from skuda.launch import registry

    registry._CATALOGS.pop(module.__name__)
    registry._tables.cache_clear()
    for name in [
        name for name in sys.modules if name == module.__name__ or name.startswith(module.__name__ + ".")
    ]:
        del sys.modules[name]


def forget_defined(before) -> None:
    """Takes away what was defined since `registry.catalogs()` was `before`: tests that count operations or kernels do
    not depend on it."""
    from skuda.launch import registry

    define = sys.modules.get("skuda.codegen.define")
    for catalog in registry.catalogs():
        if define is not None and catalog not in before and isinstance(catalog, define.SessionCatalog):
            registry.forget(catalog)
            for name, operation in [*define._by_name.items()]:
                if operation.catalog is catalog:
                    del define._by_name[name]
