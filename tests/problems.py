"""For each kernel of the catalog: calls that reach it, with operands that lie as it wants them.

A call is described without any array library, so that what reaches which kernel is checked on a machine
without a GPU; tests/values.py says what they hold, the tests under tests/gpu make the arrays and run it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np
from domains import bounds, turned

from skuda.arrays.views import CPU, View
from skuda.errors import Unsupported
from skuda.launch import compiler, registry
from skuda.model.dtypes import DTYPES
from skuda.model.operation import Operand, Operation
from skuda.model.sku import BackendKind, KernelSku
from skuda.model.sum_order import GROUP
from skuda.plans.plan import Plan
from skuda.schedules.row_variants import FEW_ROWS, PORTABLE_CLUSTER, ClusterVariant, RowVariant, SplitVariant
from skuda.schedules.scan_variants import ScanVariant
from skuda.schedules.slab_variants import SlabVariant
from skuda.schedules.stripe_variants import StripeVariant
from skuda.schedules.variant import (
    BROADCAST,
    COLUMNS,
    GROUPS,
    SHIFTED,
    SINGLE_SMALL,
    STAGES,
    TABULATE,
    TILE,
    VEC,
    RowMode,
    Variant,
)


def kernel_of(entry: str) -> tuple[str, str]:
    """The function of an operation, and its kernel, that an NVRTC name expression names: ("lerp", "vec")."""
    name, _, rest = entry.partition("<")
    function, found, _ = rest.partition("_program<")
    return (function, name) if found else tuple(name.rsplit("_", 1))


# Odd lengths and tails first; 1 and small ones for kernels that only they reach.
MANY = ((37,), (), (3, 5), (1031,), (9, 64))
SINGLE = (131, 64, 17, 1, 2053)
BEFORE_MANY = (17, 5, 131, 64, 3, 1)  # of several before the axes of a `*name`
BLOCKS = (8, 24, 5, 3000)
LAYOUTS = ("plain", "shifted", "askew", "padded", "stepped")
GROUPED_LAYOUTS = (*LAYOUTS, "turned")  # runs along an axis that is not the last
# Lines longer than a warp's stretch, and shorter ones that make one; runs that begin anywhere in a vector.
GROUPED_MANY = ((37,), (), (46,), (61,))
GROUPED_SINGLE = (1079, 131, 130, 1)
GROUPED_BLOCKS = (48, 64, 100)
# Whole and broken tiles, of lines that vectors fit and that they do not fit; inputs and outputs alike, and not.
TILED_MANY = ((), (160,), (37,), (9, 71), (160, 144))
TILED_SINGLE = (144, 131, 9)
TILED_LAYOUTS = ("crossed", "permuted")
MANY_REPEATED = ((523, 9), (9, 523))  # so that what repeats has many values
BROADCAST_LAYOUTS = ("plain", "repeated", "spread", "crossed", "apart")
DOWN_LAYOUTS = ("permuted", "turned", "crossed")
SPLIT_LAYOUTS = (*LAYOUTS, "permuted", "turned")


@dataclass(frozen=True)
class ArrayLayout:
    """Where an array lies in its own memory, in stored elements: what NumPy and CuPy build views from."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    size: int


def lay_out(shape: tuple[int, ...], how: str) -> ArrayLayout:
    """`plain`: contiguous from the start; `shifted`: one element later; `stepped`: every second of the last axis;
    `padded`: a gap as long as it after each line of the last axis of several elements; `permuted`: contiguous, the axes
    in reversed order; `turned`: the same one element later; `repeated`, `stacked`: the same all along the last axis, or
    the first; stepped where there is one.
    """
    if how in ("repeated", "stacked") and len(shape) > 1:
        axis = len(shape) - 1 if how == "repeated" else 0
        at = lay_out(tuple([1 if each == axis else extent for each, extent in enumerate(shape)]), "plain")
        return ArrayLayout(shape, tuple([step * (each != axis) for each, step in enumerate(at.strides)]), 0, at.size)
    if how == "turned":
        at = lay_out(shape, "permuted")
        return ArrayLayout(shape, at.strides, 1, at.size + 1)
    if how == "permuted":
        turned = lay_out(shape[::-1], "plain")
        return ArrayLayout(shape, turned.strides[::-1], 0, turned.size)
    step = 2 if how in ("stepped", "repeated", "stacked") else 1
    strides = [step]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent * (2 if how == "padded" and strides[0] == 1 < extent else 1))
    start = 0 if how in ("plain", "padded") else 1
    count = int(np.prod(shape, dtype=np.int64))
    return ArrayLayout(shape, tuple(strides[: len(shape)]), start, start + (2 if how == "padded" else step) * count)


