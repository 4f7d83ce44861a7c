"""What peers compute is what an operation says, and what is checked beside the timing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bench_rows import CASES, SAMPLED, arrays_of, case, code_range

from skuda.bench import formulas, problem, shapes, suite, tensors, torch_functions, torch_gradients
from skuda.bench.shapes import Shape
from skuda.bench.suite import Case
from skuda.bench.tensors import dtype_of
from skuda.codegen.intrinsics import HALF_BOUNDS
from skuda.generated import CATALOG
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Direction
from skuda.model.sku import BackendKind

DECODED = [
    each for each in CASES if str(each.shape) == "16x4096" or each.operation.reduces and each.shape == shapes.ODD
]


@pytest.mark.turns(3)
@pytest.mark.parametrize("extents", [(6, 64), (5, 35), (3, 150)], ids=str)
@pytest.mark.parametrize("row", [each for each in DECODED if formulas.maker_of(each.operation)], ids=str)
def test_composed_formula_is_the_operation(row, extents):
    """Peers do the work of the row, so that times may be compared: their results are the reference's bits.

    What is added up in another order, or of exponentials in other steps, is near it; a code may then be the next one.
    """
    row = Case(row.plan_class, row.types, Shape(extents), row.attributes)
    arrays = arrays_of(row)
    written = {operand.name: arrays[operand.name] for operand in row.operation.outputs}
    inputs = {name: value for name, value in arrays.items() if name not in written}
    plan = row.plan_class.select(row.descriptor(), preference=BackendKind.REFERENCE)
    plan.run(row.plan_class.args_type(**arrays))

    words = {placed.operand.name: placed.word for placed in row.operands}
    tensors = {name: value if np.isscalar(value) else _tensor(value, words[name]) for name, value in inputs.items()}
    low, high = code_range(row)
    stand_in = SimpleNamespace(case=row, q_min=low, q_max=high)
    function, arguments = formulas.composed(stand_in, tensors)
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    for (name, expected), actual in zip(written.items(), results, strict=True):
        expected = _tensor(expected, words[name])
        assert (actual.dtype, actual.shape) == (dtype_of(words[name]), expected.shape), name
        if formulas.is_bit_equal(row.operation):
            assert torch.equal(expected, actual), name
        elif DTYPES[words[name]].bits <= 8 or DTYPES[words[name]].kind == "int":
            expected, actual = (each.reshape(-1).view(torch.uint8) for each in (expected, actual))
            others = 1 if row.operation.name.startswith(("rms_norm_", "gelu_")) else 0
            if function_bound(row):  # a scale and a quotient that are less precise than C
                others = expected.numel() // 8
            assert (expected != actual).sum() <= others, name
        else:
            assert_near(actual, expected, function_bound(row))


def function_bound(row: Case) -> float:
    """How far functions of the row may be off, relative to the value; 0 where they are as precise as C."""
    short = row.operation.analysis.precise_as and row.element in HALF_BOUNDS
    return 2.0 ** HALF_BOUNDS[row.element] if short else 0.0


def assert_near(actual: torch.Tensor, expected: torch.Tensor, function: float = 0.0) -> None:
    squares = expected.double().square().nan_to_num()
    size = float(squares.sum() / squares.count_nonzero().clamp(min=1)) ** 0.5  # of sparse gradients most are 0
    bound = max(8 * torch.finfo(expected.dtype).eps, 4 * function)
    torch.testing.assert_close(actual, expected, rtol=bound, atol=bound * size, equal_nan=True)


def test_every_operation_of_the_catalog_has_a_peer():
    """One that is added later needs none; these have one."""
    known = {each.operation.category for each in CASES if formulas.maker_of(each.operation)}
    assert known >= {"quantization", "binary", "activation", "normalization", "softmax", "fused", "reduction"}
    without = {each.operation.function for each in CASES if formulas.maker_of(each.operation) is None}
    assert not without & {
        "softmax_backward",
        "rms_norm",
        "sum",
        "logsumexp",
        "dynamic_quantize_asymmetric_per_group",
        "layer_norm_backward",
        "gelu_dynamic_quantize_per_token",
    }


def forward_of(row: Case) -> Case:
    return torch_gradients.forward_of(row) if row.operation.direction is Direction.BACKWARD else row


def torch_rows(cases: Sequence[Case] = CASES) -> dict[str, Case]:
    """Of every operation for whose forward pass torch has a function, or two or three, a row of f32 if there is one."""
    found: dict[str, Case] = {}
    for row in sorted(cases, key=lambda each: each.element != "f32"):
        found.setdefault(row.operation.function, row)
    finders = torch_functions.function_of, torch_functions.composed_of
    return {name: row for name, row in found.items() if any(find(forward_of(row)) for find in finders)}


FORMS = torch_rows(suite.cases(CATALOG, ["*_without_*"]))
ROWS = torch_rows()
NO_GRADIENT = {"step_backward"}  # torch has none of heaviside
# torch's formulas lose digits near 0 and 1, and its sums of losses of both signs have another order.
LESS_PRECISE = {"asin_backward", "acos_backward", "atanh_backward", "sinc_backward",
                "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"}  # fmt: skip
# torch says otherwise: acosh has a slope below -1, ldexp has none where the exponent is negative.
OTHERWISE = {"acosh_backward", "ldexp_backward"}


def compared_with_torch(row: Case, monkeypatch) -> tuple[list[torch.Tensor], tuple | None, dict]:
    """What the reference computes of a small row, what torch does, if it does, and the row's operands."""
    row = Case(row.plan_class, row.types, Shape(shapes.fitted((6, 70), row.operation)), row.attributes)
    arrays, words = arrays_of(row), {placed.operand.name: placed.word for placed in row.operands}
    operands = {name: each if np.isscalar(each) else _tensor(each, words[name]) for name, each in arrays.items()}
    monkeypatch.setattr(formulas, "tensors_of", lambda made: operands)
    plan = row.plan_class.select(row.descriptor(), preference=BackendKind.REFERENCE)
    low, high = code_range(row)
    run = lambda: plan.run(row.plan_class.args_type(**arrays))  # noqa: E731
    made = SimpleNamespace(case=row, q_min=low, q_max=high, run=run)
    call = formulas.native(made) or formulas.few(made)
    results = call and call()
    run()
    expected = [operands[operand.name] for operand in row.operation.outputs]
    return expected, results if results is None or isinstance(results, tuple) else (results,), operands


