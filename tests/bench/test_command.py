"""The bench's command: arguments, records, several GPUs, an interrupt; no GPU is needed."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from skuda.bench import cli, report, suite
from skuda.bench.interrupts import stopped_like_an_interrupt
from skuda.bench.shapes import Layout, Shape
from skuda.codegen.cli import main
from skuda.generated import CATALOG
from skuda.verification.evidence import Records


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
    found = cli.joined(known, run, suite.cases(CATALOG, ["*"]))
    assert (found["machine"], found["host"], found["sources"]) == ("new", 1, {"a": "1", "b": "2"})
    assert sorted(found["rows"], key=str) == sorted(rows(one, 2) + rows(other, 1), key=str)
    order = [c.operation.function for c in suite.cases(CATALOG, ["*"]) if c in one + other]
    assert [row["operation"] for row in found["rows"]] == order
    host = cli.joined(found, {"machine": "newest", "host": 2}, suite.cases(CATALOG, ["*"]))
    assert host == {**found, "machine": "newest", "host": 2}


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


def test_what_was_measured_before_two_signals_is_kept(result, monkeypatch, tmp_path):
    """`timeout` sends one to the process and one to its group, and a part of a run gets one of the whole run too."""
    before = signal.getsignal(signal.SIGTERM)

    def stopped(args, cases):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        return {**result, "interrupted": True}

    monkeypatch.setattr(cli, "cuda_available", lambda: True)
    monkeypatch.setattr(cli, "measure", stopped)
    try:
        assert main(["bench", "--json", str(tmp_path / "run.json")]) == 1
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert json.loads((tmp_path / "run.json").read_text())["rows"] == result["rows"]


@pytest.fixture
def handlers():
    """Those of a process in the foreground, whatever this one was started with."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _measured(monkeypatch, *signals: int) -> list[dict[str, int]]:
    """What is measured where each row is sent some signals before it is done."""
    from skuda.bench.run import Bench

    done = []

    def row(self, case):
        for number in signals:
            signal.raise_signal(number)
        done.append(case)
        return {"row": len(done)}

    monkeypatch.setattr(Bench, "row", row)
    with stopped_like_an_interrupt():
        return Bench.run(object.__new__(Bench), suite.cases(CATALOG, ["lerp"])[:3], lambda case: None)


def test_an_interrupt_waits_for_the_row_that_is_measured(handlers, monkeypatch):
    assert _measured(monkeypatch, signal.SIGINT) == [{"row": 1}]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_two_signals_wait_for_the_row_that_is_measured(handlers, monkeypatch):
    """`timeout` sends one to the process and one to its group."""
    assert _measured(monkeypatch, signal.SIGTERM, signal.SIGTERM) == [{"row": 1}]


def test_a_second_interrupt_does_not_wait(handlers, monkeypatch):
    assert _measured(monkeypatch, signal.SIGINT, signal.SIGINT) == []


def test_an_interrupt_that_is_ignored_stays_ignored(handlers, monkeypatch):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert len(_measured(monkeypatch, signal.SIGINT, signal.SIGINT)) == 3
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_interrupt_while_calls_are_timed_loses_no_row(result, monkeypatch):
    from skuda.bench import host

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "measure", interrupted)
    args = SimpleNamespace(operations=[], elements=[], part=None, models=False, drawn=0)
    assert cli._with_host(args, result) == {**result, "interrupted": True}


def test_of_an_interrupted_run_the_record_has_operations_that_are_whole():
    """A source has a forward pass and a gradient: it is measured whole, or its rows stay those of another run."""
    cases = suite.cases(CATALOG, ["lerp", "neg"])
    rows = [{"operation": case.operation.function, "shape": str(case.shape)} for case in cases]
    of_lerp = [row for row in rows if row["operation"].startswith("lerp")]
    run = {"machine": {}, "sources": {"lerp.cu": "1", "neg.cu": "2"}, "interrupted": True}
    expected = {"machine": {}, "sources": {"lerp.cu": "1"}, "rows": of_lerp}
    assert 0 < len(of_lerp) < len(rows) - 1
    assert cli.of_whole_operations({**run, "rows": [*of_lerp, rows[-1]]}, cases) == expected
    assert cli.of_whole_operations({**run, "rows": of_lerp[1:]}, cases)["rows"] == []


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


def test_the_picture_of_a_record_needs_no_gpu(result, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "cuda_available", lambda: False)
    record, picture = tmp_path / "run.json", tmp_path / "run.png"
    record.write_text(cli.as_json(result))
    assert main(["bench", "--from", str(record), "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["bench", "--from", str(tmp_path), "--plot", str(picture)]) == 1  # a folder without any
    record.rename(tmp_path / "bench-run.json")
    assert main(["bench", "--from", str(tmp_path), "--plot", str(picture)]) == 0
    assert main(["bench", "--from", str(record)]) == 1
    assert "--from draws a picture: say where to by --plot" in capsys.readouterr().err
    record.write_text("{}")
    assert main(["bench", "--from", str(record), "--plot", str(picture)]) == 1
    assert "run.json: expected a record that `skuda bench --json` or --record wrote" in capsys.readouterr().err


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
        (["--drawn", "9", "--record"], "--record is for all rows of operations"),
        (["--drawn", "9", "--models"], "--drawn is a positive number of rows, without --models"),
        (["--seed", "9"], "--seed is for --drawn"),
        (["--counters", "--record"], "--counters counts on one GPU"),
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
