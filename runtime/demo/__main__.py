"""`python -m skuda.demo quantize ...` is `skuda demo quantize ...`."""

import argparse
import sys

from skuda.demo.cli import add_parser
from skuda.errors import SkudaError


def main() -> int:
    parser = argparse.ArgumentParser(prog="skuda")
    add_parser(parser.add_subparsers(required=True, metavar="COMMAND"))
    args = parser.parse_args(["demo", *sys.argv[1:]])
    try:
        return args.handler(args)
    except SkudaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
