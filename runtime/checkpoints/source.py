"""What is to be quantized: a safetensors file, a folder of them, or an index, checked before anything is written."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from skuda.checkpoints.files import SUFFIX, Header, read_header
from skuda.checkpoints.layout import is_quantized, is_weight, planned
from skuda.checkpoints.scheme import FLOATS, Scheme
from skuda.errors import BadFile, InvalidProblem

INDEX_SUFFIX = f"{SUFFIX}.index.json"
DEFAULT_INDEX = f"model{INDEX_SUFFIX}"


@dataclass(frozen=True)
class Source:
    """A checkpoint of one file or more.

    Attributes:
        folder: where they lie.
        headers: of each file, by name, in the order of the names.
        index: the name of the index that its quantized form gets; None for a single file without one.
    """

    folder: Path
    headers: dict[str, Header]
    index: str | None


@dataclass(frozen=True)
class Shard:
    """One file that is to be quantized.

    Attributes:
        name: of the file, here and there.
        before: its header.
        after: the header of what is written.
    """

    name: str
    before: Header
    after: Header


def find(path: Path) -> Source:
    """The files of a checkpoint.

    Args:
        path: a `.safetensors` file, an index (`model.safetensors.index.json`), or a folder with either.

    Raises:
        BadFile: there is none, a file is broken, or the files are not what the index says.
        InvalidProblem: a folder has several indexes.
    """
    if path.is_dir():
        indexes = sorted(path.glob(f"*{INDEX_SUFFIX}"))
        if len(indexes) > 1:
            names = ", ".join(each.name for each in indexes)
            raise InvalidProblem(f"{path}: has several indexes ({names}), expected the path of one")
        if indexes:
            return _indexed(indexes[0])
        names = sorted(each.name for each in path.glob(f"*{SUFFIX}"))
        if not names:
            raise BadFile(f"{path}: expected a folder with {DEFAULT_INDEX} or *{SUFFIX} files, found neither")
        headers = {name: read_header(path / name) for name in names}
        _check_once(path, headers)
        return Source(path, headers, DEFAULT_INDEX if len(names) > 1 else None)
    if path.name.endswith(".json"):
        return _indexed(path)
    return Source(path.parent, {path.name: read_header(path)}, None)


def _indexed(path: Path) -> Source:
    """The files that an index names; it and they say the same of each tensor."""
    found = _weight_map(path)
    headers = {}
    for name in sorted(set(found.values())):
        if Path(name).name != name:
            raise BadFile(f"{path}: names the file {name!r}, expected one beside it")
        if not (path.parent / name).is_file():
            tensors = [tensor for tensor, shard in found.items() if shard == name]
            count = f"{len(tensors)} tensors, such as {tensors[0]}" if len(tensors) > 1 else f"tensor {tensors[0]}"
            raise BadFile(f"{path}: says that {name} has {count}; there is no such file")
        headers[name] = read_header(path.parent / name)
    for tensor, name in found.items():
        if tensor not in headers[name].tensors:
            raise BadFile(f"{path}: says that {tensor} is in {name}, which has no such tensor")
    for name, header in headers.items():
        for tensor in header.tensors:
            if found.get(tensor) != name:
                said = f"is in {found[tensor]}" if tensor in found else "is nowhere"
                raise BadFile(f"{path}: says that {tensor} {said}, expected {name}, which has it")
    return Source(path.parent, headers, path.name)


def _weight_map(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        if not found or not all(isinstance(name, str) for name in found.values()):
            raise ValueError("it names no files")
        return found
    except OSError as error:
        raise BadFile(f"{path}: expected an index that can be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadFile(
            f"{path}: expected an index, JSON with a weight_map from tensors to files: {error!r}"
        ) from error


def _check_once(folder: Path, headers: dict[str, Header]) -> None:
    """Without an index, each tensor is in one file."""
    place: dict[str, str] = {}
    for name, header in headers.items():
        for tensor in header.tensors:
            if tensor in place:
                raise BadFile(f"{folder}: tensor {tensor} is in {place[tensor]} and in {name}, expected one of them; "
                              "name one file, or an index")  # fmt: skip
            place[tensor] = name


def shards(source: Source, scheme: Scheme, keep: Collection[str] = ()) -> list[Shard]:
    """What each file of a checkpoint becomes.

    Args:
        source: the checkpoint.
        scheme: how its weights are quantized.
        keep: patterns (`*` and `?`) of the names of tensors to leave as they are.

    Raises:
        BadFile: it is quantized already, or has nothing to quantize.
        InvalidProblem: a tensor has the name that a weight's scale or zero point takes.
    """
    made = []
    every = {tensor for header in source.headers.values() for tensor in header.tensors}
    for name, before in source.headers.items():
        if is_quantized(before):
            raise BadFile(f"{source.folder / name}: is quantized already, expected an original checkpoint")
        after = planned(before, scheme, keep)
        for taken in sorted((after.tensors.keys() - before.tensors.keys()) & every):
            raise InvalidProblem(f"tensor {taken} has the name that another one's own parameters take when it is "
                                 "quantized")  # fmt: skip
        made.append(Shard(name, before, after))
    tensors = {name: tensor for shard in made for name, tensor in shard.before.tensors.items()}
    if not any(is_weight(name, tensor, scheme, keep) for name, tensor in tensors.items()):
        kept = f" that fit none of {' '.join(keep)}" if keep else ""
        raise BadFile(f"{source.folder}: has nothing to quantize, expected {' '.join(FLOATS)} tensors of two axes or "
                      f"more{kept}")  # fmt: skip
    return made


def index_text(made: Collection[Shard]) -> str:
    """The index of the quantized files."""
    tensors = {tensor: shard.name for shard in made for tensor in shard.after.tensors}
    size = sum(tensor.nbytes for shard in made for tensor in shard.after.tensors.values())
    found = {"metadata": {"total_size": size}, "weight_map": dict(sorted(tensors.items()))}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
