"""Operations at sizes that nobody chose: the reference's bits, and the same ones in each of many runs.

The commit draws them, so that other commits take others. Blocks that wait for each other, or hand values to the next
kernel, come out alike however they are scheduled.
"""

from __future__ import annotations

import cupy
import pytest
import turns

from skuda.bench import drawn
from skuda.bench.problem import Problem
from skuda.bench.suite import Case
from skuda.launch import registry

COUNT, RUNS = 200, 100
CASES = drawn.cases(registry.catalogs()[0], COUNT, int(turns.commit()[:12], 16))


@pytest.fixture(autouse=True)
def freed():
    yield
    cupy.get_default_memory_pool().free_all_blocks()


def name(case: Case) -> str:
    return f"{case.operation.function} {case.dtype} {case.shape} {case.variant}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_runs_leave_the_same_bytes(case):
    problem = Problem(case)
    assert problem.fault() is None
    assert problem.unlike(RUNS) is None
