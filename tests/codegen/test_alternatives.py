"""Which programs of rows run in stages too, and what the stages are: by structure, whatever they are called."""

from __future__ import annotations

import pytest

from skuda.codegen.printers import spelled_formulas
from skuda.codegen.program import Program
from skuda.codegen.spec import loads
from skuda.codegen.stages import stages

INPUT, AXES = "x: 'T[*n, *d]'", "axis: axes of d = -1"


def program(outputs: str, inputs: str = INPUT, attrs: str = AXES, types: str = "") -> Program:
    lines = ["ops:", "  op:", f"    inputs: {{{inputs}}}"]
    lines += [f"    types: {{{types}}}"] if types else []
    lines += [f"    attrs: {{{attrs}}}"] if attrs else []
    return loads("\n".join([*lines, f"    outputs: {{{outputs}}}", ""])).rows[0].forward


def made(program: Program) -> list[dict[str, str]]:
    """Of each stage: its formulas, as a row would spell them."""
    return [spelled_formulas(stage) for stage in stages(program)]


def test_each_level_is_a_stage_and_the_rest_a_map():
    centred = program("y: 'T[*n, *d] = (x - mean(x, over=d)) / sqrt(mean((x - mean(x, over=d)) * x, over=d))'")
    assert centred.operation.analysis.alternative == 3 and centred.operation.analysis.stages == 0
    first, second, third = made(centred)
    assert first == {"row_value_0": "sum(x, over=d) / |d|"}
    assert second == {"row_value_1": "np.sqrt(sum((x - row_value_0) * x, over=d) / |d|)"}
    assert list(third) == ["y"]
    assert [bool(stage.operation.analysis.over) for stage in stages(centred)] == [True, True, False]
    operations = [stage.operation for stage in stages(centred)]
    assert all(each.of_alternative and each.analysis.alternative == 3 for each in operations)
    assert not centred.operation.of_alternative


def test_values_of_rows_end_with_the_last_reduction():
    spread = program("y: 'T[*n] = max(abs(x - mean(x, over=d)), over=d)'")
    assert [list(each) for each in made(spread)] == [["row_value_0"], ["y"]]


@pytest.mark.parametrize(
    ("outputs", "changed"),
    [
        ("y: 'T[*n] = sum(x, over=d)'", {}),  # comes apart in one kernel
        ("y: 'T[*n, d] = x - mean(x, over=d)'", {"inputs": "x: 'T[*n, d]'", "attrs": ""}),  # lies along the last axis
        ("z: 'T[*n, *d] = x + 1', y: 'T[*n, *d] = z - max(z, over=d)'", {}),  # sees an output as it is stored
        ("z: 'T[*n, *d] = x + 1', y: 'T[*n, *d] = x - max(x, over=d)'", {}),  # an earlier stage would write z
        ("z: 'T[*n] = max(x, over=d)', y: 'T[*n, *d] = x - max(x, over=d)'", {}),
        ("y: 'T[*n, *d] = x / count(over=d) - max(x, over=d)'", {}),  # elementwise: no row has a length
        ("y: 'T[*n, *d] = q - max(q, over=d)'", {"inputs": "q: 'Q[*n, *d]'", "types": "Q: [s8, s4], T: [f32]"}),
    ],
)
def test_what_has_one_form(outputs, changed):
    found = program(outputs, **changed)
    assert found.operation.analysis.alternative == 0 and made(found) == []


def test_a_count_beside_what_is_reduced_is_the_stage_s():
    unbiased = program("y: 'T[*n, *d] = x * (sum(x, over=d) / (count(over=d) - 1))'")
    assert unbiased.operation.analysis.alternative == 2
