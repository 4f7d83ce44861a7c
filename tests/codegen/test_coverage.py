"""Which kernels a run on a GPU takes: the covering set, turns, and what stands by the rule."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from itertools import product
from types import SimpleNamespace

import pytest
import turns
from gpu import conftest as gpu_conftest

from skuda.generated import CATALOG
from skuda.schedules.row_variants import RowVariant
from skuda.schedules.variant import STAGES, VEC
from skuda.verification import coverage, evidence
from skuda.verification.coverage import candidates, divide, standing

COMMIT = "fd4e4c5b"


@cache
def every() -> dict[str, coverage.Candidate]:
    return {kernel.symbol: kernel for kernel in candidates(CATALOG.operations)}


@cache
def chosen() -> coverage.Division:
    return divide(CATALOG.operations)


def test_the_candidates_are_the_kernels_of_the_catalog():
    assert list(every()) == list(evidence.kernels(CATALOG.operations))


@pytest.mark.turns(2)
def test_a_run_takes_few():
    """Six more operations, with 1,197 kernels of known structures, added 29 to the covering set; new element types add
    more, and so do schedules: those of scans 110. The three forms of 17 losses added 580, norms of channels 320, the
    forms of losses by label 300, outer products and calls without arrays 150, few rows 300, rows of 8 elements and what
    their neighbours share 450, stripes 60, rows of one element and few elements that begin anywhere 220, more
    elements a thread of narrow rows 116, and rows in pieces and short ones beside each other 270."""
    assert len(chosen().covering) < 7_300
    assert all(len(turn) <= 200 for turn in chosen().turns)


@cache
def grown() -> list[coverage.Candidate]:
    """The kernels of a catalog twice as large: each operation under another name too."""
    others = [
        each.but(name=f"{each.name}_{number}", source=f"{each.row}_{number}.cu")
        for number in (1,)
        for each in CATALOG.operations
    ]
    return [*every().values(), *candidates(others)]


@pytest.mark.turns(4)
def test_one_gpu_verifies_twice_the_catalog_in_eight_minutes():
    """A kernel costs some 0.7 s of one of the 16 cores beside an H200, compilation included: a run of 5,921 took 241 s.
    So 10,900 take 8 minutes.
    """
    assert len({kernel.symbol for kernel in grown()}) == len(grown()) == 2 * len(every())
    few, many = len(chosen().covering), len(coverage.covering(grown()))
    assert many + coverage.TURN < 8 * 60 * 16 / 0.7
    assert many < 1.8 * few  # an operation more needs fewer than one of today's


def test_every_formula_occurs_in_each_compute_type_by_its_preferred_schedule():
    """Against the operations, not against the features by which kernels are chosen."""
    found = defaultdict(set)
    for kernel in map(every().get, chosen().covering):
        found[kernel.operation.function, kernel.types["C"]].add((tuple(kernel.types.items()), kernel.variant))
    for operation in CATALOG.operations:
        by_compute = defaultdict(set)
        for types in operation.kernel_combinations():
            by_compute[types["C"]].add((tuple(types.items()), coverage.preferred(operation, types)))
        assert all(of & found[operation.function, word] for word, of in by_compute.items())


def test_the_preferred_schedule_is_that_of_large_contiguous_arrays():
    preferred = {k.operation.function: k.variant for k in every().values() if k.shows == k.needs}
    assert preferred["lerp"] is VEC
    assert preferred["rms_norm_backward"] is STAGES
    assert isinstance(preferred["softmax"], RowVariant) and preferred["softmax"].elements == 4096
    assert preferred["sum"].kernel == "row"


def test_every_operation_occurs_in_each_type_of_each_letter_and_each_row_in_pairs_of_them():
    def seen(kernels):
        for kernel in kernels:
            operation, types = kernel.operation, kernel.types
            for one, other in product(operation.types.keys() & types, repeat=2):
                yield operation.function, one, types[one]
                yield operation.row, operation.direction, one, types[one], other, types[other]

    found = set(seen(map(every().get, chosen().covering)))
    assert found == set(seen(every().values()))
    assert {("quantize_per_token", "Q", word) for word in ("s8", "u8", "s4", "u4")} < found


def test_every_schedule_occurs_with_each_element_type_in_each_role():
    """By the names in symbols and the declarations of operands, for inputs and outputs of every schedule."""

    def seen(symbols):
        found = set()
        for symbol in symbols:
            kernel = every()[symbol]
            name = re.sub(r"\d+", "", symbol.partition("__")[2])
            for operand in kernel.operation.operands:
                way = operand in kernel.operation.inputs, operand.dims == kernel.operation.space, operand.scalar
                found.add((name, way, kernel.operation.word(operand, kernel.types)))
        return found

    assert seen(chosen().covering) == seen(every())


def test_every_structure_occurs_in_every_schedule_that_serves_it():
    def seen(symbols):
        kernels = map(every().get, symbols)
        return {(coverage.structure(k.operation), k.variant.kernel, getattr(k.variant, "mode", None)) for k in kernels}

    assert seen(chosen().covering) == seen(every())
    assert len(seen(every())) > 200  # else structures say nothing


def test_every_set_of_roles_and_list_of_passes_occurs_in_every_schedule_with_each_element_type():
    def seen(symbols):
        for kernel in map(every().get, symbols):
            name, (roles, passes) = coverage.schedule(kernel.variant), coverage.structure(kernel.operation)
            for operand in kernel.operation.operands:
                word = kernel.operation.word(operand, kernel.types)
                yield name, roles, coverage.role(kernel.operation, operand), word
                if operand in kernel.operation.inputs and operand.dims == kernel.operation.space:
                    yield name, passes, word

    assert set(seen(chosen().covering)) == set(seen(every()))


def test_every_number_of_threads_and_blocks_occurs():
    variants = lambda symbols: {every()[symbol].variant for symbol in symbols}  # noqa: E731
    assert variants(chosen().covering) == variants(every())


def test_the_covering_set_and_all_turns_are_every_kernel_once():
    assert len(chosen().turns) > 1
    assert sorted([*chosen().covering, *(each for turn in chosen().turns for each in turn)]) == sorted(every())


def test_the_commit_chooses_the_turn():
    assert [chosen().turn_of(commit) for commit in ("0", "5", "f" * 40)] == [0, 5, (16**40 - 1) % len(chosen().turns)]
    assert divide(CATALOG.operations[:40]) == divide(CATALOG.operations[:40])


# ---- what stands ----


def test_all_stand_by_a_covering_set_of_equal_kernels():
    assert standing(every().values(), dict.fromkeys(chosen().covering, True)) == set(every())


@pytest.mark.parametrize("number", [0, 1000, 2000])
def test_what_only_one_kernel_shows_stands_with_it_alone(number):
    symbol = chosen().covering[number]
    without = dict.fromkeys(chosen().covering, True)
    del without[symbol]
    shown = set().union(*(every()[each].shows for each in without))
    stands = standing(every().values(), without)
    assert stands == {each.symbol for each in every().values() if each.needs <= shown}
    lost = every()[symbol].shows - shown
    assert stands == {each.symbol for each in every().values() if not each.needs & lost}


def test_a_formula_does_not_stand_by_other_schedules_than_its_preferred_one():
    """Whatever else was compared, of the operation too."""
    by_others = {s: True for s, k in every().items() if k.operation.function != "softmax" or k.shows != k.needs}
    left = set(every()) - standing(every().values(), by_others)
    assert left == {symbol for symbol, kernel in every().items() if kernel.operation.function == "softmax"}


def test_what_shares_a_feature_with_a_kernel_that_differs_does_not_stand():
    symbol = "softmax_f16__row128x4"
    stands = standing(every().values(), {**dict.fromkeys(chosen().covering, True), symbol: False})
    kernel = every()[symbol]
    alike = {each.symbol for each in every().values() if each.needs & kernel.shows}
    assert symbol in alike and not alike & stands
    assert stands == set(every()) - alike


def test_a_small_catalog_has_one_turn():
    operation = next(each for each in CATALOG.operations if each.function == "lerp")
    found = divide([operation])
    assert len(found.turns) == 1
    assert sorted([*found.covering, *found.turns[0]]) == sorted(kernel.symbol for kernel in candidates([operation]))


# ---- the options of a run ----


def config(**options) -> SimpleNamespace:
    known = {f"--{name}": value for name, value in options.items()}
    return SimpleNamespace(getoption=lambda name, default: known.get(name, default))


@pytest.mark.turns(3)
def test_a_run_takes_what_its_options_say(monkeypatch):
    monkeypatch.setattr(turns, "commit", lambda: COMMIT)
    monkeypatch.setattr(gpu_conftest, "division", chosen)
    own = chosen().turns[int(COMMIT, 16) % len(chosen().turns)]
    assert sorted(gpu_conftest.chosen(config())) == sorted([*chosen().covering, *own])
    assert sorted(gpu_conftest.chosen(config(turn=7))) == sorted([*chosen().covering, *chosen().turns[7]])
    assert gpu_conftest.chosen(config(all=True)) == list(every())
    records = SimpleNamespace(unverified=lambda kernels: ["softmax_f16__row128x4", chosen().covering[0]])
    monkeypatch.setattr(evidence, "Records", lambda package: records)
    assert gpu_conftest.chosen(config(unverified=True, all=True)) == [chosen().covering[0], "softmax_f16__row128x4"]
    assert chosen().covering[0] in gpu_conftest.chosen(config(unverified=True))


def test_a_tree_without_commits_takes_a_turn_too(monkeypatch, tmp_path):
    turns.commit.cache_clear()
    assert re.fullmatch("[0-9a-f]{40}", turns.commit())
    turns.commit.cache_clear()
    monkeypatch.setattr(turns, "FOLDER", tmp_path)
    assert re.fullmatch("[0-9a-f]{64}", turns.commit())
    turns.commit.cache_clear()


def test_a_run_takes_the_tests_whose_turn_it_is(monkeypatch):
    """And those without turns; the runs of all turns take every test once, as does one with --all."""

    def test_of(number: int, count: int | None, **said: str):
        mark = pytest.mark.turns(count, **said).mark if count else None
        return SimpleNamespace(name=f"test[{number}]", get_closest_marker=lambda name: mark)

    def taken(items, args=("tests",), **options) -> list[str]:
        own = config(**options)
        own.args = args
        found, waiting = turns.divided(own, items)
        assert sorted(each.name for each in (*found, *waiting)) == sorted(each.name for each in items)
        return [each.name for each in found]

    monkeypatch.setattr(turns, "THINNED", 2)
    marked, plain = [test_of(number, 2) for number in range(100)], [test_of(100, None)]
    runs = [taken(marked + plain, turn=number) for number in range(4)]
    assert sorted(sum(runs, [])) == sorted([*(each.name for each in marked), *4 * ["test[100]"]])
    assert all(15 < len(each) < 40 for each in runs)
    assert taken(marked, turn=6) == taken(marked, turn=2)
    together = [test_of(number, 2, of="a library") for number in range(10)]
    assert sorted(len(taken(together, turn=number)) for number in range(4)) == [0, 0, 0, 10]
    assert len(taken(marked, all=True)) == len(taken(marked, ("tests/x.py::test",))) == 100
