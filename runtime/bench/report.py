"""A run as text, from what is in its JSON: the table, the targets, the rows that lose, the cost of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from skuda.bench import targets
from skuda.bench.peers import PEERS
from skuda.bench.shapes import SizeClass
from skuda.bench.targets import Row
from skuda.verification.findings import share

_NAMES = [peer.name for peer in PEERS]


def newest(results: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The newest run that measured rows; of one day, that with most of them. None where there is none."""
    measured = [result for result in results if result.get("rows")]
    return max(measured, key=lambda result: (result["machine"]["date"], len(result["rows"])), default=None)


def title(result: Mapping[str, Any]) -> str:
    """What a picture of a run shows."""
    machine, count = result["machine"], len(targets.measured(result["rows"]))
    return f"Share of a copy's speed, {machine['gpu']}, {machine['date']}: {count:,} measurements"


def text(result: Mapping[str, Any]) -> str:
    """The whole report.

    Args:
        result: "machine", "absent" (reason by peer), "rounds", and where measured "rows" and "host".
    """
    machine = result["machine"]
    where = f"{machine['gpu']}, CUDA driver {machine['cuda_driver']}, {machine['date']}"
    lines = [f"{where}; {', '.join(machine['versions'])}"]
    if result.get("rows"):
        absent = result["absent"]
        lines += ["", *_explanation(result), *table(result["rows"], absent)]
        lines += ["", *summary(result["rows"], absent)]
    if result.get("host"):
        lines += ["", *host_table(result["host"])]
    return "\n".join(lines)


def _explanation(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"Median of {result['rounds']} runs, the L2 flushed before each."
    graphs = {row["calls"] for row in result["rows"] if "calls" in row}
    if graphs:
        yield f"  {SizeClass.SMALL}: each run is a graph of {max(graphs)} calls, most of them from the L2."
    yield "share: time of a device copy that moves the same bytes, over ours. Each input and output counts once."
    if any("read_us" in row for row in result["rows"]):
        yield "  r: of reductions to few values, time of a kernel that only reads so many bytes, over ours."
    if any(row["class"] == SizeClass.PER_TENSOR for row in result["rows"]):
        yield "  Dynamic per tensor: the input counts twice where the L2 cannot hold it."
    yield "Peers: their time over ours, above 1 where ours is faster; '-': none, or not measured."


def table(rows: Sequence[Row], absent: Mapping[str, str]) -> Iterator[str]:
    """One line a row, under a heading for each operation."""
    head = f"  {'shape':26} {'dtype':9} {'':9} {'MB':>8} {'us':>10} {'share':>6}"
    for operation, members in groupby(rows, key=lambda row: row["operation"]):
        yield ""
        yield f"{operation:75}" + "".join(f" {name:>13}" for name in _NAMES)
        yield head + "".join(f" {absent.get(name, ''):>13}" for name in _NAMES)
        for row in members:
            start = f"  {row['shape']:26} {row['dtype']:9} {row['variant']:9} {row['bytes'] / 1e6:8.1f}"
            if "ours_us" not in row:
                yield f"{start} {row.get('error') or 'left out: ' + row['left_out']}"
                continue
            cells = "".join(f" {_cell(row, name):>13}" for name in _NAMES)
            mark = "r" if "read_us" in row else ""
            yield f"{start} {row['ours_us']:10.1f} {f'{share(row):.3f}{mark}':>6}{cells}"


def _cell(row: Row, name: str) -> str:
    ratio = targets.speedup(row, name)
    if ratio is not None:
        return f"{ratio:.2f}"
    return row["peers"][name]["error"].partition(":")[0][:13] if name in row["peers"] else "-"


def summary(rows: Sequence[Row], absent: Mapping[str, str]) -> Iterator[str]:
    """The targets: by class of shapes, then against the peers."""
    wanted = f"{'wanted':>7}"
    yield f"{'share of the floor':22} {'rows':>5} {'median':>7} {wanted} {'worst':>7} {wanted} {'below':>6}"
    for each in targets.verdicts(rows):
        worst = describe(each.worst_row)
        yield (
            f"{each.name:22} {each.rows:5} {each.median:7.3f} {each.least_median:7.3f} {each.worst:7.3f} "
            f"{each.least_worst:7.3f} {each.below:6}  {'met' if each.met else 'missed'}; worst: {worst}"
        )
    yield ""
    compared = targets.beside(rows)
    for each in compared:
        wanted = "" if each.least_mean is None else f", wanted {each.least_mean}"
        yield (
            f"{each.peer}: geometric mean of its time over ours {each.mean:.2f}{wanted}; ahead by more than "
            f"{1 - targets.BEHIND:.0%} in {len(each.ahead)} of {each.rows} rows: {'met' if each.met else 'missed'}"
        )
    yield from (f"{name}: {reason}" for name, reason in absent.items())
    ahead = [(ratio, each.peer, row) for each in compared for row, ratio in each.ahead]
    for ratio, peer, row in sorted(ahead, key=lambda each: each[0]):
        yield f"  {ratio:.2f} of ours: {peer}, {describe(row)}"
    failed = [row for row in rows if "error" in row]
    if failed:
        yield f"rows that failed: {len(failed)}"
        yield from (f"  {describe(row)}: {row['error']}" for row in failed)


def describe(row: Row) -> str:
    """A row in words."""
    return " ".join(filter(None, (row["operation"], row["dtype"], row["shape"], row["variant"])))


def host_table(host: Mapping[str, Any]) -> Iterator[str]:
    """What a call costs the host, beside the C launch loop, and the targets."""
    us = host["us"]
    base = us.get(targets.C_LOOP)
    heading = f"host, median of {host['calls']} calls"
    yield f"{heading:40} {'us':>8} {'x C loop':>9}"
    for name, each in us.items():
        yield f"{name:40} {each:8.2f} {f'{each / base:.2f}' if base else '-':>9}"
    for name, reason in host["missing"].items():
        yield f"{name:40} {reason}"
    yield ""
    for name, ratio, most, other, met in targets.host_targets(us):
        yield f"{name}: {ratio:.2f} of {other}, wanted at most {most}: {'met' if met else 'missed'}"
    for name, ms in host["first_call_ms"].items():
        most = targets.FIRST_CALL_MS[name]
        verdict = "met" if ms <= most else "missed"
        text = f"first call of a process, {name}: {ms} ms after import of cupy"
        imports = host["first_call_import_ms"][name]
        yield f"{text}, wanted at most {most}: {verdict}; {imports} of them to import skuda"
