"""The reductions: ONE table of what a formula may say `over=` dimensions, with the rule and every target's spelling.

`mean` is a sum divided by the number of elements, so it is no row of its own; `count(over=d)` is that number.
Scans stand below it: what a formula may say `along=` dimensions. A scan is a reduction of each element and those before
it, so it is made of the whole row, as a reduction is, and has a value for each element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skuda.codegen.nodes import BOOL, INT, PAIR, REAL
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
        of_parts: whether it follows from those of parts of a row.
        header: what a source includes for `cuda`.
    """

    name: str
    kinds: tuple[str, ...]
    cuda: str
    numpy: str
    latex: str
    rule: str
    of_some: str = ""
    wider: int = 0
    of_parts: bool = True
    header: str = ""

    @property
    def of_lowest_bits(self) -> bool:
        """Whether the lowest bits of its value follow from those of what is reduced."""
        return self.joins in ("sum", "prod")

    @property
    def joins(self) -> str:
        """The reduction that gives each of its values."""
        return self.name

    @property
    def gives_index(self) -> bool:
        """Whether its value is the index of an element within the row, an exact integer."""
        return self.name in INDEX_REDUCTIONS

    @property
    def is_its_one_element(self) -> bool:
        """Whether its value of one element is that element."""
        return self.name in ("sum", "prod", "max", "min")

    @property
    def heading(self) -> str:
        """What a list of rules calls it."""
        return f"{self.name} over"

    def call(self, value: str, over: str) -> str:
        """As a formula calls it, of a value over dimensions."""
        return f"{self.name}({value}, over={over})"

    def of_rows(self, value: str) -> str:
        """As a reference calls it."""
        return f"row.{self.numpy}({value})"


@dataclass(frozen=True)
class Scan(Reduction):
    """One way to make a value for each element, of it and those before it.

    Attributes:
        exclusive: of those before it alone.
        reverse: of it and those after it.
        of: the reduction that gives each of the values; empty where none does.
    """

    exclusive: bool = False
    reverse: bool = False
    of: str = ""

    @property
    def joins(self) -> str:
        return self.of

    @property
    def function(self) -> str:
        """How a formula calls it, whatever the options."""
        return self.name.split()[1]

    @property
    def arguments(self) -> str:
        """What it takes, as a call spells it."""
        return "a, b" if PAIR in self.kinds else "x"

    @property
    def options(self) -> str:
        """Those that it has, as keywords of a call."""
        return "".join(f", {name}=True" for name in OPTIONS if getattr(self, name))

    @property
    def heading(self) -> str:
        return f"{self.name.removeprefix('scan ')} along"

    def call(self, value: str, over: str) -> str:
        return f"{self.function}({value}, along={over}{self.options})"

    def of_rows(self, value: str) -> str:
        return f"row.{self.function}({value}{self.options})"


@dataclass(frozen=True)
class Repeated(Reduction):
    """One value that a pass over the row, repeated, comes closer to from below: until it rises no more.

    Attributes:
        start: the value before the first pass, in the formula language.
        sums: what a pass adds up, of an element `x` and of the value so far, `y`.
        next: the value after a pass, of these sums: `a`, `b`.
    """

    start: str = ""
    sums: tuple[str, ...] = ()
    next: str = ""


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
        Reduction("squared_deviations", (REAL,), "SquaredDeviations", "squared_deviations",
                  r"\sum_{{{0}}} \left({1} - \operatorname{{mean}}\right)^2",
                  f"the sum of the squared distances from the mean, in one pass over the row and {_ORDER}; NaN if any "
                  "is NaN or infinite; of no elements 0", of_parts=False),
        Reduction("logsumexp", (REAL,), "LogSumExp", "logsumexp", r"\ln \sum_{{{0}}} \exp {1}",
                  f"the largest element, and exponentials beside a number near it are added, in one pass and {_ORDER}; "
                  "NaN if any is NaN, else +inf if any is; of no elements -inf", of_parts=False,
                  header="log_sum_exp.cuh"),
        Repeated("sparsemax_threshold", (REAL,), "", "sparsemax_threshold", r"\tau_{{{0}}} {1}",
                 "of a row whose largest element is 0: the number that the elements above it exceed by 1 in all, found "
                 f"by Newton's method from -1 on, with sums {_ORDER}; NaN if any is NaN; of no elements -inf",
                 start="-1.0", sums=("where(x <= y, 0, x)", "where(x <= y, 0.0, 1.0)"), next="(a - 1) / b"),
        Reduction("any", (BOOL,), "Any", "any", r"\bigvee_{{{0}}} {1}", "of no elements false"),
        Reduction("all", (BOOL,), "All", "all", r"\bigwedge_{{{0}}} {1}", "of no elements true"),
    )
}  # fmt: skip
MEAN = "mean"
REDUCTION_NAMES = (*REDUCTIONS, MEAN)

OPTIONS = ("exclusive", "reverse")  # keywords of scans, which are True or False
_SCANS = (
    Scan("scan cumsum", (REAL, INT), "Sum", "", r"\sum_{{{0}' \le {0}}} {1}",
         f"reals are added {_ORDER}, integers exactly; of nothing 0", wider=LENGTH_BITS, of="sum"),
    Scan("scan cumprod", (REAL, INT), "Product", "", r"\prod_{{{0}' \le {0}}} {1}",
         f"reals are multiplied {_ORDER}, integers in 64 bits, within `wrap`; of nothing 1", wider=64, of="prod"),
    Scan("scan cummax", (REAL, INT), "Largest", "", r"\max_{{{0}' \le {0}}} {1}",
         "NaN from the first NaN on; +0 is above -0; of nothing the least value of C", of="max"),
    Scan("scan cummin", (REAL, INT), "Smallest", "", r"\min_{{{0}' \le {0}}} {1}",
         "NaN from the first NaN on; -0 is below +0; of nothing the greatest value of C", of="min"),
    Scan("scan logcumsumexp", (REAL,), "LogSums", "", r"\ln \sum_{{{0}' \le {0}}} \exp {1}",
         f"two sums are joined beside the largest element, {_ORDER}; of nothing -inf", header="scan_log.cuh"),
    Scan("scan linear_recurrence", (PAIR,), "LinearRecurrence", "", r"\operatorname{{recurrence}}_{{{0}' \le {0}}} {1}",
         f"`y = a * before + b`, joined {_ORDER}; where a or what is before is 0, y is b + before, or b; of nothing 0",
         header="scan_linear.cuh"),
)  # fmt: skip
SCAN_NAMES = {scan.function: scan.arguments for scan in _SCANS}  # with what each takes


def _with_options(scan: Scan) -> list[Scan]:
    """A scan with each choice of its options, which are part of the name that a node has."""
    found = []
    for exclusive in (False, True):
        for reverse in (False, True):
            name = scan_name(scan.function, exclusive, reverse)
            latex = scan.latex.replace(r"\le", (r"\ge", r"\le", r">", "<")[2 * exclusive + (not reverse)])
            found.append(replace(scan, name=name, latex=latex, exclusive=exclusive, reverse=reverse))
    return found


def scan_name(function: str, exclusive: bool, reverse: bool) -> str:
    """What a node calls a scan with options."""
    return " ".join(["scan", function, *["exclusive"] * exclusive, *["reverse"] * reverse])


REDUCTIONS |= {each.name: each for scan in _SCANS for each in _with_options(scan)}
COUNT = "count"  # of the elements of a row: takes `over=` alone
