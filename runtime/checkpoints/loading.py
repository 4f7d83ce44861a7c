"""Read a quantized checkpoint: its codes and scales, or the weights that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from skuda.checkpoints import source as sources
from skuda.checkpoints.files import Reader
from skuda.checkpoints.layout import Contents, contents
from skuda.checkpoints.scheme import Quantized, Scheme
from skuda.checkpoints.weights import backend, dequantize


def load(path: Path | str, device: str = "auto") -> Loaded:
    """Open a quantized checkpoint. Tensors are read when they are asked for.

    Args:
        path: a file, an index or a folder that `quantize` wrote.
        device: where weights are dequantized: `cpu`, `cuda`, or `auto` for the GPU if there is one.

    Raises:
        BadFile: it was not quantized here, or its tensors are not those that its metadata describes.
        DeviceMismatch: `cuda` without a GPU.
    """
    return Loaded(Path(path), device)


class Loaded(Mapping[str, np.ndarray]):
    """A quantized checkpoint as a mapping from the names of the original's tensors to NumPy arrays.

    `loaded[name]` reads a tensor: a weight is dequantized, with its own shape and type; any other comes as it was.
    A context manager; `close` closes the files.

    Args:
        path: a file, an index or a folder.
        device: where weights are dequantized.
    """

    def __init__(self, path: Path, device: str):
        self._on = backend(device)
        found = sources.find(path)
        self._files: dict[str, tuple[Reader, Contents]] = {}  # by the names of tensors
        for name, header in found.headers.items():
            held = contents(header, found.folder / name)
            reader = Reader(found.folder / name)
            self._files |= dict.fromkeys((*held.weights, *held.kept), (reader, held))

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        for reader, _ in self._files.values():
            reader.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, name: str) -> np.ndarray:
        reader, held = self._files[name]
        if name not in held.weights:
            return reader.tensor(name)
        return dequantize(held.weight(name, reader.tensor), held.scheme, self._on)

    def is_weight(self, name: str) -> bool:
        """Whether a tensor was quantized."""
        return name in self._files[name][1].weights

    def scheme(self, name: str) -> Scheme:
        """How the weights of the file that has a tensor were quantized."""
        return self._files[name][1].scheme

    def quantized(self, name: str) -> Quantized:
        """A weight's codes, scales and zero points as NumPy arrays, for `skuda.dequantize_*` and kernels of one's own.

        Raises:
            KeyError: there is no such weight.
        """
        reader, held = self._files[name]
        return held.weight(name, reader.tensor)
