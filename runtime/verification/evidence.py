"""What was verified and measured on which GPU: records that a run on that GPU writes, and that nobody edits.

They lie in evidence/ beside a generated package, or below it where that is installed. gpu-<name>.json is what
`make test-gpu` found: for each source, which kernels gave the reference's bits, when, and with which text of the source
and its headers; which runs there were; and where other kernels stand by the rule of `coverage`. code-<name>.json has
the digests of these kernels' machine code (`machine_code`); it is not part of a wheel. bench-<name>.json is what `skuda
bench --json` measured, with the kernel that served each row. elementary-<name>.json is how far functions in common
steps were off (tests/gpu/sweep_elementary.py). What a compiler is given for a kernel now decides what counts (`texts`):
a record of another text says nothing of it, until `skuda evidence --carry` has found that the machine code is the same.
An installed package has summaries in the place of records (`summary`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from skuda.launch.registry import Catalog, make_sku
from skuda.model.operation import Operation
from skuda.schedules import table
from skuda.verification import coverage
from skuda.verification.findings import (
    Bound,
    Covered,
    Finding,
    Given,
    Result,
    Run,
    Share,
    State,
    counts,
    families,
    given_of,
    share,
    shown_row,
    stands,
    statements,
)
from skuda.verification.texts import Texts, schedule_of

_RUNS = 64  # that a record names, at most


def kernels(operations: Iterable[Operation]) -> dict[str, Operation]:
    """The operation of each CUDA kernel, by symbol."""
    return {
        make_sku(operation, types, variant).symbol: operation
        for operation in operations
        for types in operation.kernel_combinations()
        for variant in table.variants(operation, types)
    }


def package_of(catalog: Catalog) -> Path:
    """The folder of a generated package."""
    return Path(str(resources.files(catalog.package)))


class Records:
    """The records of one catalog; read once.

    Args:
        package: the folder of the generated package.
    """

    def __init__(self, package: Path):
        self._package = package
        beside, inside = package.parent / "evidence", package / "evidence"
        self.folder = inside if inside.is_dir() and not beside.is_dir() else beside
        self._texts = Texts(package)
        self._findings: dict[str, dict[str, list[Finding]]] = {}

    def digest(self, source: str) -> str | None:
        """What a CUDA source means, whole. None if it is not there."""
        return self._texts.whole(source)

    def same(self, source: str, schedule: str, digest: str, known: Given | None = None) -> bool:
        """Whether kernels of a schedule are compiled from what they were when their source had a digest, maybe cut.

        Args:
            known: of digests; those of the records, if None.
        """
        now = self.digest(source)
        if now is None or now.startswith(digest):
            return now is not None
        then = (self._given if known is None else known).get((source, digest), {}).get(schedule)
        return then is not None and then == self._texts.given(source, schedule)

    def path(self, kind: str, gpu: str) -> Path:
        """Where the record of a GPU is, without the suffix: `evidence/bench-nvidia-h200`."""
        return self.folder / f"{kind}-{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}"

    @cached_property
    def verified(self) -> list[dict[str, Any]]:
        """Every record of `make test-gpu`, in the order of the files' names."""
        return list(self._read("gpu-*.json"))

    @cached_property
    def _given(self) -> Given:
        return {key: texts for record in self.verified for key, texts in given_of(record).items()}

    @cached_property
    def measured(self) -> list[dict[str, Any]]:
        """Every record of `skuda bench`, in the order of the files' names."""
        return list(self._read("bench-*.json"))

    @cached_property
    def growth(self) -> dict[str, Any] | None:
        """What tests/growth.py measured, if it has been run."""
        return next(self._read("growth.json"), None)

    @cached_property
    def bounds(self) -> dict[tuple[str, str], list[Bound]]:
        """By function and compute type what tests/gpu/sweep_elementary.py found, whatever the steps were then."""
        found: dict[tuple[str, str], list[Bound]] = {}
        for record in self._read("elementary-*.json"):
            for name, by_type in record["functions"].items():
                for word, each in by_type.items():
                    found.setdefault((name, word), []).append(Bound(where=record["where"], **each))
        return found

    def _read(self, pattern: str) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob(pattern)):
            yield json.loads(path.read_text(encoding="utf-8"))

    def _findings_of(self, source: str) -> dict[str, list[Finding]]:
        """By symbol, of one source; made when it is first asked for."""
        if source not in self._findings:
            found = self._findings[source] = {}
            for record in self.verified:
                own = {"sources": {source: record["sources"].get(source, [])}}
                for _, symbol, run, result in statements(own):
                    found.setdefault(symbol, []).append(Finding(record["gpu"], run, result))
        return self._findings[source]

    @cached_property
    def _shares(self) -> dict[str, list[tuple[dict[str, Any], Share]]]:
        """By symbol: the rows of the bench that it served, each after its record."""
        found: dict[str, list[tuple[dict[str, Any], Share]]] = {}
        for record in self.measured:
            gpu = record["machine"]["gpu"]
            for row in record.get("rows", ()):
                if "ours_us" in row:
                    found.setdefault(row.get("sku"), []).append((record, Share(gpu, shown_row(row), share(row))))
            for family, variants in record.get("shares", {}).items():
                for variant, rows in variants.items():
                    for row in rows.split(", "):
                        shape, _, each = row.rpartition(" ")
                        found.setdefault(f"{family}__{variant}", []).append((record, Share(gpu, shape, float(each))))
        return found

    def findings(self, source: str, symbol: str) -> list[Finding]:
        """What each GPU's record says of a kernel, whatever its source was then."""
        return self._findings_of(source).get(symbol, [])

    def current(self, source: str, symbol: str) -> list[Finding]:
        """What was found with what the compiler is given now."""
        schedule = schedule_of(symbol)
        return [each for each in self.findings(source, symbol) if self.same(source, schedule, each.run.digest)]

    def shares(self, source: str, symbol: str) -> list[Share]:
        """The rows of the bench that a kernel served as it is compiled now, in the order of the bench."""
        rows, schedule = self._shares.get(symbol, ()), schedule_of(symbol)
        return [share for record, share in rows if self.same(source, schedule, record["sources"][source])]

    def state(self, source: str, symbol: str) -> State:
        """What all records together say: a difference on one GPU outweighs what others say."""
        current = self.current(source, symbol)
        if current:
            return State.VERIFIED if all(each.result.bit_equal for each in current) else State.DIFFERS
        if self.covered(source, symbol):
            return State.COVERED
        return State.CHANGED if self.findings(source, symbol) else State.NEVER

    def covered(self, source: str, symbol: str) -> list[Covered]:
        """Where a kernel stands by the rule, with all others of its schedule in that source, as they are now."""
        found, schedule = [], schedule_of(symbol)
        for record in self.verified:
            each = record.get("covered", {}).get(source)
            if each and stands(each, schedule) and self.same(source, schedule, each["digest"]):
                found.append(Covered(record["gpu"], each["date"]))
        return found

    def unverified(self, wanted: Mapping[str, Operation]) -> list[str]:
        """Of some `kernels` those that did not run as they are and do not stand by the rule, or that differed."""
        good = State.VERIFIED, State.COVERED
        return [symbol for symbol, each in wanted.items() if self.state(each.source, symbol) not in good]

    def merge(
        self,
        catalog: Catalog,
        machine: Mapping[str, str],
        results: Mapping[str, Result],
        selection: Mapping[str, Any] | None = None,
    ) -> Path:
        """Writes what a run found into the record of its GPU; what that says of other kernels of the catalog stays.

        Args:
            catalog: what was run.
            machine: "gpu", and the fields of `Run` but the digest.
            results: by symbol.
            selection: what the run took, where it was not chosen by hand: commit, turn, turns.

        Returns:
            The record's path.
        """
        every = list(coverage.candidates(catalog.operations))
        sources = {kernel.symbol: kernel.operation.source for kernel in every}
        run = {name: value for name, value in machine.items() if name != "gpu"}
        path = self.path("gpu", machine["gpu"]).with_suffix(".json")
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"sources": {}}
        found: dict[str, tuple[Run, Result]] = {}
        for _, symbol, *statement in statements(old):
            found[symbol] = tuple(statement)
        for symbol, result in results.items():
            found[symbol] = Run(self.digest(sources[symbol]), **run), result
        runs = old.get("runs", [])
        if selection is not None:
            equal = sum(result.bit_equal for result in results.values())
            runs = [*runs, {"date": run["date"], **selection, "kernels": len(results), "bit_equal": equal}]
        record = {"gpu": machine["gpu"], "rule": coverage.RULE, "runs": runs[-_RUNS:]}
        left = {symbol: found[symbol] for symbol in sorted(found.keys() & sources)}
        record |= self._said(every, left, old, run["date"])
        self._write(path, record)
        return path

    def carry(self, catalog: Catalog, gpu: str, symbols: Iterable[str], today: str) -> int:
        """Says of kernels whose machine code is what ran on a GPU that what was found holds for their sources now.

        Returns:
            How many there are.
        """
        every = list(coverage.candidates(catalog.operations))
        sources = {kernel.symbol: kernel.operation.source for kernel in every}
        path = self.path("gpu", gpu).with_suffix(".json")
        record = json.loads(path.read_text(encoding="utf-8"))
        found = {symbol: (run, result) for _, symbol, run, result in statements(record) if symbol in sources}
        chosen = [symbol for symbol in symbols if symbol in found]
        for symbol in chosen:
            run, result = found[symbol]
            found[symbol] = replace(run, digest=self.digest(sources[symbol]), carried=run.carried or run.digest), result
        record |= self._said(every, dict(sorted(found.items())), dict(record), today)
        self._write(path, record)
        return len(chosen)

    def _said(
        self,
        every: Iterable[coverage.Candidate],
        found: Mapping[str, tuple[Run, Result]],
        old: Mapping[str, Any],
        date: str,
    ) -> dict[str, Any]:
        """What a record says of kernels: which are covered, what was found, and of what texts the digests are."""
        every, given = list(every), given_of(old)
        covered = self._covered(every, found, old.get("covered", {}), given, date)
        sources = {kernel.symbol: kernel.operation.source for kernel in every}
        digests = {(sources[symbol], run.digest) for symbol, (run, _) in found.items()}
        digests |= {(source, each["digest"]) for source, each in covered.items()}
        digests |= {each for record in self.measured for each in record.get("sources", {}).items()}
        schedules: dict[str, dict[str, None]] = {}
        for symbol, source in sources.items():
            schedules.setdefault(source, {})[schedule_of(symbol)] = None
        texts: dict[str, dict[str, str]] = {}
        for source, digest in sorted(digests):
            own = given.get((source, digest), {})
            if digest == self.digest(source) and source in schedules:
                own = {each: self._texts.given(source, each) for each in sorted(schedules[source])}
            if own:
                texts.setdefault(source, {})[digest] = " ".join(f"{each}:{text}" for each, text in own.items())
        return {"covered": covered, "texts": texts, "sources": self._written(found, sources)}

    def _covered(
        self,
        every: Iterable[coverage.Candidate],
        found: Mapping[str, tuple[Run, Result]],
        before: Mapping[str, Mapping[str, str]],
        given: Given,
        date: str,
    ) -> dict[str, dict[str, str]]:
        """The sources of which kernels gave the reference's bits or stand by the rule: digest, since when, and the
        schedules some kernel of which does neither."""
        equal = {
            kernel.symbol: found[kernel.symbol][1].bit_equal
            for kernel in every
            if kernel.symbol in found
            and self.same(kernel.operation.source, schedule_of(kernel.symbol), found[kernel.symbol][0].digest, given)
        }
        good = coverage.standing(every, equal) | {symbol for symbol, same in equal.items() if same}
        kernels: dict[str, dict[str, list[str]]] = {}
        for kernel in every:
            of = kernels.setdefault(kernel.operation.source, {})
            of.setdefault(schedule_of(kernel.symbol), []).append(kernel.symbol)
        covered = {}
        for source, schedules in sorted(kernels.items()):
            left = [schedule for schedule, symbols in schedules.items() if not good.issuperset(symbols)]
            now = {"digest": self.digest(source), "date": date} | ({"left": " ".join(left)} if left else {})
            old = before.get(source)
            if len(left) < len(schedules):
                covered[source] = dict(old) if old and {**old, "date": date} == now else now
            elif old and not any(self.same(source, each, old["digest"], given) for each in schedules):
                covered[source] = dict(old)  # of another text, which may come back
        return covered

    @staticmethod
    def _written(found: Mapping[str, tuple[Run, Result]], sources: Mapping[str, str]) -> dict[str, list[dict]]:
        """What was found by symbol, as a record has it."""
        by_source: dict[str, dict[tuple[Run, Result], list[str]]] = {}
        for symbol, (run, result) in found.items():
            alike = run, replace(result, finite=None)  # each kernel has a count of its own
            by_source.setdefault(sources[symbol], {}).setdefault(alike, []).append(symbol)
        return {
            source: [
                {
                    **{name: value for name, value in vars(run).items() if value or name != "carried"},
                    **{name: getattr(result, name) for name in ("cases", "bit_equal", "worst_ulp")},
                    "kernels": {family: " ".join(of) for family, of in families(symbols).items()},
                    **counts({symbol: found[symbol][1].finite for symbol in symbols}),
                }
                for (run, result), symbols in by_source[source].items()
            ]
            for source in sorted(by_source)
        }

    def _write(self, path: Path, record: Mapping[str, Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
