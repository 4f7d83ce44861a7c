"""The functions of the formula language as the CPU's C++ compiler makes them of their CUDA spellings and headers."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from host import emulator
from skuda.codegen.intrinsics import COMMON_HEADER, HALF_HEADERS, INTRINSICS

_WORDS = {"f32": np.float32, "f64": np.float64}
_HALVES = ("f16", "bf16")


def compiled(text: str, folder: Path) -> ctypes.CDLL:
    """The library that the CPU's compiler makes of a text that includes device headers.

    Args:
        text: C++ whose functions are `extern "C"`; pointers and integers alone as arguments.
        folder: where the library is kept.

    Raises:
        RuntimeError: the compiler refused the source; the message holds what it said.
    """
    path = folder / "functions.cpp"
    path.write_text('#include "device.h"\n' + emulator._hosted(emulator._inlined(text, set())), encoding="utf-8")
    built = path.with_suffix(".so")
    command = [emulator.COMPILER, *emulator._FLAGS, f"-I{emulator.HERE}", str(path), "-shared", "-o", str(built)]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"the host's compiler refused the functions:\n{said.stderr[:4000]}")
    return ctypes.CDLL(str(built))


class Functions:
    """Intrinsics from reals to a real, compiled for f32 and f64; where they have such forms, in f32 also as precise as
    f16 and bf16.

    Args:
        names: of rows of the intrinsics' table.
        folder: where the compiled library is kept.

    Raises:
        RuntimeError: the compiler refused the source; the message holds what it said.
    """

    def __init__(self, names: Iterable[str], folder: Path):
        rows = [INTRINSICS[name] for name in names]
        headers = {COMMON_HEADER, *HALF_HEADERS.values()} | {row.header for row in rows} - {""}
        text = "".join(f'#include "{header}"\n' for header in sorted(headers))
        for row in rows:
            for word in (*_WORDS, *(_HALVES if row.halved else ())):
                C = "f32" if word in _HALVES else word
                arguments = [f"arguments[{position}][i]" for position in range(len(row.arguments))]
                spelling = row.spelled("cuda", word if word in _HALVES else "")
                text += (
                    f'extern "C" void {row.name}_{word}({C}* value, const {C}* const* arguments, long count) {{\n'
                    f"  for (long i = 0; i < count; ++i) value[i] = {spelling.format(*arguments)};\n}}\n"
                )
        self._library = compiled(text, folder)

    def __call__(self, name: str, *arguments: np.ndarray, precise_as: str = "") -> np.ndarray:
        """A function of arrays of one shape, in their type; as precise as f16 or bf16, if one is named."""
        arrays = [np.ascontiguousarray(argument) for argument in arguments]
        word = next(word for word, dtype in _WORDS.items() if arrays[0].dtype == dtype)
        value = np.empty_like(arrays[0])
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        function = getattr(self._library, f"{name}_{precise_as or word}")
        function(ctypes.c_void_p(value.ctypes.data), pointers, ctypes.c_long(value.size))
        return value
