"""`skuda cache`: the folder of compiled kernels."""

from __future__ import annotations

import argparse

from skuda.launch import cubin_cache


def add_parser(subparsers) -> None:
    """Adds `cache`."""
    parser = subparsers.add_parser("cache", help="where compiled kernels are kept; clear them")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    path = commands.add_parser("path", help="print the folder (SKUDA_CACHE_DIR moves it)")
    path.set_defaults(handler=print_path)
    clear = commands.add_parser(
        "clear", help="remove every compiled kernel; they are compiled again when needed"
    )
    clear.set_defaults(handler=clear_entries)


def print_path(args: argparse.Namespace) -> int:
    """Runs `skuda cache path`."""
    print(cubin_cache.cache_dir())
    return 0


def clear_entries(args: argparse.Namespace) -> int:
    """Runs `skuda cache clear`."""
    removed = cubin_cache.clear()
    print(f"{cubin_cache.cache_dir()}: {removed} {'entry' if removed == 1 else 'entries'} removed")
    return 0
