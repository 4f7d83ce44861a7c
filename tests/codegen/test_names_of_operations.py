"""An operation may have any name that is not public already: that of an internal file or function is no obstacle."""

from __future__ import annotations

import importlib
import keyword
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from catalogs import catalog_fixture
from quick_compiler import compile_quickly

import skuda
from skuda.codegen.cli import main
from skuda.codegen.render import generate
from skuda.codegen.spec import loads
from skuda.errors import SpecError
from skuda.launch import registry
from skuda.launch.compiler import headers
from skuda.names import MODULES, PUBLIC
from skuda.schedules import table
from skuda.schedules.variant import STRIDED

REPOSITORY = Path(__file__).parents[2]
ROW = "  {name}:\n    inputs: {{x: 'T[*n]'}}\n    outputs: {{y: 'T[*n] = {factor} * x'}}\n"
ROW += "    backward: {{d_x: 'T[*n] = {factor} * d_y'}}\n"
# What is generated of an operation is called so after its name; a type of a header may be called so too.
ENDS = ("program",)
INTERNAL = sorted(
    MODULES
    | {path.stem for room in ("codegen", "runtime") for path in (REPOSITORY / room).rglob("*.py")}
    | {match for text in headers().values() for match in re.findall(rf"\b([a-z]+)_(?:{'|'.join(ENDS)})\b", text)}
    | {"register", "catalog", "call", "annotations", "forward", "backwards", "cuda", "docs", "globals", "importlib"}
    | {"declared", "documented", "staticmethod", "range", "tuple"}
)
NAMES = [
    name
    for name in INTERNAL
    if re.fullmatch("[a-z]+(_[a-z]+)*", name) and not keyword.iskeyword(name) and name not in PUBLIC
]


SPEC = "ops:\n" + "".join(ROW.format(name=name, factor=index + 2) for index, name in enumerate(NAMES))
ours = catalog_fixture("skuda_names_of_operations", SPEC)


def test_each_runs_forward_and_backward(ours, backend):
    x = np.arange(5, dtype=np.float32)
    for _ in range(2):  # also when all modules are imported
        for index, name in enumerate(NAMES):
            for function in (name, f"{name}_backward"):
                actual = getattr(ours, function)(backend.array(x))
                np.testing.assert_array_equal(backend.numpy(actual), (index + 2) * x)


@pytest.mark.turns(8)
def test_each_compiles(ours):
    """All beside each other and below every header: what could clash are names of programs, whatever the schedule.

    Programs of gradients are read with them; they have a longer name, and are compiled by other tests.
    """
    found = registry._CATALOGS[ours.__name__]
    operations = [found.plans(name)[0].operation for name in NAMES]
    entries = [table.entry(operation, operation.combinations[0], STRIDED) for operation in operations]
    text = "".join(f'#include "{name}"\n' for name in headers())
    text += "\n".join(found.source(f"{name}.cu") for name in NAMES)
    assert compile_quickly(text, "names.cu", entries, "sm_90").lowered.keys() == set(entries)


@pytest.mark.parametrize("name", sorted(PUBLIC) + ["class", "lambda"])
def test_public_names_are_refused(name, capsys):
    assert main(["new", name]) == 1
    said = capsys.readouterr().err
    assert "choose another name" in said or "is not a name" in said
    with pytest.raises(SpecError):
        loads("ops:\n" + ROW.format(name=name, factor=2))


def test_public_names_are_what_is_exported():
    assert set(skuda._HOMES) <= PUBLIC
    assert PUBLIC.isdisjoint(MODULES)
    for name in PUBLIC - {"plans"}:
        assert name in skuda._HOMES or find_spec(f"skuda.{name}")  # which imports no framework
    assert importlib.import_module("skuda.generated.plans")


def test_skudas_own_catalog_may_have_such_an_operation(tmp_path):
    """In `skuda` the module and the operation share a name; whichever is asked for first, both are there."""
    package = tmp_path / "skuda"
    package.mkdir()
    for path in (REPOSITORY / "runtime").iterdir():
        (package / path.name).symlink_to(path)
    names = sorted({"arrays", "bench", "launch", "model", "names", "schedules"} & MODULES)
    assert len(names) > 3
    text = "ops:\n" + "".join(ROW.format(name=name, factor=2) for name in names)
    (tmp_path / "ops.yaml").write_text(text, encoding="utf-8")
    generate(tmp_path / "ops.yaml", package / "generated")
    first = "import numpy as np, skuda\nx = np.arange(4, dtype='f')\n"
    first += f"assert skuda.__file__.startswith({str(tmp_path)!r}), skuda.__file__\n"
    call = "assert (skuda.{0}(x) == 2 * x).all() and (skuda.{0}_backward(x) == 2 * x).all()\n"
    module = "from skuda import {0}\nassert {0}.__name__ == 'skuda.{0}' and {0}.__doc__\n"
    called, imported = ("".join(map(each.format, names)) for each in (call, module))
    for code in (called + imported + called, "import skuda.generated\n" + imported + called + imported):
        for before in ("", "from skuda import BackendKind, SkudaError\n"):
            environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
            ran = subprocess.run(
                [sys.executable, "-c", first + before + code], capture_output=True, text=True, env=environment
            )
            assert ran.returncode == 0, ran.stderr
