"""The reductions: ONE table of what a formula may say `over=` dimensions, with the rule and every target's spelling.

`mean` is a sum divided by the number of elements, so it is no row of its own; `count(over=d)` is that number.
"""

from __future__ import annotations

from dataclasses import dataclass

from skuda.codegen.nodes import BOOL, INT, REAL
from skuda.model.sum_order import INDEX_REDUCTIONS


@dataclass(frozen=True)
class Reduction:
    """One way to make one value of many.

    Attributes:
        name: how a formula calls it.
        kinds: what it takes; its value is of the same kind, if nothing else is said.
        cuda: a class of runtime/cuda/reductions.cuh.
        numpy: a method of skuda.reference.reductions.Rows.
        latex: spelling in documentation, `{0}` being what it is over and `{1}` what is reduced.
        rule: NaN, order, and what the reduction of nothing is.
        of_some: of an extreme, the word for it: of no elements there is none.
        wider: how many bits more than an integer's own its value needs.
    """

    name: str
    kinds: tuple[str, ...]
    cuda: str
    numpy: str
    latex: str
    rule: str
    of_some: str = ""
    wider: int = 0

    @property
    def of_lowest_bits(self) -> bool:
        """Whether the lowest bits of its value follow from those of what is reduced."""
        return self.name in ("sum", "prod")

    @property
    def gives_index(self) -> bool:
        """Whether its value is the index of an element within the row, an exact integer."""
        return self.name in INDEX_REDUCTIONS


LENGTH_BITS = 40  # of the number of elements of a row: no memory holds more
_ORDER = "in one order that depends on the length alone (docs/numerics.md), in C"
_INDEX = (
    "in its row, counted in row-major order; of the first of equals (0 and -0 are), of the first NaN if any is NaN; "
    "of no elements an error"
)

REDUCTIONS: dict[str, Reduction] = {
    row.name: row
    for row in (
        Reduction("max", (REAL, INT), "Largest", "max", r"\max_{{{0}}} {1}",
                  "NaN if any is NaN; +0 is above -0; of no elements an error", of_some="largest"),
        Reduction("min", (REAL, INT), "Smallest", "min", r"\min_{{{0}}} {1}",
                  "NaN if any is NaN; -0 is below +0; of no elements an error", of_some="smallest"),
        Reduction("sum", (REAL, INT), "Sum", "sum", r"\sum_{{{0}}} {1}",
                  f"reals are added {_ORDER}, integers exactly; of no elements 0", wider=LENGTH_BITS),
        Reduction("prod", (REAL, INT), "Product", "prod", r"\prod_{{{0}}} {1}",
                  f"reals are multiplied {_ORDER}, integers in 64 bits, within `wrap`; of no elements 1", wider=64),
        Reduction("argmax", (REAL, INT), "ArgLargest", "argmax", r"\arg\max_{{{0}}} {1}",
                  f"the index of the largest {_INDEX}", of_some="largest"),
        Reduction("argmin", (REAL, INT), "ArgSmallest", "argmin", r"\arg\min_{{{0}}} {1}",
                  f"the index of the smallest {_INDEX}", of_some="smallest"),
        Reduction("any", (BOOL,), "Any", "any", r"\bigvee_{{{0}}} {1}", "of no elements false"),
        Reduction("all", (BOOL,), "All", "all", r"\bigwedge_{{{0}}} {1}", "of no elements true"),
    )
}  # fmt: skip
MEAN = "mean"
REDUCTION_NAMES = (*REDUCTIONS, MEAN)
COUNT = "count"  # of the elements of a row: takes `over=` alone
