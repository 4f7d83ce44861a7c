"""What the records in evidence/ say of an operation, in one line."""

from __future__ import annotations

from skuda import dispatch, evidence
from skuda.dispatch import Catalog
from skuda.operation import Operation
from skuda.sku import BackendKind


def evidence_of(catalog: Catalog, operation: Operation) -> str:
    """On which GPUs how many of an operation's kernels gave the reference's bits, by the present source."""
    skus = [
        sku
        for sku in dispatch.skus()
        if (sku.op, sku.direction, sku.backend) == (operation.name, operation.direction, BackendKind.CUDA)
        and dispatch.entry_of(sku).catalog is catalog
    ]
    counts: dict[str, int] = {}
    for sku in skus:
        for gpu in evidence.verified_on(catalog, operation.source, sku):
            counts[gpu] = counts.get(gpu, 0) + 1
    if not counts:
        return "not verified on a GPU"
    return "; ".join(f"{count} of {len(skus)} kernels bit-equal on {gpu}" for gpu, count in counts.items())
