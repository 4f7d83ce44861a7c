"""The sizes that are right for a GPU, as data: one record for each architecture that was measured.

`Launch` has what the host decides by. Symbols name some of it (`vec16`, `row256x4`), and there is one catalog for all
GPUs, so a process has one `Launch`: that of SM_90, or of the architecture that SKUDA_TUNING names (`sm_90`) when it is
first asked for. It does not follow from the devices, or the same program would have other symbols on another machine.

`Tuning` adds what only machine code depends on. Kernels are compiled with the record of the architecture that they are
for, as constants in a header that is written from it: `header`.

A GPU without a record takes its neighbour's: `tuning_for`.

Not here: what decides bits (`skuda.model.sum_order`), the layout of arguments (`skuda.schedules.abi`), and limits that
all GPUs have in common, such as 65,536 registers of a block.
"""

from __future__ import annotations

import os
from functools import cache

from skuda.errors import Unsupported
from skuda.model.records import Record


class Launch(Record):
    """Sizes that the host decides by.

    Attributes:
        elementwise_threads: threads of a block of an elementwise kernel.
        few_blocks: blocks; fewer leave a GPU idle (4 to a multiprocessor hide latency), so threads take less each.
        small_threads: threads of a block of `vec_small`: half as many take longer to begin.
        small_blocks: blocks of `vec_small`, up to which it serves; half as many where its stores are narrower than
            those of `vec` and no functions take longer.
        small_shifted_blocks: the same of `vec_shifted_small`, whose blocks have as many elements.
        single_elements: elements of a thread of `vec_single`, at most.
        single_blocks: blocks of `vec_single`, up to which it serves: a GPU has room for as many at once. Of elements
            that begin anywhere twice as many where there are functions; of others, of two elements a thread.
        busy_threads: threads; where there are fewer, each takes fewer shares of rows.
        vec_bits: bits of loads that a thread of `vec` has under way.
        vec_groups: vectors that it takes, at most.
        multiprocessors: of a GPU, where nobody asks a device.
        vec_blocks: blocks of `vec`, from which on there are fewer where formulas are long,
        vec_turns: and shares that each of these takes, one after the other.
        tabled_elements: elements from which on the results of a function of 16 bits are looked up.
        tabulate_threads: threads of a block of `tabulate`.
        look_up_threads: threads of a block of `look_up`; a multiprocessor has one.
        rows_bits: bits of loads that a thread of `rows` has under way.
        rows_groups: shares that it loads at once, at most.
        rows_shares: shares that it takes one after the other, at most.
        groups_bits: bits of loads that a thread of `groups` has under way, of several inputs.
        groups_bits_of_one: the same of one input.
        groups_turns: vectors that it takes, at most.
        groups_elements: elements that it takes, at most.
        columns_bits: bits of loads that a thread of `columns` has under way.
        columns_bits_of_each: bits of loads where rows have inputs too.
        columns_bits_written: bits that it writes, where more is written than read.
        columns_lanes: columns that it prepares, of several inputs, at most.
        columns_lanes_of_one: the same of one input.
        columns_rows: rows that it takes, at most.
        columns_rows_of_each: the same where rows have inputs too.
        columns_rows_small: the same where there are few blocks.
        columns_unaligned_bits: bits of loads that a thread of `columns_unaligned` has under way.
        columns_unaligned_lanes: columns that it prepares, at most.
        columns_unaligned_rows: rows that it loads at once, at most.
        columns_unaligned_shares: rows that it takes one after the other, at most.
        columns_unaligned_least: elements of rows with gaps between them, from which on it serves where a vector has
            sixteen.
        broadcast_vectors_least: elements of rows of vectors of eight, with gaps between them, from which on vectors are
            found one by one.
        broadcast_most: elements of rows with gaps between them, from which on shares of rows are taken.
        broadcast_bits: bits that a vector reads of all inputs, from which on that is so: its elements are read one by
            one, and those of neighbouring threads are then far apart.
        straddle: elements of a run, from which on the vectors that straddle two do not count.
        straddle_aligned: the same in aligned vectors, where doing some twice costs less than shifting all.
        tile_bytes: bytes of shared memory of a tile, so that several blocks have room.
        tile_elements: elements of a tile for each thread, at most.
        tile_elements_packed: the same of packed elements.
        tile_sides: elements that a tile may have along an axis.

        row_threads: threads of a block that holds rows, at least: short rows share one.
        row_shapes: (threads, chunks) that hold a row of each size. Sums have one position for each of these threads,
            and those of a row of one group no others.
        row_reread: (threads, chunks) of rows that are read again by each pass.
        halved_threads: threads of a row, from which on half as many hold twice as much each where registers allow.
        halved_bits: bits of an element of all inputs, up to which they do.
        held_threads: threads of a row, of which half as many hold more each where they have more to do than to wait.
        held_bits: bits of an element of all inputs, up to which they do.
        held_shapes: chunks that each of these may hold.
        row_other_registers: registers of a thread beside the elements that it holds.
        row_other_registers_unaligned: the same where elements do not lie in whole vectors.
        few_threads: threads of all rows, up to which launches and loads take the time, not bytes.
        few_rows_threads: threads of a row, from and up to which such rows have schedules of their own.
        spread_threads: the same, where there is a thread for each group of elements in place of one for several.
        few_spread_threads: threads of all such rows, at most.
        spread_bytes: bytes of values that these threads put into shared memory for a reduction, where random numbers
            are made: there longer rows have so many threads too.
        short_row: elements of a row, up to which it is no work for several blocks.

        clusters: blocks of a cluster that holds a row, of each schedule.
        cluster_threads: threads of a block of a cluster, at most.
        cluster_busy: threads of blocks of clusters that a multiprocessor has registers for.
        lone_row: elements of a row, up to which one block does better than a cluster.
        few_segments: segments of a row, up to which more threads are not worth more blocks.
        shared_bytes: bytes of shared memory that a block may have.

        split_threads: threads of a block of a split reduction, at most.
        split_blocks: blocks that keep a GPU busy, which parts of rows are cut for.
        split_few_blocks: blocks; where there are fewer, each takes fewer columns.
        split_busy_threads: threads that keep a GPU busy: rows of so many, one block each, are not split.
        split_few_threads: threads across rows; where there are fewer (of slabs: half as many), each takes one column
            instead of a vector.
        split_dealt_blocks: blocks of a warp along rows; where there are no more, several warps share its turns.
        split_places: positions that a block across rows takes, one a thread.
        split_each: accumulators that a thread across rows takes one after the other, at most.
        split_each_threads: threads that are to be left then.
        split_lone_places: positions that it takes of few short rows, at most, so that it takes all.
        split_lone_elements: elements of all rows, up to which rows are few.
        split_lone_blocks: as split_few_blocks, of such rows.
        split_line_bytes: bytes of a row's neighbours that a block across rows takes: whole lines of memory.
        split_lanes: rows that a thread across rows takes, at most.
        split_values: values that a thread makes of each of its rows, up to which it takes as many.

        stripe_few_threads: threads of stripes; where there are fewer, each takes fewer rows.
        stripe_least_blocks: blocks of stripes; where there are fewer, several kernels do better.
        stripe_short_row: elements of rows of which any number of blocks does.

        stages_elements: elements from which on rows that lie beside each other are worth several launches.
        stages_short_row: elements of a row, up to which that takes four times as many.
        stages_long_row: elements of a row from which on it is worth several launches, where there are few rows.
        stages_few_blocks: blocks that leave most of a GPU idle.
        stages_lone_bytes: bytes of a row of all operands, up to which one block does better than several kernels.
    """

    # Elementwise.
    elementwise_threads: int
    few_blocks: int
    small_threads: int
    small_blocks: int
    small_shifted_blocks: int
    single_elements: int
    single_blocks: int
    busy_threads: int
    vec_bits: int
    vec_groups: int
    multiprocessors: int
    vec_blocks: int
    vec_turns: int
    tabled_elements: int
    tabulate_threads: int
    look_up_threads: int
    rows_bits: int
    rows_groups: int
    rows_shares: int
    groups_bits: int
    groups_bits_of_one: int
    groups_turns: int
    groups_elements: int
    columns_bits: int
    columns_bits_of_each: int
    columns_bits_written: int
    columns_lanes: int
    columns_lanes_of_one: int
    columns_rows: int
    columns_rows_of_each: int
    columns_rows_small: int
    columns_unaligned_bits: int
    columns_unaligned_lanes: int
    columns_unaligned_rows: int
    columns_unaligned_shares: int
    columns_unaligned_least: int
    broadcast_vectors_least: int
    broadcast_most: int
    broadcast_bits: int
    straddle: int
    straddle_aligned: int
    tile_bytes: int
    tile_elements: int
    tile_elements_packed: int
    tile_sides: tuple[int, ...]
    # Rows.
    row_threads: int
    row_shapes: tuple[tuple[int, int], ...]
    row_reread: tuple[int, int]
    halved_threads: int
    halved_bits: int
    held_threads: tuple[int, int]
    held_bits: int
    held_shapes: tuple[int, ...]
    row_other_registers: int
    row_other_registers_unaligned: int
    few_threads: int
    few_rows_threads: tuple[int, int]
    spread_threads: tuple[int, int]
    few_spread_threads: int
    spread_bytes: int
    short_row: int
    # Clusters.
    clusters: tuple[int, ...]
    cluster_threads: int
    cluster_busy: int
    lone_row: int
    few_segments: int
    shared_bytes: int
    # Split reductions.
    split_threads: int
    split_blocks: int
    split_few_blocks: int
    split_busy_threads: int
    split_few_threads: int
    split_dealt_blocks: int
    split_places: int
    split_each: int
    split_each_threads: int
    split_lone_places: int
    split_lone_elements: int
    split_lone_blocks: int
    split_line_bytes: int
    split_lanes: int
    split_values: int
    # Stripes.
    stripe_few_threads: int
    stripe_least_blocks: int
    stripe_short_row: int
    # Forms in several kernels.
    stages_elements: int
    stages_short_row: int
    stages_long_row: int
    stages_few_blocks: int
    stages_lone_bytes: int


