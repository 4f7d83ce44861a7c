"""Generated kernels on the CPU: their CUDA, compiled by the host's C++ compiler, its threads as fibers.

Every byte of the outputs' memory is compared with the reference's, and the operands lie between pages that must not be
touched. It shows neither races nor what the GPU's own compiler makes of a kernel: tests/gpu does that.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
from problems import Call, calls, fill, is_second

from skuda import compile as compiler
from skuda import dispatch, schedules
from skuda.dtypes import DTYPES
from skuda.sku import BackendKind, KernelSku
from skuda.tensor import view_of

HERE = Path(__file__).parent
COMPILER = (shutil.which("g++") or shutil.which("c++")) if sys.platform == "linux" else None
_Shape = ctypes.c_int * 4  # blocks, threads of one, blocks of a cluster, bytes of shared memory
UNTOUCHED = 0xA5  # what output memory holds before
_FLAGS = "-std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -fpermissive -shared -fPIC -U_FORTIFY_SOURCE".split()
_PAGE = mmap.PAGESIZE
_BOUNDARY = 256  # bytes: every operand's memory starts on a multiple, as tests/problems.py has it
# asm("name %0, %1, ...;" : "=f"(result) : "f"(argument), ...);
_ASKED = re.compile(r'asm\("([a-z][\w.:]*) %0[^"]*"\s*:\s*"=\w"\((.*?)\)\s*:\s*(.*?)\);', re.DOTALL)
# asm volatile("name [%0], %1, ...;" :: "r"(argument), ... : "memory"); or a loop that ends when it says so.
_TOLD = re.compile(
    r'asm volatile\("(?:\{ \.reg \.pred \w+; \w+: )?([a-z][\w.:]*)[^"]*"(?:\s*"[^"]*")?\s*::(.*?):\s*"memory"\);',
    re.DOTALL,
)
_SHARED = re.compile(r"__shared__\s+(?:alignas\(16\)\s+)?([^;()]*?)\s+(\w+)((?:\[[^;]*?\])*);", re.DOTALL)


def emulated(sku: KernelSku) -> bool:
    """Whether a kernel can run here: one of tiles copies in a way that has no counterpart. Stages run by their own."""
    found = dispatch.entry_of(sku)
    return found.variant not in (schedules.TILE, schedules.STAGES) or is_second(found)


class Host:
    """The kernels of one source that some SKUs need, compiled.

    Args:
        source: name of the .cu file.
        skus: of this source.
        folder: where the compiled library is kept.

    Raises:
        RuntimeError: the compiler refused the source; the message holds what it said.
    """

    def __init__(self, source: str, skus: Sequence[KernelSku], folder: Path):
        entries = list(dict.fromkeys(name for sku in skus for name in entries_of(sku)))
        text = _inlined(dispatch.catalogs()[0].source(source), set())
        arguments = dict(re.findall(r"(\w+)\(const __grid_constant__ (\w+)<", text))
        text = '#include "device.h"\n' + _hosted(text)
        for number, entry in enumerate(entries):
            name, types = entry[:-1].split("<")
            letters = ", ".join(word for word in types.split(", ") if word in DTYPES)
            text += (
                f'\nextern "C" bool kernel_{number}(const void* arguments, const int* shape) {{\n'
                f"  const auto& args = *static_cast<const {arguments[name]}<{letters}>*>(arguments);\n"
                f"  return run_blocks(shape[0], shape[1], shape[2], shape[3], [&] {{ {entry}(args); }});\n}}\n"
            )
        library = _library(text, folder / f"{source}.cpp")
        self._kernels = {entry: getattr(library, f"kernel_{number}") for number, entry in enumerate(entries)}
        for kernel in self._kernels.values():
            kernel.argtypes = [ctypes.c_void_p, _Shape]
            kernel.restype = ctypes.c_bool

    def faults(self, sku: KernelSku) -> Iterator[str]:
        """What is wrong with the runs of a kernel, on the calls that tests/problems.py knows for it."""
        for index, call in enumerate(calls(sku)):
            for fault in self._faults(sku, call, f"{sku.symbol}{index}"):
                yield f"{sku.symbol} {dict(call.sizes)} {call.places[0][1]}: {fault}"

    def _faults(self, sku: KernelSku, call: Call, seed: str) -> Iterator[str]:
        plan = call.plan(BackendKind.REFERENCE)
        inputs, here, there = _operands(call, plan, seed)
        plan.run(plan.args_type(**inputs, **{name: view for name, (view, _) in here.items()}))
        operands = {**inputs, **{name: view for name, (view, _) in there.items()}}
        views = [view_of(operands[operand.name], operand.name) for operand in plan.operation.operands]
        whole = plan.launch_for(views)
        assert whole.geometry.variant is dispatch.entry_of(sku).variant
        scratch = np.full(whole.workspace + _BOUNDARY, UNTOUCHED, np.uint8)
        for launch, filled in whole.packed(views, -(-scratch.ctypes.data // _BOUNDARY) * _BOUNDARY):
            memory, _ = launch.slots.pack(filled)
            cluster = getattr(launch.geometry.variant, "blocks", 1)
            steps = [(launch.grid, launch.block, cluster, launch.shared)]
            steps += [(*finish, 1, 0) for finish in [launch.geometry.finish] if finish]
            for entry, step in zip(launch.entries, steps, strict=True):
                if not self._kernels[entry](ctypes.addressof(memory), _Shape(*step)):
                    yield f"{entry}: a thread waits for others that never come"
                    return
        for name, (_, expected) in here.items():
            actual = there[name][1]
            wrong = np.flatnonzero(actual != expected)
            if len(wrong):
                first = wrong[:5]
                yield (
                    f"{len(wrong)} of {len(actual)} bytes of {name} differ, first at {first.tolist()}: "
                    f"{actual[first].tolist()}, expected {expected[first].tolist()}"
                )


class Functions:
    """Functions of one real argument from the device headers, compiled for both compute types.

    Args:
        spellings: name -> how CUDA calls it, with {0} for the argument.
        included: the headers that have them.
        folder: where the compiled library is kept.
    """

    def __init__(self, spellings: dict[str, str], included: Iterable[str], folder: Path):
        text = "".join(f'#include "{name}"\n' for name in included)
        text = '#include "device.h"\n' + _hosted(_inlined(text, set()))
        for name, spelling in spellings.items():
            for kind in ("f32", "f64"):
                text += (
                    f'\nextern "C" void {name}_{kind}(const {kind}* from, {kind}* to, long count) {{\n'
                    f"  for (long i = 0; i < count; ++i) to[i] = {spelling.format('from[i]')};\n}}\n"
                )
        self._library = _library(text, folder / "functions.cpp")

    def __call__(self, name: str, x: np.ndarray) -> np.ndarray:
        """The values of one function at float32 or float64 arguments."""
        kind = "f32" if x.dtype == np.float32 else "f64"
        x, result = np.ascontiguousarray(x), np.empty_like(x)
        places = (ctypes.c_void_p(each.ctypes.data) for each in (x, result))
        getattr(self._library, f"{name}_{kind}")(*places, ctypes.c_long(x.size))
        return result


def entries_of(sku: KernelSku) -> tuple[str, ...]:
    """The kernels that a SKU launches, as NVRTC names them."""
    found = dispatch.entry_of(sku)
    if not is_second(found):
        return schedules.entries(found.operation, found.types, found.variant)
    entries = []
    for call in calls(sku):
        plan = call.plan(BackendKind.REFERENCE)
        views = call.views(plan)
        entries += [entry for launch, _ in plan.launch_for(views).packed(views, 0) for entry in launch.entries]
    return tuple(dict.fromkeys(entries))


def by_source(skus: Iterable[KernelSku]) -> dict[str, list[KernelSku]]:
    """SKUs that can run here, by their source."""
    found: dict[str, list[KernelSku]] = {}
    for sku in filter(emulated, skus):
        found.setdefault(dispatch.entry_of(sku).operation.source, []).append(sku)
    return found


def _library(text: str, path: Path) -> ctypes.CDLL:
    """A source of the host, compiled beside it."""
    path.write_text(text, encoding="utf-8")
    built = path.with_suffix(".so")
    command = [COMPILER, *_FLAGS, f"-I{HERE}", str(path), str(HERE / "threads.cc"), "-o", str(built)]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"{path.stem}: the host's compiler refused it:\n{said.stderr[:4000]}")
    return ctypes.CDLL(str(built))


def _operands(call: Call, plan, seed: str):
    """Inputs; and outputs twice, for the reference and for the kernel: each a view and all of its memory's bytes."""
    rng = np.random.default_rng(crc32(seed.encode()))
    places, inputs, here, there = dict(call.places), {}, {}, {}
    for operand, word in zip(plan.operation.operands, plan.words, strict=True):
        at, storage = places.get(operand.name), DTYPES[word].storage
        size = 1 if at is None else max(at.size, 1)
        if operand in plan.operation.outputs:
            contents = np.full(size * storage.itemsize, UNTOUCHED, np.uint8)
            for side in (here, there):
                memory = _guarded(contents)
                side[operand.name] = _view(memory, storage, at), memory
        else:
            memory = _guarded(fill(operand, word, size, rng).view(np.uint8).reshape(-1))
            inputs[operand.name] = _view(memory, storage, at)
    return inputs, here, there


