"""The summary picture of a run: share of the floor by family of operations, ours and the best peer's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from skuda.bench import report, targets
from skuda.bench.peers import EAGER, PEERS
from skuda.bench.targets import Row, family
from skuda.generated import CATALOG
from skuda.verification.findings import share

_WIDTH, _LINE, _AROUND, _DPI = 10.0, 0.27, 1.5, 100  # inches: 1,000 pixels wide, legible without enlarging
_INK, _SOFT, _FAINT = "#1d2430", "#596273", "#e3e6ea"
_OURS, _PEER = "#0072b2", "#d55e00"  # of Okabe and Ito, which the colour-blind can tell apart
_LOOKS = {peer.name: marker for peer, marker in zip(PEERS, "D^svP", strict=True)}
_STYLE = {
    "font.size": 11, "text.color": _INK, "axes.edgecolor": _FAINT, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "xtick.color": _SOFT, "ytick.color": _INK, "xtick.bottom": False, "ytick.left": False,
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One family of operations.

    Attributes:
        name: as the bench calls it.
        shares: of the floor's speed, of each row.
        peer: the fastest one, torch eager only where no other was measured; empty if none was.
        ratio: its time over ours, geometric mean of the rows where it was measured; infinite if none was.
    """

    name: str
    shares: tuple[float, ...]
    peer: str
    ratio: float

    @property
    def ours(self) -> float:
        return statistics.median(self.shares)

    @property
    def peers(self) -> float:
        """The share that the peer has, were it measured in all rows: peers are not, so its median says little."""
        return self.ours / self.ratio


def lines(rows: Sequence[Row]) -> list[Line]:
    """The families in the order of the bench: categories, which are few; of quantization what operations do."""
    categories = {each.function: each.category for each in CATALOG.operations if each.category != "quantization"}
    found: dict[str, list[Row]] = {}
    for row in targets.measured(rows):
        found.setdefault(categories.get(row["operation"]) or family(row), []).append(row)
    return [_line(name, members) for name, members in found.items()]


def _line(name: str, rows: Sequence[Row]) -> Line:
    if all(row["operation"].endswith("_backward") for row in rows):
        name += ", gradient"
    ratios = {peer: mean[0] for peer in _LOOKS if (mean := targets.geometric_mean(rows, peer))}
    best = min(ratios, key=lambda peer: (peer == EAGER, ratios[peer]), default="")
    return Line(name, tuple(map(share, rows)), best, ratios.get(best, math.inf))


def draw(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the picture as a PNG.

    Args:
        path: where to.
        result: as `skuda bench --json` writes it, with rows.
    """
    found = lines(result["rows"])
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _AROUND + _LINE * len(found)), dpi=_DPI, layout="constrained")
        axes = figure.subplots()
        _draw_lines(axes, found)
        title = report.title(result)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        figure.legend(loc="outside lower left", ncols=6, frameon=False, fontsize=10, handletextpad=0.3)
        figure.savefig(path, metadata={"Title": title})


def _draw_lines(axes, found: Sequence[Line]) -> None:
    """For each family our median, the range of the middle nine tenths of rows, and the best peer."""
    axes.axvline(1, color=_SOFT, linewidth=1.2, zorder=1)
    edge = {"edgecolor": "white", "linewidth": 0.8}
    positions = range(len(found))
    low, high = zip(*(_most(line.shares) for line in found), strict=True)
    axes.hlines(positions, low, high, color=_OURS, linewidth=6, alpha=0.25, label="9 rows of 10", zorder=2)
    axes.scatter([line.ours for line in found], positions, color=_OURS, s=75, label="skuda, median", zorder=4, **edge)
    for peer, marker in _LOOKS.items():
        chosen = [(line.peers, at) for at, line in enumerate(found) if line.peer == peer]
        if chosen:
            face = {"facecolor": "white", "linewidth": 1.4} if peer == EAGER else {"facecolor": _PEER, "linewidth": 0.8}
            edges = {"edgecolor": _PEER if peer == EAGER else "white"}
            axes.scatter(*zip(*chosen, strict=True), marker=marker, s=48, label=peer, zorder=5, **face, **edges)
    axes.set_yticks(positions, [line.name for line in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, max(1.25, 1.02 * max(high)))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "copy"])
    axes.grid(axis="both", color=_FAINT, linewidth=0.8)


def _most(shares: Sequence[float]) -> tuple[float, float]:
    """The ends of the middle nine tenths."""
    if len(shares) < 2:
        return shares[0], shares[0]
    cuts = statistics.quantiles(shares, n=20, method="inclusive")
    return cuts[0], cuts[-1]
