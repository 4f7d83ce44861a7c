"""Small calls of every operation, schedule and element type, for compute-sanitizer.

    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck ... (and initcheck, synccheck)

Each array gets an allocation of exactly its size: CuPy's memory pool would round it up and hide what lies
behind. With --all, every kernel of the catalog.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cupy
from problems import calls, covering

from gpu.arrays import Pair
from skuda import dispatch, mapping
from skuda.sku import BackendKind


def main() -> None:
    cupy.cuda.set_allocator(None)
    mapping._BUSY = 64  # threads take as much of these small arrays as they do of large ones
    skus = [sku for sku in dispatch.skus() if sku.backend is BackendKind.CUDA and calls(sku)]
    chosen = skus if "--all" in sys.argv[1:] else covering(skus)
    launches = 0
    for sku in chosen:
        for index, call in enumerate(calls(sku)):
            pair = Pair(call, f"{sku.symbol}{index}")
            pair.run(BackendKind.CUDA)
            pair.run(BackendKind.REFERENCE)
            pair.assert_same(sku.symbol)
            launches += 1
    print(f"{launches} launches of {len(chosen)} kernels gave the bytes of the reference")


if __name__ == "__main__":
    main()
