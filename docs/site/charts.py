"""Small pictures of speed by shape, for the page of an operation: SVG in the page's own colours."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from skuda.bench import targets
from skuda.bench.peers import PEERS
from skuda.verification.findings import share, shown_row

_LABEL, _PLOT, _LINE, _RADIUS = 190, 420, 20, 4.5  # widths, height of a line, radius of a mark
_MARKS = {  # one for each peer, in the order of PEERS: a class of the style sheet and a shape around (0, 0)
    name: (f"peer{index}", shape)
    for index, (name, shape) in enumerate(
        zip(
            (peer.name for peer in PEERS),
            ("M-4-4H4V4H-4Z", "M0-5L5 0L0 5L-5 0Z", "M0-5L5 4H-5Z", "M0 5L5-4H-5Z", "M-5-1H5V1H-5Z"),
            strict=True,
        )
    )
}


def by_shape(rows: Iterable[Mapping]) -> str:
    """Shares of the floor's speed by shape: the range and median over element types, and each peer's median.

    Args:
        rows: of one function, measured.

    Returns:
        A figure in HTML; empty where there are no rows.
    """
    lines: dict[str, list[Mapping]] = {}
    for row in rows:
        lines.setdefault(shown_row(row), []).append(row)
    if not lines:
        return ""
    peers = [name for name in _MARKS if any(targets.speedup(row, name) for each in lines.values() for row in each)]
    shares = [share(row) for each in lines.values() for row in each]
    most = max(1.15, *(each * 1.05 for each in shares))
    height = _LINE * len(lines) + 34
    parts = [_axis(most, height)]
    for index, (shape, members) in enumerate(lines.items()):
        parts.append(_line(shape, members, peers, most, 14 + _LINE * (index + 0.5)))
    width = _LABEL + _PLOT + 20
    legend = "".join(f'<span><i class="{_MARKS[name][0]}"></i>{escape(name)}</span>' for name in peers)
    return (
        f'<figure class="speed" data-search-exclude><div class="scroll"><svg viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="Share of the speed of a copy, by shape">{"".join(parts)}</svg></div>'
        f'<figcaption><span><i class="ours"></i>skuda, median and range</span>{legend}</figcaption></figure>'
    )


def _axis(most: float, height: float) -> str:
    """Vertical lines at quarters of the copy's speed."""
    parts = []
    for quarter in range(5):
        x = _LABEL + _PLOT * quarter / 4 / most
        one = " one" if quarter == 4 else ""
        parts.append(f'<line class="grid{one}" x1="{x:.1f}" x2="{x:.1f}" y1="12" y2="{height - 20}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 6}">{("0", "¼", "½", "¾", "copy")[quarter]}</text>')
    return "".join(parts)


def _line(shape: str, rows: Sequence[Mapping], peers: Sequence[str], most: float, y: float) -> str:
    def at(value: float) -> str:
        return f"{_LABEL + _PLOT * value / most:.1f}"

    shares = [share(row) for row in rows]
    parts = [f'<text class="name" x="{_LABEL - 10}" y="{y + 4}">{escape(shape)}</text>']
    parts.append(f'<line class="range" x1="{at(min(shares))}" x2="{at(max(shares))}" y1="{y}" y2="{y}"/>')
    for name in peers:
        found = [share(row) / ratio for row in rows if (ratio := targets.speedup(row, name))]
        if found:
            median = statistics.median(found)
            kind, path = _MARKS[name]
            title = f"<title>{escape(name)}: {median:.2f} of the copy's speed</title>"
            parts.append(f'<path class="{kind}" transform="translate({at(median)} {y})" d="{path}">{title}</path>')
    median = statistics.median(shares)
    title = f"<title>skuda: {median:.2f} of the copy's speed; {min(shares):.2f} to {max(shares):.2f}</title>"
    parts.append(f'<circle class="ours" cx="{at(median)}" cy="{y}" r="{_RADIUS}">{title}</circle>')
    return "".join(parts)