class Tuning(Launch):
    """All sizes for an architecture: those of `Launch`, and those that only machine code depends on.

    Attributes:
        tile_batch: loads of a thread that are under way where a tile's lines are not in whole vectors.
        tile_stores_unrolled: stores of a thread that are unrolled there.

        row_bytes_ahead: bytes of all inputs between a row and the one that the L2 cache is asked for: with fewer it
            comes too late, and more do not stay in the cache.
        near_rows: rows, up to which what they have in common is brought to the L1 cache: of more, others have done so.
        early_threads: threads of a row, up to which columns are read with it.
        early_registers: registers that columns may take then.
        early_registers_unaligned: the same of several columns, where rows do not lie in whole words.
        few_rows_registers: registers for a row and its columns, where rows are few.
        near_registers: registers for a row and several columns: with more, columns are not held.
        row_registers: registers beside a row, where spills begin.
        row_value_registers: the same for each value that a pass makes.
        bound_threads: threads of a row, from which on a kernel's registers are bounded by the blocks that have room.
        held_chunks: chunks whose values a thread holds for each of its accumulators, at most.
        reread_unrolled: chunks that are under way together where rows are read again.
        unaligned_registers: registers beside what a thread holds of a row that starts at any element.
        unaligned_early_registers: the same where columns are read with it.
        unaligned_apart_registers: the same where a warp has several rows, which have values of their own.
        unaligned_fewest_registers: those of a thread that holds one group.
        unaligned_narrow_bits: bits of an element of each of several inputs, up to which a tighter bound spills nothing.
        together_bytes: bytes of an element of each thread of a block, up to which a row's words are loaded at once.
        staged_bytes: bytes of shared memory for rows that start at any element, of 4 or 8 bytes each, at most.
        staged_threads: threads of a row, up to which such rows go that way beside columns; without columns, from the
            next number on.
        stretch_bytes: bytes of shared memory for outputs, at most.
        stretch_bits: bits of a thread's outputs that go through it together, for each element of a share, at most.

        cluster_bytes_ahead: as row_bytes_ahead, of rows that a cluster holds.
        cluster_batch: chunks that are copied to shared memory as a group.
        cluster_turn_bits: bits of an element of all inputs, in the shares of a thread that are under way together.
        cluster_turns: such shares, at most.
        cluster_blocks: blocks that a multiprocessor has room for.
        cluster_blocks_narrow: the same of narrow elements and few passes.
        cluster_narrow_bits: bits of an element of all inputs that are narrow.
        cluster_few_passes: passes that are few.

        split_along_bits: bits of an element of all inputs, in the groups along a row that a thread loads at once.
        split_along_turns: such groups, at most.
        split_along_index_bits: as split_along_bits, where values go on with their indices.
        split_along_index_turns: such groups, at most.
        split_across_bits: as split_along_bits, of the groups across rows.
        split_across_turns: such groups, at most.
        split_across_index_bits: bits up to which there are two of them where values go on with their indices.
        split_ask_bits: bits under way, up to which the next groups across rows are brought to the L2 cache.
        split_room: blocks of a split reduction that a multiprocessor has room for.
        split_room_light: the same where a thread needs few registers.
    """

    # Tiles.
    tile_batch: int
    tile_stores_unrolled: int
    # Rows.
    row_bytes_ahead: int
    near_rows: int
    early_threads: int
    early_registers: int
    early_registers_unaligned: int
    few_rows_registers: int
    near_registers: int
    row_registers: int
    row_value_registers: int
    bound_threads: int
    held_chunks: int
    reread_unrolled: int
    unaligned_registers: int
    unaligned_early_registers: int
    unaligned_apart_registers: int
    unaligned_fewest_registers: int
    unaligned_narrow_bits: int
    together_bytes: int
    staged_bytes: int
    staged_threads: int
    stretch_bytes: int
    stretch_bits: int
    # Clusters.
    cluster_bytes_ahead: int
    cluster_batch: int
    cluster_turn_bits: int
    cluster_turns: int
    cluster_blocks: int
    cluster_blocks_narrow: int
    cluster_narrow_bits: int
    cluster_few_passes: int
    # Split reductions.
    split_along_bits: int
    split_along_turns: int
    split_along_index_bits: int
    split_along_index_turns: int
    split_across_bits: int
    split_across_turns: int
    split_across_index_bits: int
    split_ask_bits: int
    split_room: int
    split_room_light: int


