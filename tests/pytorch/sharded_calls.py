"""What two processes run: calls of every operation with DTensors, each beside the call on whole tensors, and training
steps of a model that FSDP shards.

    python sharded_calls.py RANK FILE DEVICE [NAME ...]

On `cpu` they meet by gloo, on `cuda` each has the GPU of its rank and they meet by NCCL.

It prints a line for each operation, `NAME ways`, after it has compared them, and raises where they differ.
"""

from __future__ import annotations

import sys

import fsdp_steps
import torch
import torch.distributed as dist
from operations import call_of, of_tensors, plans, same
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy

import skuda
from skuda.torch import operator_of, shard
from skuda.torch.dtensor import placements

PARTS = 2


def strategy_of(value, mesh):
    """What DTensor says of a tensor that is whole everywhere."""
    if not isinstance(value, torch.Tensor):
        return value
    meta = TensorMeta(value.shape, value.stride(), value.dtype)
    return OpStrategy([OpSpec(DTensorSpec(mesh, (Replicate(),), meta))])


def part_of(value: torch.Tensor, mesh, placement) -> torch.Tensor:
    """What this process has of a tensor. Collectives would do it, but gloo's know no floats of 8 bits."""
    if not isinstance(placement, Shard):
        return value
    parts = torch.chunk(value, PARTS, placement.dim)
    rank = mesh.get_local_rank()
    return (parts[rank] if rank < len(parts) else parts[0].narrow(placement.dim, 0, 0)).contiguous()


def split(value: torch.Tensor, mesh, placement) -> DTensor:
    """A tensor over the processes."""
    own = part_of(value, mesh, placement)
    return DTensor.from_local(own, mesh, [placement], run_check=False, shape=value.shape, stride=value.stride())


def compare(made: DTensor, expected: torch.Tensor, mesh, what) -> None:
    """Raises where a result is not that of whole tensors: to the bit, but for sums and products of parts' results."""
    (placement,) = made.placements
    if not isinstance(placement, Partial):
        assert same(made.to_local(), part_of(expected, mesh, placement)), what
    elif placement.reduce_op in ("sum", "product") and expected.dtype.is_floating_point:
        assert torch.allclose(made.full_tensor(), expected, rtol=1e-5, atol=1e-5), what
    else:
        assert same(made.full_tensor(), expected), what


def each_way(name: str, mesh, change=lambda inputs: inputs) -> int:
    """Calls an operation with its tensors placed in each way that a rule allows; says in how many.

    Args:
        change: makes other inputs of those that are drawn.
    """
    call = call_of(plans()[name])
    call.inputs = change(call.inputs)
    call.inputs = tuple(each.to(mesh.device_type) if isinstance(each, torch.Tensor) else each for each in call.inputs)
    operator = operator_of(call.plan_class)
    values = operator.values_of(call)
    ways = placements(operator, tuple(strategy_of(value, mesh) for value in values), PARTS, 1)
    count = len(operator.operation.outputs)
    wanted = call.run()
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for way in ways:
        outputs, inputs = way[:count], way[count:]
        tensors = iter(inputs)
        placed = [split(value, mesh, next(tensors)) if isinstance(value, torch.Tensor) else value for value in values]
        found = operator.overloads[False, False](*placed)
        found = found if isinstance(found, tuple) else (found,)
        for made, expected, placement in zip(found, wanted, outputs, strict=True):
            if any(each != Replicate() for each in inputs):  # else DTensor may split what it computes everywhere
                assert made.placements == (placement,), (name, way, made.placements)
            compare(made, expected, mesh, (name, way))
    return len(ways) - 1


