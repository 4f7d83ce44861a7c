"""What a module of plans declares is made when it is first asked for, once; what follows from it says what it is."""

from __future__ import annotations

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import skuda
from skuda.generated import CATALOG
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
    if not operation.analysis.stage:
        assert getattr(skuda, plan.descriptor_type.__name__) is plan.descriptor_type
        assert getattr(skuda, plan.args_type.__name__) is plan.args_type


@pytest.mark.parametrize("name", CATALOG.modules)
def test_help_of_a_function_names_every_argument(name):
    function = getattr(skuda, name)
    text = inspect.getdoc(function)
    said, _, rest = text.partition("\nArgs:\n")[2].partition("\n\nReturns:\n")
    assert [line.partition(":")[0].strip() for line in said.splitlines()] == [*inspect.signature(function).parameters]
    assert rest.endswith("Raises:\n    SkudaError: arguments that do not fit; nothing is launched or written then.")
