"""Quantize a checkpoint, and bring it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from skuda.checkpoints import files, layout
from skuda.checkpoints.scheme import FLOATS, Scheme
from skuda.checkpoints.weights import Backend, dequantize, quantize
from skuda.demo import groups
from skuda.demo.measure import Loss, loss
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
    content: files.Checkpoint,
    scheme: Scheme,
    output: Path,
    on: Backend,
    advance: Callable[[int], None] = lambda elements: None,
) -> Report:
    """Quantize every weight of a checkpoint into a file.

    Args:
        source: the checkpoint's file, which `output` must not be.
        content: what `files.read(source)` gave.
        scheme: how.
        output: the file to write; its folder is made. It appears when it is whole.
        on: where skuda runs.
        advance: called after each tensor with its number of elements.

    Raises:
        BadFile: `source` is quantized already or has no weight, or `output` cannot be written.
        InvalidProblem: `output` is `source` or a folder, or the names of two tensors would collide.
    """
    files.check_output(output, source)
    header = files.read_header(source)
    if layout.is_quantized(header):
        raise BadFile(f"{source}: is quantized already, expected an original checkpoint")
    if not any(layout.is_weight(name, tensor, scheme) for name, tensor in header.tensors.items()):
        raise BadFile(
            f"{source}: has nothing to quantize, expected {' '.join(FLOATS)} tensors of two axes or more"
        )
    entries = []
    with files.writing(output, layout.planned(header, scheme)) as writer:
        for name, tensor in content.tensors.items():
            if layout.is_weight(name, header.tensors[name], scheme):
                weight, seconds = quantize(tensor, scheme, on)
                lost = loss(tensor, dequantize(weight, scheme, on), weight, scheme)
                arrays, part, after = layout.arrays_of(name, weight), groups.part_of(name), weight.nbytes
            else:
                arrays, part, after, seconds, lost = {name: tensor}, groups.KEPT, tensor.nbytes, 0.0, None
            for key, array in arrays.items():
                writer.put(key, array)
            layer = groups.layer_of(name)
            entries.append(Entry(name, part, layer, tensor.size, tensor.nbytes, after, seconds, lost))
            advance(tensor.size)
    return Report(scheme, on.name, output, tuple(entries))


def dequantize_checkpoint(
    source: Path, output: Path, on: Backend, advance: Callable[[int], None] = lambda tensors: None
) -> files.Checkpoint:
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
    files.check_output(output, source)
    contents = layout.contents(files.read_header(source), source)
    stored = files.read(source).tensors
    tensors = {name: stored[name] for name in contents.kept}
    for name in contents.weights:
        weight = contents.weight(name, stored.__getitem__)
        tensors[name] = dequantize(weight, contents.scheme, on)
        advance(1)
    files.write(output, tensors, contents.metadata)
    return files.Checkpoint(tensors, contents.metadata)
