"""The files that decide what the generator writes: found by following imports, so that none has to be listed.

From the module that renders, every module of skuda that it imports, and those that these import; then the templates.
Imports inside of functions count in codegen, which calls them to render; those in the runtime are for calls and
launches. The files are read, not imported, so that this takes a few milliseconds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from skuda.codegen.library import functions_text

# Not below each other where skuda is installed as editable. The packages inside of each are.
_PACKAGES = ("skuda", "skuda.codegen", "skuda.templates")
_START = (*_PACKAGES, "skuda.codegen.render")
_IMPORT = re.compile(r"\n([ ]*)(?:from (skuda[\w.]*) import (\([^)]*\)|.*)|import (skuda[\w.]*))")
_FOR_TYPES = re.compile(r"\nif TYPE_CHECKING:(?=\n)(?:\n[ ]+.*|\n(?=\n))+")


def digest(spec_path: Path) -> str:
    """One hash of the spec, of the functions of the catalog that it may call, and of the generator itself.

    Raises:
        OSError: the spec cannot be read.
    """
    found = hashlib.sha256(spec_path.read_bytes())
    found.update(functions_text().encode())
    for name, path in files():
        found.update(name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def files() -> list[tuple[str, Path]]:
    """The generator's own files under names that are the same wherever they lie, in the order of these."""
    templates = Path(import_module("skuda.templates").__file__).parent
    found = [(path.relative_to(templates).as_posix(), path) for path in templates.rglob("*.jinja")]
    return sorted([*found, *_modules().items()])


def _modules() -> dict[str, Path]:
    """The modules that rendering imports, by name."""
    folders = {name: Path(import_module(name).__file__).parent for name in _PACKAGES}
    waiting, found = list(_START), {}
    for module in waiting:
        if module not in found:
            found[module] = _path(module, folders, found)
            if found[module] is not None:
                waiting += _imported(module, found[module].read_text(encoding="utf-8"))
    return {module: path for module, path in found.items() if path is not None}


def _path(module: str, folders: dict[str, Path], found: dict[str, Path | None]) -> Path | None:
    """The file of a module; None where the name is none of a module.

    Args:
        module: its name.
        folders: those of the packages that are not found in others.
        found: the files of modules so far, the package of this one among them.
    """
    package, _, name = module.rpartition(".")
    if module in folders:
        folder = folders[module]
    elif (of := found.get(package)) is not None and of.name == "__init__.py":
        folder = of.parent / name
    else:
        return None
    return next((path for path in (folder.with_name(f"{name}.py"), folder / "__init__.py") if path.is_file()), None)


def _imported(module: str, text: str) -> Iterator[str]:
    """The names of modules that a module imports, among others that are none."""
    for indent, package, names, whole in _IMPORT.findall(_FOR_TYPES.sub("", text)):
        if indent and not module.startswith("skuda.codegen."):
            continue
        yield from _with_packages(whole or package)
        yield from (f"{package}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", names))


def _with_packages(module: str) -> Iterator[str]:
    """A module, after the packages that it is in: Python imports these too."""
    parts = module.split(".")
    for end in range(len(parts)):
        yield ".".join(parts[: end + 1])
