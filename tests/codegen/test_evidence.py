"""Evidence: what a run records, what counts once a source has changed, and what is made from the records."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from catalogs import made_catalog
from gpu import sanitizers

import skuda.launch.compiler as compiler
from skuda.bench import report, suite
from skuda.codegen.cli import main
from skuda.codegen.commands import carry, verified
from skuda.codegen.commands.evidence import BEGIN, END, block, page, speed_page
from skuda.generated import CATALOG
from skuda.launch import registry
from skuda.model.dtypes import DTYPES
from skuda.model.sku import BackendKind
from skuda.schedules import table
from skuda.verification import coverage, evidence, machine_code, summary, texts
from skuda.verification.evidence import Records
from skuda.verification.findings import Result, State

REPOSITORY = Path(__file__).parents[2]
SPEC = """\
ops:
  twice:
    inputs: {x: "T[*shape]"}
    outputs: {output: "T[*shape] = 2 * x"}
    backward: {d_x: "T[*shape] = 2 * d_output"}
  thrice:
    inputs: {x: "T[*shape]"}
    outputs: {output: "T[*shape] = 3 * x"}
    backward: none
"""
MACHINE = {
    "gpu": "NVIDIA H200", "date": "2026-01-02", "driver": "580.1", "cuda": "13.0", "cupy": "14.0", "python": "3.12",
}  # fmt: skip
EQUAL = Result(3, True, 0)


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    with made_catalog(tmp_path, "verified_catalog", SPEC) as module:
        monkeypatch.chdir(tmp_path)
        yield module.CATALOG


@pytest.fixture
def skuda_command(capsys):
    """Runs a command on the catalog: (exit status, standard output)."""

    def run(*arguments: str) -> tuple[int, str]:
        status = main(arguments)
        return status, capsys.readouterr().out

    return run


def records_of(catalog) -> Records:
    return Records(evidence.package_of(catalog))


def symbols_of(catalog, function: str) -> list[str]:
    kernels = evidence.kernels(catalog.operations)
    return [symbol for symbol, operation in kernels.items() if operation.function == function]


def change(catalog, source: str) -> None:
    path = evidence.package_of(catalog) / "cuda" / source
    path.write_text(path.read_text() + "\n")


def bench_record(catalog, sku: str, source: str, *shares: float) -> dict:
    rows = [
        {
            "operation": "twice", "dtype": "f32", "element": "f32", "shape": shape, "variant": "", "sku": sku,
            "class": "64 MB and more", "bytes": 100_000_000, "peers": {}, "ours_us": 100.0, "copy_us": 100 * share,
        }
        for share, shape in zip(shares, ("16384x4096", "16384x4095", "4096x4096"), strict=False)
    ]  # fmt: skip
    machine = {"gpu": "NVIDIA H200", "cuda_driver": "13000", "date": "2026-01-02", "versions": []}
    return {"machine": machine, "sources": {source: records_of(catalog).digest(source)}, "rows": rows}


def write_bench(catalog, sku: str, *shares: float) -> None:
    folder = records_of(catalog).folder
    folder.mkdir(exist_ok=True)
    (folder / "bench-h200.json").write_text(json.dumps(bench_record(catalog, sku, "twice.cu", *shares)))


# ---- the record ----


def test_the_kernels_are_those_of_the_table():
    expected = {sku.symbol for sku in registry.skus() if sku.backend is BackendKind.CUDA}
    assert set(evidence.kernels(CATALOG.operations)) == expected


def test_a_run_of_some_kernels_is_merged_into_the_record(catalog):
    forward, backward, other = (symbols_of(catalog, name) for name in ("twice", "twice_backward", "thrice"))
    path = records_of(catalog).merge(catalog, MACHINE, dict.fromkeys([*forward, *backward, *other], EQUAL))
    assert path.name == "gpu-nvidia-h200.json"
    before = path.read_text()
    later = {**MACHINE, "date": "2026-02-03", "driver": "590.2"}
    records_of(catalog).merge(catalog, later, {forward[0]: Result(3, False, 7), forward[1]: Result(2, True, 0)})
    records = records_of(catalog)

    def found(symbol):
        [each] = records.findings("thrice.cu" if symbol in other else "twice.cu", symbol)
        return each.run.date, each.run.driver, each.result

    assert found(forward[0]) == ("2026-02-03", "590.2", Result(3, False, 7))
    assert found(forward[1]) == ("2026-02-03", "590.2", Result(2, True, 0))
    for symbol in (*forward[2:], *backward, *other):
        assert found(symbol) == ("2026-01-02", "580.1", EQUAL)
    changed = set(path.read_text().splitlines()) ^ set(before.splitlines())
    assert not any("thrice" in line or "twice_backward" in line for line in changed)  # a diff shows what ran
    records.merge(catalog, MACHINE, dict.fromkeys(forward[:2], EQUAL))
    assert path.read_text() == before


def test_finite_elements_are_counted_kernel_by_kernel(catalog):
    """NaN against NaN says little; a record that was written before they were counted loads."""
    first, second, third, *_ = symbols_of(catalog, "twice")
    path = records_of(catalog).merge(catalog, MACHINE, {first: EQUAL, second: EQUAL, third: EQUAL})
    old = path.read_text()
    assert "finite" not in old
    counted = {first: replace(EQUAL, finite=1000), second: replace(EQUAL, finite=0)}
    records_of(catalog).merge(catalog, MACHINE, counted)
    records = records_of(catalog)
    found = [records.current("twice.cu", symbol)[0].result.finite for symbol in (first, second, third)]
    assert found == [1000, 0, None]
    assert len(json.loads(path.read_text())["sources"]["twice.cu"]) == 1  # counts keep no kernels apart
    records.merge(catalog, MACHINE, {first: EQUAL, second: EQUAL})
    assert path.read_text() == old


def test_the_page_and_show_say_how_many_finite_elements_were_compared(catalog, skuda_command):
    forward = symbols_of(catalog, "twice")
    records_of(catalog).merge(catalog, MACHINE, dict.fromkeys(forward, replace(EQUAL, finite=1000)))
    skuda_command("evidence", "--out", "verified_catalog")
    page = (records_of(catalog).folder / "README.md").read_text()
    assert f"| {len(forward)} | {3 * len(forward)} | {len(forward)},000 | bit-equal |" in page
    said = "\n".join(verified.of_kernel(records_of(catalog), "twice.cu", forward[0]))
    assert "bit-equal in 3 calls, 1,000 finite values on NVIDIA H200" in said


def test_kernels_that_are_no_more_leave_the_record(catalog):
    records = records_of(catalog)
    path = records.merge(catalog, MACHINE, {symbols_of(catalog, "twice")[0]: EQUAL})
    record = json.loads(path.read_text())
    record["sources"]["twice.cu"][0]["kernels"]["twice_f32"] += " vec99"
    path.write_text(json.dumps(record))
    records.merge(catalog, MACHINE, {symbols_of(catalog, "thrice")[0]: EQUAL})
    assert "vec99" not in path.read_text()
    assert set(json.loads(path.read_text())["sources"]) == {"thrice.cu", "twice.cu"}


def test_states(catalog):
    first, second, third, *_ = symbols_of(catalog, "twice")
    records = records_of(catalog)
    assert records.state("twice.cu", first) is State.NEVER
    records.merge(catalog, MACHINE, {first: EQUAL, second: Result(3, False, None)})
    records = records_of(catalog)
    states = [records.state("twice.cu", symbol) for symbol in (first, second, third)]
    assert states == [State.VERIFIED, State.DIFFERS, State.NEVER]
    left = records.unverified(evidence.kernels(catalog.operations))
    assert first not in left and {second, third} <= set(left)
    records.merge(catalog, {**MACHINE, "gpu": "NVIDIA A10"}, {first: Result(3, False, 1)})
    assert records_of(catalog).state("twice.cu", first) is State.DIFFERS  # on one GPU is enough
    change(catalog, "twice.cu")
    assert records_of(catalog).state("twice.cu", first) is State.CHANGED
    records_of(catalog).merge(catalog, MACHINE, {first: EQUAL})
    assert records_of(catalog).state("twice.cu", first) is State.VERIFIED


def test_headers_and_options_are_part_of_a_source(catalog, monkeypatch):
    def now() -> list[str]:
        own = texts.Texts(evidence.package_of(catalog))
        return [own.whole("twice.cu"), own.given("twice.cu", "vec")]

    whole, given = now()
    assert whole == records_of(catalog).digest("twice.cu") and given != whole[: texts.DIGITS]
    monkeypatch.setattr(texts, "OPTIONS", ("--fmad=true",))
    other, other_given = now()
    monkeypatch.setattr(texts, "included", lambda text: {"a.cuh": ""})
    assert len({whole, other, now()[0]}) == 3 and other_given != given


def test_comments_say_nothing_to_a_compiler(catalog):
    path = evidence.package_of(catalog) / "cuda" / "twice.cu"
    text, now = path.read_text(), records_of(catalog).digest("twice.cu")
    path.write_text("// another heading\n" + text)
    assert records_of(catalog).digest("twice.cu") == now
    path.write_text(text + "int more;\n")
    assert records_of(catalog).digest("twice.cu") != now


# ---- what the compiler is given for a schedule ----


def change_header(monkeypatch, name: str) -> None:
    """As long as the test runs."""
    known = compiler._file
    monkeypatch.setattr(compiler, "_file", lambda each: known(each) + "struct more {};\n" * (each == name))


def test_a_kernel_has_the_schedule_of_the_table():
    for sku in registry.skus():
        if sku.backend is BackendKind.CUDA:
            entry = registry.entry_of(sku)
            launched = table.entries(entry.operation, entry.types, entry.variant)
            assert texts.schedule_of(sku.symbol) == (launched[0].partition("<")[0] if launched else "stages")


def test_a_changed_header_says_nothing_of_other_schedules(catalog, monkeypatch):
    """Of what ran and of what stands by the rule: in the record, in a summary of it, and once more is recorded."""
    ran, every = covering_of(catalog), evidence.kernels(catalog.operations)
    records_of(catalog).merge(catalog, MACHINE, dict.fromkeys(ran, EQUAL))
    before = {symbol: records_of(catalog).state(each.source, symbol) for symbol, each in every.items()}
    change_header(monkeypatch, "tile.cuh")
    tiles = {symbol for symbol in every if symbol.endswith("__tile")}
    assert {symbol for symbol in ran if symbol in tiles}

    def as_before(records) -> set[str]:
        assert {records.state(every[symbol].source, symbol) for symbol in tiles} <= {State.CHANGED, State.NEVER}
        return {symbol for symbol, state in before.items() if records.state(every[symbol].source, symbol) is state}

    records = records_of(catalog)
    assert as_before(records) == every.keys() - tiles
    short = records_of(catalog)
    short.verified = [summary.of_run(each, records) for each in records.verified]
    assert as_before(short) == every.keys() - tiles
    one = next(symbol for symbol in ran if symbol not in tiles)
    path = records.merge(catalog, {**MACHINE, "date": "2026-02-03"}, {one: EQUAL})
    again = as_before(records_of(catalog))
    assert not again & tiles and again >= set(ran) - tiles  # by the rule stands what the tiles do not show alone
    assert all("tile" in each["left"] for each in json.loads(path.read_text())["covered"].values())
    records.merge(catalog, MACHINE, {symbol: EQUAL for symbol in ran if symbol in tiles})
    assert records_of(catalog).unverified(every) == []


def test_a_header_that_schedules_share_is_part_of_each(catalog, monkeypatch):
    records_of(catalog).merge(catalog, MACHINE, dict.fromkeys(covering_of(catalog), EQUAL))
    every = evidence.kernels(catalog.operations)
    change_header(monkeypatch, "numbers.cuh")
    assert records_of(catalog).unverified(every) == list(every)


def test_what_joins_the_parts_of_a_row_is_part_of_its_schedule(monkeypatch):
    def now() -> list[str]:
        own = texts.Texts(evidence.package_of(CATALOG))
        return [own.given("sum.cu", each) for each in ("along", "across", "row")]

    before = now()
    change_header(monkeypatch, "split_finish.cuh")
    assert [one != other for one, other in zip(before, now(), strict=True)] == [True, True, False]


def test_rows_of_the_bench_count_while_their_schedule_is_what_it_was(catalog, monkeypatch):
    symbol = next(each for each in symbols_of(catalog, "twice") if "__vec" in each)
    write_bench(catalog, symbol, 0.98)
    records_of(catalog).merge(catalog, MACHINE, {symbol: EQUAL})
    change_header(monkeypatch, "tile.cuh")
    assert len(records_of(catalog).shares("twice.cu", symbol)) == 1
    change_header(monkeypatch, "vec.cuh")
    assert records_of(catalog).shares("twice.cu", symbol) == []


# ---- what stands by the rule ----


def covering_of(catalog) -> list[str]:
    return [kernel.symbol for kernel in coverage.covering(coverage.candidates(catalog.operations))]


def test_others_stand_by_the_rule_while_sources_are_as_they_were(catalog, skuda_command):
    ran = covering_of(catalog)
    selection = {"commit": "abc", "covering": len(ran), "turn": 0, "turns": 1}
    path = records_of(catalog).merge(catalog, MACHINE, dict.fromkeys(ran, EQUAL), selection)
    records = records_of(catalog)
    every = evidence.kernels(catalog.operations)
    states = {symbol: records.state(operation.source, symbol) for symbol, operation in every.items()}
    assert states == {symbol: State.VERIFIED if symbol in ran else State.COVERED for symbol in every}
    assert records.unverified(every) == []
    record = json.loads(path.read_text())
    assert record["rule"] == coverage.RULE
    assert record["runs"] == [{"date": "2026-01-02", **selection, "kernels": len(ran), "bit_equal": len(ran)}]
    status, out = skuda_command("check", "--out", "verified_catalog", "--evidence")
    standing = len(every) - len(ran)
    assert status == 0 and standing > 0
    said = f"evidence: {len(ran)} of {len(every)} kernels verified, {standing} covered by the rule: {coverage.RULE} (NV"
    assert said in out
    taken = "the covering set and turn 0 of 1"
    ran_then = f"- 2026-01-02, commit abc, chosen from {taken}: {len(ran)} kernels compared"
    assert f"{ran_then}, {len(ran)} bit-equal.\n" in page(records, "generated")
    whole = page(records, "generated")
    assert f"- Every kernel of 2 sources ran or is covered by the rule: {coverage.RULE}.\n" in whole
    out = skuda_command("show", "thrice", "--catalog", "verified_catalog")[1]
    assert f"covered by the rule ({coverage.RULE})" in out
    assert "kernels covered by the rule since 2026-01-02 on NVIDIA H200" in out
    one = next(symbol for symbol in symbols_of(catalog, "thrice") if symbol not in ran)
    out = skuda_command("show", one, "--catalog", "verified_catalog")[1]
    assert f"did not run itself: covered by the rule since 2026-01-02 on NVIDIA H200 ({coverage.RULE})\n" in out
    change(catalog, "thrice.cu")
    records = records_of(catalog)
    assert {records.state("thrice.cu", symbol) for symbol in symbols_of(catalog, "thrice")} <= {
        State.CHANGED, State.NEVER,
    }  # fmt: skip
    assert records.state("twice.cu", symbols_of(catalog, "twice")[-1]) in (State.VERIFIED, State.COVERED)


def test_a_kernel_that_differs_takes_its_schedule_with_it(catalog):
    ran = covering_of(catalog)
    records_of(catalog).merge(catalog, MACHINE, {**dict.fromkeys(ran, EQUAL), ran[0]: Result(3, False, 1)})
    records = records_of(catalog)
    source = evidence.kernels(catalog.operations)[ran[0]].source
    assert records.covered(source, ran[0]) == []
    records.merge(catalog, {**MACHINE, "date": "2026-03-04"}, {ran[0]: EQUAL})
    assert [each.date for each in records_of(catalog).covered(source, ran[0])] == ["2026-03-04"]


# ---- machine code ----


def digest_of(text: str, entry: str = "k") -> str:
    return machine_code.digest([compiler.compile_cubin(text, "k.cu", [entry], "sm_90").cubin])


def test_the_digest_is_of_instructions_and_tables():
    text = """
