"""`skuda list`: the operations of the catalogs."""

from __future__ import annotations

import argparse
import textwrap
from collections import defaultdict

from skuda.codegen.commands import loaded, summary
from skuda.launch import registry
from skuda.model.operation import Operation
from skuda.model.sku import KernelSku

WIDTH = 80  # columns
_HEADS = ("NAME", "KIND", "PASSES", "KERNELS")


def add_parser(subparsers) -> None:
    """Adds `list`."""
    parser = subparsers.add_parser(
        "list",
        help="the operations: types, signatures, number of kernels",
        description="List operations. KERNELS counts what `--skus` lists: every choice of types in every "
        "variant, on CUDA and on the CPU.",
    )
    parser.add_argument(
        "filter", metavar="FILTER", nargs="?", default="", help="a part of a name, or the start of a kind"
    )
    parser.add_argument("--skus", action="store_true", help="list the symbols of the kernels instead")
    parser.add_argument(
        "--functions", action="store_true", help="list the functions that a formula of any spec may call instead"
    )
    parser.add_argument(
        "--summary", action="store_true", help="count rows, plans, types and kernels by category instead"
    )
    loaded.add_argument(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda list`."""
    if args.functions:
        from skuda.codegen.spec import library  # YAML: not needed below

        functions = [function for name, function in library().items() if args.filter in name]
        for function in functions:
            print(f"{function.signature}: {' '.join(function.body.value.split())}")
        return 0 if functions else 1
    catalogs = loaded.catalogs(args)
    found = [
        [plan.operation for plan in loaded.plans(catalog, name)]
        for catalog in catalogs
        for name in catalog.modules
    ]
    chosen = [row for row in found if args.filter in row[0].name or row[0].category.startswith(args.filter)]
    kernels = kernels_by_operation()
    if args.skus:
        for operations in chosen:
            for operation in operations:
                for sku in kernels[id(operation)]:
                    print(sku.symbol)
        return 0
    if not chosen:
        print(f"no operation has {args.filter!r} in its name, and no kind starts with it")
        return 1
    if args.summary:
        lines = summary.summary(chosen, kernels)
        _print_table([summary.HEADS, *lines], [[] for _ in range(len(lines) + 1)])
        print("\n".join(textwrap.wrap(summary.EXPLANATION, WIDTH)))
        return 0
    _print_table(
        [_HEADS, *(_cells(row, sum(len(kernels[id(operation)]) for operation in row)) for row in chosen)],
        [[], *map(_details, chosen)],
    )
    return 0


def kernels_by_operation() -> dict[int, list[KernelSku]]:
    """The kernels of each operation, by its id: an operation holds dicts, which have no hash."""
    kernels = defaultdict(list)
    for sku in registry.skus():
        kernels[id(registry.entry_of(sku).operation)].append(sku)
    return kernels


def _cells(operations: list[Operation], kernels: int) -> tuple[str, ...]:
    """A row's line of the table."""
    forward = operations[0]
    whole = (operation for operation in operations if operation.is_whole)
    passes = "+".join(dict.fromkeys(operation.direction.value for operation in whole))
    return forward.name, forward.category, passes, str(kernels)


def _details(operations: list[Operation]) -> list[str]:
    """What stands below it: the signature and the types."""
    forward = operations[0]
    types = ", ".join(f"{letter}: {' '.join(words)}" for letter, words in forward.types.items())
    lines = [signature(forward), types] if types else [signature(forward)]
    indents = {"initial_indent": "  ", "subsequent_indent": "    "}
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, **indents)]


def signature(operation: Operation) -> str:
    """`T[*shape], S[] -> Q[*shape]`."""
    inputs, outputs = (
        [operand.signature for operand in side] for side in (operation.inputs, operation.outputs)
    )
    return f"{', '.join(inputs)} -> {', '.join(outputs)}"


def _print_table(rows, details) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    gap = "  " if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else " "
    for row, lines in zip(rows, details, strict=True):
        print(gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for line in lines:
            print(line)
