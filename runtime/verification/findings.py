"""What records say, as typed objects: runs, results of kernels, rows of the bench, bounds of functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Any

# Digests of what kernels of each schedule were given, by source and digest of that whole.
Given = Mapping[tuple[str, str], Mapping[str, str]]


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
        digest: of the whole source, as `Records.digest` gives it.
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
    """That all kernels of a source and schedule stand by the rule, as they were found on one GPU at some date."""

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
        digest: of the header that has it, as `texts.header_digest` gives it.
    """

    where: str
    arguments: int
    worst_ulp: float
    at: str
    steps_down: int | None
    wrong: int | None
    digest: str


def families(symbols: Iterable[str]) -> dict[str, list[str]]:
    """The variants of each operation at each choice of types: `quantize_per_token_f16_s8` has vec16, rows16, ..."""
    found: dict[str, list[str]] = {}
    for symbol in symbols:
        family, _, variant = symbol.partition("__")
        found.setdefault(family, []).append(variant)
    return found


def stands(covered: Mapping[str, str], schedule: str) -> bool:
    """Whether what a record says of a covered source is said of the kernels of a schedule."""
    return schedule not in covered.get("left", "").split()


def given_of(record: Mapping[str, Any]) -> Given:
    """What a record says of the texts behind digests."""
    return {
        (source, digest): given_schedules(record, source, digest)
        for source, found in record.get("texts", {}).items()
        for digest in found
    }


def given_schedules(record: Mapping[str, Any], source: str, digest: str) -> dict[str, str]:
    """The same of one of them: by schedule."""
    texts = record.get("texts", {}).get(source, {}).get(digest, "")
    return dict(each.split(":") for each in texts.split())


def counts(finite: Mapping[str, int | None]) -> dict[str, dict[str, str]]:
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
