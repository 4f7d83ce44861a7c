"""What a module of plans declares is made when it is first asked for, once; what follows from it says what it is."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import skuda
from skuda.generated import CATALOG
from skuda.launch import registry
from skuda.model.operation import class_stem
from skuda.plans.plan import Plan, declared

CALLED = """
import numpy as np
import skuda
import skuda.generated.plans.softmax as module
from skuda.plans.plan import Plan, declared
plans = [each for each in vars(module).values() if isinstance(each, type) and "formula" in vars(each)]
made = lambda: [plan.__name__ for plan in plans if not isinstance(vars(plan)["operation"], declared)]
assert len(plans) > 4 and made() == []
skuda.softmax(np.ones((2, 3), np.float32))
print(*made(), "args_type" in vars(module.SoftmaxPlan), "skuda.model.documentation" in __import__("sys").modules)
"""


def test_a_call_makes_the_operation_that_it_needs():
    done = subprocess.run([sys.executable, "-c", CALLED], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("SoftmaxPlan False False\n", "")


def test_threads_get_the_same_operation():
    barrier, made = Barrier(8), []

    class Another(Plan):
        @declared
        def operation():
            made.append(skuda.LerpPlan.operation.but(doc="another"))
            return made[-1]

    def ask(_):
        barrier.wait()
        return Another.operation, Another.descriptor_type

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(made) == 1 and {id(operation) for operation, _ in found} == {id(made[0])}
    assert len({cls for _, cls in found}) == 1


@pytest.mark.parametrize("plan", [plan for name in CATALOG.modules for plan in CATALOG.own_plans(name)])
def test_descriptors_and_arguments_say_what_they_are(plan):
    operation = plan.operation
    said = inspect.getdoc(plan.args_type)
    assert said.startswith(f"Arrays of one {plan.__name__}.run.\n\nAttributes:\n")
    assert [line.partition(":")[0].strip() for line in said.splitlines()[3:]] == [o.name for o in operation.operands]
    assert f"{operation.outputs[0].name}: {operation.outputs[0].signature}, written." in said
    assert [*inspect.signature(plan.args_type).parameters] == [operand.name for operand in operation.operands]
    said = inspect.getdoc(plan.descriptor_type)
    assert said.startswith(f"What a {plan.__name__} is selected by.\n\nAttributes:\n")
    named = [line.partition(":")[0].strip() for line in said.splitlines()[3:]]
    assert sorted(named) == sorted(plan.descriptor_type._fields)
    if operation.is_whole:
        assert getattr(skuda, plan.descriptor_type.__name__) is plan.descriptor_type
        assert getattr(skuda, plan.args_type.__name__) is plan.args_type


@pytest.mark.parametrize("name", CATALOG.functions())
def test_help_of_a_function_names_every_argument_and_its_shape(name):
    function = getattr(skuda, name)
    operation = getattr(skuda, f"{class_stem(name)}Plan").operation
    text = inspect.getdoc(function)
    said, _, rest = text.partition("\nArgs:\n")[2].partition("\n\nReturns:\n")
    assert [line.partition(":")[0].strip() for line in said.splitlines()] == [*inspect.signature(function).parameters]
    assert "Raises:\n    SkudaError: arguments that do not fit; nothing is launched or written then.\n" in rest
    for operand in operation.inputs:
        assert f"    {operand.name}: {operand.signature}, " in said
    returns = rest.partition("\n\n")[0]
    for operand in operation.outputs:
        assert f"{operand.name}: {operand.signature}" in returns
    assert ("Results" in returns) == (len(operation.outputs) > 1)
    types = text.partition("\nTypes:\n")[2].partition("\n\n")[0]
    for letter, words in operation.types.items():
        assert f"    {letter}: {' '.join(words)}." in types.splitlines()


def run_example(function, **names) -> int:
    """Runs the example of a docstring; returns how many lines of it do something."""
    text = inspect.getdoc(function).partition("\nExample:\n")[2]
    test = doctest.DocTestParser().get_doctest(text, {**names}, function.__name__, None, 0)
    said: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert (found.failed, said) == (0, [])
    return found.attempted


@pytest.mark.parametrize("name", CATALOG.functions())
def test_the_example_of_a_function_runs(name):
    assert run_example(getattr(skuda, name)) >= 3


ROWS = """\
inputs: {codes: "Q[*n, d]"} | outputs: {y: "f32[*n, d] = 2 * codes"} | types: {Q: [s4, u4]}
inputs: {x: "T[*n, d]"} | outputs: {y: "Q[*n, d] = clamp(round_to_int(x), 0, 5)"} | types: {T: [f32, f16], Q: s4}
inputs: {x: "T[*n, d]"} | attrs: {k: C, size: C = 2} | outputs: {y: "T[*n, d] = k * x + size"}
inputs: {a: "T[n, m]", b: "T[m]"} | outputs: {y: "T[n, m] = a * b"}
inputs: {x: "T[*a, c, *b]"} | attrs: {axis: axis of c} | outputs: {low: "T[c] = min(x, over=(a, b))", y: "T[c] = low"}
inputs: {x: "T[*a, c, *b]"} | attrs: {axis: axis of c} | outputs: {y: "T[*a, c, *b] = 2 * x"}
inputs: {x: "bool[*n]", y: "i64[*n]"} | outputs: {z: "i64[*n] = where(x, y, 0)"}
"""


@pytest.mark.parametrize("row", ROWS.splitlines())
def test_the_example_of_an_operation_of_ones_own_runs(row):
    made = skuda.define(row.replace(" | ", "\n"))
    try:
        assert run_example(made, **{made.__name__: made}) >= 2
    finally:
        registry.forget(made.catalog)


def test_a_value_that_may_not_fit_is_not_guessed():
    made = skuda.define('inputs: {x: "T[*n]"}\nattrs: {k: C}\nrequires: k > 3\noutputs: {y: "T[*n] = k * x"}')
    registry.forget(made.catalog)
    assert "Example" not in made.__doc__
