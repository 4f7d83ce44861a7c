"""`skuda new`: a row to start from."""

from __future__ import annotations

import argparse

# What is not commented is a whole operation; each comment says what a line may be instead.
ROW = """\
  {name}:
    # category, or category.name: what `skuda list` groups by
    kind: custom.{name}
    # one sentence; it goes into comments, docstrings and pages
    doc: The sum of x and alpha times y.
    # what each type letter may be, preferred first; T is [f32, f64, f16, bf16] if nothing is said
    # s8 u8 s4 u4 i32 i64 are exact integers, e4m3 e5m2 floats of 8 bits that saturate when they are stored
    # types: {{T: [f32, f16], Q: [s8, u8, s4, u4], S: [T, f32]}}
    # at most two letters beside S, the type of scales, and W, that of weights
    inputs:
      # name: Type[dimensions]
      # `*shape` is any number of axes, `c` one, `d/size` one entry for each block of `size`, `4` a dimension of
      # that size, `[]` one value
      # `bias: T[c] = 0` may be left out, and is then that number: by a kernel of its own, without that operand
      x: T[*shape]
      y: T[*shape]
    # name: type = default
    # a letter such as Q is a number of that type, lowest(Q) and highest(Q) its limits; i32 is an integer, C a number in
    # the compute type (`inf`, `lowest(T)` and `highest(T)` too), `size` a length, `axis of c` an axis,
    # `axes of d` any axes
    attrs: {{alpha: C = 1}}
    # conditions on attributes, checked when a plan is selected
    # requires: alpha > 0
    # names for formulas below; a reduction such as max, sum or mean says what it is over: `d`, or `d/size` for blocks
    # let: {{total: "sum(x, over=d)"}}
    outputs:
      # name: Type[dimensions] = formula
      # of names, numbers, + - * /, comparisons, and or not, and calls such as where(condition, a, b),
      # clamp(x, low, high), round_to_int(x), exp(x), or a function of `functions:` or of `skuda list --functions`
      # an integer output holds all that its formula may give, as in clamp(round_to_int(x), -128, 127), or is
      # saturate(i) or wrap(i)
      output: T[*shape] = x + alpha * y
    # the gradients: `derived` makes all of them from the formulas above, and so does leaving this part out; `none` says
    # that there are none; `d_x: derived` makes one
    # d_<input>: Type[dimensions] = formula over d_<output>, inputs and outputs
    backward:
      d_x: T[*shape] = d_output
      d_y: T[*shape] = alpha * d_output
"""


def add_parser(subparsers) -> None:
    """Adds `new`."""
    parser = subparsers.add_parser(
        "new",
        help="print a row to start a new operation from",
        description="Print a commented row, to stand under `ops:`, such as: skuda new NAME >> ops.yaml",
    )
    parser.add_argument("name", metavar="NAME", help="of the operation: a-z, 0-9 and single _ between them")
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda new`."""
    from skuda.codegen.diagnostics import Diagnostics, Place
    from skuda.codegen.names import check_name
    from skuda.codegen.yaml_tree import Text

    diagnostics = Diagnostics("NAME", args.name)
    check_name(Text(args.name, Place(1, 1, len(args.name))), diagnostics)
    diagnostics.raise_if_any()
    print("\n" + ROW.format(name=args.name), end="")
    return 0
