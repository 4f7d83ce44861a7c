"""`skuda bench`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from skuda.bench import drawn, report, suite
from skuda.bench.interrupts import stopped_like_an_interrupt
from skuda.errors import InvalidProblem, Unsupported, optional_module
from skuda.launch.kernel import cuda_available

if TYPE_CHECKING:
    from skuda.launch.registry import Catalog
    from skuda.verification import evidence

ROUNDS, QUICK_ROUNDS = 30, 15


def add_parser(subparsers) -> None:
    """Adds `bench`. Sets `handler`, a function from arguments to exit status."""
    parser = subparsers.add_parser(
        "bench",
        help="measure the kernels against a copy of the same bytes",
        description="Measure every operation at every float type over a fixed suite of shapes, beside a copy "
        "of the same bytes, torch eager, torch.compile, Triton kernels and Liger, and what a call costs the host. "
        "Needs a GPU. The exit status is 1 where a row failed.",
    )
    parser.add_argument(
        "--op", metavar="NAME", action="append", default=[], dest="operations",
        help="only this operation, both directions, or this function, or its form without optional inputs, as "
        "cross_entropy_without_weight, which is measured where it is named; * is allowed; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", metavar="TYPE", action="append", default=[], dest="elements",
        help="only this float type (f64, f32, f16, bf16); may be given more than once",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer shapes and fewer runs of each")
    parser.add_argument(
        "--models", action="store_true",
        help="the shapes of language models and of image models, of bf16 and f32, in place of the suite's",
    )  # fmt: skip
    parser.add_argument(
        "--drawn", metavar="COUNT", type=int, default=0,
        help="so many rows in place of the suite's, whose operation, type and extents are drawn at random",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, help="what --drawn is drawn by; today's date as a number, 20261123, if not given"
    )
    parser.add_argument("--host", action="store_true", help="only what a call costs the host")
    parser.add_argument(
        "--counters", action="store_true",
        help="count instead of timing: what Nsight Compute says is busy in each row, the memory or issue slots",
    )  # fmt: skip
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)  # the process that ncu watches
    parser.add_argument(
        "--cpu", action="store_true", help="only calls on the CPU, beside torch's; needs no GPU"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write everything that was measured")
    parser.add_argument(
        "--record", action="store_true",
        help="write the record of this GPU, evidence/bench-<gpu>.json and .txt beside the catalog; with --op, the "
        "rows of these operations in it; with --host, what calls cost; of an interrupted run, the operations that it "
        "has all rows of",
    )  # fmt: skip
    parser.add_argument(
        "--plot", metavar="FILE", type=Path,
        help="draw the share of a copy's speed by family of operations, ours and the best peer's (PNG)",
    )  # fmt: skip
    parser.add_argument(
        "--from", metavar="RECORD", type=Path, dest="record_file",
        help="measure nothing: draw --plot from a record of an earlier run, or the newest in a folder; needs no GPU",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", metavar="N", type=int, default=1,
        help="share the rows out to N GPUs, which must be alike; a row, its copy and its peers run on one of them",
    )  # fmt: skip
    parser.add_argument("--part", metavar="I/N", help=argparse.SUPPRESS)  # what --gpus gives each of its processes
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda bench`.

    Raises:
        InvalidProblem: there is no such operation or type, or the options contradict each other.
        Unsupported: there is no GPU.
        MissingDependency: rich, or matplotlib for a plot, is not installed.
    """
    from skuda.generated import CATALOG

    if args.gpus < 1 or (args.gpus > 1 and args.host):
        raise InvalidProblem(f"--gpus is {args.gpus}: expected a positive number, and 1 with --host")
    other_rows = args.models or args.drawn
    if args.host and (args.operations or args.elements or args.plot or other_rows):
        raise InvalidProblem(
            "--host measures calls, not kernels: give none of --op, --dtype, --models, --drawn, --plot with it"
        )
    if args.record and (args.elements or args.quick or other_rows):
        raise InvalidProblem(
            "--record is for all rows of operations: give none of --dtype, --quick, --models, --drawn with it"
        )
    if args.counters and (args.host or args.record or args.plot or args.gpus > 1):
        raise InvalidProblem("--counters counts on one GPU: give none of --host, --record, --plot, --gpus with it")
    if args.drawn < 0 or (args.models and args.drawn) or (args.seed is not None and not args.drawn):
        raise InvalidProblem("--drawn is a positive number of rows, without --models; --seed is for --drawn")
    if args.cpu:
        return on_cpu(args)
    if args.record_file:
        return plot_of(args)
    cases = [] if args.host else cases_of(args, CATALOG)
    for path in filter(None, (args.json, args.plot)):
        if not path.parent.is_dir():
            raise InvalidProblem(f"{path}: there is no folder {path.parent}")
    if not cuda_available():
        raise Unsupported("skuda bench: no CUDA device here; `skuda doctor` says what is missing")
    if args.plot:
        _require("matplotlib")
    begun = time.perf_counter()
    if args.counters or args.counted:
        return count_them(args, cases)
    if args.part:
        part, parts = map(int, args.part.split("/"))
        cases = cases[part::parts]
    with stopped_like_an_interrupt():
        result = shared_out(args, cases) if args.gpus > 1 else measure(args, cases)
    print(report.text(result))
    written = {args.json: as_json(result)} if args.json else {}
    whole = not result.get("interrupted")
    if not whole:
        print(f"interrupted after {len(result['rows'])} of {len(cases)} rows; the plot is as it was")
        result = of_whole_operations(result, cases)
    if args.record and (whole or result["rows"]):
        stem = _records().path("bench", result["machine"]["gpu"])
        stem.parent.mkdir(exist_ok=True)
        if (args.operations or args.host or not whole) and stem.with_suffix(".json").exists():
            known = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
            result = joined(known, result, suite.cases(CATALOG, ["*"]))
        written |= {stem.with_suffix(".json"): as_json(result), stem.with_suffix(".txt"): report.text(result) + "\n"}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    if args.plot and whole:
        _draw(args.plot, result)
    print(f"{time.perf_counter() - begun:.0f} s in all")
    return int(not whole or any("error" in row for row in result.get("rows", ())))


