"""Renders a spec into a package: what each file says, and which files must be written or removed.

A file is written only where its text changes, through a temporary name, after the whole spec has been checked and
everything has been rendered. The same spec gives the same bytes on every machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from skuda.codegen import spec as specs
from skuda.codegen.cuda import CudaProgram, Parameter
from skuda.codegen.describe import Described
from skuda.codegen.schema import schema_text
from skuda.codegen.spec import Row, Spec

MANIFEST = "MANIFEST"
_HASHES = "@hashes@"
_HASH_LINE = re.compile(r"inputs sha256:([0-9a-f]{12}) body sha256:([0-9a-f]{12})")
BLOCK = 128

# What the generator itself is made of: a change there makes the whole catalog stale.
_GENERATOR = {"codegen": "*.py", "templates": "*.jinja", "": "operation.py dtypes.py sku.py mapping.py"}


class RenderError(ValueError):
    """The output folder is not one that the generator may write into."""


@dataclass(frozen=True)
class Template:
    """One template and where its files go."""

    name: str
    path: str
    statement: str


ROW_TEMPLATES = (
    Template("map.cu.jinja", "cuda/{name}.cu", "//%"),
    Template("plan.py.jinja", "plans/{name}.py", "#%"),
    Template("reference.py.jinja", "reference/{name}.py", "#%"),
    Template("doc.md.jinja", "docs/{name}.md", "%%"),
)
CATALOG_TEMPLATE = Template("catalog.py.jinja", "__init__.py", "#%")


def render(spec: Spec) -> dict[str, str]:
    """Every file of the package, by its path below it."""
    files: dict[str, str] = {}
    for row in spec.rows:
        described = Described(row)
        for template in ROW_TEMPLATES:
            context = {
                "row": described,
                "programs": [CudaProgram(p) for p in row.programs] if template.name.endswith(".cu.jinja") else described.programs,
                "p_classes": [f"{p.operation.class_name}Plan" for p in row.programs],
                "imports": described.reference_imports,
                "block": BLOCK,
            }
            context["row"] = described.heading(spec.file_name)
            inputs = _row_inputs(row, spec)
            files[template.path.format(name=row.name)] = _rendered(template, context, inputs)
    names = tuple(row.name for row in spec.rows)
    files[CATALOG_TEMPLATE.path] = _rendered(
        CATALOG_TEMPLATE, {"rows": names, "origin": spec.file_name}, "\n".join(names)
    )
    for folder in ("plans", "reference"):
        files[f"{folder}/__init__.py"] = ""
    files["ops.schema.json"] = schema_text()
    return dict(sorted(files.items()))


def _row_inputs(row: Row, spec: Spec) -> str:
    """The text of the spec that decides a row's files: the row, and the functions that it uses."""
    wanted, seen = [row.source], []
    for text in wanted:
        for name, function in spec.functions.items():
            if name not in seen and re.search(rf"\b{name}\b", text):
                seen.append(name)
                wanted.append(function.body.value)
    return "\n".join([*wanted, *sorted(seen)])