@pytest.mark.filterwarnings("ignore:reduction")  # of kl_div, whose mean torch means to change
@pytest.mark.parametrize("function", ROWS | FORMS)
def test_functions_of_torch_and_their_gradients_give_the_results_of_the_operation(function, monkeypatch):
    """Random ones as many, of the same types. Those that autograd hands on are written out."""
    row = (ROWS | FORMS)[function]
    everything, results, operands = compared_with_torch(row, monkeypatch)
    if results is None:
        assert function in NO_GRADIENT
        return
    like = function in OTHERWISE or any(operand.name == "seed" for operand in row.operation.inputs)
    given = {each.data_ptr() for each in operands.values() if isinstance(each, torch.Tensor)}
    for expected, actual in zip(everything, results, strict=True):
        if actual is None:
            continue
        assert (actual.dtype, actual.numel()) == (expected.dtype, expected.numel())
        actual = actual.reshape(expected.shape)
        if row.operation.direction is Direction.BACKWARD:
            assert actual.data_ptr() not in given
        if not like and expected.is_floating_point() and expected.itemsize > 1:
            assert_near(actual, expected, 2**-17 if suite.whole_name(row.operation) in LESS_PRECISE else 0.0)
        elif not like:
            assert torch.equal(actual, expected)


def test_operations_without_a_function_of_torch_are_these():
    """Beside quantization and what is fused, most of which is composed."""
    others = {row.operation.function for row in CASES if row.operation.category not in ("quantization", "fused")}
    assert others - ROWS.keys() == {
        "popcount", "clz", "ctz", "cbrt", "cbrt_backward", "cast_saturate", "silu_mul", "silu_mul_backward",
        "stochastic_round", "cumsum_exclusive", "cumsum_exclusive_backward", "linear_recurrence",
        "linear_recurrence_backward",
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("element", ["f16", "i32"])
def test_functions_of_torch_take_other_element_types(element, monkeypatch):
    rows = {row.operation.function: row for row in CASES if row.element == element and row.operation.function in ROWS}
    for function in sorted(rows.keys() - {"floor_divide", "remainder"}):  # of zeros, which torch refuses on the CPU
        _, results, _ = compared_with_torch(rows[function], monkeypatch)
        assert results or function in NO_GRADIENT, function


def test_a_gradient_runs_its_forward_pass_on_the_stream_that_is_current(monkeypatch):
    """Once on each: a graph captures the backward pass alone."""
    streams, passes = iter((1, 1, 2, 2, 1)), []
    monkeypatch.setattr(torch_gradients, "_stream", lambda device: next(streams))
    row = ROWS["square_backward"]
    row = Case(row.plan_class, row.types, Shape((6, 70)), {})
    operands = {name: torch.from_numpy(each) for name, each in arrays_of(row).items()}
    square = lambda of: passes.append(of) or of["input"] ** 2  # noqa: E731
    call = torch_gradients.call_of(SimpleNamespace(case=row), operands, lambda forward: square)
    for expected in (1, 2, 2, 2):
        call()
        assert len(passes) == expected


def _tensor(array: np.ndarray, word: str) -> torch.Tensor:
    """The same memory."""
    return torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype_of(word)).view(array.shape)


