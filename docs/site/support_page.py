"""GPUs, drivers and versions: what the records, the tuning and the project's metadata say."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from skuda.schedules.tuning import TUNINGS
from skuda.verification.evidence import Records
from skuda.verification.findings import statements


def section(repository: Path, records: Records) -> str:
    """The tables, in Markdown."""
    return "\n".join([*_gpus(records), "", *_measured(records), "", *_packages(repository), ""])


def _gpus(records: Records) -> Iterator[str]:
    tuned = ", ".join(f"sm_{number}" for number in TUNINGS)
    yield "## GPUs that kernels ran on\n"
    yield "| GPU | driver | CUDA | kernels compared | bit-equal | last run |\n|---|---|---|---|---|---|"
    for record in records.verified:
        found = list(statements(record))
        drivers = sorted({run.driver for _, _, run, _ in found})
        cudas = sorted({run.cuda for _, _, run, _ in found})
        equal = sum(result.bit_equal for *_, result in found)
        last = max(run.date for _, _, run, _ in found)
        yield (f"| {record['gpu']} | {', '.join(drivers)} | {', '.join(cudas)} | {len(found):,} | {equal:,} | {last} |")
    yield f"\nTuned for: {tuned}. Another GPU takes the sizes of its nearest neighbour in this list, and gives the same"
    yield "bits."


def _measured(records: Records) -> Iterator[str]:
    yield "## What the bench ran beside\n"
    yield "| GPU | date | versions |\n|---|---|---|"
    for record in records.measured:
        machine = record["machine"]
        yield f"| {machine['gpu']} | {machine['date']} | {', '.join(machine['versions'])} |"


def _packages(repository: Path) -> Iterator[str]:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    yield "## Packages\n"
    yield f"Python {project['requires-python']}. `pip install skuda` needs {_listed(project['dependencies'])}.\n"
    yield "| extra | brings |\n|---|---|"
    for name, packages in sorted(project["optional-dependencies"].items()):
        yield f"| `{name}` | {_listed(packages)} |"


def _listed(packages: list[str]) -> str:
    return ", ".join(f"`{each}`" for each in packages)
