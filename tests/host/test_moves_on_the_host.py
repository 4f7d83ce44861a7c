"""One kernel of each move that is easily wrong and seldom seen, run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from problems import ArrayLayout, calls, candidates, is_alternative, lay_out, served
from values import Case, cases

from host import emulator
from skuda.launch import registry
from skuda.model.sku import BackendKind, KernelSku
from skuda.schedules import split_reduction
from skuda.schedules.row_variants import ClusterVariant, RowVariant, SplitVariant
from skuda.schedules.scan_variants import ScanVariant
from skuda.schedules.slab_variants import SlabVariant
from skuda.schedules.stripe_variants import StripeVariant
from skuda.schedules.variant import (
    BROADCAST,
    COLUMNS,
    COLUMNS_UNALIGNED,
    GROUPS,
    PITCHED,
    ROWS,
    SHIFTED,
    SINGLE_SMALL,
    STAGES,
    STRIDED,
    TABULATE,
    TILE,
    TUNED,
    VEC,
    RowMode,
)

SKUS = [sku for sku in registry.skus() if sku.backend is BackendKind.CUDA and emulator.emulated(sku)]


def first(op: str, words: tuple[str, ...], wanted) -> KernelSku:
    """The first kernel of a function with some types, the first one that of its first letter, and a wanted schedule."""
    for sku in SKUS:
        found = registry.entry_of(sku)
        types = [*found.types.values()]
        if found.operation.function == op and types[0] == words[0] and {*words} <= {*types} and wanted(found):
            return sku
    raise LookupError(op)


def variant(*which):
    return lambda found: found.variant in which


def is_row(mode: RowMode, threads: int = 0, accumulators: int = 1, keep: bool = True):
    def wanted(found) -> bool:
        own = found.variant
        if not isinstance(own, RowVariant) or (own.mode, own.accumulators, own.keep) != (mode, accumulators, keep):
            return False
        return own.threads >= threads

    return wanted


def is_spread(found) -> bool:
    """Whether several warps have a thread for each group of elements."""
    return isinstance(found.variant, RowVariant) and found.variant.spread > 1 and found.variant.threads > 128


def is_cluster(mode: RowMode, blocks: int):
    return lambda found: (
        isinstance(found.variant, ClusterVariant) and (found.variant.mode, found.variant.blocks) == (mode, blocks)
    )


def is_slab(mode: RowMode, threads: int):
    return lambda found: (
        isinstance(found.variant, SlabVariant) and (found.variant.mode, found.variant.threads) == (mode, threads)
    )


def is_split(kernel: str, mode: RowMode):
    return lambda found: (
        isinstance(found.variant, SplitVariant) and (found.variant.kernel, found.variant.mode) == (kernel, mode)
    )


def is_scan(kernel: str):
    return lambda found: isinstance(found.variant, ScanVariant) and found.variant.kernel == kernel


def is_stripe(blocks: int):
    return lambda found: isinstance(found.variant, StripeVariant) and found.variant.blocks == blocks


WHOLE, UNIT, STEPPED, PIECES, PIECES_OF_HALVES, PIECES_UNALIGNED, BESIDE = RowMode
MOVES = {
    "two accumulators a thread, of several warps": ("sum", ("f16",), is_row(WHOLE, 64, accumulators=2)),
    "two accumulators a thread, normalized": ("rms_norm", ("f16",), is_row(WHOLE, 64, accumulators=2)),
    "many warps": ("layer_norm", ("f32",), is_row(WHOLE, 1024)),
    "a group to a thread": ("softmax", ("f32",), is_row(WHOLE, 4)),
    "a group to a thread, misaligned": ("layer_norm", ("f16",), is_row(UNIT, 4)),
    "rows of a warp, misaligned": ("layer_norm", ("f16",), is_row(UNIT, 8)),
    "long rows, misaligned": ("softmax", ("f16",), is_row(UNIT, 256)),
    "rows by way of shared memory": ("softmax", ("f32",), is_row(UNIT, 256)),
    "rows and columns by way of shared memory": ("layer_norm", ("f32",), is_row(UNIT, 64)),
    "rows whose elements lie apart": ("log_softmax", ("f32",), is_row(STEPPED, 32)),
    "packed codes of misaligned rows": ("dynamic_quantize_per_token", ("f16", "s4"), is_row(UNIT, 32)),
    "a thread for each group of few rows": ("softmax", ("f32",), is_spread),
    "moments of such groups": ("layer_norm", ("f16",), is_spread),
    "columns that few calls read": ("cross_entropy_stage3_backward", ("f32",), is_cluster(WHOLE, 8)),
    "sixteen blocks": ("softmax", ("f16",), is_cluster(WHOLE, 16)),
    "sixteen blocks and weights": ("rms_norm", ("f16",), is_cluster(WHOLE, 16)),
    "eight blocks": ("layer_norm", ("f32",), is_cluster(WHOLE, 8)),
    "eight blocks, misaligned": ("layer_norm", ("f32",), is_cluster(UNIT, 8)),
    "eight blocks, misaligned half types": ("softmax_dynamic_quantize", ("f16", "s4"), is_cluster(UNIT, 8)),
    "sixteen blocks, misaligned": ("softmax", ("f64",), is_cluster(UNIT, 16)),
    "eight blocks, misaligned half types that are kept": ("rms_norm", ("f16",), is_cluster(UNIT, 8)),
    "eight blocks, misaligned bytes": ("masked_softmax", ("f16",), is_cluster(UNIT, 8)),
    "slabs of rows": ("layer_norm_backward", ("f32",), is_slab(WHOLE, 128)),
    "slabs of rows, misaligned": ("layer_norm_backward", ("f32",), is_slab(UNIT, 128)),
    "slabs of rows, misaligned half types": ("rms_norm_backward", ("f16", "f32"), is_slab(UNIT, 32)),
    "narrow slabs, two groups a thread": ("layer_norm_backward", ("f16",), is_slab(WHOLE, 8)),
    "narrow slabs, a group a thread": ("layer_norm_backward", ("f32",), is_slab(WHOLE, 16)),
    "narrow slabs, rows of two warps": ("rms_norm_backward", ("f32",), is_slab(WHOLE, 64)),
    "splits along": ("sum", ("f32",), is_split("along", WHOLE)),
    "splits along, misaligned": ("sum", ("f16",), is_split("along", UNIT)),
    "extremes of bytes": ("amax", ("s8",), is_row(WHOLE)),
    "splits across": ("sum", ("f16",), is_split("across", WHOLE)),
    "moments across": ("var", ("f16",), is_split("across", WHOLE)),
    "moments across, a group while others come": ("var", ("f32",), is_split("across", WHOLE)),
    "sums of exponentials across": ("logsumexp", ("f32",), is_split("across", WHOLE)),
    "sums of exponentials along": ("logsumexp", ("f16",), is_split("along", UNIT)),
    "sums of exponentials in a row": ("logsumexp", ("f16",), is_row(WHOLE, 64, accumulators=2)),
    "slabs across": ("rms_norm_stage2_backward", ("f16",), is_split("across", WHOLE)),
    "splits across tables": ("add_outer_stage2_backward", ("f16",), is_split("across", WHOLE)),
    "a stripe": ("dynamic_quantize_asymmetric_per_channel", ("f16", "s8"), is_stripe(1)),
    "a stripe that a cluster holds": ("softmax", ("f32",), is_stripe(8)),
    "pieces of whole shares": ("batch_norm_training", ("f32",), is_row(PIECES, 128)),
    "pieces of whole shares of half types": ("batch_norm_training_backward", ("f16",), is_row(PIECES, 16)),
    "pieces of halves of shares": ("batch_norm_training", ("f16",), is_row(PIECES_OF_HALVES, 64)),
    "pieces of halves of wide shares": ("batch_norm_training_backward", ("f32",), is_row(PIECES_OF_HALVES, 16)),
    "pieces of halves, bytes": ("dynamic_quantize_per_channel", ("f16", "s8"), is_row(PIECES_OF_HALVES, 32)),
    "halves that a cluster holds": ("batch_norm_training_backward", ("f16",), is_cluster(PIECES_OF_HALVES, 8)),
    "short rows beside each other": ("softmax", ("f16",), is_row(BESIDE, accumulators=3)),
    "sums of short rows beside each other": ("l2_normalize", ("f32",), is_row(BESIDE, accumulators=4)),
    "gradients of short rows beside each other": ("log_softmax_backward", ("f16",), is_row(BESIDE, accumulators=2)),
    "extremes of short rows beside each other": ("amax_backward", ("f32",), is_row(BESIDE, accumulators=3)),
    "splits along pieces": ("sum", ("f16",), is_split("along", STEPPED)),
    "moments along pieces": ("var", ("f32",), is_split("along", STEPPED)),
    "gradients along pieces": ("batch_norm_backward", ("f16", "f16"), is_split("along", STEPPED)),
    "indices along pieces": ("argmin", ("bf16",), is_split("along", STEPPED)),
    "pieces of any length": ("batch_norm_training", ("f16",), is_row(PIECES_UNALIGNED, 64)),
    "pieces of any length, rows of a warp": ("batch_norm_training_backward", ("f32",), is_row(PIECES_UNALIGNED, 4)),
    "pieces of any length, bytes": ("dynamic_quantize_per_channel", ("f16", "s8"), is_row(PIECES_UNALIGNED, 128)),
    "pieces that a cluster holds": ("batch_norm_training", ("f16",), is_cluster(PIECES, 8)),
    "pieces of words that a cluster holds": ("batch_norm_training_backward", ("f32",), is_cluster(PIECES, 8)),
    "moments of a stripe": ("batch_norm_training_backward", ("f32",), is_stripe(4)),
    "a scan of pairs along rows": ("logcumsumexp", ("f32",), is_scan("scan")),
    "a scan of pairs down rows": ("logcumsumexp", ("f64",), is_scan("scan_down")),
    "random numbers apart": ("gumbel_softmax_backward", ("f32",), is_row(WHOLE, 128)),
    "splits with indices": ("argmax", ("f16",), is_split("across", UNIT)),
    "vectors": ("quantize_per_token", ("f32", "u4"), variant(VEC)),
    "vectors of a long formula": ("erfc", ("f32",), variant(VEC)),
    "shifted vectors": ("lerp", ("f16",), variant(SHIFTED)),
    "few elements one by one": ("lerp", ("f16",), variant(SINGLE_SMALL)),
    "few elements of runs one by one": ("quantize_per_token", ("f32", "s8"), variant(SINGLE_SMALL)),
    "pitched vectors": ("quantize_per_token", ("f16", "s8"), variant(PITCHED)),
    "quotients of any number": ("quantize_per_token_backward", ("f16",), variant(VEC)),
    "shares of rows": ("quantize_per_token", ("f16", "s4"), variant(ROWS)),
    "groups": ("quantize_per_group", ("f16", "u4"), variant(GROUPS)),
    "columns": ("quantize_per_channel", ("f16", "s8"), variant(COLUMNS)),
    "columns and rows": ("outer", ("f16",), variant(COLUMNS)),
    "columns, misaligned": ("quantize_per_channel", ("f16", "s4"), variant(COLUMNS_UNALIGNED)),
    "a tile with packed pairs": ("quantize_per_token", ("f16", "s4"), variant(TILE)),
    "a tile": ("lerp_tensor", ("f32",), variant(TILE)),
    "inputs that broadcast": ("lerp_tensor", ("f16",), variant(BROADCAST)),
    "few inputs that broadcast": ("lerp_tensor", ("f32",), variant(BROADCAST)),
    "columns of several tables": ("outer", ("f16",), variant(BROADCAST)),
    "any strides, packed": ("dequantize_per_token", ("u4", "f32"), variant(STRIDED)),
    "pairs to e4m3": ("quantize_fp8_per_token", ("f32", "e4m3"), variant(VEC)),
    "pairs to e5m2": ("quantize_fp8_per_token", ("f32", "e5m2"), variant(VEC)),
    "pairs from e4m3": ("dequantize_fp8_per_token", ("e4m3", "f32"), variant(VEC)),
    "values between stages": ("standardize", ("f32",), variant(STAGES)),
    "values of several types between stages": ("l2_normalize_backward", ("f32",), variant(STAGES)),
    "values between stages of half types": ("softmax_backward", ("f16",), variant(STAGES)),
}


@pytest.mark.turns(5)
@pytest.mark.parametrize("move", MOVES)
def test_move(move, tmp_path):
    sku = first(*MOVES[move])
    assert list(emulator.Host([sku], tmp_path).faults(sku)) == []


@pytest.mark.parametrize("move", [move for move in MOVES if move.startswith("pairs")])
def test_pairs_by_integers(move, tmp_path):
    """GPUs before sm_89 have no instructions for floats of 8 bits."""
    sku = first(*MOVES[move])
    assert list(emulator.Host([sku], tmp_path, arch=80).faults(sku)) == []


@pytest.mark.parametrize("starts", ["plain shifted", "shifted plain", "shifted shifted"])
def test_results_are_looked_up_from_any_element_on(starts, tmp_path):
    sku = first("cbrt", ("f16",), variant(TABULATE))
    host, (read, written) = emulator.Host([sku], tmp_path), starts.split()
    found = [call for call in candidates(sku, False, "plain") if served(call) is TABULATE]
    for call in found:
        lay = {name: lay_out(at.shape, read if name == "input" else written) for name, at in call.layouts}
        moved = replace(call, layouts=tuple(lay.items()))
        assert served(moved) is TABULATE
        assert list(host._faults(sku, moved, Case(moved).problem())) == []
    assert len(found) > 2


@pytest.mark.parametrize("mode", [RowMode.WHOLE, RowMode.UNIT, RowMode.STEPPED])
@pytest.mark.parametrize(
    "function, length", [("sum", 4), ("var", 9), ("var", 3), ("var", 6), ("argmax", 2), ("mean", 1)]
)
def test_short_rows_across_that_lie_along_three_axes(function, length, mode, tmp_path):
    """As sums over the batch of what heads have: a thread ends its columns by itself, or joins others of a team."""
    sku = first(function, ("f32",), lambda found: isinstance(found.variant, SplitVariant) and
                found.variant.kernel == "across" and found.variant.mode is mode)  # fmt: skip
    width = 24 if mode is RowMode.WHOLE else 67
    step = 2 if mode is RowMode.STEPPED else 1
    kept, pitch = (3, 5, width), step * width
    input = ArrayLayout((*kept, length), (pitch, 3 * pitch, step, 15 * pitch), 0, 15 * pitch * length)
    call = calls(sku)[0]
    names = [name for name, _ in call.layouts]
    layouts = dict.fromkeys(names, lay_out(kept, "plain")) | {names[0]: input}
    moved = replace(call, sizes=(("kept", kept), ("reduced", (length,))), layouts=tuple(layouts.items()))
    assert served(moved) == registry.entry_of(sku).variant
    host = emulator.Host([sku], tmp_path)
    assert list(host._faults(sku, moved, Case(moved).problem())) == []


def test_what_the_moves_are_tried_on():
    """Rows of more segments than a cluster has teams, smoothed labels, odd ends of pairs, stages with a workspace."""
    for move in ("sixteen blocks", "sixteen blocks and weights"):
        lengths = [prod(np.atleast_1d(dict(case.call.sizes)["d"])) for case in cases(first(*MOVES[move]))]
        assert max(lengths) > 4 * 65536  # four teams take a segment each
    weighted = first(*MOVES["columns that few calls read"])
    assert {case.call.fields.get("label_smoothing", 0) for case in cases(weighted)} == {0, 0.25}
    tile = first(*MOVES["a tile with packed pairs"])
    assert any(dict(case.call.sizes)["d"] % 2 for case in cases(tile))
    stages = first(*MOVES["values between stages"])
    assert is_alternative(registry.entry_of(stages))
    rows = [prod(dict(case.call.sizes)["n"]) for case in cases(stages)]
    assert any(count * 4 % 256 for count in rows)  # what one stage leaves ends within a boundary


@pytest.mark.parametrize("rows", [5 * 65536, 9 * 65536 + 777])
def test_more_than_eight_partial_results_of_a_thread_are_joined_as_a_tree(rows, tmp_path, monkeypatch):
    """Blocks that join them have few threads here: with as many as on a GPU it would take 33 million elements."""
    monkeypatch.setattr(split_reduction, "TUNED", TUNED.but(split_threads=32))
    sku = first("sum", ("f32",), is_split("across", STEPPED))
    call = calls(sku)[0]
    names = [name for name, _ in call.layouts]
    input = ArrayLayout((2, rows), (1, 2), 0, 2 * rows)
    layouts = dict.fromkeys(names, lay_out((2,), "plain")) | {names[0]: input}
    moved = replace(call, sizes=(("kept", (2,)), ("reduced", (rows,))), layouts=tuple(layouts.items()))
    host = emulator.Host([sku], tmp_path)
    assert list(host._faults(sku, moved, Case(moved).problem())) == []