SM_90 = Tuning(  # measured on an H200
    elementwise_threads=128,
    few_blocks=512,
    small_threads=256,
    small_blocks=2048,
    small_shifted_blocks=512,
    single_elements=4,
    single_blocks=1024,
    busy_threads=1 << 16,
    vec_bits=512,
    vec_groups=2,
    multiprocessors=132,
    vec_blocks=1 << 15,
    vec_turns=4,
    tabled_elements=1 << 22,
    tabulate_threads=128,
    look_up_threads=1024,
    rows_bits=256,
    rows_groups=2,
    rows_shares=8,
    groups_bits=512,
    groups_bits_of_one=1024,
    groups_turns=4,
    groups_elements=32,
    columns_bits=1024,
    columns_bits_of_each=512,
    columns_bits_written=256,
    columns_lanes=2,
    columns_lanes_of_one=4,
    columns_rows=16,
    columns_rows_of_each=4,
    columns_rows_small=2,
    columns_unaligned_bits=512,
    columns_unaligned_lanes=8,
    columns_unaligned_rows=2,
    columns_unaligned_shares=32,
    columns_unaligned_least=256,
    broadcast_vectors_least=64,
    broadcast_most=512,
    broadcast_bits=512,
    straddle=1024,
    straddle_aligned=4,
    tile_bytes=43 << 10,
    tile_elements=128,
    tile_elements_packed=32,
    tile_sides=(128, 64, 32),
    tile_batch=8,
    tile_stores_unrolled=4,
    row_threads=128,
    row_shapes=((1, 1), (4, 1), *((1 << log, 4) for log in range(2, 11)), (1024, 8)),
    row_reread=(1024, 8),
    halved_threads=512,
    halved_bits=16,
    held_threads=(256, 512),
    held_bits=32,
    held_shapes=(5, 6),
    row_other_registers=32,
    row_other_registers_unaligned=48,
    few_threads=1 << 18,
    few_rows_threads=(64, 512),
    spread_threads=(32, 64),
    few_spread_threads=1 << 16,
    spread_bytes=2 << 10,
    short_row=1024,
    row_bytes_ahead=5 << 20,
    near_rows=512,
    early_threads=128,
    early_registers=32,
    early_registers_unaligned=16,
    few_rows_registers=96,
    near_registers=48,
    row_registers=24,
    row_value_registers=2,
    bound_threads=256,
    held_chunks=4,
    reread_unrolled=2,
    unaligned_registers=16,
    unaligned_early_registers=24,
    unaligned_apart_registers=32,
    unaligned_fewest_registers=56,
    unaligned_narrow_bits=32,
    together_bytes=2048,
    staged_bytes=32 << 10,
    staged_threads=128,
    stretch_bytes=40 << 10,
    stretch_bits=64,
    clusters=(8, 16),
    cluster_threads=256,
    cluster_busy=768,
    lone_row=1 << 15,
    few_segments=2,
    shared_bytes=227 << 10,
    cluster_bytes_ahead=4 << 20,
    cluster_batch=4,
    cluster_turn_bits=64,
    cluster_turns=4,
    cluster_blocks=3,
    cluster_blocks_narrow=4,
    cluster_narrow_bits=16,
    cluster_few_passes=3,
    split_threads=256,
    split_blocks=1056,
    split_few_blocks=264,
    split_busy_threads=1 << 16,
    split_few_threads=1 << 14,
    split_dealt_blocks=128,
    split_places=8,
    split_each=4,
    split_each_threads=1 << 17,
    split_lone_places=32,
    split_lone_elements=5 << 18,
    split_lone_blocks=66,
    split_line_bytes=256,
    split_lanes=8,
    split_values=2,
    stripe_few_threads=1 << 14,
    stripe_least_blocks=64,
    stripe_short_row=256,
    split_along_bits=128,
    split_along_turns=8,
    split_along_index_bits=64,
    split_along_index_turns=4,
    split_across_bits=64,
    split_across_turns=4,
    split_across_index_bits=64,
    split_ask_bits=64,
    split_room=2,
    split_room_light=3,
    stages_elements=1 << 21,
    stages_short_row=1 << 10,
    stages_long_row=1 << 17,
    stages_few_blocks=48,
    stages_lone_bytes=1 << 17,
)

