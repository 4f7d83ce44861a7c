"""What peers compute is what an operation says, and what is checked beside the timing."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bench_rows import CASES, SAMPLED, arrays_of, case, code_range

from skuda.bench import formulas, problem, shapes
from skuda.bench.shapes import Shape
from skuda.bench.suite import Case
from skuda.bench.tensors import dtype_of
from skuda.codegen.intrinsics import HALF_BOUNDS
from skuda.model.dtypes import DTYPES
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
    size = float(expected.double().square().nan_to_num().mean().sqrt())
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


NATIVE = ("rms_norm", "rms_norm_backward", "rms_normalize", "rms_normalize_backward", "layer_norm",
          "layer_norm_backward", "standardize", "standardize_backward", "l2_normalize", "softmax", "softmax_backward",
          "log_softmax", "log_softmax_backward", "sum", "mean", "prod", "amax", "amin", "norm1", "norm2",
          "logsumexp")  # fmt: skip
OF_THEIR_NAME = ("log", "sin", "lgamma", "sqrt", "abs", "elu", "softplus", "log_sigmoid", "silu", "hardtanh", "pow",
                 "atan2", "add", "maximum", "gelu")  # fmt: skip


@pytest.mark.parametrize("function", NATIVE)
def test_torch_has_a_function_of_its_own_for_the_operation(function, monkeypatch):
    [row] = [each for each in DECODED if each.operation.function == function and each.element == "f32"
             and not each.attributes and each.shape == shapes.ODD]  # fmt: skip
    compared_with_torch(row, monkeypatch)


@pytest.mark.parametrize("function", OF_THEIR_NAME)
def test_torch_has_an_elementwise_function_of_its_own(function, monkeypatch):
    row = next(each for each in CASES if each.operation.function == function and each.element == "f32")
    compared_with_torch(row, monkeypatch)


def compared_with_torch(row: Case, monkeypatch) -> None:
    row = Case(row.plan_class, row.types, Shape((6, 70)), row.attributes)
    arrays = arrays_of(row)
    monkeypatch.setattr(formulas, "tensors_of", lambda made: {k: _tensor(v, "f32") for k, v in arrays.items()})
    results = formulas.native(SimpleNamespace(case=row, q_min=-128, q_max=127))()
    results = results if isinstance(results, tuple) else (results,)
    plan = row.plan_class.select(row.descriptor(), preference=BackendKind.REFERENCE)
    plan.run(row.plan_class.args_type(**arrays))
    for operand, actual in zip(row.operation.outputs, results, strict=True):
        assert_near(actual, _tensor(arrays[operand.name], "f32"))


def _tensor(array: np.ndarray, word: str) -> torch.Tensor:
    raw = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    return raw.view(dtype_of(word)).view(array.shape)


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
