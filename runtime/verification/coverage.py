"""Which kernels a run on a GPU compares with the reference, and by which rule the others stand.

A catalog has a kernel for each operation, choice of element types and schedule: far more than one run compares. What a
kernel does follows from few things, so evidence covers these and not every product of them:

1. Formulas. They are computed in the compute type, to which each operand is converted by itself. So each operation and
   direction is tried in each compute type by its preferred schedule, and in each element type of each of its letters by
   some schedule. Each pair of element types of two letters is tried by some form, stage and schedule of a row in that
   direction: of three letters or more, not every product.
2. Structures. A kernel body is written once in a header, generic over a program: over a list of operands by role, and
   over a list of passes. So each schedule is tried with each structure (roles and passes together); with each set of
   roles, and there with each element type in each role; and with each list of passes, on elements of each type. Any
   operation that has these shows them.
3. Sizes. Each number of threads, chunks, blocks and rows of a schedule is tried with each width of elements: a size
   decides what is loaded at once, and no conversion.
4. Turns. The rest is divided into groups of TURN kernels, in the order of a checksum of their symbols. A run takes one
   group, the hash of its commit says which, so that the runs of many commits compare every kernel.

A kernel that shows a structure shows types of its operation too. So another operation of a known structure adds few
kernels, a new structure adds some for each schedule that serves it, and a turn stays as it is.

A `Candidate` says what a kernel shows and what it needs. A kernel that did not run stands by the rule if all that it
needs was shown by kernels that gave the reference's bits, and nothing of it occurs in a kernel that did not.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from zlib import crc32

from skuda.launch.registry import make_sku
from skuda.model.dtypes import DTYPES
from skuda.model.operation import COMPUTE, Operand, Operation, Types
from skuda.schedules import table
from skuda.schedules.row_variants import ClusterVariant, RowVariant, SplitVariant
from skuda.schedules.scan_variants import ScanVariant
from skuda.schedules.slab_variants import SlabVariant
from skuda.schedules.stripe_variants import StripeVariant
from skuda.schedules.variant import RowMode, Variant

RULE = "pairs of types by operation, structures by schedule, the rest in turns"
TURN = 200  # kernels of a turn, however large the catalog is
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
            formula = ("formula", operation.function, types[COMPUTE])
            own = _types(operation, types) | {formula}
            by_types = preferred(operation, types)
            for variant in table.variants(operation, types):
                needs = features(variant, shape, words) | own
                shown = needs if variant == by_types else needs - {formula}
                symbol = make_sku(operation, types, variant).symbol
                yield Candidate(symbol, operation, types, variant, needs, shown)


# ---- what a kernel stands for ----


def preferred(operation: Operation, types: Types) -> Variant:
    """The schedule by which a formula is tried: that of a large contiguous array, of rows of LONG elements."""
    found = table.variants(operation, types)
    rows = [each for each in found if isinstance(each, RowVariant) and each.mode is RowMode.WHOLE]
    long = [each for each in rows if each.elements >= LONG]
    rows += [each for each in found if isinstance(each, ScanVariant) and each.mode is RowMode.WHOLE]
    return (long[:1] or rows[-1:] or found)[0]


def _types(operation: Operation, types: Types) -> frozenset[Feature]:
    """The element types of an operation's letters, and their pairs: those of a row's forms and stages are one."""
    found = {("type", operation.function, letter, word) for letter, word in types.items()}
    row = "pair", operation.row, operation.direction
    return frozenset(found | {(*row, *one, *other) for one, other in combinations(sorted(types.items()), 2)})


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


def structure(operation: Operation) -> tuple[tuple, tuple]:
    """What a kernel body sees of a program: the roles of its operands, and its passes (what rows are, and what they are
    reduced to)."""
    return (
        tuple(sorted({role(operation, operand) for operand in operation.operands})),
        (
            bool(operation.analysis.over),
            bool(operation.block),
            tuple(sorted({each.how for each in operation.analysis.split})),
            min(operation.analysis.reductions, 3),
            operation.analysis.scans,
            operation.analysis.repeats,
            bool(operation.analysis.stack),
            bool(operation.analysis.stages),
        ),
    )


def schedule(variant: Variant) -> tuple:
    """A schedule as far as its text goes: however many threads hold a row, or blocks make a cluster."""
    if isinstance(variant, RowVariant):
        return variant.kernel, variant.mode, variant.keep, variant.chunks
    if isinstance(variant, SlabVariant):
        return variant.kernel, variant.mode, variant.chunks
    if isinstance(variant, SplitVariant):
        return variant.kernel, variant.mode, variant.lanes > 0
    if isinstance(variant, ScanVariant):
        return variant.kernel, variant.mode, variant.tiles > 1
    return variant.kernel, variant.suffix


def size(variant: Variant) -> tuple:
    """How many threads hold a row, blocks make a cluster, or rows a thread takes."""
    if isinstance(variant, (RowVariant, SlabVariant)):
        return variant.threads, variant.chunks
    if isinstance(variant, (ClusterVariant, StripeVariant)):
        return (variant.blocks,)
    if isinstance(variant, ScanVariant):
        return variant.threads, variant.walkers
    return (variant.lanes,) if isinstance(variant, SplitVariant) else ()


def features(variant: Variant, shape: tuple[tuple, tuple], words: Iterable[tuple[str, str]]) -> frozenset[Feature]:
    """What a kernel stands for, its operation aside.

    Args:
        shape: the `structure` of its operation.
        words: (role, element type) of each operand.
    """
    by, (roles, passes) = schedule(variant), shape
    elements = {word for way, word in words if way == "input"}
    found = {("structure", by, roles, passes)}
    found |= {("operand", by, roles, way, word) for way, word in words}
    found |= {("passes", by, passes, word) for word in elements}
    return frozenset(found | {("size", by, size(variant), DTYPES[word].bits) for word in elements})


# ---- what a run takes ----


def covering(kernels: Iterable[Candidate]) -> list[Candidate]:
    """Few kernels that show everything which any shows: at each step the one that shows most of what is missing. Of
    equals a checksum of the symbol chooses, so that operations take turns.
    """
    every = list(kernels)
    chosen: list[int] = []
    shown: set[Feature] = set()
    waiting = [(-len(kernel.shows), crc32(kernel.symbol.encode()), index) for index, kernel in enumerate(every)]
    heapq.heapify(waiting)
    while waiting and waiting[0][0]:
        count, order, index = heapq.heappop(waiting)
        new = every[index].shows - shown
        if len(new) == -count:
            chosen.append(index)
            shown |= new
        else:
            heapq.heappush(waiting, (-len(new), order, index))
    return [every[index] for index in sorted(chosen)]


def divide(operations: Iterable[Operation]) -> Division:
    """What runs take of a catalog: the covering set, and the rest in turns of TURN kernels, the last of fewer."""
    every = list(candidates(operations))
    chosen = {kernel.symbol for kernel in covering(every)}
    position = {kernel.symbol: index for index, kernel in enumerate(every)}
    rest = sorted(position.keys() - chosen, key=lambda symbol: (crc32(symbol.encode()), symbol))
    turns = [sorted(rest[start : start + TURN], key=position.get) for start in range(0, max(1, len(rest)), TURN)]
    return Division(tuple(symbol for symbol in position if symbol in chosen), tuple(map(tuple, turns)))


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
