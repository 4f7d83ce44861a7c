"""What of the bench needs no GPU: its suite, the formulas that peers compute, its report, its arguments."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from catalogs import forget_catalog, make_catalog

from skuda.bench import cli, formulas, markdown, problem, report, shapes, suite, targets
from skuda.bench.shapes import Layout, Shape, SizeClass
from skuda.bench.suite import Case
from skuda.codegen.cli import main
from skuda.dtypes import DTYPES
from skuda.errors import InvalidProblem
from skuda.evidence import Records
from skuda.generated import CATALOG
from skuda.sku import BackendKind

CASES = suite.cases(CATALOG)


def case(function: str, element: str, shape: str, variant: str = "") -> Case:
    [found] = [
        each
        for each in CASES
        if (each.operation.function, each.element, str(each.shape), each.variant) == (function, element, shape, variant)
    ]
    return found


def code_range(row: Case) -> tuple[int, int]:
    codes = DTYPES[row.types.get("Q", "s8")]
    return codes.lowest, codes.highest


def arrays_of(row: Case) -> dict:
    """Random contiguous operands in NumPy, or numbers; outputs are zeros."""
    low, high = code_range(row)
    rng = np.random.default_rng(7)
    arrays = {}
    for placed in row.operands:
        name, storage = placed.operand.name, DTYPES[placed.word].storage
        if placed.operand in row.operation.outputs:
            arrays[name] = np.zeros(placed.shape, storage)
        elif placed.operand.scalar:
            arrays[name] = 3 if placed.word == "i32" else 0.25
        elif DTYPES[placed.word].kind == "int":
            span = (-2, 3) if placed.word == "i32" else (0, 256)
            arrays[name] = rng.integers(*span, placed.shape).astype(storage)
        elif placed.operand.element == "S":
            arrays[name] = np.asarray(rng.uniform(0.5, 1.5, placed.shape) * 5 / (high - low)).astype(storage)
        else:
            arrays[name] = rng.standard_normal(placed.shape).astype(storage)
    return arrays


# One of each way in which operands share an axis, forward and back, with numbers, rows, groups, packed codes.
SAMPLED = {
    "quantize_per_tensor f16 s8 16x4096",
    "quantize_per_channel f16 s8 16x4096 axis 0",
    "quantize_per_token f16 s8 16x4096",
    "quantize_per_group f16 s4 16x4096 group 64",
    "dequantize_per_group_backward f16 16x4096 group 32",
    "lerp_tensor_backward f16 16x4096",
    "dynamic_quantize_per_token f16 s8 16x4096",
    "dynamic_quantize_asymmetric_per_group f16 s4 16x4096 group 128",
    "softmax f32 16x4096",
    "rms_norm f16 16x4096",
    "amax f16 16384x4095 axis 0",
    "sum f32 16384x4095",
    "mean f32 33554432",
}

# ---- the suite ----


@pytest.mark.parametrize("quick", [False, True])
def test_every_operation_at_every_element_type(quick):
    every = [operation.function for operation in CATALOG.operations if not operation.stage]
    expected = {(function, word) for function in every for word in ("f64", "f32", "f16", "bf16")}
    assert {(c.operation.function, c.element) for c in suite.cases(CATALOG, quick=quick)} == expected


def test_every_integer_type_axis_and_group():
    assert {each.types["Q"] for each in CASES if "Q" in each.types} == {"s8", "u8", "s4", "u4", "e4m3", "e5m2"}
    assert {each.variant for each in CASES} == {"", "axis 0", "axis 1", "group 32", "group 64", "group 128"}


def test_reductions_are_measured_where_their_kernels_differ():
    def found(function, element):
        return {
            str(each).split(" ", 1)[1]: each.size_class
            for each in CASES
            if (each.operation.function, each.element) == (function, element)
        }

    rms_norm = found("rms_norm", "f16")
    assert rms_norm["f16 262144x64"] is rms_norm["f16 16384x4096 misaligned"] is SizeClass.ROWS
    assert rms_norm["f16 1024x65536"] is rms_norm["f16 256x262144"] is SizeClass.WIDE_ROWS
    assert rms_norm["f16 1x4096"] is rms_norm["f16 256x4096"] is SizeClass.FEW_ROWS
    assert found("rms_norm", "f64").keys() == {"f64 16384x4095", "f64 16384x4096"}
    total = found("sum", "f32")
    assert total["f32 16384x4095"] is SizeClass.VALUES
    assert total["f32 16384x4096 axis 0"] is SizeClass.COLUMNS
    assert total["f32 33554432"] is SizeClass.WHOLE
    assert set(found("dynamic_quantize_per_group", "f32").values()) == {SizeClass.ROWS, SizeClass.FEW_ROWS}
    assert found("silu_mul_dynamic_quantize", "bf16") == dict.fromkeys(
        ("bf16 s8 16384x4095", "bf16 s8 16384x4096"), SizeClass.FUSED
    )


def test_the_suite_fits_its_minutes():
    assert sum(bool(each.operation.over or each.operation.stages) for each in CASES) <= 1320


@pytest.fixture(scope="module")
def unusual(tmp_path_factory):
    """Operations whose reductions the catalog may not have: gradients of columns, whole tensors, two axes of three."""
    spec = (
        "ops:\n"
        "  column_sum:\n    inputs: {x: 'T[*n, d]'}\n    outputs: {y: 'T[d] = sum(x, over=n)'}\n"
        "  fit_tensor:\n    inputs: {x: 'T[*shape]'}\n    outputs: {y: 'T[*shape] = x / max(x, over=shape)'}\n"
        "  middle:\n    inputs: {x: 'T[*n, h, w]'}\n    outputs: {y: 'T[*n, w] = sum(x, over=h)'}\n"
    )
    module = make_catalog(tmp_path_factory.mktemp("unusual"), "unusual_reductions", spec)
    yield module.CATALOG
    forget_catalog(module)


def test_what_operations_reduce_over_decides_their_shapes(unusual):
    found = {}
    for each in suite.cases(unusual, elements=["f32"]):
        found.setdefault(each.operation.name, {})[str(each.shape)] = (each.size_class, each.bytes)
    large = 16384 * 4096 * 4
    assert found["column_sum"] == {
        "16384x4095": (SizeClass.COLUMNS, 16384 * 4095 * 4 + 4095 * 4),
        "16384x4096": (SizeClass.COLUMNS, large + 4096 * 4),
    }
    assert found["fit_tensor"]["16384x4096"] == (SizeClass.PER_TENSOR, 3 * large)  # read twice
    assert found["fit_tensor"]["16x4096"] == (SizeClass.FEW_ROWS, 2 * 16 * 4096 * 4)
    assert found["middle"]["16384x64x64"] == (SizeClass.COLUMNS, large + large // 64)


def test_no_row_twice():
    assert len({str(each) for each in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("quantize_per_tensor", "f16", "4096x4096"), 4096 * 4096 * (2 + 1) + 2 + 4),
        (("quantize_per_token", "f32", "16384x4095"), 16384 * 4095 * (4 + 1) + 16384 * (4 + 4)),
        (("quantize_per_channel", "f64", "16x4096", "axis 1"), 16 * 4096 * (8 + 1) + 4096 * (8 + 4)),
        # two codes a byte; the last group of 127 is short
        (("dequantize_per_group", "f16", "4097x127", "group 32"), 4097 * (64 + 127 * 2 + 4 * (2 + 4))),
        (("quantize_per_token_backward", "f16", "256x4096"), 256 * 4096 * 3 * 2 + 256 * (2 + 4)),
        (("lerp_backward", "f32", "1000003"), 1000003 * 3 * 4 + 4),
        (("lerp_tensor", "bf16", "16384x4096 row-strided"), 16384 * 4096 * 4 * 2),
        (("dynamic_quantize_per_token", "f16", "16384x4095"), 16384 * (4095 * (2 + 1) + 4)),
        (("rms_norm", "f32", "16x4096"), 4096 * 4 * (16 + 16 + 1)),
        (("amax", "f16", "16384x4096", "axis 0"), 4096 * 2 * (16384 + 1)),
    ],
)
def test_bytes_are_what_a_kernel_must_move(row, expected):
    assert case(*row).bytes == expected


def test_layouts():
    def places(row):
        return {each.operand.name: (each.shape, each.strides, each.start, each.size) for each in row.operands}

    strided = places(case("quantize_per_token", "f16", "16384x4096 row-strided"))
    assert strided["input"] == ((16384, 4096), (8192, 1), 0, 16384 * 8192)
    assert strided["output"] == ((16384, 4096), (4096, 1), 0, 16384 * 4096)
    shifted = places(case("quantize_per_token", "f16", "16384x4096 misaligned"))
    assert shifted["input"] == shifted["output"] == ((16384, 4096), (4096, 1), 1, 16384 * 4096 + 1)
    assert shifted["scale"] == ((16384,), (1,), 0, 16384)
    transposed = places(case("quantize_per_group", "f16", "16384x4096 transposed", "group 64"))
    assert transposed["input"] == ((16384, 4096), (1, 16384), 0, 16384 * 4096)
    assert transposed["output"] == ((16384, 2048), (2048, 1), 0, 16384 * 2048)


def test_size_classes():
    assert case("quantize_per_tensor", "f16", "4096x4096").size_class is SizeClass.MIDDLE
    assert case("quantize_per_tensor", "f64", "4096x4096").size_class is SizeClass.LARGE
    assert case("lerp", "f64", "16x4096").size_class is SizeClass.SMALL
    assert case("lerp", "f16", "16384x4096 transposed").size_class is SizeClass.TRANSPOSED


def test_every_case_is_a_plan():
    for each in CASES:
        plan = each.plan_class.select(each.descriptor(), preference=BackendKind.REFERENCE)
        assert plan.stored == tuple(placed.shape for placed in each.operands)
        assert plan.words == tuple(placed.word for placed in each.operands)


def test_filters():
    def functions(*patterns):
        return {each.operation.function for each in suite.cases(CATALOG, patterns)}

    assert functions("lerp") == {"lerp", "lerp_backward"}
    assert functions("lerp_backward", "quantize_per_token") == {
        "lerp_backward", "quantize_per_token", "quantize_per_token_backward",
    }  # fmt: skip
    assert len(functions("fake_*")) == 8
    assert {each.element for each in suite.cases(CATALOG, ["lerp"], ["bf16", "f64"])} == {"bf16", "f64"}
    with pytest.raises(InvalidProblem, match="--op lirp: no such operation in the suite; there are quantize"):
        suite.cases(CATALOG, ["lerp", "lirp"])
    with pytest.raises(InvalidProblem, match="--dtype s8: expected one of f32 f64 f16 bf16"):
        suite.cases(CATALOG, ["lerp"], ["s8"])


# ---- what the peers compute ----


DECODED = [
    each for each in CASES if str(each.shape) == "16x4096" or each.operation.reduces and each.shape == shapes.ODD
]


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
        assert (actual.dtype, actual.shape) == (formulas.dtype_of(words[name]), expected.shape), name
        if formulas.is_bit_equal(row.operation):
            assert torch.equal(expected, actual), name
        elif DTYPES[words[name]].bits <= 8 or DTYPES[words[name]].kind == "int":
            expected, actual = (each.reshape(-1).view(torch.uint8) for each in (expected, actual))
            others = 1 if row.operation.name.startswith(("rms_norm_", "gelu_")) else 0
            assert (expected != actual).sum() <= others, name
        else:
            assert_near(actual, expected)


def assert_near(actual: torch.Tensor, expected: torch.Tensor) -> None:
    size = float(expected.double().square().nan_to_num().mean().sqrt())
    bound = 8 * torch.finfo(expected.dtype).eps
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


@pytest.mark.parametrize("function", NATIVE)
def test_torch_has_a_function_of_its_own_for_the_operation(function, monkeypatch):
    [row] = [each for each in DECODED if each.operation.function == function and each.element == "f32"
             and not each.attributes and each.shape == shapes.ODD]  # fmt: skip
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
    return raw.view(formulas.dtype_of(word)).view(array.shape)


# ---- what is checked beside the timing ----


class OnHost(np.ndarray):
    """A NumPy array in the place of CuPy's."""

    def get(self):
        return self.view(np.ndarray)


