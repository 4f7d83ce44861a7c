"""The formulas of operations, read from their spec when they are first asked for."""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from skuda.errors import InvalidProblem, SpecError
from skuda.launch import registry
from skuda.model.operation import Operation
from skuda.plans.plan import Plan

if TYPE_CHECKING:
    from skuda.codegen.program import Program, Row, Spec

OWN = "skuda.generated"


def plans(forms: bool = False) -> dict[str, type[Plan]]:
    """The plan classes of every operation in the catalogs that are loaded, by the names of their functions.

    Args:
        forms: whether those without some inputs, and for words of a choice, are among them.
    """
    importlib.import_module(OWN)
    found = {}
    for catalog in registry.catalogs():
        for name in catalog.modules:
            for plan in catalog.plans(name):
                if plan.operation.is_whole and (forms or plan.operation.name == plan.operation.row):
                    found.setdefault(plan.operation.function, plan)
    return found


def program_of(plan: type[Plan], spec: str | Path | None = None) -> Program:
    """The formulas of an operation.

    Args:
        plan: its plan class.
        spec: the file that its catalog was generated from; None for skuda's own catalog, and for what `skuda.define`
            made.

    Raises:
        InvalidProblem: the spec has no such operation; that of a catalog of one's own has to be named.
        SpecError: the spec cannot be read, or has mistakes.
    """
    operation = plan.operation
    if spec is None and plan.package != OWN:
        defined = getattr(registry.catalog_of(plan.package), "spec", None)
        if defined is None:
            raise InvalidProblem(f"{operation.function} is of {plan.package}: name the file of its row, spec=...")
        return _by_key(defined.rows)[_key(operation)]
    path = resources.files("skuda.codegen") / "ops.yaml" if spec is None else Path(spec)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{spec}: cannot be read: {error}") from error
    found = _programs(text, path.name).get(_key(operation))
    if found is None:
        raise InvalidProblem(f"{spec}: has no row of {operation.function}")
    return found


def _key(operation: Operation) -> tuple[str, str]:
    return operation.source, operation.direction.value


@lru_cache(16)
def spec_of(text: str, name: str) -> Spec:
    """A spec. Reading it takes a second; the key is its text, so one that has changed is read again."""
    return importlib.import_module("skuda.codegen.spec").loads(text, name)


@lru_cache(16)
def _programs(text: str, name: str) -> dict[tuple[str, str], Program]:
    return _by_key(spec_of(text, name).rows)


def _by_key(rows: tuple[Row, ...]) -> dict[tuple[str, str], Program]:
    forms = [form for row in rows for form in row.every]
    return {_key(program.operation): program for form in forms for program in form.programs}
