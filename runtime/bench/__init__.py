"""`skuda bench`: the kernels beside a copy of the same bytes and other libraries, and the cost of a call.

Needs a GPU and the extra `demo` (rich, matplotlib). torch and Triton are measured where they are installed.
"""

from __future__ import annotations

from skuda.bench.cli import add_parser

__all__ = ["add_parser"]
