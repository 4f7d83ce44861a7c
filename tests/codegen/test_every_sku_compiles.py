"""CUDA kernels of the catalog compile, without a warning, on a machine that has no GPU.

For one architecture, a set of them in which each operation occurs, each schedule with each structure of a program (of
skuda.verification.coverage, but for the roles of operands, which programs have), and each kind of kernel with each
element type; for the others a set of these in which each schedule, and each kind of kernel with each element type
occurs. A kernel's text is its schedule's body over its operation's program, so this compiles every body over every
structure, and every program; what depends on the architecture are bodies and conversions, not programs. A run compiles
some kernel of each body and element type, and of the others those whose turn it is. `skuda build` compiles all kernels.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from problems import covering, each_schedule, features, kernel_of
from quick_compiler import compile_quickly

import skuda.launch.compiler as compiler
from skuda.launch import registry
from skuda.model.sku import KernelSku
from skuda.schedules import table
from skuda.schedules.variant import STAGES
from skuda.verification import coverage

ARCH, OTHER_ARCHS = "sm_90", ("sm_80", "sm_100", "sm_120")
SPILLED = 240  # bytes: what is saved around the calls of the rare, slow forms; a loop that spills needs more
SPILLED_ALONG = 1400  # split rows, whose kernels may have so few registers that several blocks share a multiprocessor
SPILLED_BY_FINISH = 31_000  # seven values of f64 at once: a block that joins parts, which few calls wait for
SPILLED_BY_RANDOM = 300  # rows in clusters beside random numbers, whose ten rounds have registers of their own
SPILLED_BY_ROWS = 420  # rows of several inputs at any alignment or step, whose elements wait as words
SPILLED_AT_MOST = 3700  # f64 rows that 1024 threads read again, and f64 columns with outputs of their own
# Rows that no pass reads ask for room for more blocks than there can be, which does no harm.
IGNORED = re.compile(
    r"ptxas warning : Value of threads per SM for entry _Z3rowI\w+ is out of range. .minnctapersm will be ignored"
)
HELD = re.compile(r"_Z(3rowI\w+Li\d+ELi\d+ELb1ELi0EE|8few_rowsI)")  # kernels of aligned rows that threads hold
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
GROUP = 12  # kernels a compilation, so that two workers share the time evenly


def texts(sku: KernelSku) -> set[tuple]:
    """What a SKU's text is an example of: its operation's program, and its schedule's body over such a structure."""
    found = registry.entry_of(sku)
    by = coverage.schedule(found.variant), getattr(found.variant, "threads", 0)
    return {
        ("program", found.operation.function),
        ("body", by[0], coverage.structure(found.operation)[1:]),  # whatever the roles of operands
        ("threads", *by),
        *(("element", found.variant.kernel, found.operation.word(o, found.types)) for o in found.operation.operands),
    }


def is_alternative(sku: KernelSku) -> bool:
    """Whether it is of a stage of a multi-kernel form."""
    return registry.entry_of(sku).operation.of_alternative


SKUS = covering([sku for sku in each_schedule() if registry.entry_of(sku).variant is not STAGES], seen=texts)


def words_of(entry: registry.Entry) -> set[str]:
    """The element types of its operands."""
    return {entry.operation.word(operand, entry.types) for operand in entry.operation.operands}


def entry_of(sku: KernelSku) -> str:
    return entries_of([sku])[0]


def entries_of(skus: list[KernelSku]) -> list[str]:
    """Every kernel that these launch, once."""
    found = map(registry.entry_of, skus)
    return [*dict.fromkeys(e for each in found for e in table.entries(each.operation, each.types, each.variant))]


def source_of(sku: KernelSku) -> str:
    return registry.entry_of(sku).operation.source


def groups(skus: list[KernelSku]) -> list[tuple[str, list[KernelSku]]]:
    """(source, its kernels), at most GROUP together, kernels of one schedule beside each other."""
    by_source: dict[str, list[KernelSku]] = defaultdict(list)
    for sku in skus:
        by_source[source_of(sku)].append(sku)
    found = []
    for source, members in by_source.items():
        members.sort(key=lambda sku: (sku.direction.value, sku.variant, sku.symbol))
        found += [(source, members[start : start + GROUP]) for start in range(0, len(members), GROUP)]
    return found


def compile_group(source: str, members: list[KernelSku], arch: str, compiled_by=compiler.compile_cubin):
    text = registry.catalogs()[0].source(source)
    return compiled_by(text, source, entries_of(members), arch)


def name_of(group) -> str:
    source, members = group
    return f"{source.removesuffix('.cu')}-{members[0].symbol}"


def at_least(sku: KernelSku) -> set[tuple]:
    """What every other run compiles: each schedule's body, and each element type."""
    found = registry.entry_of(sku)
    words = {found.operation.word(operand, found.types) for operand in found.operation.operands}
    return {("body", found.variant.kernel, found.variant.suffix), *(("element", word) for word in words)}


OFTEN = covering(SKUS, seen=at_least)
EVERY = [*groups(OFTEN), *groups([sku for sku in SKUS if sku not in {*OFTEN}])]
MARKED = [
    pytest.param(group, id=name_of(group), marks=pytest.mark.turns(4 if {*group[1]} <= {*OFTEN} else 24))
    for group in EVERY
]


