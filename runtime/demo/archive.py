"""The quantized checkpoint: a plain safetensors file that holds all that is needed to get the tensors back.

A weight `w` becomes `w` (codes: int8 or uint8; 4-bit ones packed two to a byte along the last axis, low
nibble first), `w:scale` (f32, or f64 for a f64 weight) and, if the type is unsigned, `w:zero_point` (uint8).
Every other tensor lies there as it was. The metadata keeps the checkpoint's own annotations and adds

    skuda.format      "1"
    skuda.version     the skuda that wrote the file
    skuda.scheme      such as "per_group:s4"
    skuda.group_size  such as "128"
    skuda.weights     JSON: {"w": {"shape": [384, 1536], "element": "f32"}, ...}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import skuda
from skuda.demo.checkpoint import Checkpoint
from skuda.demo.quantize import FLOATS, Quantized, Scheme
from skuda.errors import BadFile, InvalidProblem

FORMAT = "1"


def is_quantized(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint says of itself that it was quantized here."""
    return "skuda.format" in checkpoint.metadata


def pack(
    checkpoint: Checkpoint, weights: Mapping[str, Quantized], scheme: Scheme
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and the metadata of a quantized checkpoint.

    Raises:
        InvalidProblem: a tensor of the checkpoint has the name that a weight's scale or zero point takes.
    """
    tensors = dict(checkpoint.tensors)
    for name, weight in weights.items():
        added = {f"{name}:scale": weight.scale}
        if weight.zero_point is not None:
            added[f"{name}:zero_point"] = weight.zero_point.astype(np.uint8)
        for taken in added.keys() & tensors.keys():
            raise InvalidProblem(
                f"tensor {taken} has the name that {name}'s own parameters take when it is quantized"
            )
        tensors[name] = weight.codes
        tensors.update(added)
    described = {name: {"shape": weight.shape, "element": weight.element} for name, weight in weights.items()}
    return tensors, {
        **checkpoint.metadata,
        "skuda.format": FORMAT,
        "skuda.version": skuda.__version__,
        "skuda.scheme": str(scheme),
        "skuda.group_size": str(scheme.group_size),
        "skuda.weights": json.dumps(described),
    }


def unpack(checkpoint: Checkpoint, path: Path) -> tuple[Scheme, dict[str, Quantized], Checkpoint]:
    """Take a quantized checkpoint apart.

    Args:
        checkpoint: what was read.
        path: what to call it in a message.

    Returns:
        The scheme, the weights by name, and the rest: the kept tensors, with the original's annotations.

    Raises:
        BadFile: it was not quantized here, or its tensors are not those that its metadata describes.
    """
    if not is_quantized(checkpoint):
        raise BadFile(
            f"{path}: expected a checkpoint that `skuda demo quantize` wrote, found one without skuda.format"
        )
    found = checkpoint.metadata["skuda.format"]
    if found != FORMAT:
        raise BadFile(f"{path}: has format {found} of quantized checkpoints, expected {FORMAT}")
    try:
        scheme = Scheme.parse(
            checkpoint.metadata["skuda.scheme"], int(checkpoint.metadata["skuda.group_size"])
        )
        described = {
            name: (tuple(map(int, entry["shape"])), entry["element"])
            for name, entry in json.loads(checkpoint.metadata["skuda.weights"]).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(f"{path}: its metadata does not describe a quantized checkpoint: {error!r}") from error

    rest = dict(checkpoint.tensors)
    weights = {}
    for name, (shape, element) in described.items():
        if element not in FLOATS or len(shape) < 2 or min(shape) < 1:
            raise BadFile(
                f"{path}: weight {name} is described as {element} {shape}, expected a floating-point matrix"
            )

        def take(key: str, storage: np.dtype, expected: tuple[int, ...]) -> np.ndarray:
            array = rest.pop(key, None)
            if array is None or array.dtype != storage or array.shape != expected:
                came = "nothing" if array is None else f"{array.dtype} {array.shape}"
                raise BadFile(f"{path}: tensor {key} is {came}, expected {storage} {expected}")
            return array

        codes = take(name, scheme.dtype.storage, scheme.code_shape(shape))
        scale_type = np.dtype(np.float64 if element == "f64" else np.float32)
        scale = take(f"{name}:scale", scale_type, scheme.scale_shape(shape))
        zero_point = None
        if not scheme.symmetric:
            zero_point = take(f"{name}:zero_point", np.dtype(np.uint8), scheme.scale_shape(shape)).astype(
                np.int32
            )
        weights[name] = Quantized(codes, scale, zero_point, shape, element)
    own = {key: text for key, text in checkpoint.metadata.items() if not key.startswith("skuda.")}
    return scheme, weights, Checkpoint(rest, own)
