"""What limits a kernel, by counters of Nsight Compute: the memory, issue slots, or neither, which is waiting.

`ncu` runs a process of this module's, in which each case runs once behind a marker's kernel; its counters are those of
all kernels between two markers.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from skuda.bench.suite import Case
from skuda.errors import Unsupported

MARKER = "skuda_bench_marker"
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
ISSUED, CYCLES = "smsp__inst_issued.sum", "smsp__cycles_elapsed.sum"
MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
METRICS = (TIME, READ, WRITTEN, ISSUED, CYCLES, MEMORY)

# What is busy for so much of a kernel's time limits it. A device copy keeps the memory busy for about 0.9 of it.
BUSY_MEMORY, BUSY_SLOTS = 0.75, 0.6


def counted(arguments: Sequence[str], cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row for each case: `kernels`, `us`, `moved` (bytes between the L2 cache and memory), the shares of the time in
    which `memory` and issue `slots` are busy, and `limit`.

    Args:
        arguments: of `skuda bench`, which choose the cases.
        cases: what they choose.

    Raises:
        Unsupported: `ncu` is not on the path, or it failed; what it said is in the message.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise Unsupported("skuda bench --counters: no ncu (Nsight Compute, of CUDA's toolkit) on the path")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "counters.csv")
        command = [
            ncu, "--csv", "--print-units", "base", "--log-file", str(log), "--profile-from-start", "off",
            "--clock-control", "none", "--metrics", ",".join(METRICS),
            sys.executable, "-m", "skuda.codegen.cli", "bench", *arguments, "--counted",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
        text = log.read_text(encoding="utf-8") if log.exists() else ""
    kernels = list(by_case(text))
    if done.returncode or len(kernels) != len(cases):
        said = "\n".join(filter(None, (text[-1500:], done.stderr[-1500:])))
        raise Unsupported(f"skuda bench --counters: ncu counted {len(kernels)} of {len(cases)} rows:\n{said}")
    return [row_of(case, each) for case, each in zip(cases, kernels, strict=True)]


def run(cases: Sequence[Case]) -> None:
    """What ncu watches: each case once, behind a marker, after a run that compiles and loads."""
    import cupy

    from skuda.bench.problem import Problem

    marker = cupy.ElementwiseKernel("", "int32 x", "x = 0", MARKER)
    marked = cupy.empty(1, cupy.int32)
    marker(marked)
    for case in cases:
        problem = Problem(case)
        problem.run()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.start()
        marker(marked)
        problem.run()
        cupy.cuda.Device().synchronize()
        cupy.cuda.profiler.stop()
        del problem
        cupy.get_default_memory_pool().free_all_blocks()


def by_case(text: str) -> Iterator[list[dict[str, float]]]:
    """The metrics of the kernels behind each marker, from ncu's table, in which each metric of a kernel has a line."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    of_kernel: dict[str, tuple[str, dict[str, float]]] = {}
    for line in csv.DictReader(io.StringIO("\n".join(lines))):
        _, found = of_kernel.setdefault(line["ID"], (line["Kernel Name"], {}))
        found[line["Metric Name"]] = float(line["Metric Value"].replace(",", ""))
    case: list[dict[str, float]] | None = None
    for name, found in of_kernel.values():
        if MARKER in name:
            if case is not None:
                yield case
            case = []
        elif case is not None:
            case.append(found)
    if case is not None:
        yield case


def row_of(case: Case, kernels: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """What is said of a case whose kernels have such counters."""
    time = sum(each[TIME] for each in kernels)
    slots = sum(each[ISSUED] for each in kernels) / sum(each[CYCLES] for each in kernels)
    memory = sum(each[MEMORY] * each[TIME] for each in kernels) / time / 100
    return {
        "operation": case.operation.function,
        "dtype": case.dtype,
        "shape": str(case.shape),
        "variant": case.variant,
        "class": str(case.size_class),
        "kernels": len(kernels),
        "bytes": case.bytes,
        "us": round(time / 1e3, 1),
        "moved": round(sum(each[READ] + each[WRITTEN] for each in kernels)),
        "memory": round(memory, 2),
        "slots": round(slots, 2),
        "limit": limit(memory, slots),
    }


def limit(memory: float, slots: float) -> str:
    """In a word, by what is busy."""
    if memory < BUSY_MEMORY and slots < BUSY_SLOTS:
        return "waiting"
    return "memory" if memory / BUSY_MEMORY >= slots / BUSY_SLOTS else "issue slots"


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """In Markdown: MB that a kernel must move and those that it moves, and what is busy."""
    yield "| row | kernels | us | MB | moved | memory busy | issue slots busy | limit |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        name = " ".join(filter(None, (f"`{row['operation']}`", row["dtype"], row["shape"], row["variant"])))
        yield (
            f"| {name} | {row['kernels']} | {row['us']} | {row['bytes'] / 1e6:.1f} | {row['moved'] / 1e6:.1f} "
            f"| {row['memory']:.2f} | {row['slots']:.2f} | {row['limit']} |"
        )
