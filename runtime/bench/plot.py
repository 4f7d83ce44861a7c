"""The chart: share of the floor by shape, ours and the peers', a panel for each family of operations.

Elementwise operations are above, programs that reduce below, for their shapes differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from skuda.bench import targets
from skuda.bench.peers import PEERS
from skuda.bench.shapes import SizeClass
from skuda.bench.targets import Row, family
from skuda.verification.evidence import share

_INK, _SOFT, _FAINT = "#1d2430", "#6b7380", "#e3e6ea"
# Okabe and Ito's colours, which the colour-blind can tell apart; each has a marker of its own besides.
_OURS = "#0072b2"
_LOOKS = (("#d55e00", "s"), ("#009e73", "D"), ("#cc79a7", "^"), ("#e69f00", "v"))
_STYLE = {
    "font.size": 10.5, "text.color": _INK, "axes.edgecolor": _FAINT, "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "xtick.color": _SOFT, "ytick.color": _INK, "xtick.bottom": False, "ytick.left": False,
}  # fmt: skip


def points(rows: Sequence[Row], peer: str | None) -> dict[str, list[float]]:
    """Shares of the floor by shape, of a peer where it was measured, or ours (None)."""
    found: dict[str, list[float]] = {}
    for row in targets.measured(rows):
        ratio = 1.0 if peer is None else targets.speedup(row, peer)
        if ratio is not None:
            found.setdefault(_place(row), []).append(share(row) / ratio)
    return found


def _place(row: Row) -> str:
    """The line of a row: its shape, and the axis where columns are reduced."""
    return " ".join(filter(None, (row["shape"], row["variant"] if row["class"] == SizeClass.COLUMNS else "")))


def draw(path: Path, result: Mapping[str, Any]) -> None:
    """Writes the chart as a PNG."""
    rows = targets.measured(result["rows"])
    halves = [[row for row in rows if targets.reduces(row) is reduces] for reduces in (False, True)]
    halves = [half for half in halves if half]
    panels = [list(dict.fromkeys(map(family, half))) for half in halves]
    shapes = [list(dict.fromkeys(map(_place, half))) for half in halves]
    heights = [1.2 + 0.4 * len(each) for each in shapes]
    with matplotlib.rc_context(_STYLE):
        size = (4 + 3.2 * max(map(len, panels)), 1.4 + sum(heights))
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        parts = figure.subfigures(len(halves), 1, height_ratios=heights, squeeze=False)[:, 0]
        handles: dict[str, Any] = {}
        for part, *half in zip(parts, halves, panels, shapes, strict=True):
            for axes in _draw_half(part, *half):
                handles |= {name: handle for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles, loc="outside lower left", ncols=6, frameon=False)
        machine = result["machine"]
        figure.suptitle(
            f"Share of the speed of a copy of the same bytes; of reductions to few values, of reading them\n"
            f"{machine['gpu']}, {machine['date']}",
            x=0.01, ha="left", fontsize=13,
        )  # fmt: skip
        figure.savefig(path)


def _draw_half(part, rows: Sequence[Row], panels: Sequence[str], shapes: Sequence[str]) -> Sequence[Any]:
    """The panels of elementwise operations, or of programs that reduce; their axes."""
    found = part.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for position, (axes, panel) in enumerate(zip(found, panels, strict=True)):
        _draw_panel(axes, [row for row in rows if family(row) == panel], shapes)
        axes.set_title(panel, loc="left", fontsize=12, fontweight="bold")
        axes.tick_params(axis="y", labelleft=position == 0)
    return found


def _draw_panel(axes, rows: Sequence[Row], shapes: Sequence[str]) -> None:
    """A line for each shape: the range and the median of ours, and each peer's median."""
    axes.axvline(1, color=_SOFT, linewidth=1, zorder=0)
    axes.text(1, -0.75, "floor", color=_SOFT, ha="center", fontsize=9)
    ours = points(rows, None)
    positions = [shapes.index(shape) for shape in ours]
    edge = {"edgecolor": "white", "linewidth": 0.7}
    axes.scatter(
        [statistics.median(each) for each in ours.values()], positions,
        color=_OURS, marker="o", s=55, label="skuda, median", zorder=4, **edge,
    )  # fmt: skip
    axes.hlines(
        positions, [min(each) for each in ours.values()], [max(each) for each in ours.values()],
        color=_OURS, linewidth=3, alpha=0.35, label="skuda, all rows", zorder=2,
    )  # fmt: skip
    for peer, (colour, marker) in zip(PEERS, _LOOKS, strict=True):
        found = points(rows, peer.name)
        if found:
            axes.scatter(
                [statistics.median(each) for each in found.values()], [*map(shapes.index, found)],
                color=colour, marker=marker, s=30, label=f"{peer.name}, median", zorder=3, **edge,
            )  # fmt: skip
    axes.set_yticks(range(len(shapes)), shapes)
    axes.set_ylim(len(shapes) - 0.5, -1)
    axes.set_xlim(0, max(1.12, 1.04 * max(max(each) for each in ours.values())))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
    axes.grid(axis="both", color=_FAINT, linewidth=0.8)
