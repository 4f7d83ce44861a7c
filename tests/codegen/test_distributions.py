"""What is installed and handed on: the source distribution tests itself, the wheel knows what was verified."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from trees import REPOSITORY, linked, run, skuda_in

BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
MOST_BYTES = 2_000_000  # of a wheel: losses have three forms each, and optional inputs as many more
MOST_BYTES_OF_ROWS = 600_000  # of what is generated for the catalog: some 2,150 a row, its forms included
NOT_THERE = {".git", ".venv", "build", "dist", "__pycache__", "import"}


def build(tree: Path, what: str, folder: Path) -> Path:
    """Builds a distribution of a tree by the build backend that pyproject.toml names."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{what}", str(folder)], cwd=tree, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """The source distribution of a copy of the project, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    ignored = shutil.ignore_patterns(*NOT_THERE, "*.egg-info", ".*_cache", ".hypothesis")
    shutil.copytree(REPOSITORY, folder / "copy", ignore=ignored, symlinks=True)
    with tarfile.open(build(folder / "copy", "sdist", folder / "dist")) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.glob("skuda-*")
    return tree


@pytest.fixture(scope="module")
def installed(unpacked, tmp_path_factory) -> Path:
    """What a wheel puts beside other packages; it is built from the source distribution."""
    folder = tmp_path_factory.mktemp("wheel")
    path = build(unpacked, "wheel", folder / "dist")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "site")
    path.rename(folder / "skuda.whl")
    return folder / "site"


def tracked() -> set[str]:
    """The files of the repository, where it is one."""
    done = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode == 0:
        return set(done.stdout.split())
    return {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "tests").rglob("*.py")}


def test_the_source_distribution_has_every_file_of_the_project(unpacked):
    here = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    missing = {name for name in tracked() if (REPOSITORY / name).exists()} - here
    assert missing == set()


@pytest.mark.turns(3)
def test_the_source_distribution_checks_and_tests_itself(unpacked):
    linked(unpacked)
    try:
        done = skuda_in(unpacked, "check")
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        few = "codegen/test_schema.py", "conformance/test_views.py", "errors", "test_distance.py"
        done = run(unpacked, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{each}" for each in few))
        assert done.returncode == 0, done.stdout
    finally:
        shutil.rmtree(unpacked / "import")
        for link in (unpacked / "runtime").iterdir():
            if link.is_symlink():
                link.unlink()


def shown(folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "skuda.codegen.cli", "show", "quantize_per_token"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_knows_what_was_verified_on_which_gpu(installed):
    """What it says is what is said beside the records."""
    said = [re.findall("^evidence: .*", shown(folder), re.MULTILINE) for folder in (installed, REPOSITORY)]
    assert said[0] == said[1] != []
    assert "no record in" not in said[0][0]
    summaries = {path.name for path in (installed / "skuda" / "generated" / "evidence").iterdir()}
    here = REPOSITORY / "evidence"
    assert summaries == {path.name for kind in ("gpu", "bench") for path in here.glob(f"{kind}-*.json")}


def test_a_wheel_is_small(installed):
    """What grows with the catalog is generated: this says when a row costs more than it should."""
    with zipfile.ZipFile(installed.parent / "skuda.whl") as wheel:
        generated = [each for each in wheel.infolist() if each.filename.startswith("skuda/generated/")]
    rows = [each for each in generated if "/evidence/" not in each.filename]  # which grows with the records
    assert (installed.parent / "skuda.whl").stat().st_size < MOST_BYTES
    assert 0 < sum(each.compress_size for each in rows) < MOST_BYTES_OF_ROWS


# ---- what the tests need ----


def required(name: str, extras: set[str]) -> set[str]:
    """The distributions that skuda with some extras brings, and those that these need, as far as they are installed."""
    found: set[str] = set()
    waiting = [(name, extras)]
    for each, wanted in waiting:
        for line in requirements(each):
            text, _, marker = line.partition(";")
            asked = re.search(r"extra == ['\"]([\w.-]+)['\"]", marker)
            if asked and normal(asked[1]) not in wanted:
                continue
            other, extra = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", text).groups()
            added = {normal(part) for part in (extra or "").split(",") if part.strip()}
            if normal(other) not in found or added - wanted:
                found.add(normal(other))
                if (normal(other), added) not in waiting:
                    waiting.append((normal(other), added))
    return found


def requirements(name: str) -> list[str]:
    """Of skuda as pyproject.toml has it; of others as they were installed."""
    if name == "skuda":
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"].items()
        return project["dependencies"] + [f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines]
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> set[str]:
    """The top-level modules that collecting the tests imports."""
    found = set()
    for path in (REPOSITORY / "tests").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    own = {path.stem for path in (REPOSITORY / "tests").rglob("*.py")}
    own |= {path.name for path in (REPOSITORY / "tests").iterdir() if path.is_dir()}
    return found - own - {"skuda"} - sys.stdlib_module_names


def test_the_test_extras_bring_what_the_tests_import():
    """Those of `make test-frameworks` and `make test-site` too, and CuPy, in one of its builds: on a machine without a
    GPU its arrays are made around other memory."""
    extras = {"test", "frameworks", "docs-test"}
    brought, providers = required("skuda", extras), metadata.packages_distributions()
    lacking = {}
    for module in imported():
        of = {normal(name) for name in providers.get(module, [module])}
        if not of & brought and not (module == "cupy" and any(each.startswith("cupy-cuda") for each in brought)):
            lacking[module] = of
    assert lacking == {}
    assert "cupy" in imported()


def test_without_cupy_the_extra_would_not_do():
    """What is asked of the extra is what it brings: less of it lacks something."""
    assert {"pytest", "hypothesis", "numpy", "torch"} <= required("skuda", {"test"})
    assert not any(each.startswith("cupy") for each in required("skuda", {"test-base"}))
