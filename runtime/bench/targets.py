"""What a run is held to, evaluated on its rows: by class of shapes, against the peers, the cost of a call."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skuda.bench.peers import COMPILE, EAGER, LIGER, NATIVE, PEERS
from skuda.bench.shapes import REDUCING, SizeClass
from skuda.verification.findings import share

Row = Mapping[str, Any]

# Share of the floor's speed: least median, least worst.
SHARES: dict[SizeClass, tuple[float, float]] = {
    SizeClass.LARGE: (0.95, 0.90),
    SizeClass.MIDDLE: (0.92, 0.85),
    SizeClass.SMALL: (0.87, 0.87),
    SizeClass.ROW_STRIDED: (0.90, 0.90),
    SizeClass.TRANSPOSED: (0.60, 0.60),
    SizeClass.BROADCAST: (0.90, 0.75),
    SizeClass.ROWS: (0.95, 0.88),
    SizeClass.WIDE_ROWS: (0.88, 0.88),
    SizeClass.FEW_ROWS: (0.87, 0.87),
    SizeClass.FUSED: (0.85, 0.75),
    SizeClass.VALUES: (0.92, 0.92),
    SizeClass.COLUMNS: (0.90, 0.90),
    SizeClass.WHOLE: (0.92, 0.92),
    SizeClass.PER_TENSOR: (0.90, 0.90),
}
REDUCING_US = 0.4  # what a reduction may cost few rows beside the copy
BEHIND = 0.95  # of our time: a peer that takes less is ahead of us by more than measurements are apart
MEANS = {EAGER: 2.0, COMPILE: 1.5, NATIVE: 1.0, LIGER: 1.15}  # least geometric mean of a peer's time over ours

# A call's cost to the host: at most this many times another caller's in the same run.
C_LOOP, TORCH = "C launch loop", "torch.lerp(out=)"
HOST: dict[str, tuple[float, str]] = {
    "plan.run, prebuilt args": (1.3, C_LOOP),
    "plan.run, fresh args": (1.8, C_LOOP),
    "skuda.lerp(out=), CuPy": (1.0, TORCH),
    "skuda.lerp(out=), torch": (1.5, TORCH),
}
# Of a call on a torch tensor, beside torch's own operator of the kind; of one with its gradients.
OF_TORCH, WITH_GRADIENTS = 1.15, 1.3
OURS, THEIRS = "skuda: {}", "torch: {}"  # what both are called
COLD, WARM = "cold cache", "warm cache"
FIRST_CALL_MS = {COLD: 250, WARM: 10}


@dataclass(frozen=True)
class Verdict:
    """One class of shapes.

    Attributes:
        name: the class.
        rows: how many were measured.
        median, worst: share of the floor; of few rows, beside a floor that reduces.
        least_median, least_worst: what was wanted.
        below: rows under `least_worst`.
        worst_row: the row that `worst` is of.
    """

    name: SizeClass
    rows: int
    median: float
    worst: float
    least_median: float
    least_worst: float
    below: int
    worst_row: Row

    @property
    def met(self) -> bool:
        return self.median >= self.least_median and self.worst >= self.least_worst


def measured(rows: Sequence[Row]) -> list[Row]:
    """The rows that have figures."""
    return [row for row in rows if "ours_us" in row]


def reduces(row: Row) -> bool:
    """Whether a row is of a program with reductions."""
    return row["class"] in REDUCING


def family(row: Row) -> str:
    """`quantize` of `quantize_per_token_backward`; with reductions, the family that the row names."""
    if "family" in row:
        return row["family"]
    name = row["operation"].removesuffix("_backward")
    return name.partition("_per_")[0].partition("_tensor")[0].replace("_", " ")


def speedup(row: Row, peer: str) -> float | None:
    """Time of a peer over ours; None where it was not measured."""
    us = row["peers"].get(peer, {}).get("us")
    return None if us is None else us / row["ours_us"]


def held(row: Row) -> float:
    """The share of the floor that a row is held to its target by."""
    if row["class"] != SizeClass.FEW_ROWS:
        return share(row)
    floor = share(row) * row["ours_us"]
    return floor / max(row["ours_us"] - REDUCING_US, floor)


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """One for each class that has rows."""
    found = []
    for name, (least_median, least_worst) in SHARES.items():
        members = [row for row in measured(rows) if row["class"] == name]
        if members:
            shares = [held(row) for row in members]
            worst_row = min(members, key=held)
            below = sum(each < least_worst for each in shares)
            worst = held(worst_row)
            median = statistics.median(shares)
            found.append(Verdict(name, len(members), median, worst, least_median, least_worst, below, worst_row))
    return found


@dataclass(frozen=True)
class Beside:
    """A peer in the rows that it was measured in.

    Attributes:
        peer: its name.
        rows: how many there are.
        mean: geometric mean of its time over ours.
        least_mean: what was wanted; None where nothing is.
        best: its least time over ours.
        ahead: rows in which it takes less than BEHIND of our time: row, its time over ours; worst first.
    """

    peer: str
    rows: int
    mean: float
    least_mean: float | None
    best: float
    ahead: list[tuple[Row, float]]

    @property
    def met(self) -> bool:
        return not self.ahead and (self.least_mean is None or self.mean >= self.least_mean)


def beside(rows: Sequence[Row]) -> list[Beside]:
    """One for each peer that was measured."""
    found = []
    for peer in [each.name for each in PEERS]:
        if mean := geometric_mean(rows, peer):
            ratios = [(row, ratio) for row in measured(rows) if (ratio := speedup(row, peer)) is not None]
            ratios.sort(key=lambda each: each[1])
            ahead = [each for each in ratios if each[1] < BEHIND]
            found.append(Beside(peer, mean[1], mean[0], MEANS.get(peer), ratios[0][1], ahead))
    return found


def geometric_mean(rows: Sequence[Row], peer: str) -> tuple[float, int] | None:
    """Of a peer's time over ours, and over how many rows; None where there are none."""
    ratios = [speedup(row, peer) for row in measured(rows)]
    logs = [math.log(ratio) for ratio in ratios if ratio]
    return (math.exp(statistics.fmean(logs)), len(logs)) if logs else None


def host_targets(us: Mapping[str, float]) -> list[tuple[str, float, float, str, bool]]:
    """Callers with a target, where measured: name, ratio to the other caller, most, the other caller, met."""
    return [
        (name, us[name] / us[other], most, other, us[name] <= most * us[other])
        for name, (most, other) in (HOST | _beside_torch(us)).items()
        if name in us and other in us
    ]


def _beside_torch(us: Mapping[str, float]) -> dict[str, tuple[float, str]]:
    names = [name.removeprefix(THEIRS.format("")) for name in us if name.startswith(THEIRS.format(""))]
    return {
        OURS.format(name): (WITH_GRADIENTS if "gradients" in name else OF_TORCH, THEIRS.format(name)) for name in names
    }
