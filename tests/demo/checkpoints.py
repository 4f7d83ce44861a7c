"""Checkpoints for tests of the demo, and what its codes and scales have to be."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from skuda.checkpoints import files
from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.weights import backend
from skuda.demo import run
from skuda.launch.kernel import cuda_available

FLOATS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MANTISSA = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
RANGE = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}
SCHEMES = [
    f"{granularity}:{element}"
    for granularity in ("per_tensor", "per_channel", "per_token", "per_group")
    for element in RANGE
]
CPU = backend("cpu")
BACKENDS = [CPU, backend("cuda")] if cuda_available() else [CPU]


def made(path, tensors, metadata=None):
    save_file(tensors, path, metadata)
    return path


def weights(dtype, seed=0):
    """Weights of the shapes that go wrong first: odd widths, a single column, three axes, rows of zeros."""
    random = np.random.default_rng(seed)
    tensors = {
        "layers.0.mlp.fc1.weight": random.normal(0, 0.05, (5, 19)),
        "layers.0.mlp.fc2.weight": random.normal(0.5, 2.0, (7, 8)),
        "column": random.normal(0, 1, (6, 1)),
        "conv.weight": random.normal(0, 1, (3, 4, 5)),
        "zeros": np.zeros((3, 9)),
    }
    tensors["layers.0.mlp.fc1.weight"][2] = 0
    return {name: values.astype(dtype) for name, values in tensors.items()}


def quantized(source, text, out, group_size=4, on=CPU):
    content = files.read(source)
    return run.quantize_checkpoint(source, content, Scheme.parse(text, group_size), out, on)


def slices(granularity, shape, group_size=4):
    """The sets of elements that share a scale, by their indices, from the definition."""
    shared = {}
    for index in np.ndindex(shape):
        key = {
            "per_tensor": (),
            "per_channel": index[0],
            "per_token": index[:-1],
            "per_group": (index[:-1], index[-1] // group_size),
        }[granularity]
        shared.setdefault(key, []).append(index)
    return shared.values()


def expected_scale(values, element):
    """The scale of a slice, from its definition, in f64."""
    q_max = RANGE[element][1]
    if element.startswith("s"):
        span = max(abs(value) for value in values)
    else:
        span = max(*values, 0.0) - min(*values, 0.0)
    return span / q_max if span else 1.0


def leftovers(folder, *expected):
    """Files in a folder that should not be there."""
    return sorted({path.name for path in folder.iterdir()} - {path.name for path in expected})
