"""Operators in formulas: sums and products, exact or of the lowest bits alone, and those of integers and booleans."""

from __future__ import annotations

import ast

from skuda.codegen.expr_checks import KIND_NAME
from skuda.codegen.expr_reductions import ReductionReader
from skuda.codegen.nodes import BOOL, DIM, INT, REAL, Node
from skuda.codegen.operators import KINDS, WRAPPING, WRAPS, bits_of, is_ring
from skuda.codegen.syntax import REFUSED_OPERATORS

BITS = {ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>"}
BITS |= {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}


class OperatorReader(ReductionReader):
    """Reads operators, whose operands have been read, or are."""

    def arithmetic(self, sign: str, node: ast.expr, values: tuple[Node, ...], bits: int) -> Node:
        """A sum, difference, product or negative: exact, or of 64 bits where these are all that is asked for."""
        kind = values[0].kind
        self.check_c(sign, node, kind)
        wraps = (kind == INT and bits > 64 and self.wraps) or (kind == REAL and "int" in self.scope.computes)
        bits = 64 if wraps and kind == INT else self.width(node, kind, bits)
        dims = frozenset().union(*(value.dims for value in values))
        return Node(sign, values, kind, dims, bits if kind == INT else 0,
                    WRAPS if wraps and sign in WRAPPING else "", self.place(node))  # fmt: skip

    def operated(self, sign: str, node: ast.BinOp, depth: int) -> Node:
        """An operator of integers and booleans; `//` and `%` of reals too where C may be an integer."""
        values = self.wrapping(sign, (node.left, node.right), depth)
        kinds = {value.kind for value in values}
        if REAL in kinds and BOOL not in kinds and DIM not in kinds and self.scope.computes == {"float"}:
            of, help = REFUSED_OPERATORS[type(node.op)]
            raise self.refuse(node, f"`{of}` is not part of the formula language", help)
        self.want_operands(sign, node, values)
        left, right = self.same_kind(*values)
        never_minus_one = right.op == "number" and not right.text.startswith("-")
        bits = left.bits if sign == "//" and never_minus_one else bits_of(sign, left.bits, right.bits)
        if sign == ">>" and right.op == "number" and left.kind == INT:
            bits = max(left.bits - int(right.text), 1)
        if sign == "&" and right.op == "number":  # not negative: it has no bit that the number lacks
            bits = right.bits
        if sign == "<<" and left.kind == INT and not self.wraps:
            help = "write `wrap(...)` around the formula"
            raise self.refuse(node, "nothing bounds what is shifted to the left", help)
        bits = 0 if left.kind != INT else min(bits, 64) if self.wraps else self.width(node, INT, bits)
        return Node(sign, (left, right), left.kind, left.dims | right.dims, bits, place=self.place(node))

    def inverted(self, node: ast.UnaryOp, value: Node) -> Node:
        """`~`, of integers and booleans."""
        self.want_operands("~", node, (value,))
        return Node("~", (value,), value.kind, value.dims, value.bits, place=self.place(node))

    def wrapping(self, sign: str, nodes: tuple[ast.expr, ...], depth: int) -> list[Node]:
        """The operands of an operator, the lowest bits of which may be all that is asked for, as of its result."""
        outer, self.wraps = self.wraps, self.wraps and is_ring(sign)
        try:
            return self.all(nodes, depth)
        finally:
            self.wraps = outer

    def want_operands(self, sign: str, node: ast.expr, values) -> None:
        """Refuses operands that an operator of integers and booleans does not take."""
        kinds = {value.kind for value in values}
        taken = kinds - {INT} if REAL in kinds else kinds  # an integer becomes a value of C beside one
        if len(taken) == 1 and (taken <= {*KINDS[sign]} or taken == {REAL}):
            return self.check_c(sign, node, *taken)
        wanted = " or ".join({INT: "integers", BOOL: "booleans"}[kind] for kind in KINDS[sign])
        found = " and ".join(sorted(KIND_NAME[kind] for kind in kinds))
        raise self.refuse(node, f"`{sign}` needs {wanted}, this is {found}")
