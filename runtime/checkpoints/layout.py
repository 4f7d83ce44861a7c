"""The quantized checkpoint: a plain safetensors file that holds all that is needed to get the tensors back.

A weight `w` becomes `w` (codes: int8 or uint8; 4-bit ones packed two to a byte along the last axis, low
nibble first), `w:scale` (f32, or f64 for a f64 weight) and, if the type is unsigned, `w:zero_point` (uint8).
Every other tensor lies there as it was. The metadata keeps the checkpoint's own annotations and adds

    skuda.format      "1"
    skuda.version     the skuda that wrote the file
    skuda.scheme      such as "per_group:s4"
    skuda.group_size  such as "128"
    skuda.weights     JSON: {"w": {"shape": [384, 1536], "element": "f32"}, ...}

Each shard of a checkpoint of several files describes itself so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

import skuda
from skuda.checkpoints.files import NAME_OF_STORED, STORED_DTYPES, Header, Stored, header_of
from skuda.checkpoints.scheme import FLOATS, Quantized, Scheme
from skuda.errors import BadFile, InvalidProblem
from skuda.model.dtypes import WORD_OF_STORAGE

FORMAT = "1"
_SCALE, _ZERO_POINT = ":scale", ":zero_point"


def is_quantized(header: Header) -> bool:
    """Whether a file says of itself that it was quantized here."""
    return "skuda.format" in header.metadata


def is_weight(name: str, tensor: Stored, scheme: Scheme, keep: Collection[str] = ()) -> bool:
    """Whether a tensor is quantized: the scheme applies to it, and its name fits none of the patterns to keep."""
    applies = scheme.applies_to(STORED_DTYPES.get(tensor.dtype), tensor.shape)
    return applies and not any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in keep)


def stored_parts(name: str, shape: tuple[int, ...], element: str, scheme: Scheme) -> dict[str, Stored]:
    """The tensors that a weight becomes, by name; where they lie is not known yet.

    Args:
        name: the weight's.
        shape: the weight's.
        element: the word of its element type.
        scheme: how it is quantized.
    """

    def stored(dtype: type | np.dtype, shape: tuple[int, ...]) -> Stored:
        dtype = np.dtype(dtype)
        return Stored(NAME_OF_STORED[dtype], shape, 0, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)

    parts = {
        name: stored(scheme.dtype.storage, scheme.code_shape(shape)),
        name + _SCALE: stored(np.float64 if element == "f64" else np.float32, scheme.scale_shape(shape)),
    }
    if not scheme.symmetric:
        parts[name + _ZERO_POINT] = stored(np.uint8, scheme.scale_shape(shape))
    return parts


def arrays_of(name: str, quantized: Quantized) -> dict[str, np.ndarray]:
    """The arrays that a weight's tensors hold, or those of some of its rows."""
    arrays = {name: quantized.codes, name + _SCALE: quantized.scale}
    if quantized.zero_point is not None:
        arrays[name + _ZERO_POINT] = quantized.zero_point.astype(np.uint8)
    return arrays


def planned(header: Header, scheme: Scheme, keep: Collection[str] = ()) -> Header:
    """The header of a file's quantized form, which follows from the shapes alone.

    Raises:
        InvalidProblem: a tensor has the name that a weight's scale or zero point takes.
    """
    weights = [name for name, tensor in header.tensors.items() if is_weight(name, tensor, scheme, keep)]
    tensors, described = dict(header.tensors), {}
    for name in weights:
        tensor = header.tensors[name]
        element = WORD_OF_STORAGE[STORED_DTYPES[tensor.dtype]]
        parts = stored_parts(name, tensor.shape, element, scheme)
        for taken in sorted(parts.keys() & tensors.keys() - {name}):
            raise InvalidProblem(
                f"tensor {taken} has the name that {name}'s own parameters take when it is quantized"
            )
        tensors |= parts
        described[name] = {"shape": tensor.shape, "element": element}
    return header_of(tensors, {
        **header.metadata,
        "skuda.format": FORMAT,
        "skuda.version": skuda.__version__,
        "skuda.scheme": str(scheme),
        "skuda.group_size": str(scheme.group_size),
        "skuda.weights": json.dumps(described),
    })  # fmt: skip


@dataclass(frozen=True)
class Contents:
    """What a quantized file holds.

    Attributes:
        scheme: how its weights were quantized.
        weights: their shapes and the words of their element types, by name.
        kept: the names of all other tensors.
        metadata: the original's annotations.
    """

    scheme: Scheme
    weights: dict[str, tuple[tuple[int, ...], str]]
    kept: tuple[str, ...]
    metadata: dict[str, str]

    def weight(self, name: str, tensor: Callable[[str], np.ndarray]) -> Quantized:
        """A weight's codes, scales and zero points.

        Args:
            name: the weight's.
            tensor: gives the file's tensor of a name.
        """
        shape, element = self.weights[name]
        zero_point = None if self.scheme.symmetric else tensor(name + _ZERO_POINT).astype(np.int32)
        return Quantized(tensor(name), tensor(name + _SCALE), zero_point, shape, element)


def contents(header: Header, path: Path) -> Contents:
    """Take the header of a quantized file apart.

    Args:
        header: what was read.
        path: what to call it in a message.

    Raises:
        BadFile: it was not quantized here, or its tensors are not those that its metadata describes.
    """
    if not is_quantized(header):
        raise BadFile(f"{path}: expected a checkpoint that `skuda quantize` wrote, found one without skuda.format")
    found = header.metadata["skuda.format"]
    if found != FORMAT:
        raise BadFile(f"{path}: has format {found} of quantized checkpoints, expected {FORMAT}")
    try:
        scheme = Scheme.parse(header.metadata["skuda.scheme"], int(header.metadata["skuda.group_size"]))
        weights = {
            name: (tuple(map(int, entry["shape"])), entry["element"])
            for name, entry in json.loads(header.metadata["skuda.weights"]).items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(f"{path}: its metadata does not describe a quantized checkpoint: {error!r}") from error

    kept = dict.fromkeys(header.tensors)
    for name, (shape, element) in weights.items():
        if element not in FLOATS or len(shape) < 2 or min(shape) < 1:
            raise BadFile(
                f"{path}: weight {name} is described as {element} {shape}, expected a floating-point matrix"
            )
        for key, expected in stored_parts(name, shape, element, scheme).items():
            tensor = header.tensors.get(key)
            if tensor is None or (tensor.dtype, tensor.shape) != (expected.dtype, expected.shape):
                came = "nothing" if tensor is None else _shown(tensor)
                raise BadFile(f"{path}: tensor {key} is {came}, expected {_shown(expected)}")
            del kept[key]
    own = {key: text for key, text in header.metadata.items() if not key.startswith("skuda.")}
    return Contents(scheme, weights, tuple(kept), own)


def _shown(tensor: Stored) -> str:
    return f"{STORED_DTYPES.get(tensor.dtype, tensor.dtype)} {tensor.shape}"
