"""Results of the bench as a run gives them."""

from __future__ import annotations

import pytest
from bench_rows import made_row, reduced_row


@pytest.fixture
def result():
    failed = made_row("1x4096", "under 16 MB", 1, 1)
    del failed["ours_us"]
    failed["error"] = "output: 3 of 4096 bytes in rows 0 to 1 are not the reference's"
    broken = made_row("16384x8192", "64 MB and more", 80.0, 76.0, compile=120.0)
    broken["peers"]["torch eager"] = {"error": "OutOfMemoryError: CUDA out of memory"}
    return {
        "machine": {"gpu": "Test GPU", "cuda_driver": "13000", "date": "2026-01-02", "versions": ["skuda 0"]},
        "absent": {"Triton": "no triton"},
        "rounds": 30,
        "rows": [
            made_row("16384x4096", "64 MB and more", 50.0, 49.0, eager=400.0, compile=100.0),
            made_row("16384x4095", "64 MB and more", 50.0, 50.0, compile=40.0),
            broken,
            made_row("4096x4096 transposed", "transposed views", 50.0, 20.0, eager=45.0),
            failed,
        ],
        "host": {
            "calls": 6000,
            "us": {"C launch loop": 5.0, "plan.run, prebuilt args": 6.0, "plan.run, fresh args": 10.0},
            "first_call_ms": {"cold cache": 251.0, "warm cache": 9.0},
            "first_call_import_ms": {"cold cache": 7.0, "warm cache": 6.0},
            "missing": {"torch.lerp(out=)": "no torch"},
        },
    }


@pytest.fixture
def reducing(result):
    result["rows"] += [
        reduced_row("softmax", "softmax", "16384x4096", "rows of 64 to 16384", 50.0, 48.0),
        reduced_row("softmax", "softmax", "16384x4095", "rows of 64 to 16384", 80.0, 48.0),
        reduced_row("softmax", "softmax", "256x262144", "rows of 65536 and more", 60.0, 48.0),
        reduced_row("sum", "reduction", "16384x4096", "columns", 50.0, 48.0, read_us=45.0, variant="axis 0"),
    ]
    return result
