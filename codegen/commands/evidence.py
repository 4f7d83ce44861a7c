"""`skuda evidence`: the records in evidence/ as pages, as the table of README, and short for a wheel."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skuda.bench import markdown, report, targets
from skuda.codegen.attributes import FAST
from skuda.codegen.commands import carry, growth, options
from skuda.codegen.commands.verified import in_words
from skuda.errors import BadFile, InvalidProblem
from skuda.launch.registry import Catalog, catalogs
from skuda.model.operation import AS, row_of
from skuda.model.sku import Direction, split_symbol
from skuda.verification import summary
from skuda.verification.evidence import Records, package_of
from skuda.verification.findings import Result, Run, share, statements
from skuda.verification.texts import source_of

PAGE = "README.md"  # in evidence/, where a forge shows it with the folder
SPEED = "speed.md"  # beside it: the bench by operation and type
_QUICK = f"{AS}{FAST}"  # in the names of kernels that take instructions of the GPU
BEGIN, END = "<!-- evidence:begin -->", "<!-- evidence:end -->"


def add_parser(subparsers) -> None:
    """Adds `evidence`."""
    parser = subparsers.add_parser(
        "evidence",
        help="write the records of test-gpu and bench as pages, as README's table, and short for a wheel",
        description="Write what the records in evidence/ beside the catalog say into evidence/README.md and "
        "evidence/speed.md, and the bench in a few lines "
        f"into README.md there, between {BEGIN} and {END} if it has these lines. What an "
        "installed package says of its kernels goes into evidence/summary/. "
        "The page says what was found; whether a source has changed since, `skuda check --evidence` says.",
    )
    options.add_out(parser)
    carry.add_arguments(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda evidence`.

    Raises:
        BadFile: README has one of the two lines without the other.
        InvalidProblem: no catalog of that folder is loaded, or there is no such commit.
    """
    records = Records(args.out.resolve())
    if args.carry is not None:
        carry.run(args, _catalog(args.out), records)
        records = Records(args.out.resolve())
    if not (records.verified or records.measured or records.growth):
        print(f"no record in {records.folder}: nothing written")
        return 0
    wanted = {records.folder / PAGE: page(records, args.out.name)}
    if any(record.get("rows") for record in records.measured):
        wanted[records.folder / SPEED] = speed_page(records)
    readme = records.folder.parent / "README.md"
    if readme.exists():
        wanted[readme] = with_block(readme, records)
    wanted |= {records.folder / path: text for path, text in summary.texts(records).items()}
    for path, text in wanted.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return 0


def _catalog(folder: Path) -> Catalog:
    """The catalog of a folder.

    Raises:
        InvalidProblem: none of it is loaded.
    """
    for catalog in catalogs():
        if package_of(catalog).resolve() == folder.resolve():
            return catalog
    raise InvalidProblem(f"--carry: no catalog in {folder} is loaded")


def with_block(readme: Path, records: Records) -> str:
    """A README's text with the block between its two lines made anew.

    Raises:
        BadFile: one of the two lines is there without the other.
    """
    text = readme.read_text(encoding="utf-8")
    head, begin, rest = text.partition(f"{BEGIN}\n")
    old, end, tail = rest.partition(END)
    if not begin and END not in text:
        return text
    if not begin or not end:
        raise BadFile(f"{readme}: expected the line {BEGIN}, and {END} after it")
    return f"{head}{begin}{block(records)}{end}{tail}"


def block(records: Records) -> str:
    """What the newest record of the bench (of one day, the longest) and those of kernels say, as Markdown."""
    newest = report.newest(records.measured)
    parts = ["Nothing has been measured." if newest is None else "\n".join(markdown.brief(newest))]
    counts = []
    for record in records.verified:
        equal = [result.bit_equal for _, symbol, _, result in statements(record) if _QUICK not in symbol]
        counts.append(f"{sum(equal):,} of {len(equal):,} on {record['gpu']}")
    if counts:
        parts.append(f"Kernels that gave the reference's bits: {', '.join(counts)}.")
    return "\n\n".join(parts) + "\n"


def speed_page(records: Records) -> str:
    """What every record of the bench says by operation and type, in Markdown."""
    lines = [
        "<!-- Written by `skuda evidence` from the records in this folder. Do not edit. -->",
        "# Speed by operation and type",
        "",
        "Odd: widths that no vector divides, and misaligned operands. Small: under 16 MB. The rows of sum, mean, norm",
        "and logsumexp among the elementwise operations are their gradients.",
    ]
    for record in records.measured:
        if record.get("rows"):
            lines += ["", f"## {record['machine']['gpu']}", "", *markdown.lines(record), *_changed(record, records)]
    return "\n".join(lines) + "\n"


def _changed(measured: Mapping[str, Any], records: Records) -> list[str]:
    """How many rows of a bench are of other sources than those whose kernels were compared with the reference."""
    compared = {
        (source, run.digest)
        for record in records.verified
        if record["gpu"] == measured["machine"]["gpu"]
        for source, _, run, _ in statements(record)
    }
    rows = measured["rows"]
    known = {source for source, _ in compared}
    own = [(source_of(row), measured["sources"].get(source_of(row))) for row in rows]
    old = sum(each[0] in known and each not in compared for each in own)
    said = f"{old} of these {len(rows)} rows are of other sources than those whose kernels were compared last."
    return ["", said] if old else []


