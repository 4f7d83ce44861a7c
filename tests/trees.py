"""Copies of the project that a test may change, and commands that are run in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("codegen", "templates", "generated")  # imported as skuda.codegen and so on


def copy_of_the_tree(folder: Path) -> Path:
    """A copy of what the project is made of, below a folder; `run` imports skuda from it."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis")
    tree.mkdir(parents=True)
    for name in ("runtime", "tests", *PACKAGES):
        shutil.copytree(REPOSITORY / name, tree / name, ignore=ignored)
    for name in ("ops.yaml", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tree)
    linked(tree)
    return tree


def linked(tree: Path) -> None:
    """Makes a tree of the project importable as it is, for `run`."""
    (tree / "import").mkdir()
    (tree / "import" / "skuda").symlink_to(tree / "runtime")
    for name in PACKAGES:
        (tree / "runtime" / name).symlink_to(tree / name)


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A Python process in a copy, with skuda imported from there."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tree / "import"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)


def skuda_in(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    """A command of skuda in a copy."""
    return run(tree, "-m", "skuda.codegen.cli", *arguments)
