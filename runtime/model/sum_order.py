"""The order in which sums and products are made, on the CPU and in every kernel.

A row is what a reduction is over: an operand's elements along some axes, or those of one block along an axis.
Sums and products are made in one order, which depends on the row's length alone:

1. eight elements are added as a tree: neighbours, then neighbours among these sums, three times;
2. these groups are dealt in turn to `accumulators(length)` accumulators; each adds its groups one after the other;
3. the accumulators are added as a tree of neighbours;
4. a row of more than 65536 elements is cut in segments of so many, whose sums are added as a tree of neighbours.

A block that the end of its axis cuts short has the order of a whole one, with nothing in place of what it lacks.

What is missing at an end counts as -0 (1 in a product), which changes no bit of what it is added to. So a sum
of n elements, in s segments, is off by at most 21 + log2(s), rounded up, units in the last place of the sum of their
magnitudes. Trees of neighbours let any part of a row that begins and ends at a power of two be
added apart, by another block or another kernel.

Sums of squared distances from the mean are made in this order too, each with the number and the mean of its elements.
Of eight neighbours it is made around their own mean, which is told by its distance from the first of them; two parts of
a row are joined by the distance of their means (`reference.reductions`). What is missing at an end is left out.

Sums of exponentials, of which the logarithm is wanted, are made in this order too, each with the largest of its
elements. Exponentials are of distances from an anchor, the multiple of 64 (of 512 in f64) that is next to the largest
element of eight neighbours. Of two parts of a row that have different ones, sums are moved to that of the part with the
larger largest element (`reference.reductions`). What is missing at the end of a group counts as -inf.

A sum across the rows of a program that also writes each row (a gradient of a norm's weight, beside that of its input)
is of SLABS: consecutive rows, `slab(rows)` of them, are added one after the other, and slabs as a tree of neighbours.
So a block goes down its rows once, and adds as it goes.
"""

from __future__ import annotations

INDEX_REDUCTIONS = ("argmax", "argmin")  # reductions that go on with a value and its index
# Reductions that go on with several values of C, and with how many: Moments and Exponentials of
# runtime/cuda/reductions.cuh.
PARTED = {"squared_deviations": 4, "logsumexp": 2}
GROUP = 8  # neighbours that are added first
SEGMENT = 1 << 16  # elements
ACCUMULATOR_GROUPS = 4  # of an accumulator, at most, until there are all accumulators
MOST_ACCUMULATORS = 1024  # of a row; like the fewest a power of two
_FEWEST_ACCUMULATORS = 4
SLABS = 264  # of so many rows that one is not too long: two blocks for each multiprocessor of the largest GPUs measured
SLAB_ROWS = 16, 256  # of a slab, at least and at most


def accumulators(length: int) -> int:
    """The number of accumulators of a row of this length. A thread of a kernel has one of them, or two."""
    wanted = 1 << (-(-length // (GROUP * ACCUMULATOR_GROUPS)) - 1).bit_length() if length else 0
    return min(MOST_ACCUMULATORS, max(_FEWEST_ACCUMULATORS, wanted))


def accumulators_with_elements(length: int) -> int:
    """How many of these have elements, rounded up to a power of two: the others change no bit."""
    groups = max(1, -(-length // GROUP))
    return min(accumulators(length), 1 << (groups - 1).bit_length())


def state_values(how: str) -> int:
    """How many registers of a value a reduction goes on with; an index has two."""
    return 3 if how in INDEX_REDUCTIONS else PARTED.get(how, 1)


def slab(rows: int) -> int:
    """How many consecutive rows are added one after the other."""
    fewest, most = SLAB_ROWS
    return max(fewest, min(most, -(-rows // SLABS)))
