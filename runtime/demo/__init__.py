"""`skuda demo`: quantize a real checkpoint through skuda, and show what it saves and what it costs.

Needs the extra `demo` (rich, matplotlib), whose packages are imported when they are first used.
"""

from __future__ import annotations

from skuda.demo.cli import add_parser

__all__ = ["add_parser"]
