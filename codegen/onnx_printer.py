"""Formulas as operators of ONNX: a printer over the typed tree, as those for CUDA, NumPy and LaTeX are.

A value is a tensor with all axes of the operation's space, of one element along those that it does not depend on, so
that operators broadcast. A real is of the compute type, an integer is int64, a boolean is bool. Along a dimension
whose values are the same in each block (`d/group_size`), a tensor has an element for each block until it meets one
with an element for each index.

What is exact in the language is exact here: an operator of ONNX stands where its rule is the language's, and a few of
them where it is not (ONNX says nothing of NaN in `Max`, nor which of two zeros it gives).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from skuda.codegen.intrinsics import INTRINSICS
from skuda.codegen.nodes import BOOL, INT, PLACED, REAL, REDUCE, SMALLEST, Node
from skuda.codegen.onnx_intrinsics import LACKING, SAME, Intrinsics
from skuda.codegen.onnx_operators import Operators
from skuda.codegen.onnx_reductions import Reductions
from skuda.codegen.operators import OPERATORS
from skuda.codegen.program import Program, is_repeated
from skuda.codegen.reductions import REDUCTIONS
from skuda.errors import Unsupported
from skuda.frameworks.placing import Placing
from skuda.model.dtypes import DTYPES, DType
from skuda.model.operation import COMPUTE, Operand
from skuda.model.shapes import broadcast_shape, same_shape
from skuda.model.sum_order import PARTED

_SIGNS = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "<": "Less", "<=": "LessOrEqual", ">": "Greater"}
_SIGNS |= {">=": "GreaterOrEqual", "==": "Equal", "and": "And", "or": "Or", "not": "Not", "neg": "Neg"}
_ORDERS = ("<", "<=", ">", ">=")  # which ONNX has of numbers alone


class Emitter(Protocol):
    """Makes nodes of a graph."""

    def emit(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """The output of a new node; its one output."""

    def constant(self, array: np.ndarray) -> Any:
        """A constant."""


def lacking(program: Program) -> str | None:
    """Why standard operators cannot say an operation's formulas; None where they can."""
    for node in program.written_out.values():
        for part in sorted(node.intrinsics() & LACKING.keys()):
            return f"`{part}`: {LACKING[part]}"
        for part in node.reductions():
            if part.text.partition("/")[2] and part.op.removeprefix(REDUCE).startswith("arg"):
                return f"`{part.op.removeprefix(REDUCE)}` of blocks: no operator of ONNX gives an index in each block"
            if "/" in part.text and part.op == REDUCE + "squared_deviations":
                return "`squared_deviations` of blocks: the last one, which may be short, has a mean of its own"
            if part.is_scan and REDUCTIONS[part.op.removeprefix(REDUCE)].joins != "sum":
                return f"`{REDUCTIONS[part.op.removeprefix(REDUCE)].function}`: of scans, ONNX has that of sums alone"
            if is_repeated(part):
                return f"`{part.op.removeprefix(REDUCE)}`: a loop whose length follows from values"
            if part.op == REDUCE + "prod" and part.kind == INT:
                return "`prod` of integers: ONNX says nothing of a product beyond 64 bits, and ONNX Runtime cuts it"
    return None


def same_bits(program: Program) -> bool:
    """Whether ONNX's operators give an operation's bits: each step is exact, or rounded once, and none has an order."""
    called = set().union(*(node.intrinsics() for node in program.formulas.values())) & INTRINSICS.keys()
    if not all(INTRINSICS[name].exact for name in called):
        return False
    ordered = [REDUCE + name for name in ("sum", "prod", *PARTED)]
    return not any((part.op in ordered or part.is_scan) and part.kind == REAL for part in program.reductions)