FOR_MANY = (VEC, SHIFTED, TABULATE, GROUPS, COLUMNS)  # what few elements do not reach


@dataclass(frozen=True)
class Circumstances:
    """As what a call's kernel is chosen, though it has few elements: more would take the reference too long.

    Attributes:
        large: as of many elements; `staged`: and so is the form.
        apart: as where blocks make no clusters.
        crowded: as where many rows keep a GPU busy.
        held: the one schedule that may hold its rows in place of stages, where one may.
        tabled: as of so many that they are looked up in a table.
        spread: few rows may have a thread for each group of elements.
        single: few elements may be taken one by one.
    """

    large: bool = False
    staged: bool = False
    apart: bool = False
    crowded: bool = True
    held: StripeVariant | RowVariant | ClusterVariant | None = None
    tabled: bool = False
    spread: bool = True
    single: bool = True


@dataclass(frozen=True)
class Call:
    """One plan's sizes, where each array operand lies, and what its kernel is chosen as.

    `turned`: attributes have other values than their defaults.
    """

    plan_class: type[Plan]
    sizes: tuple[tuple[str, int | tuple[int, ...]], ...]
    elements: tuple[tuple[str, str], ...]
    layouts: tuple[tuple[str, ArrayLayout], ...]
    given: Circumstances = Circumstances()
    turned: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        """What its plan is selected by."""
        operation = self.plan_class.operation
        found = {**dict(self.sizes), **dict(self.elements), **bounds(operation)}
        return found | turned(operation) if self.turned else found

    def plan(self, backend: BackendKind) -> Plan:
        descriptor = self.plan_class.descriptor_type(**self.fields)
        plan = self.plan_class.select(descriptor, preference=backend)
        given = self.given
        split = getattr(plan._kernels, "split", None)
        if given.large:
            plan._kernels.few_blocks = 0 if given.crowded else 1 << 40
            plan._kernels.few_rows = plan._kernels.few_threads = 0
            plan._kernels.tabled_elements = 0 if given.tabled else 1 << 62
            plan._kernels.many_blocks = 0
            if split is not None:
                split.busy = split.few = 0
        if not given.spread:
            plan._kernels.few_spread_threads = 0
        if not given.single:
            plan._kernels.single_blocks = 0
        if split is not None:
            split.dealt = 32  # so that some calls have more blocks
            split.enough = 1  # so that teams share blocks
            split.left = 0 if split.length % 2 else 1 << 40  # so that threads take several accumulators, and one each
        if given.staged:
            plan.much = plan.long = 0
        elif given.large:
            plan.few = 0  # blocks that leave a GPU idle
        if given.apart:
            plan._kernels.cluster_shared = 0
        if (stripes := getattr(plan, "_stripes", None)) is not None:
            held = given.held if isinstance(given.held, StripeVariant) else None
            stripes.variants = (held,) if held else ()
            stripes.few, stripes.least = 1 << 40 if held and held.narrow else 0, 0
        if (pieces := getattr(plan, "_pieces", None)) is not None:
            held = None if isinstance(given.held, StripeVariant) else given.held
            rows = [each for each in pieces.variants if isinstance(held, RowVariant) and each.kernel == held.kernel]
            pieces.variants = tuple([each for each in rows if each.mode is held.mode]) or ((held,) if held else ())
            pieces.few_blocks = 0 if given.crowded else 1 << 40
        return plan

    def variant(self):
        """The schedule that serves it."""
        return self.geometry().variant

    def geometry(self):
        """What serves it."""
        plan = self.plan(BackendKind.REFERENCE)
        return plan._geometry(self.views(plan))

    def views(self, plan: Plan) -> list[View | int]:
        """The operands, as if the memory of each started on a 256-byte boundary."""
        layouts = dict(self.layouts)
        views = []
        for operand, word in zip(plan.operation.operands, plan.words, strict=True):
            storage = DTYPES[word].storage
            if operand.name in layouts:
                at = layouts[operand.name]
                views.append(
                    View(
                        256 + at.start * storage.itemsize,
                        at.shape,
                        at.strides,
                        storage,
                        CPU,
                        False,
                        False,
                        None,
                    )
                )
            else:
                views.append(0)
        return views


