"""Memory is bounded by what is in work, not by a file or a tensor."""

from __future__ import annotations

import subprocess
import sys

from sharded import of_zeros

MEASURED = """
import resource, sys
from skuda.checkpoints import quantize
quantize(sys.argv[1], sys.argv[2], "per_group:u4", device="cpu")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
MIB = 1 << 20


def peak(source, out):
    """Bytes of memory that a process needs at most, the interpreter and NumPy included."""
    done = subprocess.run([sys.executable, "-c", MEASURED, source, out], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_many_tensors_and_a_large_one_take_no_more_memory_than_a_small_one(tmp_path):
    of_zeros(tmp_path / "one.safetensors", 1, (4096, 1024))  # 8 MiB, as many elements as are taken at once
    of_zeros(tmp_path / "many.safetensors", 20, (4096, 1024))  # 160 MiB
    of_zeros(tmp_path / "large.safetensors", 1, (81920, 1024))  # 160 MiB
    least = peak(tmp_path / "one.safetensors", tmp_path / "q1")
    for name in ("many", "large"):
        more = peak(tmp_path / f"{name}.safetensors", tmp_path / name) - least
        assert more < 24 * MIB, f"{name}: {more / MIB:.0f} MiB more"
