"""Reductions in formulas: what they are over, and what they reduce."""

from __future__ import annotations

import ast
from dataclasses import replace

from skuda.codegen import forms
from skuda.codegen.diagnostics import suggestion
from skuda.codegen.expr_checks import KIND_NAME, Checks, Refused
from skuda.codegen.nodes import BOOL, DIM, INT, PAIR, PLACED, POSITION, REAL, REDUCE, Node, promote
from skuda.codegen.reductions import (
    COUNT,
    LENGTH_BITS,
    MEAN,
    OPTIONS,
    REDUCTIONS,
    SCAN_NAMES,
    Reduction,
    Repeated,
    scan_name,
)
from skuda.codegen.syntax import offset_of

_OVER = "name dimensions of the inputs, or blocks of one: `over=d`, `over=(n, d)`, `over=d/group_size`"


class ReductionReader(Checks):
    """Reads reductions, counts, and the dimensions that these are over."""

    def value(self, node: ast.expr, depth: int = 0) -> Node:
        """A value of any kind."""
        raise NotImplementedError

    def all(self, nodes, depth: int, several: bool = False) -> list[Node]:
        """Every operand, so that the mistakes of all of them are reported in one run; `several`: a tuple of dimensions
        may be one."""
        values, refused = [], None
        for node in nodes:
            try:
                dims = several and isinstance(node, (ast.Tuple, ast.List))
                values.append(self.dimensions(node, depth) if dims else self.value(node, depth))
            except Refused as error:
                refused = error
        if refused is not None:
            raise refused
        return values

    def blocks(self, node: ast.BinOp) -> Node | None:
        """`d/group_size`: the blocks along a dimension; None for a quotient."""
        if not isinstance(node.left, ast.Name) or not isinstance(node.right, ast.Name):
            return None
        dim, size = (self.scope.values.get(name.id) for name in (node.left, node.right))
        if dim is None or dim.kind != DIM or len(dim.dims) != 1 or "/" in dim.text:
            return None
        if size is None or size.kind != DIM or size.dims:
            return None
        return Node("name", (), DIM, dim.dims, text=f"{dim.text}/{size.text}", place=self.place(node))

    def dimensions(self, node: ast.Tuple | ast.List, depth: int) -> Node:
        """`(n, d)`: several dimensions at once, whatever the order in which they are named."""
        each = [self.as_dimension(value) for value in self.all(node.elts, depth)]
        names = set().union(*(value.dims for value in each))
        for at, value in zip(node.elts, each, strict=True):
            if value.kind != DIM or not value.dims:
                raise self.refuse(at, "several values stand together only where they are dimensions", _OVER)
            if "/" in value.text:
                raise self.refuse(at, "blocks are along one dimension", f"write `over={value.text}`")
        if not names or len(names) < sum(len(value.dims) for value in each):
            raise self.refuse(node, "a dimension is named twice" if names else "no dimension is named", _OVER)
        text = ", ".join(name for name in self.scope.dims if name in names)
        return Node("name", (), DIM, frozenset(names), text=text, place=self.place(node))

    def reduced(self, name: str, node: ast.Call, over: ast.expr, depth: int) -> Node:
        """A reduction: its value no longer depends on what it is over; over blocks, it is the same in each."""
        self.arity(node, name, 1)
        self.check_over(over)
        reduction = REDUCTIONS["sum" if name == MEAN else name]
        value, dim = self.read_reduced(name, node, over, reduction, depth)
        if isinstance(reduction, Repeated) and "/" in dim.text:
            help = f"write `over={dim.text.partition('/')[0]}`"
            raise self.refuse(over, f"`{name}` is over whole dimensions, and no blocks", help)
        if (absent := forms.reduced(name, value)) is not None:
            return absent
        blocks = {dim.text} if "/" in dim.text else set()
        parts = {entry for entry in value.dims if entry.partition("/")[0] in dim.dims}
        lacking = dim.dims - (parts if blocks else {entry.partition("/")[0] for entry in parts})
        if lacking:
            message = f"what is reduced does not depend on {', '.join(f'`{name}`' for name in sorted(lacking))}"
            raise self.refuse(node, message, "reduce an expression over operands that have the dimension")
        dims = value.dims - parts | blocks
        place = self.place(node)
        kind = INT if reduction.gives_index else value.kind
        bits = LENGTH_BITS + 1 if reduction.gives_index else value.bits + reduction.wider
        bits = self.width(node, kind, min(bits, 64) if self.wraps else bits)
        total = Node(REDUCE + reduction.name, (value,), kind, dims, bits, dim.text, place)
        if name != MEAN:
            return total
        count = Node(COUNT, (), REAL, text=dim.text, place=place)
        return Node("/", (total, count), REAL, dims, place=place)

    def scanned(self, name: str, node: ast.Call, depth: int) -> Node:
        """A scan: `cumsum(x, along=d, exclusive=True, reverse=True)`; its value has the dimensions of its operand."""
        given = {keyword.arg or "**": keyword.value for keyword in node.keywords}
        call = f"write `{name}({SCAN_NAMES[name]}, along=d)`"
        for option, value in given.items():
            if option not in ("along", *OPTIONS):
                help = f"{call}, with `exclusive=True` or `reverse=True` if wanted"
                raise self.refuse(node, f"`{name}` has no argument `{option}`", help)
            if option in OPTIONS and not (isinstance(value, ast.Constant) and isinstance(value.value, bool)):
                raise self.refuse(value, f"`{option}=` is `True` or `False`", "each choice is a kernel of its own")
        if "along" not in given:
            raise self.refuse(node, f"`{name}` says nowhere what it runs along", call)
        self.arity(node, name, SCAN_NAMES[name].count(",") + 1, call)
        self.check_over(given["along"], "along=")
        exclusive, reverse = (getattr(given.get(option), "value", False) for option in OPTIONS)
        scan = REDUCTIONS[scan_name(name, exclusive, reverse)]
        value, dim = self.read_reduced(name, node, given["along"], scan, depth, "along=")
        if "/" in dim.text:
            help = "a scan runs along whole dimensions: `along=d`, `along=(n, d)`"
            raise self.refuse(given["along"], f"`{name}` runs along blocks of `{dim.text.partition('/')[0]}`", help)
        lacking = dim.dims - value.dims
        if lacking:
            message = f"what is scanned does not depend on {', '.join(f'`{name}`' for name in sorted(lacking))}"
            raise self.refuse(node, message, "scan an expression over operands that have the dimension")
        bits = self.width(node, value.kind, min(value.bits + scan.wider, 64) if self.wraps else value.bits + scan.wider)
        kind = REAL if value.kind == PAIR else value.kind
        return Node(REDUCE + scan.name, (value,), kind, value.dims, bits, dim.text, self.place(node))

    def read_reduced(
        self, name: str, node: ast.Call, over: ast.expr, reduction: Reduction, depth: int, keyword: str = "over="
    ) -> list[Node]:
        """What is reduced or scanned, and the dimensions that it is over."""
        self.wraps = self.asked and reduction.of_lowest_bits
        *values, dim = self.all((*node.args, over), depth, several=True)
        dim = self.as_dimension(dim)
        of_pairs = PAIR in reduction.kinds
        kinds = (REAL,) if name == MEAN or of_pairs else reduction.kinds
        values = [promote(value) if of_pairs and value.op == "number" else value for value in values]
        self.want_dimension(over, dim, values[0], keyword)
        for at, value in zip(node.args, values, strict=True):
            self.check_c(name, node, value.kind)
            if value.kind not in kinds:
                wanted = " or ".join(KIND_NAME[kind] for kind in kinds)
                message = f"`{name}` needs {wanted}, this is {KIND_NAME[value.kind]}"
                raise self.refuse(at, message, self.instead(at, value, kinds))
        if not of_pairs:
            return [values[0], dim]
        dims = frozenset().union(*(value.dims for value in values))
        return [Node(PAIR, tuple(values), PAIR, dims, place=self.place(node)), dim]

    def counted(self, node: ast.Call, over: list[ast.expr], depth: int) -> Node:
        """`count(over=d)`: how many elements a row has, as a real."""
        if node.args or len(over) != len(node.keywords) or len(over) != 1:
            of_dim = bool(over) or not any(value.kind == DIM for value in self.all(node.args, depth, several=True))
            help = "how many elements are such is `sum(where(condition, 1, 0), over=d)`"
            help = help if node.args and of_dim else f"write `{COUNT}(over=d)`"
            raise self.refuse(node, f"`{COUNT}` takes `over=` alone", help)
        self.check_c(COUNT, node)
        self.check_over(over[0])
        dim = self.as_dimension(*self.all(over, depth, several=True))
        self.want_dimension(over[0], dim, None)
        return Node(COUNT, (), REAL, text=dim.text, place=self.place(node))

    def position(self, node: ast.Call, depth: int) -> Node:
        """`position(d)`: the index of an element along a dimension; along several, in row-major order of these."""
        if node.keywords or len(node.args) != 1:
            several = f"write `{POSITION}((n, d))`" if len(node.args) > 1 else f"write `{POSITION}(d)`"
            raise self.refuse(node, f"`{POSITION}` takes one dimension, or several in parentheses", several)
        (of,) = node.args
        dims = [name for name, value in self.scope.values.items() if value.kind == DIM and value.dims]
        if isinstance(of, ast.Name) and not self.stack and of.id not in self.scope.values:
            self.check_hidden(of)
            help = suggestion(of.id, dims, f"dimensions: {', '.join(dims)}")
            raise self.refuse(of, f"no operand has the dimension `{of.id}`", help)
        dim = self.as_dimension(*self.all((of,), depth, several=True))
        if dim.kind != DIM or not dim.dims:
            help = f"an index is along a dimension: {', '.join(dims)}" if dims else None
            if isinstance(of, ast.Name) and of.id in dim.dims:
                help = f"`{of.id}` is an operand here; rename it, or the dimension"
            raise self.refuse(of, f"`{POSITION}` needs a dimension", help)
        if "/" in dim.text:
            help = f"write `{POSITION}({dim.text.partition('/')[0]})`"
            raise self.refuse(of, f"`{POSITION}` counts elements, and no blocks", help)
        text = PLACED + "_".join(dim.text.split(", "))
        return Node("name", (), INT, dim.dims, LENGTH_BITS + 1, text, self.place(node))

    def share(self, left: Node, right: Node) -> Node | None:
        """What is divided by two numbers of elements, along different dimensions, is divided by their product, which is
        one number of elements."""
        if right.op != COUNT or left.op != "/" or left.args[1].op != COUNT or "/" in left.args[1].text + right.text:
            return None
        names = {*left.args[1].text.split(", "), *right.text.split(", ")}
        if len(names) != left.args[1].text.count(",") + right.text.count(",") + 2:
            return None
        text = ", ".join(name for name in self.scope.dims if name in names)
        return replace(left, args=(left.args[0], replace(right, text=text)))

    def as_dimension(self, value: Node) -> Node:
        """A number that stands where a dimension does, as the dimension of that size; anything else as it is."""
        if value.op != "number" or value.kind != INT or value.text not in self.scope.dims:
            return value
        return Node("name", (), DIM, frozenset({value.text}), text=value.text, place=value.place)

    def want_dimension(self, over: ast.expr, dim: Node, reduced: Node | None, keyword: str = "over=") -> None:
        if dim.kind == DIM and dim.dims:
            return
        help = _OVER if keyword == "over=" else "name dimensions of the inputs: `along=d`, `along=(n, d)`"
        if isinstance(over, ast.Name) and reduced is not None and over.id in reduced.dims and not self.stack:
            help = f"`{over.id}` is an operand here; rename it, or the dimension"
        raise self.refuse(over, f"`{keyword}` needs a dimension", help)

    def check_over(self, over: ast.expr, keyword: str = "over=") -> None:
        """Refuses what no formula has after `over=` or `along=`, in words about dimensions."""
        dims = [name for name, value in self.scope.values.items() if value.kind == DIM and value.dims]
        if isinstance(over, ast.Name) and not self.stack and over.id not in self.scope.values:
            self.check_hidden(over)
            help = suggestion(over.id, dims, f"dimensions: {', '.join(dims)}")
            raise self.refuse(over, f"no input has the dimension `{over.id}`", help)
        if isinstance(over, (ast.Tuple, ast.List)):
            for each in over.elts:
                self.check_over(each, keyword)
        if isinstance(over, ast.Constant) and isinstance(over.value, str):
            raise self.refuse(over, f"`{keyword}` needs a dimension", f"write `{keyword}d`, without quotes")

    def instead(self, at: ast.expr, value: Node, kinds: tuple[str, ...]) -> str | None:
        """How a value becomes one that the reduction takes, as a help text."""
        if value.kind == BOOL:  # a product takes reals, a sum integers too
            return f"use `where(condition, {'1, 0' if INT in kinds else '1.0, 0.0'})`"
        start = offset_of(self.text, at)
        source = " ".join(self.text.value[start : start + at.end_col_offset - at.col_offset].split())
        if value.kind == INT and BOOL not in kinds:
            return f"write `to_real({source if len(source) <= 40 else 'i'})`"
        return f"write `{source if len(source) <= 40 else 'x'} != 0`" if value.kind != DIM else None