static __device__ const float table[4] = {1, 2, 3, 5};
__device__ constexpr int FACTOR = 3;
__global__ void k(float* p) { p[threadIdx.x] *= table[threadIdx.x & 3] * FACTOR; }
"""
    now = digest_of(text)
    assert len(now) == machine_code.DIGITS
    assert digest_of("// a comment\n" + text) == now
    assert digest_of(text.replace("void k(", "void other("), "other") == now
    assert digest_of(text + "struct more { static constexpr int value = 9; };\n") == now
    assert digest_of(text.replace("FACTOR = 3", "FACTOR = 4")) != now
    assert digest_of(text.replace("3, 5}", "3, 7}")) != now
    assert digest_of(text.replace("threadIdx.x & 3", "threadIdx.x & 1")) != now
    with pytest.raises(ValueError, match="no ELF"):
        machine_code.digest([b"nothing"])


def test_digests_are_read_as_they_were_written(tmp_path):
    codes = {"a_f32__vec4": "0123456789ab", "a_f32__rows4": "ba9876543210", "b_f16__row8x4": "000000000000"}
    path = tmp_path / "code-it.json"
    assert machine_code.read(path) == {}
    machine_code.write(path, "sm_90", codes)
    assert machine_code.read(path) == codes
    assert json.loads(path.read_text())["arch"] == "sm_90"


def test_what_was_found_is_carried_to_the_same_machine_code(catalog, skuda_command, monkeypatch, tmp_path):
    """One source with another text that compiles to the same, one of which a kernel becomes another."""
    monkeypatch.setenv("SKUDA_CACHE_DIR", str(tmp_path / "cache"))
    kept, [lost] = (
        [s for s in symbols_of(catalog, function) if s.startswith(f"{function}_f32__vec4")][:count]
        for function, count in (("twice", 2), ("thrice", 1))
    )
    records = records_of(catalog)
    records.merge(catalog, MACHINE, dict.fromkeys([*kept, lost], EQUAL))
    every = {kernel.symbol: kernel for kernel in coverage.candidates(catalog.operations)}
    codes = {symbol: carry.code_of(every[symbol], catalog, "sm_90") for symbol in (*kept, lost)}
    machine_code.write(records.path("code", "NVIDIA H200").with_suffix(".json"), "sm_90", codes)
    folder, old = evidence.package_of(catalog) / "cuda", records.digest("twice.cu")
    for source, number in (("twice.cu", "2"), ("thrice.cu", "4")):
        text = (folder / source).read_text()
        (folder / source).write_text(text.replace("C(3)", f"C({number})") + "struct unused { int member; };\n")
    assert {records_of(catalog).state("twice.cu", symbol) for symbol in kept} == {State.CHANGED}
    monkeypatch.setattr(carry, "divide", lambda operations: SimpleNamespace(covering=[lost]))  # if none is named
    out = skuda_command("evidence", "--out", "verified_catalog", "--carry", "--jobs", "1")[1]
    assert "of 1 kernels whose sources have changed 1 were compared, 0 have" in out
    named = "--carry", "twice", "thrice"
    out = skuda_command("evidence", "--out", "verified_catalog", *named, "--jobs", "1")[1]
    total = len(kept) + 1
    assert f"of {total} kernels whose sources have changed {total} were compared, {len(kept)} have" in out
    records = records_of(catalog)
    assert {records.state("twice.cu", symbol) for symbol in kept} == {State.VERIFIED}
    assert records.state("thrice.cu", lost) is State.CHANGED
    [found] = records.current("twice.cu", kept[0])
    assert (found.run.carried, found.run.date, found.result) == (old, "2026-01-02", EQUAL)
    said = "\n".join(verified.of_kernel(records, "twice.cu", kept[0]))
    assert f"2026-01-02, with source {old[:12]} of the same machine code" in said


def test_what_runs_in_stages_is_carried_with_the_kernels_of_these(skuda_command, monkeypatch, tmp_path):
    """Not where one of them has become another, be it of other element types."""
    formula = "T[*shape] = x / max(x, over=shape)"
    spec = f'ops: {{fit: {{inputs: {{x: "T[*shape]"}}, outputs: {{output: "{formula}"}}, backward: none}}}}'
    with made_catalog(tmp_path, "staged_catalog", spec) as module:
        monkeypatch.chdir(tmp_path)
        catalog, records = module.CATALOG, records_of(module.CATALOG)
        symbols = [kernel.symbol for kernel in coverage.candidates(catalog.operations)]
        staged = [symbol for symbol in symbols if symbol.endswith("__stages")]
        parts = [symbol for symbol in symbols if symbol.startswith("fit_stage")]
        records.merge(catalog, MACHINE, dict.fromkeys(symbols, EQUAL))
        machine_code.write(
            records.path("code", "NVIDIA H200").with_suffix(".json"), "sm_90", dict.fromkeys(parts, "0123456789ab")
        )
        changed = next(symbol for symbol in parts if "_f16__" in symbol and "bf16" not in symbol)
        for source in (evidence.package_of(catalog) / "cuda").glob("*.cu"):
            source.write_text(source.read_text() + "struct unused { int member; };\n")
        monkeypatch.setattr(
            carry, "code_of", lambda kernel, *_: "ba9876543210" if kernel.symbol == changed else "0123456789ab"
        )
        skuda_command("evidence", "--out", "staged_catalog", "--carry", "fit", "--jobs", "1")
        records = records_of(catalog)
        assert records.state("fit.cu", changed) is not State.VERIFIED
        expected = {each: State.CHANGED if each == "fit_f16__stages" else State.VERIFIED for each in staged}
        assert len(staged) > 2 and {each: records.state("fit.cu", each) for each in staged} == expected


# ---- the share of the copy ----


@pytest.mark.parametrize(
    ("shape", "variant"),
    [("16x4096", "vec8_small"), ("16384x4096 row-strided", "vec16_pitched"), ("16384x4096 transposed", "columns4")],
)
def test_a_row_of_the_bench_names_the_kernel_that_served_it(shape, variant):
    from skuda.bench.run import served_by  # imports CuPy

    [case] = [
        each
        for each in suite.cases(CATALOG, ["quantize_per_token"], ["f16"])
        if (each.operation.function, str(each.shape)) == ("quantize_per_token", shape)
    ]
    arrays = {}
    for placed in case.operands:
        storage = DTYPES[placed.word].storage
        memory = np.zeros(placed.size, storage)
        strides = tuple(step * storage.itemsize for step in placed.strides)
        arrays[placed.operand.name] = np.ndarray(placed.shape, storage, memory.data, 0, strides)
    plan = case.plan_class.select(case.descriptor(), preference=BackendKind.REFERENCE)
    sku = served_by(SimpleNamespace(plan=plan, arrays=arrays))
    assert registry.entry_of(sku).operation is case.operation
    assert sku.symbol.startswith("quantize_per_token_f16_")
    assert sku.variant == variant


def test_shares_are_joined_while_the_source_is_what_was_measured(catalog):
    symbol = symbols_of(catalog, "twice")[0]
    write_bench(catalog, symbol, 0.98, 0.5)
    assert [(each.shape, each.share) for each in records_of(catalog).shares("twice.cu", symbol)] == [
        ("16384x4096", pytest.approx(0.98)), ("16384x4095", pytest.approx(0.5)),
    ]  # fmt: skip
    change(catalog, "twice.cu")
    assert records_of(catalog).shares("twice.cu", symbol) == []


# ---- show ----


def test_show(catalog, skuda_command):
    show = ("show", "twice", "--catalog", "verified_catalog")
    out = skuda_command(*show)[1]
    assert f"evidence: not verified on a GPU (no record in {records_of(catalog).folder})\n" in out
    assert "evidence, by types" not in out
    f32 = [symbol for symbol in symbols_of(catalog, "twice") if symbol.startswith("twice_f32__")]
    records_of(catalog).merge(catalog, MACHINE, {f32[0]: EQUAL, f32[1]: Result(2, False, 7)})
    write_bench(catalog, f32[0], 0.98, 0.5, 0.9)
    out = skuda_command(*show)[1]
    total = len(symbols_of(catalog, "twice")) + len(symbols_of(catalog, "twice_backward"))
    assert f"evidence: 1 of {total} kernels bit-equal on NVIDIA H200\n" in out
    where = "on NVIDIA H200 (driver 580.1, 2026-01-02)"
    count = len(f32)
    assert (
        f"  f32: 1 of {count} kernels bit-equal in 3 calls {where}; "
        f"1 of {count} kernels not bit-equal (worst: 7 ulp) in 2 calls {where}; "
        f"{count - 2} of {count} kernels not verified (never run); "
        "0.90 of the copy's speed, worst 0.50 (16384x4095) on NVIDIA H200\n"
    ) in out
    assert f"  f16: {count} of {count} kernels not verified (never run)\n" in out
    one = ("show", f32[0], "--catalog", "verified_catalog")
    out = skuda_command(*one)[1]
    assert "\nbit-equal in 3 calls on NVIDIA H200, driver 580.1, CUDA 13.0, 2026-01-02\n" in out
    assert "\nshare of the copy's speed, 16384x4095 on NVIDIA H200: 0.50\n" in out
    change(catalog, "twice.cu")
    out = skuda_command(*one)[1]
    assert "\nnot verified (source changed since 2026-01-02 on NVIDIA H200)\n" in out
    assert "\nshare of the copy's speed: not measured with this source\n" in out
    out = skuda_command(*show)[1]
    assert "evidence: not verified on a GPU\n" in out
    total = len(symbols_of(catalog, "twice"))
    assert f"  none of {total} kernels verified (source changed since 2026-01-02 on NVIDIA H200, never run)\n" in out


def test_show_of_a_kernel_that_is_not_there(capsys):
    assert main(["show", "lerp_f16__strde"]) == 1
    assert "the nearest is lerp_f16__strided" in capsys.readouterr().err


# ---- check --evidence ----


def test_check_lists_what_is_not_verified(catalog, skuda_command):
    check = ("check", "--out", "verified_catalog")
    forward, backward, other = (symbols_of(catalog, name) for name in ("twice", "twice_backward", "thrice"))
    total = len(forward) + len(backward) + len(other)
    assert skuda_command(*check)[0] == 0
    status, out = skuda_command(*check, "--evidence")
    assert status == 1
    assert f"twice: {len(forward)} of {len(forward)} kernels not verified: never run\n" in out
    assert f"evidence: 0 of {total} kernels verified (no record in " in out
    results = dict.fromkeys([*forward, *backward, *other], EQUAL)
    records_of(catalog).merge(catalog, MACHINE, results)
    status, out = skuda_command(*check, "--evidence")
    assert (status, out.count("\n")) == (0, 2)
    assert f"evidence: {total} of {total} kernels verified (NVIDIA H200)\n" in out
    records_of(catalog).merge(catalog, MACHINE, {other[0]: Result(3, False, 4)})
    status, out = skuda_command(*check, "--evidence", "--full")
    assert status == 1
    assert f"thrice: 1 of {len(other)} kernels not verified: not bit-equal\n  {other[0]}\n" in out
    assert f"  {other[0]}\n" not in skuda_command(*check, "--evidence")[1]
    change(catalog, "thrice.cu")
    out = skuda_command(*check, "--evidence")[1]
    reason = "source changed since 2026-01-02 on NVIDIA H200"
    assert f"thrice: {len(other)} of {len(other)} kernels not verified: {reason}\n" in out


# ---- the page and README's table ----


def test_the_page_and_readme_are_written(catalog, skuda_command, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nmore\n")
    forward = symbols_of(catalog, "twice")
    records_of(catalog).merge(catalog, MACHINE, {**dict.fromkeys(forward, EQUAL), forward[0]: Result(3, False, None)})
    write_bench(catalog, forward[1], 0.98, 0.5, 0.9)
    evidence_command = ("evidence", "--out", "verified_catalog")
    status, out = skuda_command(*evidence_command)
    assert (status, out.count("wrote ")) == (0, 5)
    lines = (tmp_path / "evidence" / "README.md").read_text().splitlines()
    digest = records_of(catalog).digest("twice.cu")[:12]
    start = "| [twice](../verified_catalog/docs/twice.md) |"
    run = f"| 0.90, 0.50 | 2026-01-02, driver 580.1, CUDA 13.0 | `{digest}` |"
    count = len(forward) - 1
    assert f"{start} {count} | {3 * count} | - | bit-equal {run}" in lines
    assert f"{start} 1 | 3 | - | not bit-equal (worst: NaN against a number, or no result) {run}" in lines
    text = readme.read_text()
    first = "NVIDIA H200, 2026-01-02: 3 measurements, the median at 0.90 of a copy's speed."
    assert text.startswith(f"# Mine\n\n{BEGIN}\n{first}")
    said = f"Kernels that gave the reference's bits: {count} of {count + 1} on NVIDIA H200.\n"
    assert text.endswith(f"|\n\n{said}{END}\n\nmore\n")
    speed = (tmp_path / "evidence" / "speed.md").read_text()
    assert "\n## NVIDIA H200\n\nNVIDIA H200, 2026-01-02, 3 rows," in speed
    assert "| twice | f32 | 0.94 (0.90) | 0.50 (0.50) | - | - | - |\n" in speed
    assert speed.endswith("| measured | 0.90 (0.50) |\n| verdict | missed, 1 of 3 below |\n")
    assert skuda_command(*evidence_command) == (0, "")


def test_rows_of_older_sources_are_said_to_be_so(catalog, skuda_command, tmp_path):
    forward, backward = symbols_of(catalog, "twice"), symbols_of(catalog, "twice_backward")
    write_bench(catalog, forward[0], 0.98, 0.5)
    records_of(catalog).merge(catalog, MACHINE, dict.fromkeys([*forward, *backward], EQUAL))
    skuda_command("evidence", "--out", "verified_catalog")
    assert "other sources" not in (tmp_path / "evidence" / "speed.md").read_text()
    change(catalog, "twice.cu")
    records_of(catalog).merge(catalog, MACHINE, dict.fromkeys([*forward, *backward], EQUAL))
    skuda_command("evidence", "--out", "verified_catalog")
    text = (tmp_path / "evidence" / "speed.md").read_text()
    assert "\n2 of these 2 rows are of other sources than those whose kernels were compared last.\n" in text
    assert "0.98" not in (tmp_path / "evidence" / "README.md").read_text()


@pytest.mark.parametrize("text", [f"{BEGIN}\n", f"{END}\n", f"{END}\n{BEGIN}\n"])
def test_a_readme_with_half_a_block_is_left_alone(catalog, capsys, tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "evidence").mkdir(exist_ok=True)
    (tmp_path / "evidence" / "gpu-any.json").write_text('{"gpu": "any", "sources": {}}')
    assert main(["evidence", "--out", "verified_catalog"]) == 1
    assert f"README.md: expected the line {BEGIN}, and {END} after it" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == text
    assert [path.name for path in (tmp_path / "evidence").iterdir()] == ["gpu-any.json"]


def test_the_block_is_of_the_newest_record_and_of_one_day_of_the_longest():
    def record(gpu, date, count):
        row = {"class": "few rows", "bytes": 1, "ours_us": 1.0, "copy_us": 1.0, "peers": {}}
        return {"machine": {"gpu": gpu, "date": date}, "rows": [row] * count}

    measured = [record("A", "2026-02-01", 2), record("B", "2026-02-01", 1), record("C", "2026-01-01", 3)]
    text = block(SimpleNamespace(measured=[*measured, {"machine": {}}], verified=[]))
    assert text.startswith("A, 2026-02-01: 2 measurements") and "B" not in text


def test_what_is_committed_is_what_the_records_give():
    records = Records(REPOSITORY / "generated")
    assert (REPOSITORY / "evidence" / "README.md").read_text(encoding="utf-8") == page(records, "generated")
    assert (REPOSITORY / "evidence" / "speed.md").read_text(encoding="utf-8") == speed_page(records)
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert readme.partition(f"{BEGIN}\n")[2].partition(END)[0] == block(records)
    kept = {path.relative_to(records.folder).as_posix(): path for path in (records.folder / summary.FOLDER).iterdir()}
    wanted = summary.texts(records)
    assert kept.keys() == wanted.keys()
    assert all(path.read_text(encoding="utf-8") == wanted[name] for name, path in kept.items())
    picture = (REPOSITORY / "docs" / "bench.png").read_bytes()  # `make chart`
    assert b"tEXtTitle\0" + report.title(report.newest(records.measured)).encode("latin-1") in picture


# ---- what a wheel takes along ----


def test_a_summary_says_what_the_records_say(catalog, skuda_command, tmp_path):
    """States and shares of every kernel; of calls the fewest of what was found alike."""
    forward, backward = symbols_of(catalog, "twice"), symbols_of(catalog, "twice_backward")
    found = {**dict.fromkeys([*forward, *backward], Result(3, True, 0, 1000)), forward[2]: Result(3, False, 7)}
    found |= {forward[0]: Result(2, True, 0, 400), forward[1]: Result(5, True, 0)}
    assert forward[0].partition("__")[0] == forward[1].partition("__")[0]  # of the same types
    ran = {**dict.fromkeys(covering_of(catalog), EQUAL), **found}
    records = records_of(catalog)
    records.merge(catalog, MACHINE, ran)
    write_bench(catalog, forward[0], 0.984, 0.5, 0.9)
    skuda_command("evidence", "--out", "verified_catalog")
    installed = evidence.package_of(catalog) / "evidence"
    records, every = records_of(catalog), evidence.kernels(catalog.operations)
    before = {symbol: records.state(each.source, symbol) for symbol, each in every.items()}
    shutil.copytree(tmp_path / "evidence" / summary.FOLDER, installed)
    shutil.rmtree(tmp_path / "evidence")
    records = records_of(catalog)
    assert records.folder == installed
    assert {symbol: records.state(each.source, symbol) for symbol, each in every.items()} == before
    assert set(before.values()) >= {State.VERIFIED, State.DIFFERS}
    assert [each.share for each in records.shares("twice.cu", forward[0])] == [0.98, 0.5, 0.9]
    [first] = records.current("twice.cu", forward[0])
    assert first.result == Result(2, True, 0, fewest=True)
    assert first.run.driver == "580.1"
    [other] = records.current("twice.cu", backward[0])
    assert other.result == Result(3, True, 0, fewest=True)
    said = "\n".join(verified.of_kernel(records, "twice.cu", backward[0]))
    assert "bit-equal in at least 3 calls on NVIDIA H200" in said
    change(catalog, "twice.cu")
    records = records_of(catalog)
    assert records.current("twice.cu", forward[0]) == records.shares("twice.cu", forward[0]) == []
    assert records.state("twice.cu", forward[0]) is State.CHANGED


def test_kernels_are_sanitized_by_names_and_patterns():
    from gpu import sanitize

    along = ["sum_f16__along", "sum_f16__along_strided", "sum_f16__along_unaligned"]
    chosen = sanitize.chosen(["softmax_f16__row4x4", "sum_f16__along*"])
    assert sorted(sku.symbol for sku in chosen) == ["softmax_f16__row4x4", *along]


def test_what_sanitizers_say_is_kept(monkeypatch, tmp_path, capsys):
    """Everything but banners and what was compiled; the exit status is that of a tool that found something."""

    def ran(command, **options):
        tool = command[command.index("--tool") + 1] if "--tool" in command else ""
        found = tool == "racecheck"
        output = f"========= COMPUTE-SANITIZER\ncompiling a.cu for sm_90 took 1 s\n{tool}: {int(found)} errors\n"
        assert command[-1] == "softmax_f16" and "--launch-timeout" in (command if tool else ["--launch-timeout"])
        return SimpleNamespace(returncode=int(found), stdout=output)

    records = SimpleNamespace(path=lambda kind, gpu: tmp_path / f"{kind}-{gpu}")
    monkeypatch.setattr(sanitizers.subprocess, "run", ran)
    monkeypatch.setattr(sanitizers, "compiled", lambda arguments: [each.replace("*", "f16") for each in arguments])
    monkeypatch.setattr(sanitizers.evidence, "Records", lambda package: records)
    monkeypatch.setattr("gpu.conftest.machine", lambda: {**MACHINE, "gpu": "it"})
    assert sanitizers.main(["softmax_*"]) == 1
    text = (tmp_path / "sanitizers-it.txt").read_text()
    assert text.startswith("compute-sanitizer on an it (driver 580.1, CUDA 13.0), 2026-01-02,\n")
    assert "## memcheck\n\nmemcheck: 0 errors\n\n## racecheck\n\nracecheck: 1 errors\n" in text
    assert "COMPUTE" not in text and "compiling" not in text
    assert "racecheck: racecheck: 1 errors" in capsys.readouterr().out


def test_without_records_nothing_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    readme = f"# mine\n{BEGIN}\nby hand\n{END}\n"
    (tmp_path / "README.md").write_text(readme)
    assert main(["evidence"]) == 0
    assert capsys.readouterr().out == f"no record in {tmp_path / 'evidence'}: nothing written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == readme


def bound(worst: float, **other) -> dict:
    digest = texts.header_digest("erf.cuh")
    return {
        "arguments": 9, "worst_ulp": worst, "at": "0x1p+0", "steps_down": 0, "wrong": 0, "digest": digest, **other
    }  # fmt: skip


def test_how_far_functions_are_off(catalog):
    """Measured with the steps as they are, or not: a record of other steps says nothing of them."""
    assert verified.bound(records_of(catalog), "erf") == "not measured on a GPU yet"
    assert verified.bound(records_of(catalog), "sqrt") == ""
    folder = records_of(catalog).folder
    folder.mkdir(exist_ok=True)

    def record(**bounds):
        text = json.dumps({"where": "NVIDIA H200", "date": "2026-01-02", "functions": {"erf": bounds}})
        (folder / "elementary-nvidia-h200.json").write_text(text)
        return records_of(catalog)

    good = record(f32=bound(0.9126), f64=bound(0.9))
    assert verified.bound(good, "erf") == "measured 0.9126 in f32 (NVIDIA H200), 0.9 in f64 (NVIDIA H200)"
    assert list(verified.broken(good)) == []
    assert "| erf | f32 | 0.9126 | 0x1p+0 | 9 | 0 | NVIDIA H200 |" in page(good, "generated")
    changed = record(f32=bound(3, digest="0"))
    assert verified.bound(changed, "erf") == "not verified (its steps changed since)"
    assert list(verified.broken(changed)) == []
    far = record(f32=bound(1.25), f64=bound(0.5, wrong=1))
    assert len(list(verified.broken(far))) == 2 and "promised 1" in next(verified.broken(far))


def test_measured_functions_keep_what_is_promised():
    assert list(verified.broken(Records(evidence.package_of(CATALOG)))) == []
