"""`skuda evidence --carry`: what was found of a kernel holds for a source that gives the same machine code.

A run on a GPU keeps the digest of each kernel's machine code. This compiles the kernels whose sources have changed
since, and compares. What launches kernels of other operations alone, its stages, holds where these do. For records of
runs that kept none, `--from COMMIT` compiles the sources of that commit as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from skuda.codegen.commands import build
from skuda.errors import InvalidProblem
from skuda.launch import registry
from skuda.launch.cubin_cache import cached_cubin
from skuda.schedules import table
from skuda.verification import machine_code
from skuda.verification.coverage import Candidate, candidates, divide
from skuda.verification.evidence import Records
from skuda.verification.findings import Finding, State

ARCH = {"NVIDIA H100": "sm_90", "NVIDIA H200": "sm_90"}  # what records without digests were run for


def add_arguments(parser) -> None:
    """Adds --carry and what goes with it."""
    parser.add_argument(
        "--carry", metavar="OP", nargs="*",
        help="before that, compile kernels (of some operations, or those that cover the others) whose sources have "
        "changed since they ran, and keep what was found where the machine code is the same; needs NVRTC, but no GPU",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="commit", metavar="COMMIT",
        help="with --carry: compile what ran as well, from the sources of this commit",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=build.positive, metavar="N", default=build.processors(),
        help="with --carry: how many kernels to compile at once (default: %(default)s)",
    )  # fmt: skip


def run(args: argparse.Namespace, catalog: registry.Catalog, records: Records) -> None:
    """Carries what can be carried in every record.

    Raises:
        InvalidProblem: no such commit.
    """
    named = set(args.carry)
    covering = set() if named else {*divide(catalog.operations).covering}
    every = [
        kernel
        for kernel in candidates(catalog.operations)
        if (
            named & {kernel.operation.name, kernel.operation.function, kernel.operation.row}
            if named
            else kernel.symbol in covering
        )
    ]
    own, staged = [], []
    for kernel in every:
        (own if table.entries(kernel.operation, kernel.types, kernel.variant) else staged).append(kernel)
    for record in records.verified:
        gpu = record["gpu"]
        path = records.path("code", gpu).with_suffix(".json")
        arch = json.loads(path.read_text(encoding="utf-8"))["arch"] if path.exists() else ARCH.get(gpu)
        if arch is None:
            print(f"{gpu}: nothing is known of the machine code that ran")
            continue
        stale = {kernel.symbol: found for kernel in every if (found := changed(records, kernel, gpu)) is not None}
        codes = machine_code.read(path)
        if args.commit is not None:
            unknown = [kernel.symbol for kernel in own if kernel.symbol in stale and kernel.symbol not in codes]
            codes |= _codes_of(args.commit, {symbol: stale[symbol] for symbol in unknown}, arch, args.jobs)
        asked = [kernel for kernel in own if kernel.symbol in stale and kernel.symbol in codes]
        now = dict(compiled(asked, catalog, arch, args.jobs))
        same = {symbol for symbol, each in now.items() if each == codes[symbol]}
        lost = [kernel for kernel in own if kernel.symbol not in same and _ran_as_another(records, kernel, gpu)]
        hold = [
            each.symbol for each in staged
            if each.symbol in stale and not any(_is_stage(kernel, each) for kernel in lost)
        ]  # fmt: skip
        if same or hold:
            records.carry(catalog, gpu, [*same, *hold], date.today().isoformat())
        machine_code.write(path, arch, codes)
        print(f"{gpu}: of {len(stale)} kernels whose sources have changed {len(asked)} were compared, "
              f"{len(same)} have the machine code that ran; so have the stages of {len(hold)}")  # fmt: skip


def _ran_as_another(records: Records, kernel: Candidate, gpu: str) -> bool:
    """Whether a kernel ran on a GPU, but not as it is now, whatever others say of it."""
    asked = kernel.operation.source, kernel.symbol
    return gpu in {each.gpu for each in records.findings(*asked)} - {each.gpu for each in records.current(*asked)}


def _is_stage(kernel: Candidate, whole: Candidate) -> bool:
    """Whether a kernel is of a stage of what launches kernels of other operations alone, with its element types."""
    one, other = kernel.operation, whole.operation
    named = one.analysis.stage and one.name.startswith(f"{other.name}_stage") and one.direction is other.direction
    return bool(named) and all(whole.types.get(letter, word) == word for letter, word in kernel.types.items())


def changed(records: Records, kernel: Candidate, gpu: str) -> Finding | None:
    """What one GPU's record says of a kernel that ran with another source, and gave the reference's bits."""
    source = kernel.operation.source
    if records.state(source, kernel.symbol) in (State.VERIFIED, State.DIFFERS):
        return None
    found = (each for each in records.findings(source, kernel.symbol) if each.gpu == gpu and each.result.bit_equal)
    return next(found, None)


def compiled(
    kernels: Iterable[Candidate], catalog: registry.Catalog, arch: str, jobs: int
) -> Iterator[tuple[str, str]]:
    """Kernels with the digests of their machine code, as their sources are now."""
    with ThreadPoolExecutor(jobs) as executor:
        yield from executor.map(lambda kernel: (kernel.symbol, code_of(kernel, catalog, arch)), kernels)


def code_of(kernel: Candidate | registry.Entry, catalog: registry.Catalog, arch: str) -> str:
    """The digest of a kernel's machine code; "" for one that launches kernels of other operations alone."""
    source = kernel.operation.source
    names = table.entries(kernel.operation, kernel.types, kernel.variant)
    text = catalog.source(source)
    return machine_code.digest([cached_cubin(text, source, name, arch)[0] for name in names]) if names else ""


def _codes_of(commit: str, stale: dict[str, Finding], arch: str, jobs: int) -> dict[str, str]:
    """The digests of kernels as the sources of a commit have them, of those that ran with these sources."""
    with tempfile.TemporaryDirectory() as folder:
        site = _site(commit, Path(folder))
        asked = {"symbols": [*stale], "arch": arch, "jobs": jobs, "machine_code": machine_code.__file__}
        answer = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("tree_code.py"))],
            input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True, cwd=folder,
            env=os.environ | {"PYTHONPATH": str(site)},
        )  # fmt: skip
    found = json.loads(answer.stdout)
    sources = {symbol: registry.entry_of(registry.sku_of_symbol(symbol)).operation.source for symbol in found["codes"]}
    return {
        symbol: code
        for symbol, code in found["codes"].items()
        if found["sources"].get(sources[symbol]) == stale[symbol].run.digest
    }


def _site(commit: str, folder: Path) -> Path:
    """A folder from which Python imports the packages of a commit, laid out as a wheel has them.

    Raises:
        InvalidProblem: no such commit.
    """
    tree, package = folder / "tree", folder / "site" / "skuda"
    tree.mkdir()
    package.parent.mkdir()
    archive = subprocess.run(["git", "archive", commit], capture_output=True)
    if archive.returncode:
        raise InvalidProblem(f"--from {commit}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    (tree / "runtime").rename(package)
    for name in ("codegen", "templates", "generated"):
        (tree / name).rename(package / name)
    return package.parent
