"""A run in a few lines of Markdown: what README shows of it."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from skuda.bench import targets
from skuda.bench.peers import COMPILE, EAGER
from skuda.bench.suite import Layout, SizeClass
from skuda.bench.targets import Row
from skuda.dtypes import DTYPES

_VIEWS = (SizeClass.ROW_STRIDED, SizeClass.TRANSPOSED)
_COLUMNS = 120
_EVEN = 16  # elements: what a last axis is a multiple of where a shape is not odd


def _odd(row: Row) -> bool:
    """A last axis that no vector divides, or operands one element after an aligned address."""
    extents, _, layout = row["shape"].partition(" ")
    return layout == Layout.MISALIGNED or int(extents.rpartition("x")[2]) % _EVEN != 0


# Groups of rows that a reader asks for; views have targets of their own.
_GROUPS: dict[str, Callable[[Row], bool]] = {
    "large": lambda row: not _odd(row) and row["class"] != SizeClass.SMALL,
    "odd": _odd,
    "small": lambda row: not _odd(row) and row["class"] == SizeClass.SMALL,
}


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Shares of the copy by operation and type, the peers' times, and the targets.

    Args:
        result: as `skuda bench --json` writes it, with rows.
    """
    rows, machine = targets.measured(result["rows"]), result["machine"]
    yield from _wrapped(
        f"{machine['gpu']}, {machine['date']}, {len(rows)} rows, both directions and all granularities. Shares of the "
        "copy's speed: median (worst). torch: its time over ours, geometric mean."
    )
    yield ""
    yield f"| | | {' | '.join(_GROUPS)} | {EAGER} | {COMPILE} |"
    yield "|---|---|" + "---|" * (len(_GROUPS) + 2)
    names = dict.fromkeys(map(targets.family, rows))
    halves = dict.fromkeys(_is_half(row) for row in rows)
    for name, half in product(names, halves):
        members = [row for row in rows if (targets.family(row), _is_half(row)) == (name, half)]
        elements = dict.fromkeys(row["element"] for row in members)
        flat = [row for row in members if row["class"] not in _VIEWS]
        cells = [_shares([row for row in flat if chosen(row)]) for chosen in _GROUPS.values()]
        cells += [_mean(members, peer) for peer in (EAGER, COMPILE)]
        yield f"| {name} | {' '.join(elements)} | {' | '.join(cells)} |"
    yield ""
    yield from _targets(rows)
    yield ""
    yield from _wrapped("; ".join(_other_targets(rows, result.get("host"))) + ".")


def _is_half(row: Row) -> bool:
    """What operations are listed by: half types are mostly bound by arithmetic, wider ones by memory."""
    return DTYPES[row["element"]].bits < 32


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS, break_long_words=False, break_on_hyphens=False)


def _shares(rows: Sequence[Row]) -> str:
    shares = [targets.share(row) for row in rows]
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
    mean, least = targets.compile_mean(rows), targets.COMPILE_SPEEDUP
    if mean:
        elements = " and ".join(targets.COMPILE_ELEMENTS)
        yield f"{COMPILE} takes {mean[0]:.2f} of our time for {elements} ({_verdict(mean[0] >= least, least)})"
    for peer in targets.NEVER_SLOWER_THAN:
        ratios = [ratio for row in rows if (ratio := targets.speedup(row, peer)) is not None]
        if ratios:
            faster = sum(ratio < 1 for ratio in ratios)
            yield f"{peer} is faster in {faster} of {len(ratios)} rows, at best {min(ratios):.2f} of our time"
    if host:
        for name, ratio, most, other, met in targets.host_targets(host["us"]):
            yield f"`{name}` {ratio:.2f} of `{other}` ({_verdict(met, most)})"
        for name, ms in host["first_call_ms"].items():
            most = targets.FIRST_CALL_MS[name]
            yield f"first call, {name}, {ms} ms ({_verdict(ms <= most, most)})"


def _verdict(met: bool, limit: float) -> str:
    return f"wanted {limit}: {'met' if met else 'missed'}"
