"""The chart: what a checkpoint saves, what each weight loses, and how far off a value can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from skuda.checkpoints.files import replacing
from skuda.demo import groups
from skuda.demo.checkpoint import require
from skuda.demo.measure import HISTOGRAM_EDGES
from skuda.demo.report import lost, size_text
from skuda.demo.run import Entry, Report

_INK, _SOFT, _FAINT = "#1d2430", "#6b7380", "#e3e6ea"
# Okabe and Ito's colours, which the colour-blind can tell apart; the first two differ most, in lightness too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b5b5b", "#a6761d")
_STYLE = {
    "font.size": 10.5, "font.family": "sans-serif", "text.color": _INK, "axes.labelcolor": _SOFT,
    "axes.edgecolor": _FAINT, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "xtick.color": _SOFT, "ytick.color": _SOFT, "xtick.bottom": False,
    "ytick.left": False, "text.parse_math": False,
}  # fmt: skip


def draw(path: Path, reports: Sequence[Report], model: str) -> None:
    """Draw the reports of one checkpoint into a PNG, whole or not at all.

    Args:
        path: the picture; its folder is made.
        reports: one for each scheme, all of the same checkpoint.
        model: what to call the checkpoint in the title.

    Raises:
        BadFile: the picture cannot be written.
        MissingDependency: matplotlib is not installed.
    """
    matplotlib, figures = require("matplotlib"), require("matplotlib.figure")
    with matplotlib.rc_context(_STYLE):
        figure = figures.Figure(figsize=(12.8, 7.2), facecolor="white")
        grid = figure.add_gridspec(
            2, 2, width_ratios=(1.62, 1), height_ratios=(0.8, 1), wspace=0.25, hspace=0.55,
            left=0.05, right=0.97, top=0.755, bottom=0.12,
        )  # fmt: skip
        entries = reports[0].entries
        values, count = sum(entry.size for entry in entries), len(entries)
        before = size_text(sum(entry.bytes_before for entry in entries))
        figure.text(0.05, 0.935, f"{model}, quantized", fontsize=22, fontweight="bold", va="center")
        figure.text(
            0.05, 0.886,
            f"{values / 1e6:.1f} million values in {count} tensors, {before}. "
            f"Computed by skuda on: {reports[0].backend}.",
            fontsize=11.5, color=_SOFT, va="center",
        )  # fmt: skip
        _draw_noise(figure.add_subplot(grid[:, 0]), reports)
        _draw_sizes(figure.add_subplot(grid[0, 1]), reports)
        _draw_errors(figure.add_subplot(grid[1, 1]), reports)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=160)


def _draw_noise(axes, reports: Sequence[Report]) -> None:
    """Signal-to-noise ratio of each weight: a short line for each part of the model, layer after layer."""
    _title(
        axes, "How well each weight survives", "signal-to-noise ratio in dB; along a line, layer after layer"
    )
    parts = [
        part
        for part in groups.ORDER
        if any(entry.part == part and entry.loss for entry in reports[0].entries)
    ]
    right, top, ends = len(parts) - 0.5, 10.0, []
    for colour, report in zip(cycle(_COLOURS), reports):
        dots = []  # (dB, x, name) of each weight
        for place, part in enumerate(parts):
            for line in series([entry for entry in report.entries if entry.part == part and entry.loss]):
                line = [(entry.loss.snr, place + x, entry.name) for x, entry in line]
                line = [dot for dot in line if math.isfinite(dot[0])]
                axes.plot(
                    [x for _, x, _ in line], [snr for snr, _, _ in line], color=colour, linewidth=1.6,
                    marker="o", markersize=5, markeredgecolor="white", markeredgewidth=0.6,
                )  # fmt: skip
                dots += line
        if dots:
            ends.append((lost(report.entries).snr, report.scheme, colour))
            top = max(top, max(dots)[0])
        if dots and len(reports) <= 2:  # the names of more would lie on each other
            lowest, x, name = min(dots)
            side = "left" if x < right / 2 else "right"
            text = f"{name.removesuffix('.weight')[-48:]}  {lowest:.1f}"
            axes.annotate(
                text, (x, lowest), xytext=(7 if side == "left" else -7, -4), textcoords="offset points",
                ha=side, va="top", fontsize=9, color=_SOFT,
            )  # fmt: skip
    top *= 1.1
    below = math.inf
    for snr, scheme, colour in sorted(ends, key=lambda end: -end[0]):
        below = min(snr, below - 0.085 * top)  # labels of schemes that lose alike would lie on each other
        axes.text(
            right + 0.08, below, f"{scheme}\n{snr:.1f} dB in all", color=colour, va="center", fontsize=10.5
        )
    axes.set_xlim(-0.5, right)
    axes.set_ylim(0, top)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _label_parts(axes, parts)


def series(entries: Sequence[Entry]) -> list[list[tuple[float, Entry]]]:
    """The lines that join weights of one part: the same weight of one layer after the other.

    Args:
        entries: of one part, in any order.

    Returns:
        For each line its weights, and how far right of the part's middle each belongs, from -0.3 to 0.3. A
        weight without a layer is a line of its own.
    """
    alone = [entry for entry in entries if entry.layer is None]
    lines = [[(0.6 * (place + 0.5) / len(alone) - 0.3, entry)] for place, entry in enumerate(alone)]
    numbered = [entry for entry in entries if entry.layer is not None]
    last = max((entry.layer for entry in numbered), default=0)
    layered: dict[str, list[tuple[float, Entry]]] = {}
    for entry in sorted(numbered, key=lambda entry: entry.layer):
        x = 0.6 * entry.layer / last - 0.3 if last else 0.0
        layered.setdefault(groups.without_layer(entry.name), []).append((x, entry))
    return lines + list(layered.values())


def _label_parts(axes, parts: Sequence[str]) -> None:
    """Name the parts below the axis; those of the attention, and of the feed-forward, share a heading."""
    families = [
        part.partition(" ")[0] if part.startswith(("attention ", "feed-forward ")) else "" for part in parts
    ]
    labels = [part.removeprefix(family).strip() for part, family in zip(parts, families, strict=True)]
    axes.set_xticks(range(len(parts)), labels)
    for family in filter(None, dict.fromkeys(families)):
        places = [place for place, each in enumerate(families) if each == family]
        first, last = places[0] - 0.38, places[-1] + 0.38
        below = axes.get_xaxis_transform()
        axes.plot(
            (first, last), (-0.068, -0.068), color=_FAINT, linewidth=1.2, transform=below, clip_on=False
        )
        axes.text((first + last) / 2, -0.082, family, color=_SOFT, ha="center", va="top", transform=below)


def _draw_sizes(axes, reports: Sequence[Report]) -> None:
    """A bar for the original and one for each scheme."""
    _title(axes, "What it saves", "bytes of all tensors, scales and zero points included")
    before = sum(entry.bytes_before for entry in reports[0].entries)
    bars = [("original", before, "#b8bec7")]
    bars += [
        (str(report.scheme), sum(entry.bytes_after for entry in report.entries), colour)
        for colour, report in zip(cycle(_COLOURS), reports)
    ]
    for place, (label, size, colour) in enumerate(bars):
        axes.barh(place, size, color=colour, height=0.38)
        factor = f"   {before / size:.1f}× smaller" if place and size else ""
        axes.text(0, place - 0.27, f"{label}   {size_text(size)}{factor}", va="bottom", fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylim(len(bars) - 0.7, -0.75)
    axes.set_xlim(0, max(before, 1))
    axes.spines["bottom"].set_visible(False)


def _draw_errors(axes, reports: Sequence[Report]) -> None:
    """The share of the values by their error: one outline above the other, all of one height scale."""
    losses = [lost(report.entries) for report in reports]
    worst = max(loss.worst for loss in losses)
    if worst <= 0.501:
        fact, reach = "No value is off by more than half a step", 0.6
        _title(axes, fact, "how many values have which error, in units of their scale")
    else:
        fact, reach = f"The worst value is off by {worst:.2f} steps", 1.1
        _title(axes, fact, "errors in units of the scale, after rounding to 16 bits")
    shares = [loss.histogram / max(loss.histogram.sum(), 1) for loss in losses]
    beside = max(np.delete(share, share.size // 2).max() for share in shares)
    highest = max(share.max() for share in shares)
    limit = min(highest, 1.6 * beside) or highest or 1.0  # a peak of exact values must not flatten the rest
    height = 1.12 * limit
    for place, (colour, share) in enumerate(zip(cycle(_COLOURS), shares)):
        floor = -place * height
        axes.stairs(
            np.minimum(share, limit) + floor, HISTOGRAM_EDGES, baseline=floor, color=colour, fill=True
        )
        axes.plot(HISTOGRAM_EDGES[[0, -1]], (floor, floor), color=colour, linewidth=0.8)
        inside = reach < 1  # on the block of errors within half a step, or in the room to its left
        axes.text(
            -0.48 if inside else -1.08, floor + (0.06 if inside else 0.3) * height,
            str(reports[place].scheme), color="white" if inside else colour, fontsize=10, va="bottom",
        )  # fmt: skip
    for edge in (-0.5, 0.5):
        axes.axvline(edge, color=_SOFT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xticks([-0.5, -0.25, 0, 0.25, 0.5], ["−½", "−¼", "0", "¼", "½"])
    axes.set_yticks([])
    axes.set_ylim((1 - len(reports)) * height, height)
    axes.set_xlim(-reach, reach)
    cut = " (cut off)" if limit < highest else ""
    peak = (
        f"The peak at 0{cut}: values that come back exactly, such\nas the largest of each channel or group."
    )
    axes.set_xlabel(peak, loc="left", fontsize=9.5, labelpad=7)


def _title(axes, text: str, explanation: str) -> None:
    axes.set_title(text, loc="left", fontsize=13, fontweight="bold", pad=27)
    axes.annotate(
        explanation, (0, 1), xytext=(0, 10), xycoords="axes fraction", textcoords="offset points", color=_SOFT
    )
