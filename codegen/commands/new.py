"""`skuda new`: a spec of one row to start from."""

from __future__ import annotations

import argparse

# What is not commented is a whole operation; each comment says what a line may be instead.
FILE = """\
# Write this to a file and edit the row. Then: skuda generate --spec FILE --out my_package/generated
ops:
"""
ROW = """\
  {name}:
    # category, or category.name: what `skuda list` groups by
    kind: custom.{name}
    # one sentence; it goes into comments, docstrings and pages
    doc: The sum of x and alpha times y.
    # the element types that each type letter may be, preferred first; T is [f32, f64, f16, bf16] by default
    # s8 u8 s4 u4 i32 i64 are exact integers, e4m3 e5m2 floats of 8 bits that saturate when they are stored
    # types: {{T: [f32, f16], Q: [s8, u8, s4, u4], S: [T, f32]}}
    # S is the type of scales, W that of weights; there may be two other letters
    inputs:
      # name: Type[dimensions]
      # `*shape` is any number of axes, `c` one, `d/size` one entry for each block of `size`, `4` a dimension of
      # that size, `[]` one value
      # `bias: T[c] = 0` may be left out, and then is that number; such a call has a kernel without that operand
      x: T[*shape]
      y: T[*shape]
    # name: type = default
    # type: C, a number in the compute type; i32, an integer; a letter such as Q, a number of that type;
    # `size`, a length; `axis of c`, an axis; `axes of d`, any axes. A default may also be inf, lowest(Q) or highest(Q)
    attrs: {{alpha: C = 1}}
    # conditions on attributes, checked when a plan is selected
    # requires: alpha > 0
    # names for formulas; a reduction such as max, sum or mean needs `over=`: a dimension `d`, or `d/size` for blocks
    # let: {{total: "sum(x, over=d)"}}
    outputs:
      # name: Type[dimensions] = formula
      # a formula has names, numbers, + - * /, comparisons, and, or, not, and calls such as where(condition, a, b),
      # clamp(x, low, high), round_to_int(x) and exp(x); `skuda list --functions` has more, and `functions:` adds yours
      # an integer output must hold every value of its formula: clamp(round_to_int(x), -128, 127), saturate(i), wrap(i)
      output: T[*shape] = x + alpha * y
    # the gradients; without this part, or with `backward: derived`, they are derived from the formulas above;
    # `backward: none` for none
    # d_<input>: Type[dimensions] = formula of d_<output>, inputs and outputs; `d_<input>: derived` derives one
    backward:
      d_x: T[*shape] = d_output
      d_y: T[*shape] = alpha * d_output
"""


def add_parser(subparsers) -> None:
    """Adds `new`."""
    parser = subparsers.add_parser(
        "new",
        help="print a commented spec of one operation to start from",
        description="Print a commented spec of one operation: skuda new NAME > my_ops.yaml",
    )
    parser.add_argument(
        "--row", action="store_true", help="print the row alone, to append to a spec: skuda new NAME --row >> ops.yaml"
    )
    parser.add_argument("name", metavar="NAME", help="the name of the operation: a-z, 0-9 and single _ between them")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda new`."""
    from skuda.codegen.diagnostics import Diagnostics, Place
    from skuda.codegen.names import check_name
    from skuda.codegen.yaml_tree import Text

    diagnostics = Diagnostics("NAME", args.name)
    check_name(Text(args.name, Place(1, 1, len(args.name))), diagnostics)
    diagnostics.raise_if_any()
    print(("\n" if args.row else FILE) + ROW.format(name=args.name), end="")
    return 0
