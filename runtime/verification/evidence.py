"""What was verified and measured on which GPU: records that a run on that GPU writes, and that nobody edits.

They lie in evidence/ beside a generated package, or below it where that is installed. gpu-<name>.json is what
`make test-gpu` found: for each source, which kernels gave the reference's bits, when, and with which text of the source
and its headers; which runs there were, and the sources of which all other kernels stand by the rule of
skuda/coverage.py. code-<name>.json has the digests of these kernels' machine code (skuda/machine_code.py); it is not
part of a wheel. bench-<name>.json is what `skuda bench --json` measured, with the kernel that served each row.
elementary-<name>.json is how far functions in common steps were off (tests/gpu/sweep_elementary.py). What a source or
header is now decides what counts: a record of another text says nothing of it, until `skuda evidence --carry` has found
that the machine code is the same. An installed package has summaries in the place of records (skuda/summary.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

from skuda.launch.compiler import OPTIONS, included
from skuda.launch.registry import Catalog, make_sku, source_text
from skuda.model.operation import Operation
from skuda.schedules import table
from skuda.verification import coverage

_RUNS = 64  # that a record names, at most: as many as there are turns of a large catalog


class State(StrEnum):
    """What the records say of a kernel as its source is now."""

    VERIFIED = "verified"
    COVERED = "covered by the rule"
    DIFFERS = "not bit-equal"
    CHANGED = "source changed since"
    NEVER = "never run"


@dataclass(frozen=True)
class Run:
    """When and where kernels were compared with the reference, and with which source.

    Attributes:
        digest: of the source, as `Records.digest` gives it.
        date: as ISO 8601 has it.
        driver: its version, such as "580.65.06".
        cuda: the newest CUDA that it runs, such as "13.0".
        cupy, python: their versions.
        carried: where a later source gave the same machine code, the digest of the source that ran; else empty.
    """

    digest: str
    date: str
    driver: str
    cuda: str
    cupy: str
    python: str
    carried: str = ""


@dataclass(frozen=True)
class Result:
    """What came of it.

    Attributes:
        cases: calls that were compared.
        bit_equal: whether every byte was the reference's, those between elements too.
        worst_ulp: largest distance of an element from the reference's, in steps between neighbours of its type; None
            where there is none, because one of the two is NaN or the kernel did not run.
        finite: elements of float outputs that are finite numbers in the reference, over all calls: NaN against NaN says
            little. None in records of runs that did not count them.
        fewest: whether cases are the fewest of several kernels, as a summary has them.
    """

    cases: int
    bit_equal: bool
    worst_ulp: int | None
    finite: int | None = None
    fewest: bool = False


@dataclass(frozen=True)
class Finding:
    """What one GPU's record says of one kernel."""

    gpu: str
    run: Run
    result: Result


def share(row: Mapping[str, Any]) -> float:
    """Time of the floor over ours, of a row of the bench: of a copy, or of a kernel that only reads where outputs are
    small."""
    return row.get("read_us", row["copy_us"]) / row["ours_us"]


def shown_row(row: Mapping[str, Any]) -> str:
    """Shape, layout and attributes of a row of the bench, as the bench prints them."""
    return f"{row['shape']} {row['variant']}".strip()


@dataclass(frozen=True)
class Covered:
    """That all kernels of a source stand by the rule, as they were found on one GPU at some date."""

    gpu: str
    date: str


@dataclass(frozen=True)
class Share:
    """One row of the bench that a kernel served.

    Attributes:
        gpu: what it was measured on.
        shape: shape, layout and attributes, as the bench prints them.
        share: time of a copy of the same bytes over the kernel's.
    """

    gpu: str
    shape: str
    share: float


@dataclass(frozen=True)
class Bound:
    """How far a function in common steps was off, over all arguments or many.

    Attributes:
        where: what it ran on: a GPU, or the CPU's reference, which has the same bits.
        arguments: how many there were.
        worst_ulp: the largest distance from the exact value, in units in the last place.
        at: the argument, or arguments, where that was, as a hexadecimal number.
        steps_down: how often the function fell where it must rise (or rose where it must fall); None if it may do both.
        wrong: how many NaN, infinities and signs of zero are not what they must be; None if none was looked at.
        digest: of the header that has it, as `header_digest` gives it.
    """

    where: str
    arguments: int
    worst_ulp: float
    at: str
    steps_down: int | None
    wrong: int | None
    digest: str


def header_digest(name: str) -> str:
    """What a device header means: its code, that of the headers that it includes, and the compiler's options."""
    parts = [*map(_code, included(f'#include "{name}"\n').values()), *OPTIONS]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def kernels(operations: Iterable[Operation]) -> dict[str, Operation]:
    """The operation of each CUDA kernel, by symbol."""
    return {
        make_sku(operation, types, variant).symbol: operation
        for operation in operations
        for types in operation.kernel_combinations()
        for variant in table.variants(operation, types)
    }


def families(symbols: Iterable[str]) -> dict[str, list[str]]:
    """The variants of each operation at each choice of types: `quantize_per_token_f16_s8` has vec16, rows16, ..."""
    found: dict[str, list[str]] = {}
    for symbol in symbols:
        family, _, variant = symbol.partition("__")
        found.setdefault(family, []).append(variant)
    return found


def package_of(catalog: Catalog) -> Path:
    """The folder of a generated package."""
    return Path(str(resources.files(catalog.package)))


