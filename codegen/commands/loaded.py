"""The catalogs that `list` and `show` look into: skuda's own, and those that --catalog names."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from skuda.errors import InvalidProblem
from skuda.launch import registry


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--catalog`."""
    parser.add_argument(
        "--catalog", metavar="PACKAGE", action="append", default=[],
        help="import this generated package too, such as my_package.generated",
    )  # fmt: skip


def catalogs(args: argparse.Namespace) -> tuple[registry.Catalog, ...]:
    """The catalogs to look into.

    Raises:
        InvalidProblem: a package cannot be imported, or is no catalog.
    """
    if args.catalog:
        sys.path.insert(0, os.getcwd())
    for name in args.catalog:
        try:
            package = import_module(name)
        except ImportError as error:
            raise InvalidProblem(f"--catalog {name}: {error}") from error
        if not isinstance(vars(package).get("CATALOG"), registry.Catalog):
            raise InvalidProblem(f"--catalog {name}: expected a package that `skuda generate` wrote")
    return registry.catalogs()


def plans(catalog: registry.Catalog, name: str) -> tuple[type, ...]:
    """The plan classes of a row: forward, and backward where there is one; then those of stages."""
    return catalog.plans(name)
