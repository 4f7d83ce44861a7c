"""The reductions: ONE table of what a formula may say `over=` dimensions, with the rule and every target's spelling.

`mean` is a sum divided by the number of elements, so it is no row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from skuda.codegen.nodes import BOOL, INT, REAL


@dataclass(frozen=True)
class Reduction:
    """One way to make one value of many.

    Attributes:
        name: how a formula calls it.
        kinds: what it takes; its value is of the same kind.
        cuda: a class of runtime/cuda/reduce.cuh.
        numpy: a method of skuda.reference.Rows.
        latex: spelling in documentation, `{0}` being what it is over and `{1}` what is reduced.
        rule: NaN, order, and what the reduction of nothing is.
        empty: whether there is a value for no elements at all.
    """

    name: str
    kinds: tuple[str, ...]
    cuda: str
    numpy: str
    latex: str
    rule: str
    empty: bool = True


_ORDER = "in one order that depends on the length alone (docs/numerics.md), in C"

REDUCTIONS: dict[str, Reduction] = {
    row.name: row
    for row in (
        Reduction("max", (REAL, INT), "Largest", "max", r"\max_{{{0}}} {1}",
                  "NaN if any is NaN; +0 is above -0; of no elements an error", empty=False),
        Reduction("min", (REAL, INT), "Smallest", "min", r"\min_{{{0}}} {1}",
                  "NaN if any is NaN; -0 is below +0; of no elements an error", empty=False),
        Reduction("sum", (REAL,), "Sum", "sum", r"\sum_{{{0}}} {1}", f"added {_ORDER}; of no elements 0"),
        Reduction("prod", (REAL,), "Product", "prod", r"\prod_{{{0}}} {1}",
                  f"multiplied {_ORDER}; of no elements 1"),
        Reduction("any", (BOOL,), "Any", "any", r"\bigvee_{{{0}}} {1}", "of no elements false"),
        Reduction("all", (BOOL,), "All", "all", r"\bigwedge_{{{0}}} {1}", "of no elements true"),
    )
}  # fmt: skip
MEAN = "mean"
REDUCTION_NAMES = (*REDUCTIONS, MEAN)
