"""What a wheel takes along of the records: what `show` and `check` say of kernels, without how it was found.

`skuda evidence` writes a summary of each record into evidence/summary/, under the record's own name; an installed
package has these in the place of the records, and reads them as such. Of kernels that one run found alike, a summary
has the fewest calls. Of the bench it has the share of the copy's speed to two digits, as `show` prints it, and neither
times nor peers. Digests are cut: they tell texts of one source apart, and guard against nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from skuda.verification.evidence import Records
from skuda.verification.findings import Result, families, given_schedules, share, shown_row, stands, statements
from skuda.verification.texts import schedule_of, source_of

FOLDER = "summary"
_DIGITS = 16  # of a digest
_OF_RUN = ("date", "driver", "cuda", "cupy", "python", "carried")


def texts(records: Records) -> dict[str, str]:
    """The summary of each record, by the path of its file below the folder of the records."""
    made = [("gpu", each["gpu"], of_run(each, records)) for each in records.verified]
    measured = [each for each in records.measured if each.get("rows")]
    made += [("bench", each["machine"]["gpu"], of_bench(each, records)) for each in measured]
    return {
        f"{FOLDER}/{records.path(kind, gpu).name}.json": json.dumps(summary, indent=1) + "\n"
        for kind, gpu, summary in made
    }


def of_run(record: Mapping[str, Any], records: Records) -> dict[str, Any]:
    """The summary of a record of `make test-gpu`. Where the compiler is given now what it was then, it has the digests
    of sources as they are. What ran with another text is left out where all of a source stands by the rule now, on
    this GPU or on another, or where kernels of its source have run on a later day.
    """
    covered = _all_covered(record, records)
    whole = set().union(*(_standing(_all_covered(each, records), records) for each in records.verified))
    alike: dict[str, dict[tuple, dict[str, Any]]] = {}
    last: dict[str, str] = {}
    for source, _, run, _ in statements(record):
        last[source] = max(last.get(source, ""), run.date)
    for source, symbol, run, result in statements(record):
        if records.same(source, schedule_of(symbol), run.digest):
            run = replace(run, digest=records.digest(source))
        elif source in whole or run.date < last[source]:
            continue
        key = run, result.bit_equal, result.worst_ulp
        alike.setdefault(source, {}).setdefault(key, {})[symbol] = result
    sources = {
        source: [
            {
                "digest": run.digest[:_DIGITS],
                **{name: value for name in _OF_RUN if (value := getattr(run, name))},
                "bit_equal": bit_equal,
                "worst_ulp": worst_ulp,
                "alike": _alike(results),
            }
            for (run, bit_equal, worst_ulp), results in found.items()
        ]
        for source, found in alike.items()
    }
    kept = {name: each for name, each in record.items() if name != "texts"}
    return {**kept, "covered": covered, "sources": sources}


def _all_covered(record: Mapping[str, Any], records: Records) -> dict[str, dict[str, str]]:
    return {source: _covered(record, records, source) for source in record.get("covered", {})}


def _standing(covered: Mapping[str, Mapping[str, str]], records: Records) -> set[str]:
    """The sources all of whose kernels stand by the rule as they are now."""
    now = {source: (records.digest(source) or "none")[:_DIGITS] for source in covered}
    return {source for source, each in covered.items() if each["digest"] == now[source] and "left" not in each}


def _covered(record: Mapping[str, Any], records: Records, source: str) -> dict[str, str]:
    """What a record says of a covered source, by its digest as it is, where that says something of a schedule yet."""
    found, now = record["covered"][source], records.digest(source)
    schedules = given_schedules(record, source, found["digest"])
    left = [each for each in schedules if not (stands(found, each) and records.same(source, each, found["digest"]))]
    if found["digest"] != now and len(left) < len(schedules):
        found = {"digest": now, "date": found["date"]} | ({"left": " ".join(left)} if left else {})
    return {**found, "digest": found["digest"][:_DIGITS]}


def _alike(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Kernels, those of operations and types together that have the same variants and fewest calls."""
    alike: dict[tuple[int, str], list[str]] = {}
    for family, variants in families(results).items():
        fewest = min(results[f"{family}__{variant}"].cases for variant in variants)
        alike.setdefault((fewest, " ".join(sorted(variants))), []).append(family)
    return [
        {"fewest": fewest, "types": " ".join(of), "kernels": variants} for (fewest, variants), of in alike.items()
    ]


def of_bench(record: Mapping[str, Any], records: Records) -> dict[str, Any]:
    """The summary of a record of the bench: of each kernel the rows that it served, each with its share. A source has
    its digest as it is, if the kernels that served rows are given what they were then."""
    shares: dict[str, dict[str, list[str]]] = {}
    for row in record["rows"]:
        if "ours_us" in row:
            family, _, variant = row["sku"].partition("__")
            shares.setdefault(family, {}).setdefault(variant, []).append(f"{shown_row(row)} {share(row):.2f}")
    changed = {
        source
        for row in record["rows"]
        if "ours_us" in row and (source := source_of(row)) in record["sources"]
        and not records.same(source, schedule_of(row["sku"]), record["sources"][source])
    }  # fmt: skip
    sources = {
        source: (digest if source in changed else records.digest(source) or digest)[:_DIGITS]
        for source, digest in record["sources"].items()
    }
    machine = {"gpu": record["machine"]["gpu"], "date": record["machine"].get("date")}
    joined = {family: {each: ", ".join(of) for each, of in found.items()} for family, found in shares.items()}
    return {"machine": machine, "sources": sources, "shares": joined}
