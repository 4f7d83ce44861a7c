"""What the bench says of its rows: verdicts, tables, README's lines, the plot."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from bench_rows import made_row, reduced_row

from skuda.bench import cli, markdown, report, targets
from skuda.generated import CATALOG


def test_verdicts(result):
    large, transposed = targets.verdicts(result["rows"])
    assert (large.name, large.rows, large.median, large.worst, large.below) == (
        "64 MB and more", 3, pytest.approx(0.98), pytest.approx(0.95), 0,
    )  # fmt: skip
    assert large.met and large.worst_row["shape"] == "16384x8192"
    assert (transposed.median, transposed.worst, transposed.below, transposed.met) == (0.4, 0.4, 1, False)


def test_peers_that_are_ahead(result):
    eager, compiled = targets.beside(result["rows"])
    assert [(row["shape"], ratio) for row, ratio in eager.ahead] == [("4096x4096 transposed", 0.9)]
    assert [(row["shape"], ratio) for row, ratio in compiled.ahead] == [("16384x4095", 0.8)]
    assert (compiled.peer, compiled.rows, compiled.best) == ("torch.compile", 3, 0.8)
    assert compiled.mean == pytest.approx(math.cbrt(2 * 0.8 * 1.5)) and not compiled.met
    near = made_row("16384x4096", "64 MB and more", 50.0, 49.0, compile=48.0)  # as far off as measurements are
    [compiled] = targets.beside([near])
    assert compiled.best < 1 and compiled.ahead == []


def test_few_rows_may_take_the_time_of_a_reduction():
    few = reduced_row("softmax", "softmax", "16x4096", "few rows", 2.0, 1.5)
    assert targets.held(few) == pytest.approx(1.5 / 1.6)
    assert targets.held({**few, "class": "rows of 64 to 16384"}) == pytest.approx(0.75)
    assert targets.held({**few, "copy_us": 1.9}) == 1


def test_reductions_are_reported_beside_their_floor(reducing):
    text = "\n".join(" ".join(line.split()) for line in report.text(reducing).splitlines())
    for expected in (
        "r: of reductions to few values, time of a kernel that only reads so many bytes, over ours",
        "16384x4096 f16 s8 201.0 50.0 0.960 - - 2.00 0.80",
        "16384x4096 f16 s8 axis 0 201.0 50.0 0.900r",
        "rows of 64 to 16384 2 0.780 0.950 0.600 0.880 1 missed; worst: softmax f16 s8 16384x4095",
        "columns 1 0.900 0.900 0.900 0.900 0 met; worst: sum f16 s8 16384x4096 axis 0",
        "Triton: no triton",
        "0.50 of ours: Triton, softmax f16 s8 16384x4095",
    ):
        assert expected in text
    assert "Dynamic per tensor" not in text


def test_graphs_of_small_problems_are_said_where_rows_are_of_them(reducing):
    assert "a graph of" not in report.text(reducing)  # a record from before, too
    rows = [reducing["rows"][0] | {"calls": 20}, *reducing["rows"][1:]]
    assert "under 16 MB: each run is a graph of 20 calls" in report.text({**reducing, "rows": rows})


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
        "64 MB and more 3 0.980 0.950 0.950 0.900 0 met; worst: quantize_per_token f16 s8 16384x8192",
        "transposed views 1 0.400 0.600 0.400 0.600 1 missed; worst: quantize_per_token f16 s8 4096x4096",
        "torch eager: geometric mean of its time over ours 2.68, wanted 2.0; ahead by more than 5% in 1 of 2 rows",
        "torch.compile: geometric mean of its time over ours 1.34, wanted 1.5; ahead by more than 5% in 1 of 3 rows",
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

    [line] = plot.lines(result["rows"])
    assert (line.name, line.peer) == ("quantize", "torch.compile")
    assert line.ratio == pytest.approx(math.cbrt(2 * 0.8 * 1.5))  # though torch eager is faster in a row
    assert line.peers == pytest.approx(line.ours / line.ratio)
    gradient = made_row("16384x4096", "64 MB and more", 50.0, 40.0) | {"operation": "sum_backward", "peers": {}}
    [line] = plot.lines([gradient])
    assert (line.name, line.shares, line.peer, line.peers) == ("reduction, gradient", (pytest.approx(0.8),), "", 0)
    eager = gradient | {"peers": {"torch eager": {"us": 100.0}}}
    assert [(each.peer, each.peers) for each in plot.lines([eager])] == [("torch eager", pytest.approx(0.4))]
    every = [gradient | {"operation": each.function} for each in CATALOG.operations if each.is_whole]
    assert len(plot.lines(every)) < 40  # legible, however many operations there are
    assert targets.family({"operation": "fake_quantize_per_group_backward"}) == "fake quantize"
    assert targets.family({"operation": "lerp_tensor_backward"}) == "lerp"
    result["rows"].append(reduced_row("softmax", "softmax", "16384x4096", "rows of 64 to 16384", 50.0, 48.0))
    plot.draw(tmp_path / "share.png", result)
    picture = imread(tmp_path / "share.png")[..., :3]
    assert picture.shape[1] == 1000 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 4
