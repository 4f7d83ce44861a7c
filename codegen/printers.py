"""Formulas as text: CUDA C++, NumPy and LaTeX, one printer over the typed tree each.

Numbers are written as the compute type's (`C(0.5)`), so that every step of a formula happens in that type in
every target.
"""

from __future__ import annotations

from skuda.codegen.intrinsics import CONSTANTS, CONVERSIONS, HALVED, INTRINSICS
from skuda.codegen.nodes import PAIR, PLACED, POSITION, REAL, REDUCE, SMALLEST, Node
from skuda.codegen.operators import OPERATORS
from skuda.codegen.program import Program
from skuda.codegen.reductions import REDUCTIONS
from skuda.model.operation import COUNTED

_PRECEDENCE = {"or": 1, "and": 2, "not": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4}
_PRECEDENCE |= {"+": 5, "-": 5, "*": 6, "/": 6, "neg": 7}
_ATOM = 9


class Printer:
    """Writes infix text with as few parentheses as the target needs.

    Class attributes are the target's spellings; a subclass is one target.
    """

    target = ""
    spelled: dict[str, str] = {}
    constants: dict[str, str] = {}  # spellings of numbers that have no digits
    pair = "({0}, {1})"  # of what a recurrence scans
    precedence = _PRECEDENCE

    def text(self, node: Node, outer: int = 0) -> str:
        """The text of a value, in parentheses where its surroundings bind tighter than `outer`."""
        own = self.precedence.get(node.op, _ATOM)
        written = self.written(node, own)
        if node.op == "number" and written.startswith("-"):
            own = self.precedence["neg"]
        return f"({written})" if own < outer else written

    def written(self, node: Node, own: int) -> str:
        """The text of a value without parentheses around it."""
        if node.op == "name":
            return self.name(node)
        if node.op == "number":
            return self.number(node)
        if node.op in INTRINSICS or node.op in OPERATORS:
            spelling = self.spelling(node)
            return spelling.format(*(self.text(argument) for argument in node.args))
        if node.op in CONVERSIONS:
            return getattr(CONVERSIONS[node.op], self.target).format(*map(self.text, node.args), node.text)
        if node.op.startswith(REDUCE):
            return self.reduction(node)
        if node.op == PAIR:
            return self.pair.format(*map(self.text, node.args))
        if node.op == "count":
            return self.count(node)
        if node.op == SMALLEST:
            return self.smallest(node)
        sign = self.spelled.get(node.op, node.op)
        if len(node.args) == 1:
            of = self.text(node.args[0], own)
            return f"{sign}({of})" if sign == "-" and of.startswith("-") else f"{sign}{of}"  # --x is another operator
        left, right = node.args
        # a - (b - c) and a / (b / c) keep their parentheses, and so does a + (b + c): it rounds otherwise
        return f"{self.text(left, own)} {sign} {self.text(right, own + 1)}"

    def spelling(self, node: Node) -> str:
        """How the target calls an intrinsic, or what the table of operators has."""
        return getattr((INTRINSICS if node.op in INTRINSICS else OPERATORS)[node.op], self.target)

    def name(self, node: Node) -> str:
        """An operand or attribute."""
        return node.text

    def number(self, node: Node) -> str:
        """A number as the compute type's, or as an exact integer."""
        return f"C({self.constants.get(node.text, node.text)})" if node.kind == REAL else node.text

    def reduction(self, node: Node) -> str:
        """A reduction, by the name of its value."""
        raise NotImplementedError

    def count(self, node: Node) -> str:
        """The number of elements that a reduction is over."""
        raise NotImplementedError

    def smallest(self, node: Node) -> str:
        """The least positive value of a type."""
        return f"{SMALLEST}({node.text})"


class NumpyPrinter(Printer):
    """NumPy expressions over arrays that were widened to C, or to int64.

    Args:
        reduced: names of the reductions' values.
    """

    target = "numpy"
    constants = {"inf": "np.inf", "-inf": "-np.inf", "nan": "np.nan", "-nan": "-np.nan"}

    def __init__(self, reduced: dict[Node, str] | None = None):
        self.reduced = reduced or {}

    def reduction(self, node: Node) -> str:
        return self.reduced[node]

    def count(self, node: Node) -> str:
        return "row.count" if node.text in {each.text for each in self.reduced} else COUNTED

    def smallest(self, node: Node) -> str:
        return f'row.smallest("{node.text}")'

    def spelling(self, node: Node) -> str:
        return INTRINSICS[node.op].spelled("numpy", node.precise_as) if node.op in HALVED else super().spelling(node)

    spelled = {"and": "&", "or": "|", "not": "~", "neg": "-"}
    # & and | bind tighter than comparisons, so comparisons inside them need parentheses; & tighter than |
    precedence = {**_PRECEDENCE, "or": 5, "and": 6, "not": 8, "neg": 7}