class OnHost(np.ndarray):
    """A NumPy array in place of CuPy's."""

    def get(self):
        return self.view(np.ndarray)


SIZES = [(5, 64), (600, 3), (1500, 3), (2101,), (5001,), (40, 1500)]


@pytest.mark.parametrize(
    ("row", "extents"),
    [(row, size) for row in CASES if str(row) in SAMPLED for size in SIZES
     if len(size) > 1 or not row.operation.analysis.over or row.reads_only and not row.attributes],
    ids=str,
)  # fmt: skip
def test_samples_at_both_ends_are_compared_with_the_reference(row, extents, monkeypatch):
    stand_in = SimpleNamespace(ascontiguousarray=lambda array: np.ascontiguousarray(array).view(OnHost))
    monkeypatch.setattr(problem, "cupy", stand_in)
    monkeypatch.setattr(problem, "_SAMPLE", 2048)
    row = Case(row.plan_class, row.types, Shape(extents), row.attributes)
    made = object.__new__(problem.Problem)
    made.case, made.arrays = row, arrays_of(row)
    row.plan_class.select(row.descriptor(), preference=BackendKind.REFERENCE).run(
        row.plan_class.args_type(**made.arrays)
    )
    assert made._reference_fault() is None
    for name in (operand.name for operand in row.operation.outputs):
        for position in (0, -1):
            raw = made.arrays[name].reshape(-1).view(np.uint8)
            raw[position] ^= 1
            where = r"( in (rows|axis 1,) \d+ to \d+)?"
            assert re.match(rf"{name}: 1 of \d+ bytes{where} are not the reference's", made._reference_fault())
            raw[position] ^= 1


def test_exponentials_of_a_large_tensor_are_left_to_other_tests(monkeypatch):
    """NumPy would take half a minute; sums of as many elements are compared."""
    compared = []
    monkeypatch.setattr(problem.Problem, "_sample_fault", lambda made, *span: compared.append(made.case))
    made = object.__new__(problem.Problem)
    for function in ("sum", "logsumexp"):
        made.case = case(function, "f16", str(shapes.FLAT))
        assert made._reference_fault() is None
    assert [each.operation.name for each in compared] == ["sum"]
    made.case = Case(made.case.plan_class, made.case.types, Shape((4096,)), {})
    assert made._reference_fault() is None and len(compared) == 2
    made.case = case("dynamic_quantize_per_tensor", "f16", "16384x4096")  # of stages, without exponentials
    assert made._reference_fault() is None and len(compared) == 3


def test_agreement_of_sums_is_within_their_roundings():
    run = pytest.importorskip("skuda.bench.run")
    ours = torch.tensor([1.0, 100.0, 1e-3, float("inf"), float("nan")])
    theirs = ours * (1 + 1e-6) + torch.tensor([0, 0, 1e-6, 0, 0])
    assert run._equal(ours, theirs, near=True).tolist() == [True, True, True, True, True]
    assert run._equal(ours, theirs, near=False).tolist() == [False, False, False, True, False]
    assert run._equal(ours[:3], theirs[:3] + 1, near=True).tolist() == [False, False, False]
    assert run._equal(torch.tensor([1, 2]), torch.tensor([1, 3]), near=True).tolist() == [True, False]


def test_agreement_leaves_out_what_a_peer_keeps_to_itself(monkeypatch):
    run = pytest.importorskip("skuda.bench.run")
    row = ROWS["batch_norm_training"]
    ours = {operand.name: torch.ones(2) for operand in row.operation.outputs}
    monkeypatch.setattr(tensors, "tensors_of", lambda made: ours)
    results = (torch.ones(2), None, None, torch.ones(2), torch.zeros(2))
    assert run.agreement(results, SimpleNamespace(case=row)) == pytest.approx(2 / 3)
