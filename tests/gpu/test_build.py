"""After `skuda build`, a first call compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys

CALL = """
import cupy, sys
import skuda
x = cupy.arange(1000, dtype="f4")
skuda.lerp(x, x, 0.5)
skuda.lerp(x[1:], x[1:], 0.5)
skuda.lerp(x[::3], x[::3], 0.5)
print("cuda.bindings.nvrtc" in sys.modules)
"""


def run_python(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_first_call_finds_what_was_built(tmp_path):
    cold, built = ({"SKUDA_CACHE_DIR": str(tmp_path / name)} for name in ("cold", "built"))
    assert run_python("-c", CALL, **cold).strip() == "True"
    run_python("-m", "skuda.codegen.cli", "build", "lerp", **built)
    before = set((tmp_path / "built").iterdir())
    assert run_python("-c", CALL, **built).strip() == "False"
    assert set((tmp_path / "built").iterdir()) == before