@pytest.mark.parametrize("group", MARKED)
def test_every_sku(group, monkeypatch):
    """Each is a kernel of its own; none spills more than a few registers, and nothing is warned of. What threads hold
    of an aligned row, and its sums, are in registers: a stack without anything spilled has arrays."""
    source, members = group
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "--ptxas-options=-v"))
    compiled = compile_group(source, members, ARCH)
    assert len(set(compiled.lowered.values())) == len(entries_of(members)) >= len(members)
    for lowered in compiled.lowered.values():
        assert lowered.encode() in compiled.cubin
    lines = compiled.log.splitlines()
    said = [line for line in lines if not line.startswith(("ptxas info", "ptxas   "))]
    assert [line for line in said if not IGNORED.fullmatch(line)] == []
    of_kernels = re.split(r"Compiling entry function '(\w+)'", compiled.log)[1:]
    stacks = {
        name: tuple(map(int, STACK.search(said).groups()))
        for name, said in zip(of_kernels[::2], of_kernels[1::2], strict=True)
    }
    assert len(stacks) >= len(members)  # the compiler did say
    spilled = {name: max(stored, loaded) for name, (_, stored, loaded) in stacks.items()}
    assert {name for name, (stack, stored, _) in stacks.items() if HELD.match(name) and stack and not stored} == set()
    much = any("reread" in sku.variant or sku.variant.startswith("across") for sku in members)
    finish = {name for name in spilled if name.startswith("_Z6finishI")}
    assert {name: size for name, size in spilled.items() if name in finish and size > SPILLED_BY_FINISH} == {}
    along = {name for name in spilled if name.startswith("_Z5alongI")}
    assert {name: size for name, size in spilled.items() if name in along and size > SPILLED_ALONG} == {}
    random = any(sku.category == "random" and sku.variant.startswith("cluster") for sku in members)
    rows = any(sku.variant.endswith(("_unaligned", "_strided")) for sku in members)
    most = SPILLED_AT_MOST if much else SPILLED_BY_ROWS if rows else SPILLED_BY_RANDOM if random else SPILLED
    others = spilled.keys() - finish - along
    assert {name: size for name, size in spilled.items() if name in others and size > most} == {}


def test_the_groups_hold_every_sku_once():
    compiled = [sku.symbol for _, members in EVERY for sku in members]
    assert sorted(compiled) == sorted(sku.symbol for sku in SKUS)
    assert len({(source_of(sku), entry_of(sku)) for sku in SKUS}) == len(SKUS)


# ---- the covering set ----


def shape_of(sku: KernelSku) -> tuple:
    return re.sub(r"\d+", "", sku.variant), sku.layout


def on_others(sku: KernelSku) -> set[tuple]:
    """What depends on the architecture: bodies, and conversions of element types."""
    return {("shape", *shape_of(sku)), *(each for each in texts(sku) if each[0] in ("threads", "element"))}


COVERING = covering(SKUS, seen=on_others)
IN_TURN = groups(COVERING)


def test_what_is_not_wanted_is_covered_by_others():
    some = [sku for sku in SKUS if sku.op == "softmax"]
    first = covering(some)[0]
    chosen = covering(some, wanted=lambda sku: sku is not first)
    others = [sku for sku in some if sku is not first]
    assert first not in chosen
    assert set().union(*map(features, chosen)) == set().union(*map(features, others))


def test_the_covering_set_covers():
    """Against what the generated sources and the types say, not against problems.features."""
    texts = [registry.catalogs()[0].source(source) for source in {source_of(sku) for sku in SKUS}]
    headers = "".join({text for each in texts for text in compiler.included(each).values()})
    kernels = set(re.findall(r"\b(\w+)\(const __grid_constant__", headers))
    assert kernels == {kernel_of(entry)[1] for sku in COVERING for entry in entries_of([sku])}
    functions = set(re.findall(r" struct (\w+)_program ", "".join(texts)))
    alternative = {registry.entry_of(sku).operation.function for sku in SKUS if is_alternative(sku)}
    chosen = {kernel_of(entry)[0] for sku in SKUS for entry in entries_of([sku])}
    assert functions - alternative == chosen - alternative
    words = ({word for sku in some for word in words_of(registry.entry_of(sku))} for some in (COVERING, SKUS))
    assert next(words) == next(words)
    assert set(map(shape_of, COVERING)) == set(map(shape_of, SKUS))
    rows = ({sku.variant for sku in some if re.match(r"row\d+x", sku.variant)} for some in (COVERING, SKUS))
    assert next(rows) == next(rows)  # however many threads hold a row
    assert len(COVERING) < len(SKUS) / 2  # else it would be no choice


@pytest.mark.turns(16)
@pytest.mark.parametrize("index", range(len(IN_TURN)), ids=lambda index: name_of(IN_TURN[index]))
def test_covering_set_on_other_architectures(index):
    """Each on one of them, in turn: of those that can have it."""
    source, members = IN_TURN[index]
    variants = [registry.entry_of(sku).variant for sku in members]
    archs = [arch for arch in OTHER_ARCHS if all(table.runs_on(variant, arch) for variant in variants)]
    arch = archs[index % len(archs)]
    compiled = compile_group(source, members, arch, compile_quickly)
    assert compiled.log == ""
    assert compiled.cubin[:4] == b"\x7fELF"
