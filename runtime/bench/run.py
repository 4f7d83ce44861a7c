"""Runs cases: each beside a copy of the same bytes and the peers, into rows that `report` prints."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

import cupy

import skuda
from skuda.arrays.views import view_of
from skuda.bench import peers
from skuda.bench.floor import Copy, Read
from skuda.bench.interrupts import told_afterwards
from skuda.bench.problem import Problem
from skuda.bench.suite import SMALL, Case
from skuda.bench.timing import Timer
from skuda.model.descriptor import is_element
from skuda.model.sku import KernelSku

_CALLS = 20  # in a graph of small problems

# How far a sum in another order may be off, by the bytes of a float type: a few units in the last place for half types,
# and what adding up thousands of elements costs in wider ones.
_NEAR, _NEAR_BFLOAT16 = {2: 2e-3, 4: 2e-5, 8: 1e-12}, 1.6e-2


class Bench:
    """One run.

    Args:
        rounds: timed runs of each candidate.
        quick: torch.compile in fewer rows.
    """

    def __init__(self, rounds: int, quick: bool):
        self._timer = Timer(rounds)
        self._copy, self._read = Copy(), Read()
        self._quick = quick
        self.absent = {peer.name: reason for peer in peers.PEERS if (reason := peer.absent())}

    def row(self, case: Case) -> dict[str, Any]:
        """One row of the results: `error` says that our kernel failed, `left_out` why it was not measured.

        `sku` is the kernel that served it. Reductions to few values have `read_us` besides `copy_us`: they are held
        to the time in which their inputs can be read. `calls` says of how many calls a run was a graph, if of several.
        """
        row: dict[str, Any] = {
            "operation": case.operation.function,
            **({"family": case.family} if case.operation.reduces else {}),
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
            if fault := problem.fault():
                return {**row, "error": fault}
            return self._measured(problem, {**row, "sku": served_by(problem).symbol})
        except Exception as error:  # a row that fails must not end the run; it is in the table
            return {**row, "error": f"{type(error).__name__}: {error}"}

    def _measured(self, problem: Problem, row: dict[str, Any]) -> dict[str, Any]:
        """A row with its times, and those of its copy and its peers."""
        case = problem.case
        several = _CALLS if case.bytes < SMALL else 1
        calls = {"ours": problem.run, "copy": self._copy.of(case.bytes)}
        if case.reads_only:
            calls["read"] = self._read.of(case.bytes)
        if several > 1:
            row["calls"] = several
            calls = {name: self._timer.graph_of(call, several) for name, call in calls.items()}
        for peer in peers.peers_of(case, self._quick):
            if peer.name in self.absent:
                continue
            try:
                call = peer.prepare(problem)
                if call is None:
                    continue
                row["peers"][peer.name] = {"agrees": agreement(call(), problem)}
                calls[peer.name] = self._timer.graph_of(call, several) if several > 1 else call
            except Exception as error:  # what a peer cannot do is its own
                row["peers"][peer.name] = {"error": f"{type(error).__name__}: {_first_line(error)}"}
        timed = self._timer.measure(calls, several)
        for name in ("ours", "copy", "read"):
            if name in timed:
                row[f"{name}_us"] = round(timed[name].us, 3)
        for name, each in timed.items():
            if name in row["peers"]:
                row["peers"][name] |= {"us": round(each.us, 3), "runs": each.runs}
        return row

    def run(self, cases: Sequence[Case], advance: Callable[[Case], None]) -> list[dict[str, Any]]:
        """All rows, or those before an interrupt; calls `advance` before each."""
        rows: list[dict[str, Any]] = []
        with suppress(KeyboardInterrupt):  # what has been measured took minutes of a GPU
            for case in cases:
                advance(case)
                with told_afterwards():
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
    operands = [value if is_element(value) else view_of(value, name) for name, value in problem.arrays.items()]
    return plan.served_by(operands)


def agreement(result: object, problem: Problem) -> float:
    """The share of the elements of our outputs that a peer's result has.

    Of exact elementwise operations, and of codes, to the bit. Real results that a peer adds up in another order, or of
    exponentials in other steps, count where they are within a few roundings (`_NEAR`), in units of their own size and
    the output's mean one. None is an output that the peer keeps to itself.
    """
    from skuda.bench import formulas
    from skuda.bench.tensors import tensors_of

    tensors = tensors_of(problem)
    outputs = [tensors[operand.name] for operand in problem.case.operation.outputs]
    results = result if isinstance(result, tuple) else (result,)
    near = not formulas.is_bit_equal(problem.case.operation)
    both = [pair for pair in zip(outputs, results, strict=True) if pair[1] is not None]
    equal = sum(int(_equal(ours, theirs, near).sum()) for ours, theirs in both)
    return equal / max(1, sum(ours.numel() for ours, _ in both))


def _equal(ours, theirs, near: bool):
    """Where two tensors are the same, or near each other."""
    import torch

    theirs = theirs.reshape(ours.shape)
    if not near or not ours.is_floating_point() or ours.itemsize < 2:
        return ours == theirs
    bound = _NEAR[ours.dtype.itemsize] if ours.dtype != torch.bfloat16 else _NEAR_BFLOAT16
    ours, theirs = ours.double(), theirs.double()
    size = ours.square().nan_to_num(posinf=0).mean().sqrt()
    both_nan = ours.isnan() & theirs.isnan()
    return (ours == theirs) | both_nan | ((ours - theirs).abs() <= bound * (ours.abs() + size))


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