def _code(text: str) -> str:
    """A text without the lines that are comments, such as the one that says what it was generated from."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("//"))


class Records:
    """The records of one catalog; read once.

    Args:
        package: the folder of the generated package.
    """

    def __init__(self, package: Path):
        self._package = package
        beside, inside = package.parent / "evidence", package / "evidence"
        self.folder = inside if inside.is_dir() and not beside.is_dir() else beside
        self._digests: dict[str, str | None] = {}
        self._findings: dict[str, dict[str, list[Finding]]] = {}

    def digest(self, source: str) -> str | None:
        """What a CUDA source means: its code, its headers' and the compiler's options. None if it is not there."""
        if source not in self._digests:
            try:
                text = source_text(self._package, source)
            except FileNotFoundError:
                self._digests[source] = None
            else:
                parts = [*map(_code, (text, *included(text).values())), *OPTIONS]
                self._digests[source] = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return self._digests[source]

    def path(self, kind: str, gpu: str) -> Path:
        """Where the record of a GPU is, without the suffix: `evidence/bench-nvidia-h200`."""
        return self.folder / f"{kind}-{re.sub(r'[^a-z0-9]+', '-', gpu.lower()).strip('-')}"

    @cached_property
    def verified(self) -> list[dict[str, Any]]:
        """Every record of `make test-gpu`, in the order of the files' names."""
        return list(self._read("gpu-*.json"))

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
        """What was found with the source as it is now."""
        return [each for each in self.findings(source, symbol) if self._is_now(source, each.run.digest)]

    def _is_now(self, source: str, digest: str) -> bool:
        """Whether a digest, which may be cut, is that of a source as it is."""
        return (self.digest(source) or "none").startswith(digest)

    def shares(self, source: str, symbol: str) -> list[Share]:
        """The rows of the bench that a kernel served with its source as it is now, in the order of the bench."""
        return [
            share for record, share in self._shares.get(symbol, ()) if self._is_now(source, record["sources"][source])
        ]

    def state(self, source: str, symbol: str) -> State:
        """What all records together say: a difference on one GPU outweighs what others say."""
        current = self.current(source, symbol)
        if current:
            return State.VERIFIED if all(each.result.bit_equal for each in current) else State.DIFFERS
        if self.covered(source):
            return State.COVERED
        return State.CHANGED if self.findings(source, symbol) else State.NEVER

    def covered(self, source: str) -> list[Covered]:
        """Where all kernels of a source as it is now stand by the rule."""
        found = []
        for record in self.verified:
            each = record.get("covered", {}).get(source)
            if each and self._is_now(source, each["digest"]):
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
        record["covered"] = self._covered(every, found, old.get("covered", {}), run["date"])
        record["sources"] = self._written({symbol: found[symbol] for symbol in sorted(found.keys() & sources)}, sources)
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
        record["covered"] = self._covered(every, found, record.get("covered", {}), today)
        record["sources"] = self._written(dict(sorted(found.items())), sources)
        self._write(path, record)
        return len(chosen)

    def _covered(
        self,
        every: Iterable[coverage.Candidate],
        found: Mapping[str, tuple[Run, Result]],
        before: Mapping[str, Mapping[str, str]],
        date: str,
    ) -> dict[str, dict[str, str]]:
        """The sources of which each kernel gave the reference's bits or stands by the rule: digest, and since when."""
        every = list(every)
        equal = {
            kernel.symbol: found[kernel.symbol][1].bit_equal
            for kernel in every
            if kernel.symbol in found and found[kernel.symbol][0].digest == self.digest(kernel.operation.source)
        }
        good = coverage.standing(every, equal) | {symbol for symbol, same in equal.items() if same}
        left = {kernel.operation.source for kernel in every if kernel.symbol not in good}
        covered = {}
        for source in sorted({kernel.operation.source for kernel in every}):
            digest, old = self.digest(source), before.get(source)
            known = old is not None and old["digest"] == digest
            if source not in left and not known:
                covered[source] = {"digest": digest, "date": date}
            elif old is not None and (source not in left or not known):
                covered[source] = dict(old)
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
                    **_counts({symbol: found[symbol][1].finite for symbol in symbols}),
                }
                for (run, result), symbols in by_source[source].items()
            ]
            for source in sorted(by_source)
        }

    def _write(self, path: Path, record: Mapping[str, Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _counts(finite: Mapping[str, int | None]) -> dict[str, dict[str, str]]:
    """The finite elements of kernels as a record has them, in the order of its kernels; `-` where none were counted."""
    if all(count is None for count in finite.values()):
        return {}
    return {
        "finite": {
            family: " ".join("-" if (count := finite[f"{family}__{variant}"]) is None else str(count) for variant in of)
            for family, of in families(finite).items()
        }
    }


def statements(record: Mapping[str, Any]) -> Iterator[tuple[str, str, Run, Result]]:
    """What a record of `make test-gpu` or its summary says: source, symbol, run, result."""
    for source, listed in record["sources"].items():
        for each in listed:
            run = Run(**{field.name: each[field.name] for field in fields(Run) if field.name in each})
            for alike in each.get("alike", ()):
                result = Result(alike["fewest"], each["bit_equal"], each["worst_ulp"], fewest=True)
                for family in alike["types"].split():
                    for variant in alike["kernels"].split():
                        yield source, f"{family}__{variant}", run, result
            for family, variants in each.get("kernels", {}).items():
                result = Result(each["cases"], each["bit_equal"], each["worst_ulp"])
                counts = each.get("finite", {}).get(family, "").split()
                for variant, count in zip_longest(variants.split(), counts, fillvalue="-"):
                    counted = result if count == "-" else replace(result, finite=int(count))
                    yield source, f"{family}__{variant}", run, counted
