"""Safetensors files in NumPy: read tensor by tensor, written as a stream, never left half written.

A file is 8 bytes (the length of the header, little-endian), a header of JSON, and the tensors' bytes. The header
names each tensor's element type, shape and offsets. Reading goes by those offsets: what is in memory is the part
that was asked for. Writing needs the types and shapes of all tensors first, for the header, then the tensors in any
order and in parts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from skuda.errors import BadFile, InvalidProblem, Unsupported

SUFFIX = ".safetensors"
_LONGEST_HEADER = 100_000_000  # bytes; the limit of the safetensors library

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
NAME_OF_STORED = {dtype: name for name, dtype in STORED_DTYPES.items()}


@dataclass(frozen=True)
class Stored:
    """One tensor of a file.

    Attributes:
        dtype: safetensors' name of its element type.
        shape: its extents.
        start, end: where its bytes lie in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.end - self.start

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """What a file says of itself.

    Attributes:
        tensors: by name, in the order of their bytes.
        metadata: the file's own text annotations.
        start: where the tensors begin.
        length: bytes of the whole file.
    """

    tensors: dict[str, Stored]
    metadata: dict[str, str]
    start: int
    length: int

    @property
    def text(self) -> bytes:
        """The file's bytes before its tensors."""
        entries: dict[str, object] = {"__metadata__": self.metadata} if self.metadata else {}
        for name, tensor in self.tensors.items():
            offsets = [tensor.start - self.start, tensor.end - self.start]
            entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        return _framed(entries)


def _framed(entries: Mapping[str, object]) -> bytes:
    """A header with its length before it; spaces fill it up, so that tensors begin at a multiple of 8."""
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def described(array: np.ndarray) -> Stored:
    """An array as a tensor whose place in a file is not known yet."""
    return Stored(NAME_OF_STORED[array.dtype], array.shape, 0, array.nbytes)


def header_of(tensors: Mapping[str, Stored], metadata: Mapping[str, str]) -> Header:
    """The header of a file that is to be written.

    Tensors of wide elements come first, then by name, so that each is aligned; safetensors orders them so too.

    Args:
        tensors: by name; where they lie is chosen here.
        metadata: text annotations.
    """

    def width(name: str) -> int:
        dtype = STORED_DTYPES.get(tensors[name].dtype)
        return dtype.itemsize if dtype is not None else 1

    placed, offset = {}, 0
    for name in sorted(tensors, key=lambda name: (-width(name), name)):
        end = offset + tensors[name].nbytes
        placed[name] = Stored(tensors[name].dtype, tensors[name].shape, offset, end)
        offset = end
    start = len(Header(placed, dict(metadata), 0, 0).text)
    moved = {
        name: Stored(each.dtype, each.shape, start + each.start, start + each.end) for name, each in placed.items()
    }
    return Header(moved, dict(metadata), start, start + offset)


def read_header(path: Path) -> Header:
    """Read and check a file's header. No tensor is read.

    Raises:
        BadFile: it cannot be read, is truncated, or is not a safetensors file.
    """
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        raise BadFile(f"{path}: expected a safetensors file, found {found}")
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            count = int.from_bytes(file.read(8), "little")
            start = 8 + count
            if length < 8 or start > length or count > _LONGEST_HEADER:
                raise ValueError("no header fits into it" if length < 8 else f"its header is to end at byte {start}")
            entries = json.loads(file.read(count).decode())
        return _checked(entries, start, length)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFile(
            f"{path}: expected a whole safetensors file, found {length} bytes that are not: {error}"
        ) from error
    except OSError as error:
        raise BadFile(f"{path}: expected a safetensors file that can be read: {error}") from error


def _checked(entries: dict, start: int, length: int) -> Header:
    """A header whose tensors cover the rest of the file, without gap or overlap."""
    json.dumps(entries, ensure_ascii=False).encode()  # raises where a text is no Unicode
    metadata = entries.pop("__metadata__", None) or {}
    if not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("its metadata is not all text")
    tensors = []
    for name, entry in entries.items():
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if not all(type(extent) is int and extent >= 0 for extent in (*shape, first, last)):
            raise ValueError(f"tensor {name} has shape {list(shape)} at bytes {first} to {last}")
        if not isinstance(entry["dtype"], str):
            raise ValueError(f"tensor {name} has dtype {entry['dtype']!r}")
        dtype = STORED_DTYPES.get(entry["dtype"])
        if dtype is not None and math.prod(shape) * dtype.itemsize != last - first:
            raise ValueError(f"tensor {name} of {entry['dtype']} {list(shape)} has {last - first} bytes")
        tensors.append((name, Stored(entry["dtype"], shape, start + first, start + last)))
    tensors.sort(key=lambda each: (each[1].start, each[1].end))
    end = start
    for name, tensor in tensors:
        if tensor.start != end or tensor.end < tensor.start:
            raise ValueError(f"tensor {name} begins at byte {tensor.start}, expected {end}")
        end = tensor.end
    if end != length:
        raise ValueError(f"its tensors are to end at byte {end}")
    return Header(dict(tensors), metadata, start, length)


