"""`skuda`: the command line. A command's module is imported when it is asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from skuda.errors import SkudaError, SpecError

# Command, the module that has its `add_parser`, and its line in the menu.
COMMANDS = {
    "generate": ("skuda.codegen.commands.generate", "write the catalog of a spec (ops.yaml)"),
    "check": (
        "skuda.codegen.commands.check",
        "say where the catalog is not what the spec and the generator make",
    ),
    "list": ("skuda.codegen.commands.catalog", "the operations: types, signatures, number of kernels"),
    "show": ("skuda.codegen.commands.show", "everything about one operation, its CUDA included"),
    "build": ("skuda.codegen.commands.build", "compile kernels ahead of time into the cache"),
    "evidence": ("skuda.codegen.commands.evidence", "write the records of test-gpu and bench as a page"),
    "new": ("skuda.codegen.commands.new", "print a commented spec of one operation to start from"),
    "quantize": ("skuda.checkpoints.command", "quantize a checkpoint of any size, file by file"),
    "demo": ("skuda.demo.cli", "quantize a real checkpoint and show what it costs"),
    "bench": ("skuda.bench", "measure the kernels against a copy of the same bytes"),
    "doctor": ("skuda.codegen.commands.doctor", "what is installed here, what is missing, and how to get it"),
    "cache": ("skuda.codegen.commands.cache", "where compiled kernels are kept; clear them"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit status: 0, or 1 for an error that has been printed, 2 for wrong usage, 130 for Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader (`| head`) has enough; Python would complain again at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except SkudaError as error:
        return _failed(_text(error))
    except OSError as error:
        return _failed(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}")


def _run(arguments: list[str]) -> int:
    args = _parser(arguments).parse_args(arguments)
    return args.handler(args)


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser: complete for the command that is asked for, and the menu of the others."""
    parser = argparse.ArgumentParser(
        prog="skuda",
        description="A catalog of GPU kernels that is generated from one table of formulas.",
        epilog="`skuda COMMAND --help` says more.",
    )
    parser.add_argument("--version", action=_Version)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (module, help) in COMMANDS.items():
        if name == wanted and _is_there(module):
            import_module(module).add_parser(subparsers)
        elif _is_there(module):
            subparsers.add_parser(name, help=help)
    return parser


def _is_there(module: str) -> bool:
    """Whether this installation has the package of a command; imports nothing."""
    return find_spec(".".join(module.split(".")[:2])) is not None


class _Version(argparse.Action):
    def __init__(self, option_strings, dest):
        super().__init__(option_strings, dest, nargs=0, help="show the version")

    def __call__(self, parser, namespace, values, option_string=None):
        from skuda import __version__

        print(f"skuda {__version__}")
        parser.exit()


def _text(error: SkudaError) -> str:
    """An error as it is printed; the mistakes of a spec have been laid out already."""
    text = str(error)
    laid_out = isinstance(error, SpecError) and ": error: " in text.partition("\n")[0]
    return text if laid_out else f"error: {text}"


def _failed(message: str) -> int:
    sys.stdout.flush()
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
