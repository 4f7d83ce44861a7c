"""Checkpoints of several files for tests."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from skuda.checkpoints.files import Stored, header_of, writing

INDEX = "model.safetensors.index.json"
TYPES = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)


def tensors_of(number, rows=7):
    """The tensors of one file: weights of two and three axes, and what is kept."""
    random = np.random.default_rng(number)
    dtype = TYPES[number % len(TYPES)]
    return {
        f"h.{number}.fc.weight": random.normal(0, 1, (rows, 13)).astype(dtype),
        f"h.{number}.conv.weight": random.normal(0.5, 2, (3, 4, 5)).astype(dtype),
        f"h.{number}.fc.bias": random.normal(0, 1, 13).astype(dtype),
        f"h.{number}.ids": np.arange(6).reshape(2, 3),
    }


def sharded(folder, count=4, rows=7, index=True):
    """A folder with so many files, and their tensors by name."""
    folder.mkdir()
    every, places = {}, {}
    for number in range(count):
        name, tensors = f"model-{number + 1:05}-of-{count:05}.safetensors", tensors_of(number, rows)
        save_file(tensors, folder / name, {"format": "pt"})
        every |= tensors
        places |= dict.fromkeys(tensors, name)
    if index:
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return every


def of_zeros(path, count, shape):
    """A file of so many f16 weights that takes no room on the disk."""
    path.parent.mkdir(exist_ok=True)
    nbytes = 2 * shape[0] * shape[1]
    with writing(path, header_of({f"w.{number}": Stored("F16", shape, 0, nbytes) for number in range(count)}, {})):
        pass


def content(folder):
    """The bytes of each file of a folder, but for the state of the run."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".skuda-quantize.json"}
