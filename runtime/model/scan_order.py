"""The order in which scans are made, on the CPU and in every kernel.

A scan gives each element of a row the sum (product, extreme, ...) of the elements up to it. Its order depends on the
length of the row and the place of the element alone, counted from the end at which the scan begins:

1. eight neighbours, counted from the row's start, are a group: `sum_order.GROUP`. Within it elements are added one
   after the other;
2. of 32 groups, a warp, totals are scanned as a tree (Sklansky's): with groups of 1, 2, 4, 8, 16, the total of the
   first half is added before each of the second half;
3. of 8 warps, a tile, totals are scanned by the same tree;
4. the totals of 16 tiles, a segment of 32768 elements, are added one after the other, and so are those of segments.

An element is ((segments before + tiles before) + warps before) + groups before, then its value within the group. What a
scan begins at the end of a row begins with its last group, which may be a short one.

Nothing counts as -0 (1 in a product, the least value in a maximum, of a linear recurrence the factor 1 and the term
-0), which changes no bit of what it is joined with. So
a sum of elements in s segments is off by at most 36 + s units in the last place of the sum of their magnitudes.
"""

from __future__ import annotations

WARP_GROUPS = 32  # groups whose totals are scanned as a tree
TILE_WARPS = 8  # warps whose totals are
SEGMENT_TILES = 16  # tiles whose totals are added one after the other
