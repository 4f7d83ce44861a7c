"""What type checkers and editors know of the catalog: each function, class and field as it is, and mistakes found."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from trees import PACKAGES, REPOSITORY

import skuda
from skuda.generated import CATALOG
from skuda.model.operation import class_stem

STUB = ast.parse((REPOSITORY / "generated" / "__init__.pyi").read_text(encoding="utf-8"))
PLANS = [plan for name in CATALOG.modules for plan in CATALOG.plans(name) if plan.operation.is_whole]
CALLED = [plan.operation.function for plan in PLANS if plan.operation.name == plan.operation.row]

RIGHT = """\
import numpy as np
import torch
from numpy.typing import NDArray
from typing import assert_type

import skuda

x: NDArray[np.float32] = np.ones((4, 8), np.float32)
t = torch.ones(4, 8)
assert_type(skuda.softmax(x, axis=(0, 1)), NDArray[np.float32])
assert_type(skuda.softmax(t, axis=-1), torch.Tensor)
assert_type(skuda.softmax_backward(t, t), torch.Tensor)
assert_type(skuda.quantize_per_token(t, t[:, 0], dtype=torch.int8), torch.Tensor)
codes: NDArray[np.int8] = skuda.quantize_per_token(x, x[:, 0], dtype="s8")
made = skuda.dynamic_quantize_per_token(t)
assert_type(made, skuda.DynamicQuantizePerTokenResults[torch.Tensor])
assert_type(made.scale, torch.Tensor)
scale, output = made
codes = skuda.dynamic_quantize_per_token(x, dtype=np.int8).output
given = np.empty(4, np.float32), np.empty((4, 8), np.int8)
assert_type(len(skuda.dynamic_quantize_per_token(x, out=given)), int)
total = float(skuda.sum(x, axis=None, keepdims=False))
skuda.lerp(t, t, 0.5, out=t)
assert_type(skuda.add(x, 1.0), NDArray[np.float32])
assert_type(skuda.sub(1, t), torch.Tensor)
assert_type(skuda.where(t > 0, t, 0), torch.Tensor)
skuda.quantize_per_group(t, t, group_size=4)
skuda.layer_norm(t, None, None, eps=1e-6)
assert_type(skuda.silu_mul(t), torch.Tensor)
assert_type(skuda.glu(up=x), NDArray[np.float32])
assert_type(skuda.silu_mul_backward(t, t), torch.Tensor)
assert_type(skuda.silu_mul_backward(t, t, t).d_up, torch.Tensor)
assert_type(skuda.glu_backward(t, up=t), torch.Tensor)
plan = skuda.SoftmaxPlan.select(skuda.SoftmaxDescriptor(n=(4,), d=(8,), element="f32"))
plan.run(skuda.SoftmaxArgs(x, output=x))
symbol: str = plan.sku.symbol
leaky = skuda.define(name="leaky", inputs={"x": "T[*n]"}, outputs={"y": "T[*n] = x"})
leaky(x)
"""
WRONG = """\
import numpy as np

import skuda

