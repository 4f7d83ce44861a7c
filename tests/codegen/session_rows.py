"""Operations of a session that tests define, and take away again."""

from __future__ import annotations

from skuda.codegen import define
from skuda.launch import registry


def forget_since(before) -> None:
    """Takes away what was defined since `registry.catalogs()` was `before`: tests that count kernels do not depend on
    it."""
    for catalog in registry.catalogs():
        if catalog not in before:
            registry.forget(catalog)
            for name, operation in [*define._by_name.items()]:
                if operation.catalog is catalog:
                    del define._by_name[name]
