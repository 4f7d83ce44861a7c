"""Small calls of every operation, schedule and element type, for compute-sanitizer.

    compute-sanitizer --launch-timeout 0 --tool memcheck --error-exitcode 1 python tests/gpu/sanitize.py
    compute-sanitizer --launch-timeout 0 --tool racecheck ... (and initcheck, synccheck)

Without that timeout of 0 the tool gives up on a machine that is busy: the first launch comes after all imports.

Each array gets an allocation of exactly its size: CuPy's memory pool would round it up and hide what lies
behind. With --all, every kernel of the catalog; with the symbols of kernels, or patterns of them (`softmax_*`), these;
with --list, names what would be launched.
"""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import cupy
from problems import calls, covering
from values import cases

from gpu.arrays import Pair
from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku
from skuda.schedules import strided


def chosen(arguments: list[str]) -> list[KernelSku]:
    """The kernels that the command line asks for."""
    patterns = [argument for argument in arguments if not argument.startswith("--")]
    skus = [sku for sku in registry.skus() if sku.backend is BackendKind.CUDA]
    if not patterns and "--all" not in arguments:
        return covering(skus, wanted=lambda sku: bool(calls(sku)))
    if patterns:
        symbols, wild = {*patterns}, [each for each in patterns if {*each} & {*"*?["}]
        skus = [s for s in skus if s.symbol in symbols or any(fnmatchcase(s.symbol, each) for each in wild)]
    return [sku for sku in skus if calls(sku)]


def main() -> None:
    skus = chosen(sys.argv[1:])
    if "--list" in sys.argv[1:]:
        print(*(sku.symbol for sku in skus), sep="\n")
        return
    cupy.cuda.set_allocator(None)
    strided.BUSY = 64  # threads take as much of these small arrays as they do of large ones
    launches = 0
    for sku in skus:
        for case in cases(sku):
            pair = Pair(case)
            pair.run()
            pair.assert_same(sku.symbol)
            launches += 1
    print(f"{launches} launches of {len(skus)} kernels gave the bytes of the reference")


if __name__ == "__main__":
    main()
