"""DTensor on two GPUs: every operation, split in each way that a rule allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "pytorch"))

from test_sharded import two_processes


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_every_operation_on_two_gpus(tmp_path):
    two_processes(tmp_path / "meeting", "cuda")
