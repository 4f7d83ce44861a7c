"""What tests/growth.py measured, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# What was measured, in words, the unit that it is printed in, and how.
_FIGURES = (
    ("kernels", "CUDA kernels", 1, ",.0f"),
    ("run_kernels", "of them a run on a GPU compares", 1, ",.0f"),
    ("generate_seconds", "`make generate`, s", 1, ".2f"),
    ("unchanged_seconds", "the same with nothing to do, s", 1, ".2f"),
    ("generated_bytes", "`generated/`, MB", 1e6, ".2f"),
    ("wheel_bytes", "its wheel, MB", 1e6, ".2f"),
    ("import_seconds", "import of the catalog, ms", 1e-3, ".1f"),
    ("first_seconds", "first use of one operation, ms", 1e-3, ".1f"),
    ("table_seconds", "the table of all kernels, s", 1, ".2f"),
    ("nvrtc_seconds", "NVRTC, ms a kernel", 1e-3, ".0f"),
)


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: a line for each figure, a column for each catalog.

    Args:
        result: as tests/growth.py writes it.
    """
    catalogs = result["catalogs"]
    yield (
        f"{result['date']}, {result['processors']} processors, Python {result['python']}, {result['arch']}. "
        f"skuda's own wheel: {result['project_wheel_bytes'] / 1e6:.2f} MB."
    )
    yield ""
    yield "| operations | " + " | ".join(f"{each['rows']:,}" for each in catalogs) + " |"
    yield "|---|" + "---:|" * len(catalogs)
    # Older records have fewer.
    measured = [figure for figure in _FIGURES if all(figure[0] in each for each in catalogs)]
    for name, words, unit, shape in measured:
        yield f"| {words} | " + " | ".join(format(each[name] / unit, shape) for each in catalogs) + " |"
