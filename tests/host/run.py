"""Runs kernels on the CPU and compares them with the reference: all whose symbol has one of some patterns in it.

    python tests/host/run.py PATTERN...
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from problems import calls

from host import emulator
from skuda.launch import registry
from skuda.model.sku import BackendKind


def main(patterns: list[str]) -> int:
    """Prints what is wrong; the exit status is 1 if anything is."""
    chosen = [
        sku
        for sku in registry.skus()
        if sku.backend is BackendKind.CUDA and any(re.search(pattern, sku.symbol) for pattern in patterns or [""])
    ]
    if not chosen:
        sys.exit(f"error: no kernel's symbol fits {' '.join(patterns)}")
    if not emulator.COMPILER:
        sys.exit("error: tests/host needs g++ or c++ on Linux, and finds none here")
    faults = 0
    for source, skus in emulator.by_source(chosen).items():
        with tempfile.TemporaryDirectory() as folder:
            host = emulator.Host(skus, Path(folder))
            found = [fault for sku in skus for fault in host.faults(sku)]
        unreached = [f"{sku.symbol}: no call of tests/problems.py reaches it" for sku in skus if not calls(sku)]
        found += unreached
        faults += len(found)
        print(f"{source}: {len(skus)} kernels, {len(found)} differences", *found[:20], sep="\n  ", flush=True)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