def broadcast(mesh) -> None:
    """Tensors of several shapes, as operators that nothing records have them, and as functions that are recorded."""
    for change in (lambda first, *others: (first, *[each[0] for each in others]),
                   lambda first, *others: (first[:, :1], *[each[:1] for each in others]),
                   lambda first, *others: (first[0, 0], *others)):  # fmt: skip
        for name in ("add", "where", "addcmul", "clamp_tensor"):
            assert each_way(name, mesh, lambda inputs: change(*inputs)) > 0, name  # noqa: B023
    results = []
    x, row = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(mesh.device_type), torch.linspace(1, 2, 6)
    for place in (lambda each, _: each.clone(), lambda each, how: distribute_tensor(each, mesh, [how])):
        tensors = [place(x, Shard(0)).requires_grad_(), place(row.to(x.device), Replicate()).requires_grad_()]
        y = skuda.sub(1, torch.ops.skuda.mul(skuda.add(*tensors), tensors[1]))
        y.backward(place(x + 1, Shard(0)))
        results.append([y.detach(), *[each.grad for each in tensors]])
    for whole, parts in zip(*results, strict=True):
        assert torch.allclose(parts.full_tensor(), whole, rtol=1e-6, atol=1e-6)


def attributes_of_axes(mesh) -> None:
    """Calls that differ in their axes alone, one after the other: what was kept of the first is not taken again."""
    x = torch.arange(16.0, device=mesh.device_type).reshape(4, 4)
    split = distribute_tensor(x, mesh, [Shard(0)])
    for axis, placement in ((0, Partial("sum")), (1, Shard(0)), ((0, 1), Partial("sum")), (0, Partial("sum"))):
        found = skuda.sum(split, axis=axis)
        assert found.placements == (placement,), (axis, found.placements)
        assert same(found.full_tensor(), skuda.sum(x, axis=axis)), axis
    for axis in (0, 1, -1, 0):
        found = skuda.softmax(split, axis=axis)
        assert same(found.full_tensor(), skuda.softmax(x, axis=axis)), axis


def a_layer(mesh) -> None:
    """Forward and backward passes of a layer whose rows are split, and rows that do not split evenly."""
    for count in (4, 5):
        x = torch.randn(count, 6, generator=torch.Generator().manual_seed(0)).to(mesh.device_type)
        weight = torch.linspace(1, 2, 6, device=mesh.device_type)
        results = []
        for place in (lambda each, _: each.clone(), lambda each, how: distribute_tensor(each, mesh, [how])):
            rows, scale = place(x, Shard(0)).requires_grad_(), place(weight, Replicate()).requires_grad_()
            y = skuda.softmax(skuda.gelu(skuda.rms_norm(rows, scale)), axis=-1)
            y.backward(place(x + 1, Shard(0)))
            results.append((y.detach(), rows.grad, scale.grad))
        whole, parts = results
        assert [each.placements for each in parts] == [(Shard(0),), (Shard(0),), (Partial("sum"),)]  # none is gathered
        assert same([each.full_tensor() for each in parts[:2]], list(whole[:2]))
        assert torch.allclose(parts[2].full_tensor(), whole[2], rtol=1e-6, atol=1e-6)  # a sum over rows


def compiled_to_be_fused(mesh) -> None:
    """Calls with DTensors stay calls of kernels, with their bits."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).to(mesh.device_type)

    def layer(x):
        return skuda.softmax(skuda.gelu(x) * 2)

    compiled = skuda.torch.compile(layer, fusible=True, backend="aot_eager", fullgraph=True)
    found = compiled(distribute_tensor(x, mesh, [Shard(0)]))
    assert found.placements == (Shard(0),) and same(found.full_tensor(), layer(x))


def main(rank: int, file: str, device: str, names: list[str]) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "gloo", "cuda": "nccl"}[device]
    dist.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=PARTS)
    mesh = init_device_mesh(device, (PARTS,))
    torch.set_num_threads(1)
    shard()
    attributes_of_axes(mesh)
    broadcast(mesh)
    a_layer(mesh)
    compiled_to_be_fused(mesh)
    fsdp_steps.every_way(mesh)
    for name in names or of_tensors():
        print(name, each_way(name, mesh), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:4], sys.argv[4:])