def shared(operand: Operand, operation: Operation) -> bool:
    return operand.dims != operation.space and any(each.dims == operation.space for each in operation.operands)


@cache
def plan_class_of(package: str, function: str) -> type[Plan]:
    catalog = registry._CATALOGS[package]
    return next(
        plan
        for name in catalog.modules
        for plan in catalog.plans(name)
        if plan.operation.function == function
    )


def candidates(sku: KernelSku, tiled: bool, how: str) -> Iterator[Call]:
    """Calls of a SKU's operation at its types in many sizes, those of tiles or the others, and in one layout."""
    entry = registry.entry_of(sku)
    operation, types = entry.operation, entry.types
    plan_class = plan_class_of(entry.catalog.package, operation.function)
    elements = tuple(
        (field, types[letter]) for letter, field in operation.element_fields.items() if letter in types
    )
    blocks = [attribute.name for attribute in operation.attributes if attribute.type == "size"]
    names = [dim.name for dim in operation.dims] + blocks
    several = sum(not dim.many for dim in operation.dims) > 1 and operation.dims[-1].many
    many, single, sizes_of_blocks = MANY, BEFORE_MANY if several else SINGLE, BLOCKS
    if tiled:
        many, single = TILED_MANY, TILED_SINGLE
    elif entry.variant is GROUPS:
        many, single, sizes_of_blocks = GROUPED_MANY, GROUPED_SINGLE, GROUPED_BLOCKS
    elif entry.variant is BROADCAST:
        many, single = (*MANY_REPEATED, *many, (3,)), (*single, 3)
    if operation.analysis.stage:  # rows of one element, which stages before it make the same of, last
        many = (*filter(None, many), ())
    choices = [many if dim.many else single for dim in operation.dims] + [sizes_of_blocks for _ in blocks]
    alternative = is_alternative(entry)
    if isinstance(entry.variant, SlabVariant):
        slabs = [_slabs(entry.variant)[dim in operation.outputs[-1].dims] for dim in operation.dims]
        choices = [each if dim.many else sum(each, ()) for dim, each in zip(operation.dims, slabs, strict=True)]
    elif isinstance(entry.variant, StripeVariant):
        choices = _lengths_of_stripes(operation, entry.variant)
    elif in_pieces(entry):
        choices = _lengths_of_pieces(operation, entry.variant)
    elif operation.analysis.stages:
        pass
    elif alternative and operation.repacked:
        choices = [((3, 2), (9,), ()) if dim.many else (37, 8) for dim in operation.dims] + [(6, 3, 100)]
    elif alternative or isinstance(entry.variant, SplitVariant):
        choices = _lengths_of_splits(operation)
    elif operation.analysis.over:
        choices = _lengths_of_rows(operation, entry.variant)
    for values in product(*choices):
        sizes = dict(zip(names, values, strict=True))
        if (
            np.prod(
                np.concatenate(
                    [np.atleast_1d(np.array(sizes[dim.name], np.int64)) for dim in operation.dims] or [[1]]
                )
            )
            > _most_elements(entry.variant, operation)
        ):
            continue
        plan = plan_class.select(
            plan_class.descriptor_type(**sizes, **dict(elements)), preference=BackendKind.REFERENCE
        )
        layouts = tuple(
            (operand.name, lay_out(stored, how_of(operand, operation, how)))
            for operand, stored in zip(operation.operands, plan.stored, strict=True)
            if operand.dims
        )
        yield Call(plan_class, tuple(sizes.items()), elements, layouts, circumstances(entry))


def is_alternative(entry: registry.Entry) -> bool:
    """Whether it is the multi-kernel form of an operation."""
    return entry.variant is STAGES and bool(entry.operation.analysis.alternative)


def in_pieces(entry: registry.Entry) -> bool:
    """Whether it holds rows in pieces."""
    rows = isinstance(entry.variant, (RowVariant, ClusterVariant))
    return rows and (entry.variant.mode.whole_pieces or entry.variant.mode is RowMode.PIECES_UNALIGNED)


