"""Rows of the bench for its tests: of the suite, operands for them, and results as a run gives them."""

from __future__ import annotations

import numpy as np

from skuda.bench import suite
from skuda.bench.suite import Case, interval
from skuda.generated import CATALOG
from skuda.model.dtypes import DTYPES

CASES = suite.cases(CATALOG, ["*"], sorted({case.element for case in suite.cases(CATALOG)}))


def case(function: str, element: str, shape: str, variant: str = "") -> Case:
    [found] = [
        each
        for each in CASES
        if (each.operation.function, each.element, str(each.shape), each.variant) == (function, element, shape, variant)
    ]
    return found


def code_range(row: Case) -> tuple[int, int]:
    codes = DTYPES[row.types.get("Q", "s8")]
    return codes.lowest, codes.highest


def arrays_of(row: Case) -> dict:
    """Random contiguous operands in NumPy, or numbers; outputs are zeros."""
    low, high = code_range(row)
    rng = np.random.default_rng(7)
    arrays = {}
    for placed in row.operands:
        name, storage = placed.operand.name, DTYPES[placed.word].storage
        if placed.operand in row.operation.outputs:
            arrays[name] = np.zeros(placed.shape, storage)
        elif placed.operand.scalar:
            arrays[name] = 3 if DTYPES[placed.word].kind == "int" else 0.25
        elif DTYPES[placed.word].kind == "int" and (classes := row.operation.classes(placed.operand, row.sizes)):
            arrays[name] = rng.integers(0, classes, placed.shape).astype(storage)
        elif DTYPES[placed.word].kind == "int":
            span = (-2, 3) if placed.word == "i32" else (0, 256)
            arrays[name] = rng.integers(*span, placed.shape).astype(storage)
        elif placed.operand.element == "S":
            arrays[name] = np.asarray(rng.uniform(0.5, 1.5, placed.shape) * 5 / (high - low)).astype(storage)
        elif ends := interval(row.operation, placed.operand):
            arrays[name] = rng.uniform(*ends, placed.shape).astype(storage)
        else:
            arrays[name] = rng.standard_normal(placed.shape).astype(storage)
    return arrays


# One of each way in which operands share an axis, forward and back, with numbers, rows, groups, packed codes.
SAMPLED = {
    "quantize_per_tensor f16 s8 16x4096",
    "quantize_per_channel f16 s8 16x4096 axis 0",
    "quantize_per_token f16 s8 16x4096",
    "quantize_per_group f16 s4 16x4096 group 64",
    "dequantize_per_group_backward f16 16x4096 group 32",
    "lerp_tensor_backward f16 16x4096",
    "dynamic_quantize_per_token f16 s8 16x4096",
    "dynamic_quantize_asymmetric_per_group f16 s4 16x4096 group 128",
    "softmax f32 16x4096",
    "rms_norm f16 16x4096",
    "amax f16 16384x4095 axis 0",
    "sum f32 16384x4095",
    "mean f32 33554432",
}


PEERS = {"eager": "torch eager", "compile": "torch.compile"}


def made_row(shape, size_class, ours, copy, **peers):
    return {
        "operation": "quantize_per_token", "dtype": "f16 s8", "element": "f16", "shape": shape, "variant": "",
        "class": size_class, "bytes": 201_000_000, "ours_us": ours, "copy_us": copy,
        "peers": {PEERS[name]: {"us": us} for name, us in peers.items()},
    }  # fmt: skip


def reduced_row(operation, family, shape, size_class, ours, copy, **more):
    row = {**made_row(shape, size_class, ours, copy), "operation": operation, "family": family, **more}
    row["peers"] = {"Triton": {"us": 40.0}, "torch's own": {"us": 2 * ours}}
    return row
