"""What has been verified on which GPU: records that a run on that GPU writes, and that nobody edits.

A record is evidence/<gpu>.json beside the sources: the GPU, the driver, the date, the digest of each CUDA
source with the headers it was compiled with, and for each SKU how many calls were compared with the
reference, bit by bit. What has changed since counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

from skuda.compile import OPTIONS, headers
from skuda.dispatch import Catalog
from skuda.sku import KernelSku


def digest(catalog: Catalog, source: str) -> str:
    """What a CUDA source of a catalog means: its text, the headers' and the compiler's options."""
    parts = [catalog.source(source), *headers().values(), *OPTIONS]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def folder(catalog: Catalog) -> Path:
    """Where the records of a catalog are kept: evidence/ beside the generated package."""
    return Path(str(resources.files(catalog.package))).parent / "evidence"


def records(catalog: Catalog) -> list[dict[str, Any]]:
    """Every record, in the order of the files' names."""
    return [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder(catalog).glob("gpu-*.json"))
    ]


def verified_on(catalog: Catalog, source: str, sku: KernelSku) -> list[str]:
    """The GPUs on which this kernel gave the reference's bits, with its source as it is now."""
    now = digest(catalog, source)
    return [
        record["gpu"]
        for record in records(catalog)
        if record["sources"].get(source) == now and record["skus"].get(sku.symbol, {}).get("bit_equal")
    ]


def write(catalog: Catalog, machine: dict[str, str], skus: dict[str, dict[str, Any]]) -> Path:
    """Writes the record of a run: replaces the one of the same GPU.

    Args:
        catalog: what was run.
        machine: "gpu", "driver", "date", and versions, as they are to be printed.
        skus: by symbol, "cases" and "bit_equal".
    """
    sources = {row.source: digest(catalog, row.source) for row in catalog.operations}
    record = {**machine, "sources": sources, "skus": dict(sorted(skus.items()))}
    name = re.sub(r"[^a-z0-9]+", "-", machine["gpu"].lower()).strip("-")
    path = folder(catalog) / f"gpu-{name}.json"
    path.parent.mkdir(exist_ok=True)
    lines = [f"    {json.dumps(symbol)}: {json.dumps(result)}" for symbol, result in record["skus"].items()]
    head = json.dumps({**record, "skus": {}}, indent=2).removesuffix('"skus": {}\n}')
    path.write_text(head + '"skus": {\n' + ",\n".join(lines) + "\n  }\n}\n", encoding="utf-8")
    return path
