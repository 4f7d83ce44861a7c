"""Quantize a checkpoint file by file, with several workers, and go on where an earlier run was ended."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENAMETOOLONG
from glob import escape
from pathlib import Path

import skuda
from skuda.checkpoints import source as sources
from skuda.checkpoints.files import SUFFIX, read_header, replacing, temporary_name
from skuda.checkpoints.layout import FORMAT
from skuda.checkpoints.on_ray import import_ray, in_ray
from skuda.checkpoints.scheme import Scheme
from skuda.checkpoints.source import Shard, Source
from skuda.checkpoints.weights import DEVICES
from skuda.checkpoints.workers import Job, Step, in_processes, in_this_process
from skuda.errors import BadFile, InvalidProblem, shown

STATE = ".skuda-quantize.json"  # in the output: the options, and the files that are quantized


@dataclass(frozen=True)
class Result:
    """What a run did.

    Attributes:
        out: the folder.
        files: names of the quantized files, all of them.
        resumed: how many of them an earlier run had finished.
        bytes_before, bytes_after: of all tensors.
    """

    out: Path
    files: tuple[str, ...]
    resumed: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        bytes: of the source's tensors that are done, those of earlier runs included.
        total: of all of the source's tensors.
        files: that are finished, those of earlier runs included.
        count: of all files.
        finished: the name of the file that has just been finished, if one has.
    """

    bytes: int
    total: int
    files: int
    count: int
    finished: str | None


def _path(value: Path | str, called: str) -> Path:
    """A path that a file may have.

    Raises:
        InvalidProblem: it is none. An empty one is not the folder that one is in: a variable of a shell was not set.
    """
    try:
        path = Path(value)
        os.stat(path)
    except FileNotFoundError:
        pass
    except (TypeError, ValueError) as error:
        raise InvalidProblem(f"{called} is {shown(value)}, expected a path ({error})") from error
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise InvalidProblem(f"{called} is {shown(value)}, expected a path ({error.strerror})") from error
    if value == "":
        raise InvalidProblem(f"{called} is {shown(value)}, expected a path")
    return path


