"""What a growing catalog costs to generate, compile and verify: catalogs of more and more rows, measured.

    python tests/growth.py [--rows 10 100 1000] [--json evidence/growth.json]

A catalog's rows are those of ops.yaml, again and again under other names. Each step is a process of its own, as for
whoever works on a catalog. Needs NVRTC, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from itertools import count, islice
from pathlib import Path
from typing import Any

from skuda.codegen.commands import growth

REPOSITORY = Path(__file__).resolve().parents[1]
ARCH = "sm_90"
SAMPLE = 24  # kernels that are compiled, of each catalog
PACKAGE = "grown"
PROJECT = f"""\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "{PACKAGE}"
version = "0"
[tool.setuptools]
packages = ["{PACKAGE}", "{PACKAGE}.plans"]
[tool.setuptools.package-data]
{PACKAGE} = ["cuda/*.cu", "docs/*.md", "MANIFEST", "ops.schema.json"]
"""
# Run in the folder of a catalog; prints seconds and the number of kernels.
USE = f"""\
import time
from skuda.launch import registry
begun = time.perf_counter()
import {PACKAGE}
imported = time.perf_counter()
getattr({PACKAGE}, {PACKAGE}.CATALOG.modules[0])
first = time.perf_counter()
mine = [sku for sku in registry.skus() if registry.entry_of(sku).catalog is {PACKAGE}.CATALOG]
print(imported - begun, first - imported, time.perf_counter() - first, sum(sku.backend.value == "cuda" for sku in mine))
"""
# Prints how many kernels a run on a GPU compares.
RUN = f"""\
import {PACKAGE}
from skuda.verification.coverage import divide
division = divide({PACKAGE}.CATALOG.operations)
print(len(division.covering) + max(map(len, division.turns)))
"""
COMPILE = f"""\
import statistics, sys, time
import {PACKAGE}
from skuda.codegen.commands.build import jobs_of
from skuda.launch.compiler import compile_cubin
jobs = jobs_of([{PACKAGE}.CATALOG], [], [{ARCH!r}])
seconds = []
for job in [jobs[0], *jobs[:: len(jobs) // int(sys.argv[1])]]:
    begun = time.perf_counter()
    compile_cubin(job.catalog.source(job.source), job.source, [job.entry], job.arch)
    seconds.append(time.perf_counter() - begun)
print(statistics.median(seconds[1:]))  # without the first, which loads NVRTC
"""


def spec_of(rows: int) -> str:
    """ops.yaml with as many rows, all of them its own but for their names."""
    head, _, body = (REPOSITORY / "ops.yaml").read_text(encoding="utf-8").partition("\nops:\n")
    found = re.findall(r"^  (\w+):\n((?:(?:    .*)?\n)+)", body, re.MULTILINE)
    grown = (f"  {name}_{turn}:\n{text}" for turn in count() for name, text in found)
    return f"{head}\nops:\n{''.join(islice(grown, rows))}"


def python(*arguments: str, folder: Path) -> tuple[str, float]:
    """Standard output and seconds of a Python process in a folder.

    Raises:
        RuntimeError: it failed; what it printed.
    """
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout, seconds


def wheel_bytes(folder: Path) -> int:
    """Size of the wheel of the project in a folder, built with the setuptools that are installed."""
    pip = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", ".")
    python(*pip, folder=folder)
    [wheel] = (folder / "dist").glob("*.whl")
    return wheel.stat().st_size


def measure(rows: int, folder: Path, sample: int) -> dict[str, Any]:
    """One catalog.

    Args:
        rows: how many operations it has.
        folder: an empty one.
        sample: how many kernels to compile, spread over all of them.
    """
    (folder / "ops.yaml").write_text(spec_of(rows), encoding="utf-8")
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    generate = ("-m", "skuda.codegen.cli", "generate", "--out", PACKAGE)
    generated, unchanged = python(*generate, folder=folder)[1], python(*generate, folder=folder)[1]
    files = [path for path in (folder / PACKAGE).rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    wheel = wheel_bytes(folder)
    used = [python("-c", USE, folder=folder)[0].split() for _ in range(3)]
    imported, first, table = (statistics.median(map(float, each)) for each in list(zip(*used, strict=True))[:3])
    return {
        "rows": rows,
        "kernels": int(used[0][3]),
        "generate_seconds": round(generated, 3),
        "unchanged_seconds": round(unchanged, 3),
        "generated_bytes": size,
        "generated_files": len(files),
        "wheel_bytes": wheel,
        "import_seconds": round(imported, 5),
        "first_seconds": round(first, 5),
        "table_seconds": round(table, 3),
        "run_kernels": int(python("-c", RUN, folder=folder)[0]),
        "nvrtc_seconds": round(float(python("-c", COMPILE, str(sample), folder=folder)[0]), 4),
    }


def project_wheel_bytes(folder: Path) -> int:
    """Size of skuda's own wheel, built from a copy of what it is made of."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("runtime", "codegen", "templates", "generated", "evidence"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    return wheel_bytes(folder)


def run(sizes: list[int], sample: int = SAMPLE) -> dict[str, Any]:
    """Everything, as it is written to JSON."""
    result: dict[str, Any] = {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "processors": len(os.sched_getaffinity(0)),
        "arch": ARCH,
    }
    with tempfile.TemporaryDirectory() as folder:
        result["project_wheel_bytes"] = project_wheel_bytes(Path(folder))
    result["catalogs"] = []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            result["catalogs"].append(measure(rows, Path(folder), sample))
    return result


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    result = run(args.rows)
    print("\n".join(growth.lines(result)))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
