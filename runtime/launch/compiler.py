"""From CUDA source to machine code, through NVRTC. Needs neither a GPU nor an installed CUDA toolkit.

A source may include nothing but the headers of `runtime/cuda/` and `tuning.cuh`, which is written from the record of
the architecture. NVRTC gets those in memory, so what a
source means depends on no search path. NVRTC itself is loaded at the first compilation, not with this
module.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from skuda.errors import CompileError, MissingDependency, Unsupported
from skuda.model.records import Record
from skuda.schedules import tuning
from skuda.schedules.table import SCHEDULES

# The bits that plans promise depend on these: no contraction to FMA, subnormals kept, IEEE division and root.
OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    # Otherwise a header missing here would be looked for in the folder that the process happens to run in.
    "--no-source-include",
    # Older versions take the body of a lambda in a device function for a host's.
    "--device-as-default-execution-space",
)

# Leaves out textures and the CUDA runtime's functions, which no kernel uses, and changes no machine code: NVRTC reads
# less. It knows the option from this version on.
MINIMAL, MINIMAL_SINCE = "--minimal", (12, 4)

SLOW_SECONDS = 1.0
_FOLDER = Path(__file__).parents[1]


class Compiled(Record):
    """What NVRTC made of one source.

    Attributes:
        cubin: machine code for one architecture, as `cuModuleLoadData` takes it.
        lowered: the mangled name of each entry, by its name expression.
        log: the compiler's warnings; empty when there were none.
    """

    cubin: bytes
    lowered: dict[str, str]
    log: str


@cache
def headers() -> dict[str, str]:
    """The text of every header, by the name that a source includes it under: those of `runtime/cuda/`, and the sizes
    of the architecture that the process has chosen."""
    names = [file.name for file in (_FOLDER / "cuda").iterdir() if file.name.endswith(".cuh")]
    return {name: _header(name, tuning.chosen()) for name in sorted([*names, tuning.HEADER])}


def _header(name: str, arch: str) -> str | None:
    """The text of a header, for an architecture; None where there is none of that name."""
    return tuning.header(arch) if name == tuning.HEADER else _file(name)


@cache
def _file(name: str) -> str | None:
    """The text of a header of `runtime/cuda/`. A first call reads no others than those of its kernel."""
    try:
        return (_FOLDER / "cuda" / name).read_text(encoding="utf-8")
    except OSError:
        return None


def included(source: str, arch: str | None = None) -> dict[str, str]:
    """The headers that a source includes, itself or through others, as they are for an architecture (else for the
    one that the process has chosen): what it means depends on no other."""
    found: dict[str, str] = {}
    waiting = [source]
    while waiting:
        for name in _named(waiting.pop()):
            if name not in found and (text := _header(name, arch or tuning.chosen())) is not None:
                found[name] = text
                waiting.append(text)
    return dict(sorted(found.items()))


def needed(source: str, entries: Sequence[str], arch: str | None = None) -> dict[str, str]:
    """The headers that a source includes, as NVRTC gets them for some of its kernels. Of other schedules' headers there
    are the includes alone: NVRTC would read the kernels, for up to a tenth of its time, and make nothing of them."""
    whole = included(source, arch)
    kernels = {entry.partition("<")[0] for entry in entries}
    if not kernels <= SCHEDULES.keys():
        return whole
    own = included("".join([f'#include "{SCHEDULES[kernel].header}"\n' for kernel in kernels]), arch)
    for name in {row.header for row in SCHEDULES.values()} & whole.keys() - own.keys():
        whole[name] = "".join(["#pragma once\n", *[f'#include "{each}"\n' for each in _named(whole[name])]])
    return whole


def _named(text: str) -> Iterator[str]:
    """The names in the lines `#include "name"`."""
    _, *rest = f"\n{text}".split('\n#include "')
    return (line.partition('"')[0] for line in rest)


def compile_cubin(source: str, name: str, entries: Sequence[str], arch: str) -> Compiled:
    """Compile one CUDA source for one architecture.

    Args:
        source: the text of a .cu file.
        name: what to call it in messages, for example `quantize_per_token.cu`.
        entries: NVRTC name expressions of the kernels to keep, `quantize_per_token_vec<f16, s8, f32>`;
            templates are instantiated for these alone.
        arch: a real architecture such as `sm_90`.

    Raises:
        CompileError: NVRTC refused the source; the message holds its log.
        Unsupported: the installed NVRTC knows no such architecture.
        MissingDependency: cuda.bindings or the NVRTC library is not installed.
    """
    start = time.perf_counter()
    nvrtc = _nvrtc()
    _require_arch(nvrtc, name, arch)
    named = needed(source, entries, arch)
    program = _checked(
        nvrtc,
        name,
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            name.encode(),
            len(named),
            [text.encode() for text in named.values()],
            [header.encode() for header in named],
        ),
    )
    try:
        for entry in entries:
            _checked(nvrtc, name, nvrtc.nvrtcAddNameExpression(program, entry.encode()))
        _, *version = nvrtc.nvrtcVersion()
        quicker = [MINIMAL] if tuple(version) >= MINIMAL_SINCE else []
        options = [option.encode() for option in (*OPTIONS, *quicker, f"--gpu-architecture={arch}")]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        said = _text(_buffer(nvrtc, name, program, "ProgramLog"))
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{name}: NVRTC refused the source for {arch} ({status.name}):\n{said}")
        lowered = {
            entry: _checked(nvrtc, name, nvrtc.nvrtcGetLoweredName(program, entry.encode())).decode()
            for entry in entries
        }
        cubin = _buffer(nvrtc, name, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    elapsed = time.perf_counter() - start
    if elapsed > SLOW_SECONDS:
        import logging

        what = entries[0] if len(entries) == 1 else f"{len(entries)} kernels"
        log = logging.getLogger("skuda")
        log.warning("compiling %s (%s) for %s took %.1f s", name, what, arch, elapsed)
    return Compiled(cubin, lowered, said)


@cache
def _nvrtc():
    """The NVRTC binding, once it is known that the library behind it loads (a failure is not remembered)."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise MissingDependency(
            "compiling a kernel needs cuda.bindings and the NVRTC library: pip install 'skuda[cuda13]' "
            f"({type(error).__name__}: {error})"
        ) from error
    return nvrtc


def _checked(nvrtc, name: str, answer: tuple):
    """The value of an NVRTC call that returned (status, value) or (status,)."""
    status, *value = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"{name}: NVRTC failed with {status.name}")
    return value[0] if value else None


def _buffer(nvrtc, name: str, program, what: str) -> bytes:
    """`ProgramLog` or `CUBIN` of a program."""
    filled = bytearray(_checked(nvrtc, name, getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    _checked(nvrtc, name, getattr(nvrtc, f"nvrtcGet{what}")(program, filled))
    return bytes(filled)


def _text(log: bytes) -> str:
    return log.rstrip(b"\0").decode(errors="replace").strip()


def _require_arch(nvrtc, name: str, arch: str) -> None:
    """Refuse what NVRTC does not know, and virtual architectures, for which it makes no machine code."""
    known = _checked(nvrtc, name, nvrtc.nvrtcGetSupportedArchs())
    number = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if number is None or int(number[1]) not in known:
        listed = " ".join(f"sm_{each}" for each in known)
        raise Unsupported(f"{name}: the installed NVRTC does not compile for {arch}; it knows {listed}")