class PythonPrinter(Printer):
    """Python over numbers, reals in f64: conditions on attributes."""

    target = "numpy"
    constants = {"inf": "float('inf')", "-inf": "-float('inf')", "nan": "float('nan')", "-nan": "-float('nan')"}
    spelled = {"neg": "-", "not": "not "}

    def number(self, node: Node) -> str:
        return self.constants.get(node.text, node.text)

    def written(self, node: Node, own: int) -> str:
        if node.op == "to_real":
            return f"float({self.text(node.args[0])})"
        if node.op != "/" and node.op not in INTRINSICS:
            return super().written(node, own)
        texts = [f"np.float64({self.text(each)})" if each.kind == REAL else self.text(each) for each in node.args]
        return "np.divide({}, {})".format(*texts) if node.op == "/" else INTRINSICS[node.op].numpy.format(*texts)


class LatexPrinter(Printer):
    """The formula for documentation.

    Args:
        reduced: what stands for each reduction.
    """

    target = "latex"
    spelled = {
        "*": r"\cdot", "<=": r"\le", ">=": r"\ge", "!=": r"\ne", "==": "=",
        "and": r"\wedge", "or": r"\vee", "not": r"\neg ", "neg": "-",
    }  # fmt: skip
    constants = {"inf": r"\infty", "-inf": r"-\infty", "nan": r"\mathrm{NaN}", "-nan": r"-\mathrm{NaN}"}
    constants |= {repr(sign * CONSTANTS["pi"]): "-" * (sign < 0) + r"\pi" for sign in (1, -1)}

    def written(self, node: Node, own: int) -> str:
        if node.op == "/":
            return rf"\frac{{{self.text(node.args[0])}}}{{{self.text(node.args[1])}}}"
        if node.op in OPERATORS and node.op != "//":  # signs between operands, which no target but this has
            texts = [f"({self.text(each)})" if each.op in OPERATORS else self.text(each, _ATOM) for each in node.args]
            return OPERATORS[node.op].latex.format(*texts)
        return super().written(node, own)

    def __init__(self, reduced: dict[Node, str] | None = None):
        self.reduced = reduced or {}

    def reduction(self, node: Node) -> str:
        return self.reduced[node]

    def reduced_from(self, node: Node) -> str:
        """What a reduction is."""
        latex = REDUCTIONS[node.op.removeprefix(REDUCE)].latex
        return latex.format(self.over(node), self.text(node.args[0], 6))

    def count(self, node: Node) -> str:
        return f"|{self.over(node)}|"

    def smallest(self, node: Node) -> str:
        return rf"\operatorname{{{SMALLEST}}}({node.text})"

    def over(self, node: Node) -> str:
        """What a reduction is over."""
        return ", ".join(self.identifier(name) for name in node.text.split(", "))

    def name(self, node: Node) -> str:
        if node.text.startswith(PLACED):
            return rf"\operatorname{{{POSITION}}}({', '.join(map(self.identifier, sorted(node.dims)))})"
        return self.identifier(node.text)

    def identifier(self, name: str) -> str:
        """A name in the row's spelling."""
        return r"\mathit{" + name.replace("_", r"\_") + "}"

    def number(self, node: Node) -> str:
        return self.constants.get(node.text, node.text)


class SpecPrinter(Printer):
    """A formula as a row would spell it, in the terms of NumPy."""

    target = "numpy"
    spelled = {"neg": "-", "not": "not "}

    def name(self, node: Node) -> str:
        return node.spelled

    def reduction(self, node: Node) -> str:
        over = f"({node.text})" if "," in node.text else node.text
        return REDUCTIONS[node.op.removeprefix(REDUCE)].call(self.text(node.args[0]), over)

    def number(self, node: Node) -> str:
        return node.text  # as a row spells it

    def count(self, node: Node) -> str:
        return f"|{node.text}|"


def spelled_formulas(program: Program) -> dict[str, str]:
    """The formulas of a program as its row spells them; those of values that stages hand on are in no row."""
    texts = program.formula_texts
    return {name: texts[name] if name in texts else SpecPrinter().text(node) for name, node in program.formulas.items()}
