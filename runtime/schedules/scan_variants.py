"""Schedules of rows that are scanned: scan.cuh, scan_parts.cuh, scan_down.cuh, scan_down_parts.cuh."""

from __future__ import annotations

from functools import cache

from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operation, Types
from skuda.model.scan_order import TILE_WARPS, WARP_GROUPS
from skuda.model.sku import Layout
from skuda.model.sum_order import GROUP
from skuda.schedules.variant import ROW_MODES, RowMode, Variant

SCAN_THREADS = WARP_GROUPS * TILE_WARPS  # of a block: they hold a tile
_GROUPS = 4  # of a row, that a thread which goes down it takes at once: scan_down.cuh
_SHARES = (4, 8, 16, 32, 128, SCAN_THREADS)  # threads that hold a row at once
SCAN_KERNELS = ("scan", "scan_parts", "scan_down", "scan_down_parts")


class ScanVariant(Variant):
    """One schedule of scans.

    Attributes:
        threads: that hold a row, or tiles of it at a time.
        tiles: how many.
        walkers: threads that go down a row beside others; 0: threads lie along it.
        parts: whether several blocks have a row.
        mode: how the elements of rows lie.
    """

    threads: int = 32
    tiles: int = 1
    walkers: int = 0
    mode: RowMode = RowMode.STEPPED
    parts: bool = False

    @property
    def number(self) -> int:
        return 0 if self.parts else self.walkers or self.threads

    @property
    def elements(self) -> int:
        """Elements that it takes at once."""
        return self.walkers * _GROUPS * GROUP if self.walkers else self.threads * self.tiles * GROUP

    @property
    def block(self) -> int:
        """Threads of a block."""
        return SCAN_THREADS

    @property
    def rows(self) -> int:
        """Rows that a block takes."""
        return SCAN_THREADS // (self.walkers or self.threads)


def scan_variants(operation: Operation, types: Types) -> tuple[ScanVariant, ...]:
    """The schedules of an operation that scans; none of rows beside each other where elements are packed."""
    if not operation.analysis.scans:
        return ()
    rows = any(dim.name not in operation.along for dim in operation.space)
    return _scan_variants(4 if DTYPES[types[COMPUTE]].bits <= 32 else 2, rows and not operation.is_packed(types))


@cache
def _scan_variants(many: int, down: bool) -> tuple[ScanVariant, ...]:
    """With so many tiles of a long row at once; `down`: and for rows beside each other."""
    shapes = *((threads, 1) for threads in _SHARES), *((SCAN_THREADS, tiles) for tiles in sorted({2, many}))
    found = []
    for mode in ROW_MODES:
        layout, suffix = mode.layout, mode.suffix
        for threads, tiles in shapes:
            name = f"x{tiles}{suffix}" if tiles > 1 else suffix
            found.append(ScanVariant("scan", layout, name, threads, tiles, 0, mode))
        found.append(ScanVariant("scan_parts", layout, suffix, SCAN_THREADS, many, 0, mode, True))
    if down:
        found += [ScanVariant("scan_down", Layout.STRIDED, "", 0, 1, walkers) for walkers in (1, TILE_WARPS)]
        found.append(ScanVariant("scan_down_parts", Layout.STRIDED, "", 0, 1, TILE_WARPS, parts=True))
    return tuple(found)
