"""The rooms of the runtime: a module imports from its own room and the rooms below, and no imports form a circle.

Imports are read from the text, those inside of functions among them. Imports for type hints alone do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import skuda
from skuda.arrays.libraries import FRAMEWORKS

# From the lowest room to the highest; ARCHITECTURE.md says what is in each. Modules of the package itself are rooms.
ROOMS = (
    "errors", "names", "model", "arrays", "reference", "schedules", "launch", "cpu", "plans", "frameworks", "torch",
    "jax", "onnx", "verification", "bench", "checkpoints", "demo", "__init__",
)  # fmt: skip
RUNTIME = Path(__file__).parents[2] / "runtime"
CODEGEN = "skuda.codegen."  # no part of the runtime: reads formulas, of which functions of ONNX and of torch are made
READERS = ("skuda.onnx.", "skuda.frameworks.programs")  # the modules that ask it
GENERATED = "skuda.generated"  # no part of the runtime: a catalog, which registers itself when it is imported


def module_name(path: Path) -> str:
    parts = ["skuda", *path.relative_to(RUNTIME).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(RUNTIME.rglob("*.py"))}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every node of a module but those under `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from statements(child)


def imported(name: str) -> Iterator[str]:
    """The modules of skuda that a module imports, wherever it does."""
    for node in statements(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports a module by a relative name, which tools do not follow"
            found = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [each if each in MODULES else node.module for each in found]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            asked = node.args[0]
            found = [asked.value] if isinstance(asked, ast.Constant) else []
        else:
            continue
        for each in found:
            if name.startswith(READERS) and each.startswith(CODEGEN):
                continue
            if each.partition(".")[0] == "skuda" and not f"{each}.".startswith(f"{GENERATED}."):
                yield each


IMPORTS = {name: set(imported(name)) for name in MODULES}
# The functions import the package of a framework when a first array of it comes; below that they know none.
for name in ("skuda.plans.functions", "skuda.plans.creation", "skuda.plans.halves"):
    IMPORTS[name] -= {f"skuda.{framework}" for framework in FRAMEWORKS}
# `skuda.define` is the generator's, which is above all rooms.
IMPORTS["skuda"] |= {f"skuda.{home}" for home in skuda._HOMES.values() if not home.startswith("codegen.")}


def room(module: str) -> str:
    return (module.split(".") + ["__init__"])[1]


def test_every_room_is_listed():
    assert {room(name) for name in MODULES} == set(ROOMS)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_own_room_and_those_below(name):
    for other in IMPORTS[name]:
        assert other in MODULES, f"{name} imports {other}"
        # The package itself has the public functions, which bench, demo and modules of torch call as users do.
        below = ROOMS.index(room(other)) <= ROOMS.index(room(name))
        callers = ("bench", "checkpoints", "demo", "torch")
        assert below or (other == "skuda" and room(name) in callers), f"{name} imports {other}"


def test_no_module_imports_in_a_circle():
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_imports_are_read():
    """Of modules that import at their top, inside of a function, and by name."""
    assert "skuda.model.sku" in IMPORTS["skuda.launch.registry"]
    assert "skuda.schedules.columns" in IMPORTS["skuda.schedules.elementwise"]
    assert "skuda.plans.plan" not in IMPORTS["skuda.launch.prepared"]  # for type hints alone
    assert len(MODULES) > 60