def _view(memory: np.ndarray, storage: np.dtype, at) -> np.ndarray:
    if at is None:
        return memory.view(storage).reshape(())
    strides = tuple(step * storage.itemsize for step in at.strides)
    return np.ndarray(at.shape, storage, memory.data, at.start * storage.itemsize, strides)


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _guarded(contents: np.ndarray) -> np.ndarray:
    """The same bytes on a boundary, as near to the end of a page as it allows; the pages around must not be touched."""
    inside = -(-len(contents) // _PAGE) * _PAGE
    memory = mmap.mmap(-1, inside + 2 * _PAGE)
    whole = np.frombuffer(memory, np.uint8)  # keeps the mapping
    for page in (0, inside + _PAGE):
        _libc.mprotect(whole.ctypes.data + page, _PAGE, 0)
    start = _PAGE + (inside - len(contents)) // _BOUNDARY * _BOUNDARY
    part = whole[start : start + len(contents)]
    part[:] = contents
    return part


def _inlined(text: str, seen: set[str]) -> str:
    """A source with the headers that it includes, each once."""

    def header(match: re.Match) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return _inlined(compiler.headers()[match[1]], seen)

    return re.sub(r'#include "(\w+\.cuh)"', header, text.replace("#pragma once", ""))


def _hosted(text: str) -> str:
    """A source in which PTX is calls, and shared memory is a block's own. Rows that the L2 cache is asked for are near
    enough to be there in small arrays."""

    def name_of(instruction: str) -> str:
        return re.sub("[.:]", "_", instruction)

    def arguments_of(text: str) -> str:
        return ", ".join(re.findall(r'"\w"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)', text))

    def shared(match: re.Match) -> str:
        kind, name, extents = match.groups()
        return (
            f"typedef {kind} {name}of_a_block{extents}; "
            f"static const unsigned {name}place = place_in_shared(sizeof({name}of_a_block)); "
            f"{name}of_a_block& {name} = *static_cast<{name}of_a_block*>(shared_memory({name}place));"
        )

    text = _ASKED.sub(lambda match: f"{match[2]} = {name_of(match[1])}({arguments_of(match[3])});", text)
    text = _TOLD.sub(lambda match: f"{name_of(match[1])}({arguments_of(match[2])});", text)
    text = re.sub(r"AHEAD = \d+ << 20;", "AHEAD = 1 << 10;", text)
    dynamic = r"\1* const \2 = static_cast<\1*>(dynamic_shared_memory());"
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", dynamic, text)
    return _SHARED.sub(shared, text)
