"""Which kernels a run on a GPU compares with the reference, and by which rule the others stand.

A catalog has a kernel for each operation, choice of element types and schedule: far more than one run compares. What a
kernel does follows from few things, so evidence covers these and not every product of them:

1. Types: each operation and direction at each choice of element types, by its preferred schedule. It is the formula
   with its conversions that this tries.
2. Structures: each schedule with each structure of a program, and there with each element type in each role, whichever
   operation it is of. It is the kernel body that this tries, as a header instantiates it.
3. Turns: the rest falls into groups by a checksum of the symbol. A run takes one group, the hash of its commit says
   which, so that the runs of many commits compare every kernel.

A `Candidate` says what a kernel shows and what it needs. A kernel that did not run stands by the rule if all that it
needs was shown by kernels that gave the reference's bits, and nothing of it occurs in a kernel that did not.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from skuda.launch.registry import make_sku
from skuda.model.operation import Operand, Operation, Types
from skuda.schedules import table
from skuda.schedules.table import ClusterVariant, RowMode, RowVariant, SplitVariant, Variant

RULE = "types by the preferred schedule, structures by a covering set, the rest in turns"
TURN = 1000  # kernels of a turn, at most
LONG = 4096  # elements of the rows whose schedule is the preferred one

Feature = tuple


def turn_of(commit: str, count: int) -> int:
    """Which of some turns a commit takes, by its hash in hexadecimal digits."""
    return int(commit, 16) % count


def group_of(name: str, count: int) -> int:
    """In which of some turns a kernel or a test is, by a checksum of its name."""
    return crc32(name.encode()) % count


@dataclass(frozen=True)
class Candidate:
    """One CUDA kernel of a catalog.

    Attributes:
        needs: what must have been shown for it to stand by the rule.
        shows: what follows if it gives the reference's bits.
    """

    symbol: str
    operation: Operation
    types: Types
    variant: Variant
    needs: frozenset[Feature]
    shows: frozenset[Feature]


@dataclass(frozen=True)
class Division:
    """The kernels of a catalog as runs take them.

    Attributes:
        covering: symbols of the covering set, which each run takes.
        turns: symbols of the rest, by turn.
    """

    covering: tuple[str, ...]
    turns: tuple[tuple[str, ...], ...]

    def turn_of(self, commit: str) -> int:
        """The turn of a commit."""
        return turn_of(commit, len(self.turns))


def candidates(operations: Iterable[Operation]) -> Iterator[Candidate]:
    """The CUDA kernels of some operations, in the order of the catalog."""
    for operation in operations:
        shape = structure(operation)
        roles = [(operand, role(operation, operand)) for operand in operation.operands]
        for types in operation.kernel_combinations():
            words = {(way, operation.word(operand, types)) for operand, way in roles}
            own = frozenset([("types", operation.function, *types.items())])
            by_types = preferred(operation, types)
            for variant in table.variants(operation, types):
                body = features(variant, shape, words)
                shown = body | own if variant == by_types else body
                symbol = make_sku(operation, types, variant).symbol
                yield Candidate(symbol, operation, types, variant, body | own, shown)


# ---- what a kernel stands for ----


def preferred(operation: Operation, types: Types) -> Variant:
    """The schedule by which a choice of types is tried: that of a large contiguous array, of rows of LONG elements."""
    found = table.variants(operation, types)
    rows = [each for each in found if isinstance(each, RowVariant) and each.mode is RowMode.WHOLE]
    long = [each for each in rows if each.elements >= LONG]
    return (long[:1] or rows[-1:] or found)[0]


def role(operation: Operation, operand: Operand) -> str:
    """How a kernel reads or writes an operand: by element, column, row, block or as one value."""
    way = "input" if operand in operation.inputs else "output"
    if operand.dims == operation.space:
        return way
    if operand.scalar:
        return f"{way} value"
    if any(dim.block for dim in operand.dims):
        return f"{way} by block"
    last = operation.space[-1].name if operation.space else ""
    along = operation.along if operation.analysis.over else (last,)
    return f"{way} by column" if any(dim.name in along for dim in operand.dims) else f"{way} by row"


def structure(operation: Operation) -> tuple:
    """What a kernel body sees of a program: the roles of its operands, what rows are and what they are reduced to."""
    return (
        tuple(sorted({role(operation, operand) for operand in operation.operands})),
        bool(operation.analysis.over),
        bool(operation.block),
        tuple(sorted({each.how for each in operation.analysis.split})),
        min(operation.analysis.reductions, 3),
        bool(operation.analysis.stack),
        bool(operation.analysis.stages),
    )


def schedule(variant: Variant) -> tuple:
    """A schedule as far as its text goes: however many threads hold a row, or blocks make a cluster."""
    if isinstance(variant, RowVariant):
        return variant.kernel, variant.mode, variant.keep, variant.chunks
    if isinstance(variant, SplitVariant):
        return variant.kernel, variant.mode, variant.lanes > 0
    return variant.kernel, variant.suffix


def size(variant: Variant) -> tuple:
    """How many threads hold a row, blocks make a cluster, or rows a thread takes."""
    if isinstance(variant, RowVariant):
        return variant.threads, variant.chunks
    if isinstance(variant, ClusterVariant):
        return (variant.blocks,)
    return (variant.lanes,) if isinstance(variant, SplitVariant) else ()


def features(variant: Variant, shape: tuple, words: Iterable[tuple[str, str]]) -> frozenset[Feature]:
    """What a kernel stands for, its choice of types aside.

    Args:
        shape: the `structure` of its operation.
        words: (role, element type) of each operand.
    """
    by = schedule(variant)
    found = {("structure", by, shape, way, word) for way, word in words}
    return frozenset(found | {("size", by, size(variant), way, word) for way, word in words if way == "input"})


# ---- what a run takes ----


def covering(kernels: Iterable[Candidate]) -> list[Candidate]:
    """Few kernels that show everything which any shows: those of the preferred schedules, then at each step the one
    that shows most of what is missing. Of equals a checksum of the symbol chooses, so that operations take turns.
    """
    every = list(kernels)
    left = {index: kernel.shows for index, kernel in enumerate(every)}
    chosen = [index for index, kernel in enumerate(every) if kernel.shows == kernel.needs]
    shown = set().union(*(left.pop(index) for index in chosen))
    waiting = [(-len(found - shown), crc32(every[index].symbol.encode()), index) for index, found in left.items()]
    heapq.heapify(waiting)
    while waiting and waiting[0][0]:
        count, order, index = heapq.heappop(waiting)
        new = left[index] - shown
        if len(new) == -count:
            chosen.append(index)
            shown |= new
        else:
            heapq.heappush(waiting, (-len(new), order, index))
    return [every[index] for index in sorted(chosen)]


def divide(operations: Iterable[Operation]) -> Division:
    """What runs take of a catalog. The number of turns is the least power of two that makes each TURN kernels or so."""
    every = list(candidates(operations))
    chosen = {kernel.symbol for kernel in covering(every)}
    rest = [kernel.symbol for kernel in every if kernel.symbol not in chosen]
    count = 1
    while len(rest) > count * TURN:
        count *= 2
    turns: list[list[str]] = [[] for _ in range(count)]
    for symbol in rest:
        turns[group_of(symbol, count)].append(symbol)
    return Division(tuple(kernel.symbol for kernel in every if kernel.symbol in chosen), tuple(map(tuple, turns)))


# ---- what follows ----


def standing(kernels: Iterable[Candidate], equal: Mapping[str, bool]) -> set[str]:
    """The symbols of kernels that stand by the rule.

    Args:
        kernels: of the whole catalog.
        equal: of those that were compared as they are now, whether they gave the reference's bits.
    """
    every = list(kernels)
    count: Counter[Feature] = Counter()
    for kernel in every:
        if kernel.symbol in equal:
            for feature in kernel.shows:
                count[feature] = count[feature] + 1 if equal[kernel.symbol] and count[feature] >= 0 else -1
    return {kernel.symbol for kernel in every if all(count[feature] > 0 for feature in kernel.needs)}
