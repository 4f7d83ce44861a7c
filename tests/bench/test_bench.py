"""What of the bench needs no GPU: its suite, the formulas that peers compute, its report, its arguments."""

from __future__ import annotations

import json
import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skuda.bench import cli, formulas, problem, report, suite, targets
from skuda.bench.suite import Case, Layout, Shape, SizeClass
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
        elif DTYPES[placed.word].narrow_float:
            arrays[name] = rng.integers(0, 120, placed.shape).astype(np.uint8).view(storage)
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
}

# ---- the suite ----


@pytest.mark.parametrize("quick", [False, True])
def test_every_operation_at_every_element_type(quick):
    maps = [operation for operation in CATALOG.operations if not operation.over]
    expected = {(operation.function, word) for operation in maps for word in ("f64", "f32", "f16", "bf16")}
    assert {(c.operation.function, c.element) for c in suite.cases(CATALOG, quick=quick)} == expected


def test_every_integer_type_axis_and_group():
    assert {each.types["Q"] for each in CASES if "Q" in each.types} == {"s8", "u8", "s4", "u4", "e4m3", "e5m2"}
    assert {each.variant for each in CASES} == {"", "axis 0", "axis 1", "group 32", "group 64", "group 128"}


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


@pytest.mark.parametrize("extents", [(6, 64), (5, 35)], ids=str)
@pytest.mark.parametrize("row", [each for each in CASES if str(each.shape) == "16x4096"], ids=str)
def test_composed_formula_is_the_operation(row, extents):
    """Peers do the work of the row, so that times may be compared: their results are the reference's bits."""
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
        assert actual.dtype is formulas.dtype_of(words[name])
        if DTYPES[words[name]].narrow_float:
            actual, expected = actual.view(torch.uint8), expected.view(np.uint8)
            words[name] = "u8"
        assert torch.equal(_tensor(expected, words[name]), actual), name


def _tensor(array: np.ndarray, word: str) -> torch.Tensor:
    raw = torch.from_numpy(array.reshape(-1).view(np.uint8).copy())
    return raw.view(formulas.dtype_of(word)).view(array.shape)


# ---- what is checked beside the timing ----


class OnHost(np.ndarray):
    """A NumPy array in the place of CuPy's."""

    def get(self):
        return self.view(np.ndarray)


@pytest.mark.parametrize("extents", [(5, 64), (600, 3), (1500, 3), (2101,), (5001,)], ids=str)
@pytest.mark.parametrize("row", [each for each in CASES if str(each) in SAMPLED], ids=str)
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
            assert re.match(rf"{name}: 1 of \d+ bytes in rows \d+ to \d+", made._reference_fault())
            raw[place] ^= 1


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
    assert targets.family({"operation": "fake_quantize_per_group_backward"}) == "fake quantize"
    assert targets.family({"operation": "lerp_tensor_backward"}) == "lerp"
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
        (["--record", "--quick"], "--record is for a whole run"),
        (["--record", "--op", "lerp"], "--record is for a whole run"),
        (["--json", "no/such/folder.json"], "there is no folder no/such"),
    ],
)
def test_arguments_are_checked_before_the_gpu_is_looked_for(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(cli, "cuda_available", lambda: pytest.fail("too late"))
    assert main(["bench", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_layout_words_are_in_the_shapes_names():
    assert str(Shape((4, 5))) == "4x5" and str(Shape((4, 5), Layout.TRANSPOSED)) == "4x5 transposed"
