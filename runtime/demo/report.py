"""The tables that the demo prints: of weights, a row for each part of the model and the total; of activations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

from skuda.demo import activations, groups
from skuda.demo.checkpoint import require
from skuda.demo.measure import Loss
from skuda.demo.run import Entry, Report

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def table(report: Report):
    """A report as a table for rich to print.

    Raises:
        MissingDependency: rich is not installed.
    """
    return _grid(rows(report))


def _grid(texts: Sequence[tuple[str, ...]]):
    """The header's first column to the left, the others to the right, close enough for 60 columns of a terminal."""
    rich_table, box = require("rich.table"), require("rich.box")
    grid = rich_table.Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    header, *body = texts
    grid.add_column(header[0], no_wrap=True)
    for column in header[1:]:
        grid.add_column(column.replace(" ", "\n"), justify="right", no_wrap=True)
    for row in body:
        if row[0] == "total":
            grid.add_section()
        grid.add_row(*row, style={groups.KEPT: "dim", "total": "bold"}.get(row[0]))
    return grid


def activation_table(found: activations.Pass):
    """A pass of activations as a table for rich to print.

    Raises:
        MissingDependency: rich is not installed.
    """
    return _grid(activation_rows(found))


def activation_rows(found: activations.Pass) -> list[tuple[str, ...]]:
    """Its texts: the header, and a row for each kind of activation."""
    schemes = tuple(found.cosines)
    header = ("per_token", "shape", *(text for each in schemes for text in (f"{each.element} dB", "error %")))
    cells: dict[tuple[str, tuple[int, int]], list[str]] = {}
    for each in found.activations:
        snr = each.loss.snr
        cells.setdefault((each.part, each.shape), []).extend((f"{snr:.1f}", f"{100 * 10 ** (-snr / 20):.1f}"))
    body = [(part, "x".join(map(str, shape)), *row) for (part, shape), row in cells.items()]
    return [header, *body]


def activation_notes(found: activations.Pass) -> list[str]:
    """What the table of activations needs said beneath it."""
    kept = ", ".join(f"{scheme.element} {cosines.min():.3f}" for scheme, cosines in found.cosines.items())
    count = len(next(iter(found.cosines.values())))
    return [
        "What linear layers read, of all layers together. dB: signal to noise; error: root mean square, relative.",
        "s: scales are found row by row, by skuda.dynamic_quantize_per_token; u: zero points too (.._asymmetric_..).",
        f"Vectors of the {count} sentences, made from such activations, and the exact ones: least cosine {kept}.",
    ]


def rows(report: Report) -> list[tuple[str, ...]]:
    """The table's texts: the header, a row for each part of the model that has tensors, the total."""
    unit = unit_of(sum(entry.bytes_before for entry in report.entries))
    parts = [(part, [entry for entry in report.entries if entry.part == part]) for part in groups.ORDER]
    return [
        (
            str(report.scheme),
            "tensors",
            f"{unit} before",
            f"{unit} after",
            "SNR dB",
            "worst error",
            "seconds",
        ),
        *((part, *_cells(entries, unit)) for part, entries in parts if entries),
        ("total", *_cells(report.entries, unit)),
    ]


def notes(reports: Sequence[Report]) -> list[str]:
    """What the tables of one checkpoint need said beneath them."""
    lines = [
        "Worst error: of one element, in units of its scale. The nearest code gives at most 0.5;",
        "rounding the result to the checkpoint's own type comes on top, and counts for f16 and bf16.",
        "Seconds: in skuda.quantize_*, without transfers and compilation.",
    ]
    broken = [entry for entry in reports[0].entries if entry.loss and entry.loss.not_finite]
    if broken:
        count = sum(entry.loss.not_finite for entry in broken)
        names = ", ".join(entry.name for entry in broken[:3]) + (", ..." if len(broken) > 3 else "")
        lines.append(
            f"warning: {count} values are NaN or infinite, in {names}. NaN took the code of 0, "
            "an infinity the outermost code; SNR and worst error leave them out."
        )
    return lines


def lost(entries: Sequence[Entry]) -> Loss:
    """What several tensors lost together."""
    return reduce(add, (entry.loss for entry in entries if entry.loss), Loss())


def unit_of(count: int) -> str:
    """The largest unit of bytes that a count fills."""
    return max((unit for unit, size in _UNITS.items() if size <= max(count, 1)), key=_UNITS.__getitem__)


def in_unit(count: int, unit: str) -> str:
    """A count of bytes in a unit, without its name: `90.86`."""
    return str(count) if unit == "B" else f"{count / _UNITS[unit]:.2f}"


def size_text(count: int) -> str:
    """Bytes for people: `384 B`, `61.44 kB`, `90.86 MB`."""
    unit = unit_of(count)
    return f"{in_unit(count, unit)} {unit}"


def _cells(entries: Sequence[Entry], unit: str) -> tuple[str, ...]:
    before, after = sum(entry.bytes_before for entry in entries), sum(entry.bytes_after for entry in entries)
    sizes = (str(len(entries)), in_unit(before, unit), in_unit(after, unit))
    if not any(entry.loss for entry in entries):
        return (*sizes, "-", "-", "-")
    total = lost(entries)
    snr = "-" if math.isnan(total.snr) else "exact" if math.isinf(total.snr) else f"{total.snr:.1f}"
    return (*sizes, snr, f"{total.worst:.3f}", f"{sum(entry.seconds for entry in entries):.3f}")
