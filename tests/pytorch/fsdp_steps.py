"""Training steps of a model that FSDP shards over two processes, beside the same steps of the whole model.

Each process has half of a batch. The whole model runs the halves one after the other, and the mean of their gradients
is what it steps by: a sum of two numbers has one order, so all that is compared is compared to the bit.
`sharded_calls.py` runs this.
"""

from __future__ import annotations

import copy

import torch
from operations import same
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard

import skuda
import skuda.torch.nn as nn
from skuda.errors import InvalidProblem

PARTS, ROWS, WIDTH = 2, 6, 10
STEPS = 2
HALF = torch.bfloat16


class Block(torch.nn.Module):
    """Every module that has parameters or a state, and functions beside them."""

    def __init__(self, channels: int | None):
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.feed_forward = nn.SwiGLU(WIDTH, 14)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / 3)
        self.rounded = nn.FakeQuantize(4, "per_channel")
        self.learned = nn.LSQ(8, channels, axis=-1, zero_point=channels is not None)

    def forward(self, x):
        h = self.learned(self.before(x) @ self.rounded(self.weight))
        return self.after(x + skuda.gelu(self.feed_forward(h))) * skuda.softmax(h)


def model() -> torch.nn.Sequential:
    """The same in each process, the scales that a first call sets too. One scale has fewer elements than parts."""
    torch.manual_seed(0)
    made = torch.nn.Sequential(Block(None), Block(WIDTH), torch.nn.Linear(WIDTH, 3))
    with torch.no_grad():
        made(torch.randn(ROWS, WIDTH))
    return made


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return output.float().square().mean()


def of_whole(module, halves, precision) -> tuple[list, list]:
    """Outputs of each half, and the mean of their gradients, from parameters rounded to `precision`."""
    outputs, gradients = [], []
    for half in halves:
        rounded = copy.deepcopy(module).to(precision)
        outputs.append(rounded(half.to(precision)))
        loss_of(outputs[-1]).backward()
        gradients.append([each.grad.float() for each in rounded.parameters()])
    return outputs, [sum(each) / len(halves) for each in zip(*gradients, strict=True)]


def compare_with_batch(module, halves, gradients) -> None:
    """Raises where the mean of two halves' gradients is not that of their batch. What is learned by LSQ has a factor
    of 1 / sqrt(n), where n counts the elements of a half."""
    other = copy.deepcopy(module)
    loss_of(other(torch.cat(halves))).backward()
    for (name, each), gradient in zip(other.named_parameters(), gradients, strict=True):
        factor = PARTS**0.5 if "learned" in name else 1
        assert torch.allclose(gradient, factor * each.grad, rtol=1e-4, atol=1e-6), name


def by_modules(module, mesh, precision):
    """Each block, and the rest, by `fully_shard`."""
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=torch.float32)
    for each in (module[0], module[1], module):
        fully_shard(each, mesh=mesh, mp_policy=policy)
    return module


def by_wrapping(module, mesh, precision):
    """Each block, and the rest, by the class of FSDP1."""
    policy = MixedPrecision(param_dtype=precision, reduce_dtype=torch.float32, cast_forward_inputs=True)
    options = {"mixed_precision": policy, "use_orig_params": True, "device_mesh": mesh}
    if mesh.device_type == "cpu":
        options["device_id"] = torch.device("cpu")
    module[0], module[1] = (FullyShardedDataParallel(module[index], **options) for index in range(2))
    return FullyShardedDataParallel(module, **options)


def whole_of(sharded, wrapped: bool, gradients: bool):
    """The parameters, or their gradients, put together from all processes."""
    if not wrapped:
        return [(each.grad if gradients else each.detach()).full_tensor() for each in sharded.parameters()]
    with FullyShardedDataParallel.summon_full_params(sharded, with_grads=gradients):
        return [(each.grad if gradients else each.detach()).clone() for each in sharded.parameters()]


def train(mesh, shard, precision, checkpointed: bool) -> None:
    """Steps of the sharded model, each compared with those of the whole one."""
    device, rank = mesh.device_type, mesh.get_local_rank()
    whole, sharded = model().to(device), model().to(device)
    if checkpointed:
        sharded[0], sharded[1] = checkpoint_wrapper(sharded[0]), checkpoint_wrapper(sharded[1])
    sharded = shard(sharded, mesh, precision)
    wrapped = isinstance(sharded, FullyShardedDataParallel)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each in (whole, sharded)]
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        halves = [torch.randn(ROWS, WIDTH, generator=generator).to(device) for _ in range(PARTS)]
        outputs, gradients = of_whole(whole, halves, precision)
        if precision is torch.float32:
            compare_with_batch(whole, halves, gradients)
        found = sharded(halves[rank])
        assert same(found, outputs[rank])
        loss_of(found).backward()
        assert same(whole_of(sharded, wrapped, gradients=True), gradients)
        for each, gradient in zip(whole.parameters(), gradients, strict=True):
            each.grad = gradient
        for each in optimizers:
            each.step()
            each.zero_grad()
        after = whole_of(sharded, wrapped, gradients=False)
        assert same(after, [each.detach() for each in whole.parameters()])
        assert not same(after[:1], [next(model().parameters()).detach().to(device)])


def refusals(mesh) -> None:
    """A first call of LSQ whose scale would be lost, and a gathered parameter beside one that is not."""
    for shard in (by_modules, by_wrapping):
        layers = torch.nn.Sequential(nn.RMSNorm(WIDTH), nn.LSQ(8), nn.LayerNorm(WIDTH)).to(mesh.device_type)
        sharded = shard(layers, mesh, torch.float32)
        try:
            sharded(torch.ones(ROWS, WIDTH, device=mesh.device_type))
        except InvalidProblem as error:
            assert "FSDP would lose" in str(error)
        else:
            raise AssertionError("the first call of a sharded LSQ is refused")
    weight = fully_shard(nn.RMSNorm(WIDTH).to(mesh.device_type), mesh=mesh).weight
    x = torch.ones(ROWS, WIDTH, device=mesh.device_type)
    for own in (lambda: skuda.rms_norm(x, weight), lambda: torch.nn.functional.rms_norm(x, (WIDTH,), weight)):
        try:
            own()
        except RuntimeError as error:
            assert "got mixed torch.Tensor and DTensor" in str(error)
        else:
            raise AssertionError("DTensor refuses a parameter of its own beside a tensor, as for torch's operators")


def every_way(mesh) -> None:
    """Raises where a sharded model differs from the whole one."""
    for shard in (by_modules, by_wrapping):
        for precision in (torch.float32, HALF):
            for checkpointed in (False, True):
                train(mesh, shard, precision, checkpointed)
    refusals(mesh)
