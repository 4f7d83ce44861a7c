"""Runs cases: each beside a copy of the same bytes and the peers, into rows that `report` prints."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import cupy

import skuda
from skuda import dispatch
from skuda.bench import peers
from skuda.bench.problem import Problem
from skuda.bench.suite import Case
from skuda.bench.timing import Timer
from skuda.descriptor import is_number
from skuda.sku import KernelSku
from skuda.tensor import view_of

_BLOCK = 1 << 24
_DEVICE_TO_DEVICE = 3  # cudaMemcpyDeviceToDevice


class Copy:
    """The floor: a device copy of random bytes, which reads half of what a kernel moves and writes half."""

    def __init__(self):
        self._source = cupy.random.randint(0, 256, _BLOCK, dtype=cupy.uint8)
        self._target = cupy.empty_like(self._source)

    def of(self, moved: int) -> Callable[[], None]:
        """A call that enqueues the copy that moves this many bytes."""
        half = moved // 2
        if half > self._source.size:
            block, self._source, self._target = self._source[:_BLOCK], None, None
            self._target = cupy.empty(half, cupy.uint8)
            self._source = cupy.empty(half, cupy.uint8)
            for start in range(0, half, _BLOCK):
                part = self._source[start : start + _BLOCK]
                part[:] = block[: part.size]
        target, source = self._target.data.ptr, self._source.data.ptr
        return lambda: cupy.cuda.runtime.memcpyAsync(target, source, half, _DEVICE_TO_DEVICE, 0)


class Bench:
    """One run.

    Args:
        rounds: timed runs of each candidate.
        quick: torch.compile in fewer rows.
    """

    def __init__(self, rounds: int, quick: bool):
        self._timer = Timer(rounds)
        self._copy = Copy()
        self._quick = quick
        self.absent = {peer.name: reason for peer in peers.PEERS if (reason := peer.absent())}

    def row(self, case: Case) -> dict[str, Any]:
        """One row of the results: `error` says that our kernel failed, `left_out` why it was not measured.

        `sku` is the kernel that served it.
        """
        row: dict[str, Any] = {
            "operation": case.operation.function,
            "dtype": case.dtype,
            "element": case.element,
            "shape": str(case.shape),
            "variant": case.variant,
            "class": str(case.size_class),
            "bytes": case.bytes,
            "peers": {},
        }
        if not _fits(case.bytes):
            return {**row, "left_out": f"needs about {4 * case.bytes / 1e9:.0f} GB of the GPU's memory"}
        try:
            problem = Problem(case)
            fault = problem.fault()
        except Exception as error:  # a row that fails must not end the run; it is in the table
            return {**row, "error": f"{type(error).__name__}: {error}"}
        if fault:
            return {**row, "error": fault}
        row["sku"] = served_by(problem).symbol
        calls = {"ours": problem.run, "copy": self._copy.of(case.bytes)}
        for peer in peers.peers_of(case, self._quick):
            if peer.name in self.absent:
                continue
            try:
                call = peer.prepare(problem)
                if call is None:
                    continue
                row["peers"][peer.name] = {"agrees": agreement(call(), problem)}
                calls[peer.name] = call
            except Exception as error:  # what a peer cannot do is its own
                row["peers"][peer.name] = {"error": f"{type(error).__name__}: {_first_line(error)}"}
        timed = self._timer.measure(calls)
        row["ours_us"], row["copy_us"] = round(timed["ours"].us, 3), round(timed["copy"].us, 3)
        for name, each in timed.items():
            if name in row["peers"]:
                row["peers"][name] |= {"us": round(each.us, 3), "runs": each.runs}
        return row

    def run(self, cases: Sequence[Case], advance: Callable[[Case], None]) -> list[dict[str, Any]]:
        """All rows; calls `advance` before each."""
        rows = []
        for case in cases:
            advance(case)
            rows.append(self.row(case))
        return rows


def _fits(moved: int) -> bool:
    """Whether operands, the poisoned copy, the floor's buffers and a peer's temporaries have room."""
    free, total = cupy.cuda.runtime.memGetInfo()
    if free < 4 * moved:
        cupy.get_default_memory_pool().free_all_blocks()
        if peers.PEERS[0].absent() is None:
            import torch

            torch.cuda.empty_cache()
        free, total = cupy.cuda.runtime.memGetInfo()
    return free > 4 * moved


def served_by(problem: Problem) -> KernelSku:
    """The kernel that runs on a problem's operands as they lie."""
    plan = problem.plan
    operands = [
        value if is_number(value) else view_of(value, name) for name, value in problem.arrays.items()
    ]
    return dispatch.make_sku(plan.operation, plan.types, plan._geometry(operands).variant)


def agreement(result: object, problem: Problem) -> float:
    """The share of the elements of our outputs that a peer's result has to the bit."""
    from skuda.bench import formulas

    tensors = formulas.tensors_of(problem)
    outputs = [tensors[operand.name] for operand in problem.case.operation.outputs]
    results = result if isinstance(result, tuple) else (result,)
    equal = sum(int((ours == theirs).sum()) for ours, theirs in zip(outputs, results, strict=True))
    return equal / max(1, sum(output.numel() for output in outputs))


def machine(absent: dict[str, str]) -> dict[str, Any]:
    """What the figures hold for."""
    runtime = cupy.cuda.runtime
    present = [peer.version() for peer in peers.PEERS if peer.name not in absent]
    versions = [f"skuda {skuda.__version__}", f"cupy {cupy.__version__}", *present]
    return {
        "gpu": runtime.getDeviceProperties(runtime.getDevice())["name"].decode(),
        "cuda_driver": str(runtime.driverGetVersion()),
        "date": date.today().isoformat(),
        "versions": [*dict.fromkeys(versions), f"Python {platform.python_version()}"],
    }


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:120]
