"""Quantize a checkpoint, and bring it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skuda.demo import archive, checkpoint, groups
from skuda.demo.measure import Loss, loss
from skuda.demo.quantize import FLOATS, Backend, Scheme, dequantize, quantize
from skuda.errors import BadFile


@dataclass(frozen=True)
class Entry:
    """What became of one tensor.

    Attributes:
        name: its name.
        part: the part of the model that it belongs to, one of `groups.ORDER`.
        layer: the number of its layer, if its name has one.
        size: elements.
        bytes_before, bytes_after: without and with quantization; scales and zero points included.
        seconds: that skuda took to quantize it; 0 for one that was kept.
        loss: what it lost; None for one that was kept.
    """

    name: str
    part: str
    layer: int | None
    size: int
    bytes_before: int
    bytes_after: int
    seconds: float
    loss: Loss | None


@dataclass(frozen=True)
class Report:
    """One checkpoint under one scheme: its tensors in the order of the file."""

    scheme: Scheme
    backend: str
    output: Path
    entries: tuple[Entry, ...]


def quantize_checkpoint(
    source: Path,
    content: checkpoint.Checkpoint,
    scheme: Scheme,
    output: Path,
    on: Backend,
    advance: Callable[[int], None] = lambda elements: None,
) -> Report:
    """Quantize every weight of a checkpoint into a file.

    Args:
        source: the checkpoint's file, which `output` must not be.
        content: what `checkpoint.read(source)` gave.
        scheme: how.
        output: the file to write; its folder is made. It appears when it is whole.
        on: where skuda runs.
        advance: called after each tensor with its number of elements.

    Raises:
        BadFile: `source` is quantized already or has no weight, or `output` cannot be written.
        InvalidProblem: `output` is `source` or a folder, or the names of two tensors would collide.
    """
    checkpoint.check_output(output, source)
    if archive.is_quantized(content):
        raise BadFile(f"{source}: is quantized already, expected an original checkpoint")
    if not any(map(scheme.applies_to, content.tensors.values())):
        raise BadFile(
            f"{source}: has nothing to quantize, expected {' '.join(FLOATS)} tensors of two axes or more"
        )
    weights, entries = {}, []
    for name, tensor in content.tensors.items():
        if scheme.applies_to(tensor):
            weights[name], seconds = quantize(tensor, scheme, on)
            lost = loss(tensor, dequantize(weights[name], scheme, on), weights[name], scheme)
            part, after = groups.part_of(name), weights[name].nbytes
        else:
            part, after, seconds, lost = groups.KEPT, tensor.nbytes, 0.0, None
        layer = groups.layer_of(name)
        entries.append(Entry(name, part, layer, tensor.size, tensor.nbytes, after, seconds, lost))
        advance(tensor.size)
    checkpoint.write(output, *archive.pack(content, weights, scheme))
    return Report(scheme, on.name, output, tuple(entries))


def dequantize_checkpoint(
    source: Path, output: Path, on: Backend, advance: Callable[[int], None] = lambda tensors: None
) -> checkpoint.Checkpoint:
    """Bring back a quantized checkpoint: every tensor with its own name, shape and type.

    Args:
        source: a file that `quantize_checkpoint` wrote.
        output: the file to write; its folder is made. It appears when it is whole.
        on: where skuda runs.
        advance: called after each weight.

    Raises:
        BadFile: `source` is not such a file, or `output` cannot be written.
        InvalidProblem: `output` is `source` or a folder.
    """
    checkpoint.check_output(output, source)
    scheme, weights, rest = archive.unpack(checkpoint.read(source), source)
    tensors = dict(rest.tensors)
    for name, weight in weights.items():
        tensors[name] = dequantize(weight, scheme, on)
        advance(1)
    checkpoint.write(output, tensors, rest.metadata)
    return checkpoint.Checkpoint(tensors, rest.metadata)
