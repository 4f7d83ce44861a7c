"""A run in Markdown: a few lines for README, and tables by operation and type."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from skuda.bench import targets
from skuda.bench.peers import COMPILE, EAGER, NATIVE, TRITON
from skuda.bench.shapes import Layout, SizeClass
from skuda.bench.targets import Row
from skuda.model.dtypes import DTYPES
from skuda.verification.findings import share

_COLUMNS = 120
_EVEN = 16  # elements: what a last axis is a multiple of where a shape is not odd


def _odd(row: Row) -> bool:
    """A last axis that no vector divides, or operands one element after an aligned address."""
    extents, _, layout = row["shape"].partition(" ")
    return layout == Layout.MISALIGNED or int(extents.rpartition("x")[2]) % _EVEN != 0


@dataclass(frozen=True)
class _Table:
    """What a table of elementwise operations, or of programs that reduce, shows.

    Attributes:
        groups: rows that a reader asks for.
        apart: classes that are in none of them, which have targets of their own.
        peers: whose times it shows.
    """

    groups: Mapping[str, Callable[[Row], bool]]
    apart: tuple[SizeClass, ...]
    peers: tuple[str, ...]


_ELEMENTWISE = _Table(
    {
        "large": lambda row: not _odd(row) and row["class"] != SizeClass.SMALL,
        "odd": _odd,
        "small": lambda row: not _odd(row) and row["class"] == SizeClass.SMALL,
    },
    (SizeClass.ROW_STRIDED, SizeClass.TRANSPOSED, SizeClass.BROADCAST),
    (EAGER, COMPILE),
)
_FEW_OR_WIDE = (SizeClass.FEW_ROWS, SizeClass.WIDE_ROWS)
_REDUCTIONS = _Table(
    {
        "64 to 16384 wide": lambda row: not _odd(row) and row["class"] not in _FEW_OR_WIDE,
        "odd": lambda row: _odd(row) and row["class"] not in _FEW_OR_WIDE,
        "65536 and wider": lambda row: row["class"] == SizeClass.WIDE_ROWS,
        "few rows": lambda row: row["class"] == SizeClass.FEW_ROWS,
    },
    (SizeClass.COLUMNS, SizeClass.WHOLE, SizeClass.PER_TENSOR),
    (EAGER, NATIVE, COMPILE, TRITON),
)


def brief(result: Mapping[str, Any]) -> Iterator[str]:
    """What README shows: the median share, a line for each peer, and how many classes of shapes meet their target.

    Args:
        result: as `skuda bench --json` writes it, with rows.
    """
    rows, machine = targets.measured(result["rows"]), result["machine"]
    found = targets.verdicts(rows)
    median = statistics.median(map(share, rows))
    yield from _wrapped(
        f"{machine['gpu']}, {machine['date']}: {len(rows):,} measurements, the median at {median:.2f} of a copy's "
        f"speed. Of {len(found)} classes of shapes, {sum(each.median >= each.least_median for each in found)} reach "
        f"their target for the median row, {sum(each.met for each in found)} also for the slowest one."
    )
    yield ""
    behind = f"faster than skuda by more than {1 - targets.BEHIND:.0%} in"
    yield f"| peer | its time / skuda's, geometric mean | {behind} |"
    yield "|---|---|---|"
    for each in targets.beside(rows):
        yield f"| {each.peer} | {each.mean:.2f} | {len(each.ahead)} of {each.rows:,} rows |"


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Shares of the floor by operation and type, the peers' times, and the targets.

    Args:
        result: as `skuda bench --json` writes it, with rows.
    """
    rows, machine = targets.measured(result["rows"]), result["machine"]
    elementwise = [row for row in rows if not targets.reduces(row)]
    reductions = [row for row in rows if targets.reduces(row)]
    if elementwise:
        yield from _wrapped(
            f"{machine['gpu']}, {machine['date']}, {len(elementwise)} rows, both directions and all granularities. "
            "Shares of "
            "the copy's speed: median (worst). torch: its time over ours, geometric mean."
        )
        yield from _part(elementwise, _ELEMENTWISE)
    if elementwise and reductions:
        yield ""
    if reductions:
        yield from _wrapped(
            f"{machine['gpu']}, {machine['date']}, {len(reductions)} rows of programs that reduce. Shares of the "
            "copy's speed; of reductions to few values, of a kernel's that only reads. Peers: their time over ours."
        )
        yield from _part(reductions, _REDUCTIONS)
    if others := [*_other_targets(rows, result.get("host"))]:
        yield ""
        yield from _wrapped("; ".join(others) + ".")


