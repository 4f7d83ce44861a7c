"""`skuda build`: compiles kernels ahead of time into the cache, where a first call finds them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from skuda.codegen.commands import gpus, loaded, options
from skuda.codegen.diagnostics import closest
from skuda.errors import InvalidProblem, Unsupported
from skuda.launch import registry
from skuda.launch.cubin_cache import cache_dir, cached_cubin
from skuda.model.operation import Operation
from skuda.schedules import table


@dataclass(frozen=True)
class Job:
    """One kernel for one architecture."""

    catalog: registry.Catalog
    source: str
    entry: str
    arch: str


def add_parser(subparsers) -> None:
    """Adds `build`."""
    parser = subparsers.add_parser(
        "build",
        help="compile kernels ahead of time into the cache",
        description="Compile every CUDA kernel of some operations, or of all, into the cache (`skuda cache path`), "
        "so that no first call compiles. What is there already is not compiled again. Needs NVRTC, but no GPU.",
    )
    parser.add_argument(
        "operations", metavar="OP", nargs="*",
        help="an operation, both directions, or one function such as NAME_backward; all if none is given",
    )  # fmt: skip
    parser.add_argument(
        "--arch", metavar="ARCH", action="append", default=[],
        help="an architecture such as sm_90; may be given more than once (default: this machine's GPUs')",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=positive, metavar="N", default=processors(),
        help="how many to compile at once (default: the number of processors, %(default)s)",
    )  # fmt: skip
    loaded.add_argument(parser)
    parser.set_defaults(handler=run)


def run(args: argparse.Namespace) -> int:
    """Runs `skuda build`.

    Raises:
        InvalidProblem: no operation has such a name; or no architecture is given, and there is no GPU here.
        Unsupported: NVRTC does not know an architecture, or the cache's folder cannot be used.
        CompileError: NVRTC refused a kernel; those before it are in the cache.
        MissingDependency: NVRTC is not installed.
    """
    begun = time.perf_counter()
    jobs = jobs_of(loaded.catalogs(args), args.operations, args.arch or _archs_here())
    before = _entries()
    compile_all(jobs, args.jobs)
    made = len(_entries() - before)
    if not _entries():  # the cache has said why
        raise Unsupported(f"skuda build: nothing could be kept in {cache_dir()}")
    archs = " ".join(dict.fromkeys(job.arch for job in jobs))
    print(
        f"{options.count(len(jobs), 'kernel')} for {archs} in {cache_dir()}: {made} compiled, "
        f"{len(jobs) - made} were there ({time.perf_counter() - begun:.1f} s)"
    )
    return 0


def jobs_of(
    catalogs: Sequence[registry.Catalog], operations: Sequence[str], archs: Sequence[str]
) -> list[Job]:
    """The kernels to compile, those of one source beside each other; of an architecture those that it can have.

    Raises:
        InvalidProblem: no operation has such a name; names the nearest.
    """
    every = [(catalog, operation) for catalog in catalogs for operation in catalog.operations]
    names = dict.fromkeys(name for _, each in every for name in (each.name, each.function))
    for name in operations:
        if name not in names:
            near = closest(name, names)
            help = f"; did you mean {near}?" if near else "; `skuda list` shows what there is"
            raise InvalidProblem(f"no operation {name!r} in the catalogs that are loaded{help}")
    wanted = set(operations)
    for _, operation in every:  # a form may be another row
        if _called(operation) & set(operations):
            end = operation.function.removeprefix(operation.name)
            wanted |= {module + end for _, module in operation.forms}
    jobs = dict.fromkeys(
        Job(catalog, operation.source, entry, arch)
        for arch in dict.fromkeys(archs)
        for catalog, operation in every
        if not operations or _called(operation) & wanted
        for types in operation.kernel_combinations()
        for variant in table.variants(operation, types)
        if table.runs_on(variant, arch)
        for entry in table.entries(operation, types, variant)
    )
    return [*jobs]


def _called(operation: Operation) -> set[str]:
    """The names that choose an operation: its own, and those of what it is a stage or a form of."""
    form = operation.source.removesuffix(".cu")
    backward = operation.function.removeprefix(operation.name)
    return {name + end for name in (operation.name, form, operation.row) for end in ("", backward)}


def compile_all(jobs: Sequence[Job], workers: int) -> None:
    """Brings every kernel into the cache, and says on standard error how far it is.

    NVRTC compiles without Python's lock, so threads keep all processors busy.

    Raises:
        CompileError, Unsupported, MissingDependency: as `compile.compile_cubin`, for the first kernel that fails.
    """
    executor = ThreadPoolExecutor(workers)
    with _progress(jobs) as advance:
        try:
            waiting = {executor.submit(_compile, job): job for job in jobs}
            for done in as_completed(waiting):
                done.result()
                advance(waiting[done])
        finally:
            # After Ctrl-C or an error, wait only for what is being compiled.
            executor.shutdown(cancel_futures=True)


def _compile(job: Job) -> None:
    cached_cubin(_text(job.catalog, job.source), job.source, job.entry, job.arch)


@cache
def _text(catalog: registry.Catalog, source: str) -> str:
    return catalog.source(source)


def _entries() -> set[str]:
    folder = cache_dir()
    return {path.name for path in folder.glob("*.cubin")} if folder.is_dir() else set()


def _archs_here() -> list[str]:
    machine = gpus.find()
    if not machine.devices:
        raise InvalidProblem(
            f"skuda build: no GPU here ({machine.problem}); name an architecture, such as --arch sm_90"
        )
    return [arch for _, arch in machine.devices]


def processors() -> int:
    """How many this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def positive(text: str) -> int:
    """A number of an argument, from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text!r}")
    return int(text)


@contextmanager
def _progress(jobs: Sequence[Job]) -> Iterator[Callable[[Job], None]]:
    """A bar on a terminal where rich is installed; elsewhere a line for each source that is done.

    Yields:
        What to call after each kernel.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        bar = False
    else:
        bar = sys.stderr.isatty()
    if bar:
        columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=len(jobs))
            yield lambda job: bars.update(task, advance=1, description=f"{job.arch} {job.entry}"[:60])
        return
    left: dict[tuple[str, str], int] = {}
    for job in jobs:
        left[job.source, job.arch] = left.get((job.source, job.arch), 0) + 1
    total = dict(left)

    def advance(job: Job) -> None:
        key = job.source, job.arch
        left[key] -= 1
        if not left[key]:
            print(f"{job.source} {job.arch}: {options.count(total[key], 'kernel')}", file=sys.stderr)

    yield advance
