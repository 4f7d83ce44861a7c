"""How operators are split over devices, for DTensor: what the named dimensions of an operation allow.

DTensor keeps what it found for a call by the shapes of the tensors and by the arguments that it is told of. It is told
of all of them: two calls that differ in `axis` alone are split along different axes.
"""

from __future__ import annotations

from math import ceil

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

from skuda.frameworks.sharding import Axes, Rule, factors, repeated, rule
from skuda.plans.results import resolved_by
from skuda.torch.described import described
from skuda.torch.operators import Operator, operators

# What DTensor calls reductions of partial results; it has none of booleans.
_JOINED = {"sum": "sum", "max": "max", "min": "min", "prod": "product"}
_OF_SOME = ("max", "min")  # of no elements they are refused
_REGISTERED: set = set()


def shard() -> None:
    """Tells DTensor of all operators. A first call of a function of skuda with a DTensor does so by itself."""
    for operator in operators():
        for (_, out), overload in operator.overloads.items():
            if not out and overload not in _REGISTERED:
                _REGISTERED.add(overload)
                _register(operator, overload)


def _register(operator: Operator, overload) -> None:
    propagator = DTensor._op_dispatcher.sharding_propagator
    positions = [at for at, argument in enumerate(overload._schema.arguments) if not _is_tensor(argument)]
    information = RuntimeSchemaInfo(static_argnum=min(positions, default=100))

    def strategy(schema: OpSchema) -> OpStrategy:
        mesh = schema.get_mesh_from_args()
        found = placements(operator, schema.args_schema, mesh.size(), mesh.ndim)
        return expand_to_full_mesh_op_strategy(mesh, schema, found, input_index=len(operator.operation.outputs))

    propagator.register_op_strategy(overload, strategy, information)
    if _says_shape_of_result(operator):  # which DTensor then gives each device for its part
        names = [argument.name for argument in overload._schema.arguments]
        propagator.op_to_shape_and_stride_idx[overload] = names.index("shape")


def _is_tensor(argument) -> bool:
    return isinstance(argument.type, torch.TensorType)


def _says_shape_of_result(operator: Operator) -> bool:
    shaped = operator.operation.shaped
    return shaped is not None and operator.operation.outputs == (shaped,)


def placements(operator: Operator, arguments: tuple, parts: int, axes_of_mesh: int) -> list[list]:
    """The ways to place a call's tensors along one axis of a mesh: outputs, then inputs; the first is whole everywhere.

    Args:
        operator: what is called.
        arguments: of the call; of each tensor an OpStrategy.
        parts: devices of the mesh.
        axes_of_mesh: over which they are spread; an axis of a tensor may be split along several.
    """
    operation = operator.operation
    given = [_example(value) for value in arguments]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    whole = [Replicate()] * (len(operation.outputs) + len(tensors))
    call, views, found = resolved_by(operator.call_of(tuple(given)), described)
    says_shape = call.shape is not None and not _says_shape_of_result(operator)
    keeps = [operand.name for operand in operation.outputs if call.keepdims and operand.dims != operation.space]
    rank = sum(len(found.sizes[dim.name]) if dim.many else 1 for dim in operation.space)
    for operand, view in zip(operation.inputs, views, strict=True):
        has_all_axes = found.axes is not None and operand.dims != operation.space
        if has_all_axes and len(getattr(view, "shape", ())) == rank != len(operation.shape_of(operand, found.sizes)):
            keeps.append(operand.name)
    order = None if found.axes is None else found.axes.order
    axes = factors(operation, found.sizes, found.types, order, keeps)
    for index in operation.broadcast:
        name = operation.inputs[index].name
        axes[name] = repeated(axes[name], views[index].shape, call.inputs[index].shape)
    ways = [whole]
    for key in {factor.key: None for own in axes.values() for factor in own if factor is not None}:
        size = found.sizes[key[0]]
        extent = size[key[1]] if isinstance(size, tuple) else size
        allowed = rule(operation, axes, key, found.sizes)
        if says_shape or not allowed.splits or not _ends_well(allowed, extent, parts, axes_of_mesh):
            continue
        if not {*filter(None, allowed.partial)} <= _JOINED.keys():
            continue
        inputs = [
            _split(axes[operand.name], key)
            for operand, value in zip(operation.inputs, call.inputs, strict=True)
            if isinstance(value, torch.Tensor)
        ]
        joined = allowed.partial or ("",) * len(operation.outputs)
        outputs = [
            Partial(_JOINED[how]) if how else _split(axes[operand.name], key)
            for operand, how in zip(operation.outputs, joined, strict=True)
        ]
        ways.append([*outputs, *inputs])
    return ways


def _example(value):
    """A tensor without elements in place of what DTensor says of one."""
    if not isinstance(value, OpStrategy):
        return value
    meta = value.strategies[0].output_spec.tensor_meta
    return torch.empty(tuple(meta.shape), dtype=meta.dtype, device="meta")


def _split(own: Axes, key: tuple[str, int]):
    at = next((axis for axis, factor in enumerate(own) if factor is not None and factor.key == key), None)
    return Replicate() if at is None else Shard(at)


def _ends_well(allowed: Rule, extent: int, parts: int, axes_of_mesh: int) -> bool:
    """Whether each part but the last has whole blocks and bytes, and an extreme has elements in every part."""
    if extent % (parts * allowed.multiple) == 0:
        return extent > 0 or not set(allowed.partial) & {*_OF_SOME}
    if axes_of_mesh > 1:
        return allowed.multiple == 1 and not allowed.partial
    most = ceil(extent / parts)
    return most % allowed.multiple == 0 and (not allowed.partial or most * (parts - 1) < extent)