def quantize(
    source: Path | str,
    out: Path | str,
    scheme: str = "per_channel:s8",
    *,
    group_size: int = 128,
    keep: Sequence[str] | str = (),
    workers: int = 1,
    ray: str | None = None,
    device: str = "auto",
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Result:
    """Quantize the weights of a checkpoint into a folder, a file for each of its files.

    The bytes that are written do not depend on the device or the number of workers. In the memory of a worker are a
    few million elements at a time. A file has its name when it is whole; a call with the same arguments goes on after
    those that are.

    Args:
        source: a `.safetensors` file, an index (`model.safetensors.index.json`), or a folder with either.
        out: the folder to write into; it is made. It is not the source's.
        scheme: `GRANULARITY:TYPE`, as `Scheme.parse` reads it.
        group_size: elements of a group of `per_group`.
        keep: patterns (`*` and `?`) of the names of weights to leave as they are, such as `lm_head.*`; one, or several.
        workers: processes, each with a GPU where there are any; with `ray`, tasks at once.
        ray: the address of a Ray cluster whose machines see both folders; None: this machine.
        device: `cpu`, `cuda`, or `auto` for GPUs if there are any.
        progress: called after each part of a file.

    Raises:
        BadFile: the source is broken, quantized already or has nothing to quantize, or `out` cannot be written.
        InvalidProblem: an argument is out of range, or `out` has files of another call.
        DeviceMismatch: `cuda` without a GPU.
        MissingDependency: `ray` is not installed.
        WorkerLost: a worker ended in the middle of its work.
    """
    how, source, out = Scheme.parse(scheme, group_size), _path(source, "the source"), _path(out, "out")
    keep = [keep] if isinstance(keep, str) or not isinstance(keep, Iterable) else [*keep]
    if not isinstance(workers, int) or workers < 1:
        raise InvalidProblem(f"workers is {shown(workers)}, expected an integer of 1 or more")
    if other := [pattern for pattern in keep if not isinstance(pattern, str)]:
        raise InvalidProblem(f"keep has {shown(other[0])}, expected patterns of names")
    if device not in DEVICES:
        raise InvalidProblem(f"device is {shown(device)}, expected {', '.join(DEVICES)}")
    found = sources.find(source)
    made = sources.shards(found, how, keep)
    options = {"format": FORMAT, "skuda": skuda.__version__, "scheme": str(how), "group_size": group_size}
    options["keep"] = sorted(keep)
    _check_folder(out, found)
    if ray is not None:
        import_ray()
    with _alone(out):
        done = _resumed(out, made, _state(options, found))
        jobs = [
            Job(str((found.folder / shard.name).resolve()), str((out / shard.name).resolve()), str(how), group_size,
                list(keep), device)
            for shard in sorted(made, key=_size, reverse=True)  # the largest first: all workers end at about one time
            if shard.name not in done
        ]  # fmt: skip
        if not jobs:
            steps: Iterator[Step] = iter(())
        elif ray is not None:
            steps = in_ray(jobs, workers, ray)
        elif workers == 1 or len(jobs) == 1:
            steps = in_this_process(jobs)
        else:
            steps = in_processes(jobs, workers)
        _follow(steps, made, done, progress)
        if found.index is not None:
            with replacing(out / found.index) as temporary:
                temporary.write_text(sources.index_text(made), encoding="utf-8")
    after = sum(tensor.nbytes for shard in made for tensor in shard.after.tensors.values())
    return Result(out, tuple(shard.name for shard in made), len(done), sum(map(_size, made)), after)


def _size(shard: Shard) -> int:
    return sum(tensor.nbytes for tensor in shard.before.tensors.values())


def _follow(
    steps: Iterator[Step], made: Sequence[Shard], done: set[str], progress: Callable[[Progress], None]
) -> None:
    """Run the steps, and say after each how far all of them are."""
    total, files = sum(map(_size, made)), len(done)
    count = sum(_size(shard) for shard in made if shard.name in done)
    try:
        for name, part in steps:
            count, files = count + (part or 0), files + (part is None)
            progress(Progress(count, total, files, len(made), name if part is None else None))
    finally:
        if hasattr(steps, "close"):  # ends workers, whatever has gone wrong here
            steps.close()


def _check_folder(out: Path, found: Source) -> None:
    if out.exists() and not out.is_dir():
        raise InvalidProblem(f"{out}: the output is a file, expected the name of a folder")
    if out.exists() and out.samefile(found.folder):
        raise InvalidProblem(f"{out}: the output is the folder of the checkpoint, expected another one")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keeps the folder for this process; the lock ends with it, however it ends."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = os.open(out, os.O_RDONLY)
    except OSError as error:
        raise BadFile(f"{out}: cannot be written: {error}") from error
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidProblem(f"{out}: another process is writing into this folder") from None
        except OSError:  # a file system that has no locks
            pass
        yield
    finally:
        os.close(folder)


def _state(options: dict, found: Source) -> dict:
    """What decides about the bytes that are written: the options, and the files by length and time of change."""
    files = {}
    for name in found.headers:
        status = (found.folder / name).stat()
        files[name] = [status.st_size, status.st_mtime_ns]
    return {**options, "files": files}


def _resumed(out: Path, made: Sequence[Shard], state: dict) -> set[str]:
    """The files that an earlier run with this state has finished. What it left half written is removed.

    Raises:
        InvalidProblem: the folder has files of a run with another state, or of no run.
    """
    path = out / STATE
    there = [shard.name for shard in made if (out / shard.name).exists()]
    # Files of another run too, whatever their names: who loads the folder would find them among these.
    others = sorted(each.name for each in (*out.glob(f"*{SUFFIX}"), *out.glob(f"*{sources.INDEX_SUFFIX}")))
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(earlier, dict):
            raise ValueError(f"it is {shown(earlier)}")
    except FileNotFoundError:
        if others:
            message = f"{out / others[0]}: is there, and no {STATE} beside it says that this command wrote it"
            raise InvalidProblem(f"{message}; name another folder") from None
        earlier = None
    except (OSError, ValueError, RecursionError) as error:
        raise BadFile(f"{path}: expected the state of an earlier run: {error}") from error
    if others and earlier != state:
        raise InvalidProblem(f"{out}: was begun {_difference(earlier, state)}; name another folder, or remove this one")
    if earlier != state:
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(state, indent=1), encoding="utf-8")
    for shard in made:
        for leftover in out.glob(temporary_name(Path(escape(shard.name)))):
            leftover.unlink(missing_ok=True)
    for shard in made:
        if shard.name in there and read_header(out / shard.name) != shard.after:
            raise BadFile(f"{out / shard.name}: is not what this command wrote there; remove it and call again")
    return set(there)


def _difference(earlier: dict, state: dict) -> str:
    """What differs between two states, the first of them all."""
    for key in state:
        if key != "files" and earlier.get(key) != state[key]:
            return f"with {key} {earlier.get(key)}, expected {state[key]}"
    before, now = earlier.get("files", {}), state["files"]
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return f"from other files: {', '.join(changed[:3])} {'has' if len(changed) == 1 else 'have'} changed since"