def _slabs(variant: SlabVariant) -> tuple[tuple, tuple]:
    """How many rows, of several slabs and of one; and how long each: short ones, and those of which a block
    has room for the fewest."""
    whole = variant.mode is RowMode.WHOLE
    length, longest = variant.shortest + (15 if whole else 12), variant.elements - (0 if whole else 3)
    return ((135,), (3,)), ((length,), (longest,))


def _most_elements(variant: Variant, operation: Operation) -> int:
    """Elements of a call, at most: so that the reference, and kernels on the CPU, take little time."""
    if isinstance(variant, SlabVariant):
        return 1_700_000
    if isinstance(variant, ClusterVariant):
        return 200_000 if variant.blocks <= PORTABLE_CLUSTER else 530_000  # two rows that only sixteen blocks hold
    return 300_000 if operation.analysis.over else 60_000


def circumstances(entry: registry.Entry) -> Circumstances:
    """Those of the calls that reach a schedule."""
    rows = isinstance(entry.variant, RowVariant)
    clusters = isinstance(entry.variant, ClusterVariant)
    columns = isinstance(entry.variant, SplitVariant) and entry.variant.lanes > 1
    scans = isinstance(entry.variant, ScanVariant) and not entry.variant.parts
    slabs = isinstance(entry.variant, SlabVariant)
    few = entry.variant.kernel == FEW_ROWS
    many = entry.variant in FOR_MANY or (rows and not few) or clusters or columns or scans or slabs
    return Circumstances(
        large=many,
        staged=is_alternative(entry),
        apart=rows or entry.variant is VEC,
        crowded=not rows or entry.variant.crowded,
        held=entry.variant if isinstance(entry.variant, StripeVariant) or in_pieces(entry) else None,
        tabled=entry.variant is TABULATE,
        spread=not few or entry.variant.spread > 1,
        single=entry.variant is SINGLE_SMALL,
    )


def _lengths_of_stripes(operation: Operation, variant: StripeVariant) -> list[tuple]:
    """Sizes of rows that lie beside each other: several groups of each accumulator, of which a warp's threads have one
    each, and a few; so many that a stripe is not full."""
    lengths = (61 * variant.blocks - 3, 60 * variant.blocks, 128 * variant.blocks, *[3] * (variant.blocks == 1))
    many, single = {True: (*[(each,) for each in lengths], ()), False: ((72,), (2, 24), (264,))}, (72, 264)
    return [(many[dim.name in operation.along] if dim.many else lengths if dim.name in operation.along else single)
            for dim in operation.dims]


