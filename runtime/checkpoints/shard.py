"""Quantize one file of a checkpoint: what a worker does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from skuda.checkpoints.files import Reader, writing
from skuda.checkpoints.layout import arrays_of, is_weight, planned
from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.weights import Backend, quantize_rows

_PART = 1 << 24  # bytes of a kept tensor that are copied at once


def quantize_shard(source: Path, output: Path, scheme: Scheme, keep: Collection[str], on: Backend) -> Iterator[int]:
    """Quantize a file's weights into another file, which appears when it is whole.

    In memory are some rows of one tensor at a time, and that tensor's scales.

    Args:
        source: the file.
        output: the file to write.
        scheme: how.
        keep: patterns of the names of tensors to leave as they are.
        on: where skuda runs.

    Yields:
        Bytes of `source` that are done, after each part. They add up to those of all its tensors.

    Raises:
        BadFile: `source` cannot be read, or `output` cannot be written.
    """
    with Reader(source) as reader, writing(output, planned(reader.header, scheme, keep)) as writer:
        for name, tensor in reader.header.tensors.items():
            if not is_weight(name, tensor, scheme, keep):
                for start in range(tensor.start, tensor.end, _PART):
                    part = reader.bytes(start, min(start + _PART, tensor.end))
                    writer.put(name, part, start - tensor.start)
                    yield len(part)
                continue
            shape = scheme.rows_shape(tensor.shape)
            row, done = tensor.nbytes // shape[0], Counter()  # bytes of a row; bytes written of each tensor
            for block in quantize_rows(
                lambda first, last, name=name, shape=shape: reader.rows(name, first, last, shape),
                tensor.shape, scheme, on,
            ):  # fmt: skip
                for key, array in arrays_of(name, block.quantized).items():
                    shared = scheme.granularity == "per_tensor" and key != name
                    writer.put(key, array, 0 if shared else done[key])
                    done[key] += array.nbytes
                yield len(block.quantized.codes) * row
