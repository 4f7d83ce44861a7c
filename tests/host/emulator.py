"""Generated kernels on the CPU: their CUDA, compiled by the host's C++ compiler, its threads as fibers.

Every byte of the outputs' memory is compared with the reference's, and each load and store of a kernel is checked: it
must lie on a multiple of its size, reads between an operand's first element and its last, writes in an output's
elements. It shows neither races nor what the GPU's own compiler makes of a kernel: tests/gpu does that.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from problems import ArrayLayout, Call, calls, is_alternative
from values import POISON, UNTOUCHED, Case, Problem, cases, differing, memory_of, view

from skuda.arrays.views import view_of
from skuda.cpu.source import called
from skuda.launch import compiler, registry
from skuda.launch.prepared import Launch
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind, KernelSku
from skuda.plans.multi_kernel import SlabLaunches
from skuda.plans.plan import Plan
from skuda.schedules import table
from skuda.schedules.slab_variants import SlabVariant
from skuda.schedules.variant import STAGES

HERE = Path(__file__).parent
COMPILER = (shutil.which("g++") or shutil.which("c++")) if sys.platform == "linux" else None
_Shape = ctypes.c_int * 4  # blocks, threads of one, blocks of a cluster, bytes of shared memory
_Touched = ctypes.c_longlong * 3  # byte of the arena, how many bytes, whether they are written
# Without -fno-gnu-unique, libraries of one process share the static variables of templates.
_FLAGS = (
    "-std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -fpermissive -fPIC -fno-gnu-unique -U_FORTIFY_SOURCE"
).split()
# Every load and store of memory calls a function, which threads.cc has.
_CHECKED = (
    "-fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0 --param asan-stack=0 "
    "--param asan-globals=0"
).split()
_ARENA = 1 << 27  # bytes, of which few are touched
_ZONE = 1 << 16  # bytes between operands
_READ, _WRITE = 1, 2
_BOUNDARY = 256  # bytes: every operand's memory starts on a multiple, as tests/problems.py has it
# asm volatile("name [%0], %1, ...;" :: "r"(argument), ... : "memory"); or a loop that ends when it says so.
_TOLD = re.compile(
    r'asm volatile\("(?:\{ \.reg \.pred \w+; \w+: )?([a-z][\w.:]*)[^"]*"(?:\s*"[^"]*")?\s*::(.*?):\s*"memory"\);',
    re.DOTALL,
)
_SHARED = re.compile(r"__shared__\s+(?:alignas\(16\)\s+)?([^;()]*?)\s+(\w+)((?:\[[^;]*?\])*);", re.DOTALL)


def emulated(sku: KernelSku) -> bool:
    """Whether a SKU has kernels to run: stages run by their own, but those of a multi-kernel form together."""
    found = registry.entry_of(sku)
    return found.variant is not STAGES or is_alternative(found)


class Host:
    """Kernels that some SKUs need, compiled.

    Args:
        skus: of any sources.
        folder: where the compiled library is kept.
        arch: the GPU's that the sources are to see, as in `sm_90`; older ones than 89 have no conversions of fp8.
        entries: the kernels, as NVRTC names them, if not those of the SKUs.

    Raises:
        RuntimeError: the compiler refused the sources; the message holds what it said.
    """

    def __init__(self, skus: Sequence[KernelSku], folder: Path, arch: int = 90, entries: Sequence[str] = ()):
        entries = entries or list(dict.fromkeys(name for sku in skus for name in entries_of(sku)))
        found = {(entry.catalog.package, entry.operation.source): entry for entry in map(registry.entry_of, skus)}
        seen: set[str] = set()
        text = "".join(_inlined(entry.catalog.source(source), seen) for (_, source), entry in found.items())
        arguments = dict(re.findall(r"(\w+)\(const __grid_constant__ (\w+)<", text))
        text = '#include "device.h"\n' + _hosted(text)
        for number, entry in enumerate(entries):
            name, types = entry[:-1].split("<", 1)
            of = re.match(r"\w+<[^<>]*>", types)  # a program, or types of elements
            of = of[0] if of else ", ".join(word for word in types.split(", ") if word in DTYPES)
            text += (
                f'\nextern "C" bool kernel_{number}(const void* arguments, const int* shape) {{\n'
                f"  const auto& args = *static_cast<const {arguments[name]}<{of}>*>(arguments);\n"
                f"  return run_blocks(shape[0], shape[1], shape[2], shape[3], [&] {{ {entry}(args); }});\n}}\n"
            )
        number = len([*folder.glob("*.cpp")])  # a library that is loaded stays as it is
        path = folder / f"kernels_{number}_{arch}.cpp"
        path.write_text(text, encoding="utf-8")
        built = path.with_suffix(".so")
        names = ", ".join(source for _, source in found)
        _compile([*_CHECKED, f"-D__CUDA_ARCH__={arch}0", str(path), _threads(), "-shared", "-o", str(built)], names)
        self._library = ctypes.CDLL(str(built))
        self._kernels = {entry: getattr(self._library, f"kernel_{number}") for number, entry in enumerate(entries)}
        for kernel in self._kernels.values():
            kernel.argtypes = [ctypes.c_void_p, _Shape]
            kernel.restype = ctypes.c_bool
        self._library.allow.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self._library.touched.argtypes = [_Touched]
        self._library.touched.restype = ctypes.c_longlong

    def faults(self, sku: KernelSku, problem: Callable[[Case], Problem] = Case.problem) -> Iterator[str]:
        """What is wrong with the runs of a kernel, on the cases that tests/values.py knows for it."""
        for case in cases(sku):
            call, filled = case.call, problem(case)
            for fault in self._faults(sku, call, filled):
                yield f"{sku.symbol} {dict(call.sizes)} {call.layouts[0][1]}: {fault}"

    def _faults(self, sku: KernelSku, call: Call, filled: Problem) -> Iterator[str]:
        plan, layouts = call.plan(BackendKind.REFERENCE), dict(call.layouts)
        arrays, found = {}, {}
        for operand, word in zip(plan.operation.operands, plan.words, strict=True):
            at, storage = layouts.get(operand.name), DTYPES[word].storage
            given = filled.inputs.get(operand.name)
            around = UNTOUCHED if given is None else POISON
            arrays[operand.name] = memory_of(at, given, storage, around), storage, at
        yield from self.run(plan, arrays, found, registry.entry_of(sku).variant)
        for name, actual in found.items():
            _, storage, at = arrays[name]
            expected = memory_of(at, filled.expected[name], storage, UNTOUCHED)
            if said := differing(actual, expected, name):
                yield said

    def run(self, plan: Plan, arrays: Mapping[str, tuple], found: dict[str, np.ndarray], variant=None) -> Iterator[str]:
        """What kernels touch that is not theirs. What the outputs' memory holds then is added to `found`.

        Args:
            plan: whose kernels are launched.
            arrays: of each operand the bytes of its memory, the dtype and where it lies in it.
            variant: the schedule that is expected.
        """
        arena = _Arena()
        for operand in plan.operation.operands:
            arena.add(operand.name, *arrays[operand.name], operand in plan.operation.outputs)
        views = [view_of(arena.view(operand.name), operand.name) for operand in plan.operation.operands]
        whole = plan.launch_for(views)
        own = isinstance(whole, (Launch, SlabLaunches))
        assert variant in (None, whole.geometry.variant if own else STAGES)
        arena.add("workspace", np.full(whole.workspace, UNTOUCHED, np.uint8), np.dtype(np.uint8), None, True)
        self._library.allow(arena.start, len(arena.allowed), arena.allowed.ctypes.data)
        touched = _Touched()
        for launch, filled in whole.launches(views, arena.address("workspace")):
            memory, _ = launch.slots.pack(filled)
            cluster = getattr(launch.geometry.variant, "blocks", 1)
            steps = [(launch.grid, launch.block, cluster, launch.shared)]
            steps += [(*finish, 1, launch.geometry.finish_shared) for finish in [launch.geometry.finish] if finish]
            for entry, step in zip(launch.entries, steps, strict=True):
                if not self._kernels[entry](ctypes.addressof(memory), _Shape(*step)):
                    yield f"{entry}: a thread waits for others that never come"
                    return
                if count := self._library.touched(touched):
                    yield f"{entry}: {count} times, first {arena.said(*touched)}"
        for operand in plan.operation.outputs:
            found[operand.name] = arena.bytes(operand.name).copy()


def _compile(arguments: Sequence[str], names: str) -> None:
    said = subprocess.run([COMPILER, *_FLAGS, f"-I{HERE}", *arguments], capture_output=True, text=True)
    if said.returncode:
        raise RuntimeError(f"{names}: the host's compiler refused it:\n{said.stderr[:4000]}")


@cache
def _threads() -> str:
    """What every library of kernels is linked with, compiled once a process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    built = str(Path(folder.name) / "threads.o")
    _compile([str(HERE / "threads.cc"), "-c", "-o", built], "threads.cc")
    return built


