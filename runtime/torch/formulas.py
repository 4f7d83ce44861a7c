"""Formulas as plain operators of torch, evaluated over the typed tree from which the kernels are printed too.

A value is a tensor with all axes of the operation's space, of one element along those that it does not depend on, or
without axes. A real is of the compute type, which is int64 or bool where the call's elements are integers or booleans;
an integer is int64, a boolean is bool. Along a dimension whose values are the same in each block (`d/group_size`), a
tensor has an element for each block until it meets one with an element for each index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from skuda.arrays.libraries import order_in_memory, torch_dtypes
from skuda.frameworks.placing import Placing, placing
from skuda.model.dtypes import DTYPES, DType
from skuda.model.operation import COMPUTE, Operand, Operation, Over, Types
from skuda.plans.functions import Call
from skuda.torch.described import described, strides_of
from skuda.torch.formula_functions import CONVERSIONS, FUNCTIONS, LACKING
from skuda.torch.random_functions import OF_C

if TYPE_CHECKING:
    from skuda.codegen.nodes import Node
    from skuda.codegen.program import Program

REAL, BOOL = "real", "bool"  # kinds of nodes
REDUCE = "reduce "
SCAN = "scan "
_SCANS = {
    "cumsum": lambda rows: rows.cumsum(-1),
    "cumprod": lambda rows: rows.cumprod(-1),
    "cummax": lambda rows: rows.cummax(-1).values,
    "cummin": lambda rows: rows.cummin(-1).values,
    "logcumsumexp": lambda rows: rows.logcumsumexp(-1),
}


def _sparsemax_threshold(rows: torch.Tensor) -> torch.Tensor:
    """The number that the elements above it exceed by 1 in all, of each row: some of the largest are above it, and no
    number of them gives a greater one."""
    sums = rows.sort(-1, descending=True).values.cumsum(-1) - 1
    return (sums / torch.arange(1, rows.shape[-1] + 1, dtype=rows.dtype, device=rows.device)).amax(-1)


# Reductions that torch has along the last axis alone.
_OF_ROWS = {
    "argmax": lambda rows: rows.argmax(-1),
    "argmin": lambda rows: rows.argmin(-1),
    "sparsemax_threshold": _sparsemax_threshold,
}
# What changes no reduction: of reals and of integers.
_NEUTRAL = {"sum": (-0.0, 0), "prod": (1.0, 1), "any": (0, 0), "all": (1, 1),
            "max": (-math.inf, -(1 << 63)), "min": (math.inf, (1 << 63) - 1)}  # fmt: skip
_NEUTRAL |= {"argmax": _NEUTRAL["max"], "argmin": _NEUTRAL["min"], "squared_deviations": (0.0, 0)}
_NEUTRAL["logsumexp"] = _NEUTRAL["max"]


def lacking(program: Program) -> str | None:
    """Why torch cannot say an operation's formulas; None where it can."""
    for node in program.written_out.values():
        for part in sorted(node.intrinsics() & LACKING.keys()):
            return f"`{part}`: {LACKING[part]}"
        for part in node.scans():
            function = part.op.split()[2]
            if function not in _SCANS:
                return f"`{function}`: torch has no such scan"
    operation = program.operation
    if not any(_sayable(operation, types) for types in operation.combinations):
        return f"torch computes nothing with {' or '.join(_unknown(operation, operation.combinations[0]))}"
    return None


def _sayable(operation: Operation, types: Types) -> bool:
    return not _unknown(operation, types)


def _unknown(operation: Operation, types: Types) -> list[str]:
    """The element types of a call with which torch does not compute: two floats to a byte, powers of two."""
    words = dict.fromkeys(operation.word(operand, types) for operand in operation.operands)
    floats = [DTYPES[word] for word in words if DTYPES[word].kind == "float"]
    return [dtype.word for dtype in floats if dtype.packed or not dtype.mantissa]


def evaluated(call: Call, program: Program, device: torch.device | None = None) -> tuple[torch.Tensor, ...] | None:
    """The outputs of a call, by operators of torch; None where its element types are none that torch computes with.

    Args:
        call: with tensors, of any device, or numbers in place of single values.
        program: of the call's operation.
        device: of the outputs; that of the tensors if None, torch's default where there are none.
    """
    found = placing(call, described)
    if not _sayable(call.plan_class.operation, found.words):
        return None
    names = [operand.name for operand in call.plan_class.operation.inputs]
    inputs = dict(zip(names, call.inputs, strict=True))
    given = next((each.device for each in call.inputs if isinstance(each, torch.Tensor)), None)
    made = Formulas(program, found, inputs, call.keepdims, device or given or torch.get_default_device()).outputs()
    strides = strides_of(call, [each.shape for each in made])
    return tuple(each if steps is None else _lying(each, steps) for each, steps in zip(made, strides, strict=True))


