"""The page of each operation: what `skuda generate` wrote, its row, a call that ran, its speed and its evidence."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import charts
import formulas

import examples
from skuda.bench import targets
from skuda.codegen.commands import summary
from skuda.codegen.commands.catalog import kernels_by_operation
from skuda.codegen.program import Row
from skuda.launch import registry
from skuda.model.sku import Direction, split_symbol
from skuda.verification.evidence import Records
from skuda.verification.findings import statements

_MATH = re.compile(r"```math\n(.*?)\n```", re.DOTALL)
_HEAD = re.compile(r"\A<!--.*?-->\n", re.DOTALL)


def with_formulas(text: str) -> str:
    """A page with its formulas typeset, without the comment of a generated file."""
    return _MATH.sub(lambda found: formulas.block(found[1]), _HEAD.sub("", text))


def _summary() -> Iterator[str]:
    """What `skuda list --summary` prints."""
    catalog = registry.catalogs()[0]
    rows = [[plan.operation for plan in catalog.plans(name)] for name in catalog.modules]
    lines = summary.summary(rows, kernels_by_operation())
    heads = [head.lower() for head in summary.HEADS]
    yield from (f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))
    yield from ("", summary.EXPLANATION)


class OperationPages:
    """Makes the pages.

    Args:
        rows: of the spec.
        records: what ran on GPUs, and how fast.
    """

    def __init__(self, rows: Sequence[Row], records: Records):
        self.rows = rows
        self._records = records
        self._measured: dict[tuple[str, str], list[Mapping]] = defaultdict(list)
        for record in records.measured:
            for row in targets.measured(record.get("rows", ())):
                self._measured[record["machine"]["gpu"], row["operation"]].append(row)
        self._compared: dict[tuple[str, str], list] = defaultdict(list)
        for record in records.verified:
            for _, symbol, run, result in statements(record):
                parts = split_symbol(symbol)
                backward = "_backward" * (parts.direction is Direction.BACKWARD)
                self._compared[record["gpu"], parts.op + backward].append((run, result))

    @property
    def categories(self) -> dict[str, list[Row]]:
        """The rows by category, both in the order of the spec."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.forward.operation.category, []).append(row)
        return found

    def page(self, row: Row, text: str) -> str:
        """The page of a row.

        Args:
            text: what `skuda generate` wrote of it.
        """
        head, *functions = re.split(r"^(?=## `)", text, flags=re.MULTILINE)
        last, _, tail = functions[-1].rpartition("\n\n")
        functions[-1] = last + "\n\n"
        operations = [program.operation for program in row.programs]
        parts = [with_formulas(head), *self._row(row)]
        for operation, function in zip(operations, functions, strict=True):
            parts.append(with_formulas(function))
            if operation.direction is Direction.FORWARD:
                parts.append("### Example\n\nThis call ran while the page was made.\n")
                parts.append(f"```pycon\n{examples.example(operation)}\n```\n")
            parts += self._speed(operation.function)
        parts += ["## Evidence\n", *self._evidence(row), tail]
        return "\n".join(parts).replace("docs/numerics.md", "[the numbers](../../docs/numerics.md)")

    def _row(self, row: Row) -> Iterator[str]:
        source = textwrap.indent(textwrap.dedent(row.source), "    ")
        yield f'??? note "The row of the table"\n\n    ```yaml\n{source}\n    ```\n'

    def _speed(self, function: str) -> Iterator[str]:
        """A picture for each GPU that was measured."""
        for (gpu, name), rows in self._measured.items():
            if name == function:
                yield f"### Speed on {gpu}\n\nShare of the speed of a copy of the same bytes, over the element types.\n"
                yield charts.by_shape(rows) + "\n"

    def _evidence(self, row: Row) -> Iterator[str]:
        """What was compared of its kernels, and how far its elementary functions are off."""
        names = {program.operation.function: program.operation for program in row.programs}
        yield "| function | GPU | kernels compared with the reference | bit-equal | last |\n|---|---|---|---|---|"
        for name in names:
            for (gpu, function), found in self._compared.items():
                if function == name:
                    equal = sum(result.bit_equal for _, result in found)
                    last = max(run.date for run, _ in found)
                    yield f"| `{name}` | {gpu} | {len(found)} | {equal} | {last} |"
        yield ""
        used = set().union(*(node.intrinsics() for p in row.programs for node in p.formulas.values()))
        bounds = {key: each for key, each in sorted(self._records.bounds.items()) if key[0] in used}
        if bounds:
            yield "Distance from the exact value, in units in the last place: the worst that was found.\n"
            yield "| elementary function | type | worst | arguments | on |\n|---|---|---|---|---|"
            for (name, word), each in bounds.items():
                for bound in each:
                    yield f"| `{name}` | {word} | {bound.worst_ulp:.3f} | {bound.arguments:,} | {bound.where} |"
            yield ""

    def index(self) -> str:
        """The operations by category."""
        lines = ["# Operations", ""]
        lines += ["Each page has the formulas, types, rules at NaN, infinities and ties, a call that ran, the speed by"]
        lines += ["shape, and what was compared on which GPU.", "", *_summary(), ""]
        for category, rows in self.categories.items():
            lines += [f"## {category.capitalize()}", "", "| operation | | gradient |", "|---|---|---|"]
            for row in rows:
                gradient = "yes" if row.backward else "-"
                lines.append(f"| [`{row.name}`]({row.name}.md) | {row.doc} | {gradient} |")
            lines.append("")
        return "\n".join(lines)