SIZES = [(5, 64), (600, 3), (1500, 3), (2101,), (5001,), (40, 1500)]


@pytest.mark.parametrize(
    ("row", "extents"),
    [(row, size) for row in CASES if str(row) in SAMPLED for size in SIZES
     if len(size) > 1 or not row.operation.over or row.reads_only and not row.attributes],
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
        for place in (0, -1):
            raw = made.arrays[name].reshape(-1).view(np.uint8)
            raw[place] ^= 1
            where = r"( in (rows|axis 1,) \d+ to \d+)?"
            assert re.match(rf"{name}: 1 of \d+ bytes{where} are not the reference's", made._reference_fault())
            raw[place] ^= 1


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


# ---- the report ----


PEERS = {"eager": "torch eager", "compile": "torch.compile"}


def made_row(shape, size_class, ours, copy, **peers):
    return {
        "operation": "quantize_per_token", "dtype": "f16 s8", "element": "f16", "shape": shape, "variant": "",
        "class": size_class, "bytes": 201_000_000, "ours_us": ours, "copy_us": copy,
        "peers": {PEERS[name]: {"us": us} for name, us in peers.items()},
    }  # fmt: skip


@pytest.fixture
def result():
    failed = made_row("1x4096", "under 16 MB", 1, 1)
    del failed["ours_us"]
    failed["error"] = "output: 3 of 4096 bytes in rows 0 to 1 are not the reference's"
    broken = made_row("16384x8192", "64 MB and more", 80.0, 76.0, compile=120.0)
    broken["peers"]["torch eager"] = {"error": "OutOfMemoryError: CUDA out of memory"}
    return {
        "machine": {"gpu": "Test GPU", "cuda_driver": "13000", "date": "2026-01-02", "versions": ["skuda 0"]},
        "absent": {"Triton": "no triton"},
        "rounds": 30,
        "rows": [
            made_row("16384x4096", "64 MB and more", 50.0, 49.0, eager=400.0, compile=100.0),
            made_row("16384x4095", "64 MB and more", 50.0, 50.0, compile=40.0),
            broken,
            made_row("4096x4096 transposed", "transposed views", 50.0, 20.0, eager=45.0),
            failed,
        ],
        "host": {
            "calls": 6000,
            "us": {"C launch loop": 5.0, "plan.run, prebuilt args": 6.0, "plan.run, fresh args": 10.0},
            "first_call_ms": {"cold cache": 251.0, "warm cache": 9.0},
            "first_call_import_ms": {"cold cache": 7.0, "warm cache": 6.0},
            "missing": {"torch.lerp(out=)": "no torch"},
        },
    }


def test_verdicts(result):
    large, transposed = targets.verdicts(result["rows"])
    assert (large.name, large.rows, large.median, large.worst, large.below) == (
        "64 MB and more", 3, pytest.approx(0.98), pytest.approx(0.95), 0,
    )  # fmt: skip
    assert large.met and large.worst_row["shape"] == "16384x8192"
    assert (transposed.median, transposed.worst, transposed.below, transposed.met) == (0.4, 0.4, 1, False)


def test_rows_that_lose(result):
    assert [(row["shape"], peer, ratio) for row, peer, ratio in targets.slower(result["rows"])] == [
        ("16384x4095", "torch.compile", 0.8),
        ("4096x4096 transposed", "torch eager", 0.9),
    ]
    mean, rows = targets.compile_mean(result["rows"])
    assert (mean, rows) == (pytest.approx(math.cbrt(2 * 0.8 * 1.5)), 3)
    assert targets.compile_mean([{**row, "element": "f32"} for row in result["rows"]]) is None


def reduced_row(operation, family, shape, size_class, ours, copy, **more):
    row = {**made_row(shape, size_class, ours, copy), "operation": operation, "family": family, **more}
    row["peers"] = {"Triton": {"us": 40.0}, "torch's own": {"us": 2 * ours}}
    return row


@pytest.fixture
def reducing(result):
    result["rows"] += [
        reduced_row("softmax", "softmax", "16384x4096", "rows of 64 to 16384", 50.0, 48.0),
        reduced_row("softmax", "softmax", "16384x4095", "rows of 64 to 16384", 80.0, 48.0),
        reduced_row("softmax", "softmax", "256x262144", "rows of 65536 and more", 60.0, 48.0),
        reduced_row("sum", "reduction", "16384x4096", "columns", 50.0, 48.0, read_us=45.0, variant="axis 0"),
    ]
    return result


def test_reductions_are_reported_beside_their_floor(reducing):
    text = "\n".join(" ".join(line.split()) for line in report.text(reducing).splitlines())
    for expected in (
        "r: of reductions to few values, time of a kernel that only reads so many bytes, over ours",
        "16384x4096 f16 s8 201.0 50.0 0.960 - - 2.00 0.80",
        "16384x4096 f16 s8 axis 0 201.0 50.0 0.900r",
        "rows of 64 to 16384 2 0.780 0.950 0.600 0.880 1 missed; worst: softmax f16 s8 16384x4095",
        "columns 1 0.900 0.850 0.900 0.850 0 met; worst: sum f16 s8 16384x4096 axis 0",
        "Triton: no triton",
        "0.50 of ours: Triton, softmax f16 s8 16384x4095",
    ):
        assert expected in text
    assert "Dynamic per tensor" not in text
    mean, rows = targets.compile_mean(reducing["rows"])
    assert rows == 3  # of maps


def test_readme_has_a_table_of_maps_and_one_of_reductions(reducing):
    lines = list(markdown.lines(reducing))
    assert "| | | large | odd | small | torch eager | torch.compile |" in lines
    assert "| quantize | f16 | 0.96 (0.95) | 1.00 (1.00) | - | 2.68 | 1.34 |" in lines
    groups = "64 to 16384 wide | odd | 65536 and wider | few rows"
    assert f"| | | {groups} | torch eager | torch's own | torch.compile | Triton |" in lines
    assert "| softmax | f16 | 0.96 (0.96) | 0.60 (0.60) | 0.80 (0.80) | - | - | 2.00 | - | 0.64 |" in lines
    assert "| measured | 0.78 (0.60) | 0.80 (0.80) | 0.90 (0.90) |" in lines
    assert "| verdict | missed, 1 of 2 below | missed, 1 of 1 below | met |" in lines
    only = {**reducing, "rows": reducing["rows"][-4:]}
    assert not any("both directions" in line for line in markdown.lines(only))


def test_report(result):
    lines = report.text(json.loads(json.dumps(result))).splitlines()
    assert lines[0] == "Test GPU, CUDA driver 13000, 2026-01-02; skuda 0"
    text = "\n".join(" ".join(line.split()) for line in lines)
    for expected in (
        "quantize_per_token torch eager torch.compile torch's own Triton",
        "shape dtype MB us share no triton",
        "16384x4096 f16 s8 201.0 50.0 0.980 8.00 2.00 - -",
        "16384x8192 f16 s8 201.0 80.0 0.950 OutOfMemoryEr 1.50 - -",
        "1x4096 f16 s8 201.0 output: 3 of 4096 bytes in rows 0 to 1 are not the reference's",
        "64 MB and more 3 0.980 0.970 0.950 0.920 0 met; worst: quantize_per_token f16 s8 16384x8192",
        "transposed views 1 0.400 0.600 0.400 0.600 1 missed; worst: quantize_per_token f16 s8 4096x4096",
        "torch eager: faster than ours in 1 of 2 rows",
        "torch.compile: faster than ours in 1 of 3 rows",
        "geometric mean of its time over ours 1.34 in 3 rows, wanted 1.3: met",
        "0.80 of ours: torch.compile, quantize_per_token f16 s8 16384x4095",
        "plan.run, prebuilt args 6.00 1.20",
        "torch.lerp(out=) no torch",
        "plan.run, prebuilt args: 1.20 of C launch loop, wanted at most 1.3: met",
        "plan.run, fresh args: 2.00 of C launch loop, wanted at most 1.8: missed",
        "first call of a process, cold cache: 251.0 ms after import of cupy, wanted at most 250: missed",
        "first call of a process, warm cache: 9.0 ms after import of cupy, wanted at most 10: met; 6.0 of them to "
        "import skuda",
    ):
        assert expected in text


def test_json_has_a_line_a_row(result):
    text = cli.as_json(result)
    assert json.loads(text) == result
    assert sum('"operation"' in line for line in text.splitlines()) == len(result["rows"])
    del result["rows"]
    assert json.loads(cli.as_json(result)) == result


def test_plot(result, tmp_path):
    from matplotlib.image import imread

    from skuda.bench import plot

    assert plot.points(result["rows"], "torch.compile") == {
        "16384x4096": [pytest.approx(0.49)],
        "16384x4095": [pytest.approx(1.25)],
        "16384x8192": [pytest.approx(76 / 120)],
    }
    column = made_row("16384x4096", "columns", 50.0, 40.0) | {"variant": "axis 0", "read_us": 30.0}
    assert plot.points([column], None) == {"16384x4096 axis 0": [pytest.approx(0.6)]}
    assert targets.family({"operation": "fake_quantize_per_group_backward"}) == "fake quantize"
    assert targets.family({"operation": "lerp_tensor_backward"}) == "lerp"
    result["rows"].append(reduced_row("softmax", "softmax", "16384x4096", "rows of 64 to 16384", 50.0, 48.0))
    plot.draw(tmp_path / "share.png", result)
    picture = imread(tmp_path / "share.png")[..., :3]
    assert picture.shape[1] > 600 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 4


# ---- the command ----


def test_a_run_prints_writes_and_fails_for_a_failed_row(result, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    asked = []
    monkeypatch.setattr(cli, "measure", lambda args, cases: asked.append(cases) or result)
    files = {"--json": tmp_path / "run.json", "--plot": tmp_path / "run.png"}
    options = [text for option, path in files.items() for text in (option, str(path))]
    assert main(["bench", "--op", "lerp", "--dtype", "f16", "--quick", *options]) == 1
    assert [{str(each.shape) for each in cases} for cases in asked] == [
        {str(each.shape) for each in suite.cases(CATALOG, ["lerp"], quick=True)}
    ]
    printed = capsys.readouterr().out
    assert printed.startswith(report.text(result)) and "rows that failed: 1" in printed
    assert json.loads(files["--json"].read_text()) == result
    assert files["--plot"].read_bytes().startswith(b"\x89PNG")

    del result["rows"][-1]
    assert main(["bench", "--op", "lerp"]) == 0


def test_a_whole_run_is_recorded_beside_the_catalog(result, monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    monkeypatch.setattr(cli, "measure", lambda args, cases: result)
    monkeypatch.setattr(cli, "_records", lambda: Records(tmp_path / "generated"))
    assert main(["bench", "--record"]) == 1
    assert Records(tmp_path / "generated").measured == [result]
    assert (tmp_path / "evidence" / "bench-test-gpu.txt").read_text() == report.text(result) + "\n"


class Process:
    """Stands for `skuda bench` on one of several GPUs: writes the rows of its part."""

    gpus: dict[str, str] = {}

    def __init__(self, command, env, stdout):
        options = dict(word.split("=") for word in command if "=" in word)
        args = SimpleNamespace(operations=["lerp"], elements=[], quick="--quick" in command)
        cases = suite.cases(CATALOG, args.operations, args.elements, args.quick)
        part, parts = map(int, options["--part"].split("/"))
        rows = [{"shape": str(each)} for each in cases[part::parts]]
        gpu = self.gpus.get(env["CUDA_VISIBLE_DEVICES"], "GPU")
        result = {"machine": {"gpu": gpu}, "absent": {}, "rounds": 1, "sources": {"lerp.cu": "1"}, "rows": rows}
        if gpu != "broken":
            Path(options["--json"]).write_text(json.dumps(result), encoding="utf-8")

    def wait(self):
        pass


def test_rows_of_some_operations_take_their_places_in_the_record(monkeypatch, tmp_path):
    """A run with --op replaces what the record says of these operations; the rest stays, with its own digests."""
    [one, other] = (suite.cases(CATALOG, [name], ["f16"]) for name in ("lerp", "quantize_per_token"))

    def rows(cases, us):
        names = ("dtype", "element", "variant")
        return [
            {"operation": c.operation.function, **{n: getattr(c, n) for n in names}, "shape": str(c.shape), "us": us}
            for c in cases
        ]

    gone = [{**rows(one, 1)[0], "operation": "gone"}]
    known = {"machine": "old", "host": 1, "sources": {"a": "1", "b": "1"}, "rows": gone + rows(one, 1) + rows(other, 1)}
    run = {"machine": "new", "sources": {"b": "2"}, "rows": rows(one, 2)}
    found = cli.joined(known, run, suite.cases(CATALOG))
    assert (found["machine"], found["host"], found["sources"]) == ("new", 1, {"a": "1", "b": "2"})
    assert sorted(found["rows"], key=str) == sorted(rows(one, 2) + rows(other, 1), key=str)
    order = [c.operation.function for c in suite.cases(CATALOG) if c in one + other]
    assert [row["operation"] for row in found["rows"]] == order


def test_what_was_measured_before_an_interrupt_is_kept(result, monkeypatch, tmp_path, capsys):
    from skuda.bench.run import Bench  # imports CuPy

    rows = iter([{"row": 1}, {"row": 2}])

    def row(bench, case):
        try:
            return next(rows)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(Bench, "row", row)
    measured = Bench.run(object.__new__(Bench), suite.cases(CATALOG, ["lerp"]), lambda case: None)
    assert measured == [{"row": 1}, {"row": 2}]
    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    monkeypatch.setattr(cli, "measure", lambda args, cases: {**result, "interrupted": True})
    monkeypatch.setattr(cli, "_records", lambda: Records(tmp_path / "generated"))
    assert main(["bench", "--record", "--json", str(tmp_path / "run.json")]) == 1
    assert json.loads((tmp_path / "run.json").read_text())["rows"] == result["rows"]
    assert not (tmp_path / "evidence").exists()
    assert f"interrupted after {len(result['rows'])} of" in capsys.readouterr().out


def test_rows_are_shared_out_to_gpus(monkeypatch, capsys):
    """The rows of several processes are in the suite's order again; GPUs that differ or fail are no record."""
    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    monkeypatch.setattr(cli.subprocess, "Popen", Process)
    shown = []
    monkeypatch.setattr(cli.report, "text", lambda result: shown.append(result) or "")
    assert main(["bench", "--op", "lerp", "--quick", "--gpus", "3"]) == 0
    in_order = [str(each) for each in suite.cases(CATALOG, ["lerp"], quick=True)]
    assert [row["shape"] for row in shown[0]["rows"]] == in_order
    assert shown[0]["sources"] == {"lerp.cu": "1"}
    monkeypatch.setattr(Process, "gpus", {"1": "another"})
    assert main(["bench", "--op", "lerp", "--gpus", "2"]) == 1
    assert "the GPUs are not alike: GPU, another" in capsys.readouterr().err
    monkeypatch.setattr(Process, "gpus", {"1": "broken"})
    assert main(["bench", "--op", "lerp", "--gpus", "2"]) == 1
    assert "2 GPUs were asked for, and a process on one of them failed" in capsys.readouterr().err


def test_a_missing_package_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["bench", "--plot", str(tmp_path / "run.png")]) == 1
    assert "needs the package matplotlib: pip install 'skuda[demo]'" in capsys.readouterr().err


def test_without_a_gpu_the_error_is_clear(monkeypatch, capsys):
    monkeypatch.setattr(cli, "cuda_available", lambda: False)
    assert main(["bench", "--quick"]) == 1
    assert capsys.readouterr().err == ("error: skuda bench: no CUDA device here; `skuda doctor` says what is missing\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--op", "nothing"], "--op nothing: no such operation"),
        (["--dtype", "f8"], "--dtype f8: expected one of f32 f64 f16 bf16"),
        (["--host", "--dtype", "f16"], "--host measures calls, not kernels"),
        (["--record", "--quick"], "--record is for all rows of operations"),
        (["--record", "--op", "lerp", "--dtype", "f16"], "--record is for all rows of operations"),
        (["--gpus", "0"], "--gpus is 0: expected a positive number"),
        (["--gpus", "2", "--host"], "--gpus is 2: expected a positive number, and 1 with --host"),
        (["--json", "no/such/folder.json"], "there is no folder no/such"),
    ],
)
def test_arguments_are_checked_before_the_gpu_is_looked_for(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(cli, "cuda_available", lambda: pytest.fail("too late"))
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_layout_words_are_in_the_shapes_names():
    assert str(Shape((4, 5))) == "4x5" and str(Shape((4, 5), Layout.TRANSPOSED)) == "4x5 transposed"
