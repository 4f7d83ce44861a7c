"""`skuda check`: is the catalog what the spec and the generator make, and is there an oracle for every operation?"""

from __future__ import annotations

import argparse
import difflib
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from skuda.codegen import element_types
from skuda.codegen.commands import options
from skuda.codegen.output import Change, changes

if TYPE_CHECKING:
    from skuda.codegen.program import Spec

DIFF_LINES = 40
_MEANING = {
    "missing": "not there",
    "stale": "not what the spec and the generator make now",
    "edited": "edited by hand; the change belongs in the spec or in a template",
    "orphan": "no operation makes it any more",
    "foreign": "not written by the generator, which needs that name; move it away",
}


def add_parser(subparsers) -> None:
    """Adds `check`."""
    parser = subparsers.add_parser(
        "check",
        help="say where the catalog is not what the spec and the generator make",
        description="Render the spec into memory and compare every file. Where there are tests/oracles "
        "beside the spec, there must be an oracle for each operation too; it is looked for, and run by the tests "
        "alone. With --evidence, each CUDA kernel must have "
        "given the reference's bits on a GPU, with its source as it is now (or one of the same machine code, as "
        "`skuda evidence --carry` found it), or stand by the rule of skuda.verification.coverage. "
        "Sources are compared, nothing is compiled. The exit status is 1 if something is wrong.",
    )
    options.add_arguments(parser)
    parser.add_argument(
        "--evidence", action="store_true", help="list kernels that no GPU has verified since their source changed"
    )
    parser.add_argument(
        "--full", action="store_true",
        help=f"whole diffs (default: {DIFF_LINES} lines of each), and the name of every kernel",
    )  # fmt: skip
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda check`."""
    from skuda.codegen.render import rendered_files

    options.require_spec(args.spec)
    spec, files = rendered_files(args.spec)
    for note in spec.notes:
        print(note)
    drift = changes(args.out, files)
    for change in drift:
        print(f"{args.out / change.path}: {change.kind}: {_MEANING[change.kind]}")
        for line in _diff(change, args.out, args.full):
            print(f"  {line}")
    if drift:
        print(
            f"{len(drift)} of {len(files)} files are not as {args.spec.name} wants them; "
            f"mend: {options.command(args)}"
        )
    complaints = _oracle_complaints(args.spec, spec)
    if element_types.stale():
        complaints.append(f"{element_types.header()}: not what the table of types makes; mend: {options.command(args)}")
    for complaint in complaints:
        print(complaint)
    unverified = _unverified(args, spec) if args.evidence else 0
    if drift or complaints:
        return 1
    total = f"{options.count(len(spec.rows), 'operation')}, {options.count(len(files), 'file')}"
    print(f"{args.out}: {total}, all as {args.spec.name} wants them")
    return int(unverified > 0)


def _unverified(args: argparse.Namespace, spec: Spec) -> int:
    """Lists the kernels of a spec that are not verified.

    Returns:
        How many there are.
    """
    from skuda.codegen.commands import verified
    from skuda.codegen.one_element import parts
    from skuda.verification.coverage import RULE
    from skuda.verification.evidence import Records, kernels
    from skuda.verification.findings import State

    records = Records(args.out.resolve())
    programs = [program for row in spec.rows for each in row.every for program in each.programs]
    programs += [part for program in programs for part in parts(program)]
    wanted = kernels(program.operation for program in programs)
    for line in verified.complaints(records, wanted, args.full):
        print(line)
    missing = len(records.unverified(wanted))
    gpus = ", ".join(record["gpu"] for record in records.verified) or f"no record in {records.folder}"
    standing = sum(records.state(each.source, symbol) is State.COVERED for symbol, each in wanted.items())
    by_rule = f", {standing} covered by the rule: {RULE}" if standing else ""
    ran = len(wanted) - missing - standing
    print(f"evidence: {ran} of {options.count(len(wanted), 'kernel')} verified{by_rule} ({gpus})")
    return missing


def _diff(change: Change, folder: Path, full: bool) -> list[str]:
    """What is there against what should be; of a file on one side only, nothing unless all is wanted."""
    if not full and None in (change.wanted, change.found):
        return []
    name = (folder / change.path).as_posix()
    texts = [[] if text is None else text.splitlines() for text in (change.found, change.wanted)]
    lines = difflib.unified_diff(*texts, f"{name} (there)", f"{name} (wanted)", lineterm="")
    if full:
        return list(lines)
    shown = list(islice(lines, DIFF_LINES))
    rest = sum(1 for _ in lines)
    return [*shown, f"... {rest} more lines: --full"] if rest else shown


def _oracle_complaints(spec_path: Path, spec: Spec) -> list[str]:
    from skuda.codegen.commands import oracles

    folder = spec_path.parent / "tests" / "oracles"
    return oracles.complaints(folder, spec.rows) if folder.is_dir() else []