def cases_of(args: argparse.Namespace, catalog: Catalog) -> list[suite.Case]:
    """The rows that the options choose."""
    if args.drawn:
        return drawn.cases(catalog, args.drawn, seed_of(args), args.operations, args.elements)
    return suite.cases(catalog, args.operations, args.elements, args.quick, args.models)


def chosen_by(args: argparse.Namespace) -> list[str]:
    """The options that choose rows, for a process of its own."""
    chosen = [f"--op={name}" for name in args.operations] + [f"--dtype={word}" for word in args.elements]
    chosen += ["--quick"] * args.quick + ["--models"] * args.models
    return chosen + ([f"--drawn={args.drawn}", f"--seed={seed_of(args)}"] if args.drawn else [])


def count_them(args: argparse.Namespace, cases: list[suite.Case]) -> int:
    """Prints what is busy in each row.

    Raises:
        Unsupported: `ncu` is not on the path, or could not count, say for want of the right to.
    """
    from skuda.bench import counters

    if args.counted:
        counters.run(cases)
        return 0
    rows = counters.counted(chosen_by(args), cases)
    print("\n".join(counters.table(rows)))
    if args.json:
        args.json.write_text(as_json({"rows": rows}), encoding="utf-8")
        print(f"wrote {args.json}")
    return 0


def seed_of(args: argparse.Namespace) -> int:
    """What rows are drawn by."""
    return int(date.today().strftime("%Y%m%d")) if args.seed is None else args.seed


def on_cpu(args: argparse.Namespace) -> int:
    """Measures calls on the CPU.

    Raises:
        InvalidProblem: another option than --json is given.
        Unsupported: there is no C++ compiler.
        MissingDependency: torch is not installed.
    """
    others = args.host, args.operations, args.elements, args.models, args.drawn, args.plot, args.record
    if any(others) or args.record_file:
        raise InvalidProblem("--cpu measures calls on the CPU alone: give none but --json with it")
    optional_module("torch", "measuring calls on the CPU", "torch")
    from skuda.bench import cpu

    result = cpu.measure()
    print(cpu.text(result))
    if args.json:
        args.json.write_text(as_json(result), encoding="utf-8")
        print(f"wrote {args.json}")
    return 0


def plot_of(args: argparse.Namespace) -> int:
    """Draws the picture of a record.

    Raises:
        InvalidProblem: --plot is missing, or the file is no record of the bench.
        MissingDependency: matplotlib is not installed.
    """
    if not args.plot:
        raise InvalidProblem("--from draws a picture: say where to by --plot")
    files = [args.record_file]
    if args.record_file.is_dir():
        files = sorted(args.record_file.glob("bench-*.json"))
    try:
        result = report.newest(json.loads(file.read_text(encoding="utf-8")) for file in files)
    except (ValueError, KeyError, TypeError, AttributeError):
        result = None
    if result is None:
        raise InvalidProblem(f"{args.record_file}: expected a record that `skuda bench --json` or --record wrote")
    _draw(args.plot, result)
    return 0


def _draw(path: Path, result: dict[str, Any]) -> None:
    _require("matplotlib")
    from skuda.bench import plot  # matplotlib takes a while to import

    plot.draw(path, result)
    print(f"wrote {path}")


def joined(known: dict[str, Any], result: dict[str, Any], cases: Sequence[suite.Case]) -> dict[str, Any]:
    """A record in which the rows of a run take the position of those of the same operations.

    Args:
        known: the record so far.
        result: all rows of some operations, or none and what calls cost.
        cases: the whole suite, which says in what order rows stand; of what it has no more, none are kept.
    """
    rows = result.get("rows", [])
    measured = {row["operation"] for row in rows}
    kept = [row for row in known.get("rows", ()) if row["operation"] not in measured]
    position = {(c.operation.function, c.dtype, c.element, str(c.shape), c.variant): i for i, c in enumerate(cases)}
    found = {}
    for row in (*kept, *rows):
        key = tuple(row[name] for name in ("operation", "dtype", "element", "shape", "variant"))
        if key in position:
            found[position[key]] = row
    sources = {**known.get("sources", {}), **result.get("sources", {})}
    return {**known, **result, "sources": sources, "rows": [found[index] for index in sorted(found)]}


