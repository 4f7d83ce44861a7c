"""The digests of the machine code of another tree's kernels: what `skuda evidence --carry --from COMMIT` runs.

It runs with the packages of that tree, so it imports by the names that modules had there, and nothing of the tree that
it lies in. It reads from standard input, as JSON: symbols, arch, jobs, and the path of machine_code.py. It writes, as
JSON: the digest of each source, and by symbol that of the machine code, of the kernels that the tree has and compiles.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module, util

# What a module is called now, and what it was called before the runtime had subpackages.
_NAMES = {
    "dispatch": ("skuda.launch.registry", "skuda.dispatch"),
    "cache": ("skuda.launch.cubin_cache", "skuda.cache"),
    "schedules": ("skuda.schedules.table", "skuda.schedules"),
    "evidence": ("skuda.verification.evidence", "skuda.evidence"),
}


def _module(name: str):
    for each in _NAMES[name]:
        try:
            return import_module(each)
        except ImportError:
            continue
    raise ImportError(f"this tree has none of {', '.join(_NAMES[name])}")


def main() -> None:
    asked = json.load(sys.stdin)
    spec = util.spec_from_file_location("machine_code", asked["machine_code"])
    machine_code = util.module_from_spec(spec)
    spec.loader.exec_module(machine_code)
    dispatch, cache, schedules, evidence = map(_module, _NAMES)
    wanted = set(asked["symbols"])
    entries = {sku.symbol: dispatch.entry_of(sku) for sku in dispatch.skus() if sku.symbol in wanted}

    def code(symbol: str) -> str | None:
        entry = entries[symbol]
        source = entry.operation.source
        names = schedules.entries(entry.operation, entry.types, entry.variant)
        text = entry.catalog.source(source)
        try:
            return machine_code.digest([cache.cached_cubin(text, source, name, asked["arch"])[0] for name in names])
        except Exception as error:  # whatever a tree says of a kernel that it cannot compile: it is left out
            print(f"{symbol}: {error}", file=sys.stderr)
            return None

    with ThreadPoolExecutor(asked["jobs"]) as executor:
        codes = dict(zip(entries, executor.map(code, entries), strict=True))
    sources = {}
    for entry in entries.values():
        records = evidence.Records(evidence.package_of(entry.catalog))
        source = entry.operation.source
        sources[source] = sources[source] if source in sources else records.digest(source)
    json.dump({"sources": sources, "codes": {name: each for name, each in codes.items() if each}}, sys.stdout)


if __name__ == "__main__":
    main()