def _lying(tensor: torch.Tensor, strides: tuple) -> torch.Tensor:
    """A tensor with its axes in another order in memory, that of these strides, if these are known."""
    if not all(isinstance(step, int) or step.node.has_hint() for step in strides):
        return tensor
    order, back = order_in_memory(strides)
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)


class Formulas:
    """Evaluates the formulas of one call.

    Args:
        program: the operation and its formulas.
        placing: how the arrays lie.
        inputs: by name.
        keepdims: whether outputs keep the axes that are reduced.
        device: of the tensors.
    """

    def __init__(
        self, program: Program, placing: Placing, inputs: Mapping[str, Any], keepdims: bool, device: torch.device
    ):
        self.program, self.placing, self.keepdims = program, placing, keepdims
        self.operation = program.operation
        self.C = self._torch(DTYPES[placing.words[COMPUTE]])
        self.device = device
        self._known: dict[Node, torch.Tensor] = {}
        self.extents: list[Any] = [1] * placing.rank  # of an array with all dimensions
        for dim in self.operation.space:
            size = placing.sizes[dim.name]
            for axis, extent in zip(placing.axes[dim.name], size if isinstance(size, tuple) else (size,), strict=True):
                self.extents[axis] = extent
        self._loaded = {operand.name: self.load(operand, inputs[operand.name]) for operand in self.operation.inputs}
        self._loaded |= {operand.name: self.position(operand) for operand in self.operation.positions}

    def outputs(self) -> tuple[torch.Tensor, ...]:
        """The outputs, in the row's order; none shares memory with an input."""
        formulas = self.program.written_out
        made = [self.store(operand, formulas[operand.name]) for operand in self.operation.outputs]
        return tuple(each.clone(memory_format=torch.contiguous_format) for each in made)

    @staticmethod
    def _torch(dtype: DType) -> torch.dtype:
        return torch_dtypes()[dtype.storage]

    def constant(self, value: Any, dtype: torch.dtype) -> torch.Tensor:
        """A value without axes. It is no number of Python, by which torch would divide in another way on a GPU."""
        return torch.full((), value, dtype=dtype, device=self.device)

    # ---- operands ----

    def load(self, operand: Operand, value: Any) -> torch.Tensor:
        """An operand as the formulas have it."""
        dtype = DTYPES[self.operation.word(operand, self.placing.words)]
        if not isinstance(value, torch.Tensor):
            value = self.constant(value, self._torch(dtype))
        if dtype.packed:
            value = self._unpacked(operand, value, dtype)
        elif dtype.kind == "float":
            value = (value.view(self._torch(dtype)) if value.dtype == torch.uint8 else value).to(self.C)
        elif dtype.kind == "int":
            value = value.to(torch.int64)
        if operand.scalar:
            return value.reshape(())
        rank, own = self.placing.rank, self._own(operand)
        if value.ndim == rank and (operand.dims == self.operation.space or len(own) < rank):
            return value
        if own != sorted(own):
            value = value.permute([own.index(axis) for axis in sorted(own)])
        for axis in range(rank):
            if axis not in own:
                value = value.unsqueeze(axis)
        return value

    def position(self, operand: Operand) -> torch.Tensor:
        """The index of each element along an operand's dimensions, in row-major order of these."""
        found = self.constant(0, torch.int64)
        for axis in self._own(operand):
            along = [-1 if other == axis else 1 for other in range(self.placing.rank)]
            index = torch.arange(self.extents[axis], dtype=torch.int64, device=self.device).reshape(along)
            found = found * self.extents[axis] + index
        return found

    def _own(self, operand: Operand) -> list[int]:
        """The axes of the space that an operand has, in its own order."""
        return [axis for dim in operand.dims for axis in self.placing.axes[dim.name]]

    def _unpacked(self, operand: Operand, value: torch.Tensor, dtype: DType) -> torch.Tensor:
        """Codes of 4 bits, two to a byte, as integers; element 2i is in the low nibble."""
        low, high = value & 15, value >> 4
        if value.ndim:
            last = self._own(operand)[-1] if operand.dims != self.operation.space else self.placing.rank - 1
            block = operand.dims[-1].block
            extent = self.extents[last] if block is None else -(-self.extents[last] // self.placing.sizes[block])
            low = torch.stack([low, high], -1).flatten(-2).narrow(-1, 0, extent)
        codes = low.to(torch.int64)
        return (codes ^ 8) - 8 if dtype.signed else codes

    @staticmethod
    def _packed(codes: torch.Tensor) -> torch.Tensor:
        """Codes of 4 bits two to a byte; what pads an odd row is 0."""
        codes = (codes & 15).to(torch.uint8)
        if not codes.ndim:
            return codes
        codes = F.pad(codes, (0, codes.shape[-1] % 2))
        return codes[..., 0::2] | codes[..., 1::2] << 4

    def store(self, operand: Operand, node: Node) -> torch.Tensor:
        """What an output holds: rounded once to its type, with its own axes."""
        dtype = DTYPES[self.operation.word(operand, self.placing.words)]
        value = self._shaped(operand, node, self.value(node))
        return self._packed(value) if dtype.packed else self._rounded(value, dtype)

    def _rounded(self, value: torch.Tensor, dtype: DType) -> torch.Tensor:
        """A value as it is stored; floats of 8 bits saturate."""
        if dtype.narrow_float:
            value = value.clamp(dtype.lowest, dtype.highest)  # NaN stays
            value = torch.where(value.isnan(), self.constant(math.nan, value.dtype), value)  # with a clear sign
        return value.to(self._torch(dtype))

    def _shaped(self, operand: Operand, node: Node, value: torch.Tensor) -> torch.Tensor:
        """A value with an output's axes."""
        own, shape = {dim.name: dim for dim in operand.dims}, [1] * self.placing.rank
        for name, dim in own.items():
            if dim.block is None and name not in node.dims:
                value = self.for_each(value, node.dims, name)
            for axis in self.placing.axes[name]:
                extent = self.extents[axis]
                shape[axis] = extent if dim.block is None else -(-extent // self.placing.sizes[dim.block])
        value = value.expand(shape)
        if self.keepdims or operand.dims == self.operation.space or not self.placing.rank:
            return value
        axes = self._own(operand)
        value = value.reshape([shape[axis] for axis in sorted(axes)])
        return value.permute([sorted(axes).index(axis) for axis in axes])

    # ---- dimensions ----

    def for_each(self, value: torch.Tensor, dims: frozenset[str], name: str) -> torch.Tensor:
        """A value with an element for each block along a dimension, repeated for each index; any other as it is."""
        block = next((each.partition("/")[2] for each in dims if each.startswith(f"{name}/")), None)
        if block is None:
            return value
        (axis,) = self.placing.axes[name]
        size, shape = self.placing.sizes[block], list(value.shape)
        repeated = value.unsqueeze(axis + 1).expand(*shape[: axis + 1], size, *shape[axis + 1 :])
        return repeated.flatten(axis, axis + 1).narrow(axis, 0, self.extents[axis])

    def _aligned(self, nodes: Sequence[Node]) -> list[torch.Tensor]:
        """Values that meet: blocks are written out where another one has all elements."""
        whole = {name for node in nodes for name in node.dims if "/" not in name}
        values = []
        for node in nodes:
            value = self.value(node)
            for name in whole - node.dims:
                value = self.for_each(value, node.dims, name)
            values.append(value)
        return values

    # ---- formulas ----

    def value(self, node: Node) -> torch.Tensor:
        """The value of a part of a formula; parts that are the same are computed once."""
        if node not in self._known:
            self._known[node] = self._evaluated(node)
        return self._known[node]

    def _evaluated(self, node: Node) -> torch.Tensor:
        dtype = {REAL: self.C, BOOL: torch.bool}.get(node.kind, torch.int64)
        if node.op == "number":
            return self.constant(float(node.text) if dtype.is_floating_point else int(node.text), dtype)
        if node.op == "name":
            found = self._loaded.get(node.text)
            return self.constant(self.placing.values[node.text], dtype) if found is None else found
        if node.op == "stored":
            return self._rounded(self.value(node.args[0]), self._type(node)).to(self.C)
        if node.op == "smallest":
            return self.constant(self._type(node).smallest, dtype)
        if node.op == "count":
            return self._count(Over.of(node.text))
        if node.op.startswith(REDUCE):
            return self._reduction(node)
        if node.guard is not None:  # an extreme is asked for only of rows that have elements
            return self.value(node.args[1 if self._is_empty(Over.of(node.guard.text)) else 2])
        if node.op == "to_real":
            return self.value(node.args[0]).to(self.C)
        if node.op in CONVERSIONS:
            return CONVERSIONS[node.op](*self._aligned(node.args), self._type(node))
        if node.op in OF_C:
            return OF_C[node.op](*self._aligned(node.args), self.C)
        return FUNCTIONS[node.op](*self._aligned(node.args))

    def _type(self, node: Node) -> DType:
        return DTYPES[self.placing.words.get(node.text, node.text)]

    # ---- reductions ----

    def _axes(self, over: Over) -> list[int]:
        return sorted(axis for name in over.dims for axis in self.placing.axes[name])

    def _is_empty(self, over: Over) -> bool:
        return any(self.extents[axis] == 0 for axis in self._axes(over))

    def _count(self, over: Over) -> torch.Tensor:
        """How many elements a row has; of blocks, each block's."""
        total = math.prod(self.extents[axis] for axis in self._axes(over))
        if not over.block:
            return self.constant(total, self.C)
        size, (axis,) = self.placing.sizes[over.block], self._axes(over)
        starts = torch.arange(-(-total // size), device=self.device) * size
        shape = [-1 if each == axis else 1 for each in range(self.placing.rank)]
        return (total - starts).clamp(max=size).to(self.C).reshape(shape)

    def _reduction(self, node: Node) -> torch.Tensor:
        """A reduction's value, with one element along what it is over, or one for each block."""
        how, over, argument = node.op.removeprefix(REDUCE), Over.of(node.text), node.args[0]
        value, axes = self.value(argument), self._axes(over)
        for name in over.dims:
            if name not in argument.dims:
                value = self.for_each(value, argument.dims, name)
        value = value if value.ndim else value.reshape([1] * self.placing.rank)
        value = value.expand([self.extents[axis] if axis in axes else -1 for axis in range(self.placing.rank)])
        if how.startswith(SCAN):
            return self._scanned(how, value, axes)
        if not axes and how == "squared_deviations":
            return value - value
        if not axes:  # one value is a row of one element
            return torch.zeros_like(value, dtype=torch.int64) if how.startswith("arg") else value
        if not over.block:
            return self._reduced(how, value, axes)
        value, (axis,) = self._in_blocks(how, value, axes[0], self.placing.sizes[over.block]), axes
        if how == "squared_deviations":
            return self._squared_deviations_of_blocks(value, axis + 1, self._count(over).unsqueeze(axis + 1))
        return self._reduced(how, value, [axis + 1]).squeeze(axis + 1)

    def _squared_deviations_of_blocks(self, value: torch.Tensor, axis: int, counts: torch.Tensor) -> torch.Tensor:
        """Of the first elements of each block, as many as it has, along an axis."""
        apart = value - value.sum(axis, keepdim=True) / counts
        places = torch.arange(value.shape[axis], device=value.device).reshape([-1] + [1] * (value.ndim - 1 - axis))
        return torch.where(places < counts, apart * apart, 0).sum(axis)

    def _scanned(self, name: str, value: torch.Tensor, axes: list[int]) -> torch.Tensor:
        """A scan along axes, whose elements are counted in row-major order of these."""
        function, options = name.split()[1], name.split()[2:]
        kept = [axis for axis in range(value.ndim) if axis not in axes]
        moved = value.permute(*kept, *axes)
        rows = moved.flatten(len(kept)) if axes else moved.unsqueeze(-1)
        rows = rows.flip(-1) if "reverse" in options else rows
        found = _SCANS[function](rows)
        if "exclusive" in options:
            first = torch.full_like(found[..., :1], self._empty(function, found.dtype))
            found = torch.cat([first, found[..., :-1]], -1)
        found = found.flip(-1) if "reverse" in options else found
        return found.reshape(moved.shape).permute([[*kept, *axes].index(axis) for axis in range(value.ndim)])

    @staticmethod
    def _empty(function: str, dtype: torch.dtype) -> float | int:
        """The scan of no elements."""
        if function in ("cumsum", "cumprod"):
            return int(function == "cumprod")
        limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        least, greatest = (-math.inf, math.inf) if dtype.is_floating_point else (limits.min, limits.max)
        return greatest if function == "cummin" else least

    def _in_blocks(self, how: str, value: torch.Tensor, axis: int, size: Any) -> torch.Tensor:
        """A tensor whose axis is two, blocks and their elements; a short last one is filled up with what changes
        nothing."""
        real, integer = _NEUTRAL[how]
        missing = -self.extents[axis] % size
        fill = real if value.is_floating_point() else integer
        value = F.pad(value, [0, 0] * (value.ndim - 1 - axis) + [0, missing], value=fill)
        return value.unflatten(axis, (-1, size))

    def _reduced(self, how: str, value: torch.Tensor, axes: list[int]) -> torch.Tensor:
        if how in _OF_ROWS:
            kept = [axis for axis in range(value.ndim) if axis not in axes]
            shape = [1 if axis in axes else value.shape[axis] for axis in range(value.ndim)]
            return _OF_ROWS[how](value.permute(*kept, *axes).flatten(len(kept))).reshape(shape)
        if how == "squared_deviations":
            return (value - value.mean(axes, keepdim=True)).square().sum(axes, keepdim=True)
        if how == "prod":
            for axis in axes:
                value = value.prod(axis, keepdim=True)
            return value
        if how == "logsumexp":
            return torch.logsumexp(value, axes, keepdim=True)
        function = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "any": torch.any, "all": torch.all}[how]
        return function(value, axes, keepdim=True)
