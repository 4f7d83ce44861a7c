"""Checkpoints in safetensors files: quantize them, file by file, and read what was written.

`quantize` writes, `load` reads; docs/checkpoints.md describes the files.
"""

from __future__ import annotations

from skuda.checkpoints.convert import Progress, Result, quantize
from skuda.checkpoints.loading import Loaded, load
from skuda.checkpoints.scheme import Quantized, Scheme

__all__ = ["Loaded", "Progress", "Quantized", "Result", "Scheme", "load", "quantize"]