def of_whole_operations(result: dict[str, Any], cases: Sequence[suite.Case]) -> dict[str, Any]:
    """What an interrupted run has of sources, all of whose rows it measured."""
    source_of = {case.operation.function: case.operation.source for case in cases}
    wanted = Counter(case.operation.source for case in cases)
    found = Counter(source_of.get(row["operation"]) for row in result["rows"])
    whole = {source for source, count in wanted.items() if found[source] == count}
    rows = [row for row in result["rows"] if source_of.get(row["operation"]) in whole]
    sources = {source: digest for source, digest in result.get("sources", {}).items() if source in whole}
    return {key: value for key, value in result.items() if key != "interrupted"} | {"sources": sources, "rows": rows}


def measure(args: argparse.Namespace, cases: list[suite.Case]) -> dict[str, Any]:
    """Everything that was asked for, as it is written to JSON."""
    from skuda.bench.run import Bench, machine

    rounds = QUICK_ROUNDS if args.quick else ROUNDS
    bench = Bench(rounds, args.quick)
    result: dict[str, Any] = {"machine": machine(bench.absent), "absent": bench.absent, "rounds": rounds}
    if args.drawn:
        result["seed"] = seed_of(args)
    if cases:
        sources, records = dict.fromkeys(case.operation.source for case in cases), _records()
        result["sources"] = {source: records.digest(source) for source in sources}
        with progress(len(cases), shown=not args.part or args.part.startswith("0/")) as advance:
            result["rows"] = bench.run(cases, advance)
        if len(result["rows"]) < len(cases):
            return {**result, "interrupted": True}
    return _with_host(args, result)


def _with_host(args: argparse.Namespace, result: dict[str, Any]) -> dict[str, Any]:
    """A run of the whole suite with what a call costs the host; an interrupt there loses no row."""
    if args.operations or args.elements or args.part or args.models or args.drawn:
        return result
    from skuda.bench import host

    try:
        return {**result, "host": host.measure()}
    except KeyboardInterrupt:
        return {**result, "interrupted": True}


def shared_out(args: argparse.Namespace, cases: list[suite.Case]) -> dict[str, Any]:
    """`measure` on several GPUs: a process each, which measures every n-th row; then what a call costs the host.

    Raises:
        Unsupported: a process failed, or the GPUs are not alike.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{part}.json") for part in range(args.gpus)]
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "skuda.codegen.cli", "bench", *chosen_by(args), f"--part={part}/{args.gpus}"]
                + [f"--json={file}"],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": str(part)},
                stdout=subprocess.DEVNULL,
            )
            for part, file in enumerate(files)
        ]
        try:
            for process in processes:
                process.wait()
        except KeyboardInterrupt:  # each writes what it has
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait()
        if not all(file.exists() for file in files):
            raise Unsupported(f"skuda bench: {args.gpus} GPUs were asked for, and a process on one of them failed")
        results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    gpus = {result["machine"]["gpu"] for result in results}
    if len(gpus) > 1:
        raise Unsupported(f"skuda bench: the GPUs are not alike: {', '.join(sorted(gpus))}")
    parts = [result.get("rows", []) for result in results]
    order = [(index % args.gpus, index // args.gpus) for index in range(len(cases))]
    result = {**results[0], "rows": [parts[part][turn] for part, turn in order if turn < len(parts[part])]}
    result["sources"] = {source: digest for each in results for source, digest in each["sources"].items()}
    if any(each.get("interrupted") for each in results):
        return {**result, "interrupted": True}
    return _with_host(args, result)


def _records() -> evidence.Records:
    from skuda.generated import CATALOG
    from skuda.verification import evidence  # which reads what is written here

    return evidence.Records(evidence.package_of(CATALOG))


def as_json(result: dict[str, Any]) -> str:
    """A line for each row, so that two runs can be compared with diff."""
    rows = ",\n".join(f"    {json.dumps(row)}" for row in result.get("rows", ()))
    head = json.dumps({key: value for key, value in result.items() if key != "rows"}, indent=2)
    return head.removesuffix("\n}") + (f',\n  "rows": [\n{rows}\n  ]' if rows else "") + "\n}\n"


@contextmanager
def progress(total: int, shown: bool = True) -> Iterator[Callable[[suite.Case], None]]:
    """A bar on standard error, with the row that is measured and the time left; none if that is no terminal.

    Args:
        total: how many rows there are.
        shown: whether there is to be a bar.

    Yields:
        What to call before each row.
    """
    rich = _require("rich.progress")
    console = _require("rich.console").Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description:60}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=console, transient=True, disable=not (shown and sys.stderr.isatty())) as bars:
        task, done = bars.add_task("", total=total), count()

        def advance(case: suite.Case) -> None:
            bars.update(task, completed=next(done), description=str(case)[:60])

        yield advance


def _require(module: str) -> ModuleType:
    return optional_module(module, "skuda bench", "demo")
