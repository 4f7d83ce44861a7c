"""What a wheel takes along of the records: what `show` and `check` say of kernels, without how it was found.

`skuda evidence` writes a summary of each record into evidence/summary/, under the record's own name; an installed
package has these in the place of the records, and reads them as such. Of kernels that one run found alike, a summary
has the fewest calls. Of the bench it has the share of the copy's speed to two digits, as `show` prints it, and neither
times nor peers. Digests are cut: they tell texts of one source apart, and guard against nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from skuda.verification.evidence import Records, Result, families, share, shown_row, statements

FOLDER = "summary"
_DIGITS = 16  # of a digest
_OF_RUN = ("date", "driver", "cuda", "cupy", "python", "carried")


def texts(records: Records) -> dict[str, str]:
    """The summary of each record, by the path of its file below the folder of the records."""
    made = [("gpu", each["gpu"], of_run(each, records.digest)) for each in records.verified]
    made += [("bench", each["machine"]["gpu"], of_bench(each)) for each in records.measured if each.get("rows")]
    return {
        f"{FOLDER}/{records.path(kind, gpu).name}.json": json.dumps(summary, indent=1) + "\n"
        for kind, gpu, summary in made
    }


def of_run(record: Mapping[str, Any], digest: Callable[[str], str | None]) -> dict[str, Any]:
    """The summary of a record of `make test-gpu`. What ran before a source changed is left out where all of the source
    stands by the rule now.

    Args:
        digest: of a source as it is.
    """
    alike: dict[str, dict[tuple, dict[str, Any]]] = {}
    by_rule = {source for source, each in record.get("covered", {}).items() if each["digest"] == digest(source)}
    for source, symbol, run, result in statements(record):
        if source in by_rule and run.digest != digest(source):
            continue
        key = run, result.bit_equal, result.worst_ulp
        alike.setdefault(source, {}).setdefault(key, {})[symbol] = result
    covered = record.get("covered", {}).items()
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
    cut = {source: {**each, "digest": each["digest"][:_DIGITS]} for source, each in covered}
    return {**record, "covered": cut, "sources": sources}


def _alike(results: Mapping[str, Result]) -> list[dict[str, Any]]:
    """Kernels, those of operations and types together that have the same variants and fewest calls."""
    alike: dict[tuple[int, str], list[str]] = {}
    for family, variants in families(results).items():
        fewest = min(results[f"{family}__{variant}"].cases for variant in variants)
        alike.setdefault((fewest, " ".join(sorted(variants))), []).append(family)
    return [
        {"fewest": fewest, "types": " ".join(of), "kernels": variants} for (fewest, variants), of in alike.items()
    ]


def of_bench(record: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a record of the bench: of each kernel the rows that it served, each with its share."""
    shares: dict[str, dict[str, list[str]]] = {}
    for row in record["rows"]:
        if "ours_us" in row:
            family, _, variant = row["sku"].partition("__")
            shares.setdefault(family, {}).setdefault(variant, []).append(f"{shown_row(row)} {share(row):.2f}")
    sources = {source: digest[:_DIGITS] for source, digest in record["sources"].items()}
    machine = {"gpu": record["machine"]["gpu"], "date": record["machine"].get("date")}
    joined = {family: {each: ", ".join(of) for each, of in found.items()} for family, found in shares.items()}
    return {"machine": machine, "sources": sources, "shares": joined}