class Printer:
    """Prints one operation.

    Args:
        program: the operation and its formulas.
        placing: how the arrays lie.
        emitter: takes the nodes.
        inputs: of each operand by name, its value in the graph.
    """

    def __init__(self, program: Program, placing: Placing, emitter: Emitter, inputs: Mapping[str, Any]):
        self.program, self.placing, self.emitter = program, placing, emitter
        self.emit = emitter.emit
        self.operation = program.operation
        self.C = DTYPES[placing.words[COMPUTE]].storage
        self.inputs = dict(inputs)
        self.exact = same_bits(program)
        self._known: dict[Node, Any] = {}
        self._constants: dict[tuple, Any] = {}
        shape = placing.shape
        self.said = self.whole(shape) if isinstance(shape, (tuple, list)) else shape
        self._loaded = {operand.name: self.load(operand) for operand in self.operation.inputs}
        self._loaded |= self._broadcast()
        self.intrinsics, self.reductions = Intrinsics(self, self._loaded), Reductions(self)
        self.operators = Operators(self)

    def outputs(self) -> list[Any]:
        """The outputs' values, in the row's order.

        Raises:
            Unsupported: the formulas cannot be said; names what in them.
        """
        reason = lacking(self.program)
        if reason is not None:
            raise Unsupported(f"{self.operation.function}: ONNX's standard operators cannot say it: {reason}")
        formulas = self.program.written_out
        return [self.store(operand, formulas[operand.name]) for operand in self.operation.outputs]

    # ---- constants ----

    def constant(self, value: int | float | bool | Sequence[int], dtype: Any) -> Any:
        """A constant of some type, made once."""
        array = np.array(value, dtype)
        key = array.tobytes(), array.shape, array.dtype.str
        if key not in self._constants:
            self._constants[key] = self.emitter.constant(array)
        return self._constants[key]

    def real(self, value: float) -> Any:
        """A constant of the compute type."""
        return self.constant(value, self.C)

    def whole(self, value: int | Sequence[int]) -> Any:
        """A constant of int64."""
        return self.constant(value, np.int64)

    def cast(self, value: Any, dtype: np.dtype | type) -> Any:
        """A value in another type."""
        return self.emitter.emit("Cast", value, to=element_type(dtype))

    # ---- operands ----

    def load(self, operand: Operand) -> Any:
        """An operand as the formulas have it."""
        value, word = self.inputs[operand.name], self.operation.word(operand, self.placing.words)
        rank = self.placing.ranks[operand.name]
        if DTYPES[word].packed:
            value = self.unpacked(value, word, rank)
        elif DTYPES[word].kind == "float":
            value = value if DTYPES[word].storage == self.C else self.cast(value, self.C)
        elif DTYPES[word].storage != np.dtype(bool):
            value = self.cast(value, np.int64)
        if operand.scalar:
            return self.emit("Reshape", value, self.constant([], np.int64)) if rank else value
        own = [axis for dim in operand.dims for axis in self.placing.axes[dim.name]]
        if rank == self.placing.rank and not self._permuted(operand):
            return value
        order = sorted(own)
        if own != order:
            value = self.emit("Transpose", value, perm=[own.index(axis) for axis in order])
        missing = [axis for axis in range(self.placing.rank) if axis not in own]
        return self.emit("Unsqueeze", value, self.whole(missing)) if missing else value

    def _permuted(self, operand: Operand) -> bool:
        """Whether an operand has its dimensions in another order than the operation's space."""
        own = [dim.name for dim in operand.dims]
        return own != [dim.name for dim in self.operation.space if dim.name in own]

    def _broadcast(self) -> dict[str, Any]:
        """The operands that broadcast and have several shapes, in one shape."""
        found, given = {}, self.placing.given
        for name, shape in given.items():
            for other, wanted in given.items():
                whole = broadcast_shape([shape, wanted])
                if not same_shape(whole, shape):
                    expanded, shape = found.get(name, self._loaded[name]), whole
                    found[name] = self.emit("Expand", expanded, self.emit("Shape", self._loaded[other]))
        return found

    def unpacked(self, value: Any, word: str, rank: int) -> Any:
        """Codes of 4 bits, two to a byte, as integers; element 2i is in the low nibble."""
        if DTYPES[word].kind == "float":
            raise Unsupported(f"{self.operation.function}: {word} has no arithmetic in ONNX as bytes of two codes")
        byte = self.cast(value, np.int64)
        pair = [self.emit("Mod", byte, self.whole(16)), self.emit("Div", byte, self.whole(16))][: 2 if rank else 1]
        if DTYPES[word].lowest < 0:
            moved = [self.emit("Add", half, self.whole(8)) for half in pair]
            pair = [self.emit("Sub", self.emit("Mod", each, self.whole(16)), self.whole(8)) for each in moved]
        if not rank:
            return pair[0]
        halves = [self.emit("Unsqueeze", half, self.whole([rank])) for half in pair]
        joined = self.emit("Concat", *halves, axis=rank)
        kept = self.emit("Shape", value, start=0, end=rank - 1)
        flat = self.emit("Reshape", joined, self.emit("Concat", kept, self.whole([-1]), axis=0))
        if self.said is None:
            return flat
        end = self.emit("Slice", self.said, self.whole([-1]), self.whole([1 << 30]))
        return self.emit("Slice", flat, self.whole([0]), end, self.whole([rank - 1]))

    def packed(self, value: Any, word: str, rank: int) -> Any:
        """Integers as codes of 4 bits, two to a byte; what pads an odd row is 0."""
        value = self.emit("Mod", value, self.whole(16))
        if not rank:
            return self.cast(value, np.uint8)
        length = self.emit("Shape", value, start=rank - 1, end=rank)
        odd = self.emit("Mod", length, self.whole(2))
        padding = self.emit("Concat", self.whole([0]), odd, axis=0)
        value = self.emit("Pad", value, padding, self.whole(0), self.whole([rank - 1]))
        kept = self.emit("Shape", value, start=0, end=rank - 1)
        pairs = self.emit("Reshape", value, self.emit("Concat", kept, self.whole([-1, 2]), axis=0))
        bytes_ = self.emit("ReduceSum", self.emit("Mul", pairs, self.whole([1, 16])), self.whole([-1]), keepdims=0)
        return self.cast(bytes_, np.uint8)

    def store(self, operand: Operand, node: Node) -> Any:
        """What an output holds: rounded once to its type, with its own axes."""
        value, word = self.value(node), self.operation.word(operand, self.placing.words)
        value = self.shaped(operand, node, value)
        if DTYPES[word].packed:
            if node.kind == REAL:
                raise Unsupported(f"{self.operation.function}: {word} has no arithmetic in ONNX as bytes of two codes")
            return self.packed(value, word, self.placing.ranks[operand.name])
        if node.kind == BOOL:
            return value if DTYPES[word].storage == np.dtype(bool) else self.cast(value, DTYPES[word].storage)
        if node.kind == REAL and np.dtype(self.C).kind == "i":
            value = self.intrinsics.lowest_bits(DTYPES[word], value)
        same = DTYPES[word].storage == (self.C if node.kind == REAL else np.int64)
        return self.emit("Identity", value) if same else self.cast(value, DTYPES[word].storage)

    def shaped(self, operand: Operand, node: Node, value: Any) -> Any:
        """A value with an output's axes: repeated along those that it does not depend on, without those it lacks."""
        rank, own = self.placing.rank, {dim.name for dim in operand.dims}
        blocks = {dim.name: dim.block for dim in operand.dims}
        for name in own:  # one value for each block, and the output has one for each element
            if blocks[name] is None and name not in node.dims:
                value = self.for_each(value, node.dims, name)
        lacks = own - {name.partition("/")[0] for name in node.dims}
        if lacks:
            shape = self.shape()
            if other := self._axes_but(own):
                shape = self.emit("ScatterElements", shape, self.whole(other), self.whole([1] * len(other)), axis=0)
            value = self.emit("Expand", value, shape)
        permuted = self._permuted(operand)
        if self.placing.ranks[operand.name] == rank and not permuted:
            return value
        gone = self._axes_but(own)
        value = self.emit("Squeeze", value, self.whole(gone)) if gone else value
        if permuted:
            axes = [axis for dim in operand.dims for axis in self.placing.axes[dim.name]]
            value = self.emit("Transpose", value, perm=[sorted(axes).index(axis) for axis in axes])
        return value

    def _axes_but(self, names: set[str]) -> list[int]:
        """The axes of the space's other dimensions."""
        return sorted(axis for dim in self.operation.space if dim.name not in names
                      for axis in self.placing.axes[dim.name])  # fmt: skip

    # ---- extents ----

    def shape(self) -> Any:
        """The shape of an array with all dimensions, as a value."""
        space = {dim.name for dim in self.operation.space}
        for operand in self.operation.inputs:
            whole = {dim.name for dim in operand.dims if dim.block is None}
            if whole == space:
                return self.emit("Shape", self._loaded[operand.name])
        if self.said is not None:
            return self.said
        shapes = [self.emit("Shape", self._loaded[o.name]) for o in self.operation.inputs if not o.scalar
                  and not any(dim.block for dim in o.dims)]  # fmt: skip
        if fixed := {self.placing.axes[name][0]: size for name, size in self.operation.fixed.items()}:
            shapes.append(self.whole([fixed.get(axis, 1) for axis in range(self.placing.rank)]))
        return self.emit("Max", *shapes)

    def extent(self, name: str) -> Any:
        """The number of elements along a dimension, as a value without axes."""
        axes = self.placing.axes[name]
        extents = self.emit("Gather", self.shape(), self.whole(list(axes)), axis=0)
        return self.emit("ReduceProd", extents, keepdims=0)

    def for_each(self, value: Any, dims: frozenset[str], name: str) -> Any:
        """A value with an element for each block along a dimension, repeated for each index; any other as it is."""
        block = next((each.partition("/")[2] for each in dims if each.startswith(f"{name}/")), None)
        if block is None:
            return value
        size = self.whole(self.placing.values[block])
        index = self.emit("Range", self.whole(0), self.extent(name), self.whole(1))
        return self.emit("Gather", value, self.emit("Div", index, size), axis=self.placing.axes[name][0])

    # ---- formulas ----

    def value(self, node: Node) -> Any:
        """The value of a part of a formula; parts that are the same are computed once."""
        if node not in self._known:
            self._known[node] = self.written(node)
        return self._known[node]

    def aligned(self, nodes: Sequence[Node]) -> list[Any]:
        """Values that go into one operator: blocks are written out where another one has all elements."""
        values = [self.value(node) for node in nodes]
        whole = {name for node in nodes for name in node.dims if "/" not in name}
        return [
            self._aligned(value, node, whole) for value, node in zip(values, nodes, strict=True)
        ]

    def _aligned(self, value: Any, node: Node, whole: set[str]) -> Any:
        for name in whole - node.dims:
            value = self.for_each(value, node.dims, name)
        return value

    def written(self, node: Node) -> Any:
        """The value of a node that has not been made yet."""
        if node.op == "number":
            return self.real(float(node.text)) if node.kind == REAL else self.whole(int(node.text))
        if node.op == "name":
            return self._name(node)
        if node.op == "stored":
            return self._stored(node)
        if node.op == SMALLEST:
            return self.real(self.type_of(node).smallest)
        if node.op == "count":
            return self.reductions.count(node)
        if node.op.startswith(REDUCE):
            return self.reductions.value(node)
        if node.guard is not None:  # a row has elements: ONNX says nothing of the extreme of none
            return self.value(node.args[2])
        arguments = self.aligned(node.args)
        if node.op in OPERATORS:
            return self.operators.value(node, *arguments)
        if node.op in _ORDERS and node.args[0].kind == REAL and np.dtype(self.C) == np.bool_:
            arguments = [self.cast(each, np.int64) for each in arguments]
        if node.op == "+" and self.exact and any(map(self._is_plus_zero, arguments)):
            return self._with_zero_added(arguments)
        if node.op in _SIGNS:
            return self.emit(_SIGNS[node.op], *arguments)
        if node.op == "!=":
            return self.emit("Not", self.emit("Equal", *arguments))
        if node.op in SAME:
            return self.emit(SAME[node.op], *arguments)
        called: Callable[..., Any] = getattr(self.intrinsics, node.op)
        return called(node, *arguments)

    def _name(self, node: Node) -> Any:
        if node.text in self._loaded:
            return self._loaded[node.text]
        if node.text.startswith(PLACED):
            return self._position(node)
        value = self.placing.values[node.text]
        if node.kind == BOOL:
            return self.constant(value, np.bool_)
        return self.real(value) if node.kind == REAL else self.whole(int(value))

    def _is_plus_zero(self, value: Any) -> bool:
        """Whether a value is the constant +0 of the compute type, as a number or an attribute may be."""
        zero = np.array(0, self.C)
        known = self._constants.get((zero.tobytes(), zero.shape, zero.dtype.str))
        return zero.dtype.kind == "f" and known is not None and value is known

    def _with_zero_added(self, values: Sequence[Any]) -> Any:
        """A sum with +0, which makes +0 of a -0: ONNX Runtime's optimizer takes it for the other value."""
        zero = self.real(0)
        other = next((value for value in values if not self._is_plus_zero(value)), zero)
        return self.emit("Where", self.emit("Equal", other, zero), zero, other)

    def _position(self, node: Node) -> Any:
        """The index of each element along some dimensions, in row-major order of these."""
        (operand,) = [each for each in self.operation.positions if each.name == node.text]
        axes = [axis for dim in operand.dims for axis in self.placing.axes[dim.name]]
        found = None
        for number, axis in enumerate(axes):
            extent = self.emit("ReduceProd", self.emit("Gather", self.shape(), self.whole([axis]), axis=0), keepdims=0)
            index = self.emit("Range", self.whole(0), extent, self.whole(1))
            others = [other for other in range(self.placing.rank) if other != axis]
            index = self.emit("Unsqueeze", index, self.whole(others)) if others else index
            if number:
                found = self.emit("Mul", found, extent)
            found = index if found is None else self.emit("Add", found, index)
        return self.whole(0) if found is None else found

    def type_of(self, node: Node) -> DType:
        return DTYPES[self.placing.words.get(node.text, node.text)]

    def _stored(self, node: Node) -> Any:
        value, storage = self.value(node.args[0]), self.type_of(node).storage
        return value if storage == self.C else self.cast(self.cast(value, storage), self.C)


def element_type(dtype: np.dtype | type) -> int:
    """ONNX's number of an element type."""
    from onnx import helper  # optional

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
