"""Tests of checkpoints on Ray use the same made-up checkpoints as those of local workers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "quantize"))