def _rendered(template: Template, context: dict, inputs: str) -> str:
    text = _environment(template.statement).get_template(template.name).render(**context, hashes=_HASHES)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    source = _template_source(template.name)
    return text.replace(_HASHES, f"inputs sha256:{_digest(source + inputs)} body sha256:{_digest(text)}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _template_source(name: str) -> str:
    return (resources.files("skuda.templates") / name).read_text(encoding="utf-8")


def _block_tags(source: str, statement: str) -> str:
    """A template's statement lines (`//% for ...`) as Jinja's block tags, and its `//#` lines as comments. Jinja's own
    line statements also eat the blank lines after them."""
    comment = statement.replace("%", "#") if statement != "%%" else "%#"
    source = re.sub(rf"^[ \t]*{statement}(.*)$", r"{%\1 %}", source, flags=re.MULTILINE)
    return re.sub(rf"^[ \t]*{comment}(.*)$", r"{#\1 #}", source, flags=re.MULTILINE)


@cache
def _environment(statement: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _block_tags(_template_source(name), statement)),
        undefined=jinja2.StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(
        cpp=_cpp,
        typename=lambda letter: f"typename {letter}",
        parameters=lambda parameters: ", ".join(f"{p.type} {p.name}" for p in parameters),
        initializers=lambda members: ", ".join(f"{m.name}({m.value})" for m in members),
        all_fast=lambda members: " && ".join(f"{m.name}.fast" for m in members if m.prepared) or "true",
        lanes=lambda parameters: ", ".join(f"{p.name}.get(lane_)" for p in parameters),
        value_type=lambda value: "f64" if value.type == "C" else "i64",
        shared_call=_shared_call,
        python=_python,
        string_of=lambda formulas: "; ".join(f"{name} = {text}" for name, text in formulas.items()),
    )
    return environment


def _cpp(element: str, program: CudaProgram) -> str:
    """An operand's element type as C++."""
    return program.compute if element == "C" else element


def _python(value) -> str:
    """A value as Python source with double quotes, one-element tuples included."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_python, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    return repr(value)


def _shared_arguments(program: CudaProgram, where: str) -> list[str]:
    """What a formula's shared values are made from: parameters of this run (or place), scalars and attributes."""
    arguments = []
    parameters = {operand.name: operand for operand in program.parameters}
    scalars = {operand.name for operand in program.scalars}
    for parameter in program.shared_parameters:
        name = parameter.name
        if name in scalars:
            arguments.append(f"args_.{name}.value()")
        elif name not in parameters:
            arguments.append(f"C(args_.{name})" if parameter.type == "C" else f"args_.{name}")
        elif where == "run":
            arguments.append(f"::widen(args_.{name}[run_.index * args_.{name}_stride_])")
        else:
            element = _cpp(parameters[name].element, program)
            blocked = str(any(dim.block for dim in parameters[name].dims)).lower()
            place = f"at_.template offset<{element}, {blocked}>(space_, args_.{name}_strides_)"
            arguments.append(f"::read<{element}>(args_.{name}, {place})")
        if name in parameters or name in scalars:
            arguments[-1] = f"C({arguments[-1]})" if parameter.type == "C" else arguments[-1]
    return arguments


def _shared_call(program: CudaProgram, where: str) -> str:
    """The initializer of a formula object, one argument a line where there are several."""
    arguments = _shared_arguments(program, where)
    if not arguments:
        return "{}"
    return f"({arguments[0]})" if len(arguments) == 1 else "(\n        " + ",\n        ".join(arguments) + ")"


# ---- writing ----


@dataclass(frozen=True)
class Change:
    """One file that is not as the spec wants it: `missing`, `stale`, `edited` by hand, or an `orphan` to remove."""

    path: str
    kind: str
    wanted: str | None
    found: str | None


def changes(folder: Path, files: dict[str, str]) -> list[Change]:
    """What differs between a folder and what a spec wants there."""
    found = []
    for path, wanted in files.items():
        target = folder / path
        text = _read(target)
        if text is None:
            found.append(Change(path, "missing", wanted, None))
        elif text != wanted:
            found.append(Change(path, _kind_of(text), wanted, text))
    for path in _ours(folder):
        if path not in files and path != MANIFEST:
            found.append(Change(path, "orphan", None, _read(folder / path)))
    return sorted(found, key=lambda change: change.path)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None


def _kind_of(text: str) -> str:
    """Whether a file's body is what its own header says: then its inputs have changed, else somebody edited it."""
    match = _HASH_LINE.search(text)
    if match is None:
        return "edited"
    return "stale" if _digest(text.replace(match[0], _HASHES, 1)) == match[2] else "edited"


def _ours(folder: Path) -> list[str]:
    """Files that the generator wrote: those in the manifest, and those that carry its header."""
    listed = {line.split("  ", 1)[1] for line in (_read(folder / MANIFEST) or "").splitlines() if "  " in line}
    here = set()
    for path in folder.rglob("*") if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "__pycache__" not in name:
            if name in listed or (path.suffix in (".cu", ".py", ".md") and _HASH_LINE.search(_read(path) or "")):
                here.add(name)
    return sorted(here)


def write(folder: Path, files: dict[str, str]) -> list[Change]:
    """Brings a folder to what a spec wants; returns what was changed.

    Raises:
        RenderError: the folder holds files that are not the generator's where it would write its own.
    """
    if folder.exists() and not folder.is_dir():
        raise RenderError(f"{folder} is a file, expected a folder to generate into")
    todo = changes(folder, files)
    foreign = [c.path for c in todo if c.kind == "edited" and c.found and not _HASH_LINE.search(c.found)]
    if foreign and not (folder / MANIFEST).exists():
        raise RenderError(
            f"{folder} holds {foreign[0]}, which the generator did not write; give an empty folder to --out"
        )
    for change in todo:
        target = folder / change.path
        if change.wanted is None:
            target.unlink()
            continue
        _replace(target, change.wanted)
    for sub in ("cuda", "plans", "reference", "docs"):
        if (folder / sub).is_dir() and not any((folder / sub).iterdir()):
            (folder / sub).rmdir()
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


def manifest(files: dict[str, str], inputs: str) -> str:
    """The list of generated files with their hashes, and the hash of everything that they are made from."""
    lines = [f"{hashlib.sha256(text.encode()).hexdigest()}  {path}" for path, text in files.items()]
    return "\n".join([f"inputs {inputs}", *lines, ""])


def inputs_digest(spec_path: Path) -> str:
    """One hash of the spec and of the generator itself."""
    digest = hashlib.sha256(spec_path.read_bytes())
    for name, patterns in _GENERATOR.items():
        package = "skuda." + name if name else "skuda"
        folder = Path(str(resources.files(package)))
        for pattern in patterns.split():
            for path in sorted(folder.glob(pattern)):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def up_to_date(folder: Path, inputs: str) -> bool:
    """Whether the folder was generated from these inputs and no file of it has been touched since."""
    text = _read(folder / MANIFEST)
    if text is None or not text.startswith(f"inputs {inputs}\n"):
        return False
    for line in text.splitlines()[1:]:
        expected, path = line.split("  ", 1)
        try:
            if hashlib.sha256((folder / path).read_bytes()).hexdigest() != expected:
                return False
        except OSError:
            return False
    return len(_ours(folder)) == len(text.splitlines())


@dataclass(frozen=True)
class Outcome:
    """What a run of the generator did."""

    rows: int
    files: int
    changed: tuple[Change, ...]


def generate(spec_path: Path, folder: Path) -> Outcome:
    """Checks a spec and brings the folder to it; nothing is written where the spec has a mistake.

    Raises:
        SpecError: the spec has mistakes; all of them are in the message.
        RenderError: the folder is not one that may be written into.
    """
    spec = specs.load(spec_path)
    files = render(spec)
    files_with_manifest = {**files, MANIFEST: manifest(files, inputs_digest(spec_path))}
    changed = write(folder, files_with_manifest)
    return Outcome(len(spec.rows), len(files), tuple(c for c in changed if c.path != MANIFEST))