x = np.ones((4, 8), np.float32)
skuda.sofmax(x)
skuda.quantize_per_group(x, x)
skuda.softmax(x, axis="last")
skuda.dynamic_quantize_per_token(x).scales
skuda.SoftmaxPlan.select(skuda.SoftmaxDescriptor(n=(4,)))
"""
MISTAKES = {6: '"sofmax"', 7: "quantize_per_group", 8: '"axis"', 9: '"scales"', 10: '"d"'}


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> str:
    """What mypy says of the two programs; skuda is laid out as it is installed."""
    folder = tmp_path_factory.mktemp("typed")
    package = folder / "path" / "skuda"
    package.mkdir(parents=True)
    for path in (REPOSITORY / "runtime").iterdir():
        (package / path.name).symlink_to(path)
    for name in PACKAGES:
        if not (package / name).exists():
            (package / name).symlink_to(REPOSITORY / name)
    (folder / "right.py").write_text(RIGHT, encoding="utf-8")
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    (folder / "mypy.ini").write_text(f"[mypy]\nmypy_path = {package.parent}\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.turns(4)
def test_a_correct_program_has_no_mistakes(checked):
    assert [line for line in checked.splitlines() if not line.startswith("wrong.py")] == []


@pytest.mark.turns(5)
def test_five_planted_mistakes_are_five_errors(checked):
    found = re.findall(r"^wrong\.py:(\d+): error: (.*)", checked, re.MULTILINE)
    assert [int(line) for line, _ in found] == [*MISTAKES]
    for line, message in found:
        assert MISTAKES[int(line)] in message


# ---- the stub is the catalog ----


def declared(kind: type[ast.stmt]) -> dict[str, list]:
    """The statements of a kind in the stub, by name."""
    found: dict[str, list] = {}
    for node in STUB.body:
        if isinstance(node, kind):
            found.setdefault(node.name, []).append(node)
    return found


FUNCTIONS, CLASSES = declared(ast.FunctionDef), declared(ast.ClassDef)


def test_every_function_and_class_is_declared_and_no_other():
    assert FUNCTIONS.keys() == set(CALLED) == set(CATALOG.functions())
    classes = {plan.__name__ for plan in PLANS}
    made = [each for plan in PLANS for each in (plan.descriptor_type, plan.args_type, plan.results_type)]
    classes |= {each.__name__ for each in made if each is not None}
    assert CLASSES.keys() == classes


def parameters(node: ast.FunctionDef) -> list[tuple]:
    """Name, kind and default of each parameter of a declaration."""
    given = node.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    found = [(each.arg, False, default) for each, default in zip(given.args, defaults, strict=True)]
    found += [(each.arg, True, default) for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [
        (name, keyword, inspect.Parameter.empty if default is None else ast.literal_eval(default))
        for name, keyword, default in found
    ]


@pytest.mark.parametrize("name", CALLED)
def test_a_signature_is_that_of_the_function(name):
    function = getattr(skuda, name)
    known = [
        (each.name, each.kind is each.KEYWORD_ONLY, each.default)
        for each in inspect.signature(function).parameters.values()
    ]
    for node in FUNCTIONS[name]:
        found = parameters(node)
        if len(FUNCTIONS[name]) > 1 and node.returns is not None and ast.unparse(node.returns) == "OutT":
            assert ("out", True, inspect.Parameter.empty) in found  # one overload is of calls that say it
            found = [(n, k, None if n == "out" else default) for n, k, default in found]
        operation = getattr(skuda, f"{class_stem(name)}Plan").operation
        found = [(n, k, None if n in operation.halves else default) for n, k, default in found]
        if operation.creates:  # an overload says one of them
            found = [(n, k, None if n in ("like", "out") else default) for n, k, default in found]
        assert found == known
        assert all(each.annotation for each in (*node.args.args, *node.args.kwonlyargs))
        assert ast.get_docstring(node) == function.__doc__.splitlines()[0]


def fields_of(name: str) -> list[tuple[str, bool]]:
    """The fields of a class in the stub, and whether each has a default."""
    (node,) = CLASSES[name]
    return [(each.target.id, each.value is not None) for each in node.body if isinstance(each, ast.AnnAssign)]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.__name__)
def test_fields_are_those_of_the_classes(plan):
    descriptor = plan.descriptor_type
    known = [(name, name in descriptor._defaults) for name in descriptor._fields]
    assert fields_of(descriptor.__name__) == known
    assert [each.name for each in fields(descriptor)] == [name for name, _ in known]
    assert fields_of(plan.args_type.__name__) == [(name, False) for name in plan.args_type._fields]
    if plan.results_type is not None:
        assert fields_of(plan.results_type.__name__) == [(name, False) for name in plan.results_type._fields]


def test_the_package_declares_its_own_names():
    stub = ast.parse((Path(skuda.__file__).parent / "__init__.pyi").read_text(encoding="utf-8"))
    named = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module != "skuda.generated"]
    assert {alias.asname for node in named for alias in node.names} == skuda._HOMES.keys()
    for node in named:
        for alias in node.names:
            assert getattr(skuda, alias.name).__module__ == node.module


# ---- completion ----


def test_completion_lists_every_operation_and_nothing_private():
    """In a session that has called nothing, and the same after calls."""
    program = "import skuda, {}\nprint(*dir(skuda))"
    for other in ("sys", "skuda.plans.functions"):
        done = subprocess.run([sys.executable, "-c", program.format(other)], capture_output=True, text=True)
        listed = {name for name in done.stdout.split() if not name.startswith("__")}
        assert set(CALLED) <= listed
        assert listed - set(CALLED) <= {*skuda._HOMES, "generated", "errors", "plans"}
        assert not any(name.startswith("_") for name in listed)
    assert "softmax_backward" in listed and "define" in listed


def test_a_catalog_lists_its_classes_too():
    import skuda.generated

    listed = dir(skuda.generated)
    assert {"softmax_backward", "SoftmaxBackwardPlan", "SoftmaxArgs", "LayerNormWithoutBiasDescriptor"} <= {*listed}
    assert not [name for name in listed if re.match("_[^_]", name)]
    for name in listed:
        assert getattr(skuda.generated, name) is not None or name.startswith("__")
