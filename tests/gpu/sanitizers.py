"""Runs compute-sanitizer's four tools over sanitize.py, and writes what they say into evidence/.

    python tests/gpu/sanitizers.py [PATTERN...]

Patterns and --all choose kernels as in sanitize.py. The exit status is 1 if a tool found something.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skuda.codegen.commands import build, gpus
from skuda.launch import registry
from skuda.schedules import table
from skuda.verification import evidence

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PROGRAM = Path(__file__).with_name("sanitize.py")
_NOISE = re.compile(r"=* *(COMPUTE-SANITIZER)?|compiling .*")  # lines that say nothing of a kernel


def commands(symbols: Sequence[str]) -> dict[str, list[str]]:
    """What to run by tool; without the timeout of 0 a tool gives up where imports take long."""
    program = [sys.executable, str(PROGRAM), *symbols]
    options = ["--launch-timeout", "0", "--error-exitcode", "1"]
    return {tool: ["compute-sanitizer", "--tool", tool, *options, *program] for tool in TOOLS}


def text(machine: Mapping[str, str], arguments: Sequence[str], said: Mapping[str, str]) -> str:
    """The file.

    Args:
        machine: "gpu", "driver", "cuda" and "date".
        arguments: what sanitize.py was told.
        said: the output of each tool.
    """
    chosen = " ".join(arguments) or "a kernel of each schedule and type"
    where = f"{machine['gpu']} (driver {machine['driver']}, CUDA {machine['cuda']})"
    lines = [
        f"compute-sanitizer on an {where}, {machine['date']},",
        f"over tests/gpu/sanitize.py: {chosen}.",
    ]
    for tool, output in said.items():
        told = [line.rstrip() for line in output.splitlines() if not _NOISE.fullmatch(line.strip())]
        lines += ["", f"## {tool}", "", *told]
    return "\n".join(lines) + "\n"


def compiled(arguments: Sequence[str]) -> list[str]:
    """The symbols of the kernels, which are brought into the cache on all processors: under a tool each would take
    seconds."""
    from gpu import sanitize

    arch = gpus.find().devices[0][1]
    skus = sanitize.chosen([*arguments])
    jobs = [
        build.Job(found.catalog, found.operation.source, entry, arch)
        for found in map(registry.entry_of, skus)
        for entry in table.entries(found.operation, found.types, found.variant)
    ]
    build.compile_all(jobs, os.cpu_count() or 1)
    return [sku.symbol for sku in skus]


def main(arguments: Sequence[str]) -> int:
    from gpu.conftest import machine

    symbols = compiled(arguments)
    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    status, said = 0, {}
    parts = max(1, (os.cpu_count() or 1) // len(TOOLS))  # a tool keeps one processor busy, and the GPU hardly
    shares = [symbols[part::parts] for part in range(parts) if symbols[part::parts]]
    with ThreadPoolExecutor(parts * len(TOOLS)) as at_once:
        plain = [[sys.executable, str(PROGRAM), *share] for share in shares]
        for done in [at_once.submit(subprocess.run, command, check=True) for command in plain]:
            done.result()  # what stages add is compiled, and all is well
        runs = [
            (tool, at_once.submit(run, command)) for share in shares for tool, command in commands(share).items()
        ]
    for tool, done in ((tool, future.result()) for tool, future in runs):
        status, said[tool] = status or done.returncode, said.get(tool, "") + done.stdout
        print(f"{tool}: {done.stdout.strip().splitlines()[-1]}", flush=True)
    found = machine()
    records = evidence.Records(evidence.package_of(registry.catalogs()[0]))
    path = records.path("sanitizers", found["gpu"]).with_suffix(".txt")
    path.write_text(text(found, arguments, said), encoding="utf-8")
    print(f"wrote {path}")
    return int(status != 0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(sys.argv[1:]))
