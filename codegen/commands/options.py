"""`--spec` and `--out`: where a spec is read and its catalog written."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from skuda.errors import SpecError

SPEC = Path("ops.yaml")
OUT = Path("generated")


def path(text: str) -> Path:
    """The path that an argument names; an empty one is no folder, but a variable of a shell that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got an empty one")
    return Path(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the two options."""
    parser.add_argument("--spec", type=path, default=SPEC, metavar="FILE", help=f"the spec (default: {SPEC})")
    add_out(parser)


def add_out(parser: argparse.ArgumentParser) -> None:
    """Declares `--out` alone."""
    parser.add_argument(
        "--out", type=path, default=OUT, metavar="FOLDER",
        help=f"the catalog, a package of generated files only (default: {OUT})",
    )  # fmt: skip


def require_spec(spec: Path) -> None:
    """Raises: SpecError: the default spec is not in this folder."""
    if spec == SPEC and not spec.exists():
        raise SpecError(f"there is no {SPEC} in this folder; give its path with --spec")


def command(args: argparse.Namespace) -> str:
    """The `skuda generate` that these arguments mean."""
    words = ["skuda", "generate"]
    if args.spec != SPEC:
        words += ["--spec", str(args.spec)]
    if args.out != OUT:
        words += ["--out", str(args.out)]
    return shlex.join(words)


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" + "s" * (number != 1)