# Of every GPU that was measured. One more is `SM_90.but(...)` with what differs: CONTRIBUTING.md.
TUNINGS: dict[int, Tuning] = {90: SM_90}
_DEFAULT = "sm_90"
HEADER = "tuning.cuh"
# What the host launches and a kernel is compiled for: the same on both sides, so it is of the process's record.
_AGREED = (
    "elementwise_threads", "small_threads", "tabulate_threads", "look_up_threads", "row_threads", "cluster_threads",
    "split_threads",
)  # fmt: skip


def tuning_for(arch: str) -> Tuning:
    """The record of an architecture such as `sm_90`; else the nearest older one's, else the oldest one's.

    Raises:
        Unsupported: that is no architecture.
    """
    prefix, _, number = arch.partition("_")
    number = number.removesuffix("a").removesuffix("f")  # of sm_90a, sm_100f
    if prefix != "sm" or not number.isdecimal():
        raise Unsupported(f"{arch!r} is no architecture, such as 'sm_90'")
    older = [each for each in TUNINGS if each <= int(number)]
    return TUNINGS[max(older) if older else min(TUNINGS)]


@cache
def chosen() -> str:
    """The architecture whose `Launch` this process has: SKUDA_TUNING, else `sm_90`."""
    return os.environ.get("SKUDA_TUNING") or _DEFAULT


