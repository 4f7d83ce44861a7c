"""The output folder: what in it differs from what a spec wants, and how it is brought there.

A file is written only where its text changes, through a temporary name, after the whole spec has been checked
and everything has been rendered. A file is the generator's own if MANIFEST lists it, or if it carries a
header whose hash its body still has; whatever else lies in the folder is neither overwritten nor removed.

This module imports neither Jinja nor YAML, so that a run which has nothing to do is over at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from skuda.codegen import inputs
from skuda.errors import SkudaError

MANIFEST = "MANIFEST"
HASHES = "@hashes@"  # what a template's header has in the place of the two hashes
_HASH_LINE = re.compile(r"inputs sha256:([0-9a-f]{12}) body sha256:([0-9a-f]{12})")
_HEADED = (".cu", ".py", ".pyi", ".md")  # files that may have a header
_SUBFOLDERS = ("cuda", "plans", "reference", "docs")


class RenderError(SkudaError, ValueError):
    """The output folder is not one that the generator may write into."""


def stamped(text: str, inputs: str) -> str:
    """A rendered file with its hashes, which tell a stale file (other inputs) from an edited one (body)."""
    return text.replace(HASHES, f"inputs sha256:{_digest(inputs)} body sha256:{_digest(text)}")


def _digest(text: str | bytes) -> str:
    """Enough to notice a change; nothing rests on nobody making two texts of one digest."""
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Change:
    """One file that is not as the spec wants it.

    Attributes:
        path: below the output folder.
        kind: `missing`, `stale` (its inputs have changed), `edited` (by hand), `orphan` (no row makes it any
            more), or `foreign` (something else has the name of a file to be written).
        wanted: the text that it should have; None for an orphan.
        found: the text that it has; None for a missing one.
        edited: whether writing or removing it loses what somebody wrote by hand.
    """

    path: str
    kind: str
    wanted: str | None
    found: str | None
    edited: bool = False


def changes(folder: Path, files: dict[str, str]) -> list[Change]:
    """What differs between a folder and what a spec wants there, by path; MANIFEST, written last, is last."""
    listed = _listed(folder)
    found = []
    for path, wanted in files.items():
        text = _read(folder / path)
        if text is None:
            found.append(Change(path, "missing", wanted, None))
        elif text != wanted:
            kind = _kind_of(path, text, listed)
            found.append(Change(path, kind, wanted, text, kind == "edited"))
    for path in _ours(folder, listed):
        if path not in files:
            text = _read(folder / path)
            found.append(Change(path, "orphan", None, text, _kind_of(path, text or "", listed) == "edited"))
    return sorted(found, key=lambda change: (change.path == MANIFEST, change.path))


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _listed(folder: Path) -> dict[str, str]:
    """The manifest's files with their hashes."""
    lines = (_read(folder / MANIFEST) or "").splitlines()[1:]
    return {path: digest for digest, separator, path in (line.partition("  ") for line in lines) if separator}


def _kind_of(path: str, text: str, listed: dict[str, str]) -> str:
    """Why a file's text is not the wanted one: `stale`, `edited` or `foreign`."""
    if path == MANIFEST or _digest(text) == listed.get(path):
        return "stale"
    match = _HASH_LINE.search(text)
    if match is None:
        return "edited" if path in listed else "foreign"
    return "stale" if _digest(text.replace(match[0], HASHES, 1)) == match[2] else "edited"


def _ours(folder: Path, listed: dict[str, str]) -> list[str]:
    """Files that the generator wrote, without MANIFEST; looks only where it writes."""
    places = [folder, *(folder / name for name in _SUBFOLDERS)]
    here = []
    for path in (path for place in places if place.is_dir() for path in place.iterdir()):
        name = path.relative_to(folder).as_posix()
        if name == MANIFEST or not path.is_file():
            continue
        if name in listed or (path.suffix in _HEADED and _has_own_header(name, _read(path) or "")):
            here.append(name)
    return sorted(here)


def _has_own_header(path: str, text: str) -> bool:
    """Whether nothing is lost with a file that no manifest lists: its header vouches for its body."""
    return _HASH_LINE.search(text) is not None and _kind_of(path, text, {}) == "stale"


def write(folder: Path, files: dict[str, str]) -> list[Change]:
    """Brings a folder to what a spec wants; returns what was changed.

    Args:
        folder: the output folder; made if it is not there.
        files: texts by path, MANIFEST among them.

    Raises:
        RenderError: something of another origin stands where it would write; then nothing is written.
    """
    if folder.exists() and not folder.is_dir():
        raise RenderError(f"{folder} is a file, expected a folder to generate into")
    other = _origin(_read(folder / MANIFEST))
    if other not in (None, _origin(files[MANIFEST])):
        raise RenderError(f"{folder} is the catalog of {other}; give another folder to --out, or remove it")
    todo = changes(folder, files)
    foreign = [change.path for change in todo if change.kind == "foreign"]
    if foreign:
        what = f"{foreign[0]} and {len(foreign) - 1} more files" if len(foreign) > 1 else foreign[0]
        raise RenderError(
            f"{folder} holds {what}, which the generator did not write; "
            "move it away, or give another folder to --out"
        )
    for change in todo:
        if change.wanted is None:
            (folder / change.path).unlink()
        else:
            _replace(folder / change.path, change.wanted)
    for name in _SUBFOLDERS:
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()
    return todo


def _replace(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def manifest(files: dict[str, str], origin: str, inputs: str) -> str:
    """The generated files with their hashes, under the spec's name and the hash of all they are made from."""
    lines = [f"{_digest(text)}  {path}" for path, text in files.items()]
    return "\n".join([_first_line(origin, inputs), *lines, ""])


def _first_line(origin: str, inputs: str) -> str:
    return f"from {origin} inputs {inputs}"


def _origin(manifest: str | None) -> str | None:
    """The name of the spec that a manifest belongs to."""
    match = re.match(r"from (.+) inputs [0-9a-f]{64}\n", manifest or "")
    return match and match[1]


def up_to_date(folder: Path, spec_path: Path) -> bool:
    """Whether the folder was generated from this spec, by this generator, and nothing was touched since."""
    text = _read(folder / MANIFEST)
    try:
        expected = _first_line(spec_path.name, inputs.digest(spec_path))
    except OSError:
        return False
    if text is None or not text.startswith(expected + "\n"):
        return False
    listed = _listed(folder)
    return not touched(folder) and len(_ours(folder, listed)) == len(listed)


def touched(folder: Path) -> list[str]:
    """Files of the manifest that are gone or no longer as they were written."""
    found = []
    for path, digest in _listed(folder).items():
        try:
            if _digest((folder / path).read_bytes()) != digest:
                found.append(path)
        except FileNotFoundError:
            found.append(path)
    return found