class _Arena:
    """The memory of a launch's operands, between zones that must not be touched; what may be is known of each byte."""

    def __init__(self):
        self._memory = mmap.mmap(-1, _ARENA, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._whole = np.frombuffer(self._memory, np.uint8)  # keeps the mapping
        self.start = self._whole.ctypes.data
        self.allowed = np.zeros(_ARENA, np.uint8)
        self._end = 0
        self._parts: dict[str, tuple[int, int, np.dtype, ArrayLayout | None]] = {}

    def add(self, name: str, contents: np.ndarray, storage: np.dtype, at: ArrayLayout | None, written: bool) -> None:
        """Puts an operand's memory on the next boundary: all from its first element to its last may be read, and
        elements alone may be written."""
        begin = -(-(self._end + _ZONE) // _BOUNDARY) * _BOUNDARY
        self._end = begin + len(contents)
        assert self._end + _ZONE <= _ARENA
        self._whole[begin : self._end] = contents
        self._parts[name] = begin, len(contents), storage, at
        allowed = self.allowed[begin : self._end]
        if at is None:
            allowed[:] = _READ | (_WRITE if written else 0)
            return
        last = at.start + sum(step * (extent - 1) for step, extent in zip(at.strides, at.shape, strict=True))
        if 0 in at.shape:
            return
        allowed[at.start * storage.itemsize : (last + 1) * storage.itemsize] = _READ
        if written:
            each = view(allowed, np.dtype(f"u{storage.itemsize}"), at)
            each[...] = int.from_bytes(bytes([_READ | _WRITE] * storage.itemsize), "little")

    def address(self, name: str) -> int:
        return self.start + self._parts[name][0]

    def bytes(self, name: str) -> np.ndarray:
        begin, size, *_ = self._parts[name]
        return self._whole[begin : begin + size]

    def view(self, name: str) -> np.ndarray:
        return view(self.bytes(name), *self._parts[name][2:])

    def said(self, offset: int, size: int, written: int) -> str:
        """Which bytes of which operand's memory."""
        name = min(self._parts, key=lambda each: max(self._parts[each][0] - offset,
                                                     offset + size - sum(self._parts[each][:2]), 0))  # fmt: skip
        begin, length, *_ = self._parts[name]
        what = "writes" if written else "reads"
        misaligned = size in (2, 4, 8, 16) and offset % size
        wrong = "which is misaligned" if misaligned else "which are not its elements"
        return f"{what} {size} bytes from byte {offset - begin} of {name}'s {length}, {wrong}"


def entries_of(sku: KernelSku) -> tuple[str, ...]:
    """The kernels that a SKU launches, as NVRTC names them."""
    found = registry.entry_of(sku)
    if not is_alternative(found) and not isinstance(found.variant, SlabVariant):
        return table.entries(found.operation, found.types, found.variant)
    entries = []
    for call in calls(sku):
        plan = call.plan(BackendKind.REFERENCE)
        views = call.views(plan)
        entries += [entry for launch, _ in plan.launch_for(views).launches(views, 0) for entry in launch.entries]
    return tuple(dict.fromkeys(entries))


def by_source(skus: Iterable[KernelSku]) -> dict[str, list[KernelSku]]:
    """SKUs that can run here, by their source."""
    found: dict[str, list[KernelSku]] = {}
    for sku in filter(emulated, skus):
        found.setdefault(registry.entry_of(sku).operation.source, []).append(sku)
    return found


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
            f"static const unsigned {name}position = reserve_shared(sizeof({name}of_a_block)); "
            f"{name}of_a_block& {name} = *static_cast<{name}of_a_block*>(shared_memory({name}position));"
        )

    text = _TOLD.sub(lambda match: f"{name_of(match[1])}({arguments_of(match[2])});", called(text))
    text = re.sub(r'asm volatile\("([a-z][\w.]*);"\);', lambda match: f"{name_of(match[1])}();", text)
    text = re.sub(r"AHEAD = \d+ << 20;", "AHEAD = 1 << 10;", text)
    dynamic = r"\1* const \2 = static_cast<\1*>(dynamic_shared_memory());"
    text = re.sub(r"extern __shared__ (\w+) (\w+)\[\];", dynamic, text)
    return _SHARED.sub(shared, text)