@cache
def active() -> Tuning:
    """Its record.

    Raises:
        Unsupported: SKUDA_TUNING is no architecture.
    """
    return tuning_for(chosen())


def constants(arch: str) -> dict[str, int]:
    """What kernels for an architecture are compiled with, by the constants' names."""
    own, shared = tuning_for(arch), active()
    fields = [name for name in Tuning._fields if name not in Launch._fields]
    found = {name: getattr(shared, name) for name in _AGREED} | {name: getattr(own, name) for name in fields}
    return {name.upper(): size for name, size in found.items()}


@cache
def header(arch: str) -> str:
    """The text of `tuning.cuh` for an architecture: each constant after what the classes above say of it."""
    said = f"{Launch.__doc__}{Tuning.__doc__}"  # without a word where Python was told to drop such texts
    comments: dict[str, str] = {}
    name = ""
    for line in said.splitlines():  # 8 spaces, a name, what it is; 12 spaces, more of that
        if line.startswith(" " * 12) and name:
            comments[name] += f"\n{line.strip()}"
        elif line.startswith(" " * 8):
            name, _, text = line.strip().partition(": ")
            name = name.upper()
            comments[name] = text
    lines = ["// Sizes that are right for an architecture, written from skuda.schedules.tuning.", "#pragma once"]
    for name, size in constants(arch).items():
        lines += [f"// {line.strip()}" for line in comments.get(name, "").splitlines()]
        lines.append(f"constexpr int {name} = {size};")
    return "\n".join([*lines, ""])