class Reader:
    """An open file, whose tensors are read in parts. A context manager.

    Raises:
        BadFile: as `read_header`.
    """

    def __init__(self, path: Path):
        self.path, self.header = path, read_header(path)
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def bytes(self, start: int, end: int) -> np.ndarray:
        """Some of the file's bytes, as u8.

        Raises:
            BadFile: the file has become shorter since it was opened, or cannot be read.
        """
        part = np.empty(end - start, np.uint8)
        view, done = memoryview(part), 0
        try:
            self._file.seek(start)
            while done < len(part):
                count = self._file.readinto(view[done:])
                if not count:
                    raise BadFile(f"{self.path}: ends at byte {start + done}, expected {self.header.length} bytes")
                done += count
        except OSError as error:
            raise BadFile(f"{self.path}: cannot be read: {error}") from error
        return part

    def rows(self, name: str, first: int, last: int, shape: tuple[int, ...]) -> np.ndarray:
        """Some rows of a tensor.

        Args:
            name: the tensor.
            first, last: the rows, along the first axis of `shape`.
            shape: the tensor's, or another one of as many elements.

        Raises:
            Unsupported: no NumPy array holds its element type.
            BadFile: the file cannot be read.
        """
        tensor = self.header.tensors[name]
        dtype = numpy_dtype(self.path, name, tensor)
        row = math.prod(shape[1:]) * dtype.itemsize
        part = self.bytes(tensor.start + first * row, tensor.start + last * row)
        return part.view(dtype).reshape(last - first, *shape[1:])

    def tensor(self, name: str) -> np.ndarray:
        """A whole tensor.

        Raises:
            Unsupported: no NumPy array holds its element type.
            BadFile: the file cannot be read.
        """
        shape = self.header.tensors[name].shape
        return self.rows(name, 0, shape[0] if shape else 1, shape or (1,)).reshape(shape)


def numpy_dtype(path: Path, name: str, tensor: Stored) -> np.dtype:
    """The NumPy type of a tensor's elements.

    Raises:
        Unsupported: there is none.
    """
    if tensor.dtype not in STORED_DTYPES:
        known = " ".join(STORED_DTYPES)
        raise Unsupported(f"{path}: tensor {name} has element type {tensor.dtype}, expected one of {known}")
    return STORED_DTYPES[tensor.dtype]


class Writer:
    """A file that is being written under a temporary name. Opened by `writing`."""

    def __init__(self, path: Path, header: Header):
        self._file = path.open("wb", buffering=0)
        self.header = header
        self._put(0, header.text)
        self._file.truncate(header.length)

    def put(self, name: str, values: np.ndarray, offset: int = 0) -> None:
        """Write a tensor, or a part of it.

        Args:
            name: the tensor.
            values: its elements, or its bytes as u8.
            offset: bytes of the tensor before them.
        """
        self._put(self.header.tensors[name].start + offset, np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def _put(self, at: int, data: bytes | np.ndarray) -> None:
        view = memoryview(data)
        self._file.seek(at)
        while len(view):
            view = view[self._file.write(view) :]

    def close(self) -> None:
        """Returns when the disk has everything."""
        os.fsync(self._file.fileno())
        self._file.close()


@contextmanager
def writing(path: Path, header: Header) -> Iterator[Writer]:
    """Write a file, whole or not at all: it has its name when the block has ended without an error.

    Raises:
        BadFile: the file cannot be written there.
    """
    with replacing(path) as temporary:
        writer = Writer(temporary, header)
        try:
            yield writer
            writer.close()
        finally:
            writer._file.close()


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


def read(path: Path) -> Checkpoint:
    """Open a safetensors file. Its tensors are views of the mapped file.

    Raises:
        BadFile: it cannot be read, is truncated, or is not a safetensors file.
        Unsupported: a tensor has an element type that NumPy arrays cannot hold (a packed 4- or 6-bit float).
    """
    header = read_header(path)
    dtypes = {name: numpy_dtype(path, name, tensor) for name, tensor in header.tensors.items()}
    try:
        content = np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise BadFile(f"{path}: expected a safetensors file that can be read: {error}") from error
    tensors = {}
    for name, tensor in header.tensors.items():
        array = content[tensor.start : tensor.end].view(np.ndarray).view(dtypes[name]).reshape(tensor.shape)
        # Other writers need not align their data; a kernel needs addresses that are multiples of an element.
        tensors[name] = np.require(array, requirements="A")
    return Checkpoint(tensors, header.metadata)


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, whole or not at all.

    Raises:
        BadFile: the file cannot be written there.
    """
    header = header_of({name: described(array) for name, array in tensors.items()}, metadata)
    with writing(path, header) as writer:
        for name, array in tensors.items():
            writer.put(name, array)


def temporary_name(path: Path, owner: object = "*") -> str:
    """The name under which a process writes a file; `*` in place of the process: a pattern of them all."""
    return f".{path.name}.{owner}.tmp"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`, which it replaces when the block ends. Removed if the block fails.

    Raises:
        BadFile: the folder cannot be made, or the file cannot be written or renamed.
    """
    temporary = path.with_name(temporary_name(path, os.getpid()))
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