def _part(rows: Sequence[Row], table: _Table) -> Iterator[str]:
    """The table of some rows, and that of their targets."""
    yield ""
    yield f"| | | {' | '.join((*table.groups, *table.peers))} |"
    yield "|---|---|" + "---|" * (len(table.groups) + len(table.peers))
    names = dict.fromkeys(map(targets.family, rows))
    halves = dict.fromkeys(_is_half(row) for row in rows)
    for name, half in product(names, halves):
        members = [row for row in rows if (targets.family(row), _is_half(row)) == (name, half)]
        if not members:
            continue
        elements = dict.fromkeys(row["element"] for row in members)
        flat = [row for row in members if row["class"] not in table.apart]
        cells = [_shares([row for row in flat if chosen(row)]) for chosen in table.groups.values()]
        cells += [_mean(members, peer) for peer in table.peers]
        yield f"| {name} | {' '.join(elements)} | {' | '.join(cells)} |"
    yield ""
    yield from _targets(rows)


def _is_half(row: Row) -> bool:
    """What operations are listed by: half types are mostly bound by arithmetic, wider ones by memory."""
    return DTYPES[row["element"]].bits < 32


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)


def _shares(rows: Sequence[Row]) -> str:
    shares = [share(row) for row in rows]
    return f"{statistics.median(shares):.2f} ({min(shares):.2f})" if shares else "-"


def _mean(rows: Sequence[Row], peer: str) -> str:
    mean = targets.geometric_mean(rows, peer)
    return f"{mean[0]:.2f}" if mean else "-"


def _targets(rows: Sequence[Row]) -> Iterator[str]:
    found = targets.verdicts(rows)
    yield f"| target | {' | '.join(each.name for each in found)} |"
    yield "|---|" + "---|" * len(found)
    yield f"| wanted | {' | '.join(f'{each.least_median:.2f} ({each.least_worst:.2f})' for each in found)} |"
    yield f"| measured | {' | '.join(f'{each.median:.2f} ({each.worst:.2f})' for each in found)} |"
    verdicts = ("met" if each.met else f"missed, {each.below} of {each.rows} below" for each in found)
    yield f"| verdict | {' | '.join(verdicts)} |"


def _other_targets(rows: Sequence[Row], host: Mapping[str, Any] | None) -> Iterator[str]:
    for each in targets.beside(rows):
        wanted = "" if each.least_mean is None else f" ({_verdict(each.mean >= each.least_mean, each.least_mean)})"
        yield (
            f"{each.peer} takes {each.mean:.2f} of our time{wanted}, is ahead by more than {1 - targets.BEHIND:.0%} in "
            f"{len(each.ahead)} of {each.rows} rows, at best {each.best:.2f} of our time"
        )
    if host:
        for name, ratio, most, other, met in targets.host_targets(host["us"]):
            yield f"`{name}` {ratio:.2f} of `{other}` ({_verdict(met, most)})"
        for name, ms in host["first_call_ms"].items():
            most = targets.FIRST_CALL_MS[name]
            yield f"first call, {name}, {ms} ms ({_verdict(ms <= most, most)})"


def _verdict(met: bool, limit: float) -> str:
    return f"wanted {limit}: {'met' if met else 'missed'}"
