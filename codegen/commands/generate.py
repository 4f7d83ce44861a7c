"""`skuda generate`: from a spec to its catalog."""

from __future__ import annotations

import argparse
import time

from skuda.codegen import element_types, output
from skuda.codegen.commands import options


def add_parser(subparsers) -> None:
    """Adds `generate`."""
    parser = subparsers.add_parser(
        "generate",
        help="write the catalog of a spec (ops.yaml)",
        description="Check a spec and write its catalog: CUDA sources, NumPy references, plans and "
        "documentation. Only files whose text changes are written; nothing is where the spec has a mistake. "
        "Files in the folder that the generator did not write stay as they are.",
    )
    options.add_arguments(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda generate`."""
    start = time.perf_counter()
    options.require_spec(args.spec)
    element_types.bring_up_to_date()
    if output.up_to_date(args.out, args.spec):
        print(f"{args.out}: up to date ({time.perf_counter() - start:.2f} s)")
        return 0
    from skuda.codegen.render import generate  # Jinja and YAML: not needed above

    outcome = generate(args.spec, args.out)
    for note in outcome.notes:
        print(note)
    for change in outcome.changed:
        if change.edited:
            what = "removed" if change.wanted is None else "overwritten"
            print(f"{args.out / change.path} was edited by hand: {what}")
    removed = sum(change.wanted is None for change in outcome.changed)
    written = len(outcome.changed) - removed
    total = f"{options.count(outcome.rows, 'operation')}, {options.count(outcome.files, 'file')}"
    print(f"{total}: {written} written, {removed} removed in {time.perf_counter() - start:.2f} s")
    return 0