def _lengths_of_pieces(operation: Operation, variant: RowVariant | ClusterVariant) -> list[tuple]:
    """Sizes of rows in two pieces and in three, as long as a schedule holds, or a little shorter; and, where these are
    of whole shares, in one."""
    if isinstance(variant, ClusterVariant):
        rest = GROUP // 2 if variant.mode is RowMode.PIECES_OF_HALVES else 0
        lengths, single = (20_000 + rest, 11_000 + rest, 33_000 + rest), (2, 1)
    else:
        most = variant.elements
        rest = {RowMode.PIECES: 0, RowMode.PIECES_OF_HALVES: -GROUP // 2}.get(variant.mode, -3)
        half, third = most // 2, most // 3 // GROUP * GROUP
        lengths, single = (half + rest, half - GROUP + rest, third + rest, half, most), (3, 37)
    pieces = tuple([(each,) for each in lengths if each > 3])
    odd = variant.mode is RowMode.PIECES_UNALIGNED  # then an odd number of pieces comes first, so that tails are odd
    before, behind = ((3,), (2,), (4,)) if odd else ((2,), (4,), (3,), *[()] * (variant.mode is RowMode.PIECES)), pieces
    first, last = operation.along[0], operation.along[-1]
    return [before if dim.name == first else behind if dim.name == last else single for dim in operation.dims]


def _lengths_of_splits(operation: Operation) -> list[tuple]:
    """Sizes of rows that several blocks take, several rows beside each other among them."""
    many = {True: ((2053,), (99,), (301,), (9008,), (70003,), (66, 9), (100,), (300,), (520,), (50,), ()),
            False: ((3,), (67,), (72,), (2, 3, 24), (264,), ())}
    single = {True: (2053, 99, 301, 9008, 70003, 100, 300, 520, 50), False: (3, 67, 72, 264)}
    along = operation.along
    choices = [(many if dim.many else single)[dim.name in along] for dim in operation.dims]
    several = [index for index, dim in enumerate(operation.dims) if dim.name in along][:-1]
    return [((5,), (520,), ()) if index in several and dim.many else (5,) if index in several else choice
            for index, (dim, choice) in enumerate(zip(operation.dims, choices, strict=True))]


def _lengths_of_rows(operation: Operation, variant) -> list[tuple]:
    """Sizes at which rows are as long as a schedule holds, or a little shorter; those of blocks at the end."""
    if isinstance(variant, ClusterVariant):  # of one segment and of several, the last one short
        lengths, blocked = (24_584, 40_008, 65_544, 131_336, 16_392), (100_016, 164_088)
        if variant.blocks > PORTABLE_CLUSTER:  # rows that fewer blocks hold, but one to a multiprocessor
            lengths, blocked = (40_008, 65_544, 131_336, 262_664, 460_040), (164_088, 294_984, 480_072)
        if variant.mode is RowMode.UNIT:  # the last share is shorter, and rows begin anywhere; blocks of codes are even
            lengths = tuple([each - (6 if operation.block else 3) for each in lengths])
            blocked = tuple([each - 5 for each in blocked])
        outer, single = ((2,), ()), (2, 1)
    else:
        reread = isinstance(variant, RowVariant) and not variant.keep and variant.threads >= 1024
        most = 1 << 16 if reread else variant.elements
        lengths, blocked = (most, most - 3, most // 2 + 8, most + 16, most + 5, 1), (most + 17, 2 * most + 8)
        outer, single = ((3,), (), (2, 2), (37,)), (3,)
        if isinstance(variant, ScanVariant):
            most, outer, single = variant.elements, ((3,), (37,), (), (5, 17)), (3, 37)
            unbounded = variant.walkers > 1 or variant.tiles > 1
            most = 40_000 if variant.parts else most
            long = (*(70_008, 2 * most + 3, 70_003, 6149) * unbounded, most, most - 3)
            lengths = (*long, most // 2 + 8, most // 4 + 16, 9, 1)
    along, block = operation.along, operation.block
    if block:
        return [blocked if dim.name in along else outer for dim in operation.dims] + [lengths]
    kept = [dim.name for dim in operation.dims if dim.name not in along and not dim.many]
    several = len(kept) > 1 or operation.space[-1].name not in along  # of other dimensions, or one behind the row
    found = {name: ((*single, 1) if not place else (1, *single)) if several else single
             for place, name in enumerate(kept)}  # fmt: skip
    return [lengths if dim.name == along[-1] else outer if dim.many else found.get(dim.name, (1, *single))
            for dim in operation.dims]


def how_of(operand: Operand, operation: Operation, how: str) -> str:
    """The layout of an operand: `crossed` are the inputs alone, and `askew` they are shifted; of `repeated` the first
    is so, and of `spread` the others are stacked; `apart` are parameters alone, which are permuted. Else these are
    plain, but for those of rows askew, which lie along a row.
    """
    if how == "apart":
        return "permuted" if shared(operand, operation) and operand in operation.inputs else "plain"
    if how in ("repeated", "spread"):
        full = [each for each in operation.inputs if each.dims == operation.space]
        return how_of(operand, operation, "plain") if operand not in full else (
            "repeated" if operand is full[0] else "stacked" if how == "spread" else "plain"
        )
    if shared(operand, operation):
        return "shifted" if how == "askew" and operation.analysis.over and operand in operation.inputs else "plain"
    if how in ("crossed", "askew"):
        turned = "permuted" if how == "crossed" else "shifted"
        return turned if operand in operation.inputs else "plain"
    return how


def served(call: Call):
    """The schedule that serves a call; None where it is refused."""
    try:
        return call.variant()
    except Unsupported:
        return None


@cache
def _reaching(family: tuple, sku: KernelSku, most: int) -> tuple[tuple, ...]:
    variant = registry.entry_of(sku).variant
    tiled, stripes = variant is TILE, isinstance(variant, StripeVariant)
    split = isinstance(variant, (SplitVariant, StripeVariant)) or is_alternative(registry.entry_of(sku))
    chosen: list[tuple] = []
    down = isinstance(variant, ScanVariant) and variant.walkers
    layouts = TILED_LAYOUTS if tiled else SPLIT_LAYOUTS if split else DOWN_LAYOUTS if down else LAYOUTS
    if isinstance(variant, RowVariant) and variant.mode is RowMode.BESIDE:
        layouts = ("permuted", "turned")
    layouts = GROUPED_LAYOUTS if variant is GROUPS else BROADCAST_LAYOUTS if variant is BROADCAST else layouts
    if registry.entry_of(sku).operation.of_alternative:  # which serves rows that lie apart
        layouts = ("permuted", *LAYOUTS) if variant is COLUMNS else layouts
    for how in layouts:
        reaching = (call for call in candidates(sku, tiled, how) if served(call) is variant)
        if isinstance(variant, ClusterVariant):
            found = _of_clusters(list(reaching)) if not chosen else []
        elif tiled:
            found = list(reaching)
            found = found[:: max(1, len(found) // (2 * most))][: 2 * most]
        elif variant is BROADCAST:  # of each layout
            found = list(islice(reaching, max(1, most // 2)))
        elif split and registry.entry_of(sku).operation.repacked:  # of each layout other sizes
            found = list(reaching)[5 * SPLIT_LAYOUTS.index(how) :][:1]
        else:
            of_each = 2 if stripes else 3 if how == "permuted" else 1  # rows across of any number of accumulators
            found = list(islice(reaching, of_each if split else most - len(chosen)))
        chosen += [(call.sizes, tuple(at for _, at in call.layouts)) for call in found]
    return tuple(chosen)


def _of_clusters(found: list[Call]) -> list[Call]:
    """The longest row, whose segments are dealt to teams in several turns; several rows; the shortest; an odd one."""
    by_length = sorted(found, key=lambda call: np.prod(call.layouts[0][1].shape))
    odd = [call for call in by_length if np.prod(call.layouts[0][1].shape) % 2]
    several = [call for call in by_length if len(call.plan(BackendKind.REFERENCE).shapes[0]) > 1]
    return [*dict.fromkeys([by_length[-1], *several[-1:], by_length[0], *odd[-1:]])] if found else []


_FAMILIES: dict[tuple, KernelSku] = {}


def calls(sku: KernelSku, most: int = 3) -> list[Call]:
    """Calls that reach a CUDA SKU, a few of different sizes (and for tiles of each layout); none where none does.

    Element types decide nothing but where operands are packed and how wide they are, so SKUs of one family
    share the search.
    """
    entry = registry.entry_of(sku)
    operation, types = entry.operation, entry.types
    bits = tuple(operation.bits(operand, types) for operand in operation.operands)
    family = (operation.function, bits, entry.variant)
    sizes = _reaching(family, _FAMILIES.setdefault(family, sku), most)
    plan_class = plan_class_of(entry.catalog.package, operation.function)
    elements = tuple(
        (field, types[letter]) for letter, field in operation.element_fields.items() if letter in types
    )
    names = [operand.name for operand in operation.operands if operand.dims]
    return [
        Call(
            plan_class,
            each,
            elements,
            tuple(zip(names, layouts, strict=True)),
            circumstances(entry),
        )
        for each, layouts in sizes
    ]


# ---- few of many ----


def covering(
    skus: list[KernelSku],
    wanted: Callable[[KernelSku], bool] = lambda sku: True,
    seen: Callable[[KernelSku], set[tuple]] | None = None,
) -> list[KernelSku]:
    """Few SKUs in which all that `seen` says of any occurs: at each step the one that has the most of what is missing,
    if it is wanted. Without `seen`: each operation, each schedule, and each schedule with each element type in each
    role.
    """
    having = {sku: (seen or features)(sku) for sku in skus}
    missing = set().union(*having.values())
    chosen = []
    waiting = [(-len(found), index, sku) for index, (sku, found) in enumerate(having.items())]
    heapq.heapify(waiting)
    while waiting and waiting[0][0]:
        count, index, best = heapq.heappop(waiting)
        left = len(having[best] & missing)
        if left < -count:  # of what others have been chosen for since
            heapq.heappush(waiting, (-left, index, best))
        elif wanted(best):
            chosen.append(best)
            missing -= having[best]
    return chosen


def each_type(operation) -> list[dict[str, str]]:
    """Few of an operation's choices of types, in which each letter is each of its types."""
    chosen, missing = [], {each for types in operation.combinations for each in types.items()}
    while missing:
        chosen.append(max(operation.combinations, key=lambda types: len(missing.intersection(types.items()))))
        missing.difference_update(chosen[-1].items())
    return chosen


def features(sku: KernelSku) -> set[tuple]:
    """What a SKU is an example of; one of a multi-kernel form not of its operation, which has kernels of rows too."""
    found = registry.entry_of(sku)
    operation, variant = found.operation, found.variant
    schedule = (variant.kernel, variant.suffix, variant.layout)
    seen: set[tuple] = {("schedule", *schedule)}
    if not operation.of_alternative:
        seen.add(("operation", operation.function))
    if isinstance(variant, RowVariant):  # threads meet in other ways the more they are
        seen.add(("threads", *schedule, variant.threads))
    if isinstance(variant, ClusterVariant):
        seen.add(("blocks", *schedule, variant.blocks))
    for index, operand in enumerate(operation.operands):
        role = "input" if index < len(operation.inputs) else "output"
        if operand.dims != operation.space:
            role = "scalar" if operand.scalar else "parameter"
        seen.add((*schedule, role, operation.word(operand, found.types)))
    return seen


def structure(sku: KernelSku) -> set[tuple]:
    """What the text of a SKU's kernel is made of: its schedule, the types in each role of each kind of kernel, its
    headers, what it reduces and in how many passes; whichever operation it is of.

    Types change loads, stores and conversions, which the schedules of one kind of kernel share: each type with each of
    them is for tests/gpu.
    """
    found = registry.entry_of(sku)
    operation, variant = found.operation, found.variant
    own = (variant.kernel, variant.suffix, variant.layout)
    seen = {
        (variant.kernel, *each[3:]) if each[:3] == own else each for each in features(sku) if each[0] != "operation"
    }
    seen |= {("header", name) for name in _headers(found.catalog.package, operation.source)}
    seen |= {("reduction", each) for each in operation.analysis.split}
    if operation.reduces:
        full = sum(operand.dims == operation.space for operand in operation.inputs)
        outputs = len(operation.outputs)
        found = operation.analysis
        seen.add(("program", found.reductions, full, outputs, found.chained, bool(found.stack)))
        if found.repeats:
            seen.add(("repeats", *own))
    return seen


@cache
def _headers(package: str, source: str) -> tuple[str, ...]:
    return tuple(compiler.included(registry._CATALOGS[package].source(source)))


def covering_by_source(skus: list[KernelSku]) -> dict[str, list[KernelSku]]:
    """SKUs of few sources in which everything that `structure` says of any occurs, by source: at each step the source
    that has the most of what is missing."""
    having: dict[str, dict[KernelSku, set[tuple]]] = {}
    for sku in skus:
        having.setdefault(registry.entry_of(sku).operation.source, {})[sku] = structure(sku)
    of_source = {source: set().union(*each.values()) for source, each in having.items()}
    missing = set().union(*of_source.values())
    chosen = {}
    while missing:
        source, left = max(
            ((source, missing & found) for source, found in of_source.items()), key=lambda found: len(found[1])
        )
        missing -= left
        while left:
            best = max(having[source], key=lambda sku: len(having[source][sku] & left))
            left -= having[source][best]
            chosen.setdefault(source, []).append(best)
    return chosen


def each_schedule() -> list[KernelSku]:
    """Of each function's schedules one kernel: the first has the first element types, the next one the next.

    Of those that hold rows, read them again, and of split reductions along and across rows, one each: how rows lie and
    how many threads there are changes from function to function.
    """
    members: dict[tuple, list[KernelSku]] = {}
    for sku in registry.skus():
        if sku.backend is BackendKind.CUDA:
            found = registry.entry_of(sku)
            schedule = found.variant
            if isinstance(schedule, RowVariant):
                schedule = schedule.keep
            elif isinstance(schedule, SplitVariant):
                schedule = schedule.kernel
            members.setdefault((found.operation.function, schedule), []).append(sku)
    return [skus[7 * index % len(skus)] for index, skus in enumerate(members.values())]