def page(records: Records, package: str) -> str:
    """Everything that the records say of each operation, in Markdown; from the records alone.

    Args:
        records: of the catalog.
        package: name of the folder of the generated package, which lies beside evidence/.
    """
    lines = [
        "<!-- Written by `skuda evidence` from the records in this folder. Do not edit. -->",
        "# What ran on which GPU",
        "",
        "Each kernel ran on operands of several sizes and layouts, and every byte of its outputs' memory was compared",
        "with the reference's. Finite values are the elements of float outputs that are neither NaN nor infinite in",
        "the reference; `-`: the outputs are codes, or the run did not count. The share of the copy's speed is the",
        "bench's of the same source, over its rows: median, and the worst.",
        f"Kernels with `{_QUICK}` in their names take instructions of the GPU. They may differ as docs/numerics.md",
        "says, and count as bit-equal where they differ by no more.",
        "This page says what was found then. A kernel whose source has changed since is not verified:",
        "`skuda check --evidence` lists these, and `skuda show OP` says it for each choice of types.",
    ]
    shares = _shares(records)
    for record in records.verified:
        lines += ["", f"## {record['gpu']}", "", *_runs(record)]
        lines += ["| operation | kernels | calls | finite values | result | share of copy | run | source |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for (function, source, run, verdict), results in _grouped(record).items():
            name = row_of(source.removesuffix(".cu"))  # the page of a row is that of its forms
            where = f"{run.date}, driver {run.driver}, CUDA {run.cuda}"
            lines.append(
                f"| [{function}](../{package}/docs/{name}.md) | {len(results)} | {sum(each.cases for each in results)} "
                f"| {_finite(results)} | {verdict} "
                f"| {shares.get((record['gpu'], function, run.digest), '-')} | {where} | `{run.digest[:12]}` |"
            )
    if not records.verified:
        lines += ["", "Nothing has been verified on a GPU."]
    if records.bounds:
        lines += ["", "## How far functions are off", "", *_bounds(records)]
    if records.growth:
        lines += ["", "## What a growing catalog costs", "", *growth.lines(records.growth)]
    return "\n".join(lines) + "\n"


def _runs(record: Mapping[str, Any]) -> list[str]:
    """What the runs of a record took, and how many sources the rule covers."""
    lines = []
    for run in record.get("runs", ()):
        turn = f"the covering set and turn {run['turn']} of {run['turns']}" if "turn" in run else "every kernel"
        lines.append(
            f"- {run['date']}, commit {run['commit']}, chosen from {turn}: {run['kernels']} kernels compared, "
            f"{run['bit_equal']} bit-equal."
        )
    whole = sum("left" not in each for each in record.get("covered", {}).values())
    if whole:
        lines.append(f"- Every kernel of {whole} sources ran or is covered by the rule: {record['rule']}.")
    return [*lines, ""] if lines else []


def _finite(results: Sequence[Result]) -> str:
    """How many finite values were compared; `-` where none were counted, or some kernels' were not."""
    counts = [each.finite for each in results]
    return "-" if None in counts or not sum(counts) else f"{sum(counts):,}"


def _bounds(records: Records) -> list[str]:
    """The worst distance of each function in common steps, as a table."""
    lines = [
        "Functions in common steps, in units in the last place from the exact value: the worst of so many arguments,",
        "and where it is. `skuda show OP` says whether a function's steps have changed since.",
        "",
        "| function | type | worst | at | arguments | steps back | on | steps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, word), bounds in sorted(records.bounds.items()):
        for each in bounds:
            steps = "-" if each.steps_down is None else each.steps_down
            lines.append(
                f"| {name} | {word} | {each.worst_ulp:.4f} | {each.at} | {each.arguments} | {steps} | {each.where} "
                f"| `{each.digest[:12]}` |"
            )
    return lines


def _grouped(record: Mapping[str, Any]) -> dict[tuple[str, str, Run, str], list[Result]]:
    """The result of each kernel by function, source, run and verdict."""
    found: dict[tuple[str, str, Run, str], list[Result]] = {}
    for source, symbol, run, result in statements(record):
        parts = split_symbol(symbol)
        function = parts.op + ("_backward" if parts.direction is Direction.BACKWARD else "")
        found.setdefault((function, source, run, in_words(result)), []).append(result)
    return dict(sorted(found.items(), key=lambda item: item[0][:2]))


def _shares(records: Records) -> dict[tuple[str, str, str], str]:
    """By GPU, function and digest of its source: median and worst share of the copy over the rows of the bench."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for record in records.measured:
        for row in targets.measured(record.get("rows", ())):
            key = record["machine"]["gpu"], row["operation"], record["sources"].get(source_of(row), "")
            found.setdefault(key, []).append(share(row))
    return {key: f"{statistics.median(shares):.2f}, {min(shares):.2f}" for key, shares in found.items()}
