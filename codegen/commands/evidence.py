"""What has been verified on which GPU: evidence/*.json beside the sources, written by a run on that GPU.

A file names its GPU ("gpu") and the hash of each CUDA source that was verified ("sources"). A source that has
changed since counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path

from skuda.dispatch import Catalog
from skuda.operation import Operation


def evidence_of(catalog: Catalog, operation: Operation) -> str:
    """One line: the GPUs on which the kernels of an operation were verified as they are now.

    Args:
        catalog: where the operation is from.
        operation: either direction; both are in one source.
    """
    digest = hashlib.sha256(catalog.source(operation.source).encode()).hexdigest()
    folder = Path(str(resources.files(catalog.package))).parent / "evidence"
    gpus = []
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["sources"].get(operation.source) == digest:
            gpus.append(record["gpu"])
    return f"verified on {', '.join(gpus)}" if gpus else "not verified on a GPU"
